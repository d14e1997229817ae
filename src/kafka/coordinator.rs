//! FindCoordinator, version 1: which broker coordinates a consumer group. All brokers since Kafka
//! 0.11 support it. The first such request makes a cluster create its coordinators' topic.

use crate::kafka::error_code::ErrorCode;
use crate::kafka::message::{Api, Broker, Envelope, MessageError, encode, parse, text};
use kafka_protocol::messages::{ApiKey, FindCoordinatorRequest};

/// The supported version.
pub(crate) const FIND_COORDINATOR_VERSION: i16 = 1;

const FIND_COORDINATOR: Api = Api {
    key: ApiKey::FindCoordinator,
    name: "FindCoordinator",
    version_min: FIND_COORDINATOR_VERSION,
    version_max: FIND_COORDINATOR_VERSION,
};

/// Kafka's `CoordinatorType` of a consumer group.
const GROUP: i8 = 0;

/// Appends a request for a group's coordinator. Any broker can answer it.
pub(crate) fn request(envelope: Envelope<'_>, group: &str, out: &mut Vec<u8>) {
    let request = FindCoordinatorRequest::default().with_key(text(group)).with_key_type(GROUP);
    encode(&FIND_COORDINATOR, envelope, &request, out);
}

/// Parses an answer: the coordinator, or the error.
pub(crate) fn parse_answer(
    bytes: &[u8],
    correlation_id: i32,
) -> Result<Result<Broker, ErrorCode>, MessageError> {
    parse(&FIND_COORDINATOR, false, bytes, correlation_id, |reader| {
        let _throttle_ms = reader.i32()?;
        let error = ErrorCode(reader.i16()?);
        let _sentence = reader.nullable_string(false)?;
        let node_id = reader.i32()?;
        let host = reader.string(false)?.to_owned();
        let port = u16::try_from(reader.i32()?).unwrap_or(0);
        Ok(if error.is_none() { Ok(Broker { node_id, host, port }) } else { Err(error) })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kafka::wire::{WireReader, WireWriter};
    use bytes::Bytes;
    use kafka_protocol::messages::FindCoordinatorResponse;
    use kafka_protocol::protocol::Decodable;

    const VERSION: i16 = FIND_COORDINATOR_VERSION;

    /// A broker's answer to request 5.
    fn answer(error: i16, node_id: i32) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = WireWriter::new(&mut bytes);
        writer.i32(5);
        writer.i32(0); // throttle time
        writer.i16(error);
        match error {
            0 => writer.null_string(false),
            _ => writer.string("no", false),
        }
        writer.i32(node_id);
        writer.string("broker.example", false);
        writer.i32(9092);
        bytes
    }

    #[test]
    fn a_request_names_the_group() {
        let mut bytes = Vec::new();
        let envelope = Envelope { version: VERSION, correlation_id: 5, client_id: "huntd" };
        request(envelope, "zones", &mut bytes);
        let mut reader = WireReader::resume(&bytes, 4);
        assert_eq!((reader.i16(), reader.i16(), reader.i32()), (Ok(10), Ok(VERSION), Ok(5)));
        assert_eq!((reader.string(false), reader.string(false)), (Ok("huntd"), Ok("zones")));
        assert_eq!((reader.i8(), reader.at()), (Ok(GROUP), bytes.len()));
    }

    #[test]
    fn an_answer_names_a_broker_or_an_error_and_nothing_that_is_cut() {
        let broker = Broker { node_id: 4, host: "broker.example".to_owned(), port: 9092 };
        assert_eq!(parse_answer(&answer(0, 4), 5), Ok(Ok(broker)));
        assert!(parse_answer(&answer(0, 4), 6).is_err());
        let refused = answer(15, -1);
        assert_eq!(parse_answer(&refused, 5), Ok(Err(ErrorCode(15))));
        for cut in 0..refused.len() {
            assert!(parse_answer(&refused[..cut], 5).is_err(), "{cut}");
        }
        let mut rest = Bytes::copy_from_slice(&refused[4..]);
        let theirs = FindCoordinatorResponse::decode(&mut rest, VERSION).expect("it is one");
        assert_eq!((theirs.error_code, theirs.node_id.0, theirs.port), (15, -1, 9092));
        assert!(rest.is_empty());
    }
}
