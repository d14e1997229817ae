//! A bounded queue of many senders and one receiver, lock-free: crossbeam's `ArrayQueue` with ends
//! that know when the other is gone.
//!
//! Full: sending fails, and its caller waits a turn. All senders gone: the receiver drains what is
//! left, then sees the end. A queue wakes nobody by itself, unless it was made with the bell of
//! the thread that receives from it.

pub mod bell;

mod rest;

#[cfg(test)]
mod tests;

use bell::Bell;
use crossbeam_queue::ArrayQueue;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// A queue for at most `items_max` items, with its first sender.
pub fn bounded<T>(items_max: usize) -> (Sender<T>, Receiver<T>) {
    ends(items_max, None)
}

/// A queue whose senders ring the receiver's bell after each item, and when the last of them goes.
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

/// An end to put items in. Clones are further senders.
pub struct Sender<T> {
    shared: Arc<SharedQueue<T>>,
}

impl<T> Sender<T> {
    /// Sends if there is room now. `Err` gives the item back: the queue is full or its receiver
    /// gone.
    pub fn try_send(&self, item: T) -> Result<(), T> {
        if self.receiver_gone() {
            return Err(item);
        }
        self.shared.items.push(item)?;
        self.shared.ring();
        Ok(())
    }

    /// Sends if fewer items than this wait now, so that the rest of the room is left for messages
    /// that must not be lost. `Err` gives the item back.
    pub(crate) fn try_send_below(&self, items_max: usize, item: T) -> Result<(), T> {
        match self.len() < items_max {
            true => self.try_send(item),
            false => Err(item),
        }
    }

    /// Whether sending has become pointless.
    pub(crate) fn receiver_gone(&self) -> bool {
        self.shared.receiver_gone.load(Ordering::Acquire)
    }

    /// Items that wait now.
    pub fn len(&self) -> usize {
        self.shared.items.len()
    }

    /// Whether none waits now.
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

/// What a receiver finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received<T> {
    /// The next item.
    Item(T),
    /// Nothing now.
    Empty,
    /// Nothing now, and nothing will come: all senders are gone.
    Ended,
}

/// The end to take items out.
pub struct Receiver<T> {
    shared: Arc<SharedQueue<T>>,
}

impl<T> Receiver<T> {
    /// The next item, or why there is none.
    pub fn receive(&mut self) -> Received<T> {
        // A sender pushes, then goes: the poll after this sees everything that a gone sender has
        // pushed.
        let ended = self.senders_gone();
        match self.try_receive() {
            Some(item) => Received::Item(item),
            None if ended => Received::Ended,
            None => Received::Empty,
        }
    }

    /// The next item, if one is there now.
    pub fn try_receive(&mut self) -> Option<T> {
        self.shared.items.pop()
    }

    /// Whether all senders are gone: what waits now is the last.
    pub(crate) fn senders_gone(&self) -> bool {
        self.shared.senders.load(Ordering::Acquire) == 0
    }

    /// Items that wait now.
    pub(crate) fn len(&self) -> usize {
        self.shared.items.len()
    }

    /// Whether none waits now.
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
