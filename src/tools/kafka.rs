//! Helpers of the tools for talking to brokers through librdkafka.

use super::brokers;
use super::failure::ToolError;
use super::source::SourceRecord;
use crate::control::dialler;
use crate::daemon::failure::Failure;
use crate::kafka::client::{
    self, ClientOptions, KafkaReader, client_config, is_of_unused_group, is_out_of_range,
    read_from, reader, reader_config,
};
use crate::kafka::right::Right;
use crate::kafka::security::Security;
use crate::kafka::topic_error::TopicError;
use crate::service::config::{Config, topic_name};
use crate::service::config_args::ClusterArgs;
use rdkafka::consumer::Consumer;
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Message, Timestamp};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{ControlFlow, Range};
use std::thread;
use std::time::{Duration, Instant};

/// Upper limit of the wait for an answer about topics.
const ANSWER_WAIT: Duration = Duration::from_secs(10);

/// Usual limit of the time, in milliseconds, for which a broker may hold an answer. The end of a
/// partition is known by then.
pub(super) const FETCH_WAIT_MS: u32 = 100;

/// The cluster that a verb uses, and the names of its topics.
pub(crate) struct Cluster {
    /// How to reach it.
    pub client: ClientOptions,
    /// Which events count.
    pub isolation: Isolation,
    /// The topic with events.
    pub input_topic: String,
    /// The topic with updates.
    pub output_topic: String,
    /// The topic with records that were not events.
    pub dead_letter_topic: String,
    /// The topic with snapshot replicas, if there is one.
    pub snapshot_topic: Option<String>,
}

impl Cluster {
    /// Returns the cluster in the arguments.
    pub(crate) fn of(args: &ClusterArgs, verb: &str) -> Result<Cluster, ToolError> {
        match args.load()? {
            Some(config) => Cluster::of_config(&config, verb),
            None => Ok(Cluster {
                client: plaintext(&args.brokers, verb),
                isolation: Isolation::Committed,
                input_topic: "hunt-events".to_owned(),
                output_topic: "hunt-updates".to_owned(),
                dead_letter_topic: "hunt-dead-letters".to_owned(),
                snapshot_topic: None,
            }),
        }
    }

    /// Returns the daemons' cluster.
    pub(crate) fn of_config(config: &Config, verb: &str) -> Result<Cluster, ToolError> {
        let client = config.group.client.clone();
        dialler::check_files(&client.security).map_err(Failure::File)?;
        Ok(Cluster {
            client: ClientOptions { client_id: format!("huntd-{verb}"), ..client },
            isolation: match config.fetch.read_committed {
                true => Isolation::Committed,
                false => Isolation::Uncommitted,
            },
            input_topic: config.fetch.input_topic.clone(),
            output_topic: config.publisher.output_topic.clone(),
            dead_letter_topic: config.publisher.dead_letter_topic.clone(),
            snapshot_topic: config.snapshot.topic.clone(),
        })
    }
}

/// Options of a client, named after the verb, for brokers without TLS and SASL.
pub(crate) fn plaintext(brokers: &[String], verb: &str) -> ClientOptions {
    let name = format!("huntd-{verb}");
    ClientOptions {
        brokers: brokers.to_vec(),
        client_id: name.clone(),
        security: Security::default(),
        group: name,
    }
}

/// Returns a message as a record of a source.
pub(crate) fn record_of<'a>(partition: u16, message: &'a impl Message) -> SourceRecord<'a> {
    let time_ms = match message.timestamp() {
        Timestamp::CreateTime(time_ms) | Timestamp::LogAppendTime(time_ms) => time_ms,
        Timestamp::NotAvailable => -1,
    };
    SourceRecord { partition, offset: message.offset(), time_ms, value: message.payload() }
}

/// Returns the number of partitions of a topic, after checking that its brokers are reachable.
/// Never creates the topic. `right` is what the verb needs there.
pub(crate) fn topic_partitions(
    client: &ClientOptions,
    topic: &str,
    right: Right,
) -> Result<u16, ToolError> {
    topic_name(topic).map_err(|choice| {
        ToolError::Usage(format!("`{topic}` cannot be the name of a topic: {choice}"))
    })?;
    let brokers = brokers::reach(client)?;
    partitions_of(&ClientOptions { brokers, ..client.clone() }, topic, right)
}

/// Returns the number of partitions of a topic whose brokers are reachable.
pub(super) fn partitions_of(
    client: &ClientOptions,
    topic: &str,
    right: Right,
) -> Result<u16, ToolError> {
    brokers::ask_first(client, topic)?;
    let consumer = reader(&client_config(client), client)
        .map_err(|error| ToolError::of_topic(topic, right, &error))?;
    let partitions = client::partitions(&consumer, topic, right, ANSWER_WAIT)?;
    Ok(TopicError::unless_too_many(topic, partitions as usize)?)
}

/// Reads a topic without a group, each partition in order.
pub(crate) struct TopicReader {
    consumer: KafkaReader,
    topic: String,
}

/// Which records a reader receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Isolation {
    /// Only committed records: events may be part of a transaction.
    Committed,
    /// All records. Frames and dead letters are never part of a transaction, and transactions of
    /// other programs must not hide them. Events are read so if `fetch.read_committed` is false.
    Uncommitted,
}

/// The result of reading.
pub(crate) enum Read<'a> {
    /// The next record of some partition.
    Message(BorrowedMessage<'a>),
    /// This partition has no further record now.
    End(u16),
    /// Nothing arrived within the wait.
    Nothing,
}

impl TopicReader {
    /// Creates a reader whose requests wait up to `wait_ms` for new records.
    pub(crate) fn connect(
        client: &ClientOptions,
        topic: &str,
        isolation: Isolation,
        wait_ms: u32,
    ) -> Result<TopicReader, ToolError> {
        let isolation = match isolation {
            Isolation::Committed => "read_committed",
            Isolation::Uncommitted => "read_uncommitted",
        };
        let mut config = reader_config(client);
        config
            .set("isolation.level", isolation)
            .set("fetch.wait.max.ms", wait_ms.to_string())
            .set("fetch.error.backoff.ms", "10")
            .set("fetch.queue.backoff.ms", "5");
        let consumer = reader(&config, client)
            .map_err(|error| ToolError::of_topic(topic, Right::Read, &error))?;
        Ok(TopicReader { consumer, topic: topic.to_owned() })
    }

    /// Returns the first offset that is not deleted, and the offset of the next record.
    pub(crate) fn bounds(&self, partition: u16) -> Result<(i64, i64), ToolError> {
        let until = Instant::now() + ANSWER_WAIT;
        loop {
            let asked =
                self.consumer.fetch_watermarks(&self.topic, i32::from(partition), ANSWER_WAIT);
            match asked.map_err(|error| ToolError::of_topic(&self.topic, Right::Read, &error)) {
                // The leader of a new topic does not know at once that it leads.
                Err(ToolError::Topic(TopicError::NotNow(_))) if Instant::now() < until => {
                    thread::sleep(Duration::from_millis(FETCH_WAIT_MS.into()));
                }
                bounds => return bounds,
            }
        }
    }

    /// Returns the first offset of each partition with a record of this time or later, in
    /// milliseconds since the Unix epoch; `None` if all are older.
    pub(crate) fn offsets_since(
        &self,
        partitions: &[u16],
        time_ms: i64,
    ) -> Result<Vec<Option<i64>>, ToolError> {
        let wrong = |error| ToolError::of_topic(&self.topic, Right::Read, &error);
        let mut list = TopicPartitionList::new();
        for partition in partitions {
            let time = Offset::Offset(time_ms);
            list.add_partition_offset(&self.topic, i32::from(*partition), time).map_err(wrong)?;
        }
        let found = self.consumer.offsets_for_times(list, ANSWER_WAIT).map_err(wrong)?;
        let offset = |partition: &u16| match found
            .find_partition(&self.topic, i32::from(*partition))?
            .offset()
        {
            Offset::Offset(offset) => Some(offset),
            _ => None,
        };
        Ok(partitions.iter().map(offset).collect())
    }

    /// Starts reading these partitions at these offsets.
    pub(crate) fn start(&self, places: &[(u16, i64)]) -> Result<(), ToolError> {
        let mut list = TopicPartitionList::new();
        for &(partition, offset) in places {
            list.add_partition_offset(&self.topic, partition.into(), Offset::Offset(offset))
                .map_err(|error| ToolError::of_topic(&self.topic, Right::Read, &error))?;
        }
        read_from(&self.consumer, &list)
            .map_err(|error| ToolError::of_topic(&self.topic, Right::Read, &error))
    }

    /// Returns the next result. librdkafka retries unreachable brokers, so only errors about the
    /// topic itself end the reading.
    pub(crate) fn next(&self, wait: Duration) -> Result<Read<'_>, ToolError> {
        match self.consumer.poll(wait) {
            None => Ok(Read::Nothing),
            Some(Ok(message)) => Ok(Read::Message(message)),
            Some(Err(KafkaError::PartitionEOF(partition))) => Ok(Read::End(partition as u16)),
            Some(Err(error)) if is_of_unused_group(&error) => Ok(Read::Nothing),
            // librdkafka continues after the batch, at an unknown offset.
            Some(Err(error)) if is_damage(&error) => Err(ToolError::VerificationFailed(format!(
                "a batch of `{}` cannot be read ({error}), so results for the records after it \
                 would be meaningless; `--skip` does not help here; a daemon that reads the topic \
                 logs the position of the batch",
                self.topic
            ))),
            Some(Err(error)) => match ToolError::of_topic(&self.topic, Right::Read, &error) {
                ToolError::Topic(wrong) if !wrong.may_pass() => Err(wrong.into()),
                ToolError::Topic(_) if !is_out_of_range(&error) => Ok(Read::Nothing),
                ToolError::Topic(_) => Err(ToolError::TopicWrong(format!(
                    "records of `{}` were deleted before they were read ({error}); keep them for \
                     longer, or start later",
                    self.topic
                ))),
                other => Err(other),
            },
        }
    }

    /// Calls `take` for the records of some partitions at these offsets that are there now, until
    /// it breaks. With [`NO_END`], it waits for the records of a partition that are yet to come.
    pub(super) fn each_of(
        &self,
        places: &[(u16, Range<i64>)],
        mut take: impl FnMut(&SourceRecord<'_>) -> Result<ControlFlow<()>, ToolError>,
    ) -> Result<(), ToolError> {
        let starts = places.iter().map(|(partition, offsets)| (*partition, offsets.start));
        self.start(&starts.collect::<Vec<_>>())?;
        let left = places.iter().filter(|(_, offsets)| !offsets.is_empty());
        let mut left: BTreeMap<u16, i64> = left.map(|(of, offsets)| (*of, offsets.end)).collect();
        while !left.is_empty() {
            match self.next(Duration::from_secs(1))? {
                Read::Message(message) => {
                    let record = record_of(message.partition() as u16, &message);
                    let Some(end) = left.get(&record.partition).copied() else { continue };
                    if record.offset < end && take(&record)?.is_break() {
                        return Ok(());
                    }
                    if record.offset + 1 >= end {
                        left.remove(&record.partition);
                    }
                }
                // The last records before the end may be control records, which readers do not see.
                Read::End(partition) => {
                    if left.get(&partition).is_some_and(|end| *end != NO_END) {
                        left.remove(&partition);
                    }
                }
                Read::Nothing => {}
            }
        }
        Ok(())
    }

    /// Calls `take` for the last `count` records of each of these partitions, until it breaks.
    /// Returns the partitions whose end was not reached within the wait.
    pub(super) fn each_of_last(
        &self,
        partitions: impl IntoIterator<Item = u16>,
        count: i64,
        wait: Duration,
        mut take: impl FnMut(&BorrowedMessage<'_>) -> ControlFlow<()>,
    ) -> Result<BTreeSet<u16>, ToolError> {
        let (mut places, mut late) = (Vec::new(), BTreeSet::new());
        for partition in partitions {
            let (start, end) = self.bounds(partition)?;
            if start < end {
                places.push((partition, start.max(end - count)));
                late.insert(partition);
            }
        }
        self.start(&places)?;
        let until = Instant::now() + wait;
        while !late.is_empty() && Instant::now() < until {
            match self.next(Duration::from_millis(FETCH_WAIT_MS.into()))? {
                Read::Message(message) if take(&message).is_break() => break,
                Read::End(partition) => drop(late.remove(&partition)),
                Read::Message(_) | Read::Nothing => {}
            }
        }
        Ok(late)
    }

    /// Calls `take` for the records of a partition at these offsets that are there now, until it
    /// breaks.
    pub(crate) fn each(
        &self,
        partition: u16,
        offsets: Range<i64>,
        take: impl FnMut(&SourceRecord<'_>) -> Result<ControlFlow<()>, ToolError>,
    ) -> Result<(), ToolError> {
        self.each_of(&[(partition, offsets)], take)
    }
}

/// The end of a partition that is read for as long as the reader runs.
pub(super) const NO_END: i64 = i64::MAX;

fn is_damage(error: &KafkaError) -> bool {
    use rdkafka::error::RDKafkaErrorCode::{BadCompression, BadMessage, InvalidMessage};
    matches!(error.rdkafka_error_code(), Some(BadCompression | BadMessage | InvalidMessage))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::config::parse;

    #[test]
    fn events_are_read_as_the_daemon_reads_them() {
        for (text, isolation) in [
            ("", Isolation::Committed),
            ("[fetch]\nread_committed = false", Isolation::Uncommitted),
        ] {
            let config = parse("huntd.toml", text, std::iter::empty()).expect("it is valid");
            let cluster = Cluster::of_config(&config, "explain");
            assert_eq!(cluster.expect("it names no files").isolation, isolation);
        }
    }
}
