//! A bounded lock-free queue with many senders and one receiver: crossbeam's `ArrayQueue` with ends
//! that know when the other end is gone.
//!
//! If the queue is full, sending fails, and the caller waits a turn. If all senders are gone, the
//! receiver drains the rest, then sees the end. A queue wakes nobody by itself, unless it was
//! created with the receiving thread's bell.

pub mod bell;

mod sleep_state;

#[cfg(test)]
mod tests;

use bell::Bell;
use crossbeam_queue::ArrayQueue;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Creates a queue for at most `items_max` items, with its first sender.
pub fn bounded<T>(items_max: usize) -> (Sender<T>, Receiver<T>) {
    ends(items_max, None)
}

/// Like [`bounded`], but senders ring the receiver's bell after each item, and when the last sender
/// is dropped.
pub fn bounded_with_bell<T>(items_max: usize, bell: &Arc<Bell>) -> (Sender<T>, Receiver<T>) {
    ends(items_max, Some(bell.clone()))
}

fn ends<T>(items_max: usize, bell: Option<Arc<Bell>>) -> (Sender<T>, Receiver<T>) {
    let shared = Arc::new(SharedQueue {
        items: ArrayQueue::new(items_max),
        senders: AtomicUsize::new(1),
        receiver_gone: AtomicBool::new(false),
        bell,
    });
    (Sender { shared: shared.clone() }, Receiver { shared })
}

struct SharedQueue<T> {
    items: ArrayQueue<T>,
    senders: AtomicUsize,
    receiver_gone: AtomicBool,
    bell: Option<Arc<Bell>>,
}

impl<T> SharedQueue<T> {
    fn ring(&self) {
        if let Some(bell) = &self.bell {
            bell.ring();
        }
    }
}

/// The sending end. Clones are further senders.
pub struct Sender<T> {
    shared: Arc<SharedQueue<T>>,
}

impl<T> Sender<T> {
    /// Sends if there is room. `Err` returns the item: the queue is full or its receiver is gone.
    pub fn try_send(&self, item: T) -> Result<(), T> {
        if self.receiver_gone() {
            return Err(item);
        }
        self.shared.items.push(item)?;
        self.shared.ring();
        Ok(())
    }

    /// Sends if fewer than `items_max` items are waiting, which reserves the other places for
    /// messages that must not be lost. `Err` returns the item.
    pub(crate) fn try_send_below(&self, items_max: usize, item: T) -> Result<(), T> {
        match self.len() < items_max {
            true => self.try_send(item),
            false => Err(item),
        }
    }

    /// Returns whether the receiver is gone, so that sending is pointless.
    pub(crate) fn receiver_gone(&self) -> bool {
        self.shared.receiver_gone.load(Ordering::Acquire)
    }

    /// Number of waiting items.
    pub fn len(&self) -> usize {
        self.shared.items.len()
    }

    /// Returns whether no item is waiting.
    pub fn is_empty(&self) -> bool {
        self.shared.items.is_empty()
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        self.shared.senders.fetch_add(1, Ordering::Relaxed);
        Sender { shared: self.shared.clone() }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        if self.shared.senders.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.shared.ring();
        }
    }
}

/// The result of receiving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received<T> {
    /// The next item.
    Item(T),
    /// No item now.
    Empty,
    /// No item now or later: all senders are gone.
    Ended,
}

/// The receiving end.
pub struct Receiver<T> {
    shared: Arc<SharedQueue<T>>,
}

impl<T> Receiver<T> {
    /// Receives the next item, or says why there is none.
    pub fn receive(&mut self) -> Received<T> {
        // A sender pushes, then drops: the poll after this check sees every item of the dropped
        // senders.
        let ended = self.senders_gone();
        match self.try_receive() {
            Some(item) => Received::Item(item),
            None if ended => Received::Ended,
            None => Received::Empty,
        }
    }

    /// Receives the next item, if one is waiting.
    pub fn try_receive(&mut self) -> Option<T> {
        self.shared.items.pop()
    }

    /// Returns whether all senders are gone: no further item will come.
    pub(crate) fn senders_gone(&self) -> bool {
        self.shared.senders.load(Ordering::Acquire) == 0
    }

    /// Number of waiting items.
    pub(crate) fn len(&self) -> usize {
        self.shared.items.len()
    }

    /// Returns whether no item is waiting.
    pub fn is_empty(&self) -> bool {
        self.shared.items.is_empty()
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.shared.receiver_gone.store(true, Ordering::Release);
        while self.shared.items.pop().is_some() {}
    }
}
