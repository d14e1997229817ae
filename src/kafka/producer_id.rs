//! InitProducerId, versions 0 and 1: requests a producer id (KIP-98).
//!
//! Later versions let a broker raise the epoch of a transactional producer. This producer is only
//! idempotent and raises its epoch itself (KIP-360).

use crate::kafka::batch_writer::ProducerId;
use crate::kafka::error_code::ErrorCode;
use crate::kafka::message::{Envelope, INIT_PRODUCER_ID, MessageError, encode, parse};
use crate::kafka::wire::WireError;
use kafka_protocol::messages::InitProducerIdRequest;

/// Appends a request for a new id. Any broker can answer it.
pub(crate) fn request(envelope: Envelope<'_>, out: &mut Vec<u8>) {
    let request = InitProducerIdRequest::default().with_transactional_id(None);
    encode(&INIT_PRODUCER_ID, envelope, &request, out);
}

/// Parses an answer: the id, or the error.
pub(crate) fn parse_answer(
    bytes: &[u8],
    correlation_id: i32,
) -> Result<Result<ProducerId, ErrorCode>, MessageError> {
    parse(&INIT_PRODUCER_ID, false, bytes, correlation_id, |reader| {
        let _throttle_ms = reader.i32()?;
        let error = ErrorCode(reader.i16()?);
        let producer = ProducerId { id: reader.i64()?, epoch: reader.i16()? };
        if !error.is_none() {
            return Ok(Err(error));
        }
        // Batches with a negative id are not idempotent, and the broker would accept them silently.
        match producer {
            ProducerId { id: 0.., epoch: 0.. } => Ok(Ok(producer)),
            _ => Err(WireError::Implausible { at: reader.at() }),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kafka::wire::WireWriter;
    use bytes::Bytes;
    use kafka_protocol::messages::InitProducerIdResponse;
    use kafka_protocol::protocol::Decodable;

    fn answer(error: i16, id: i64, epoch: i16) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = WireWriter::new(&mut bytes);
        writer.i32(5);
        writer.i32(0);
        writer.i16(error);
        writer.i64(id);
        writer.i16(epoch);
        bytes
    }

    #[test]
    fn a_negative_number_is_none() {
        for (id, epoch) in [(-1, -1), (-1, 0), (4711, -1), (i64::MIN, i16::MIN)] {
            assert!(parse_answer(&answer(0, id, epoch), 5).is_err(), "{id}, {epoch}");
            assert_eq!(parse_answer(&answer(15, id, epoch), 5), Ok(Err(ErrorCode(15))));
        }
        assert!(parse_answer(&answer(0, 0, 0), 5).is_ok());
    }

    #[test]
    fn an_answer_gives_a_number_or_a_reason_and_cut_anywhere_it_is_refused() {
        for (error, expected) in
            [(0, Ok(ProducerId { id: 4711, epoch: 2 })), (31, Err(ErrorCode(31)))]
        {
            let bytes = answer(error, 4711, 2);
            let mut rest = Bytes::copy_from_slice(&bytes[4..]);
            let theirs = InitProducerIdResponse::decode(&mut rest, 1).expect("they read it too");
            assert_eq!((theirs.error_code, theirs.producer_id.0), (error, 4711));
            assert_eq!(parse_answer(&bytes, 5), Ok(expected));
            assert!(parse_answer(&bytes, 6).is_err());
            for end in 0..bytes.len() {
                assert!(parse_answer(&bytes[..end], 5).is_err(), "cut at {end}");
            }
        }
    }
}
