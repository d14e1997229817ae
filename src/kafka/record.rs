//! The records of one verified batch, read in place, one at a time.

use crate::kafka::record_batch::{BatchError, BatchHeader, BatchReason};
use crate::kafka::wire::{WireError, WireReader};
use std::ops::Range;

/// Smallest size of a record: its length, attributes, two deltas, two lengths of null and the
/// number of headers, one byte each.
const RECORD_BYTES_MIN: usize = 7;

/// Bytes that are examined together: those before the value in nearly every record without a key.
const HEAD_BYTES: usize = 16;

/// The bytes at the start of a record, or after its key.
type RecordHead = [u8; HEAD_BYTES];

/// A record. Its bytes are in the receive buffer or in the decompressor's buffer.
#[derive(Debug, PartialEq, Eq)]
pub struct Record<'r> {
    /// Offset in the partition.
    pub offset: i64,
    /// Timestamp in milliseconds since the Unix epoch, of the topic's timestamp type.
    pub timestamp_ms: i64,
    /// The key, if not null.
    pub key: Option<&'r [u8]>,
    /// Range of the value in `records`, if not null.
    pub value_range: Option<Range<usize>>,
    /// The bytes of all the batch's records.
    pub records: &'r [u8],
}

impl<'r> Record<'r> {
    /// The value, if not null.
    pub fn value(&self) -> Option<&'r [u8]> {
        self.value_range.clone().map(|range| &self.records[range])
    }
}

/// Reads the records of a batch in place.
#[derive(Debug)]
pub struct Records<'a> {
    bytes: &'a [u8],
    at: usize,
    count: i32,
    /// Records that are not read yet.
    left: i32,
    /// The last record's offset delta; the next one must be greater.
    offset_delta: i32,
    offset_delta_max: i32,
    base_offset: i64,
    offset_min: i64,
    base_timestamp_ms: i64,
    append_time_ms: Option<i64>,
}

/// The fields of a record, as positions in the bytes.
#[derive(Debug, PartialEq, Eq)]
struct RecordFields {
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
            count: header.record_count,
            left: header.record_count,
            offset_delta: -1,
            offset_delta_max: header.last_offset_delta,
            base_offset: header.base_offset,
            offset_min,
            base_timestamp_ms: header.base_timestamp_ms,
            append_time_ms: header.append_time_ms(),
        }
    }

    /// Returns the next record at or above the requested offset; `None` once all records are read
    /// and no bytes are left over. After an error the rest of the batch must not be read.
    #[inline]
    pub fn next_record(&mut self) -> Result<Option<Record<'a>>, BatchError> {
        while self.left > 0 {
            // A separate call, so that the compiler knows the fixed layout of such a record.
            let wanted = match read_usual::<2>(self.bytes, self.at) {
                Some(fields) => self.take(fields)?,
                None => self.take_other()?,
            };
            if wanted.is_some() {
                return Ok(wanted);
            }
        }
        self.finish()?;
        Ok(None)
    }

    #[inline]
    fn take_other(&mut self) -> Result<Option<Record<'a>>, BatchError> {
        let usual = read_usual::<1>(self.bytes, self.at);
        let fields = match usual.or_else(|| read_short(self.bytes, self.at)) {
            Some(fields) => fields,
            None => match read_fields(self.bytes, self.at) {
                Ok(fields) => fields,
                Err(malformed) => return Err(self.malformed(malformed)),
            },
        };
        self.take(fields)
    }

    /// Returns the record with these fields, if it is at or above the requested offset.
    #[inline(always)]
    fn take(&mut self, fields: RecordFields) -> Result<Option<Record<'a>>, BatchError> {
        if fields.offset_delta <= self.offset_delta || fields.offset_delta > self.offset_delta_max {
            return Err(self.wrong(BatchReason::RecordOffset(self.index())));
        }
        self.offset_delta = fields.offset_delta;
        self.at = fields.end;
        let offset = self.base_offset + i64::from(fields.offset_delta);
        let timestamp_ms = match self.append_time_ms {
            Some(append_time_ms) => append_time_ms,
            None => match self.base_timestamp_ms.checked_add(fields.timestamp_delta) {
                Some(timestamp_ms) => timestamp_ms,
                None => return Err(self.wrong(BatchReason::RecordTime(self.index()))),
            },
        };
        self.left -= 1;
        if offset < self.offset_min {
            return Ok(None);
        }
        // The positions were read from these bytes, so they lie within them.
        let key = fields.key.map(|(at, length)| &self.bytes[at..at + length]);
        let value_range = fields.value.map(|(at, length)| at..at + length);
        Ok(Some(Record { offset, timestamp_ms, key, value_range, records: self.bytes }))
    }

    /// Index of the next record in the batch.
    fn index(&self) -> i32 {
        self.count - self.left
    }

    /// Checks the end of the batch. Separate from `next_record`, because a returned record is
    /// written to memory.
    #[inline(never)]
    fn finish(&self) -> Result<(), BatchError> {
        match self.bytes.len() - self.at {
            0 => Ok(()),
            trailing => Err(self.wrong(BatchReason::Trailing(trailing))),
        }
    }

    #[cold]
    fn malformed(&self, malformed: Malformed) -> BatchError {
        self.wrong(match malformed {
            // Fewer bytes are left than the smallest records would take: the count is wrong.
            _ if self.left as usize > (self.bytes.len() - self.at) / RECORD_BYTES_MIN => {
                BatchReason::RecordCount(self.count)
            }
            Malformed::Wire(error) => BatchReason::Record { index: self.index(), error },
            Malformed::Length => BatchReason::RecordLength(self.index()),
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

/// For each byte, a mask of the bits that usual records have in common, and their value.
type Pattern = [(u8, u8); 8];

/// A non-negative variable-length integer of one byte.
const ONLY: (u8, u8) = (0x81, 0);
/// The first byte of a two-byte integer.
const FIRST: (u8, u8) = (0x81, 0x80);
/// The second byte of a two-byte integer.
const SECOND: (u8, u8) = (0x80, 0);
const NO_ATTRIBUTES: (u8, u8) = (0xff, 0);
/// The length of a null key.
const NO_KEY: (u8, u8) = (0xff, 1);

/// The first bytes of usual records: length, attributes, deltas of timestamp and offset, key, and
/// the value's length. The offset's delta takes one byte or two.
const SHORT_OFFSET: Pattern = [FIRST, SECOND, NO_ATTRIBUTES, ONLY, ONLY, NO_KEY, FIRST, SECOND];
const LONG_OFFSET: Pattern = [FIRST, SECOND, NO_ATTRIBUTES, ONLY, FIRST, SECOND, NO_KEY, FIRST];

/// Returns the mask and the bits of a pattern, each as a word.
const fn words(pattern: Pattern) -> (u64, u64) {
    let (mut masks, mut bits) = ([0; 8], [0; 8]);
    let mut at = 0;
    while at < 8 {
        (masks[at], bits[at]) = pattern[at];
        at += 1;
    }
    (u64::from_le_bytes(masks), u64::from_le_bytes(bits))
}

/// Decodes a non-negative two-byte zigzag integer.
#[inline(always)]
fn half(head: &RecordHead, at: usize) -> usize {
    usize::from(head[at] & 0x7f) >> 1 | usize::from(head[at + 1]) << 6
}

/// Reads the fields of a usual record, whose head is recognised by one comparison. After `None`,
/// [`read_short`] must try.
#[inline(always)]
fn read_usual<const OFFSET_BYTES: usize>(bytes: &[u8], start: usize) -> Option<RecordFields> {
    let rest = bytes.get(start..)?;
    let head: &RecordHead = rest.first_chunk()?;
    let (mask, bits) = const { words([SHORT_OFFSET, LONG_OFFSET][OFFSET_BYTES - 1]) };
    if u64::from_le_bytes(*head.first_chunk()?) & mask != bits {
        return None;
    }
    let offset_delta = match OFFSET_BYTES {
        1 => usize::from(head[4] >> 1),
        _ => half(head, 4),
    };
    let value_start = 7 + OFFSET_BYTES;
    let value_bytes = half(head, value_start - 2);
    // If the length of the value has a third byte, it is too large for the record.
    let end = 2 + half(head, 0);
    if value_start + value_bytes + 1 != end || *rest.get(end - 1)? != 0 {
        return None;
    }
    Some(RecordFields {
        timestamp_delta: i64::from(head[3] >> 1),
        offset_delta: offset_delta as i32,
        key: None,
        value: Some((start + value_start, value_bytes)),
        end: start + end,
    })
}

#[inline(always)]
fn head_at(bytes: &[u8], start: usize) -> Option<&RecordHead> {
    bytes.get(start..)?.first_chunk()
}

/// A variable-length integer of at most two bytes, still zigzag-encoded.
#[inline(always)]
fn take_short(head: &RecordHead, at: &mut usize) -> Option<u32> {
    let (first, second) = (head[*at], head[*at + 1]);
    if first < 0x80 {
        *at += 1;
        return Some(first.into());
    }
    *at += 2;
    (second < 0x80).then_some(u32::from(first & 0x7f) | u32::from(second) << 7)
}

/// Reads the fields of a record with short non-negative integers and no headers: nearly every other
/// record. After `None`, [`read_fields`] must decide.
#[inline(never)]
fn read_short(bytes: &[u8], start: usize) -> Option<RecordFields> {
    let (mut head, mut head_start, mut at) = (head_at(bytes, start)?, start, 0);
    let length = take_short(head, &mut at)?;
    let end = start + at + (length >> 1) as usize;
    // The attributes are always one byte, not a variable-length integer.
    if head[at] != 0 {
        return None;
    }
    at += 1;
    let timestamp_delta = take_short(head, &mut at)?;
    let offset_delta = take_short(head, &mut at)?;
    let key_length = take_short(head, &mut at)?;
    let mut key = None;
    // An odd length is negative: the key is null.
    if key_length & 1 == 0 {
        let place = (start + at, (key_length >> 1) as usize);
        key = Some(place);
        (head_start, at) = (place.0 + place.1, 0);
        head = head_at(bytes, head_start)?;
    }
    let value_length = take_short(head, &mut at)?;
    let value = (head_start + at, (value_length >> 1) as usize);
    let is_any_negative = (length | timestamp_delta | offset_delta | value_length) & 1 == 1;
    // The number of headers follows the value, and is 0.
    let fits = !is_any_negative && value.0 + value.1 + 1 == end && *bytes.get(end - 1)? == 0;
    fits.then_some(RecordFields {
        timestamp_delta: i64::from(timestamp_delta >> 1),
        offset_delta: (offset_delta >> 1) as i32,
        key,
        value: Some(value),
        end,
    })
}

#[inline(never)]
fn read_fields(bytes: &[u8], at: usize) -> Result<RecordFields, Malformed> {
    let mut reader = WireReader::resume(bytes, at);
    let length = reader.varint()?;
    let length = usize::try_from(length).map_err(|_| Malformed::Length)?;
    let end = reader.at() + reader.skip(length)?.len();
    // From here on only the record's own bytes: no field can reach into the next record.
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
    Ok(RecordFields { timestamp_delta, offset_delta, key, value, end })
}

/// Reads a zigzag length and returns the position of the bytes. Any negative length means null, as
/// in Kafka itself.
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
    use crate::kafka::wire::WireWriter;

    /// Bytes after a record.
    const REST: [u8; HEAD_BYTES] = [0xff; HEAD_BYTES];

    fn deltas() -> impl Strategy<Value = i16> {
        prop_oneof![-70..70_i16, 0..9000_i16, any::<i16>()]
    }

    fn lengths() -> impl Strategy<Value = Option<usize>> {
        prop_oneof![Just(None), (0..70_usize).prop_map(Some), (60..9000_usize).prop_map(Some)]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        #[test]
        fn what_the_short_form_reads_the_full_form_reads_alike(
            deltas in [deltas(), deltas()],
            (key, value, headers) in (lengths(), lengths(), -1..3_i32),
            damage in prop::option::of((0..40_usize, any::<u8>())),
        ) {
            let mut fields = vec![0];
            let mut writer = WireWriter::new(&mut fields);
            writer.varlong(deltas[0].into());
            writer.varint(deltas[1].into());
            for length in [key, value] {
                writer.varint(length.map_or(-1, |length| length as i32));
                writer.raw(&vec![b'-'; length.unwrap_or(0)]);
            }
            writer.varint(headers);
            let mut bytes = Vec::new();
            WireWriter::new(&mut bytes).varint(fields.len() as i32);
            bytes.extend(fields);
            if let Some((at, byte)) = damage {
                let place = at % bytes.len();
                bytes[place] = byte;
            }
            bytes.extend(REST);
            let usual = [read_usual::<1>(&bytes, 0), read_usual::<2>(&bytes, 0)];
            let short = read_short(&bytes, 0);
            for read in usual.iter().chain([&short]).filter(|read| read.is_some()) {
                let full = read_fields(&bytes, 0).ok();
                prop_assert_eq!(&full, read);
            }
            let is_short = value.is_some_and(|length| length < 8000) && headers == 0
                && deltas.iter().all(|delta| (0..8192).contains(delta))
                && key.is_none_or(|length| length < 100);
            let is_usual = is_short && key.is_none() && value >= Some(64) && deltas[0] < 64;
            if damage.is_none() {
                prop_assert!(short.is_some() || !is_short);
                prop_assert!(usual.iter().any(Option::is_some) || !is_usual);
            }
        }
    }

    #[test]
    fn a_small_record_is_read_in_the_short_form() {
        let record = [18, 0, 4, 2, 2, b'k', 4, b'v', b'w', 0];
        let followed = |record: [u8; 10]| [&record[..], &REST].concat();
        let fields = read_short(&followed(record), 0).unwrap();
        assert_eq!((fields.timestamp_delta, fields.offset_delta, fields.end), (2, 1, 10));
        assert_eq!((fields.key, fields.value), (Some((5, 1)), Some((7, 2))));
        for (place, byte) in [(0, 20), (0, 16), (0, 17), (1, 1), (4, 20), (6, 6), (9, 2)] {
            let mut other = record;
            other[place] = byte;
            assert_eq!(read_short(&followed(other), 0), None);
        }
    }

    #[test]
    fn attributes_are_one_byte_even_if_its_highest_bit_is_set() {
        let record = [&[16, 0x80, 0, 0, 0, 0, 2, 0, 0], &REST[..]].concat();
        assert_eq!(read_short(&record, 0), None);
        let fields = read_fields(&record, 0).unwrap();
        assert_eq!((fields.key, fields.value), (Some((5, 0)), Some((6, 0))));
    }
}
