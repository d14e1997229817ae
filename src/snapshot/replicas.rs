//! Replicas of snapshots in a compacted topic, for a daemon on another host.
//!
//! A replica is a snapshot's blocks, several per record, followed by its manifest: the header, and
//! the offset of the first record. A replica counts only once its manifest exists.
//!
//! When the new manifest is acknowledged, the replicator deletes all other records of the shard
//! with null values: those of the previous replica, and those of unfinished replicas. It knows the
//! records that it wrote itself, and it has seen the others in its search for the newest manifest.
//! That search is bounded. Before its range, only records of daemons that died before they had
//! deleted them all can remain.

use crate::kafka::client::{
    ClientOptions, KafkaReader, is_out_of_range, partitions, read_from, reader, reader_config,
    writer_config,
};
use crate::kafka::right::Right;
use crate::kafka::topic_error::TopicError;
use crate::kafka::topic_writer::{TopicWriter, Undelivered};
use crate::kafka::{METADATA_MS_MAX, READ_STALL_MS_MAX};
use crate::kit::engine::ZoneDecoder;
use crate::snapshot::format::{Header, Origin, SNAPSHOT_BLOCK_BYTES, SnapshotError};
use crate::telemetry::long_wait::LongWait;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::Consumer;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Message};
use rdkafka::producer::BaseRecord;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// Blocks of a snapshot in one record of a replica: below [`FRAME_BYTES_MAX`], like frames.
pub const REPLICA_BLOCKS_PER_RECORD: usize = 13;

/// Records at the end of a partition where the search for the newest manifest begins: the deletions
/// of the previous replica follow the manifest.
const MANIFEST_SEARCH_RECORDS: i64 = 128;

/// Milliseconds within which a record of a replica must be acknowledged.
const REPLICA_MS_MAX: u64 = 30_000;

/// KiB of replica records that may wait for the brokers.
const REPLICA_QUEUE_KBYTES: usize = 16 * 1024;

/// Options of replication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaOptions {
    /// How to reach the brokers.
    pub client: ClientOptions,
    /// The compacted topic, with as many partitions as the input topic.
    pub topic: String,
    /// The topics that the snapshots belong to.
    pub origin: Origin,
}

/// Why a replica cannot be stored or read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplicaError {
    /// The brokers refuse, or do not answer.
    #[error(
        "snapshots cannot be replicated to or from `{topic}`: {sentence}; check it with `huntd \
         topics --check`"
    )]
    Topic {
        /// The topic.
        topic: String,
        /// The cause.
        sentence: String,
    },
    /// The topic is missing, or may not be used.
    #[error("snapshots cannot be replicated: {0}")]
    Refused(#[from] TopicError),
    /// The snapshot is not usable.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// The daemon is about to end.
    #[error("replicating was given up")]
    GivenUp,
}

/// The newest replica of a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replica {
    /// The snapshot's header.
    pub header: Header,
    /// Offset of the replica's first record in the topic.
    pub first_offset: i64,
}

/// Clients of the snapshot topic.
pub struct Replicas {
    options: ReplicaOptions,
    consumer: KafkaReader,
    writer: TopicWriter,
    /// By partition.
    present: BTreeMap<i32, PresentRecords>,
}

/// The records of replicas that are in a partition, as far as is known.
#[derive(Default)]
struct PresentRecords {
    /// The owner epoch under which the partition was searched: another owner stores its own.
    owner_epoch: u64,
    keys: BTreeSet<String>,
}

impl Replicas {
    /// Creates the clients, which connect on their own.
    pub fn connect(options: ReplicaOptions) -> Result<Replicas, ReplicaError> {
        let unusable = |error: KafkaError| failure(&options.topic, Right::Read, &error);
        let consumer = reader(&consumer_config(&options), &options.client).map_err(unusable)?;
        let writer =
            TopicWriter::new(&producer_config(&options), &options.client).map_err(unusable)?;
        Ok(Replicas { options, consumer, writer, present: BTreeMap::new() })
    }

    /// Replicates a snapshot; `read_block` reads its blocks. Calls `watch` every few milliseconds
    /// to learn whether to continue.
    pub fn put(
        &mut self,
        header: &Header,
        mut read_block: impl FnMut(u32) -> Result<Vec<u8>, SnapshotError>,
        watch: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<(), ReplicaError> {
        let (partition, owner_epoch) = (header.partition, header.mark.owner_epoch);
        let is_old = |present: &PresentRecords| present.owner_epoch != owner_epoch;
        if self.present.get(&partition).is_none_or(is_old) {
            let (_, found) = self.find(partition, &|_| true, watch)?;
            let present = self.present.entry(partition).or_default();
            present.owner_epoch = owner_epoch;
            present.keys.extend(found);
        }
        let keys = record_keys(header);
        let present = self.present.get_mut(&partition).expect("it was looked up above");
        let old: Vec<String> = present.keys.difference(&keys).cloned().collect();
        present.keys.extend(keys);
        let mut first_offset = None;
        let mut value = Vec::with_capacity(REPLICA_BLOCKS_PER_RECORD * SNAPSHOT_BLOCK_BYTES);
        for record in 0..records(header) {
            value.clear();
            for index in blocks_of(header, record) {
                let block = read_block(index)?;
                // The file may be damaged, or already overwritten.
                header.open_block(index, &block)?;
                value.extend(block);
            }
            let key = record_key(partition, header.id(), record);
            self.append(partition, &key, Some(&value), watch)?;
            if record == 0 {
                // The manifest states where to start reading.
                first_offset = self.wait(1, watch)?;
            }
        }
        let rest = records(header).saturating_sub(1) as usize;
        self.wait(rest, watch)?;
        let mut manifest = first_offset.unwrap_or(0).to_le_bytes().to_vec();
        manifest.extend(header.encode());
        self.append(partition, &partition.to_string(), Some(&manifest), watch)?;
        self.wait(1, watch)?;
        for key in &old {
            self.append(partition, key, None, watch)?;
        }
        self.wait(old.len(), watch)?;
        self.present.insert(partition, PresentRecords { owner_epoch, keys: record_keys(header) });
        Ok(())
    }

    /// Appends one record; one without a value deletes its key.
    fn append(
        &self,
        partition: i32,
        key: &str,
        value: Option<&[u8]>,
        watch: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<(), ReplicaError> {
        let topic = &self.options.topic;
        // All records are waited for, so their numbers do not matter.
        let mut record: BaseRecord<'_, str, [u8], usize> =
            BaseRecord::with_opaque_to(topic, 0).partition(partition).key(key);
        record.payload = value;
        let mut wait = ReplicaWait::begin();
        loop {
            match self.writer.producer.send(record) {
                Ok(()) => return Ok(()),
                // There is room once a record is reported.
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), back)) => {
                    record = back;
                    self.rest(&mut wait, watch)?;
                }
                Err((error, _)) => return Err(failure(topic, Right::Write, &error)),
            }
        }
    }

    /// Waits until this many records are acknowledged, and returns the offset of the last one.
    fn wait(
        &self,
        count: usize,
        watch: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<Option<i64>, ReplicaError> {
        let mut last = None;
        for _ in 0..count {
            let mut wait = ReplicaWait::begin();
            last = Some(loop {
                if let Some(report) = self.writer.next_report() {
                    let wrong =
                        |failed: Undelivered| failure(&failed.topic, Right::Write, &failed.error);
                    break report.offset.map_err(wrong)?;
                }
                wait.said = self.writer.take_trouble().or(wait.said);
                self.rest(&mut wait, watch)?;
            });
        }
        Ok(last)
    }

    /// Waits a little for the producer, which reports every record within [`REPLICA_MS_MAX`], one
    /// way or the other.
    fn rest(
        &self,
        wait: &mut ReplicaWait,
        watch: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<(), ReplicaError> {
        if watch().is_break() {
            return Err(ReplicaError::GivenUp);
        }
        wait.note("an acknowledgement of", &self.options.topic);
        self.writer.producer.poll(REPORT_INTERVAL);
        Ok(())
    }

    /// The newest replica of a shard that names our topics and is wanted, if there is one.
    pub fn newest(
        &self,
        partition: i32,
        is_wanted: &dyn Fn(&Header) -> bool,
        watch: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<Option<Replica>, ReplicaError> {
        Ok(self.find(partition, is_wanted, watch)?.0)
    }

    /// Also returns the keys of all replica records that were seen on the way or belong to it.
    fn find(
        &self,
        partition: i32,
        is_wanted: &dyn Fn(&Header) -> bool,
        watch: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<(Option<Replica>, BTreeSet<String>), ReplicaError> {
        let (start, end) = self.watermarks(partition, watch)?;
        // A manifest is near the end, unless several replicas in a row were not finished.
        let mut back = MANIFEST_SEARCH_RECORDS;
        loop {
            let from = start.max(end - back);
            let (mut newest, mut present) = (None, BTreeSet::new());
            self.read(partition, from, end, watch, &mut |message| {
                let key = String::from_utf8_lossy(message.key().unwrap_or_default());
                if key == partition.to_string() {
                    let replica = message.payload().and_then(|value| manifest(value, partition));
                    // An owner that was suspended while it replicated may finish after the next
                    // one.
                    let recency = |replica: &Replica| replica.header.recency(&self.options.origin);
                    let known = newest.as_ref().map(recency);
                    let is_newer =
                        |replica: &Replica| known.is_none_or(|known| known <= recency(replica));
                    let ours = |Replica { header, .. }: &Replica| {
                        header.origin.names_same(&self.options.origin) && is_wanted(header)
                    };
                    newest = replica.filter(ours).filter(is_newer).or(newest.take());
                } else if message.payload().is_some() {
                    present.insert(key.into_owned());
                } else {
                    present.remove(key.as_ref());
                }
                ControlFlow::Continue(())
            })?;
            if newest.is_some() || from == start {
                present.extend(
                    newest.iter().flat_map(|replica: &Replica| record_keys(&replica.header)),
                );
                return Ok((newest, present));
            }
            back *= 4;
        }
    }

    /// Returns a partition's start and end. librdkafka waits without calling `watch`, so it gets
    /// short waits repeatedly.
    fn watermarks(
        &self,
        partition: i32,
        watch: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<(i64, i64), ReplicaError> {
        let topic = &self.options.topic;
        let end = Instant::now() + Duration::from_millis(METADATA_MS_MAX);
        loop {
            match self.consumer.fetch_watermarks(topic, partition, ANSWER_WAIT) {
                Ok(watermarks) => return Ok(watermarks),
                Err(error) if is_final(&error) || Instant::now() >= end => {
                    return Err(self.why_unknown(&error));
                }
                Err(_) if watch().is_break() => return Err(ReplicaError::GivenUp),
                // It reads nothing now; polling only lets it ask for a token.
                Err(_) => drop(self.consumer.poll(POLL_INTERVAL)),
            }
        }
    }

    /// Explains why a partition's start and end are unknown. librdkafka's offset queries do not
    /// distinguish a missing topic, a missing right and a partition without a leader.
    fn why_unknown(&self, error: &KafkaError) -> ReplicaError {
        let topic = &self.options.topic;
        match partitions(&self.consumer, topic, Right::Read, ANSWER_WAIT) {
            Err(why @ (TopicError::Missing(_) | TopicError::NotAuthorised { .. })) => why.into(),
            _ => failure(topic, Right::Read, error),
        }
    }

    /// Loads the zone from a replica.
    pub fn load<Z: ZoneDecoder>(
        &self,
        replica: &Replica,
        decoder: &Z,
        watch: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<Box<Z::Zone>, ReplicaError> {
        Ok(replica.header.restore(&self.state(replica, watch)?, decoder)?)
    }

    /// Reads the state in a replica.
    pub(crate) fn state(
        &self,
        replica: &Replica,
        watch: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<Vec<u8>, ReplicaError> {
        let Replica { header, first_offset } = replica;
        let mut state = Vec::with_capacity(header.state_bytes as usize);
        let (mut next, mut broken) = (0, Ok(()));
        self.read(header.partition, *first_offset, i64::MAX, watch, &mut |message| {
            let key = record_key(header.partition, header.id(), next);
            if message.key() == Some(key.as_bytes()) {
                broken = take_record(header, next, message.payload(), &mut state);
                next += 1;
            }
            match broken.is_err() || next == records(header) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        })?;
        broken?;
        if next < records(header) {
            let index = blocks_of(header, next).start;
            return Err(SnapshotError::Block { index, what: "missing" }.into());
        }
        Ok(state)
    }

    /// Reads a partition from one offset to another, or to its end.
    fn read(
        &self,
        partition: i32,
        from: i64,
        end: i64,
        watch: &mut dyn FnMut() -> ControlFlow<()>,
        take: &mut dyn FnMut(&BorrowedMessage<'_>) -> ControlFlow<()>,
    ) -> Result<(), ReplicaError> {
        if from >= end {
            return Ok(());
        }
        let topic = &self.options.topic;
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(topic, partition, Offset::Offset(from))
            .and_then(|()| read_from(&self.consumer, &list))
            .map_err(|error| failure(topic, Right::Read, &error))?;
        let done = self.read_assigned(end, watch, take);
        // Unassigning fails only if nothing was assigned.
        drop(self.consumer.unassign());
        done
    }

    fn read_assigned(
        &self,
        end: i64,
        watch: &mut dyn FnMut() -> ControlFlow<()>,
        take: &mut dyn FnMut(&BorrowedMessage<'_>) -> ControlFlow<()>,
    ) -> Result<(), ReplicaError> {
        let topic = &self.options.topic;
        let stall_max = Duration::from_millis(READ_STALL_MS_MAX);
        let mut wait = ReplicaWait::begin();
        loop {
            if watch().is_break() {
                return Err(ReplicaError::GivenUp);
            }
            wait.note("records of", topic);
            match self.consumer.poll(POLL_INTERVAL) {
                Some(Ok(message)) => {
                    wait = ReplicaWait::begin();
                    if take(&message).is_break() || message.offset() + 1 >= end {
                        return Ok(());
                    }
                }
                // Compaction may have removed the last records.
                Some(Err(KafkaError::PartitionEOF(_))) => return Ok(()),
                Some(Err(error)) if is_final(&error) => {
                    return Err(failure(topic, Right::Read, &error));
                }
                Some(Err(error)) => wait.said = Some(error.to_string()),
                None => {}
            }
            if wait.lasts.elapsed(Instant::now()) >= stall_max {
                let sentence = format!("no record for {} s", stall_max.as_secs());
                return Err(ReplicaError::Topic { topic: topic.clone(), sentence });
            }
        }
    }
}

const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Time between two looks for a report. A producer's poll takes all of it, even if a report comes.
const REPORT_INTERVAL: Duration = Duration::from_millis(1);

const ANSWER_WAIT: Duration = Duration::from_millis(500);

/// Number of records that a snapshot's blocks take.
fn records(header: &Header) -> u32 {
    header.blocks().div_ceil(REPLICA_BLOCKS_PER_RECORD as u32)
}

fn blocks_of(header: &Header, record: u32) -> std::ops::Range<u32> {
    let first = record * REPLICA_BLOCKS_PER_RECORD as u32;
    first..header.blocks().min(first + REPLICA_BLOCKS_PER_RECORD as u32)
}

/// The keys of all records of a snapshot's replica.
fn record_keys(header: &Header) -> BTreeSet<String> {
    let key = |record| record_key(header.partition, header.id(), record);
    (0..records(header)).map(key).collect()
}

fn record_key(partition: i32, id: u64, record: u32) -> String {
    format!("{partition}/{id:016x}/{record}")
}

/// Parses a manifest.
fn manifest(value: &[u8], partition: i32) -> Option<Replica> {
    let (first_offset, header) = value.split_first_chunk()?;
    let header = Header::decode(header).ok()?;
    let first_offset = i64::from_le_bytes(*first_offset);
    (header.partition == partition && first_offset >= 0).then_some(Replica { header, first_offset })
}

/// Appends the state in a record of blocks.
fn take_record(
    header: &Header,
    record: u32,
    value: Option<&[u8]>,
    state: &mut Vec<u8>,
) -> Result<(), SnapshotError> {
    let mut left = value.unwrap_or_default();
    for index in blocks_of(header, record) {
        let bytes = header.block_bytes(index).min(left.len());
        let (block, rest) = left.split_at(bytes);
        state.extend_from_slice(header.open_block(index, block)?);
        left = rest;
    }
    Ok(())
}

/// A wait for brokers.
struct ReplicaWait {
    lasts: LongWait,
    /// The last report of librdkafka.
    said: Option<String>,
}

impl ReplicaWait {
    fn begin() -> ReplicaWait {
        ReplicaWait { lasts: LongWait::since(Instant::now()), said: None }
    }

    /// Says what is waited for, if it lasts.
    fn note(&mut self, what: &str, topic: &str) {
        if let Some(waited_s) = self.lasts.word(Instant::now()) {
            tracing::warn!(
                "waiting for {what} a snapshot's replica in `{topic}` for {waited_s} s: {}; see \
                 whether its leader hangs, and whether min.insync.replicas of its replicas are in \
                 sync",
                self.said.as_deref().unwrap_or("no broker says why")
            );
        }
    }
}

fn is_final(error: &KafkaError) -> bool {
    use RDKafkaErrorCode::{TopicAuthorizationFailed, UnknownTopic, UnknownTopicOrPartition};
    let code = error.rdkafka_error_code();
    is_out_of_range(error)
        || matches!(code, Some(UnknownTopicOrPartition | UnknownTopic | TopicAuthorizationFailed))
}

fn failure(topic: &str, right: Right, error: &KafkaError) -> ReplicaError {
    match error.rdkafka_error_code() {
        Some(RDKafkaErrorCode::TopicAuthorizationFailed) => {
            TopicError::not_authorised(topic, right).into()
        }
        _ => ReplicaError::Topic { topic: topic.to_owned(), sentence: error.to_string() },
    }
}

fn consumer_config(options: &ReplicaOptions) -> ClientConfig {
    let mut config = reader_config(&options.client);
    config.set("fetch.wait.max.ms", "10").set("queued.max.messages.kbytes", "16384");
    config
}

fn producer_config(options: &ReplicaOptions) -> ClientConfig {
    let mut config = writer_config(&options.client);
    // A replica is read in order, and without idempotence retries may change the order.
    config
        .set("enable.idempotence", "true")
        .set("message.timeout.ms", REPLICA_MS_MAX.to_string())
        .set("socket.timeout.ms", REPLICA_MS_MAX.to_string())
        .set("compression.type", "lz4")
        .set("queue.buffering.max.kbytes", REPLICA_QUEUE_KBYTES.to_string());
    config
}
