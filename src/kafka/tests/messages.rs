//! Messages other than Fetch, compared with another implementation of the protocol.

use crate::kafka::error_code::ErrorCode;
use crate::kafka::message::{
    ApiRange, ApiVersionsAnswer, Broker, Envelope, MessageError, Metadata, PartitionLeader,
    Versions, api_versions_request, frame_length, metadata_request, parse_api_versions,
    parse_metadata,
};
use crate::kafka::wire::{WireReader, WireWriter};
use bytes::Bytes;
use kafka_protocol::messages::{ApiVersionsResponse, MetadataResponse};
use kafka_protocol::protocol::Decodable;
use proptest::prelude::*;

const ID: i32 = 77;

/// The versions of a modern broker: ApiVersions, Fetch, ListOffsets, Metadata, Produce,
/// InitProducerId.
const RANGES: [(i16, i16, i16); 6] =
    [(18, 0, 4), (1, 4, 17), (2, 1, 10), (3, 0, 13), (0, 3, 13), (22, 0, 6)];

fn api_versions_answer(version: i16, error: i16, ranges: &[(i16, i16, i16)]) -> Vec<u8> {
    let flexible = version >= 3;
    let mut out = Vec::new();
    let mut writer = WireWriter::new(&mut out);
    writer.i32(ID);
    writer.i16(error);
    writer.array(ranges.len(), flexible);
    for (api_key, min, max) in ranges {
        writer.i16(*api_key);
        writer.i16(*min);
        writer.i16(*max);
        if flexible {
            writer.no_tagged_fields();
        }
    }
    if version >= 1 {
        writer.i32(0);
    }
    if flexible {
        writer.raw(&[1, 1, 8]); // one tagged field: finalized_features_epoch
        writer.i64(3);
    }
    out
}

fn metadata_answer(topic_id: i64) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = WireWriter::new(&mut out);
    writer.i32(ID);
    writer.no_tagged_fields();
    writer.i32(0); // throttle time
    writer.array(1, true);
    writer.i32(4);
    writer.string("broker.example", true);
    writer.i32(9092);
    writer.string("rack-1", true);
    writer.no_tagged_fields();
    writer.string("cluster", true);
    writer.i32(4); // controller
    writer.array(1, true);
    writer.i16(0);
    writer.string("zones", true);
    writer.i64(0);
    writer.i64(topic_id);
    writer.i8(0);
    writer.array(2, true);
    for (partition, leader, error) in [(1, 4, 0), (0, -1, 5)] {
        writer.i16(error);
        writer.i32(partition);
        writer.i32(leader);
        writer.i32(6);
        for _replicas in 0..3 {
            writer.array(1, true);
            writer.i32(4);
        }
        writer.no_tagged_fields();
    }
    writer.i32(i32::MIN);
    writer.no_tagged_fields();
    writer.no_tagged_fields();
    out
}

/// Decodes the bytes after the header with the other implementation and checks that it consumes all
/// of them.
fn oracle<T: Decodable>(bytes: &[u8], version: i16, flexible_header: bool) -> T {
    let mut rest = Bytes::copy_from_slice(&bytes[if flexible_header { 5 } else { 4 }..]);
    let answer = T::decode(&mut rest, version).unwrap();
    assert!(rest.is_empty());
    answer
}

#[test]
fn the_newest_common_versions_are_chosen() {
    let chosen = Versions { fetch: 17, produce: 10, init_producer_id: 1, tells_settings: false };
    for version in 0..=3 {
        let bytes = api_versions_answer(version, 0, &RANGES);
        let answer = parse_api_versions(&bytes, version, ID).unwrap();
        assert_eq!(answer, ApiVersionsAnswer::Chosen(chosen));
        let oracle: ApiVersionsResponse = oracle(&bytes, version, false);
        assert_eq!(oracle.api_keys.len(), RANGES.len());
    }
}

#[test]
fn a_broker_that_does_not_know_the_version_is_asked_with_version_zero() {
    let bytes = api_versions_answer(0, 35, &[(18, 0, 2)]);
    assert_eq!(parse_api_versions(&bytes, 3, ID), Ok(ApiVersionsAnswer::AskWithVersionZero));
    let refused =
        MessageError::Refused { api: "ApiVersions", error: ErrorCode::UNSUPPORTED_VERSION };
    assert_eq!(parse_api_versions(&bytes, 0, ID), Err(refused));
}

#[test]
fn ranges_without_a_common_version_are_refused() {
    let range = |api_key, version_min, version_max| ApiRange { api_key, version_min, version_max };
    let others = [range(0, 0, 9), range(2, 1, 1), range(3, 1, 12), range(22, 0, 0)];
    let choose = |fetch: &[ApiRange]| Versions::choose(&[fetch, &others].concat());
    let old = Versions { fetch: 13, produce: 9, init_producer_id: 0, tells_settings: false };
    assert_eq!(choose(&[range(1, 0, 13)]), Ok(old));
    let with_settings = Versions { tells_settings: true, ..old };
    assert_eq!(choose(&[range(1, 0, 13), range(32, 1, 4)]), Ok(with_settings));
    for fetch in [&[range(1, 0, 12)][..], &[range(1, 18, 19)], &[]] {
        let error = choose(fetch).unwrap_err();
        assert!(matches!(error, MessageError::NoVersion { api: "Fetch", .. }), "{error}");
    }
}

#[test]
fn metadata_is_read_as_another_implementation_reads_it() {
    let bytes = metadata_answer(99);
    let partition = |partition, leader, error| PartitionLeader {
        partition,
        leader,
        leader_epoch: 6,
        error: ErrorCode(error),
    };
    let expected = Metadata {
        brokers: vec![Broker { node_id: 4, host: "broker.example".to_owned(), port: 9092 }],
        cluster_id: Some("cluster".to_owned()),
        controller: Some(4),
        error: ErrorCode::NONE,
        topic_id: 99,
        partitions: vec![partition(1, Some(4), 0), partition(0, None, 5)],
        replicas: 1,
    };
    assert_eq!(parse_metadata(&bytes, ID, "zones"), Ok(expected));
    let missing = MessageError::TopicMissing { api: "Metadata" };
    assert_eq!(parse_metadata(&bytes, ID, "other"), Err(missing));
    let oracle: MetadataResponse = oracle(&bytes, 12, true);
    assert_eq!(oracle.topics[0].partitions.len(), 2);
}

#[test]
fn a_topic_without_an_id_is_refused() {
    assert_eq!(parse_metadata(&metadata_answer(0), ID, "zones"), Err(MessageError::WithoutId));
}

#[test]
fn requests_can_be_encoded_in_every_version() {
    let envelope = |version| Envelope { version, correlation_id: ID, client_id: "huntd" };
    let mut requests: Vec<(i16, i16, Vec<u8>)> = Vec::new();
    let mut add = |api_key, version, encode: &dyn Fn(&mut Vec<u8>)| {
        let mut out = Vec::new();
        encode(&mut out);
        requests.push((api_key, version, out));
    };
    for version in 0..=3 {
        add(18, version, &|out| api_versions_request(envelope(version), out));
    }
    add(3, 12, &|out| metadata_request(ID, "huntd", "zones", out));
    for (api_key, version, bytes) in requests {
        assert_eq!(frame_length(&bytes, 1000), Ok(Some(bytes.len() - 4)));
        let mut reader = WireReader::resume(&bytes, 4);
        let header = (reader.i16(), reader.i16(), reader.i32(), reader.string(false));
        assert_eq!(header, (Ok(api_key), Ok(version), Ok(ID), Ok("huntd")));
    }
}

#[test]
fn the_length_before_a_message_is_bounded() {
    assert_eq!(frame_length(&[0, 0, 1], 1000), Ok(None));
    assert_eq!(frame_length(&[0, 0, 1, 0], 256), Ok(Some(256)));
    for bytes in [&[0, 0, 1, 1][..], &[0, 0, 0, 3], &[0xff; 4], b"HTTP"] {
        assert!(matches!(frame_length(bytes, 256), Err(MessageError::Length { .. })));
    }
}

/// Runs every parser over the bytes. Returns whether any accepts them.
fn parse_all(bytes: &[u8]) -> bool {
    let mut accepted = false;
    for version in 0..=3 {
        accepted |= parse_api_versions(bytes, version, ID).is_ok();
    }
    accepted | parse_metadata(bytes, ID, "zones").is_ok()
}

#[test]
fn an_answer_cut_anywhere_is_refused() {
    let (metadata, versions) = (metadata_answer(99), api_versions_answer(3, 0, &RANGES));
    assert!(parse_all(&metadata) && parse_all(&versions));
    for cut in 0..metadata.len() {
        assert!(parse_metadata(&metadata[..cut], ID, "zones").is_err());
    }
    for cut in 0..versions.len() {
        assert!(parse_api_versions(&versions[..cut], 3, ID).is_err());
    }
}

proptest! {
    #[test]
    fn arbitrary_answers_never_panic_nor_allocate_what_they_claim(
        bytes in proptest::collection::vec(any::<u8>(), 4..120),
    ) {
        let mut bytes = bytes;
        bytes[..4].copy_from_slice(&ID.to_be_bytes());
        parse_all(&bytes);
    }

    #[test]
    fn damaged_answers_never_panic(
        answer in prop::sample::select(vec![
            api_versions_answer(3, 0, &RANGES),
            metadata_answer(99),
            metadata_answer(1),
        ]),
        place in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut bytes = answer;
        let place = place.index(bytes.len());
        bytes[place] = byte;
        parse_all(&bytes);
    }
}
