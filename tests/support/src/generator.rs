//! Sends a load by raw Produce requests, at a fixed rate or as fast as the broker takes it.
//!
//! At a fixed rate each request has its time, whether or not the ones before were late, and events
//! carry the times at which they were due: a stall of whatever comes after is measured and not
//! hidden.

use crate::batch_load::Load;
use crate::wire::{Connection, ProduceRequest, check_produced};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};

/// Requests that wait for their acknowledgement: at a fixed rate more than any stall leaves.
const IN_FLIGHT_MAX_PACED: usize = 4096;
const IN_FLIGHT_MAX_UNPACED: usize = 5;

/// A pause shorter than this is skipped: a request may leave that early.
const EARLY: Duration = Duration::from_micros(20);

/// When requests leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Each when the last of its events is due, by the clock.
    Intended,
    /// Each when the broker has taken an earlier one.
    Unpaced,
}

/// Appends one load to one topic.
pub struct Generator<'a> {
    load: &'a Load,
    topic: String,
    connection: Connection,
    in_flight: SyncSender<()>,
    answers: JoinHandle<()>,
    pace: Pace,
    /// Intended time of the load's start, in microseconds since the Unix epoch.
    start_us: u64,
    request: Vec<u8>,
}

impl<'a> Generator<'a> {
    pub fn new(load: &'a Load, address: &str, topic: &str, pace: Pace) -> Generator<'a> {
        let connection = Connection::open(address);
        let in_flight_max = match pace {
            Pace::Intended => IN_FLIGHT_MAX_PACED,
            Pace::Unpaced => IN_FLIGHT_MAX_UNPACED,
        };
        let (in_flight, sent) = sync_channel(in_flight_max);
        let other_end = connection.other_end();
        let answers = thread::spawn(move || check_answers(other_end, &sent));
        let topic = topic.to_owned();
        let (start_us, request) = (0, Vec::new());
        Generator { load, topic, connection, in_flight, answers, pace, start_us, request }
    }

    /// All players join, at `start_us`.
    pub fn send_joins(&mut self, start_us: u64) {
        self.start_us = start_us;
        let mut number = 0;
        for part in 0..self.load.joins(0).len() {
            let mut request = ProduceRequest::begin(&mut self.request, &self.topic);
            for partition in 0..self.load.shape.partitions {
                let template = &self.load.joins(partition)[part];
                template.patch(request.add(partition, &template.bytes), start_us, number);
            }
            request.finish();
            self.send();
            number += self.load.joins(0)[part].events();
        }
    }

    /// Sends the batches of these ticks, counted from `start_us`. Gives the latest of all requests:
    /// how long after its time it left.
    pub fn send_ticks(&mut self, start_us: u64, ticks: std::ops::Range<u64>) -> Duration {
        self.start_us = start_us;
        let shape = self.load.shape;
        let mut latest = Duration::ZERO;
        for tick in ticks {
            let time_us = self.start_us + shape.tick_us(tick);
            self.write_tick(tick, time_us);
            if self.pace == Pace::Intended {
                latest = latest.max(wait_until(time_us + shape.event_us(shape.batch_events - 1)));
            }
            self.send();
        }
        latest
    }

    /// Sends the batches of one tick at once. Their first events were due at this time.
    pub fn send_tick(&mut self, tick: u64, time_us: u64) {
        self.write_tick(tick, time_us);
        self.send();
    }

    fn write_tick(&mut self, tick: u64, time_us: u64) {
        let shape = self.load.shape;
        let number = shape.joins() as u64 + tick * shape.batch_events as u64;
        let mut request = ProduceRequest::begin(&mut self.request, &self.topic);
        for partition in 0..shape.partitions {
            let template = self.load.batch(partition, tick);
            template.patch(request.add(partition, &template.bytes), time_us, number);
        }
        request.finish();
    }

    /// Waits until everything is acknowledged.
    pub fn finish(self) {
        drop(self.in_flight);
        self.answers.join().expect("the broker has taken everything");
    }

    fn send(&mut self) {
        self.in_flight.send(()).expect("the broker takes what is sent");
        self.connection.send(&self.request);
    }
}

fn check_answers(mut connection: Connection, sent: &Receiver<()>) {
    while let Ok(()) = sent.recv() {
        check_produced(connection.receive());
    }
}

/// Sleeps until a time of the clock, and says how late it is afterwards.
fn wait_until(time_us: u64) -> Duration {
    let time = Duration::from_micros(time_us);
    loop {
        let now = now();
        let Some(left) = time.checked_sub(now) else { return now - time };
        if left <= EARLY {
            return Duration::ZERO;
        }
        thread::sleep(left);
    }
}

fn now() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("the clock is set")
}

/// Microseconds since the Unix epoch.
pub fn now_us() -> u64 {
    now().as_micros() as u64
}
