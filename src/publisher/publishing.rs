//! The publisher's loop body: it sends what arrives to a producer, and passes the producer's
//! deliveries to the ledger.

use super::ledger::{Ledger, Settled};
use super::producer::{Delivery, Produce, SendFailure};
use super::sent::{QuotaItem, Sent, SentFrame, SentLetter};
use super::ticker::{Ticker, tick_id};
use super::{Outgoing, PublisherEnds, PublisherError, PublisherOptions, ToPublisher};
use crate::output::dead_letter::DeadLetter;
use crate::output::frame::{Frame, FrameHeader};
use crate::output::{encode, event_json};
use crate::ownership::event::{DeliveryFailure, ToControl};
use crate::publisher::producer::{PUBLISHER_BUSY_MS_MAX, PUBLISHER_FLUSH_MS_MAX};
use crate::queue::Received;
use crate::runtime::wall_clock::unix_us;
use crate::snapshot::checkpoint::{CheckpointId, ToSnapshots};
use crate::telemetry::metrics::{Counter, Gauge};
use crate::telemetry::repeated::Repeated;
use std::time::{Duration, Instant};

/// Frames and dead letters that the publisher takes from its inbox between two polls of what the
/// broker has acknowledged: acknowledgements free the shards' quotas, so they must not wait long.
const PUBLISHER_BATCH_MAX: usize = 256;

/// Milliseconds without ticks after a fatal error. If its cause lasts, it ends the next client of
/// librdkafka, too, and the ticks of many zones would start one client after another.
const TICKS_PAUSE_MS: u64 = 1_000;

/// Milliseconds that the publisher may sleep while nothing is due.
pub(super) const PUBLISHER_IDLE_MS_MAX: u64 = 100;

/// What time it is.
#[derive(Clone, Copy, Debug)]
pub struct Time {
    /// For deadlines.
    pub now: Instant,
    /// Microseconds since the Unix epoch.
    pub now_us: i64,
}

impl Time {
    pub(super) fn read() -> Time {
        Time { now: Instant::now(), now_us: unix_us() }
    }
}

/// What was left in the inbox.
pub enum Inbox {
    /// There may be more.
    Full,
    /// There was no more.
    Empty,
    /// There will be no more.
    Ended,
}

/// What the publisher's thread must do after a turn.
pub(super) enum Pause {
    /// There is more to do.
    None,
    /// It sleeps until it is called or an operation ends, at most this long.
    UntilCalled(Duration),
    /// It ends.
    Ended,
}

/// The publisher, apart from its thread.
pub struct Publisher<P> {
    options: PublisherOptions,
    ends: PublisherEnds,
    producer: P,
    /// When the present turn began.
    time: Time,
    ledger: Ledger,
    ticker: Ticker,
    tick_trouble: Repeated,
    /// Zones that a player can go to.
    zones: i32,
    /// The frame that is being encoded.
    bytes: Vec<u8>,
    /// Bytes of the frames that wait for their acknowledgement.
    in_flight_bytes: usize,
    /// Records whose delivery is not known yet, without ticks: nobody waits for these.
    unacknowledged: usize,
    /// Set once all senders are gone.
    flush_end: Option<Instant>,
}

impl<P: Produce<Sent>> Publisher<P> {
    /// A publisher that has sent nothing.
    pub fn new(options: PublisherOptions, ends: PublisherEnds, producer: P) -> Publisher<P> {
        let ticker = Ticker::new(options.tick_every_ms);
        Publisher {
            options,
            ticker,
            tick_trouble: Repeated::new(),
            zones: 0,
            ends,
            producer,
            time: Time::read(),
            ledger: Ledger::new(),
            bytes: Vec::new(),
            in_flight_bytes: 0,
            unacknowledged: 0,
            flush_end: None,
        }
    }

    /// Sends what waits, and handles the known deliveries.
    pub fn turn(&mut self, time: Time) -> Inbox {
        self.time = time;
        // First, so that the records of this turn go to a producer that works.
        self.replace_failed_producer();
        self.tick();
        let inbox = self.send_batch();
        self.reap();
        inbox
    }

    /// Sends what waits in the inbox, a bounded number.
    fn send_batch(&mut self) -> Inbox {
        for _ in 0..PUBLISHER_BATCH_MAX {
            match self.ends.inbox.receive() {
                Received::Item(message) => self.take(message),
                Received::Ended => return Inbox::Ended,
                Received::Empty => return Inbox::Empty,
            }
        }
        Inbox::Full
    }

    fn take(&mut self, message: ToPublisher) {
        match message {
            ToPublisher::Follow { partition } => self.producer.expect_frames(partition),
            ToPublisher::Disown { partition } => self.producer.expect_no_frames(partition),
            ToPublisher::Begin { partition, ownership_id, mark, zones } => {
                if let Some(before) = self.ledger.begin(partition, ownership_id, mark) {
                    self.abandon_checkpoint(partition, before);
                }
                self.producer.expect_frames(partition);
                self.ticker.begin(partition, self.time.now);
                self.zones = zones;
            }
            ToPublisher::SpanChecked { partition, ownership_id, mark } => {
                let settled = self.ledger.span_checked(partition, ownership_id, mark);
                self.move_on(partition, ownership_id, settled);
            }
            ToPublisher::Checkpoint(id) => self.checkpoint(id),
            ToPublisher::Send(outgoing) => self.send(outgoing),
        }
    }

    fn checkpoint(&mut self, id: CheckpointId) {
        if self.ledger.admits(id.partition, id.ownership_id) {
            self.ledger.checkpoint(id);
            self.pass_gates();
        } else {
            self.abandon_checkpoint(id.partition, id.ownership_id);
        }
    }

    /// The gate of an ownership's checkpoint will never open.
    fn abandon_checkpoint(&self, partition: i32, ownership_id: u32) {
        let _nobody =
            self.ends.snapshots.try_send(ToSnapshots::Abandon { partition, ownership_id });
        self.ends.snapshots_bell.ring();
    }

    /// Sends one item, or drops it with its failed ownership.
    fn send(&mut self, outgoing: Outgoing) {
        let (partition, ownership_id) = outgoing.ownership();
        let is_unwanted = matches!(outgoing, Outgoing::Handoff(_)) && !self.options.carry_players;
        if is_unwanted || !self.ledger.admits(partition, ownership_id) {
            return self.give_back(outgoing);
        }
        let receipt = self.ledger.receipt(partition);
        let item = QuotaItem { receipt, bytes: outgoing.bytes_max() };
        let header = self.produce(&outgoing, item);
        self.unacknowledged += 1;
        self.ledger.sent(receipt, header);
        if let Outgoing::Frame(frame) = outgoing {
            self.recycle(frame);
        }
    }

    /// Hands one item to the producer, which copies it. A frame's header, if it was one.
    fn produce(&mut self, outgoing: &Outgoing, item: QuotaItem) -> Option<FrameHeader> {
        match outgoing {
            Outgoing::Frame(frame) => {
                let updates = frame.updates.as_slice();
                self.bytes.clear();
                let table = self.ends.game.updates;
                let frame_parts = (&frame.header, updates);
                encode::encode(self.options.format, table, frame_parts, &mut self.bytes);
                let newest_us = updates.last().map(|update| update.ts_us());
                let bytes = self.bytes.len();
                let sent_at = Instant::now();
                let sent = Sent::Frame(item, SentFrame { bytes, newest_us, sent_at });
                let topic = &self.options.output_topic;
                self.producer.send(topic, frame.partition, &self.bytes, sent);
                self.in_flight_bytes += bytes;
                if let (Some(received_at), Some(newest_us)) = (frame.received_at, newest_us) {
                    let inside = sent_at.saturating_duration_since(received_at);
                    let inside_us = inside.as_micros() as u64;
                    self.ends.metrics.inside.record(inside_us, 1);
                    let age_us = self.time.now_us.saturating_sub(newest_us);
                    let input_us = age_us.saturating_sub_unsigned(inside_us);
                    // Its acknowledgement counts it if it is misdated.
                    let _is_plausible = self.ends.metrics.input.record_age(input_us);
                }
                Some(frame.header)
            }
            Outgoing::DeadLetter(letter) => {
                self.produce_dead_letter(letter, item);
                None
            }
            Outgoing::Handoff(handoff) if handoff.to_partition() < self.zones => {
                self.bytes.clear();
                handoff.write(self.ends.game.events, &mut self.bytes);
                let (topic, partition) = (&self.options.input_topic, handoff.to_partition());
                self.producer.send(topic, partition, &self.bytes, Sent::Handoff(item));
                None
            }
            Outgoing::Handoff(handoff) => {
                let letter = handoff.dead_letter(self.ends.game.events);
                self.produce_dead_letter(&letter, item);
                None
            }
        }
    }

    fn produce_dead_letter(&mut self, letter: &DeadLetter, item: QuotaItem) {
        let PublisherOptions { dead_letter_topic, input_topic, skips, .. } = &self.options;
        let sent = Sent::DeadLetter(item, SentLetter::of(letter, skips));
        self.producer.send_dead_letter(dead_letter_topic, input_topic, letter, sent);
    }

    /// Appends a tick to each input partition that is ours and due for one. The next tick makes up
    /// for one that fails.
    fn tick(&mut self) {
        let Time { now, now_us } = self.time;
        let due: Vec<i32> = self.ticker.due(now).collect();
        for partition in due {
            let ownership_id = self.ends.progress.shard(partition).ownership_id.get();
            if !self.ledger.admits(partition, ownership_id) {
                self.ticker.end(partition);
                continue;
            }
            self.bytes.clear();
            let id = tick_id(now_us / 1000, self.options.tick_every_ms);
            event_json::write_tick(&mut self.bytes, self.ends.game.events, id, now_us);
            let topic = &self.options.input_topic;
            self.producer.send(topic, partition, &self.bytes, Sent::Tick(partition));
            self.ticker.sent(partition, now);
        }
        if let Some((partition, partitions)) = self.ticker.late(now) {
            tracing::warn!(
                partition,
                partitions,
                "ticks are not acknowledged, so time stands still in these zones while nobody \
                 acts: see the brokers of the input topic, and its min.insync.replicas"
            );
        }
    }

    /// Handles all deliveries that are known.
    fn reap(&mut self) {
        loop {
            self.producer.poll(self.time);
            let mut reported = false;
            self.replace_failed_producer();
            while let Some(delivery) = self.producer.next_delivery() {
                reported = true;
                self.settle(delivery);
            }
            if !reported {
                break;
            }
        }
        self.ends.metrics.set_gauge(Gauge::InFlightBytes, self.in_flight_bytes as u64);
    }

    fn replace_failed_producer(&mut self) {
        if let Some(sentence) = self.producer.fatal_error() {
            self.replace_producer(&sentence);
        }
    }

    fn settle(&mut self, delivery: Delivery<Sent>) {
        let (QuotaItem { receipt, bytes }, counter) = match &delivery.receipt {
            Sent::Frame(item, frame) => {
                self.in_flight_bytes -= frame.bytes;
                (*item, Counter::FramesAcked)
            }
            Sent::DeadLetter(item, _) => (*item, Counter::DeadLettersAcked),
            Sent::Handoff(item) => (*item, Counter::OwnRecordsAcked),
            Sent::Tick(partition) => {
                self.ticker.settled(*partition);
                let Some(SendFailure { sentence, .. }) = delivery.failure else {
                    return self.ends.metrics.add(Counter::OwnRecordsAcked, 1);
                };
                if let Some(withheld) = self.tick_trouble.notice(self.time.now) {
                    tracing::warn!(partition, withheld, "a tick was not appended: {sentence}");
                }
                return self.ends.metrics.add(Counter::DeliveriesFailed, 1);
            }
        };
        self.unacknowledged -= 1;
        self.count_settled(receipt.partition, bytes);
        if let Some(failure) = delivery.failure {
            self.ends.metrics.add(Counter::DeliveriesFailed, 1);
            if let Some(failure) = delivery.receipt.loss(failure) {
                return self.fail(receipt.partition, receipt.ownership_id, failure);
            }
        } else {
            self.ends.metrics.add(counter, 1);
        }
        if let Sent::Frame(_, SentFrame { newest_us: Some(newest_us), sent_at, .. }) =
            delivery.receipt
        {
            let age_us = self.time.now_us.saturating_sub(newest_us);
            if !self.ends.metrics.end_to_end.record_age(age_us) {
                self.ends.metrics.add(Counter::FramesMisdated, 1);
            }
            let output = self.time.now.saturating_duration_since(sent_at);
            self.ends.metrics.output.record(output.as_micros() as u64, 1);
        }
        let settled = self.ledger.acked(receipt, delivery.offset);
        self.move_on(receipt.partition, receipt.ownership_id, settled);
    }

    fn move_on(&mut self, partition: i32, ownership_id: u32, settled: Settled) {
        match settled {
            Settled::Nothing => {}
            Settled::UpTo { acked, settled_offset } => {
                let progress = self.ends.progress.shard(partition);
                progress.acked.set(acked);
                progress.settled_offset.set(settled_offset);
            }
            Settled::Unverified(sentence) => {
                let failure = SendFailure { sentence: sentence.to_owned(), is_too_large: false };
                self.fail(partition, ownership_id, failure);
            }
        }
        self.pass_gates();
        // The queue has room for a foreign span of every shard.
        while let Some(span) = self.ledger.next_span() {
            let _nobody = self.ends.control.try_send(ToControl::ForeignSpan(span));
        }
    }

    /// The queue has room for a gate of every checkpoint; without its receiver nobody needs them.
    fn pass_gates(&mut self) {
        while let Some(gate) = self.ledger.next_gate() {
            let _nobody = self.ends.snapshots.try_send(ToSnapshots::Gate(gate));
            self.ends.snapshots_bell.ring();
        }
    }

    /// A fatal error has made the producer useless: the deliveries that it still had have failed.
    fn replace_producer(&mut self, sentence: &str) {
        for mut delivery in self.producer.replace() {
            // Of most records it says only that they were given up.
            if let Some(failure) = &mut delivery.failure
                && !failure.is_too_large
            {
                sentence.clone_into(&mut failure.sentence);
            }
            self.settle(delivery);
        }
        self.ticker.pause(self.time.now + Duration::from_millis(TICKS_PAUSE_MS));
    }

    fn fail(&mut self, partition: i32, ownership_id: u32, failure: SendFailure) {
        if self.ledger.failed(partition, ownership_id) {
            let SendFailure { sentence, is_too_large: is_final } = failure;
            let failure = DeliveryFailure { partition, ownership_id, sentence, is_final };
            // The queue has room for a failure of every shard; without its receiver nobody needs
            // them.
            let _nobody = self.ends.control.try_send(ToControl::DeliveryFailed(failure));
            self.abandon_checkpoint(partition, ownership_id);
        }
    }

    /// A record that was not sent counts as settled, so that quotas add up.
    fn give_back(&mut self, outgoing: Outgoing) {
        let bytes = outgoing.bytes_max();
        match outgoing {
            Outgoing::Frame(frame) => {
                self.count_settled(frame.partition, bytes);
                self.recycle(frame);
            }
            Outgoing::DeadLetter(letter) => self.count_settled(letter.partition, bytes),
            Outgoing::Handoff(handoff) => self.count_settled(handoff.partition, bytes),
        }
    }

    fn count_settled(&self, partition: i32, bytes: u64) {
        let progress = self.ends.progress.shard(partition);
        progress.settled.set(progress.settled.get() + 1);
        progress.settled_bytes.set(progress.settled_bytes.get() + bytes);
    }

    /// The queue holds all frames there are, so it takes this one unless the hot thread is gone.
    fn recycle(&mut self, frame: Box<Frame>) {
        drop(self.ends.free_frames.try_send(frame));
    }

    /// Records whose delivery is not known yet, without ticks.
    pub fn unacknowledged(&self) -> usize {
        self.unacknowledged
    }

    /// A turn, and what comes after it.
    pub(super) fn step(&mut self) -> Result<Pause, PublisherError> {
        self.ends.metrics.add(Counter::PublisherTurns, 1);
        let inbox = self.turn(Time::read());
        let busy = Duration::from_millis(PUBLISHER_BUSY_MS_MAX);
        match inbox {
            Inbox::Full => Ok(Pause::None),
            Inbox::Empty if self.producer.must_be_polled() => Ok(Pause::UntilCalled(busy)),
            Inbox::Empty => Ok(Pause::UntilCalled(Duration::from_millis(PUBLISHER_IDLE_MS_MAX))),
            Inbox::Ended => self.flush(),
        }
    }

    /// All senders are gone: waits for the last acknowledgements, but not for ever.
    fn flush(&mut self) -> Result<Pause, PublisherError> {
        let flush_max = Duration::from_millis(PUBLISHER_FLUSH_MS_MAX);
        let end = *self.flush_end.get_or_insert_with(|| Instant::now() + flush_max);
        if self.unacknowledged == 0 {
            return Ok(Pause::Ended);
        }
        if Instant::now() >= end {
            return Err(PublisherError::NotFlushed(self.unacknowledged));
        }
        Ok(Pause::UntilCalled(Duration::from_millis(PUBLISHER_BUSY_MS_MAX)))
    }

    /// The producer, for the thread's loop, which closes it.
    pub(super) fn producer_mut(&mut self) -> &mut P {
        &mut self.producer
    }

    /// The producer, when the publisher has ended.
    pub(super) fn into_producer(self) -> P {
        self.producer
    }
}
