//! The records of one checked batch, read in place, one at a time.

use crate::kafka::record_batch::{BatchError, BatchHeader, BatchReason};
use crate::kafka::wire::{WireError, WireReader};
use std::ops::Range;

/// Bytes that a record takes at least: its length, attributes, two deltas, two lengths of null and
/// the number of headers, one byte each.
const RECORD_BYTES_MIN: usize = 7;

/// One record. Its bytes lie in the receive buffer or in the decompressor's buffer.
#[derive(Debug, PartialEq, Eq)]
pub struct Record<'r> {
    /// Offset in the partition.
    pub offset: i64,
    /// Timestamp in milliseconds since the Unix epoch, as the topic's timestamp type gives it.
    pub timestamp_ms: i64,
    /// The key, if not null.
    pub key: Option<&'r [u8]>,
    /// Where the value stands in `records`, if it is not null.
    pub value_range: Option<Range<usize>>,
    /// The bytes of this and of the batch's other records.
    pub records: &'r [u8],
}

impl<'r> Record<'r> {
    /// The value, if not null.
    pub fn value(&self) -> Option<&'r [u8]> {
        self.value_range.clone().map(|range| &self.records[range])
    }
}

/// Reads the records of a batch. A lending iterator: each record borrows the batch's bytes.
#[derive(Debug)]
pub struct Records<'a> {
    bytes: &'a [u8],
    at: usize,
    index: i32,
    count: i32,
    /// The last record's delta; the next one's must be greater.
    offset_delta: i32,
    offset_delta_max: i32,
    base_offset: i64,
    offset_min: i64,
    base_timestamp_ms: i64,
    append_time_ms: Option<i64>,
}

/// The fields of a record, as places in the bytes.
#[derive(Debug, PartialEq, Eq)]
struct Fields {
    timestamp_delta: i64,
    offset_delta: i32,
    /// Start and length.
    key: Option<(usize, usize)>,
    value: Option<(usize, usize)>,
    end: usize,
}

impl<'a> Records<'a> {
    pub(super) fn new(bytes: &'a [u8], header: &BatchHeader, offset_min: i64) -> Records<'a> {
        Records {
            bytes,
            at: 0,
            index: 0,
            count: header.record_count,
            offset_delta: -1,
            offset_delta_max: header.last_offset_delta,
            base_offset: header.base_offset,
            offset_min,
            base_timestamp_ms: header.base_timestamp_ms,
            append_time_ms: header.append_time_ms(),
        }
    }

    /// The next record at or above the asked offset; `None` once all records were read and nothing
    /// is left over. After an error the rest of the batch must not be read.
    #[inline]
    pub fn next_record(&mut self) -> Result<Option<Record<'_>>, BatchError> {
        while self.index < self.count {
            let fields = match read_short(self.bytes, self.at) {
                Some(fields) => fields,
                None => match read_fields(self.bytes, self.at) {
                    Ok(fields) => fields,
                    Err(malformed) => return Err(self.malformed(malformed)),
                },
            };
            if fields.offset_delta <= self.offset_delta
                || fields.offset_delta > self.offset_delta_max
            {
                return Err(self.wrong(BatchReason::RecordOffset(self.index)));
            }
            self.offset_delta = fields.offset_delta;
            self.at = fields.end;
            let offset = self.base_offset + i64::from(fields.offset_delta);
            let timestamp_ms = match self.append_time_ms {
                Some(append_time_ms) => append_time_ms,
                None => match self.base_timestamp_ms.checked_add(fields.timestamp_delta) {
                    Some(timestamp_ms) => timestamp_ms,
                    None => return Err(self.wrong(BatchReason::RecordTime(self.index))),
                },
            };
            self.index += 1;
            if offset >= self.offset_min {
                // The places were read from these bytes, so they lie within them.
                let key = fields.key.map(|(at, length)| &self.bytes[at..at + length]);
                let value_range = fields.value.map(|(at, length)| at..at + length);
                let records = self.bytes;
                return Ok(Some(Record { offset, timestamp_ms, key, value_range, records }));
            }
        }
        self.finish()
    }

    #[inline(never)]
    fn finish(&self) -> Result<Option<Record<'_>>, BatchError> {
        match self.bytes.len() - self.at {
            0 => Ok(None),
            trailing => Err(self.wrong(BatchReason::Trailing(trailing))),
        }
    }

    #[cold]
    fn malformed(&self, malformed: Malformed) -> BatchError {
        let left = (self.count - self.index) as usize;
        self.wrong(match malformed {
            // Fewer bytes than the smallest records would take: it is the count that lies.
            _ if left > (self.bytes.len() - self.at) / RECORD_BYTES_MIN => {
                BatchReason::RecordCount(self.count)
            }
            Malformed::Wire(error) => BatchReason::Record { index: self.index, error },
            Malformed::Length => BatchReason::RecordLength(self.index),
        })
    }

    #[cold]
    fn wrong(&self, reason: BatchReason) -> BatchError {
        BatchError { offset: self.base_offset, reason }
    }
}

#[derive(Debug)]
enum Malformed {
    Wire(WireError),
    Length,
}

impl From<WireError> for Malformed {
    fn from(error: WireError) -> Malformed {
        Malformed::Wire(error)
    }
}

/// A variable-length integer of at most three bytes, before its zigzag form is undone.
#[inline(always)]
fn take_short(bytes: &[u8], at: &mut usize) -> Option<u32> {
    let first = u32::from(*bytes.get(*at)?);
    *at += 1;
    if first < 0x80 {
        return Some(first);
    }
    let second = u32::from(*bytes.get(*at)?);
    *at += 1;
    if second < 0x80 {
        return Some(first & 0x7f | second << 7);
    }
    let third = u32::from(*bytes.get(*at)?);
    *at += 1;
    (third < 0x80).then_some(first & 0x7f | (second & 0x7f) << 7 | third << 14)
}

#[inline(always)]
fn take_short_signed(bytes: &[u8], at: &mut usize) -> Option<i32> {
    take_short(bytes, at).map(|value| (value >> 1) as i32 ^ -((value & 1) as i32))
}

/// Reads the fields of a record whose integers are short and which has no headers: nearly every
/// record. `None` says only that [`read_fields`] must decide.
#[inline(always)]
fn read_short(bytes: &[u8], mut at: usize) -> Option<Fields> {
    let length = take_short(bytes, &mut at)?;
    let end = at + (length >> 1) as usize;
    // The record's own bytes; an odd length is a negative one.
    let bytes = bytes.get(..end)?;
    // The attributes are one byte whatever it is, not an integer that may go on in the next.
    if length & 1 == 1 || *bytes.get(at)? != 0 {
        return None;
    }
    at += 1;
    let timestamp_delta = i64::from(take_short_signed(bytes, &mut at)?);
    let offset_delta = take_short_signed(bytes, &mut at)?;
    let key = take_nullable(bytes, &mut at)?;
    let value = take_nullable(bytes, &mut at)?;
    let fits = at + 1 == end && bytes[at] == 0;
    fits.then_some(Fields { timestamp_delta, offset_delta, key, value, end })
}

/// The outer `None`: not short, or not within the record.
#[inline(always)]
fn take_nullable(bytes: &[u8], at: &mut usize) -> Option<Option<(usize, usize)>> {
    let length = take_short(bytes, at)?;
    if length & 1 == 1 {
        return Some(None);
    }
    let (start, length) = (*at, (length >> 1) as usize);
    *at += length;
    Some(Some((start, length)))
}

#[inline(never)]
fn read_fields(bytes: &[u8], at: usize) -> Result<Fields, Malformed> {
    let mut reader = WireReader::resume(bytes, at);
    let length = reader.varint()?;
    let length = usize::try_from(length).map_err(|_| Malformed::Length)?;
    let end = reader.at() + reader.skip(length)?.len();
    // Only the record's own bytes from here on: no field can reach into the next record.
    let mut reader = WireReader::resume(&bytes[..end], end - length);
    let _attributes = reader.i8()?;
    let timestamp_delta = reader.varlong()?;
    let offset_delta = reader.varint()?;
    let key = read_nullable(&mut reader)?;
    let value = read_nullable(&mut reader)?;
    let headers = reader.varint()?;
    if headers != 0 {
        skip_headers(&mut reader, headers)?;
    }
    if reader.at() != end {
        return Err(Malformed::Length);
    }
    Ok(Fields { timestamp_delta, offset_delta, key, value, end })
}

/// Where bytes lie after their zigzag length, of which any negative one means null, as Kafka itself
/// reads it.
#[inline(always)]
fn read_nullable(reader: &mut WireReader<'_>) -> Result<Option<(usize, usize)>, WireError> {
    let length = reader.varint()?;
    if length < 0 {
        return Ok(None);
    }
    let range = reader.skip(length as usize)?;
    Ok(Some((range.start, length as usize)))
}

#[inline(never)]
fn skip_headers(reader: &mut WireReader<'_>, headers: i32) -> Result<(), Malformed> {
    if headers < 0 {
        return Err(Malformed::Length);
    }
    for _ in 0..headers {
        read_nullable(reader)?.ok_or(Malformed::Length)?;
        read_nullable(reader)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        #[test]
        fn what_the_short_form_reads_the_full_form_reads_alike(
            head in proptest::collection::vec(prop_oneof![0_u8..12, any::<u8>()], 1..9),
            body in proptest::collection::vec(0_u8..6, 0..12),
        ) {
            let mut bytes = head;
            bytes.extend(body);
            bytes[0] = ((bytes.len() - 1) * 2) as u8;
            if let Some(fields) = read_short(&bytes, 0) {
                prop_assert_eq!(read_fields(&bytes, 0).ok(), Some(fields));
            }
        }
    }

    #[test]
    fn a_small_record_is_read_in_the_short_form() {
        let record = [18, 0, 4, 2, 2, b'k', 4, b'v', b'w', 0];
        let fields = read_short(&record, 0).unwrap();
        assert_eq!((fields.timestamp_delta, fields.offset_delta, fields.end), (2, 1, 10));
        assert_eq!((fields.key, fields.value), (Some((5, 1)), Some((7, 2))));
        for (place, byte) in [(0, 20), (0, 16), (0, 17), (1, 1), (4, 20), (6, 6), (9, 2)] {
            let mut other = record;
            other[place] = byte;
            assert_eq!(read_short(&other, 0), None);
        }
    }

    #[test]
    fn attributes_are_one_byte_even_if_its_highest_bit_is_set() {
        let record = [16, 0x80, 0, 0, 0, 0, 2, 0, 0];
        assert_eq!(read_short(&record, 0), None);
        let fields = read_fields(&record, 0).unwrap();
        assert_eq!((fields.key, fields.value), (Some((5, 0)), Some((6, 0))));
    }
}
