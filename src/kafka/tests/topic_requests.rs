//! Requests about topics, compared with another implementation of the protocol.

use crate::kafka::error_code::ErrorCode;
use crate::kafka::message::{Envelope, MessageError};
use crate::kafka::topic_requests::{
    CREATE_VERSION, Creation, NewTopic, SETTINGS_VERSION, create_request, parse_create,
    parse_settings, settings_request,
};
use crate::kafka::wire::{WireReader, WireWriter};
use bytes::Bytes;
use kafka_protocol::messages::{CreateTopicsResponse, DescribeConfigsResponse};
use kafka_protocol::protocol::Decodable;

const ID: i32 = 7;

fn envelope(version: i16) -> Envelope<'static> {
    Envelope { version, correlation_id: ID, client_id: "huntd" }
}

/// A reader after the length and the header of a request.
fn body(bytes: &[u8], api_key: i16, version: i16) -> WireReader<'_> {
    let mut reader = WireReader::resume(bytes, 4);
    let header = (reader.i16(), reader.i16(), reader.i32(), reader.string(false));
    assert_eq!(header, (Ok(api_key), Ok(version), Ok(ID), Ok("huntd")));
    reader
}

/// Decodes the bytes after the correlation id with the other implementation.
fn oracle<T: Decodable>(bytes: &[u8], version: i16) -> T {
    let mut rest = Bytes::copy_from_slice(&bytes[4..]);
    let answer = T::decode(&mut rest, version).unwrap();
    assert!(rest.is_empty());
    answer
}

fn settings_answer(error: i16) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = WireWriter::new(&mut bytes);
    writer.i32(ID);
    writer.i32(0);
    writer.array(1, false);
    writer.i16(error);
    writer.string("words", false);
    writer.i8(2);
    writer.string("zones", false);
    writer.array(2, false);
    for (name, value) in [("cleanup.policy", Some("compact")), ("secret", None)] {
        writer.string(name, false);
        match value {
            Some(value) => writer.string(value, false),
            None => writer.i16(-1),
        }
        writer.i8(0);
        writer.i8(1);
        writer.i8(0);
        writer.array(1, false);
        writer.string("log.cleanup.policy", false);
        writer.string("delete", false);
        writer.i8(4);
    }
    bytes
}

#[test]
fn the_settings_of_a_topic_are_asked_for_and_read() {
    let mut bytes = Vec::new();
    settings_request(envelope(SETTINGS_VERSION), "zones", &mut bytes);
    let mut reader = body(&bytes, 32, SETTINGS_VERSION);
    let resource = (reader.array(false), reader.i8(), reader.string(false));
    assert_eq!(resource, (Ok(1), Ok(2), Ok("zones")));
    // All keys, no synonyms.
    assert_eq!((reader.i32(), reader.i8(), reader.left()), (Ok(-1), Ok(0), 0));

    let bytes = settings_answer(0);
    let theirs: DescribeConfigsResponse = oracle(&bytes, SETTINGS_VERSION);
    assert_eq!(theirs.results[0].configs.len(), 2);
    let found = parse_settings(&bytes, ID, "zones").unwrap();
    let expected = [("cleanup.policy".to_owned(), "compact".to_owned())];
    assert_eq!(found.into_iter().collect::<Vec<_>>(), expected);
    let api = "DescribeConfigs";
    assert_eq!(parse_settings(&bytes, ID, "other"), Err(MessageError::TopicMissing { api }));
    for end in 0..bytes.len() {
        assert!(parse_settings(&bytes[..end], ID, "zones").is_err(), "cut at {end}");
    }
    let refused = Err(MessageError::Refused { api, error: ErrorCode(29) });
    assert_eq!(parse_settings(&settings_answer(29), ID, "zones"), refused);
}

#[test]
fn a_topic_is_created_as_asked_and_the_brokers_own_words_are_kept() {
    let settings = vec![("cleanup.policy", "delete"), ("retention.ms", "-1")];
    let topic = NewTopic { name: "zones", partitions: 8, replicas: 3, settings };
    let mut bytes = Vec::new();
    create_request(envelope(CREATE_VERSION), &topic, 15_000, &mut bytes);
    let mut reader = body(&bytes, 19, CREATE_VERSION);
    assert_eq!((reader.array(false), reader.string(false)), (Ok(1), Ok("zones")));
    assert_eq!((reader.i32(), reader.i16(), reader.array(false)), (Ok(8), Ok(3), Ok(0)));
    assert_eq!(reader.array(false), Ok(2));
    for text in ["cleanup.policy", "delete", "retention.ms", "-1"] {
        assert_eq!(reader.string(false), Ok(text));
    }
    // `validate_only` is false.
    assert_eq!((reader.i32(), reader.i8(), reader.left()), (Ok(15_000), Ok(0), 0));

    let mut bytes = Vec::new();
    let mut writer = WireWriter::new(&mut bytes);
    writer.i32(ID);
    writer.i32(0);
    writer.array(1, false);
    writer.string("zones", false);
    writer.i16(38);
    writer.string("too many", false);
    let theirs: CreateTopicsResponse = oracle(&bytes, CREATE_VERSION);
    assert_eq!(theirs.topics[0].error_code, 38);
    let creation = Creation { error: ErrorCode(38), sentence: "too many".to_owned() };
    assert_eq!(parse_create(&bytes, ID, "zones"), Ok(creation));
    for end in 0..bytes.len() {
        assert!(parse_create(&bytes[..end], ID, "zones").is_err(), "cut at {end}");
    }
}
