//! A producer for frames on the publisher's own ring: one connection to each broker that leads, one
//! request for all of its partitions.
//!
//! Records other than frames are rare, and go through another producer.

mod suspects;
mod lane;
mod lanes;
mod leader;
mod pending;
mod producer_id_request;

#[cfg(test)]
mod tests;

use crate::fetch::dialling::{DialEnds, Dialling, Endpoint, MetadataLink, free_task};
use crate::fetch::stage::CONNECTIONS_MAX;
use crate::fetch::witnesses::Witnesses;
use crate::kafka::throttle::Throttle;
use crate::kafka::{LEADERLESS_MS_MAX, RECONNECT_MS_MAX, RECONNECT_MS_MIN};
use crate::output::dead_letter::DeadLetter;
use crate::publisher::PublisherOptions;
use crate::publisher::producer::{Delivery, Produce};
use crate::publisher::publishing::Time;
use crate::runtime::turns::Turns;
use crate::telemetry::progress::Progress;
use crate::telemetry::repeated::Repeated;
use lanes::{LaneOptions, Lanes};
use leader::{DOUBT_MS, Leader};
use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

/// Frames on a ring, everything else through `O`.
pub struct NativeProducer<T, O> {
    shared: Rc<SharedProducer<T>>,
    output_topic: String,
    others: O,
    metadata: Pin<Box<dyn Future<Output = Infallible>>>,
    leaders: Vec<LeaderTask>,
}

/// A broker's task.
struct LeaderTask {
    node_id: i32,
    task: usize,
    future: Pin<Box<dyn Future<Output = ()>>>,
}

/// What all tasks share.
struct SharedProducer<T> {
    turns: Rc<Turns>,
    lanes: RefCell<Lanes<T>>,
    dialling: Dialling,
    /// Milliseconds since the Unix epoch.
    now_ms: Cell<i64>,
    trouble: RefCell<Repeated>,
    progress: Arc<Progress>,
}

impl<T> SharedProducer<T> {
    /// A broker throttles: the frames of all shards that it leads wait.
    fn count_throttled(&self, node_id: i32, throttle_ms: u32) {
        let lanes = self.lanes.borrow();
        for (partition, shard) in self.progress.owned() {
            let leader = lanes.table().leader(partition);
            if leader.is_some_and(|leader| leader.node_id == node_id) {
                shard.frames_throttled_ms.add(Throttle::muted_ms(throttle_ms));
            }
        }
    }

    fn note_trouble(&self, sentence: &str) {
        if let Some(withheld) = self.trouble.borrow_mut().notice(self.turns.now()) {
            tracing::warn!(withheld, "frames cannot be sent now: {sentence}");
        }
    }
}

impl<T: 'static, O> NativeProducer<T, O> {
    /// A producer that has no connection yet.
    pub fn new(
        options: &PublisherOptions,
        turns: &Rc<Turns>,
        ends: DialEnds,
        progress: Arc<Progress>,
        others: O,
    ) -> NativeProducer<T, O> {
        let output_topic = options.output_topic.clone();
        let lanes = Lanes::new(LaneOptions {
            client_id: options.client.client_id.clone(),
            topic: output_topic.clone(),
            compression: options.compression,
        });
        let shared = Rc::new(SharedProducer {
            turns: turns.clone(),
            lanes: RefCell::new(lanes),
            dialling: Dialling::new(ends),
            now_ms: Cell::new(0),
            trouble: RefCell::new(Repeated::new()),
            progress,
        });
        let metadata = Box::pin(follow_metadata(shared.clone()));
        NativeProducer { shared, output_topic, others, metadata, leaders: Vec::new() }
    }

    /// Closes all connections.
    pub(crate) fn close(&mut self) {
        self.leaders.clear();
    }

    /// The producer for everything except frames.
    pub(crate) fn into_others(self) -> O {
        self.others
    }

    /// Adds the missing task of each broker that leads.
    fn add_leaders(&mut self) {
        for node_id in self.shared.lanes.borrow().leaders() {
            if self.leaders.iter().any(|leader| leader.node_id == node_id) {
                continue;
            }
            let Some(task) = free_task(self.leaders.iter().map(|leader| leader.task)) else {
                let sentence = format!("more than {CONNECTIONS_MAX} brokers lead");
                return self.shared.note_trouble(&sentence);
            };
            let leader = Leader { shared: self.shared.clone(), task, node_id };
            self.leaders.push(LeaderTask { node_id, task, future: Box::pin(leader.run()) });
        }
    }
}

impl<T: 'static, O: Produce<T>> Produce<T> for NativeProducer<T, O> {
    fn expect_frames(&mut self, partition: i32) {
        self.shared.lanes.borrow_mut().expect_frames(partition);
    }

    fn expect_no_frames(&mut self, partition: i32) {
        self.shared.lanes.borrow_mut().expect_no_frames(partition);
    }

    fn send(&mut self, topic: &str, partition: i32, bytes: &[u8], receipt: T) {
        if topic != self.output_topic {
            return self.others.send(topic, partition, bytes, receipt);
        }
        self.shared.lanes.borrow_mut().push(partition, bytes, receipt);
    }

    fn send_dead_letter(
        &mut self,
        topic: &str,
        input_topic: &str,
        letter: &DeadLetter,
        receipt: T,
    ) {
        self.others.send_dead_letter(topic, input_topic, letter, receipt);
    }

    fn poll(&mut self, time: Time) {
        self.others.poll(time);
        self.shared.now_ms.set(time.now_us / 1000);
        self.shared.dialling.take_answers();
        let mut context = Context::from_waker(Waker::noop());
        if self.metadata.as_mut().poll(&mut context).is_ready() {
            unreachable!("metadata are followed for ever");
        }
        self.add_leaders();
        // A broker that is gone leaves its place to others.
        self.leaders.retain_mut(|leader| leader.future.as_mut().poll(&mut context).is_pending());
        let turns = &self.shared.turns;
        if let Some(at) = self.shared.lanes.borrow().next_at(turns.now()) {
            turns.turn_at(at);
        }
    }

    fn next_delivery(&mut self) -> Option<Delivery<T>> {
        let delivery = self.shared.lanes.borrow_mut().next_delivery();
        delivery.or_else(|| self.others.next_delivery())
    }

    fn must_be_polled(&self) -> bool {
        self.others.must_be_polled()
    }

    fn fatal_error(&self) -> Option<String> {
        self.others.fatal_error()
    }

    /// The lanes go on: they have nothing to do with librdkafka's client.
    fn replace(&mut self) -> Vec<Delivery<T>> {
        self.others.replace()
    }
}

/// Asks who leads whenever something waits for that, or a leader may be none any more.
async fn follow_metadata<T>(shared: Rc<SharedProducer<T>>) -> Infallible {
    let SharedProducer { turns, lanes, dialling, .. } = &*shared;
    let (mut wait_ms, mut witnesses) = (RECONNECT_MS_MIN, Witnesses::default());
    // Each doubt takes a connection, and one answer is about all leaders.
    let mut doubts_from = turns.now();
    loop {
        let doubted = turns
            .until(|| {
                let mut lanes = lanes.borrow_mut();
                if turns.now() < doubts_from {
                    turns.turn_at(doubts_from);
                } else if let Some(doubted) = lanes.suspects.take() {
                    return Some(Some(doubted));
                }
                lanes.needs_metadata().then_some(None)
            })
            .await;
        let link = match doubted {
            None if lanes.borrow().table().lags() => MetadataLink::New,
            None => MetadataLink::Kept,
            Some(doubted) => {
                doubts_from = turns.now() + Duration::from_millis(DOUBT_MS);
                let lanes = lanes.borrow();
                let witness = witnesses.next(lanes.table(), doubted).map(Endpoint::of);
                witness.map_or(MetadataLink::New, MetadataLink::NewTo)
            }
        };
        let is_of_witness = matches!(link, MetadataLink::NewTo(_));
        dialling.ask_metadata(turns.now(), link);
        dialling.ring();
        let answer = turns.until(|| dialling.take_metadata()).await;
        if let (Some(doubted), true, Err(_)) = (doubted, is_of_witness, &answer) {
            witnesses.note_useless(doubted);
        }
        match answer {
            Ok(metadata) => {
                lanes.borrow_mut().learn(&metadata, doubted, turns.now());
                wait_ms = wait_ms.min(LEADERLESS_MS_MAX);
            }
            // A broker that is only asked for its opinion may be away.
            Err(error) if is_of_witness && !error.is_final() => {}
            Err(error) => shared.note_trouble(&error.to_string()),
        }
        turns.turn_again();
        if !lanes.borrow().needs_metadata() {
            wait_ms = RECONNECT_MS_MIN;
        }
        // Asking again at once would give the same answer: an election takes its time.
        turns.sleep_until(turns.now() + Duration::from_millis(wait_ms)).await;
        wait_ms = (wait_ms * 2).min(RECONNECT_MS_MAX);
    }
}
