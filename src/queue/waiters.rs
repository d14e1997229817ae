//! Who sleeps at a bounded queue, and who wakes them.
//!
//! The protocol is apart from the queue so that a model checker can run it over a queue that it can
//! see into: `tests/queue_wakes.rs` compiles this same file against loom's types.

use super::sync::{AtomicBool, AtomicU64, AtomicUsize, AtomicWaker, Ordering};
use std::task::{Context, Poll};

/// Senders that one queue can have: one bit each in [`Wakes::blocked`].
pub const SENDERS_MAX: usize = 64;

/// The sleeping ends of one queue: one receiver, up to [`SENDERS_MAX`] senders.
///
/// No wake is lost because each end announces that it will sleep with a read-modify-write, tries
/// once more, and only then sleeps, while the other end changes the queue first and then looks with
/// a read-modify-write of the same word. Whichever of the two comes second sees the first.
pub struct Wakes {
    receiver: AtomicWaker,
    senders: Vec<AtomicWaker>,
    /// Bit s is set while sender s may be asleep.
    blocked: AtomicU64,
    /// Bit s is set while sender s exists.
    taken: AtomicU64,
    sender_count: AtomicUsize,
    receiver_gone: AtomicBool,
}

impl Wakes {
    /// A queue's ends with one sender, in slot 0, and one receiver.
    pub fn new(senders_max: usize) -> Wakes {
        assert!(1 <= senders_max && senders_max <= SENDERS_MAX);
        Wakes {
            receiver: AtomicWaker::new(),
            senders: (0..senders_max).map(|_| AtomicWaker::new()).collect(),
            blocked: AtomicU64::new(0),
            taken: AtomicU64::new(1),
            sender_count: AtomicUsize::new(1),
            receiver_gone: AtomicBool::new(false),
        }
    }

    /// A slot for one more sender. The bound is a bug's sign: senders are made at start-up.
    pub fn add_sender(&self) -> usize {
        self.sender_count.fetch_add(1, Ordering::Relaxed);
        let mut taken = self.taken.load(Ordering::Relaxed);
        loop {
            let slot = (!taken).trailing_zeros() as usize;
            assert!(slot < self.senders.len(), "more senders than the queue was made for");
            let with_slot = taken | (1 << slot);
            match self.taken.compare_exchange(taken, with_slot, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => return slot,
                Err(now) => taken = now,
            }
        }
    }

    /// A sender is gone; with the last one the receiver drains what is left, then sees the end.
    pub fn remove_sender(&self, slot: usize) {
        self.blocked.fetch_and(!(1 << slot), Ordering::AcqRel);
        self.taken.fetch_and(!(1 << slot), Ordering::AcqRel);
        if self.sender_count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.receiver.wake();
        }
    }

    /// The receiver is gone: whoever waits to send learns it.
    pub fn remove_receiver(&self) {
        self.receiver_gone.store(true, Ordering::Release);
        self.wake_senders();
    }

    /// Whether nobody can send any more.
    pub fn senders_gone(&self) -> bool {
        self.sender_count.load(Ordering::Acquire) == 0
    }

    /// Whether sending has become pointless.
    pub fn receiver_gone(&self) -> bool {
        self.receiver_gone.load(Ordering::Acquire)
    }

    /// One attempt to send, `push` being the queue's own: ready once it has succeeded.
    pub fn poll_send(
        &self,
        slot: usize,
        context: &mut Context<'_>,
        mut push: impl FnMut() -> bool,
    ) -> Poll<Result<(), Closed>> {
        if self.receiver_gone() {
            return Poll::Ready(Err(Closed));
        }
        if !push() {
            self.senders[slot].register(context.waker());
            self.blocked.fetch_or(1 << slot, Ordering::AcqRel);
            if self.receiver_gone() {
                return Poll::Ready(Err(Closed));
            }
            if !push() {
                return Poll::Pending;
            }
        }
        self.pushed();
        Poll::Ready(Ok(()))
    }

    /// One attempt to receive, `pop` being the queue's own. Ready with `None` once the queue is
    /// empty and will stay so.
    pub fn poll_receive<T>(
        &self,
        context: &mut Context<'_>,
        mut pop: impl FnMut() -> Option<T>,
    ) -> Poll<Option<T>> {
        let mut item = pop();
        if item.is_none() {
            self.receiver.register(context.waker());
            // The senders are counted before the last look: a sender pushes, then goes, so what a
            // gone sender has pushed is seen.
            let ended = self.sender_count.load(Ordering::Acquire) == 0;
            item = pop();
            if item.is_none() {
                return if ended { Poll::Ready(None) } else { Poll::Pending };
            }
        }
        self.popped();
        Poll::Ready(item)
    }

    /// Tells the receiver that an item was pushed.
    pub fn pushed(&self) {
        self.receiver.wake();
    }

    /// Tells waiting senders that an item was popped.
    pub fn popped(&self) {
        self.wake_senders();
    }

    fn wake_senders(&self) {
        let mut blocked = self.blocked.swap(0, Ordering::AcqRel);
        while blocked != 0 {
            self.senders[blocked.trailing_zeros() as usize].wake();
            blocked &= blocked - 1;
        }
    }
}

/// The receiver is gone, so the item went nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed;
