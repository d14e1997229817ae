//! ListOffsets, version 1: the start and end of a partition's log. All brokers since Kafka 0.10.1
//! support it. Source: Kafka's protocol guide, ListOffsetsRequest.json.

use crate::kafka::error_code::ErrorCode;
use crate::kafka::message::{Envelope, MessageError};
use crate::kafka::wire::{WireError, WireReader, WireWriter};

/// Kafka's number of the request.
const API_KEY: i16 = 2;

/// The supported version.
pub const LIST_OFFSETS_VERSION: i16 = 1;

const NAME: &str = "ListOffsets";

/// Which end of the log to ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i64)]
pub(crate) enum LogEnd {
    /// The offset after the last record.
    Latest = -1,
    /// The first offset that is not deleted.
    Earliest = -2,
}

/// Appends a request for one end of some partitions of one topic.
pub(crate) fn request(
    envelope: Envelope<'_>,
    topic: &str,
    partitions: &[i32],
    end: LogEnd,
    out: &mut Vec<u8>,
) {
    assert!(envelope.version == LIST_OFFSETS_VERSION);
    let mut writer = WireWriter::new(out);
    let start = writer.begin_frame();
    writer.i16(API_KEY);
    writer.i16(LIST_OFFSETS_VERSION);
    writer.i32(envelope.correlation_id);
    writer.string(envelope.client_id, false);
    writer.i32(-1); // replica_id: a consumer
    writer.array(1, false);
    writer.string(topic, false);
    writer.array(partitions.len(), false);
    for partition in partitions {
        writer.i32(*partition);
        writer.i64(end as i64);
    }
    writer.end_frame(start);
}

/// Partitions with their offsets, or with an error.
pub(crate) type Offsets = Vec<(i32, Result<i64, ErrorCode>)>;

/// Parses an answer into `offsets`: each partition with its offset, or with an error.
pub(crate) fn parse(
    bytes: &[u8],
    correlation_id: i32,
    topic: &str,
    offsets: &mut Offsets,
) -> Result<(), MessageError> {
    let malformed = |error: WireError| MessageError::Malformed { api: NAME, error };
    let mut reader = WireReader::new(bytes);
    let found = reader.i32().map_err(malformed)?;
    if found != correlation_id {
        return Err(MessageError::Correlation { expected: correlation_id, found });
    }
    match read(&mut reader, topic, offsets).map_err(malformed)? {
        true => Ok(()),
        false => Err(MessageError::TopicMissing { api: NAME }),
    }
}

/// Returns whether the topic is in the answer.
fn read(
    reader: &mut WireReader<'_>,
    topic: &str,
    offsets: &mut Offsets,
) -> Result<bool, WireError> {
    let mut has_topic = false;
    offsets.clear();
    for _ in 0..reader.array(false)? {
        let is_asked = reader.string(false)? == topic;
        has_topic |= is_asked;
        for _ in 0..reader.array(false)? {
            let partition = reader.i32()?;
            let error = ErrorCode(reader.i16()?);
            let _time_ms = reader.i64()?;
            let offset = reader.i64()?;
            if is_asked {
                offsets.push((partition, if error.is_none() { Ok(offset) } else { Err(error) }));
            }
        }
    }
    Ok(has_topic)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::BytesMut;
    use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
    use kafka_protocol::messages::{
        ListOffsetsRequest, ListOffsetsResponse, RequestHeader, TopicName,
    };
    use kafka_protocol::protocol::{Decodable, Encodable, StrBytes};

    #[test]
    fn a_request_has_the_bytes_that_another_implementation_gives_it() {
        let envelope =
            Envelope { version: LIST_OFFSETS_VERSION, correlation_id: 7, client_id: "huntd" };
        let mut out = Vec::new();
        request(envelope, "zones", &[3, 5], LogEnd::Earliest, &mut out);
        let partition = |partition| {
            ListOffsetsPartition::default().with_partition_index(partition).with_timestamp(-2)
        };
        let topic = ListOffsetsTopic::default()
            .with_name(TopicName(StrBytes::from_static_str("zones")))
            .with_partitions(vec![partition(3), partition(5)]);
        let theirs =
            ListOffsetsRequest::default().with_replica_id((-1).into()).with_topics(vec![topic]);
        let header = RequestHeader::default()
            .with_request_api_key(API_KEY)
            .with_request_api_version(LIST_OFFSETS_VERSION)
            .with_correlation_id(7)
            .with_client_id(Some(StrBytes::from_static_str("huntd")));
        let mut expected = BytesMut::new();
        header.encode(&mut expected, 1).unwrap();
        theirs.encode(&mut expected, LIST_OFFSETS_VERSION).unwrap();
        assert_eq!(out[4..], expected[..]);
    }

    #[test]
    fn an_answer_reads_as_another_implementation_reads_it_and_cut_anywhere_is_refused() {
        let mut bytes = Vec::new();
        let mut writer = WireWriter::new(&mut bytes);
        writer.i32(7);
        writer.array(1, false);
        writer.string("zones", false);
        writer.array(2, false);
        for (partition, error, offset) in [(3, 0, 41), (5, 6, -1)] {
            writer.i32(partition);
            writer.i16(error);
            writer.i64(-1);
            writer.i64(offset);
        }
        let mut offsets = vec![(1, Ok(2))];
        assert_eq!(parse(&bytes, 7, "zones", &mut offsets), Ok(()));
        assert_eq!(offsets, [(3, Ok(41)), (5, Err(ErrorCode(6)))]);
        let mut rest = bytes::Bytes::copy_from_slice(&bytes[4..]);
        let theirs = ListOffsetsResponse::decode(&mut rest, LIST_OFFSETS_VERSION).unwrap();
        let theirs = &theirs.topics[0].partitions;
        assert_eq!((theirs[0].partition_index, theirs[0].offset), (3, 41));
        assert_eq!((theirs[1].partition_index, theirs[1].error_code), (5, 6));
        assert!(parse(&bytes, 8, "zones", &mut offsets).is_err());
        let missing = Err(MessageError::TopicMissing { api: NAME });
        assert_eq!(parse(&bytes, 7, "other", &mut offsets), missing);
        for end in 0..bytes.len() {
            assert!(parse(&bytes[..end], 7, "zones", &mut offsets).is_err(), "cut at {end}");
        }
    }
}
