//! Record batches, format 2: scans headers, verifies batches, and opens them in place.
//!
//! A partition's part of a Fetch response is a run of batches, the last of which may be cut off.
//! [`scan_headers`] reads only the headers, so that the next Fetch can be sent before the records
//! are read. [`Batches`] returns the batches one by one and checks their CRC-32C. [`Batch::open`]
//! decompresses if necessary, and returns the [`Records`]. Every length, count and offset that a
//! batch states is checked: a wrong one is a [`BatchError`]. Source: Kafka's documentation, "Record
//! Batch"; KIP-98.

use thiserror::Error;

use crate::kafka::checksum::crc32c;
use crate::kafka::codec::{Codec, CodecError, Decompressor};
use crate::kafka::record::Records;
use crate::kafka::record_stream::RecordStream;
use crate::kafka::wire::WireError;

/// The largest batch that a broker with default settings stores (`message.max.bytes`).
pub(crate) const BROKER_BATCH_BYTES: usize = 1_048_588;

/// Size of a batch's header; the records follow.
pub const BATCH_HEADER_BYTES: usize = 61;

/// Size of the fields that `batch_length` does not count: the base offset and the length itself.
pub(super) const LENGTH_END: usize = 12;

/// The first byte that the checksum covers: the attributes. The checksum is stored before it.
pub(super) const CRC_START: usize = 21;

/// A batch that cannot be trusted. Nothing in it may be skipped silently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the batch at offset {offset} cannot be read: {reason}")]
pub struct BatchError {
    /// The batch's base offset as it states it.
    pub offset: i64,
    /// The cause.
    pub reason: BatchReason,
}

/// Why a batch cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BatchReason {
    /// The batch is in an older format.
    #[error("its format is {0}, but only 2 is read: let Kafka 0.11 or later write the topic")]
    Magic(i8),
    /// The stated length is too small for the header.
    #[error("its length of {0} bytes is less than its header takes")]
    LengthTooSmall(i32),
    /// The batch is larger than allowed.
    #[error("it takes {bytes} bytes, more than batch_bytes_max = {bytes_max}: raise it")]
    TooLarge {
        /// Bytes that the batch takes, its header included.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
    /// The checksum does not match.
    #[error("its CRC-32C is {found:#010x} instead of {stated:#010x}: the bytes are damaged")]
    Crc {
        /// The checksum in the header.
        stated: u32,
        /// The checksum of the bytes.
        found: u32,
    },
    /// The attributes name no known codec.
    #[error("its attributes {0:#x} name no codec that Kafka has")]
    UnknownCodec(i16),
    /// The compressed records cannot be read.
    #[error("{0}")]
    Codec(#[from] CodecError),
    /// Offsets in the header are invalid.
    #[error("its offsets are negative, overflow or do not follow the previous batch's")]
    Offsets,
    /// The batch begins later than expected: records are missing before it, or its offset is wrong.
    #[error("a batch at offset {expected} is due before it")]
    Gap {
        /// The last offset at which it could begin.
        expected: i64,
    },
    /// The record count is invalid.
    #[error("it states {0} records, which its offsets or its bytes cannot hold")]
    RecordCount(i32),
    /// A record's fields do not fit its length, or its length does not fit the batch.
    #[error("its record {index} is malformed: {error}")]
    Record {
        /// The record's place in the batch, from 0.
        index: i32,
        /// The parse error; its position is counted from the start of the records.
        error: WireError,
    },
    /// A record's length differs from the sum of its fields.
    #[error("its record {0} states another length than its fields take")]
    RecordLength(i32),
    /// A record's offset does not follow the previous one's or exceeds the batch's last.
    #[error("its record {0} has an offset that is out of order or beyond the batch's last")]
    RecordOffset(i32),
    /// A record's timestamp overflows.
    #[error("its record {0} has a timestamp that is out of range")]
    RecordTime(i32),
    /// Bytes follow the last record.
    #[error("{0} bytes follow its last record")]
    Trailing(usize),
}

/// The header of a batch as stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    /// Offset of the first record that the batch was written with.
    pub base_offset: i64,
    /// Bytes of the whole batch, header included.
    pub bytes: usize,
    /// Epoch of the leader that appended the batch.
    pub leader_epoch: i32,
    /// CRC-32C of everything after this field.
    pub crc: u32,
    /// Codec and flags.
    pub attributes: i16,
    /// Offset of the last record, minus the base offset; compaction never lowers it.
    pub last_offset_delta: i32,
    /// The base of the records' timestamp deltas, in milliseconds.
    pub base_timestamp_ms: i64,
    /// The largest timestamp of the records; with `LogAppendTime`, the timestamp of them all.
    pub max_timestamp_ms: i64,
    /// The producer id of an idempotent or transactional producer; otherwise -1.
    pub producer_id: i64,
    /// Number of records in the batch; after compaction, fewer than the offsets allow.
    pub record_count: i32,
}

impl BatchHeader {
    /// Reads the header of the batch that begins at the start of `bytes`.
    ///
    /// Returns `None` if the batch is cut off or there is none; a broker may end a response
    /// anywhere.
    pub fn read(bytes: &[u8], batch_bytes_max: usize) -> Result<Option<BatchHeader>, BatchError> {
        // The magic byte is at position 16 in every format, which distinguishes an old format from
        // a batch that is cut off.
        let (Some(offset), Some(length), Some(&magic)) =
            (field::<8>(bytes, 0), field::<4>(bytes, 8), bytes.get(16))
        else {
            return Ok(None);
        };
        let offset = i64::from_be_bytes(offset);
        let length = i32::from_be_bytes(length);
        let wrong = |reason| Err(BatchError { offset, reason });
        if magic != 2 {
            return wrong(BatchReason::Magic(magic as i8));
        }
        if length < (BATCH_HEADER_BYTES - LENGTH_END) as i32 {
            return wrong(BatchReason::LengthTooSmall(length));
        }
        let total = LENGTH_END + length as usize;
        if total > batch_bytes_max {
            let bytes_max = batch_bytes_max;
            return wrong(BatchReason::TooLarge { bytes: total, bytes_max });
        }
        let Some(header) = bytes.get(..total).and_then(|batch| batch.first_chunk()) else {
            return Ok(None);
        };
        let header = BatchHeader::decode(header, total);
        let last_offset = header.base_offset.checked_add(i64::from(header.last_offset_delta));
        if header.base_offset < 0
            || header.last_offset_delta < 0
            || last_offset.is_none_or(|last| last == i64::MAX)
        {
            return wrong(BatchReason::Offsets);
        }
        let offsets = i64::from(header.last_offset_delta) + 1;
        if header.record_count < 0 || i64::from(header.record_count) > offsets {
            return wrong(BatchReason::RecordCount(header.record_count));
        }
        Ok(Some(header))
    }

    fn decode(header: &[u8; BATCH_HEADER_BYTES], bytes: usize) -> BatchHeader {
        BatchHeader {
            base_offset: i64::from_be_bytes(known_field(header, 0)),
            bytes,
            leader_epoch: i32::from_be_bytes(known_field(header, 12)),
            crc: u32::from_be_bytes(known_field(header, 17)),
            attributes: i16::from_be_bytes(known_field(header, 21)),
            last_offset_delta: i32::from_be_bytes(known_field(header, 23)),
            base_timestamp_ms: i64::from_be_bytes(known_field(header, 27)),
            max_timestamp_ms: i64::from_be_bytes(known_field(header, 35)),
            producer_id: i64::from_be_bytes(known_field(header, 43)),
            record_count: i32::from_be_bytes(known_field(header, 57)),
        }
    }

    /// Offset of the last record that the batch was written with. The next batch begins after it,
    /// even when compaction has removed records or all of them.
    pub fn last_offset(&self) -> i64 {
        self.base_offset + i64::from(self.last_offset_delta)
    }

    /// Returns whether the batch belongs to a transaction.
    pub(crate) fn is_transactional(&self) -> bool {
        self.attributes & 1 << 4 != 0
    }

    /// Returns whether the batch holds a marker of Kafka, not records of a producer.
    pub(crate) fn is_control(&self) -> bool {
        self.attributes & 1 << 5 != 0
    }

    /// The timestamp of all records, if the broker set it on arrival (`LogAppendTime`).
    pub(crate) fn append_time_ms(&self) -> Option<i64> {
        (self.attributes & 1 << 3 != 0).then_some(self.max_timestamp_ms)
    }
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

fn known_field<const N: usize>(header: &[u8; BATCH_HEADER_BYTES], at: usize) -> [u8; N] {
    let mut value = [0; N];
    value.copy_from_slice(&header[at..at + N]);
    value
}

/// The result of scanning the headers of a partition's batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderScan {
    /// Where the next Fetch continues: after the last whole batch, or at the requested offset if
    /// there is none.
    pub next_offset: i64,
    /// Leader epoch of the last whole batch, for truncation detection (KIP-320).
    pub leader_epoch: Option<i32>,
    /// Number of whole batches.
    pub batches: usize,
    /// Size of the whole batches.
    pub bytes: usize,
    /// Record count of the whole batches, including control records and records below the requested
    /// offset.
    pub records: u64,
}

/// The possible base offsets of a partition's next batch. No checksum covers a batch's base offset,
/// so it is compared with what was read before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchStart {
    min: i64,
    max: i64,
}

impl BatchStart {
    /// Exactly this offset: the previous batch ends there, or this one was read in part.
    pub fn at(offset: i64) -> BatchStart {
        BatchStart { min: offset, max: offset }
    }

    /// Any offset up to the requested one, which may lie within a batch.
    pub fn up_to(offset: i64) -> BatchStart {
        BatchStart { min: 0, max: offset }
    }

    /// Returns whether only one offset is possible.
    pub(crate) fn is_known(&self) -> bool {
        self.min == self.max
    }

    /// Accepts a batch whose base offset is possible. The next one has to begin after it.
    pub(crate) fn pass(&mut self, header: &BatchHeader) -> Result<(), BatchError> {
        let offset = header.base_offset;
        if offset < self.min {
            return Err(BatchError { offset, reason: BatchReason::Offsets });
        }
        if offset > self.max {
            return Err(BatchError { offset, reason: BatchReason::Gap { expected: self.max } });
        }
        *self = BatchStart::at(header.last_offset() + 1);
        Ok(())
    }
}

/// Scans the headers of a partition's batches. `records` is the data returned by a Fetch for
/// `offset`; the first batch has to begin at `start`.
pub fn scan_headers(
    records: &[u8],
    offset: i64,
    mut start: BatchStart,
    batch_bytes_max: usize,
) -> Result<HeaderScan, BatchError> {
    let mut scan =
        HeaderScan { next_offset: offset, leader_epoch: None, batches: 0, bytes: 0, records: 0 };
    while let Some(header) = BatchHeader::read(&records[scan.bytes..], batch_bytes_max)? {
        start.pass(&header)?;
        scan.next_offset = scan.next_offset.max(header.last_offset() + 1);
        scan.leader_epoch = Some(header.leader_epoch);
        scan.batches += 1;
        scan.bytes += header.bytes;
        scan.records += header.record_count as u64;
    }
    Ok(scan)
}

/// Returns the whole batches of a partition's records, one by one.
#[derive(Debug)]
pub(crate) struct Batches<'a> {
    rest: &'a mut [u8],
    batch_bytes_max: usize,
    start: BatchStart,
}

impl<'a> Batches<'a> {
    /// Iterates over the batches of `records`.
    pub(crate) fn new(records: &'a mut [u8], batch_bytes_max: usize) -> Batches<'a> {
        Batches { rest: records, batch_bytes_max, start: BatchStart::up_to(i64::MAX) }
    }

    fn take_batch(&mut self) -> Result<Option<Batch<'a>>, BatchError> {
        let Some(header) = BatchHeader::read(self.rest, self.batch_bytes_max)? else {
            return Ok(None);
        };
        let (bytes, rest) = std::mem::take(&mut self.rest).split_at_mut(header.bytes);
        let batch = Batch::checked(header, bytes)?;
        self.start.pass(&header)?;
        self.rest = rest;
        Ok(Some(batch))
    }
}

impl<'a> Iterator for Batches<'a> {
    type Item = Result<Batch<'a>, BatchError>;

    fn next(&mut self) -> Option<Result<Batch<'a>, BatchError>> {
        let batch = self.take_batch().transpose();
        if !matches!(batch, Some(Ok(_))) {
            self.rest = &mut [];
        }
        batch
    }
}

/// A whole batch with a valid checksum; its records are not checked yet.
#[derive(Debug)]
pub struct Batch<'a> {
    /// The header.
    pub header: BatchHeader,
    bytes: &'a mut [u8],
}

/// The records of a batch.
#[derive(Debug)]
pub enum OpenBatch<'r> {
    /// All of them, in memory.
    Whole(Records<'r>),
    /// One at a time.
    Stream(Box<RecordStream<'r>>),
}

impl<'a> Batch<'a> {
    /// Reads and verifies the batch at the start of `bytes`; `None` if it is cut off.
    pub fn read(
        bytes: &'a mut [u8],
        batch_bytes_max: usize,
    ) -> Result<Option<Batch<'a>>, BatchError> {
        Batches::new(bytes, batch_bytes_max).take_batch()
    }

    /// Verifies the checksum of a batch. A batch that will be skipped is verified, too, because its
    /// header states where it ends and who wrote it.
    pub(crate) fn checked(
        header: BatchHeader,
        bytes: &'a mut [u8],
    ) -> Result<Batch<'a>, BatchError> {
        let found = crc32c(&bytes[CRC_START..]);
        if found != header.crc {
            let reason = BatchReason::Crc { stated: header.crc, found };
            return Err(BatchError { offset: header.base_offset, reason });
        }
        Ok(Batch { header, bytes })
    }

    /// Opens the batch's records from `offset_min` on. Uncompressed records are read in place,
    /// others in the decompressor's buffer.
    pub fn open<'r>(
        self,
        offset_min: i64,
        decompressor: &'r mut Decompressor,
    ) -> Result<Records<'r>, BatchError>
    where
        'a: 'r,
    {
        let offset = self.header.base_offset;
        match self.open_any(offset_min, decompressor)? {
            OpenBatch::Whole(records) => Ok(records),
            OpenBatch::Stream(_) => {
                Err(BatchError { offset, reason: BatchReason::Codec(CodecError::TooLarge) })
            }
        }
    }

    /// Like [`Batch::open`], but records that do not fit the decompressor's buffer are returned as
    /// a stream.
    pub fn open_any<'r>(
        self,
        offset_min: i64,
        decompressor: &'r mut Decompressor,
    ) -> Result<OpenBatch<'r>, BatchError>
    where
        'a: 'r,
    {
        let header = self.header;
        let wrong = |reason| BatchError { offset: header.base_offset, reason };
        let codec = Codec::from_attributes(header.attributes)
            .ok_or(wrong(BatchReason::UnknownCodec(header.attributes)))?;
        let stored = &mut self.bytes[BATCH_HEADER_BYTES..];
        let records = match codec {
            Codec::None => stored,
            codec => match decompressor.fill(codec, stored) {
                Ok(bytes) => decompressor.filled(bytes),
                Err(CodecError::TooLarge) => {
                    let stream = RecordStream::new(codec, stored, &header, offset_min);
                    let stream = stream.map_err(|error| wrong(BatchReason::Codec(error)))?;
                    return Ok(OpenBatch::Stream(Box::new(stream)));
                }
                Err(error) => return Err(wrong(BatchReason::Codec(error))),
            },
        };
        Ok(OpenBatch::Whole(Records::new(records, &header, offset_min)))
    }
}
