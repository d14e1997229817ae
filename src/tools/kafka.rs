//! What the tools share about talking to brokers, through librdkafka.

use super::failure::ToolError;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::BorrowedMessage;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use std::time::Duration;

/// The longest wait for an answer about topics.
const ANSWER_WAIT: Duration = Duration::from_secs(10);

/// Partitions that a tool reads or writes, as for the daemon.
const PARTITIONS_MAX: usize = crate::telemetry::progress::SHARDS_MAX;

/// A client of these brokers, named after the verb.
pub(crate) fn client_config(brokers: &[String], verb: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", brokers.join(","));
    config.set("client.id", format!("huntd-{verb}"));
    config
}

/// How many partitions a topic has. It is never created by asking.
pub(crate) fn topic_partitions(brokers: &[String], topic: &str) -> Result<u16, ToolError> {
    super::brokers::reach(brokers)?;
    let config = client_config(brokers, "metadata");
    let consumer: BaseConsumer =
        config.create().map_err(|error| ToolError::of_topic(topic, &error))?;
    let metadata = consumer
        .fetch_metadata(Some(topic), ANSWER_WAIT)
        .map_err(|error| ToolError::of_topic(topic, &error))?;
    let found = metadata.topics().iter().find(|found| found.name() == topic);
    let found = found.ok_or_else(|| ToolError::TopicMissing(topic.to_owned()))?;
    if let Some(error) = found.error() {
        let error = KafkaError::MetadataFetch(error.into());
        return Err(ToolError::of_topic(topic, &error));
    }
    match found.partitions().len() {
        0 => Err(ToolError::TopicMissing(topic.to_owned())),
        count if count <= PARTITIONS_MAX => Ok(count as u16),
        count => Err(ToolError::TopicWrong(format!(
            "the topic `{topic}` has {count} partitions and huntd takes {PARTITIONS_MAX} at most; \
             use a topic with fewer"
        ))),
    }
}

/// Reads a topic without a group, partition by partition in order.
pub(crate) struct TopicReader {
    consumer: BaseConsumer,
    topic: String,
}

/// What a topic's reader gives.
pub(crate) enum Read<'a> {
    /// The next record of some partition.
    Message(BorrowedMessage<'a>),
    /// This partition has no further record at present.
    End(u16),
    /// Nothing came within the wait.
    Nothing,
}

impl TopicReader {
    /// A reader that waits up to `wait_ms` for new records within one request.
    pub(crate) fn connect(
        brokers: &[String],
        verb: &str,
        topic: &str,
        wait_ms: u32,
    ) -> Result<TopicReader, ToolError> {
        let mut config = client_config(brokers, verb);
        config
            .set("group.id", format!("huntd-{verb}"))
            .set("enable.auto.commit", "false")
            .set("enable.partition.eof", "true")
            .set("auto.offset.reset", "error")
            .set("check.crcs", "true")
            .set("isolation.level", "read_committed")
            .set("fetch.wait.max.ms", wait_ms.to_string())
            .set("fetch.error.backoff.ms", "10")
            .set("fetch.queue.backoff.ms", "5");
        let consumer = config.create().map_err(|error| ToolError::of_topic(topic, &error))?;
        Ok(TopicReader { consumer, topic: topic.to_owned() })
    }

    /// First offset that is still there, and the offset of the next record.
    pub(crate) fn bounds(&self, partition: u16) -> Result<(i64, i64), ToolError> {
        self.consumer
            .fetch_watermarks(&self.topic, i32::from(partition), ANSWER_WAIT)
            .map_err(|error| ToolError::of_topic(&self.topic, &error))
    }

    /// Begins to read these partitions at these offsets.
    pub(crate) fn start(&self, places: &[(u16, i64)]) -> Result<(), ToolError> {
        let mut list = TopicPartitionList::new();
        for &(partition, offset) in places {
            list.add_partition_offset(&self.topic, partition.into(), Offset::Offset(offset))
                .map_err(|error| ToolError::of_topic(&self.topic, &error))?;
        }
        self.consumer.assign(&list).map_err(|error| ToolError::of_topic(&self.topic, &error))
    }

    /// The next thing that happens. Brokers that are away come back or do not: librdkafka tries
    /// again, so only errors about the topic itself end the reading.
    pub(crate) fn next(&self, wait: Duration) -> Result<Read<'_>, ToolError> {
        match self.consumer.poll(wait) {
            None => Ok(Read::Nothing),
            Some(Ok(message)) => Ok(Read::Message(message)),
            Some(Err(KafkaError::PartitionEOF(partition))) => Ok(Read::End(partition as u16)),
            Some(Err(error)) => match ToolError::of_topic(&self.topic, &error) {
                ToolError::Unreachable(_) if !is_lost_offset(&error) => Ok(Read::Nothing),
                ToolError::Unreachable(_) => Err(ToolError::TopicWrong(format!(
                    "records of `{}` were deleted before they were read ({error}); keep them for \
                     longer, or begin later",
                    self.topic
                ))),
                other => Err(other),
            },
        }
    }
}

fn is_lost_offset(error: &KafkaError) -> bool {
    use rdkafka::error::RDKafkaErrorCode::{AutoOffsetReset, OffsetOutOfRange};
    matches!(error.rdkafka_error_code(), Some(AutoOffsetReset | OffsetOutOfRange))
}
