//! The queue's wake protocol under loom: in every interleaving, and every order in which memory
//! operations may become visible, no item is lost and nobody sleeps for ever (loom calls that a
//! deadlock).
//!
//! The protocol's own file is compiled against loom's types. The queue is a model of one place that
//! can hold one item: like crossbeam's, it says full or empty after a load that may be stale, so
//! nothing but the protocol makes the other end's doings visible.

#[expect(unreachable_pub, reason = "the file is a public module of the library")]
#[allow(dead_code, reason = "the queue uses more of it than its model")]
#[path = "../src/queue/waiters.rs"]
mod waiters;

use loom::model::Builder;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::sync::{Arc, Notify};
use loom::thread;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Context, Poll, Wake, Waker};
use waiters::{Closed, Wakes};

/// What `wakes` finds in place of the types that the daemon gives it.
mod sync {
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
    use std::task::Waker;

    /// A waker behind a lock: it promises what the daemon's promises, that of a registration and a
    /// wake the second sees everything that was before the first.
    pub(crate) struct AtomicWaker(loom::sync::Mutex<Option<Waker>>);

    impl AtomicWaker {
        pub(crate) fn new() -> AtomicWaker {
            AtomicWaker(loom::sync::Mutex::new(None))
        }

        pub(crate) fn register(&self, waker: &Waker) {
            *self.0.lock().expect("no thread panicked") = Some(waker.clone());
        }

        pub(crate) fn wake(&self) {
            let waker = self.0.lock().expect("no thread panicked").take();
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}

/// A thread's own sleep until its task is woken, or until it wakes up by itself: loom tries that
/// once for each of these.
struct Sleeper(Notify);

impl Wake for Sleeper {
    fn wake(self: std::sync::Arc<Sleeper>) {
        self.0.notify();
    }
}

/// A queue for one item that is not 0, and the wakers of its ends.
struct Queue {
    place: AtomicU64,
    wakes: Wakes,
}

impl Queue {
    fn new(senders: usize) -> Arc<Queue> {
        Arc::new(Queue { place: AtomicU64::new(0), wakes: Wakes::new(senders) })
    }

    fn push(&self, item: u64) -> bool {
        self.place.load(Ordering::Acquire) == 0
            && self.place.compare_exchange(0, item, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    fn pop(&self) -> Option<u64> {
        let item = self.place.load(Ordering::Acquire);
        if item == 0 {
            return None;
        }
        let taken = self.place.compare_exchange(item, 0, Ordering::AcqRel, Ordering::Relaxed);
        Some(taken.expect("there is one receiver"))
    }
}

/// One end of a queue, in the thread that uses it.
struct End {
    queue: Arc<Queue>,
    slot: usize,
    sleeper: std::sync::Arc<Sleeper>,
}

impl End {
    fn new(queue: &Arc<Queue>, slot: usize) -> End {
        let sleeper = std::sync::Arc::new(Sleeper(Notify::new()));
        End { queue: queue.clone(), slot, sleeper }
    }

    fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        let waker = Waker::from(self.sleeper.clone());
        let mut context = Context::from_waker(&waker);
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                return output;
            }
            self.sleeper.0.wait();
        }
    }

    /// Sends as `Sender::send` does.
    fn send(&self, item: u64) -> Result<(), Closed> {
        let Queue { wakes, .. } = &*self.queue;
        let push = || self.queue.push(item);
        self.block_on(poll_fn(|context| wakes.poll_send(self.slot, context, push)))
    }

    /// Receives as `Receiver::receive` does.
    fn receive(&self) -> Option<u64> {
        let Queue { wakes, .. } = &*self.queue;
        let pop = || self.queue.pop();
        self.block_on(poll_fn(|context| wakes.poll_receive(context, pop)))
    }
}

/// Explores with at most so many preemptions; voluntary switches are not counted.
fn explore(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// A thread that sends the items and then drops its end.
fn sender(queue: &Arc<Queue>, slot: usize, items: &'static [u64]) -> thread::JoinHandle<()> {
    let queue = queue.clone();
    thread::spawn(move || {
        let end = End::new(&queue, slot);
        for &item in items {
            assert_eq!(end.send(item), Ok(()));
        }
        queue.wakes.remove_sender(slot);
    })
}

#[test]
fn one_senders_items_arrive_in_order_and_then_the_end() {
    explore(3, || {
        let queue = Queue::new(1);
        let sender = sender(&queue, 0, &[1, 2, 3]);
        let receiver = End::new(&queue, 0);
        for item in 1..=3 {
            assert_eq!(receiver.receive(), Some(item));
        }
        assert_eq!(receiver.receive(), None);
        sender.join().expect("the sender did not panic");
    });
}

/// Receives from two senders until the end: all items, each sender's in their order.
fn receive_from_two(first: &'static [u64], second: &'static [u64]) {
    let queue = Queue::new(2);
    let second_slot = queue.wakes.add_sender();
    let threads = [sender(&queue, 0, first), sender(&queue, second_slot, second)];
    let receiver = End::new(&queue, 0);
    let mut rest = [first, second];
    while let Some(item) = receiver.receive() {
        let from = rest.iter_mut().find(|items| items.first() == Some(&item));
        from.expect("an item in its sender's order").split_off_first();
    }
    assert!(rest.iter().all(|items| items.is_empty()), "{rest:?} did not arrive");
    for thread in threads {
        thread.join().expect("a sender did not panic");
    }
}

#[test]
fn the_items_of_two_senders_arrive_and_then_the_end() {
    explore(2, || receive_from_two(&[1], &[2]));
}

#[test]
fn the_items_of_two_senders_arrive_in_each_senders_order() {
    explore(1, || receive_from_two(&[10, 11], &[20]));
}

#[test]
fn senders_that_wait_learn_that_the_receiver_is_gone() {
    explore(3, || {
        let queue = Queue::new(2);
        let second_slot = queue.wakes.add_sender();
        let senders = [0, second_slot].map(|slot| {
            let queue = queue.clone();
            // There is room for one item: the next one waits, for ever if nobody says that the
            // receiver is gone.
            thread::spawn(move || {
                let end = End::new(&queue, slot);
                while end.send(1).is_ok() {}
                queue.wakes.remove_sender(slot);
            })
        });
        queue.wakes.remove_receiver();
        for sender in senders {
            sender.join().expect("a sender did not panic");
        }
    });
}

#[test]
fn a_receiver_that_waits_learns_that_the_senders_are_gone() {
    explore(3, || {
        let queue = Queue::new(2);
        let second_slot = queue.wakes.add_sender();
        let first = sender(&queue, 0, &[]);
        let second = sender(&queue, second_slot, &[]);
        assert_eq!(End::new(&queue, 0).receive(), None);
        first.join().expect("the first sender did not panic");
        second.join().expect("the second sender did not panic");
    });
}
