//! Reads ranges of the output partitions for their owner, and appends single frames.
//!
//! All partitions share one consumer and one producer, so that no partition waits for another's
//! broker. Ownership interprets the records.

use super::leave;
use crate::kafka::METADATA_MS_MAX;
use crate::kafka::client::{
    ClientOptions, KafkaReader, await_removals, is_out_of_range, partitions, reader, reader_config,
    topic_error, writer_config,
};
use crate::kafka::right::Right;
use crate::kafka::topic_error::TopicError;
use crate::kafka::topic_writer::{DeliveryReport, TopicWriter};
use crate::output::encode::encode_empty;
use crate::output::frame::{Format, FrameHeader};
use crate::ownership::event::OutputEvent;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::Consumer;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::Message;
use rdkafka::producer::BaseRecord;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Upper limit of the wait for a fence's acknowledgement, in milliseconds.
pub const FENCE_MS_MAX: u64 = 10_000;

/// Time in which nothing came of a partition that was read, after which its next read takes a new
/// client: librdkafka has been seen to bring nothing any more after its broker was restarted, while
/// other clients were served. A partition that is read on from its end is read again after 15 s of
/// silence, which brings its end. One whose leader is away is not read again before the leader has
/// answered a survey.
const STUCK: Duration = Duration::from_secs(20);

/// Time between two polls that counts as a time in which nothing came, at most: records may wait
/// for a thread that has stood still.
const POLL_COUNTED_MAX: Duration = Duration::from_millis(100);

/// Options for reading and fencing outputs.
#[derive(Clone, Debug)]
pub struct OutputLogOptions {
    /// How to reach the brokers.
    pub client: ClientOptions,
    /// The topic with the events.
    pub input_topic: String,
    /// The topic with the frames.
    pub output_topic: String,
    /// The topic for records that are not valid events. It must exist.
    pub dead_letter_topic: String,
    /// The format of frames.
    pub format: Format,
}

/// The partitions that are read.
#[derive(Debug, Default)]
struct Reads {
    under_way: BTreeMap<i32, PartitionRead>,
    /// Partitions of which nothing had come for long when their last read ended.
    stuck: BTreeSet<i32>,
}

/// How far a partition is read.
#[derive(Debug, PartialEq, Eq)]
struct PartitionRead {
    /// The offset of the next record.
    next: i64,
    /// For how long nothing has come.
    quiet: Duration,
}

impl Reads {
    fn begin(&mut self, partition: i32, from: i64) {
        self.under_way.insert(partition, PartitionRead { next: from, quiet: Duration::ZERO });
    }

    /// So much time has passed since the last poll began.
    fn wait(&mut self, time: Duration) {
        let counted = time.min(POLL_COUNTED_MAX);
        self.under_way.values_mut().for_each(|read| read.quiet += counted);
    }

    /// A record at this offset has come, or the end.
    fn come(&mut self, partition: i32, offset: Option<i64>) {
        if let Some(read) = self.under_way.get_mut(&partition) {
            read.quiet = Duration::ZERO;
            read.next = offset.map_or(read.next, |offset| offset + 1);
        }
    }

    /// Returns whether the partition was read.
    fn end(&mut self, partition: i32) -> bool {
        let Some(read) = self.under_way.remove(&partition) else { return false };
        match read.quiet >= STUCK {
            true => self.stuck.insert(partition),
            false => self.stuck.remove(&partition),
        };
        true
    }

    /// Returns whether the client brings nothing of a partition.
    fn are_stuck(&self, partition: i32) -> bool {
        self.stuck.contains(&partition)
    }

    /// A new client reads on: nothing is known against it.
    fn renew(&mut self) {
        self.stuck.clear();
        self.under_way.values_mut().for_each(|read| read.quiet = Duration::ZERO);
    }
}

/// Clients for one output topic.
pub struct OutputLog {
    options: OutputLogOptions,
    consumer: KafkaReader,
    writer: TopicWriter,
    /// Number of the last append.
    appends: usize,
    /// The append that each partition waits for.
    waiting: BTreeMap<i32, usize>,
    /// The notes that are on their way, by number, each with its partition.
    notes: BTreeMap<usize, i32>,
    reads: Reads,
    polled_at: Instant,
    partitions: i32,
}

impl OutputLog {
    /// Connects, and checks that all topics exist and fit together.
    pub fn connect(options: OutputLogOptions) -> Result<OutputLog, TopicError> {
        let unusable = |error: KafkaError| TopicError::Unreachable(error.to_string());
        let consumer = reader(&consumer_config(&options), &options.client).map_err(unusable)?;
        let wait = Duration::from_millis(METADATA_MS_MAX);
        let input = partitions(&consumer, &options.input_topic, Right::ReadAndWrite, wait)?;
        let output = partitions(&consumer, &options.output_topic, Right::ReadAndWrite, wait)?;
        TopicError::unless_equal((&options.input_topic, input), (&options.output_topic, output))?;
        partitions(&consumer, &options.dead_letter_topic, Right::Write, wait)?;
        let writer =
            TopicWriter::new(&producer_config(&options), &options.client).map_err(unusable)?;
        Ok(OutputLog {
            options,
            consumer,
            writer,
            appends: 0,
            waiting: BTreeMap::new(),
            notes: BTreeMap::new(),
            reads: Reads::default(),
            polled_at: Instant::now(),
            partitions: output,
        })
    }

    /// Number of partitions of the input topic, and of the output topic.
    pub(crate) fn partitions(&self) -> i32 {
        self.partitions
    }

    /// Reads a partition from this offset on, also if it is being read elsewhere.
    pub fn read(&mut self, partition: i32, from: i64) -> Result<(), TopicError> {
        self.stop_reading(partition);
        if self.reads.are_stuck(partition) {
            self.replace_consumer()?;
        }
        self.assign(&self.consumer, [(partition, from)])?;
        self.reads.begin(partition, from);
        Ok(())
    }

    /// Has a client bring these partitions from these offsets on, beside others.
    fn assign(
        &self,
        consumer: &KafkaReader,
        places: impl IntoIterator<Item = (i32, i64)>,
    ) -> Result<(), TopicError> {
        let (topic, mut list) = (&self.options.output_topic, TopicPartitionList::new());
        places
            .into_iter()
            .try_for_each(|(partition, from)| {
                list.add_partition_offset(topic, partition, Offset::Offset(from))
            })
            .and_then(|()| consumer.incremental_assign(&list))
            .map_err(|error| self.failure(&error))
    }

    /// Takes a new client, which reads on where the old one was.
    fn replace_consumer(&mut self) -> Result<(), TopicError> {
        let config = consumer_config(&self.options);
        let consumer = reader(&config, &self.options.client).map_err(|it| self.failure(&it))?;
        let places = self.reads.under_way.iter().map(|(partition, read)| (*partition, read.next));
        self.assign(&consumer, places)?;
        tracing::warn!("nothing came of the output for long: it is read by a new client");
        leave(std::mem::replace(&mut self.consumer, consumer));
        self.reads.renew();
        Ok(())
    }

    /// Drops a partition: its records and the outcome of its append are no longer reported.
    pub fn forget(&mut self, partition: i32) {
        self.stop_reading(partition);
        self.waiting.remove(&partition);
    }

    fn stop_reading(&mut self, partition: i32) {
        if !self.reads.end(partition) {
            return;
        }
        let mut list = TopicPartitionList::new();
        list.add_partition(&self.options.output_topic, partition);
        let removed = self.consumer.incremental_unassign(&list);
        if let Err(error) = removed.and_then(|()| await_removals(&self.consumer)) {
            tracing::debug!(%error, partition, "an output partition is not dropped");
        }
    }

    /// Appends a frame without updates. Its outcome is reported as an event; the outcome of an
    /// earlier append to the same partition no longer is.
    pub fn append(&mut self, partition: i32, header: &FrameHeader) -> Result<(), TopicError> {
        let number = self.send(partition, header)?;
        self.waiting.insert(partition, number);
        Ok(())
    }

    /// Appends a note. Its outcome is reported as an event of its own. False: it was not sent.
    pub(crate) fn append_note(&mut self, partition: i32, header: &FrameHeader) -> bool {
        let sent = self.send(partition, header);
        if let Ok(number) = sent {
            self.notes.insert(number, partition);
        }
        sent.is_ok()
    }

    fn send(&mut self, partition: i32, header: &FrameHeader) -> Result<usize, TopicError> {
        let mut bytes = Vec::new();
        encode_empty(self.options.format, header, &mut bytes);
        self.appends += 1;
        let record = BaseRecord::<'_, (), [u8], usize>::with_opaque_to(
            &self.options.output_topic,
            self.appends,
        );
        let record = record.partition(partition).payload(&bytes);
        self.writer.producer.send(record).map_err(|(error, _)| self.failure(&error))?;
        Ok(self.appends)
    }

    /// Lets the clients fetch tokens while nothing is read or appended.
    pub(crate) fn rest(&self) {
        drop(self.consumer.poll(Duration::ZERO));
        self.writer.producer.poll(Duration::ZERO);
    }

    /// Reports events, and waits at most `wait_max` for the first one.
    pub fn poll(&mut self, wait_max: Duration, mut take: impl FnMut(OutputEvent<'_>)) {
        let now = Instant::now();
        self.reads.wait(now.saturating_duration_since(self.polled_at));
        self.polled_at = now;
        let mut wait = wait_max;
        if !self.waiting.is_empty() || !self.notes.is_empty() {
            let is_reading = !self.reads.under_way.is_empty();
            self.writer.producer.poll(if is_reading { Duration::ZERO } else { wait });
            self.take_appended(&mut take);
            wait = wait.min(POLL_INTERVAL);
        }
        if self.reads.under_way.is_empty() {
            if self.waiting.is_empty() && self.notes.is_empty() {
                // Ownership waits for something that does not wake this thread.
                std::thread::sleep(wait.min(POLL_INTERVAL));
            }
            return;
        }
        for _ in 0..RECORDS_PER_POLL {
            match self.consumer.poll(wait) {
                Some(Ok(message)) => {
                    let (partition, offset) = (message.partition(), message.offset());
                    self.reads.come(partition, Some(offset));
                    let payload = message.payload().unwrap_or_default();
                    take(OutputEvent::Record { partition, offset, payload });
                }
                Some(Err(KafkaError::PartitionEOF(partition))) => {
                    self.reads.come(partition, None);
                    take(OutputEvent::End { partition });
                }
                Some(Err(error)) => self.tolerate(&error, &mut take),
                None => return,
            }
            wait = Duration::ZERO;
        }
    }

    fn take_appended(&mut self, take: &mut impl FnMut(OutputEvent<'_>)) {
        while let Some(DeliveryReport { number: reported, offset }) = self.writer.next_report() {
            if let Some(partition) = self.notes.remove(&reported) {
                take(OutputEvent::Noted { partition, offset: offset.ok() });
                continue;
            }
            let waits = |(_, number): &(&i32, &usize)| **number == reported;
            let Some(partition) = self.waiting.iter().find(waits).map(|(partition, _)| *partition)
            else {
                continue;
            };
            self.waiting.remove(&partition);
            match offset {
                Ok(offset) => take(OutputEvent::Appended { partition, offset }),
                Err(failed) => {
                    let error = passing(topic_error(&failed.topic, Right::Write, &failed.error));
                    take(OutputEvent::RequestFailed { partition, error });
                }
            }
        }
    }

    /// Handles an error of reading. Lost connections come back, or reading stalls for too long; the
    /// other errors are reported.
    fn tolerate(&self, error: &KafkaError, take: &mut impl FnMut(OutputEvent<'_>)) {
        if is_out_of_range(error) {
            // librdkafka does not name the partition, so all are read again.
            for partition in self.reads.under_way.keys() {
                // The survey said that the offset is there.
                let why = "the output was truncated while it was read, or a broker is behind";
                let error = TopicError::NotNow(why.to_owned());
                take(OutputEvent::RequestFailed { partition: *partition, error });
            }
        }
        if let Some(
            RDKafkaErrorCode::UnknownTopicOrPartition
            | RDKafkaErrorCode::UnknownTopic
            | RDKafkaErrorCode::TopicAuthorizationFailed,
        ) = error.rdkafka_error_code()
        {
            take(OutputEvent::Failed(self.failure(error)));
        }
    }

    fn failure(&self, error: &KafkaError) -> TopicError {
        passing(topic_error(&self.options.output_topic, Right::Read, error))
    }
}

/// Time between two polls of sources that do not wake this thread.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Limit of the records per call, so that the caller can poll other sources.
const RECORDS_PER_POLL: usize = 256;

/// Makes a missing topic a passing error. The topics existed when the daemon connected, and a
/// broker that has just started does not know its topics for a while.
fn passing(error: TopicError) -> TopicError {
    match error {
        TopicError::Missing(topic) => {
            TopicError::NotNow(format!("the broker does not know the topic `{topic}` now"))
        }
        other => other,
    }
}

fn consumer_config(options: &OutputLogOptions) -> ClientConfig {
    let mut config = reader_config(&options.client);
    config
        // Frames are never part of a transaction, and transactions of other programs must not hide
        // them.
        .set("isolation.level", "read_uncommitted")
        .set("fetch.wait.max.ms", "10")
        .set("fetch.queue.backoff.ms", "1")
        .set("queued.max.messages.kbytes", "65536");
    config
}

fn producer_config(options: &OutputLogOptions) -> ClientConfig {
    let mut config = writer_config(&options.client);
    // A fence that is appended twice changes nothing, so idempotence is not needed.
    config.set("message.timeout.ms", FENCE_MS_MAX.to_string());
    config
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_that_brings_nothing_is_stuck_whatever_comes_of_others() {
        let mut reads = Reads::default();
        [1, 2].into_iter().for_each(|partition| reads.begin(partition, 7));
        for offset in 0..(STUCK.as_millis() / POLL_COUNTED_MAX.as_millis()) as i64 {
            reads.wait(POLL_COUNTED_MAX);
            reads.come(2, Some(7 + offset));
        }
        assert!(reads.end(1) && reads.end(2) && !reads.end(2));
        assert!(reads.are_stuck(1) && !reads.are_stuck(2));
        reads.begin(1, 7);
        reads.end(1);
        assert!(!reads.are_stuck(1), "it was read again since");
    }

    #[test]
    fn a_new_client_reads_on_where_the_one_before_was() {
        let mut reads = Reads::default();
        reads.begin(1, 7);
        reads.come(1, Some(9));
        reads.come(1, None);
        reads.wait(POLL_COUNTED_MAX);
        reads.renew();
        assert_eq!(reads.under_way[&1], PartitionRead { next: 10, quiet: Duration::ZERO });
    }

    #[test]
    fn a_thread_that_has_stood_still_takes_no_partition_for_stuck() {
        let mut reads = Reads::default();
        reads.begin(1, 7);
        reads.wait(2 * STUCK);
        reads.end(1);
        assert!(!reads.are_stuck(1));
    }

    #[test]
    fn a_broker_that_does_not_know_the_topic_yet_has_answered() {
        let error = passing(TopicError::Missing("updates".to_owned()));
        assert!(error.may_pass());
        let sentence = "the broker does not know the topic `updates` now; that may pass by itself";
        assert_eq!(error.to_string(), sentence);
    }
}
