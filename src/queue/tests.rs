//! The bounded queue itself, between tasks and between threads.

use crate::queue::bounded;
use futures_lite::future::{block_on, poll_once, zip};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

/// Counts how often it was woken.
#[derive(Default)]
struct Wakes(AtomicU64);

impl Wake for Wakes {
    fn wake(self: Arc<Wakes>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Wakes {
    fn count(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

#[test]
fn a_full_queue_lets_its_senders_wait_until_there_is_room() {
    let (mut sender, mut receiver) = bounded(2);
    assert_eq!(sender.try_send(1), Ok(()));
    assert_eq!(sender.try_send(2), Ok(()));
    assert_eq!((sender.try_send(3), sender.len(), receiver.len()), (Err(3), 2, 2));

    let wakes = Arc::new(Wakes::default());
    let waker = Waker::from(wakes.clone());
    let mut context = Context::from_waker(&waker);
    let mut sending = Box::pin(sender.send(4));
    assert!(sending.as_mut().poll(&mut context).is_pending());
    assert_eq!(wakes.count(), 0);
    assert_eq!(receiver.try_receive(), Some(1));
    assert_eq!(wakes.count(), 1);
    assert_eq!(sending.as_mut().poll(&mut context), Poll::Ready(Ok(())));
    drop(sending);
    assert_eq!(sender.try_send(5), Err(5));
    let mut received = || receiver.try_receive();
    assert_eq!([received(), received(), received()], [Some(2), Some(4), None]);
}

#[test]
fn a_send_that_was_given_up_sends_nothing_and_leaves_the_queue_in_order() {
    let (mut sender, mut receiver) = bounded(1);
    assert_eq!(sender.try_send(1), Ok(()));
    assert_eq!(block_on(poll_once(sender.send(2))), None);
    assert_eq!(receiver.try_receive(), Some(1));
    assert_eq!(receiver.try_receive(), None);
    assert_eq!(block_on(sender.send(3)), Ok(()));
    assert_eq!(receiver.try_receive(), Some(3));
}

#[test]
fn a_sender_wakes_the_receiver_that_waits() {
    let (sender, mut receiver) = bounded(2);
    let wakes = Arc::new(Wakes::default());
    let waker = Waker::from(wakes.clone());
    let mut context = Context::from_waker(&waker);
    assert_eq!(receiver.poll_receive(&mut context), Poll::Pending);
    assert_eq!(sender.try_send(7), Ok(()));
    assert_eq!(wakes.count(), 1);
    assert_eq!(receiver.poll_receive(&mut context), Poll::Ready(Some(7)));
    assert_eq!(receiver.poll_receive(&mut context), Poll::Pending);
    drop(sender);
    assert_eq!(wakes.count(), 2);
    assert_eq!(receiver.poll_receive(&mut context), Poll::Ready(None));
}

#[test]
fn without_senders_the_receiver_drains_what_is_left_and_then_sees_the_end() {
    let (first, mut receiver) = bounded(4);
    let second = first.clone();
    assert_eq!(first.try_send("a"), Ok(()));
    drop(first);
    assert_eq!(second.try_send("b"), Ok(()));
    drop(second);
    let drained = block_on(async {
        [receiver.receive().await, receiver.receive().await, receiver.receive().await]
    });
    assert_eq!(drained, [Some("a"), Some("b"), None]);
    assert_eq!(block_on(receiver.receive()), None);
}

#[test]
fn without_its_receiver_every_way_to_send_gives_the_item_back() {
    let (mut sender, receiver) = bounded(1);
    let mut waiting = sender.clone();
    let item = Arc::new("in the queue");
    assert_eq!(sender.try_send(item.clone()), Ok(()));
    let sent = block_on(zip(waiting.send(Arc::new("waits")), async { drop(receiver) })).0;
    assert_eq!(sent, Err(Arc::new("waits")));
    assert_eq!(sender.try_send(Arc::new("late")), Err(Arc::new("late")));
    assert_eq!(block_on(sender.send(Arc::new("later"))), Err(Arc::new("later")));
    // What was in the queue went with the receiver.
    assert_eq!(Arc::strong_count(&item), 1);
}

#[test]
fn a_sender_that_goes_makes_room_for_another() {
    let (sender, _receiver) = bounded::<u8>(1);
    for _ in 0..1_000 {
        let clones: Vec<_> = (0..8).map(|_| sender.clone()).collect();
        drop(clones);
    }
}

/// Items of several threads that wait at a small queue and at each other.
fn items_arrive_once_and_in_each_senders_order(queue_items: usize, senders: u64, each: u64) {
    let (sender, mut receiver) = bounded(queue_items);
    let spawn = |number: u64| {
        let mut sender = sender.clone();
        thread::spawn(move || {
            for item in 0..each {
                let mut item = (number, item);
                // Every other item takes the way without waiting first.
                if item.1 % 2 == 0 {
                    match sender.try_send(item) {
                        Ok(()) => continue,
                        Err(back) => item = back,
                    }
                }
                assert_eq!(block_on(sender.send(item)), Ok(()));
            }
        })
    };
    let threads: Vec<_> = (0..senders).map(spawn).collect();
    drop(sender);
    let mut next = vec![0; usize::try_from(senders).expect("few")];
    while let Some((number, item)) = block_on(receiver.receive()) {
        let expected = &mut next[usize::try_from(number).expect("few")];
        assert_eq!(item, *expected, "sender {number}");
        *expected += 1;
    }
    assert!(next.iter().all(|count| *count == each), "{next:?} of {each} each");
    threads.into_iter().for_each(|thread| thread.join().expect("the sender does not panic"));
}

#[test]
fn a_million_items_of_many_threads_arrive_once_and_in_order() {
    items_arrive_once_and_in_each_senders_order(64, 4, 250_000);
}

#[test]
fn a_queue_of_one_item_wakes_everybody_again_and_again() {
    items_arrive_once_and_in_each_senders_order(1, 8, 10_000);
}
