//! Reads the records of a batch that is larger, decompressed, than the decompressor's buffer. Each
//! step does a bounded amount of work and no record is held as a whole: a few kilobytes on the wire
//! can be gigabytes of one letter.

use crate::kafka::checksum::RunningCrc32c;
use crate::kafka::codec::{self, Codec, CodecError};
use crate::kafka::record_batch::{BROKER_BATCH_BYTES, BatchError, BatchHeader, BatchReason};
use std::io::{BufRead, Read};

/// Bytes decompressed in one step: less than the hot thread needs to fill a few blocks.
const STEP_BYTES_MAX: u64 = 128 * 1024;

/// Bytes that are decompressed in the time that a record's lengths take: a step also ends after
/// many records that are passed over, however short they are.
const RECORD_COST_BYTES: u64 = 64;

/// Bytes of a key or a value that are kept: a broker with default settings stores no more.
const HEAD_BYTES_MAX: usize = BROKER_BATCH_BYTES;

/// Bytes of the longest variable-length integer of 64 bits.
const VARINT_BYTES_MAX: u32 = 10;

/// The result of a step.
#[derive(Debug)]
pub enum Step<'s> {
    /// No record was completed; take another step.
    Unfinished,
    /// A record was completed.
    Record(StreamedRecord<'s>),
    /// The batch has ended.
    End,
}

/// A record, or only its first bytes if it is very long.
#[derive(Debug)]
pub struct StreamedRecord<'s> {
    /// Offset in the partition.
    pub offset: i64,
    /// Timestamp in milliseconds since the Unix epoch, of the topic's timestamp type.
    pub timestamp_ms: i64,
    /// The key, if not null.
    pub key: Option<&'s Excerpt>,
    /// The value, if not null.
    pub value: Option<&'s Excerpt>,
}

/// The start of a key or a value, with the length and checksum of the whole.
pub struct Excerpt {
    /// The first bytes; all bytes, unless they exceed the limit.
    pub head: Vec<u8>,
    /// Length of the whole.
    pub bytes: u64,
    sum: RunningCrc32c,
}

impl Excerpt {
    fn new() -> Excerpt {
        Excerpt { head: Vec::new(), bytes: 0, sum: RunningCrc32c::default() }
    }

    fn take(&mut self, bytes: &[u8]) {
        let kept = bytes.len().min(HEAD_BYTES_MAX - self.head.len());
        self.head.extend_from_slice(&bytes[..kept]);
        self.bytes += bytes.len() as u64;
        self.sum.update(bytes);
    }

    /// CRC-32C of all bytes.
    pub(crate) fn crc32c(&self) -> u32 {
        self.sum.finish()
    }
}

impl std::fmt::Debug for Excerpt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {} bytes", self.head.len(), self.bytes)
    }
}

/// The stream's position within a record.
#[derive(Clone, Copy, Debug)]
enum RecordPart {
    BeforeRecord,
    /// This many bytes of the key are left.
    Key(u64),
    /// This many bytes of the value are left.
    Value(u64),
    /// Kafka's record headers, which huntd ignores.
    Headers,
}

/// Reads the records of one batch.
pub struct RecordStream<'r> {
    bytes: Box<dyn BufRead + 'r>,
    header: BatchHeader,
    offset_min: i64,
    /// Number of records begun.
    index: i32,
    place: RecordPart,
    /// Bytes left of the current record.
    record_left: u64,
    offset_delta: i32,
    timestamp_ms: i64,
    key: Option<Excerpt>,
    value: Option<Excerpt>,
}

impl std::fmt::Debug for RecordStream<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "record {} at {:?}", self.index, self.place)
    }
}

impl<'r> RecordStream<'r> {
    /// Reads the records in `compressed` from `offset_min` on.
    pub(super) fn new(
        codec: Codec,
        compressed: &'r [u8],
        header: &BatchHeader,
        offset_min: i64,
    ) -> Result<RecordStream<'r>, CodecError> {
        Ok(RecordStream {
            bytes: codec::stream(codec, compressed)?,
            header: *header,
            offset_min,
            index: 0,
            place: RecordPart::BeforeRecord,
            record_left: 0,
            offset_delta: -1,
            timestamp_ms: 0,
            key: None,
            value: None,
        })
    }

    /// Reads on. After an error the rest of the batch must not be read.
    pub fn step(&mut self) -> Result<Step<'_>, BatchError> {
        match self.go_on() {
            Ok(true) => Ok(Step::Record(StreamedRecord {
                offset: self.offset(),
                timestamp_ms: self.timestamp_ms,
                key: self.key.as_ref(),
                value: self.value.as_ref(),
            })),
            Ok(false) if self.is_at_end() => Ok(Step::End),
            Ok(false) => Ok(Step::Unfinished),
            Err(reason) => Err(BatchError { offset: self.header.base_offset, reason }),
        }
    }

    /// Reads until a requested record is complete. Returns whether one is.
    fn go_on(&mut self) -> Result<bool, BatchReason> {
        let mut budget = STEP_BYTES_MAX;
        while budget > 0 {
            let (place, left) = match self.place {
                RecordPart::BeforeRecord if self.is_at_end() => return self.finish(),
                RecordPart::BeforeRecord => {
                    self.begin_record()?;
                    budget = budget.saturating_sub(RECORD_COST_BYTES);
                    continue;
                }
                RecordPart::Key(left) | RecordPart::Value(left) => (self.place, left),
                RecordPart::Headers => (self.place, self.record_left),
            };
            if left > 0 {
                let taken = self.take(place, left.min(budget))?;
                budget -= taken;
                self.place = match place {
                    RecordPart::Key(_) => RecordPart::Key(left - taken),
                    RecordPart::Value(_) => RecordPart::Value(left - taken),
                    other => other,
                };
                continue;
            }
            match place {
                RecordPart::Key(_) => {
                    let length = self.begin_part()?;
                    self.value = length.map(|_| Excerpt::new());
                    self.place = RecordPart::Value(length.unwrap_or(0));
                }
                RecordPart::Value(_) => self.place = RecordPart::Headers,
                RecordPart::Headers | RecordPart::BeforeRecord => {
                    self.place = RecordPart::BeforeRecord;
                    if self.offset() >= self.offset_min {
                        return Ok(true);
                    }
                }
            }
        }
        Ok(false)
    }

    fn is_at_end(&self) -> bool {
        matches!(self.place, RecordPart::BeforeRecord) && self.index == self.header.record_count
    }

    fn finish(&mut self) -> Result<bool, BatchReason> {
        let rest = self.bytes.fill_buf().map_err(|_| CodecError::Damaged)?.len();
        if rest > 0 { Err(BatchReason::Trailing(rest)) } else { Ok(false) }
    }

    fn offset(&self) -> i64 {
        self.header.base_offset + i64::from(self.offset_delta)
    }

    /// Reads the bytes before a record's key.
    fn begin_record(&mut self) -> Result<(), BatchReason> {
        self.index += 1;
        self.record_left = u64::from(VARINT_BYTES_MAX);
        let length = self.varint()?;
        let length = u64::try_from(length).ok().filter(|length| *length <= i32::MAX as u64);
        self.record_left = length.ok_or(self.wrong_length())?;
        let _attributes = self.byte()?;
        let timestamp_delta = self.varint()?;
        let offset_delta = i32::try_from(self.varint()?).ok();
        let follows =
            |delta: &i32| self.offset_delta < *delta && *delta <= self.header.last_offset_delta;
        self.offset_delta =
            offset_delta.filter(follows).ok_or(BatchReason::RecordOffset(self.index - 1))?;
        self.timestamp_ms = match self.header.append_time_ms() {
            Some(append_time_ms) => append_time_ms,
            None => {
                let sum = self.header.base_timestamp_ms.checked_add(timestamp_delta);
                sum.ok_or(BatchReason::RecordTime(self.index - 1))?
            }
        };
        let length = self.begin_part()?;
        self.key = length.map(|_| Excerpt::new());
        self.place = RecordPart::Key(length.unwrap_or(0));
        Ok(())
    }

    /// Reads the length of a key or a value; `None` for null.
    fn begin_part(&mut self) -> Result<Option<u64>, BatchReason> {
        let Ok(length) = u64::try_from(self.varint()?) else { return Ok(None) };
        if length > self.record_left {
            return Err(self.wrong_length());
        }
        Ok(Some(length))
    }

    /// Takes at most this many bytes of the record, and returns how many there were.
    fn take(&mut self, place: RecordPart, bytes_max: u64) -> Result<u64, BatchReason> {
        let bytes = self.bytes.fill_buf().map_err(|_| CodecError::Damaged)?;
        let taken = bytes.len().min(bytes_max as usize);
        if taken == 0 {
            return Err(self.wrong_length());
        }
        let part = match place {
            RecordPart::Key(_) => self.key.as_mut(),
            RecordPart::Value(_) => self.value.as_mut(),
            RecordPart::Headers | RecordPart::BeforeRecord => None,
        };
        if let Some(part) = part {
            part.take(&bytes[..taken]);
        }
        self.bytes.consume(taken);
        self.record_left -= taken as u64;
        Ok(taken as u64)
    }

    /// Reads a zigzag integer of variable length.
    fn varint(&mut self) -> Result<i64, BatchReason> {
        let mut value = 0;
        for place in 0..VARINT_BYTES_MAX {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f).checked_shl(7 * place).unwrap_or(0);
            if byte < 0x80 {
                return Ok((value >> 1) as i64 ^ -((value & 1) as i64));
            }
        }
        Err(self.wrong_length())
    }

    fn byte(&mut self) -> Result<u8, BatchReason> {
        let mut byte = [0];
        let read = self.bytes.read_exact(&mut byte).ok();
        let left = self.record_left.checked_sub(1);
        let (Some(()), Some(left)) = (read, left) else { return Err(self.wrong_length()) };
        self.record_left = left;
        Ok(byte[0])
    }

    fn wrong_length(&self) -> BatchReason {
        BatchReason::RecordLength(self.index - 1)
    }
}
