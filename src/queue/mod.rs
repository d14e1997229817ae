//! A bounded queue of many senders and one receiver, lock-free: crossbeam's `ArrayQueue` and the
//! wakers of whoever waits at it.
//!
//! Full = senders wait. All senders gone = the receiver drains what is left, then sees the end.
//! The same queue joins stages of one thread and threads: a waker decides how its owner is woken.

pub mod bell;
pub mod waiters;

#[cfg(test)]
mod tests;

/// The types that the wake protocol stands on; a model checker puts its own in their place.
mod sync {
    pub(super) use atomic_waker::AtomicWaker;
    pub(super) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
}

use crossbeam_queue::ArrayQueue;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use waiters::{SENDERS_MAX, Wakes};

/// A queue for at most `items_max` items, with its first sender.
pub fn bounded<T>(items_max: usize) -> (Sender<T>, Receiver<T>) {
    let shared =
        Arc::new(Shared { items: ArrayQueue::new(items_max), wakes: Wakes::new(SENDERS_MAX) });
    (Sender { shared: shared.clone(), slot: 0 }, Receiver { shared })
}

struct Shared<T> {
    items: ArrayQueue<T>,
    wakes: Wakes,
}

/// An end to put items in. Clones are further senders.
pub struct Sender<T> {
    shared: Arc<Shared<T>>,
    slot: usize,
}

impl<T> Sender<T> {
    /// Waits until there is room, then sends. `Err` gives the item back: the receiver is gone.
    pub async fn send(&mut self, item: T) -> Result<(), T> {
        let mut item = Some(item);
        let sent = poll_fn(|context| self.poll_send(context, &mut item)).await;
        match sent {
            Ok(()) => Ok(()),
            Err(waiters::Closed) => Err(item.expect("an item that was not pushed is still here")),
        }
    }

    fn poll_send(
        &mut self,
        context: &mut Context<'_>,
        item: &mut Option<T>,
    ) -> Poll<Result<(), waiters::Closed>> {
        let items = &self.shared.items;
        self.shared.wakes.poll_send(self.slot, context, || match item.take() {
            Some(value) => match items.push(value) {
                Ok(()) => true,
                Err(value) => {
                    *item = Some(value);
                    false
                }
            },
            None => true,
        })
    }

    /// Sends if there is room now. `Err` gives the item back: the queue is full or its receiver
    /// gone.
    pub fn try_send(&self, item: T) -> Result<(), T> {
        if self.shared.wakes.receiver_gone() {
            return Err(item);
        }
        self.shared.items.push(item)?;
        self.shared.wakes.pushed();
        Ok(())
    }

    /// Sends if fewer items than this wait now, so that the rest of the room is left for messages
    /// that must not be lost. `Err` gives the item back.
    pub fn try_send_below(&self, items_max: usize, item: T) -> Result<(), T> {
        match self.len() < items_max {
            true => self.try_send(item),
            false => Err(item),
        }
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
        Sender { shared: self.shared.clone(), slot: self.shared.wakes.add_sender() }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.shared.wakes.remove_sender(self.slot);
    }
}

/// The end to take items out.
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
}

impl<T> Receiver<T> {
    /// Waits for the next item. `None` once all senders are gone and nothing is left.
    pub async fn receive(&mut self) -> Option<T> {
        poll_fn(|context| self.poll_receive(context)).await
    }

    /// The same as one poll, for a stage that waits for more than this queue.
    pub fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<Option<T>> {
        let items = &self.shared.items;
        self.shared.wakes.poll_receive(context, || items.pop())
    }

    /// The next item, if one is there now.
    pub fn try_receive(&mut self) -> Option<T> {
        let item = self.shared.items.pop()?;
        self.shared.wakes.popped();
        Some(item)
    }

    /// Whether all senders are gone: what waits now is the last.
    pub fn senders_gone(&self) -> bool {
        self.shared.wakes.senders_gone()
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

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.shared.wakes.remove_receiver();
        while self.shared.items.pop().is_some() {}
    }
}
