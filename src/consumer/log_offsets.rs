//! Where logs begin and end: ListOffsets, and OffsetForLeaderEpoch, which finds truncations.

use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use kafka_protocol::messages::{ListOffsetsRequest, OffsetForLeaderEpochRequest, TopicName};

use crate::consumer::error_code::ErrorCode;
use crate::consumer::fetch::EpochEnd;
use crate::consumer::message::{
    Envelope, LIST_OFFSETS, MessageError, OFFSET_FOR_LEADER_EPOCH, encode, end_of_struct, parse,
    read_array, text,
};

/// Which end of a log ListOffsets asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogEnd {
    /// The first offset that is still there.
    Earliest,
    /// The offset after the last record that a reader may see.
    Latest,
}

/// Appends a ListOffsets request for partitions, each with its leader's epoch (-1 if unknown).
pub fn list_offsets_request(
    envelope: Envelope<'_>,
    topic: &str,
    partitions: &[(i32, i32)],
    end: LogEnd,
    read_committed: bool,
    out: &mut Vec<u8>,
) {
    let timestamp = match end {
        LogEnd::Earliest => -2,
        LogEnd::Latest => -1,
    };
    let partitions = partitions.iter().map(|&(partition, leader_epoch)| {
        ListOffsetsPartition::default()
            .with_partition_index(partition)
            .with_current_leader_epoch(if envelope.version >= 4 { leader_epoch } else { -1 })
            .with_timestamp(timestamp)
    });
    let topic = ListOffsetsTopic::default()
        .with_name(TopicName(text(topic)))
        .with_partitions(partitions.collect());
    let isolation_level = i8::from(read_committed && envelope.version >= 2);
    let request = ListOffsetsRequest::default()
        .with_replica_id((-1).into())
        .with_isolation_level(isolation_level)
        .with_topics(vec![topic]);
    encode(&LIST_OFFSETS, envelope, &request, out);
}

/// One partition's answer to ListOffsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedOffset {
    /// The partition.
    pub partition: i32,
    /// Whether the offset counts.
    pub error: ErrorCode,
    /// The offset; -1 with an error.
    pub offset: i64,
}

/// Reads the answer to a ListOffsets request.
pub fn parse_list_offsets(
    bytes: &[u8],
    version: i16,
    correlation_id: i32,
) -> Result<Vec<ListedOffset>, MessageError> {
    let flexible = version >= 6;
    let topics = parse(&LIST_OFFSETS, flexible, bytes, correlation_id, |reader| {
        if version >= 2 {
            let _throttle_ms = reader.i32()?;
        }
        let topics = read_array(reader, flexible, |reader| {
            let _name = reader.string(flexible)?;
            read_array(reader, flexible, |reader| {
                let (partition, error) = (reader.i32()?, ErrorCode(reader.i16()?));
                let (_timestamp, offset) = (reader.i64()?, reader.i64()?);
                if version >= 4 {
                    let _leader_epoch = reader.i32()?;
                }
                Ok(ListedOffset { partition, error, offset })
            })
        })?;
        end_of_struct(reader, flexible)?;
        Ok(topics)
    })?;
    Ok(topics.into_iter().flatten().collect())
}

/// One partition of an OffsetForLeaderEpoch request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochQuestion {
    /// The partition.
    pub partition: i32,
    /// The leader's epoch as this client knows it, -1 if unknown.
    pub current_leader_epoch: i32,
    /// Leader epoch of the last record read: where does it end now?
    pub leader_epoch: i32,
}

/// Appends an OffsetForLeaderEpoch request (KIP-320).
pub fn offset_for_leader_epoch_request(
    envelope: Envelope<'_>,
    topic: &str,
    questions: &[EpochQuestion],
    out: &mut Vec<u8>,
) {
    let partitions = questions.iter().map(|question| {
        OffsetForLeaderPartition::default()
            .with_partition(question.partition)
            .with_current_leader_epoch(question.current_leader_epoch)
            .with_leader_epoch(question.leader_epoch)
    });
    let topic = OffsetForLeaderTopic::default()
        .with_topic(TopicName(text(topic)))
        .with_partitions(partitions.collect());
    // The default replica id says "debugging client", a consumer's is -1.
    let request = OffsetForLeaderEpochRequest::default()
        .with_replica_id(if envelope.version >= 3 { (-1).into() } else { (-2).into() })
        .with_topics(vec![topic]);
    encode(&OFFSET_FOR_LEADER_EPOCH, envelope, &request, out);
}

/// One partition's answer to OffsetForLeaderEpoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochAnswer {
    /// The partition.
    pub partition: i32,
    /// Whether the end counts.
    pub error: ErrorCode,
    /// Where the epoch ends. An end below what was read: the log was truncated.
    pub end: EpochEnd,
}

/// Reads the answer to an OffsetForLeaderEpoch request.
pub fn parse_offset_for_leader_epoch(
    bytes: &[u8],
    version: i16,
    correlation_id: i32,
) -> Result<Vec<EpochAnswer>, MessageError> {
    let flexible = version >= 4;
    let topics = parse(&OFFSET_FOR_LEADER_EPOCH, flexible, bytes, correlation_id, |reader| {
        let _throttle_ms = reader.i32()?;
        let topics = read_array(reader, flexible, |reader| {
            let _name = reader.string(flexible)?;
            read_array(reader, flexible, |reader| {
                let (error, partition) = (ErrorCode(reader.i16()?), reader.i32()?);
                let (leader_epoch, end_offset) = (reader.i32()?, reader.i64()?);
                let end = EpochEnd { leader_epoch, end_offset };
                Ok(EpochAnswer { partition, error, end })
            })
        })?;
        end_of_struct(reader, flexible)?;
        Ok(topics)
    })?;
    Ok(topics.into_iter().flatten().collect())
}
