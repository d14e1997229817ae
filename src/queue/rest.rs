//! Whether a thread rests: the one word through which threads wake each other.
//!
//! A sender first pushes its item, then calls. The owner of the word first tries to rest, which
//! succeeds only if nobody has called since it last woke up, and polls its queues after each
//! waking up. So a call between its last poll and its rest keeps it awake, and a later call finds
//! it asleep and learns that it must ring. `tests.rs` checks that in every interleaving.

use std::sync::atomic::{AtomicU8, Ordering};

const AWAKE: u8 = 0;
const ASLEEP: u8 = 1;
const CALLED: u8 = 2;

/// The atomic operations that the protocol needs. The model checker brings atomics of its own.
pub(crate) trait Word {
    fn load(&self, order: Ordering) -> u8;
    fn swap(&self, value: u8, order: Ordering) -> u8;
    fn replace(&self, current: u8, value: u8, order: Ordering) -> bool;
}

impl Word for AtomicU8 {
    fn load(&self, order: Ordering) -> u8 {
        self.load(order)
    }

    fn swap(&self, value: u8, order: Ordering) -> u8 {
        self.swap(value, order)
    }

    fn replace(&self, current: u8, value: u8, order: Ordering) -> bool {
        self.compare_exchange(current, value, order, Ordering::Relaxed).is_ok()
    }
}

/// Whether one thread, the owner, rests or was called.
#[derive(Default)]
pub(crate) struct Rest<W> {
    word: W,
}

impl<W: Word> Rest<W> {
    /// For the owner: whether it may sleep. If so, the next call must ring.
    pub(crate) fn try_rest(&self) -> bool {
        self.word.replace(AWAKE, ASLEEP, Ordering::AcqRel)
    }

    /// For the owner, before it polls its queues: it then sees everything that was sent before any
    /// earlier call.
    pub(crate) fn wake_up(&self) {
        self.word.swap(AWAKE, Ordering::AcqRel);
    }

    /// For any thread, after its work is visible: whether the owner sleeps and must be rung for.
    /// True at most once a sleep.
    pub(crate) fn call(&self) -> bool {
        self.word.swap(CALLED, Ordering::AcqRel) == ASLEEP
    }

    /// For the owner: whether it has been called since it last woke up.
    pub(crate) fn is_called(&self) -> bool {
        self.word.load(Ordering::Relaxed) == CALLED
    }

    #[cfg(test)]
    pub(crate) fn with(word: W) -> Rest<W> {
        Rest { word }
    }
}
