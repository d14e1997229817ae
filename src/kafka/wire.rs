//! Kafka's wire primitives over byte slices: a bounds-checked reader and a writer.
//!
//! Nothing here panics, whatever the bytes: a reader that runs out of bytes or meets an invalid
//! length returns a [`WireError`]. All integers are big-endian; variable-length integers are
//! little-endian groups of seven bits, signed ones in zigzag form. Source: Kafka's protocol guide,
//! "Protocol Primitive Types", and KIP-482 for compact and tagged fields.

use std::ops::Range;

use thiserror::Error;

/// Why bytes are not a valid message. Positions are counted from the start of the reader's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum WireError {
    /// The message ends within a value.
    #[error("the message ends before the {wanted} bytes that it must hold at byte {at}")]
    Truncated {
        /// Position of the value.
        at: usize,
        /// Size of the value.
        wanted: usize,
    },
    /// A variable-length integer does not fit its type.
    #[error("the variable-length integer at byte {at} does not fit its type")]
    VarintTooLong {
        /// Position of the integer.
        at: usize,
    },
    /// A length is negative, but the value may not be null.
    #[error("the length at byte {at} is negative")]
    NegativeLength {
        /// Position of the length.
        at: usize,
    },
    /// A string is not UTF-8.
    #[error("the string at byte {at} is not UTF-8")]
    NotUtf8 {
        /// Position of the string's bytes.
        at: usize,
    },
    /// A number that no broker sends, such as an offset that no log has.
    #[error("the number before byte {at} is not one that a broker sends")]
    Implausible {
        /// Position after the number.
        at: usize,
    },
    /// Bytes are left after the end of the message.
    #[error("the message should end at byte {at}, but bytes follow")]
    Trailing {
        /// Expected end of the message.
        at: usize,
    },
}

/// Reads primitives from a slice, front to back.
#[derive(Clone, Copy, Debug)]
pub struct WireReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> WireReader<'a> {
    /// Creates a reader at the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> WireReader<'a> {
        WireReader { bytes, at: 0 }
    }

    /// Creates a reader at byte `at`; beyond the end there is nothing to read.
    pub fn resume(bytes: &'a [u8], at: usize) -> WireReader<'a> {
        WireReader { bytes, at: at.min(bytes.len()) }
    }

    /// Number of bytes read: the position of the next value.
    #[inline]
    pub fn at(&self) -> usize {
        self.at
    }

    /// Number of bytes left.
    #[inline]
    pub fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// Checks that no bytes are left.
    pub fn finish(&self) -> Result<(), WireError> {
        if self.left() == 0 { Ok(()) } else { Err(WireError::Trailing { at: self.at }) }
    }

    /// Reads `count` bytes.
    #[inline]
    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], WireError> {
        let range = self.skip(count)?;
        Ok(&self.bytes[range])
    }

    /// Skips `count` bytes and returns their range.
    #[inline]
    pub fn skip(&mut self, count: usize) -> Result<Range<usize>, WireError> {
        if count > self.left() {
            return Err(WireError::Truncated { at: self.at, wanted: count });
        }
        let start = self.at;
        self.at += count;
        Ok(start..self.at)
    }

    #[inline]
    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        match self.bytes[self.at..].first_chunk::<N>() {
            Some(bytes) => {
                self.at += N;
                Ok(*bytes)
            }
            None => Err(WireError::Truncated { at: self.at, wanted: N }),
        }
    }

    /// Reads a signed byte.
    #[inline]
    pub fn i8(&mut self) -> Result<i8, WireError> {
        self.fixed().map(i8::from_be_bytes)
    }

    /// Reads a signed 16-bit integer.
    #[inline]
    pub fn i16(&mut self) -> Result<i16, WireError> {
        self.fixed().map(i16::from_be_bytes)
    }

    /// Reads a signed 32-bit integer.
    #[inline]
    pub fn i32(&mut self) -> Result<i32, WireError> {
        self.fixed().map(i32::from_be_bytes)
    }

    /// Reads an unsigned 32-bit integer.
    #[inline]
    pub fn u32(&mut self) -> Result<u32, WireError> {
        self.fixed().map(u32::from_be_bytes)
    }

    /// Reads a signed 64-bit integer.
    #[inline]
    pub fn i64(&mut self) -> Result<i64, WireError> {
        self.fixed().map(i64::from_be_bytes)
    }

    /// Reads a UUID.
    pub fn u128(&mut self) -> Result<u128, WireError> {
        self.fixed().map(u128::from_be_bytes)
    }

    /// Reads an unsigned variable-length integer of at most 32 bits.
    #[inline(always)]
    pub(crate) fn unsigned_varint(&mut self) -> Result<u32, WireError> {
        // Nearly all integers have one or two bytes: the lengths and deltas of small records.
        match self.bytes[self.at..] {
            [first, ..] if first < 0x80 => {
                self.at += 1;
                Ok(u32::from(first))
            }
            [first, second, ..] if second < 0x80 => {
                self.at += 2;
                Ok(u32::from(first & 0x7f) | u32::from(second) << 7)
            }
            _ => self.unsigned_varint_long(),
        }
    }

    #[inline(never)]
    fn unsigned_varint_long(&mut self) -> Result<u32, WireError> {
        let at = self.at;
        let value = self.unsigned_varlong()?;
        u32::try_from(value).map_err(|_| WireError::VarintTooLong { at })
    }

    #[inline(never)]
    fn unsigned_varlong(&mut self) -> Result<u64, WireError> {
        let at = self.at;
        let mut value = 0_u64;
        for (place, &byte) in self.bytes[at..].iter().enumerate() {
            // The tenth byte holds the 64th bit and nothing else.
            if place == 9 && byte > 1 {
                return Err(WireError::VarintTooLong { at });
            }
            value |= u64::from(byte & 0x7f) << (7 * place);
            if byte < 0x80 {
                self.at = at + place + 1;
                return Ok(value);
            }
        }
        Err(WireError::Truncated { at, wanted: self.left() + 1 })
    }

    /// Reads a signed variable-length integer of at most 32 bits.
    #[inline(always)]
    pub(crate) fn varint(&mut self) -> Result<i32, WireError> {
        let value = self.unsigned_varint()?;
        Ok((value >> 1) as i32 ^ -((value & 1) as i32))
    }

    /// Reads a signed variable-length integer of at most 64 bits.
    #[inline(always)]
    pub(crate) fn varlong(&mut self) -> Result<i64, WireError> {
        let value = match self.bytes[self.at..] {
            [first, ..] if first < 0x80 => {
                self.at += 1;
                u64::from(first)
            }
            [first, second, ..] if second < 0x80 => {
                self.at += 2;
                u64::from(first & 0x7f) | u64::from(second) << 7
            }
            _ => self.unsigned_varlong()?,
        };
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// Reads the length of a value, `None` for null. `compact` selects the encoding of KIP-482.
    fn length(&mut self, compact: bool, width: Width) -> Result<Option<usize>, WireError> {
        let at = self.at;
        if compact {
            return Ok(self.unsigned_varint()?.checked_sub(1).map(|length| length as usize));
        }
        let length = match width {
            Width::Two => i32::from(self.i16()?),
            Width::Four => self.i32()?,
        };
        match length {
            -1 => Ok(None),
            length => {
                usize::try_from(length).map(Some).map_err(|_| WireError::NegativeLength { at })
            }
        }
    }

    /// Reads a nullable string.
    pub fn nullable_string(&mut self, compact: bool) -> Result<Option<&'a str>, WireError> {
        let Some(length) = self.length(compact, Width::Two)? else {
            return Ok(None);
        };
        let at = self.at;
        let bytes = self.take(length)?;
        std::str::from_utf8(bytes).map(Some).map_err(|_| WireError::NotUtf8 { at })
    }

    /// Reads a string.
    pub fn string(&mut self, compact: bool) -> Result<&'a str, WireError> {
        let at = self.at;
        self.nullable_string(compact)?.ok_or(WireError::NegativeLength { at })
    }

    /// Reads nullable bytes and returns their range.
    #[inline]
    pub fn nullable_bytes(&mut self, compact: bool) -> Result<Option<Range<usize>>, WireError> {
        match self.length(compact, Width::Four)? {
            Some(length) => self.skip(length).map(Some),
            None => Ok(None),
        }
    }

    /// Reads the number of elements of a nullable array. The elements must be read one by one: a
    /// false number then ends in [`WireError::Truncated`], not in a huge allocation.
    pub(crate) fn nullable_array(&mut self, compact: bool) -> Result<Option<usize>, WireError> {
        self.length(compact, Width::Four)
    }

    /// Reads the number of elements of an array; see [`WireReader::nullable_array`].
    pub fn array(&mut self, compact: bool) -> Result<usize, WireError> {
        let at = self.at;
        self.nullable_array(compact)?.ok_or(WireError::NegativeLength { at })
    }

    /// Reads the number of tagged fields that follow; read each with [`WireReader::tagged_field`].
    pub(crate) fn tagged_fields(&mut self) -> Result<u32, WireError> {
        self.unsigned_varint()
    }

    /// Reads a tagged field: its tag, and a reader limited to its value.
    pub(crate) fn tagged_field(&mut self) -> Result<(u32, WireReader<'a>), WireError> {
        let tag = self.unsigned_varint()?;
        let length = self.unsigned_varint()? as usize;
        let range = self.skip(length)?;
        Ok((tag, WireReader { bytes: &self.bytes[..range.end], at: range.start }))
    }

    /// Skips all tagged fields.
    pub fn skip_tagged_fields(&mut self) -> Result<(), WireError> {
        for _ in 0..self.tagged_fields()? {
            self.tagged_field()?;
        }
        Ok(())
    }
}

#[derive(Clone, Copy)]
enum Width {
    Two,
    Four,
}

/// Size of a signed variable-length integer.
pub(crate) fn varint_bytes(value: i32) -> usize {
    let zigzag = (value << 1 ^ value >> 31).cast_unsigned();
    (u32::BITS - (zigzag | 1).leading_zeros()).div_ceil(7) as usize
}

/// Appends primitives to a buffer that its owner reuses.
#[derive(Debug)]
pub struct WireWriter<'a> {
    out: &'a mut Vec<u8>,
}

impl<'a> WireWriter<'a> {
    /// Creates a writer that appends to `out`.
    pub fn new(out: &'a mut Vec<u8>) -> WireWriter<'a> {
        WireWriter { out }
    }

    /// Writes a signed byte.
    pub fn i8(&mut self, value: i8) {
        self.out.extend_from_slice(&value.to_be_bytes());
    }

    /// Writes a signed 16-bit integer.
    pub fn i16(&mut self, value: i16) {
        self.out.extend_from_slice(&value.to_be_bytes());
    }

    /// Writes a signed 32-bit integer.
    pub fn i32(&mut self, value: i32) {
        self.out.extend_from_slice(&value.to_be_bytes());
    }

    /// Writes an unsigned 32-bit integer.
    pub fn u32(&mut self, value: u32) {
        self.out.extend_from_slice(&value.to_be_bytes());
    }

    /// Writes a signed 64-bit integer.
    pub fn i64(&mut self, value: i64) {
        self.out.extend_from_slice(&value.to_be_bytes());
    }

    /// Writes bytes unchanged.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// Writes an unsigned variable-length integer.
    pub fn unsigned_varint(&mut self, value: u32) {
        self.unsigned_varlong(u64::from(value));
    }

    fn unsigned_varlong(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.out.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.out.push(value as u8);
    }

    /// Writes a signed 32-bit integer in variable length.
    pub fn varint(&mut self, value: i32) {
        self.varlong(i64::from(value));
    }

    /// Writes a signed 64-bit integer in variable length.
    pub fn varlong(&mut self, value: i64) {
        self.unsigned_varlong((value << 1 ^ value >> 63) as u64);
    }

    /// Writes a string of at most 32,767 bytes.
    ///
    /// # Panics
    ///
    /// Panics if the string is longer: names of topics and clients are checked with the
    /// configuration.
    pub fn string(&mut self, value: &str, compact: bool) {
        assert!(value.len() <= i16::MAX as usize);
        if compact {
            self.unsigned_varint(value.len() as u32 + 1);
        } else {
            self.i16(value.len() as i16);
        }
        self.raw(value.as_bytes());
    }

    /// Writes a null string.
    pub(crate) fn null_string(&mut self, compact: bool) {
        if compact { self.unsigned_varint(0) } else { self.i16(-1) }
    }

    /// Writes bytes with their length.
    pub(crate) fn bytes(&mut self, value: &[u8], compact: bool) {
        self.array(value.len(), compact);
        self.raw(value);
    }

    /// Writes the number of elements of an array; the caller then writes the elements.
    pub fn array(&mut self, count: usize, compact: bool) {
        assert!(count < i32::MAX as usize);
        if compact {
            self.unsigned_varint(count as u32 + 1);
        } else {
            self.i32(count as i32);
        }
    }

    /// Writes an empty list of tagged fields.
    pub fn no_tagged_fields(&mut self) {
        self.unsigned_varint(0);
    }

    /// Starts a length-prefixed message; [`WireWriter::end_frame`] ends it.
    pub fn begin_frame(&mut self) -> FrameStart {
        let start = FrameStart(self.out.len());
        self.i32(0);
        start
    }

    /// Ends a length-prefixed message by writing its length.
    pub fn end_frame(&mut self, start: FrameStart) {
        let length = (self.out.len() - start.0 - FRAME_PREFIX_BYTES) as u32;
        self.out[start.0..start.0 + FRAME_PREFIX_BYTES].copy_from_slice(&length.to_be_bytes());
    }
}

/// Start of a length-prefixed message.
#[derive(Debug)]
pub struct FrameStart(usize);

/// Size of the length prefix of requests and responses.
pub const FRAME_PREFIX_BYTES: usize = 4;
