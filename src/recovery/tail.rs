//! Acquiring a shard's output: which updates it has already, and a fence against older owners.
//!
//! The end of a log is a record that we have written ourselves. To fold an output partition to its
//! end, a mark is appended, a fence of epoch 0 that raises nothing, and the log is read until the
//! mark arrives. Neither a high watermark nor a timeout can say as much: what a killed process left
//! on its way to the broker may be appended later. Then the fence proper is written, one epoch
//! above all others, and folded through as well: if the epoch is ours then, no older owner's frame
//! counts from there on.

use crate::limits::{
    FENCE_ATTEMPTS_MAX, FENCE_MS_MAX, METADATA_MS_MAX, RECONNECT_MS_MAX, TAIL_STALL_MS_MAX,
};
use crate::publisher::encode::{decode_frame, encode};
use crate::publisher::frame::{Chain, Format, FrameHeader, FrameKind, POSITION_UNKNOWN};
use crate::recovery::reader::{Position, Reader, Verdict};
use crate::recovery::tail_error::TailError;
use rdkafka::ClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::Message;
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, ProducerContext};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use std::fs::File;
use std::io::Read;
use std::ops::ControlFlow;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// What acquiring needs to know.
#[derive(Clone, Debug)]
pub struct Options {
    /// Brokers to ask first, `host:port`.
    pub brokers: Vec<String>,
    /// How the daemon names itself to brokers.
    pub client_id: String,
    /// The consumer group. It is not joined here; brokers check the right to read by its name.
    pub group: String,
    /// The topic with the events.
    pub input_topic: String,
    /// The topic with the frames.
    pub output_topic: String,
    /// The topic for records that are no events; it has to be there.
    pub dead_letter_topic: String,
    /// How fences are written.
    pub format: Format,
    /// Hash of all that decides what an input means, for the fence.
    pub ruleset: u32,
}

/// A shard's output is ours, and this is where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acquired {
    /// The epoch of our frames.
    pub epoch: u64,
    /// The id of our fence, to repeat it with.
    pub fence_id: u128,
    /// Number of the first update that the output does not hold yet.
    pub next_update: u64,
    /// The input offset up to which the output covers its input.
    pub next_offset: i64,
    /// The chain over all updates before `next_update`.
    pub chain: Chain,
    /// Output offset of our fence.
    pub fence_offset: i64,
}

/// How far reading an output partition is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Output offset of the next record.
    pub offset: i64,
    /// Output offset to read through.
    pub end: i64,
}

/// Clients for one output topic.
pub struct Tail {
    options: Options,
    consumer: BaseConsumer,
    producer: BaseProducer<Appended>,
    appended: mpsc::Receiver<Append>,
    /// Number of the last append.
    appends: usize,
    partitions: i32,
}

impl Tail {
    /// Connects, and checks that all topics are there and fit together.
    pub fn connect(options: Options) -> Result<Tail, TailError> {
        let unusable = |error: KafkaError| TailError::Unreachable(error.to_string());
        let consumer: BaseConsumer = consumer_config(&options).create().map_err(unusable)?;
        let input = partitions(&consumer, &options.input_topic)?;
        let output = partitions(&consumer, &options.output_topic)?;
        if input != output {
            let Options { input_topic, output_topic, .. } = options;
            return Err(TailError::PartitionsDiffer { input_topic, input, output_topic, output });
        }
        partitions(&consumer, &options.dead_letter_topic)?;
        let (sender, appended) = mpsc::channel();
        let producer =
            producer_config(&options).create_with_context(Appended(sender)).map_err(unusable)?;
        Ok(Tail { options, consumer, producer, appended, appends: 0, partitions: output })
    }

    /// Partitions of the input topic, and of the output topic.
    pub fn partitions(&self) -> i32 {
        self.partitions
    }

    /// Makes the output of one shard ours. Blocks; `watch` sees the progress and is asked at least
    /// every 100 ms, and right before each fence, whether to go on: not if the shard was lost
    /// meanwhile.
    pub fn acquire(
        &mut self,
        partition: i32,
        watch: &mut dyn FnMut(Reading) -> ControlFlow<()>,
    ) -> Result<Acquired, TailError> {
        let acquired = self.acquire_partition(partition, watch);
        // Fetching must stop on failure as well; that there is nothing to stop is no failure.
        drop(self.consumer.unassign());
        acquired
    }

    fn acquire_partition(
        &mut self,
        partition: i32,
        watch: &mut dyn FnMut(Reading) -> ControlFlow<()>,
    ) -> Result<Acquired, TailError> {
        let mark = self.append(partition, 0, 0, watch)?;
        let mut cursor = self.open(partition)?;
        self.fold_through(&mut cursor, mark, watch)?;
        for _ in 0..FENCE_ATTEMPTS_MAX {
            let epoch = cursor.reader()?.position().epoch + 1;
            let fence_id = random_id();
            let fence_offset = self.append(partition, epoch, fence_id, watch)?;
            self.fold_through(&mut cursor, fence_offset, watch)?;
            let reader = cursor.reader()?;
            if reader.position().epoch == epoch && reader.fence_id() == fence_id {
                let Position { next_update, next_offset, chain, .. } = reader.position();
                return Ok(Acquired {
                    epoch,
                    fence_id,
                    next_update,
                    next_offset,
                    chain,
                    fence_offset,
                });
            }
        }
        Err(TailError::Contended(partition))
    }

    /// Appends a fence and waits until all replicas have it: its offset.
    fn append(
        &mut self,
        partition: i32,
        epoch: u64,
        fence_id: u128,
        watch: &mut dyn FnMut(Reading) -> ControlFlow<()>,
    ) -> Result<i64, TailError> {
        let header = FrameHeader {
            kind: FrameKind::Fence,
            epoch,
            first_update: 0,
            count: 0,
            next_offset: POSITION_UNKNOWN,
            ruleset: self.options.ruleset,
            chain: Chain::default(),
            fence_id,
        };
        let mut bytes = Vec::new();
        encode(self.options.format, &header, &[], &mut bytes);
        if watch(APPENDING).is_break() {
            return Err(TailError::Abandoned(partition));
        }
        self.appends += 1;
        let record = BaseRecord::<'_, (), [u8], usize>::with_opaque_to(
            &self.options.output_topic,
            self.appends,
        );
        let record = record.partition(partition).payload(&bytes);
        self.producer.send(record).map_err(|(error, _)| self.failure(&error))?;
        loop {
            self.producer.poll(WATCH_EVERY);
            // The producer reports every record within FENCE_MS_MAX, one way or the other.
            let appended = self.appended.try_iter().find(|append| append.number == self.appends);
            if let Some(append) = appended {
                return append.offset.map_err(|error| self.failure(&error));
            }
            if watch(APPENDING).is_break() {
                return Err(TailError::Abandoned(partition));
            }
        }
    }

    /// Starts to read the partition at its first record.
    fn open(&self, partition: i32) -> Result<Cursor, TailError> {
        let topic = &self.options.output_topic;
        let wait = Duration::from_millis(METADATA_MS_MAX);
        let (start, _) = self
            .consumer
            .fetch_watermarks(topic, partition, wait)
            .map_err(|error| self.failure(&error))?;
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(topic, partition, Offset::Offset(start))
            .and_then(|()| self.consumer.assign(&list))
            .map_err(|error| self.failure(&error))?;
        // At the log's very start nothing was accepted yet; later, a reader has to join.
        let reader = (start == 0).then(Reader::new);
        Ok(Cursor { partition, next: start, reader })
    }

    fn fold_through(
        &self,
        cursor: &mut Cursor,
        end: i64,
        watch: &mut dyn FnMut(Reading) -> ControlFlow<()>,
    ) -> Result<(), TailError> {
        let stall_max = Duration::from_millis(TAIL_STALL_MS_MAX);
        let mut last_record = Instant::now();
        let mut last_watch: Option<Instant> = None;
        while cursor.next <= end {
            if last_watch.is_none_or(|at| at.elapsed() >= WATCH_EVERY) {
                last_watch = Some(Instant::now());
                if watch(Reading { offset: cursor.next, end }).is_break() {
                    return Err(TailError::Abandoned(cursor.partition));
                }
            }
            match self.consumer.poll(WATCH_EVERY) {
                Some(Ok(message)) => {
                    last_record = Instant::now();
                    cursor.fold(message.offset(), message.payload(), end)?;
                }
                Some(Err(error)) => self.tolerate(cursor.partition, &error)?,
                None => {}
            }
            if last_record.elapsed() >= stall_max {
                let sentence = format!("no record of the output for {} s", stall_max.as_secs());
                return Err(TailError::Unreachable(sentence));
            }
        }
        Ok(())
    }

    /// Lost connections come back, or reading stalls for too long; anything else is final.
    fn tolerate(&self, partition: i32, error: &KafkaError) -> Result<(), TailError> {
        match error.rdkafka_error_code() {
            Some(RDKafkaErrorCode::OffsetOutOfRange | RDKafkaErrorCode::AutoOffsetReset) => {
                Err(TailError::Truncated(partition))
            }
            Some(
                RDKafkaErrorCode::UnknownTopicOrPartition
                | RDKafkaErrorCode::UnknownTopic
                | RDKafkaErrorCode::TopicAuthorizationFailed,
            ) => Err(self.failure(error)),
            _ => Ok(()),
        }
    }

    /// The first offset that an input partition still holds.
    pub fn input_start(&self, partition: i32) -> Result<i64, TailError> {
        let topic = &self.options.input_topic;
        let wait = Duration::from_millis(METADATA_MS_MAX);
        let watermarks = self.consumer.fetch_watermarks(topic, partition, wait);
        watermarks.map(|(start, _)| start).map_err(|error| passing(failure(topic, &error)))
    }

    fn failure(&self, error: &KafkaError) -> TailError {
        passing(failure(&self.options.output_topic, error))
    }
}

const WATCH_EVERY: Duration = Duration::from_millis(100);

/// What the watch sees while a fence is on its way: nothing is read.
const APPENDING: Reading = Reading { offset: 0, end: 0 };

/// Where one output partition is being read.
struct Cursor {
    partition: i32,
    next: i64,
    /// `None` until a reader can join a log whose start is gone.
    reader: Option<Reader>,
}

impl Cursor {
    /// Takes one record. Offsets may skip what is no record, but never `end`, which we wrote.
    fn fold(&mut self, offset: i64, payload: Option<&[u8]>, end: i64) -> Result<(), TailError> {
        if offset > end {
            return Err(TailError::Truncated(self.partition));
        }
        self.next = offset + 1;
        // What is no frame counts for no reader.
        let Ok((header, updates)) = decode_frame(payload.unwrap_or_default()) else {
            tracing::warn!(self.partition, offset, "a record of the output topic is no frame");
            return Ok(());
        };
        match &mut self.reader {
            Some(reader) => match reader.fold(&header, &updates) {
                Verdict::Halt => Err(TailError::Damaged { partition: self.partition, offset }),
                _ => Ok(()),
            },
            None => {
                self.reader = Reader::join(&header);
                Ok(())
            }
        }
    }

    fn reader(&self) -> Result<&Reader, TailError> {
        self.reader.as_ref().ok_or(TailError::StartGone(self.partition))
    }
}

/// What became of a fence. One that was given up may be reported while another is waited for.
struct Append {
    number: usize,
    offset: Result<i64, KafkaError>,
}

/// The producer's callbacks.
struct Appended(mpsc::Sender<Append>);

impl ClientContext for Appended {
    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(%error, reason, "the fence producer reports trouble");
    }
}

impl ProducerContext for Appended {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, number: usize) {
        let offset = match result {
            Ok(message) => Ok(message.offset()),
            Err((error, _)) => Err(error.clone()),
        };
        // The other end is gone only while the producer itself is being dropped.
        drop(self.0.send(Append { number, offset }));
    }
}

fn partitions(consumer: &BaseConsumer, topic: &str) -> Result<i32, TailError> {
    let metadata = consumer
        .fetch_metadata(Some(topic), Duration::from_millis(METADATA_MS_MAX))
        .map_err(|error| failure(topic, &error))?;
    let found = metadata.topics().iter().find(|found| found.name() == topic);
    let Some(found) = found else {
        return Err(TailError::TopicMissing(topic.to_owned()));
    };
    if let Some(error) = found.error() {
        return Err(failure(topic, &KafkaError::MetadataFetch(error.into())));
    }
    match found.partitions().len() {
        0 => Err(TailError::TopicMissing(topic.to_owned())),
        count => Ok(count as i32),
    }
}

/// The topics were there when the daemon connected. A broker that has just started does not know
/// its topics for a while, and that passes.
fn passing(error: TailError) -> TailError {
    match error {
        TailError::TopicMissing(topic) => {
            TailError::Unreachable(format!("the broker does not know the topic `{topic}` now"))
        }
        other => other,
    }
}

fn failure(topic: &str, error: &KafkaError) -> TailError {
    match error.rdkafka_error_code() {
        Some(
            RDKafkaErrorCode::UnknownTopicOrPartition
            | RDKafkaErrorCode::UnknownTopic
            | RDKafkaErrorCode::UnknownPartition,
        ) => TailError::TopicMissing(topic.to_owned()),
        Some(
            RDKafkaErrorCode::TopicAuthorizationFailed
            | RDKafkaErrorCode::ClusterAuthorizationFailed
            | RDKafkaErrorCode::GroupAuthorizationFailed,
        ) => TailError::NotAuthorised(topic.to_owned()),
        _ => TailError::Unreachable(error.to_string()),
    }
}

fn client_config(options: &Options) -> ClientConfig {
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", options.brokers.join(","))
        .set("client.id", &options.client_id)
        .set("reconnect.backoff.max.ms", RECONNECT_MS_MAX.to_string());
    config
}

fn consumer_config(options: &Options) -> ClientConfig {
    let mut config = client_config(options);
    config
        .set("group.id", &options.group)
        .set("enable.auto.commit", "false")
        .set("enable.auto.offset.store", "false")
        .set("auto.offset.reset", "error")
        .set("allow.auto.create.topics", "false")
        .set("check.crcs", "true")
        // Frames are never part of a transaction; somebody else's must not hide them.
        .set("isolation.level", "read_uncommitted")
        .set("fetch.wait.max.ms", "10")
        .set("fetch.queue.backoff.ms", "1")
        .set("queued.max.messages.kbytes", "16384");
    config
}

fn producer_config(options: &Options) -> ClientConfig {
    let mut config = client_config(options);
    // A fence that is appended twice means the same as once, so idempotence is not needed.
    config
        .set("request.required.acks", "-1")
        .set("message.timeout.ms", FENCE_MS_MAX.to_string())
        .set("queue.buffering.max.ms", "0");
    config
}

/// 128 random bits, never 0. Another acquisition must not have the same, and nothing else matters.
fn random_id() -> u128 {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut bytes))
        .expect("every Linux system has /dev/urandom");
    u128::from_ne_bytes(bytes).max(1)
}
