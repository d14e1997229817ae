//! Fetch requests and responses, compared with another implementation of the protocol.

use crate::kafka::aborted::AbortedTransaction;
use crate::kafka::error_code::ErrorCode;
use crate::kafka::fetch::{
    self, EpochEnd, FETCH_VERSION_MAX, FETCH_VERSION_MIN, FetchError, FetchPartition, FetchRemedy,
    FetchRequest, FetchedPartition,
};
use crate::kafka::leader_hint::CurrentLeader;
use crate::kafka::wire::WireWriter;
use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::fetch_request::{
    FetchPartition as OraclePartition, FetchRequest as OracleRequest, FetchTopic,
};
use kafka_protocol::messages::{
    ApiKey, FetchResponse as OracleResponse, RequestHeader, ResponseHeader,
};
use kafka_protocol::protocol::{Decodable, Encodable, StrBytes};
use proptest::prelude::*;

const ZONES: u128 = 5;
const OTHERS: u128 = 6;

#[test]
fn a_request_has_the_bytes_that_another_implementation_gives_it() {
    let partitions = [
        FetchPartition {
            partition: 3,
            offset: 1 << 40,
            leader_epoch: 9,
            last_fetched_epoch: 8,
            bytes_max: 1 << 20,
        },
        FetchPartition {
            partition: 0,
            offset: 0,
            leader_epoch: -1,
            last_fetched_epoch: -1,
            bytes_max: 77,
        },
    ];
    for version in FETCH_VERSION_MIN..=FETCH_VERSION_MAX {
        let request = FetchRequest {
            version,
            correlation_id: 0x0102_0304,
            client_id: "huntd",
            topic_id: 0x0102 << 100,
            wait_ms_max: 100,
            bytes_min: 1,
            bytes_max: 4 << 20,
            read_committed: true,
            partitions: &partitions,
        };
        let mut out = vec![0xee];
        fetch::encode(&request, &mut out);
        let expected = oracle_request(&request);
        assert_eq!(out[0], 0xee, "what was in the buffer stays");
        assert_eq!(out[1..5], (expected.len() as u32).to_be_bytes());
        assert_eq!(out[5..], expected[..], "version {version}");
    }
}

fn oracle_request(request: &FetchRequest<'_>) -> BytesMut {
    let version = request.version;
    let partitions = request.partitions.iter().map(|partition| {
        OraclePartition::default()
            .with_partition(partition.partition)
            .with_fetch_offset(partition.offset)
            .with_current_leader_epoch(partition.leader_epoch)
            .with_last_fetched_epoch(partition.last_fetched_epoch)
            .with_partition_max_bytes(partition.bytes_max)
    });
    let topic = FetchTopic::default()
        .with_topic_id(uuid::Uuid::from_u128(request.topic_id))
        .with_partitions(partitions.collect());
    let oracle = OracleRequest::default()
        .with_max_wait_ms(request.wait_ms_max)
        .with_min_bytes(request.bytes_min)
        .with_max_bytes(request.bytes_max)
        .with_isolation_level(i8::from(request.read_committed))
        .with_session_epoch(-1)
        .with_topics(vec![topic]);
    let header = RequestHeader::default()
        .with_request_api_key(ApiKey::Fetch as i16)
        .with_request_api_version(version)
        .with_correlation_id(request.correlation_id)
        .with_client_id(Some(StrBytes::from_string(request.client_id.to_owned())));
    let mut out = BytesMut::new();
    header.encode(&mut out, ApiKey::Fetch.request_header_version(version)).unwrap();
    oracle.encode(&mut out, version).unwrap();
    out
}

/// A partition of a response.
#[derive(Clone, Debug)]
struct Plan {
    partition: i32,
    error: i16,
    offsets: [i64; 3],
    aborted: Option<Vec<AbortedTransaction>>,
    preferred_replica: i32,
    diverging: Option<EpochEnd>,
    leader: Option<CurrentLeader>,
    records: Option<Vec<u8>>,
}

fn response(version: i16, correlation_id: i32, topics: &[(u128, Vec<Plan>)]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = WireWriter::new(&mut out);
    writer.i32(correlation_id);
    writer.no_tagged_fields();
    writer.i32(250); // throttle_time_ms
    writer.i16(0);
    writer.i32(0);
    writer.array(topics.len(), true);
    for (topic_id, partitions) in topics {
        writer.raw(&topic_id.to_be_bytes());
        writer.array(partitions.len(), true);
        for partition in partitions {
            write_partition(partition, &mut writer);
        }
        writer.no_tagged_fields();
    }
    if version >= 16 {
        writer.raw(&[2, 0]);
        write_endpoints(&mut writer);
        writer.raw(&[99, 1, 0xff]); // a tag of a later version
    } else {
        writer.no_tagged_fields();
    }
    out
}

fn write_endpoints(writer: &mut WireWriter<'_>) {
    let mut value = Vec::new();
    let mut endpoints = WireWriter::new(&mut value);
    endpoints.array(2, true);
    for (node_id, host) in [(2, "kafka-2"), (5, "kafka-5")] {
        endpoints.i32(node_id);
        endpoints.string(host, true);
        endpoints.i32(9092);
        endpoints.string("rack", true);
        endpoints.no_tagged_fields();
    }
    writer.unsigned_varint(value.len() as u32);
    writer.raw(&value);
}

fn write_partition(plan: &Plan, writer: &mut WireWriter<'_>) {
    let length = |length: Option<usize>, writer: &mut WireWriter<'_>| match length {
        Some(length) => writer.array(length, true),
        None => writer.unsigned_varint(0),
    };
    writer.i32(plan.partition);
    writer.i16(plan.error);
    writer.i64(plan.offsets[0]);
    writer.i64(plan.offsets[1]);
    writer.i64(plan.offsets[2]);
    length(plan.aborted.as_ref().map(Vec::len), writer);
    for aborted in plan.aborted.iter().flatten() {
        writer.i64(aborted.producer_id);
        writer.i64(aborted.first_offset);
        writer.no_tagged_fields();
    }
    writer.i32(plan.preferred_replica);
    length(plan.records.as_ref().map(Vec::len), writer);
    writer.raw(plan.records.as_deref().unwrap_or_default());
    write_partition_tags(plan, writer);
}

fn write_partition_tags(plan: &Plan, writer: &mut WireWriter<'_>) {
    let tags = 1 + u32::from(plan.diverging.is_some()) + u32::from(plan.leader.is_some());
    writer.unsigned_varint(tags);
    if let Some(diverging) = plan.diverging {
        writer.raw(&[0, 13]);
        writer.i32(diverging.leader_epoch);
        writer.i64(diverging.end_offset);
        writer.unsigned_varint(0);
    }
    if let Some(leader) = plan.leader {
        writer.raw(&[1, 9]);
        writer.i32(leader.node_id);
        writer.i32(leader.leader_epoch);
        writer.unsigned_varint(0);
    }
    writer.raw(&[99, 2, 0xab, 0xcd]); // a tag of a later version
}

/// All partitions, with their records and aborted transactions.
type Read = Vec<(FetchedPartition, Vec<u8>, Vec<AbortedTransaction>)>;

fn read(bytes: &[u8], topic_id: u128) -> Result<Read, FetchError> {
    let mut partitions = fetch::parse(bytes, 5)?.partitions;
    let mut all = Vec::new();
    while let Some(partition) = partitions.next_partition(bytes, topic_id)? {
        let records = bytes[partition.records.clone()].to_vec();
        let aborted = partition.aborted.iter(bytes).collect();
        all.push((partition, records, aborted));
    }
    assert_eq!(partitions.next_partition(bytes, topic_id), Ok(None), "the end stays the end");
    Ok(all)
}

/// The endpoints, after the partitions were read.
fn endpoints(bytes: &[u8]) -> Vec<(i32, String, i32)> {
    let mut partitions = fetch::parse(bytes, 5).unwrap().partitions;
    while partitions.next_partition(bytes, ZONES).unwrap().is_some() {}
    let brokers = partitions.endpoints(bytes);
    brokers.map(|broker| (broker.node_id, broker.host, i32::from(broker.port))).collect()
}

fn plans() -> Vec<Plan> {
    let aborted = |producer_id| AbortedTransaction { producer_id, first_offset: producer_id * 10 };
    vec![
        Plan {
            partition: 0,
            error: 0,
            offsets: [100, 90, 5],
            aborted: Some(vec![aborted(4), aborted(1)]),
            preferred_replica: -1,
            diverging: None,
            leader: None,
            records: Some(b"some record batches".to_vec()),
        },
        Plan {
            partition: 7,
            error: 6,
            offsets: [-1, -1, -1],
            aborted: None,
            preferred_replica: 3,
            diverging: Some(EpochEnd { leader_epoch: 2, end_offset: 40 }),
            leader: Some(CurrentLeader { node_id: 2, leader_epoch: 11 }),
            records: None,
        },
        Plan {
            partition: 2,
            error: 0,
            offsets: [1, 1, 0],
            aborted: Some(Vec::new()),
            preferred_replica: -1,
            diverging: None,
            leader: None,
            records: Some(Vec::new()),
        },
    ]
}

#[test]
fn a_response_reads_as_it_was_written_and_as_another_implementation_reads_it() {
    for version in FETCH_VERSION_MIN..=FETCH_VERSION_MAX {
        let bytes = response(version, 5, &[(ZONES, plans())]);
        let header = fetch::parse(&bytes, 5).unwrap();
        assert_eq!((header.throttle_ms, header.error), (250, ErrorCode::NONE));
        let read = read(&bytes, ZONES).unwrap();
        let endpoints = endpoints(&bytes);
        let mut rest = Bytes::from(bytes);
        ResponseHeader::decode(&mut rest, ApiKey::Fetch.response_header_version(version)).unwrap();
        let whole = OracleResponse::decode(&mut rest, version).unwrap();
        let oracle = &whole.responses[0].partitions;
        assert_eq!((read.len(), oracle.len()), (3, 3));
        let theirs = whole.node_endpoints.iter();
        let theirs = theirs.map(|end| (end.node_id.0, end.host.to_string(), end.port));
        assert!(endpoints.into_iter().eq(theirs), "version {version}");
        for (((partition, records, aborted), oracle), plan) in read.iter().zip(oracle).zip(plans())
        {
            assert_eq!(partition.partition, oracle.partition_index);
            assert_eq!(partition.error.0, oracle.error_code);
            assert_eq!(partition.high_watermark, oracle.high_watermark);
            assert_eq!(partition.last_stable_offset, oracle.last_stable_offset);
            assert_eq!(partition.log_start_offset, oracle.log_start_offset);
            let names_follower = oracle.preferred_read_replica.0 >= 0;
            assert_eq!(partition.names_follower, names_follower, "version {version}");
            assert_eq!(partition.diverging, plan.diverging);
            assert_eq!(partition.leader, plan.leader);
            assert_eq!(*records, oracle.records.clone().unwrap_or_default());
            assert_eq!(*aborted, plan.aborted.unwrap_or_default());
        }
    }
}

#[test]
fn records_may_be_changed_between_two_partitions() {
    let mut bytes = response(13, 5, &[(ZONES, plans())]);
    let mut partitions = fetch::parse(&bytes, 5).unwrap().partitions;
    let mut seen = 0;
    while let Some(partition) = partitions.next_partition(&bytes, ZONES).unwrap() {
        bytes[partition.records].fill(0xff);
        seen += 1;
    }
    assert_eq!(seen, 3);
}

#[test]
fn answers_to_other_questions_are_refused() {
    let bytes = response(13, 6, &[(ZONES, plans())]);
    let other = FetchError::Correlation { expected: 5, found: 6 };
    assert_eq!(fetch::parse(&bytes, 5), Err(other));
    let bytes = response(13, 5, &[(ZONES, plans()), (OTHERS, plans())]);
    assert_eq!(read(&bytes, ZONES), Err(FetchError::Topic));
}

#[test]
fn an_empty_answer_and_a_topic_in_two_pieces_are_read() {
    for version in [FETCH_VERSION_MIN, FETCH_VERSION_MAX] {
        assert_eq!(read(&response(version, 5, &[]), ZONES).unwrap().len(), 0);
        let halves = [(ZONES, plans()[..1].to_vec()), (ZONES, plans()[1..].to_vec())];
        assert_eq!(read(&response(version, 5, &halves), ZONES).unwrap().len(), 3);
    }
}

#[test]
fn a_response_cut_anywhere_or_continued_is_refused() {
    for version in FETCH_VERSION_MIN..=FETCH_VERSION_MAX {
        let mut bytes = response(version, 5, &[(ZONES, plans())]);
        for cut in 0..bytes.len() {
            assert!(read(&bytes[..cut], ZONES).is_err(), "version {version} at {cut}");
        }
        bytes.push(0);
        assert!(read(&bytes, ZONES).is_err());
    }
}

#[test]
fn every_error_that_kafka_documents_for_fetch_has_its_answer() {
    let answers = |codes: &[i16], trouble| {
        for code in codes {
            assert_eq!(fetch::trouble(ErrorCode(*code)), Some(trouble), "{code}");
            assert_ne!(ErrorCode(*code).name(), "UNLISTED", "{code}");
        }
    };
    assert_eq!(fetch::trouble(ErrorCode::NONE), None);
    answers(&[-1, 7, 29, 70, 71, 78, 106], FetchRemedy::RetryLater);
    answers(&[3, 5, 6, 9, 56, 74, 75, 100, 103, 108], FetchRemedy::RefreshMetadata);
    answers(&[1], FetchRemedy::OffsetOutOfRange);
    answers(&[2, 17, 35, 42, 76], FetchRemedy::Fatal);
    assert_eq!(fetch::trouble(ErrorCode(999)), Some(FetchRemedy::Fatal));
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let mut bytes = bytes;
        bytes.splice(..bytes.len().min(4), [0, 0, 0, 5]);
        let _ = read(&bytes, 0);
    }

    #[test]
    fn a_damaged_response_never_panics(
        version in FETCH_VERSION_MIN..=FETCH_VERSION_MAX,
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = response(version, 5, &[(ZONES, plans())]);
        for (place, byte) in damage {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        let _ = read(&bytes, ZONES);
    }
}
