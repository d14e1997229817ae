//! librdkafka's idempotent producer, which sends dead letters, handoffs and ticks.
//!
//! A shard's checkpoints wait for its handoffs and dead letters, so none may be given up while
//! later ones succeed. Operators therefore cannot change the settings for retries and order: they
//! are pinned here, and checked against the values that librdkafka uses.

use crate::kafka::RECONNECT_MS_MAX;
use crate::kafka::client::{topic_error, writer_config};
use crate::kafka::right::Right;
use crate::kafka::topic_error::TopicError;
use crate::kafka::topic_writer::{TopicWriter, Undelivered};
use crate::output::dead_letter::DeadLetter;
use crate::publisher::PublisherOptions;
use crate::publisher::publishing::Time;
use rdkafka::config::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, OwnedHeaders, ToBytes};
use rdkafka::producer::{BaseRecord, Producer as _};
use std::collections::{BTreeMap, VecDeque};
use std::thread;
use std::time::Duration;

/// Milliseconds between two polls for acknowledgements that do not wake the publisher.
pub(crate) const PUBLISHER_BUSY_MS_MAX: u64 = 1;

/// Milliseconds that the publisher waits for the last acknowledgements before it ends. A stop takes
/// at most five seconds.
pub(crate) const PUBLISHER_FLUSH_MS_MAX: u64 = 1_000;

/// Upper limit of `message.max.bytes` in librdkafka. The topic decides which letter is too large.
const RECORD_BYTES_MAX: &str = "1000000000";

/// Upper limit of `queue.buffering.max.kbytes` in librdkafka. The shards' quotas bound what waits.
/// With another bound here, a partition that is down could use it up, and all shards would wait.
const WAITING_KBYTES_MAX: &str = "2147483647";

/// Upper limit of the time that one request may take, in milliseconds: a dead letter may have a
/// megabyte.
const DEAD_LETTER_MS_MAX: u64 = 30_000;

/// The offset of a record that has none, or an unknown one.
pub(super) const OFFSET_UNKNOWN: i64 = -1;

/// Settings that delivery in order and exactly once depends on.
const PINNED: &[(&str, &str)] = &[
    // Retries are appended once and in order (KIP-98).
    ("enable.idempotence", "true"),
    ("max.in.flight.requests.per.connection", "5"),
    // Acknowledged means: on all in-sync replicas.
    ("request.required.acks", "-1"),
    // A record never times out: its shard is acquired again only after a failure.
    ("message.timeout.ms", "0"),
    ("message.send.max.retries", "2147483647"),
    ("queuing.strategy", "fifo"),
    // These records are rare, so waiting for more would only add latency.
    ("queue.buffering.max.ms", "0"),
    ("delivery.report.only.error", "false"),
    // After most errors a partition fails alone, and its shard is acquired again. After some, such
    // as a sequence number that the broker does not expect, librdkafka gives up the whole client
    // nevertheless: see `Produce::replace`.
    ("enable.gapless.guarantee", "false"),
];

/// A producer for everything but frames, whose deliveries each carry a `T`.
///
/// The receipts stay here, and librdkafka carries only their numbers. So no receipt is lost if the
/// client stops reporting.
pub(crate) struct Producer<T> {
    options: PublisherOptions,
    /// `None` until the first record.
    writer: Option<TopicWriter>,
    /// Receipts of unreported deliveries, by record number.
    receipts: BTreeMap<usize, T>,
    /// Records that librdkafka has not taken.
    refused: VecDeque<Delivery<T>>,
    /// Number of the last record.
    records: usize,
}

/// The outcome of sending one record.
pub struct Delivery<T> {
    /// The receipt that the sender passed in.
    pub receipt: T,
    /// The record's offset, if it was delivered.
    pub offset: i64,
    /// Why it failed; `None` if the broker has it.
    pub failure: Option<SendFailure>,
}

/// Why something was not delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendFailure {
    /// The reason, for the log.
    pub sentence: String,
    /// True if it is larger than the topic allows, so that no retry helps.
    pub is_too_large: bool,
}

/// The producer could not be created: wrong settings, or no resources.
#[derive(Debug, thiserror::Error)]
#[error("cannot create the Kafka producer: {0}; check `brokers` and the process limits")]
struct ProducerError(String);

/// A producer of the publisher: [`Producer`], or
/// [`NativeProducer`](crate::publisher::native::NativeProducer) for frames.
///
/// It takes every record: the quotas of the shards bound how many wait. A record that it cannot
/// send is a delivery that has failed.
pub trait Produce<T> {
    /// Gets ready for frames of a partition, so that the first one waits for no connection.
    fn expect_frames(&mut self, partition: i32);

    /// Needs to be ready for frames of a partition no longer.
    fn expect_no_frames(&mut self, partition: i32);

    /// Copies an encoded record for one partition of a topic.
    fn send(&mut self, topic: &str, partition: i32, bytes: &[u8], receipt: T);

    /// Copies a dead letter. Its key determines the partition.
    fn send_dead_letter(&mut self, topic: &str, input_topic: &str, letter: &DeadLetter, receipt: T);

    /// Goes on sending and collects delivery reports, without waiting.
    fn poll(&mut self, time: Time);

    /// Returns the next delivery that [`Produce::poll`] has collected.
    fn next_delivery(&mut self) -> Option<Delivery<T>>;

    /// Returns whether the producer must be polled, because its deliveries wake nobody.
    fn must_be_polled(&self) -> bool;

    /// Returns why librdkafka's client must be replaced, if it has failed permanently.
    fn fatal_error(&self) -> Option<String>;

    /// Gives up what that client has not delivered yet, and returns the outcome of each record. The
    /// next record starts another client.
    fn replace(&mut self) -> Vec<Delivery<T>>;
}

impl<T> Producer<T> {
    /// Creates a producer that starts with its first record. It connects and reconnects by itself.
    pub(crate) fn new(options: &PublisherOptions) -> Producer<T> {
        let options = options.clone();
        let (receipts, refused) = (BTreeMap::new(), VecDeque::new());
        Producer { options, writer: None, receipts, refused, records: 0 }
    }

    /// Starts the client before the first record.
    fn start(&mut self) -> Result<&TopicWriter, ProducerError> {
        if self.writer.is_none() {
            let config = config(&self.options);
            check_pinned(&config)?;
            let writer = TopicWriter::new(&config, &self.options.client);
            self.writer = Some(writer.map_err(|error| ProducerError(error.to_string()))?);
        }
        Ok(self.writer.as_ref().expect("it has started"))
    }

    /// Collects delivery reports, without waiting.
    fn collect(&self) {
        if let Some(writer) = &self.writer {
            writer.producer.poll(Duration::ZERO);
        }
    }

    /// The number of the next record.
    fn next_number(&mut self) -> usize {
        self.records += 1;
        self.records
    }

    /// Hands a numbered record to librdkafka.
    fn hand_over<K: ToBytes + ?Sized>(
        &mut self,
        record: BaseRecord<'_, K, [u8], usize>,
        receipt: T,
    ) {
        let number = record.delivery_opaque;
        let sent = match self.start() {
            Ok(writer) => {
                let sent = writer.producer.send(record);
                sent.map_err(|(error, record)| failure(record.topic, &error))
            }
            Err(error) => Err(SendFailure { sentence: error.to_string(), is_too_large: false }),
        };
        match sent {
            Ok(()) => drop(self.receipts.insert(number, receipt)),
            Err(failure) => {
                let failure = Some(failure);
                self.refused.push_back(Delivery { receipt, offset: OFFSET_UNKNOWN, failure });
            }
        }
    }

    /// Gives up everything that is not delivered yet, and returns the outcome of each record. A
    /// delivery that is not reported yet counts as failed, and a later report is ignored.
    fn abandon(mut self) -> Vec<Delivery<T>> {
        let mut deliveries = Vec::with_capacity(self.receipts.len());
        loop {
            self.collect();
            let before = deliveries.len();
            deliveries.extend(std::iter::from_fn(|| self.next_delivery()));
            if deliveries.len() == before {
                break;
            }
        }
        let sentence = "it is not known whether the record was delivered".to_owned();
        let failure = Some(SendFailure { sentence, is_too_large: false });
        let unreported = std::mem::take(&mut self.receipts).into_values();
        deliveries.extend(unreported.map(|receipt| Delivery {
            receipt,
            offset: OFFSET_UNKNOWN,
            failure: failure.clone(),
        }));
        self.end();
        deliveries
    }

    /// Ends the client on a thread of its own. librdkafka ends its threads one after the other. If
    /// brokers are away, that takes seconds, and nobody has to wait for it.
    pub(crate) fn end(self) {
        let Some(writer) = self.writer else { return };
        let _unwaited = thread::Builder::new().name("ending".to_owned()).spawn(|| drop(writer));
    }
}

impl<T> Produce<T> for Producer<T> {
    /// Does nothing: librdkafka connects for the first record.
    fn expect_frames(&mut self, _partition: i32) {}

    fn expect_no_frames(&mut self, _partition: i32) {}

    fn send(&mut self, topic: &str, partition: i32, bytes: &[u8], receipt: T) {
        let record: BaseRecord<'_, (), [u8], usize> =
            BaseRecord::with_opaque_to(topic, self.next_number())
                .partition(partition)
                .payload(bytes);
        self.hand_over(record, receipt);
    }

    fn send_dead_letter(
        &mut self,
        topic: &str,
        input_topic: &str,
        letter: &DeadLetter,
        receipt: T,
    ) {
        let mut headers = OwnedHeaders::new();
        for (key, value) in letter.headers(input_topic) {
            headers = headers.insert(Header { key, value: Some(&value) });
        }
        let key = letter.place(input_topic);
        let mut record: BaseRecord<'_, str, [u8], usize> =
            BaseRecord::with_opaque_to(topic, self.next_number())
                .key(key.as_str())
                .headers(headers);
        record.payload = letter.value.as_deref();
        self.hand_over(record, receipt);
    }

    fn poll(&mut self, _time: Time) {
        self.collect();
    }

    fn next_delivery(&mut self) -> Option<Delivery<T>> {
        if let Some(refused) = self.refused.pop_front() {
            return Some(refused);
        }
        let report = self.writer.as_ref()?.next_report()?;
        let receipt = self.receipts.remove(&report.number).expect("a record is reported once");
        Some(match report.offset {
            Ok(offset) => Delivery { receipt, offset, failure: None },
            Err(Undelivered { topic, error }) => {
                let failure = Some(failure(&topic, &error));
                Delivery { receipt, offset: OFFSET_UNKNOWN, failure }
            }
        })
    }

    fn must_be_polled(&self) -> bool {
        !self.receipts.is_empty()
    }

    fn fatal_error(&self) -> Option<String> {
        let writer = self.writer.as_ref()?;
        writer.take_trouble()?;
        let (_, sentence) = writer.producer.client().fatal_error()?;
        Some(format!("the Kafka producer cannot go on: {sentence}"))
    }

    fn replace(&mut self) -> Vec<Delivery<T>> {
        let next = Producer::new(&self.options);
        std::mem::replace(self, next).abandon()
    }
}

fn config(options: &PublisherOptions) -> ClientConfig {
    let mut config = writer_config(&options.client);
    config
        .set("socket.timeout.ms", DEAD_LETTER_MS_MAX.to_string())
        .set("compression.type", options.compression.name())
        .set("queue.buffering.max.messages", "0")
        .set("queue.buffering.max.kbytes", WAITING_KBYTES_MAX)
        .set("message.max.bytes", RECORD_BYTES_MAX)
        .set("retry.backoff.ms", "10")
        .set("retry.backoff.max.ms", RECONNECT_MS_MAX.to_string())
        .set("socket.keepalive.enable", "true");
    for (name, value) in PINNED {
        config.set(*name, *value);
    }
    config
}

/// Compares librdkafka's settings with ours, because it adjusts settings that contradict each
/// other.
fn check_pinned(config: &ClientConfig) -> Result<(), ProducerError> {
    let native = config.create_native_config().map_err(|error| ProducerError(error.to_string()))?;
    for (name, value) in PINNED {
        let taken = native.get(name).map_err(|error| ProducerError(error.to_string()))?;
        assert_eq!(&taken, value, "librdkafka took another value for {name}");
    }
    Ok(())
}

fn failure(topic: &str, error: &KafkaError) -> SendFailure {
    let code = error.rdkafka_error_code();
    let is_too_large = code == Some(RDKafkaErrorCode::MessageSizeTooLarge);
    let sentence = match topic_error(topic, Right::Write, error) {
        TopicError::Unreachable(_) | TopicError::NotNow(_) => error.to_string(),
        about_topic => about_topic.to_string(),
    };
    SendFailure { sentence, is_too_large }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::kafka::client::ClientOptions;
    use crate::kafka::security::Security;
    use crate::output::frame::{Compression, Format};
    use crate::runtime::ring::RingKind;
    use rdkafka::producer::PurgeConfig;

    /// No broker listens there, so that nothing is ever delivered.
    pub(crate) fn options() -> PublisherOptions {
        PublisherOptions {
            client: ClientOptions {
                brokers: vec!["127.0.0.1:1".to_owned()],
                client_id: "test".to_owned(),
                security: Security::default(),
                group: "test".to_owned(),
            },
            ring: RingKind::IoUring,
            input_topic: "events".to_owned(),
            output_topic: "updates".to_owned(),
            dead_letter_topic: "dead".to_owned(),
            format: Format::Binary,
            compression: Compression::None,
            tick_every_ms: 0,
            carry_players: false,
            skips: Vec::new(),
        }
    }

    #[test]
    fn what_is_given_up_fails_once_whether_it_is_reported_or_not() {
        for is_reported in [false, true] {
            let mut producer = Producer::new(&options());
            for number in 0..100 {
                producer.send("updates", number % 3, b"a tick", number);
            }
            assert!(producer.must_be_polled());
            let mut deliveries = Vec::new();
            if is_reported {
                let client = &producer.writer.as_ref().expect("it has started").producer;
                client.purge(PurgeConfig::default().queue().inflight());
                while deliveries.is_empty() {
                    producer.collect();
                    deliveries.extend(producer.next_delivery());
                }
            }
            deliveries.extend(producer.replace());
            assert!(deliveries.iter().all(|delivery| delivery.failure.is_some()));
            let mut numbers: Vec<i32> =
                deliveries.iter().map(|delivery| delivery.receipt).collect();
            numbers.sort_unstable();
            assert_eq!(numbers, (0..100).collect::<Vec<i32>>());
            assert!(producer.next_delivery().is_none() && producer.writer.is_none());
        }
    }

    #[test]
    fn a_record_that_librdkafka_does_not_take_is_a_delivery_that_has_failed() {
        let mut producer = Producer::new(&options());
        producer.send(&"x".repeat(600), 0, b"a tick", 7);
        let delivery = producer.next_delivery().expect("it is known at once");
        assert_eq!(delivery.receipt, 7);
        assert!(delivery.failure.is_some_and(|failure| !failure.sentence.is_empty()));
        assert!(producer.next_delivery().is_none() && !producer.must_be_polled());
    }
}
