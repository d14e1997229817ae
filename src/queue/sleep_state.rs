//! The sleep state of a thread: one atomic word through which threads wake each other.
//!
//! A sender first pushes its item, then calls. The owner of the word tries to sleep, which succeeds
//! only if there was no call since it last woke up; after each wake-up it polls its queues. So a
//! call between its last poll and its sleep keeps it awake, and a later call finds it asleep and
//! must ring. `tests.rs` checks this in every interleaving.

use std::sync::atomic::{AtomicU8, Ordering};

const AWAKE: u8 = 0;
const ASLEEP: u8 = 1;
const CALLED: u8 = 2;

/// The atomic operations that the protocol needs. The model checker supplies its own atomics.
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

/// The sleep state of one thread, the owner: awake, asleep or called.
#[derive(Default)]
pub(crate) struct SleepState<W> {
    word: W,
}

impl<W: Word> SleepState<W> {
    /// For the owner: returns whether it may sleep. If so, the next call must ring.
    pub(crate) fn try_sleep(&self) -> bool {
        self.word.replace(AWAKE, ASLEEP, Ordering::AcqRel)
    }

    /// For the owner, before it polls its queues: it then sees every item that was sent before an
    /// earlier call.
    pub(crate) fn wake_up(&self) {
        self.word.swap(AWAKE, Ordering::AcqRel);
    }

    /// For any thread, after its work is visible. Returns true, at most once per sleep, if the
    /// owner sleeps and must be woken.
    pub(crate) fn call(&self) -> bool {
        self.word.swap(CALLED, Ordering::AcqRel) == ASLEEP
    }

    /// For the owner: whether there was a call since it last woke up.
    pub(crate) fn is_called(&self) -> bool {
        self.word.load(Ordering::Relaxed) == CALLED
    }

    #[cfg(test)]
    pub(crate) fn with(word: W) -> SleepState<W> {
        SleepState { word }
    }
}
