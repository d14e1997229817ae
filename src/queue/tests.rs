//! The bounded queue between threads, and its receiver's sleep under a model checker.

use crate::queue::bell::Bell;
use crate::queue::sleep_state::{SleepState, Word};
use crate::queue::{Received, bounded, bounded_with_bell};
use loom::model::Builder;
use loom::sync::Notify;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

#[test]
fn a_full_queue_gives_the_item_back() {
    let (sender, mut receiver) = bounded(2);
    assert_eq!(sender.try_send(1), Ok(()));
    assert_eq!(sender.try_send(2), Ok(()));
    assert_eq!((sender.try_send(3), sender.len(), receiver.len()), (Err(3), 2, 2));
    assert_eq!(receiver.receive(), Received::Item(1));
    assert_eq!(sender.try_send_below(1, 4), Err(4));
    assert_eq!(sender.try_send_below(2, 4), Ok(()));
    let mut received = || receiver.try_receive();
    assert_eq!([received(), received(), received()], [Some(2), Some(4), None]);
    assert_eq!(receiver.receive(), Received::Empty);
}

#[test]
fn without_senders_the_receiver_drains_what_is_left_and_then_sees_the_end() {
    let (first, mut receiver) = bounded(4);
    let second = first.clone();
    assert_eq!(first.try_send("a"), Ok(()));
    drop(first);
    assert_eq!(second.try_send("b"), Ok(()));
    assert!(!receiver.senders_gone());
    drop(second);
    assert_eq!(receiver.receive(), Received::Item("a"));
    assert_eq!(receiver.receive(), Received::Item("b"));
    assert_eq!(receiver.receive(), Received::Ended);
}

#[test]
fn without_its_receiver_every_item_comes_back() {
    let (sender, receiver) = bounded(1);
    let item = Arc::new("in the queue");
    assert_eq!(sender.try_send(item.clone()), Ok(()));
    drop(receiver);
    assert!(sender.receiver_gone());
    assert_eq!(sender.try_send(Arc::new("late")), Err(Arc::new("late")));
    // The item in the queue was dropped with the receiver.
    assert_eq!(Arc::strong_count(&item), 1);
}

/// Sends items from several threads through a small queue to a receiver that sleeps until it is
/// rung.
fn items_arrive_once_and_in_each_senders_order(queue_items: usize, senders: u64, each: u64) {
    let bell = Arc::new(Bell::new().expect("an eventfd"));
    let (sender, mut receiver) = bounded_with_bell(queue_items, &bell);
    let spawn = |number: u64| {
        let sender = sender.clone();
        thread::spawn(move || {
            for item in 0..each {
                while sender.try_send((number, item)).is_err() {
                    thread::yield_now();
                }
            }
        })
    };
    let threads: Vec<_> = (0..senders).map(spawn).collect();
    drop(sender);
    let mut next = vec![0; usize::try_from(senders).expect("few")];
    loop {
        match receiver.receive() {
            Received::Item((number, item)) => {
                let expected = &mut next[usize::try_from(number).expect("few")];
                assert_eq!(item, *expected, "sender {number}");
                *expected += 1;
            }
            Received::Empty => bell.sleep(Duration::from_secs(3600)).expect("poll works"),
            Received::Ended => break,
        }
    }
    assert!(next.iter().all(|count| *count == each), "{next:?} of {each} each");
    threads.into_iter().for_each(|thread| thread.join().expect("the sender does not panic"));
}

#[test]
fn a_million_items_of_many_threads_arrive_once_and_in_order() {
    items_arrive_once_and_in_each_senders_order(64, 4, 250_000);
}

#[test]
fn a_queue_of_one_item_wakes_its_receiver_again_and_again() {
    items_arrive_once_and_in_each_senders_order(1, 8, 10_000);
}

impl Word for loom::sync::atomic::AtomicU8 {
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

/// A thread that sleeps on an eventfd, and a place for an item of each sender. Only the sleep state
/// orders memory between threads: the places are read and written relaxed.
struct Model {
    state: SleepState<loom::sync::atomic::AtomicU8>,
    eventfd: Notify,
    places: Vec<loom::sync::atomic::AtomicU64>,
}

impl Model {
    fn new(senders: usize) -> loom::sync::Arc<Model> {
        let place = |_| loom::sync::atomic::AtomicU64::new(0);
        loom::sync::Arc::new(Model {
            state: SleepState::with(loom::sync::atomic::AtomicU8::new(0)),
            eventfd: Notify::new(),
            places: (0..senders).map(place).collect(),
        })
    }

    fn send(&self, sender: usize, item: u64) {
        self.places[sender].store(item, Ordering::Relaxed);
        if self.state.call() {
            self.eventfd.notify();
        }
    }

    /// Sleeps until each place holds its last item.
    fn receive(&self, last: u64) {
        loop {
            let seen = |place: &loom::sync::atomic::AtomicU64| place.load(Ordering::Relaxed);
            if self.places.iter().all(|place| seen(place) == last) {
                return;
            }
            if self.state.try_sleep() {
                self.eventfd.wait();
            }
            self.state.wake_up();
        }
    }
}

/// Checks that the owner sees every item, in every interleaving and every order in which memory
/// operations may become visible. After a lost call it would sleep forever, which the checker
/// reports as a deadlock.
fn check_model(senders: usize, items: u64) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let model = Model::new(senders);
        let spawn = |sender: usize| {
            let model = model.clone();
            loom::thread::spawn(move || (1..=items).for_each(|item| model.send(sender, item)))
        };
        let threads: Vec<_> = (0..senders).map(spawn).collect();
        model.receive(items);
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    });
}

#[test]
fn no_call_of_one_sender_is_lost_in_any_interleaving() {
    check_model(1, 3);
}

#[test]
fn no_call_of_two_senders_is_lost_in_any_interleaving() {
    check_model(2, 1);
}
