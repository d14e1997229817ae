//! The door to librdkafka's idempotent producer, which sends dead letters, handoffs and ticks.
//!
//! A shard's checkpoints wait for its handoffs and dead letters, so none may be given up while
//! later ones succeed. So operators cannot change the settings for retries and order: they are
//! pinned here, and checked against the values that librdkafka took.

use crate::kafka::RECONNECT_MS_MAX;
use crate::kafka::client::{TokenSource, topic_error, writer_config};
use crate::kafka::right::Right;
use crate::kafka::topic_error::TopicError;
use crate::output::dead_letter::DeadLetter;
use crate::publisher::PublisherOptions;
use crate::publisher::publishing::Time;
use rdkafka::ClientContext;
use rdkafka::client::OAuthToken;
use rdkafka::config::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, Message, OwnedHeaders, ToBytes};
use rdkafka::producer::{
    BaseProducer, BaseRecord, DeliveryResult, Producer as _, ProducerContext, PurgeConfig,
};
use std::collections::BTreeMap;
use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// KiB that librdkafka accepts as the bound of its producer queue.
pub(crate) const PUBLISH_QUEUE_KBYTES_MAX: usize = 2_097_151;

/// Milliseconds between two polls for acknowledgements while some are due that nothing rings for.
pub(crate) const PUBLISHER_BUSY_MS_MAX: u64 = 1;

/// Milliseconds that the publisher waits at its end for the last acknowledgements. A stop must be
/// over within five seconds.
pub(crate) const PUBLISHER_FLUSH_MS_MAX: u64 = 1_000;

/// The most that librdkafka takes for `message.max.bytes`.
const RECORD_BYTES_MAX: usize = 1_000_000_000;

/// Milliseconds that one request of librdkafka may take: a dead letter may be as large as the
/// buffer.
const DEAD_LETTER_MS_MAX: u64 = 30_000;

/// Offset of a record that has none, or whose offset is not known.
pub(super) const OFFSET_UNKNOWN: i64 = -1;

/// Settings that the protocol stands on.
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
    // One failed partition must fail alone; its shard is acquired again.
    ("enable.gapless.guarantee", "false"),
];

/// A producer for everything but frames, whose deliveries each carry a `T`.
///
/// The receipts stay here, and librdkafka carries only their numbers, so a client that reports
/// nothing any more loses none.
pub(crate) struct Producer<T> {
    options: PublisherOptions,
    /// `None` until the first record.
    client: Option<BaseProducer<ProducerCallbacks>>,
    sender: mpsc::Sender<Reported>,
    reported: mpsc::Receiver<Reported>,
    /// By the record's number: its receipt, until the delivery is reported.
    receipts: BTreeMap<usize, T>,
    /// Number of the last record.
    records: usize,
}

/// What became of one frame or dead letter.
pub struct Delivery<T> {
    /// The receipt that the sender passed in.
    pub receipt: T,
    /// The offset that the broker gave it, if the broker has it.
    pub offset: i64,
    /// Why it failed; `None`: the broker has it.
    pub failure: Option<SendFailure>,
}

/// Why something was not delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendFailure {
    /// In words.
    pub sentence: String,
    /// It is larger than the topic or the producer's buffer allows: no retry helps.
    pub is_too_large: bool,
}

/// Why something was not taken for sending.
#[derive(Debug, PartialEq, Eq)]
pub enum SendError {
    /// The buffer is full. Once deliveries were reported, the same record can be sent.
    Full,
    /// It can never be sent, for this reason.
    Refused(SendFailure),
}

/// The producer could not be made: wrong settings, or no resources.
#[derive(Debug, thiserror::Error)]
#[error("cannot create the Kafka producer: {0}; check `brokers` and the process limits")]
pub struct ProducerError(String);

/// What the publisher asks of a producer: librdkafka's is [`Producer`], and
/// [`NativeProducer`](crate::publisher::native::NativeProducer) has a ring.
pub trait Produce<T> {
    /// Takes a copy of an encoded record for one partition of a topic.
    fn send(
        &mut self,
        topic: &str,
        partition: i32,
        bytes: &[u8],
        receipt: T,
    ) -> Result<(), SendError>;

    /// Takes a copy of a dead letter. Its partition follows from its key.
    fn send_dead_letter(
        &mut self,
        topic: &str,
        input_topic: &str,
        letter: &DeadLetter,
        receipt: T,
    ) -> Result<(), SendError>;

    /// Continues its work and collects reports of deliveries, without waiting for any.
    fn poll(&mut self, time: Time);

    /// The next delivery that [`Produce::poll`] has met.
    fn next_delivery(&mut self) -> Option<Delivery<T>>;

    /// Records whose delivery was not reported yet.
    fn outstanding(&self) -> usize;

    /// Whether the producer must be polled, because nothing rings when it has deliveries.
    fn must_be_polled(&self) -> bool;

    /// Why the producer must be replaced, if it has failed for good.
    fn fatal_error(&self) -> Option<String>;

    /// Starts over, and gives up everything that is not delivered yet. Returns what became of each
    /// record.
    fn replace(&mut self, options: &PublisherOptions) -> Result<Vec<Delivery<T>>, ProducerError>;
}

impl<T> Producer<T> {
    /// A producer that starts with its first record. It connects by itself, and again whenever it
    /// has to.
    pub(crate) fn new(options: &PublisherOptions) -> Producer<T> {
        let (sender, reported) = mpsc::channel();
        let options = options.clone();
        Producer { options, client: None, sender, reported, receipts: BTreeMap::new(), records: 0 }
    }

    /// Starts it before the first record.
    fn start(&mut self) -> Result<&BaseProducer<ProducerCallbacks>, ProducerError> {
        if self.client.is_none() {
            let config = config(&self.options);
            check_pinned(&config)?;
            let callbacks = ProducerCallbacks {
                reported: self.sender.clone(),
                troubled: AtomicBool::new(false),
                tokens: TokenSource::of(&self.options.client.security),
            };
            let client = config.create_with_context(callbacks);
            let client = client.map_err(|error: KafkaError| ProducerError(error.to_string()))?;
            self.client = Some(client);
        }
        Ok(self.client.as_ref().expect("it has started"))
    }

    /// Waits at most this long for a delivery.
    fn wait(&self, wait_max: Duration) {
        if let Some(client) = &self.client {
            client.poll(wait_max);
        }
    }

    /// The number of the next record.
    fn next_number(&mut self) -> usize {
        self.records += 1;
        self.records
    }

    /// Hands a numbered record over.
    fn hand_over<K: ToBytes + ?Sized>(
        &mut self,
        record: BaseRecord<'_, K, [u8], usize>,
        receipt: T,
    ) -> Result<(), SendError> {
        let number = record.delivery_opaque;
        let client = self.start().map_err(|error| {
            SendError::Refused(SendFailure { sentence: error.to_string(), is_too_large: false })
        })?;
        client.send(record).map_err(|(error, record)| refusal(record.topic, &error))?;
        self.receipts.insert(number, receipt);
        Ok(())
    }

    /// Gives up everything that is not delivered yet, and returns what became of each record. A
    /// delivery that is not reported in time counts as failed, and a later report is ignored.
    fn abandon(mut self, wait_max: Duration) -> Vec<Delivery<T>> {
        if let Some(client) = &self.client {
            client.purge(PurgeConfig::default().queue().inflight());
        }
        let mut deliveries = Vec::with_capacity(self.receipts.len());
        let end = Instant::now() + wait_max;
        while !self.receipts.is_empty() && Instant::now() < end {
            self.wait(Duration::from_millis(PUBLISHER_BUSY_MS_MAX));
            deliveries.extend(std::iter::from_fn(|| self.next_delivery()));
        }
        let sentence = "it is not known whether the record was delivered".to_owned();
        let failure = Some(SendFailure { sentence, is_too_large: false });
        let unreported = std::mem::take(&mut self.receipts).into_values();
        deliveries.extend(unreported.map(|receipt| Delivery {
            receipt,
            offset: OFFSET_UNKNOWN,
            failure: failure.clone(),
        }));
        deliveries
    }
}

impl<T> Produce<T> for Producer<T> {
    fn send(
        &mut self,
        topic: &str,
        partition: i32,
        bytes: &[u8],
        receipt: T,
    ) -> Result<(), SendError> {
        let record: BaseRecord<'_, (), [u8], usize> =
            BaseRecord::with_opaque_to(topic, self.next_number())
                .partition(partition)
                .payload(bytes);
        self.hand_over(record, receipt)
    }

    fn send_dead_letter(
        &mut self,
        topic: &str,
        input_topic: &str,
        letter: &DeadLetter,
        receipt: T,
    ) -> Result<(), SendError> {
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
        self.hand_over(record, receipt)
    }

    fn poll(&mut self, _time: Time) {
        self.wait(Duration::ZERO);
    }

    fn next_delivery(&mut self) -> Option<Delivery<T>> {
        let Reported { number, offset, failure } = self.reported.try_recv().ok()?;
        let receipt = self.receipts.remove(&number).expect("a record is reported once");
        Some(Delivery { receipt, offset, failure })
    }

    fn outstanding(&self) -> usize {
        self.receipts.len()
    }

    fn must_be_polled(&self) -> bool {
        self.outstanding() > 0
    }

    fn fatal_error(&self) -> Option<String> {
        let client = self.client.as_ref()?;
        if !client.context().troubled.swap(false, Ordering::Relaxed) {
            return None;
        }
        let (_, sentence) = client.client().fatal_error()?;
        Some(format!("the Kafka producer cannot go on: {sentence}"))
    }

    fn replace(&mut self, options: &PublisherOptions) -> Result<Vec<Delivery<T>>, ProducerError> {
        let mut producer = Producer::new(options);
        producer.start()?;
        let abandoned = std::mem::replace(self, producer);
        Ok(abandoned.abandon(Duration::from_millis(PUBLISHER_FLUSH_MS_MAX)))
    }
}

/// What became of the record with this number.
struct Reported {
    number: usize,
    offset: i64,
    failure: Option<SendFailure>,
}

/// librdkafka's callbacks. They run inside [`Produce::poll`], on the publisher's thread.
struct ProducerCallbacks {
    reported: mpsc::Sender<Reported>,
    /// An error was reported since the last call; it may have been a fatal one.
    troubled: AtomicBool,
    tokens: TokenSource,
}

impl ClientContext for ProducerCallbacks {
    const ENABLE_REFRESH_OAUTH_TOKEN: bool = true;

    fn generate_oauth_token(&self, _config: Option<&str>) -> Result<OAuthToken, Box<dyn Error>> {
        self.tokens.token()
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.troubled.store(true, Ordering::Relaxed);
        tracing::debug!(%error, reason, "the Kafka producer reports trouble");
    }
}

impl ProducerContext for ProducerCallbacks {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, number: usize) {
        let (offset, failure) = match result {
            Ok(message) => (message.offset(), None),
            Err((error, message)) => (message.offset(), Some(failure(message.topic(), error))),
        };
        // The other end is gone only while the producer itself is being dropped.
        drop(self.reported.send(Reported { number, offset, failure }));
    }
}

fn config(options: &PublisherOptions) -> ClientConfig {
    let mut config = writer_config(&options.client);
    config
        .set("socket.timeout.ms", DEAD_LETTER_MS_MAX.to_string())
        .set("compression.type", options.compression.name())
        .set("queue.buffering.max.messages", "0")
        .set("queue.buffering.max.kbytes", options.queue_kbytes_max.to_string())
        // A dead letter may be larger than any frame: the topic's limit is what counts, and the
        // buffer.
        .set("message.max.bytes", record_bytes_max(options).to_string())
        .set("retry.backoff.ms", "10")
        .set("retry.backoff.max.ms", RECONNECT_MS_MAX.to_string())
        .set("socket.keepalive.enable", "true");
    for (name, value) in PINNED {
        config.set(*name, *value);
    }
    config
}

/// A record that is larger than the buffer would wait for room for ever.
fn record_bytes_max(options: &PublisherOptions) -> usize {
    (options.queue_kbytes_max * 1024).min(RECORD_BYTES_MAX)
}

/// librdkafka adjusts settings that contradict each other, so the values that it took are compared
/// with ours.
fn check_pinned(config: &ClientConfig) -> Result<(), ProducerError> {
    let native = config.create_native_config().map_err(|error| ProducerError(error.to_string()))?;
    for (name, value) in PINNED {
        let taken = native.get(name).map_err(|error| ProducerError(error.to_string()))?;
        assert_eq!(&taken, value, "librdkafka took another value for {name}");
    }
    Ok(())
}

fn refusal(topic: &str, error: &KafkaError) -> SendError {
    match error.rdkafka_error_code() {
        Some(RDKafkaErrorCode::QueueFull) => SendError::Full,
        _ => SendError::Refused(failure(topic, error)),
    }
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

    /// No broker listens there, so that nothing is ever delivered.
    pub(crate) fn options() -> PublisherOptions {
        PublisherOptions {
            client: ClientOptions {
                brokers: vec!["127.0.0.1:1".to_owned()],
                client_id: "test".to_owned(),
                security: Security::default(),
                group: "test".to_owned(),
            },
            input_topic: "events".to_owned(),
            output_topic: "updates".to_owned(),
            dead_letter_topic: "dead".to_owned(),
            format: Format::Binary,
            compression: Compression::None,
            queue_kbytes_max: 1024,
            tick_every_ms: 0,
            carry_players: false,
            skips: Vec::new(),
        }
    }

    #[test]
    fn what_is_given_up_fails_once_whether_it_is_reported_or_not() {
        for wait_max in [Duration::ZERO, Duration::from_secs(10)] {
            let mut producer = Producer::new(&options());
            for number in 0..100 {
                producer.send("updates", number % 3, b"a frame", number).expect("there is room");
            }
            assert_eq!(producer.outstanding(), 100);
            let deliveries = producer.abandon(wait_max);
            assert!(deliveries.iter().all(|delivery| delivery.failure.is_some()));
            let mut numbers: Vec<i32> =
                deliveries.iter().map(|delivery| delivery.receipt).collect();
            numbers.sort_unstable();
            assert_eq!(numbers, (0..100).collect::<Vec<i32>>());
        }
    }
}
