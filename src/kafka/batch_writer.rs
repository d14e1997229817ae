//! Writes record batches as an idempotent producer does: records first, the header when the batch
//! is sent.
//!
//! A sealed batch does not change any more: a retry sends the same bytes, and a broker recognises
//! them by producer id, epoch and sequence. Source: Kafka's documentation, "Record Batch"; KIP-98.

use crate::kafka::checksum::crc32c;
use crate::kafka::codec::Codec;
use crate::kafka::lz4_text::TextCompressor;
use crate::kafka::record_batch::{BATCH_HEADER_BYTES, CRC_START, LENGTH_END};
use crate::kafka::wire::{WireWriter, varint_bytes};

/// Upper limit of a record's size without its value: lengths, deltas, no key, no headers.
pub(crate) const RECORD_OVERHEAD_BYTES_MAX: usize = 5 + 1 + 1 + 5 + 1 + 5 + 1;

/// The leader epoch, which the broker fills in.
const LEADER_EPOCH_UNKNOWN: i32 = -1;

/// The batch format.
const MAGIC: i8 = 2;

/// The producer id and epoch by which a broker knows a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerId {
    /// The id that a broker has assigned.
    pub id: i64,
    /// The epoch. A higher one fences off batches of a lower one that are still in flight
    /// (KIP-360).
    pub epoch: i16,
}

/// A batch that still accepts records.
pub(crate) struct UnsealedBatch {
    /// Room for the header, then the records.
    bytes: Vec<u8>,
    records: i32,
}

impl UnsealedBatch {
    /// Creates a batch without records in this memory.
    pub(crate) fn new(mut memory: Vec<u8>) -> UnsealedBatch {
        memory.clear();
        memory.resize(BATCH_HEADER_BYTES, 0);
        UnsealedBatch { bytes: memory, records: 0 }
    }

    /// Records so far.
    pub(crate) fn records(&self) -> i32 {
        self.records
    }

    /// Bytes so far, before compression.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Appends a record with this value and no key.
    pub(crate) fn push(&mut self, value: &[u8]) {
        let length = i32::try_from(value.len()).expect("a record is smaller than 2 GiB");
        let body = 1
            + varint_bytes(0)
            + varint_bytes(self.records)
            + varint_bytes(-1)
            + varint_bytes(length)
            + value.len()
            + varint_bytes(0);
        let mut writer = WireWriter::new(&mut self.bytes);
        writer.varint(body as i32);
        writer.i8(0); // attributes: none are defined
        writer.varlong(0); // all records have the batch's time
        writer.varint(self.records);
        writer.varint(-1); // no key
        writer.varint(length);
        writer.raw(value);
        writer.varint(0); // no headers
        self.records += 1;
    }

    /// Compresses the records into `memory`, if compression is configured, and writes the header.
    /// Returns the bytes to send, and the memory that is left over.
    pub(crate) fn seal(
        self,
        producer: ProducerId,
        sequence: i32,
        time_ms: i64,
        compressor: Option<&mut TextCompressor>,
        memory: Vec<u8>,
    ) -> (Vec<u8>, Vec<u8>) {
        assert!(self.records > 0 && sequence >= 0);
        let (mut bytes, spare, codec) = match compressor {
            None => (self.bytes, memory, Codec::None),
            Some(compressor) => {
                let mut compressed = UnsealedBatch::new(memory).bytes;
                compressor.compress(&self.bytes[BATCH_HEADER_BYTES..], &mut compressed);
                (compressed, self.bytes, Codec::Lz4)
            }
        };
        let mut head = Vec::with_capacity(BATCH_HEADER_BYTES);
        let mut writer = WireWriter::new(&mut head);
        writer.i64(0); // the broker assigns the offset
        writer.i32((bytes.len() - LENGTH_END) as i32);
        writer.i32(LEADER_EPOCH_UNKNOWN);
        writer.i8(MAGIC);
        writer.u32(0); // the checksum, which follows from the rest
        writer.i16(codec.attributes());
        writer.i32(self.records - 1);
        writer.i64(time_ms);
        writer.i64(time_ms);
        writer.i64(producer.id);
        writer.i16(producer.epoch);
        writer.i32(sequence);
        writer.i32(self.records);
        bytes[..BATCH_HEADER_BYTES].copy_from_slice(&head);
        let crc = crc32c(&bytes[CRC_START..]);
        bytes[CRC_START - size_of::<u32>()..CRC_START].copy_from_slice(&crc.to_be_bytes());
        (bytes, spare)
    }
}

/// Returns the sequence number that follows this many records. Sequence numbers count up from 0 to
/// 2^31 - 1 and wrap around.
pub(crate) fn sequence_after(sequence: i32, records: i32) -> i32 {
    sequence.wrapping_add(records) & i32::MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kafka::codec::Decompressor;
    use crate::kafka::record_batch::Batch;
    use crate::testing::batch_builder::{self, Owned};
    use kafka_protocol::indexmap::IndexMap;
    use kafka_protocol::records::{
        Compression, Record, RecordBatchEncoder, RecordEncodeOptions, TimestampType,
    };

    const TIME_MS: i64 = 1_767_225_600_000;
    const PRODUCER: ProducerId = ProducerId { id: 4711, epoch: 3 };

    fn values() -> Vec<Vec<u8>> {
        [0, 1, 57, 58, 63, 64, 200, 8_190, 70_000]
            .map(|length| (0..length).map(|at| (at % 251) as u8).collect())
            .to_vec()
    }

    fn sealed(
        values: &[Vec<u8>],
        sequence: i32,
        compressor: Option<&mut TextCompressor>,
    ) -> Vec<u8> {
        let mut batch = UnsealedBatch::new(vec![7; 10]);
        values.iter().for_each(|value| batch.push(value));
        batch.seal(PRODUCER, sequence, TIME_MS, compressor, vec![9; 99]).0
    }

    /// The batch as the `kafka-protocol` crate encodes it.
    fn by_another(values: &[Vec<u8>], sequence: i32) -> Vec<u8> {
        let record = |(place, value): (i64, &Vec<u8>)| Record {
            transactional: false,
            control: false,
            delete_horizon: false,
            partition_leader_epoch: -1,
            producer_id: PRODUCER.id,
            producer_epoch: PRODUCER.epoch,
            timestamp_type: TimestampType::Creation,
            offset: place,
            sequence: sequence + place as i32,
            timestamp: TIME_MS,
            key: None,
            value: Some(value.clone().into()),
            headers: IndexMap::new(),
        };
        let records: Vec<Record> = (0..).zip(values).map(record).collect();
        let options = RecordEncodeOptions { version: 2, compression: Compression::None };
        let mut bytes = bytes::BytesMut::new();
        RecordBatchEncoder::encode(&mut bytes, &records, &options).expect("it can be encoded");
        bytes.to_vec()
    }

    #[test]
    fn a_batch_has_the_bytes_that_another_implementation_gives_it() {
        for count in 1..=values().len() {
            let values = &values()[..count];
            assert_eq!(sealed(values, 1_000, None), by_another(values, 1_000), "{count} records");
        }
    }

    #[test]
    fn a_compressed_batch_is_smaller_and_reads_as_what_was_put_in() {
        let text = "{\"player_id\":1,\"tile\":9,\"x\":12}";
        let values: Vec<Vec<u8>> = (1..2_000).map(|times| text.repeat(times % 9).into()).collect();
        let mut compressor = TextCompressor::new();
        for _ in 0..2 {
            let mut bytes = sealed(&values, 0, Some(&mut compressor));
            assert!(bytes.len() * 4 < sealed(&values, 0, None).len());
            let batch =
                Batch::read(&mut bytes, 1 << 20).expect("it is whole").expect("it is there");
            assert_eq!((batch.header.producer_id, batch.header.attributes), (PRODUCER.id, 3));
            let records =
                batch_builder::read_records(batch, 0, &mut Decompressor::new(1 << 20)).unwrap();
            let expected = (0..).zip(&values).map(|(offset, value)| Owned {
                offset,
                timestamp_ms: TIME_MS,
                key: None,
                value: Some(value.clone()),
            });
            assert!(records == expected.collect::<Vec<Owned>>());
        }
    }

    #[test]
    fn sequences_begin_again_after_the_largest() {
        assert_eq!(sequence_after(5, 3), 8);
        assert_eq!(sequence_after(i32::MAX, 1), 0);
        assert_eq!(sequence_after(i32::MAX - 1, 4), 2);
    }
}
