//! Produce, versions 9 and 10: one batch for each of some partitions of one topic.
//!
//! Both are in the compact, tagged encoding (KIP-482). Later versions name topics by id or concern
//! transactions, which are not used here. Source: Kafka's protocol guide, ProduceRequest.json and
//! ProduceResponse.json.

use crate::kafka::error_code::ErrorCode;
use crate::kafka::leader_hint::{CurrentLeader, EndpointList};
use crate::kafka::message::{Broker, Envelope, MessageError, PRODUCE, parse, read_array};
use crate::kafka::wire::{WireError, WireReader, WireWriter};

/// The oldest supported version: the first in the compact encoding, since Kafka 2.8.
pub(crate) const PRODUCE_VERSION_MIN: i16 = 9;

/// The newest supported version.
pub(crate) const PRODUCE_VERSION_MAX: i16 = 10;

/// Upper limit of a batch's base offset: above it, the last record's offset would overflow.
const BASE_OFFSET_MAX: i64 = i64::MAX - i32::MAX as i64;

/// Acknowledged by all in-sync replicas.
const ACKS_ALL: i16 = -1;

/// The broker's answer for one partition's batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Produced {
    /// The partition.
    pub partition: i32,
    /// Why the batch is not in the log, or on too few replicas.
    pub error: ErrorCode,
    /// Offset of its first record; -1 with an error.
    pub base_offset: i64,
    /// The current leader, if the broker names it along with an error.
    pub leader: Option<CurrentLeader>,
}

/// A broker's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProduceAnswer {
    /// The result of each partition's batch.
    pub produced: Vec<Produced>,
    /// The endpoints of the leaders that are named.
    pub brokers: Vec<Broker>,
    /// Milliseconds for which the broker throttles the client.
    pub throttle_ms: u32,
}

/// How to handle a partition's error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProduceRemedy {
    /// Send the same bytes again.
    Resend,
    /// Send the same bytes again some times. They may have changed in this host's memory, and then
    /// only a new batch is good.
    ResendSometimes,
    /// Send the same bytes again, and ask another broker who leads: this one may be cut off, and
    /// not know that it no longer leads.
    ResendDoubting,
    /// Send the same bytes to the broker that leads now.
    AskLeader,
    /// Send all batches again, in order: the broker lacks an earlier one that is still in flight.
    ResendBefore,
    /// Send smaller batches: this one is larger than the topic allows.
    Split,
    /// Use another producer id: the broker does not know this one, or knows a higher epoch of it.
    NewProducerId,
    /// Give up: any retry may cause a gap or a duplicate.
    GiveUp,
}

/// How to handle a partition's error. After any unlisted error the batch is given up, because it
/// may or may not be in the log.
pub(crate) fn remedy(error: ErrorCode) -> ProduceRemedy {
    match error.0 {
        // THROTTLING_QUOTA_EXCEEDED
        89 => ProduceRemedy::Resend,
        // CORRUPT_MESSAGE
        2 => ProduceRemedy::ResendSometimes,
        // REQUEST_TIMED_OUT, NETWORK_EXCEPTION, NOT_ENOUGH_REPLICAS,
        // NOT_ENOUGH_REPLICAS_AFTER_APPEND
        7 | 13 | 19 | 20 => ProduceRemedy::ResendDoubting,
        // UNKNOWN_TOPIC_OR_PARTITION, LEADER_NOT_AVAILABLE, NOT_LEADER_OR_FOLLOWER,
        // REPLICA_NOT_AVAILABLE, KAFKA_STORAGE_ERROR, FENCED_LEADER_EPOCH
        3 | 5 | 6 | 9 | 56 | 74 => ProduceRemedy::AskLeader,
        // OUT_OF_ORDER_SEQUENCE_NUMBER
        45 => ProduceRemedy::ResendBefore,
        // MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE
        10 | 18 => ProduceRemedy::Split,
        // INVALID_PRODUCER_EPOCH, INVALID_PRODUCER_ID_MAPPING, UNKNOWN_PRODUCER_ID
        47 | 49 | 59 => ProduceRemedy::NewProducerId,
        _ => ProduceRemedy::GiveUp,
    }
}

/// Appends a request with these batches, at most one per partition. The broker may wait
/// `timeout_ms` for its replicas.
pub(crate) fn request<'b>(
    envelope: Envelope<'_>,
    topic: &str,
    timeout_ms: i32,
    batches: impl ExactSizeIterator<Item = (i32, &'b [u8])>,
    out: &mut Vec<u8>,
) {
    let version = envelope.version;
    assert!((PRODUCE_VERSION_MIN..=PRODUCE_VERSION_MAX).contains(&version));
    let mut writer = WireWriter::new(out);
    let start = writer.begin_frame();
    writer.i16(PRODUCE.key as i16);
    writer.i16(version);
    writer.i32(envelope.correlation_id);
    // The client id keeps its old form even in the flexible header (KIP-482).
    writer.string(envelope.client_id, false);
    writer.no_tagged_fields();
    writer.null_string(true); // transactional_id
    writer.i16(ACKS_ALL);
    writer.i32(timeout_ms);
    writer.array(1, true);
    writer.string(topic, true);
    writer.array(batches.len(), true);
    for (partition, batch) in batches {
        writer.i32(partition);
        writer.bytes(batch, true);
        writer.no_tagged_fields();
    }
    writer.no_tagged_fields();
    writer.no_tagged_fields();
    writer.end_frame(start);
}

/// Parses an answer.
pub(crate) fn parse_answer(
    bytes: &[u8],
    correlation_id: i32,
    topic: &str,
) -> Result<ProduceAnswer, MessageError> {
    let (topics, brokers, throttle_ms) = parse(&PRODUCE, true, bytes, correlation_id, |reader| {
        let topics = read_array(reader, true, |reader| {
            let is_asked = reader.string(true)? == topic;
            let mut partitions = Vec::new();
            for _ in 0..reader.array(true)? {
                partitions.push(read_one(reader)?);
            }
            Ok(is_asked.then_some(partitions))
        })?;
        let throttle_ms = u32::try_from(reader.i32()?).unwrap_or(0);
        Ok((topics, EndpointList::read(reader)?.of(bytes).collect(), throttle_ms))
    })?;
    let asked = topics.into_iter().flatten().next();
    let produced = asked.ok_or(MessageError::TopicMissing { api: PRODUCE.name })?;
    Ok(ProduceAnswer { produced, brokers, throttle_ms })
}

fn read_one(reader: &mut WireReader<'_>) -> Result<Produced, WireError> {
    let partition = reader.i32()?;
    let error = ErrorCode(reader.i16()?);
    let base_offset = reader.i64()?;
    if error.is_none() && !(0..=BASE_OFFSET_MAX).contains(&base_offset) {
        return Err(WireError::Implausible { at: reader.at() });
    }
    let _append_time_ms = reader.i64()?;
    let _log_start_offset = reader.i64()?;
    read_array(reader, true, |reader| {
        let _place = reader.i32()?;
        reader.nullable_string(true).map(drop)
    })?;
    let _sentence = reader.nullable_string(true)?;
    let mut leader = None;
    for _ in 0..reader.tagged_fields()? {
        if let (0, mut value) = reader.tagged_field()? {
            leader = CurrentLeader::read(&mut value)?;
        }
    }
    Ok(Produced { partition, error, base_offset, leader })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::{Bytes, BytesMut};
    use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
    use kafka_protocol::messages::{
        ApiKey, ProduceRequest, ProduceResponse, RequestHeader, TopicName,
    };
    use kafka_protocol::protocol::{Decodable, Encodable, StrBytes};

    const BATCHES: [(i32, &[u8]); 3] = [(3, b"one batch"), (0, b"another"), (7, &[5; 300])];

    fn name() -> TopicName {
        TopicName(StrBytes::from_static_str("updates"))
    }

    #[test]
    fn a_request_has_the_bytes_that_another_implementation_gives_it() {
        for version in PRODUCE_VERSION_MIN..=PRODUCE_VERSION_MAX {
            let envelope = Envelope { version, correlation_id: 77, client_id: "huntd" };
            let mut ours = Vec::new();
            request(envelope, "updates", 10_000, BATCHES.into_iter(), &mut ours);
            let partitions = BATCHES.map(|(partition, batch)| {
                PartitionProduceData::default()
                    .with_index(partition)
                    .with_records(Some(Bytes::from_static(batch)))
            });
            let topic = TopicProduceData::default()
                .with_name(name())
                .with_partition_data(partitions.to_vec());
            let theirs = ProduceRequest::default()
                .with_transactional_id(None)
                .with_acks(-1)
                .with_timeout_ms(10_000)
                .with_topic_data(vec![topic]);
            let header = RequestHeader::default()
                .with_request_api_key(ApiKey::Produce as i16)
                .with_request_api_version(version)
                .with_correlation_id(77)
                .with_client_id(Some(StrBytes::from_static_str("huntd")));
            let mut expected = BytesMut::new();
            header.encode(&mut expected, ApiKey::Produce.request_header_version(version)).unwrap();
            theirs.encode(&mut expected, version).unwrap();
            assert_eq!(ours[4..], expected[..], "version {version}");
            assert_eq!(ours[..4], (expected.len() as u32).to_be_bytes());
        }
    }

    #[test]
    fn each_error_of_a_batch_has_the_remedy_that_its_name_asks_for() {
        let named = |error: ErrorCode| match error.name() {
            "CORRUPT_MESSAGE" => ProduceRemedy::ResendSometimes,
            "THROTTLING_QUOTA_EXCEEDED" => ProduceRemedy::Resend,
            "REQUEST_TIMED_OUT"
            | "NETWORK_EXCEPTION"
            | "NOT_ENOUGH_REPLICAS"
            | "NOT_ENOUGH_REPLICAS_AFTER_APPEND" => ProduceRemedy::ResendDoubting,
            "UNKNOWN_TOPIC_OR_PARTITION"
            | "LEADER_NOT_AVAILABLE"
            | "NOT_LEADER_OR_FOLLOWER"
            | "REPLICA_NOT_AVAILABLE"
            | "KAFKA_STORAGE_ERROR"
            | "FENCED_LEADER_EPOCH" => ProduceRemedy::AskLeader,
            "OUT_OF_ORDER_SEQUENCE_NUMBER" => ProduceRemedy::ResendBefore,
            "MESSAGE_TOO_LARGE" | "RECORD_LIST_TOO_LARGE" => ProduceRemedy::Split,
            "INVALID_PRODUCER_EPOCH" | "INVALID_PRODUCER_ID_MAPPING" | "UNKNOWN_PRODUCER_ID" => {
                ProduceRemedy::NewProducerId
            }
            _ => ProduceRemedy::GiveUp,
        };
        for error in (-2..=200).map(ErrorCode) {
            assert_eq!(remedy(error), named(error), "{error}");
        }
    }

    /// Partition 3 at offset 41; partition 7 refused.
    fn answer(version: i16) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = WireWriter::new(&mut bytes);
        writer.i32(77);
        writer.no_tagged_fields();
        writer.array(1, true);
        writer.string("updates", true);
        writer.array(2, true);
        for (partition, error, offset) in [(3, 0, 41), (7, 87, -1)] {
            writer.i32(partition);
            writer.i16(error);
            writer.i64(offset);
            writer.i64(-1);
            writer.i64(0);
            writer.array(usize::from(error != 0), true);
            if error != 0 {
                writer.i32(0);
                writer.string("no", true);
                writer.no_tagged_fields();
            }
            writer.null_string(true);
            match version >= 10 && error != 0 {
                // Broker 2 leads it, in epoch 9.
                true => {
                    [1, 0, 9].into_iter().for_each(|byte| writer.i8(byte));
                    writer.i32(2);
                    writer.i32(9);
                    writer.no_tagged_fields();
                }
                false => writer.no_tagged_fields(),
            }
        }
        writer.no_tagged_fields();
        writer.i32(250);
        match version >= 10 {
            // It listens at `b:9092`.
            true => {
                [1, 0, 13, 2].into_iter().for_each(|byte| writer.i8(byte));
                writer.i32(2);
                writer.string("b", true);
                writer.i32(9092);
                writer.null_string(true);
                writer.no_tagged_fields();
            }
            false => writer.no_tagged_fields(),
        }
        bytes
    }

    #[test]
    fn an_answer_of_any_version_is_read_and_cut_anywhere_it_is_refused() {
        for version in PRODUCE_VERSION_MIN..=PRODUCE_VERSION_MAX {
            let bytes = answer(version);
            let leader = CurrentLeader { node_id: 2, leader_epoch: 9 };
            let leader = (version >= 10).then_some(leader);
            let broker = Broker { node_id: 2, host: "b".to_owned(), port: 9092 };
            let error = ErrorCode(87);
            let expected = ProduceAnswer {
                produced: vec![
                    Produced {
                        partition: 3,
                        error: ErrorCode::NONE,
                        base_offset: 41,
                        leader: None,
                    },
                    Produced { partition: 7, error, base_offset: -1, leader },
                ],
                brokers: leader.map(|_| broker).into_iter().collect(),
                throttle_ms: 250,
            };
            let read = |bytes: &[u8]| parse_answer(bytes, 77, "updates");
            assert_eq!(read(&bytes), Ok(expected), "version {version}");
            let mut rest = Bytes::copy_from_slice(&bytes[5..]);
            let theirs = ProduceResponse::decode(&mut rest, version).expect("they read it too");
            let theirs = &theirs.responses[0].partition_responses;
            assert_eq!((theirs[0].index, theirs[0].base_offset), (3, 41));
            assert_eq!((theirs[1].index, theirs[1].error_code), (7, 87));
            let missing = MessageError::TopicMissing { api: "Produce" };
            assert_eq!(parse_answer(&bytes, 77, "other"), Err(missing));
            assert!(parse_answer(&bytes, 78, "updates").is_err());
            for end in 0..bytes.len() {
                assert!(read(&bytes[..end]).is_err(), "version {version}, cut at {end}");
            }
        }
    }

    #[test]
    fn random_bytes_are_refused_without_a_panic() {
        let mut random = crate::testing::random::Random::new(19);
        for _ in 0..20_000 {
            let mut bytes = answer(10);
            for _ in 0..1 + random.below(4) {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] = random.below(256) as u8;
            }
            drop(parse_answer(&bytes, 77, "updates"));
        }
    }
}
