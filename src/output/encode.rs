//! Encodes and decodes frames. docs/PROTOCOL.md has the layouts, docs/vectors/frames.json examples.
//!
//! Encoding is for huntd's own frames, so a mistake there is a bug and asserts. Decoding is for
//! bytes from a topic that others may write to as well: every length is checked, and nothing
//! panics.

use crate::kit::update::{FRAME_UPDATES_MAX, UPDATE_BYTES, Update};
use crate::kit::update_json::UpdateTable;
use crate::output::frame::{
    Chain, FRAME_BYTES_MAX, Format, FrameHeader, FrameKind, POSITION_UNKNOWN,
};
use std::str::FromStr;

/// The first bytes of a binary frame.
pub(crate) const MAGIC: [u8; 4] = *b"HNTF";

/// Version of the frame format: of both encodings, and of the chain.
pub(crate) const FRAME_VERSION: u8 = 2;

/// Size of a binary frame's header.
pub(crate) const FRAME_HEADER_BYTES: usize = 64;

/// Appends the encoded frame to `out`, which the caller has emptied.
pub fn encode(
    format: Format,
    table: &UpdateTable,
    (header, updates): (&FrameHeader, &[Update]),
    out: &mut Vec<u8>,
) {
    assert!(out.is_empty());
    assert_eq!(header.count as usize, updates.len());
    match format {
        Format::Json => encode_json(header, |out| table.write(updates, out), out),
        Format::Binary => encode_binary(header, updates, out),
    }
    assert!(out.len() <= FRAME_BYTES_MAX, "the limits prove that a full frame fits");
}

/// Like [`encode`], for a frame without updates.
pub(crate) fn encode_empty(format: Format, header: &FrameHeader, out: &mut Vec<u8>) {
    assert!(out.is_empty() && header.count == 0);
    match format {
        Format::Json => encode_json(header, |_| {}, out),
        Format::Binary => encode_binary(header, &[], out),
    }
}

fn encode_binary(header: &FrameHeader, updates: &[Update], out: &mut Vec<u8>) {
    out.reserve(FRAME_HEADER_BYTES + updates.len() * UPDATE_BYTES);
    out.extend_from_slice(&MAGIC);
    out.push(FRAME_VERSION);
    out.push(header.kind as u8);
    out.extend_from_slice(&0u16.to_le_bytes());
    out.extend_from_slice(&header.owner_epoch.to_le_bytes());
    out.extend_from_slice(&header.first_update.to_le_bytes());
    out.extend_from_slice(&header.count.to_le_bytes());
    out.extend_from_slice(&header.ruleset.to_le_bytes());
    out.extend_from_slice(&header.next_offset.to_le_bytes());
    out.extend_from_slice(&header.chain.0.to_le_bytes());
    out.extend_from_slice(&header.fence_id.to_le_bytes());
    assert_eq!(out.len(), FRAME_HEADER_BYTES);
    // In one call: each separate extension would check the capacity.
    out.extend(updates.iter().flat_map(update_bytes));
}

fn update_bytes(update: &Update) -> [u8; UPDATE_BYTES] {
    let mut bytes = [0; UPDATE_BYTES];
    for (place, word) in bytes.chunks_exact_mut(8).zip(update.words()) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

fn encode_json(header: &FrameHeader, write_updates: impl FnOnce(&mut Vec<u8>), out: &mut Vec<u8>) {
    push_number(out, "{\"version\":", FRAME_VERSION);
    push_text(out, ",\"kind\":\"", kind_name(header.kind));
    push_number(out, "\",\"epoch\":", header.owner_epoch);
    push_number(out, ",\"first_update\":", header.first_update);
    push_number(out, ",\"count\":", header.count);
    push_number(out, ",\"next_offset\":", header.next_offset);
    push_number(out, ",\"ruleset\":", header.ruleset);
    push_text(out, ",\"chain\":\"", &format!("{:016x}", header.chain.0));
    if header.kind == FrameKind::Fence {
        push_text(out, "\",\"fence_id\":\"", &format!("{:032x}", header.fence_id));
    }
    out.extend_from_slice(b"\",\"updates\":[");
    write_updates(out);
    out.extend_from_slice(b"]}");
}

fn push_text(out: &mut Vec<u8>, before: &str, text: &str) {
    out.extend_from_slice(before.as_bytes());
    out.extend_from_slice(text.as_bytes());
}

fn push_number(out: &mut Vec<u8>, before: &str, number: impl itoa::Integer) {
    push_text(out, before, itoa::Buffer::new().format(number));
}

fn kind_name(kind: FrameKind) -> &'static str {
    match kind {
        FrameKind::Updates => "updates",
        FrameKind::Fence => "fence",
        FrameKind::Skip => "skip",
        FrameKind::Genesis => "genesis",
    }
}

/// Why a record cannot be read. Readers ignore a record only after [`FrameError::NotAFrame`]. After
/// any other error they stop: the record may be a fence, or hold updates that everything after it
/// depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The record starts like neither encoding.
    #[error("the record begins neither as a JSON frame nor as a binary one")]
    NotAFrame,
    /// The record is longer than any frame may be.
    #[error("the record has {bytes} bytes, and a frame at most {FRAME_BYTES_MAX}")]
    TooLong {
        /// Length of the record.
        bytes: usize,
    },
    /// The frame has a version that this huntd does not know.
    #[error("the frame has version {0}, and this huntd reads version {FRAME_VERSION}")]
    Version(u8),
    /// The frame is cut short, or bytes follow it.
    #[error("the frame has {found} bytes where its header says {expected}")]
    Length {
        /// Length according to the header.
        expected: usize,
        /// Actual length.
        found: usize,
    },
    /// A field is missing, has another type or is out of range.
    #[error("the frame's field `{0}` is missing or not valid")]
    Field(&'static str),
    /// An update that no engine produces.
    #[error("update {index} of the frame is not valid")]
    Update {
        /// Index in the frame.
        index: usize,
    },
}

/// Decodes a frame of a game in either encoding.
pub fn decode(bytes: &[u8], table: &UpdateTable) -> Result<(FrameHeader, Vec<Update>), FrameError> {
    let format = format_of(bytes)?;
    if bytes.len() > FRAME_BYTES_MAX {
        return Err(FrameError::TooLong { bytes: bytes.len() });
    }
    let (header, updates) = match format {
        Format::Json => decode_json(bytes, table)?,
        Format::Binary => decode_binary(bytes, table)?,
    };
    check(&header)?;
    assert_eq!(header.count as usize, updates.len());
    Ok((header, updates))
}

/// Returns the encoding of the frame with these first bytes, if its version is supported. Nothing
/// else is read before the version is known: another version may have other fields.
fn format_of(bytes: &[u8]) -> Result<Format, FrameError> {
    if let Some(rest) = bytes.strip_prefix(&MAGIC) {
        return match rest.first() {
            Some(&FRAME_VERSION) => Ok(Format::Binary),
            Some(&version) => Err(FrameError::Version(version)),
            None => Err(FrameError::Length { expected: FRAME_HEADER_BYTES, found: bytes.len() }),
        };
    }
    if bytes.starts_with(b"{\"kind\":\"") {
        // Version 1 did not state its version.
        return Err(FrameError::Version(1));
    }
    let Some(rest) = bytes.strip_prefix(b"{\"version\":") else {
        return Err(FrameError::NotAFrame);
    };
    let digits = rest.split(|byte| *byte == b',').next().unwrap_or_default();
    let version = str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
    match version.ok_or(FrameError::Field("version"))? {
        FRAME_VERSION => Ok(Format::Json),
        version => Err(FrameError::Version(version)),
    }
}

/// Checks the rules that both encodings share.
fn check(header: &FrameHeader) -> Result<(), FrameError> {
    let is_fence = header.kind == FrameKind::Fence;
    if header.count as usize > FRAME_UPDATES_MAX {
        return Err(FrameError::Field("count"));
    }
    if header.count > 0 && header.kind != FrameKind::Updates {
        return Err(FrameError::Field("count"));
    }
    if header.first_update.checked_add(u64::from(header.count)).is_none() {
        return Err(FrameError::Field("first_update"));
    }
    if header.next_offset < 0 && !(is_fence && header.next_offset == POSITION_UNKNOWN) {
        return Err(FrameError::Field("next_offset"));
    }
    if header.fence_id != 0 && !is_fence {
        return Err(FrameError::Field("fence_id"));
    }
    Ok(())
}

/// Reads little-endian fields from the front of a slice. `None` if the slice is too short.
struct FrameFields<'a>(&'a [u8]);

impl FrameFields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*field)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }
}

fn decode_binary(
    bytes: &[u8],
    table: &UpdateTable,
) -> Result<(FrameHeader, Vec<Update>), FrameError> {
    if bytes.len() < FRAME_HEADER_BYTES {
        return Err(FrameError::Length { expected: FRAME_HEADER_BYTES, found: bytes.len() });
    }
    let (head, body) = bytes.split_at(FRAME_HEADER_BYTES);
    let [_, _, _, _, _, kind, flags_low, flags_high, rest @ ..] = head else {
        return Err(FrameError::Field("kind"));
    };
    if (*flags_low, *flags_high) != (0, 0) {
        return Err(FrameError::Field("flags"));
    }
    let kind = match kind {
        1 => FrameKind::Updates,
        2 => FrameKind::Fence,
        3 => FrameKind::Skip,
        4 => FrameKind::Genesis,
        _ => return Err(FrameError::Field("kind")),
    };
    let header = binary_header(kind, &mut FrameFields(rest)).ok_or(FrameError::Field("chain"))?;
    let expected = FRAME_HEADER_BYTES.saturating_add((header.count as usize) * UPDATE_BYTES);
    if bytes.len() != expected {
        return Err(FrameError::Length { expected, found: bytes.len() });
    }
    let mut updates = Vec::with_capacity(header.count as usize);
    for (index, bytes) in body.chunks_exact(UPDATE_BYTES).enumerate() {
        let mut fields = FrameFields(bytes);
        let words = [fields.u64(), fields.u64(), fields.u64(), fields.u64()];
        let words = words.map(|word| word.unwrap_or_default());
        updates.push(table.update(words).ok_or(FrameError::Update { index })?);
    }
    Ok((header, updates))
}

fn binary_header(kind: FrameKind, fields: &mut FrameFields<'_>) -> Option<FrameHeader> {
    Some(FrameHeader {
        kind,
        owner_epoch: fields.u64()?,
        first_update: fields.u64()?,
        count: fields.u32()?,
        ruleset: fields.u32()?,
        next_offset: fields.take().map(i64::from_le_bytes)?,
        chain: Chain(fields.u64()?),
        fence_id: fields.take().map(u128::from_le_bytes)?,
    })
}

/// Decodes the output of [`encode_json`]: fields in that order, without white space.
fn decode_json(
    bytes: &[u8],
    table: &UpdateTable,
) -> Result<(FrameHeader, Vec<Update>), FrameError> {
    let mut text = FrameText(bytes);
    // Rejects `02` and `+2`.
    text.number::<u8>("{\"version\":", "version")?;
    let kind = text.kind()?;
    let mut header = FrameHeader {
        kind,
        owner_epoch: text.number(",\"epoch\":", "epoch")?,
        first_update: text.number(",\"first_update\":", "first_update")?,
        count: text.number(",\"count\":", "count")?,
        next_offset: text.number(",\"next_offset\":", "next_offset")?,
        ruleset: text.number(",\"ruleset\":", "ruleset")?,
        chain: Chain(text.hexadecimal(",\"chain\":", "chain", 16)? as u64),
        fence_id: 0,
    };
    if kind == FrameKind::Fence {
        header.fence_id = text.hexadecimal(",\"fence_id\":", "fence_id", 32)?;
    }
    text.skip(",\"updates\":[").ok_or(FrameError::Field("updates"))?;
    let count_max = (header.count as usize).min(FRAME_UPDATES_MAX);
    let mut updates = Vec::with_capacity(count_max);
    for index in 0..count_max {
        if index > 0 {
            text.skip(",").ok_or(FrameError::Field("count"))?;
        }
        updates.push(table.read(&mut text.0).ok_or(FrameError::Update { index })?);
    }
    match text.0 {
        b"]}" => Ok((header, updates)),
        _ => Err(FrameError::Field("count")),
    }
}

/// The unread part of a JSON frame.
struct FrameText<'a>(&'a [u8]);

impl<'a> FrameText<'a> {
    fn skip(&mut self, expected: &str) -> Option<()> {
        self.0 = self.0.strip_prefix(expected.as_bytes())?;
        Some(())
    }

    /// Returns the bytes up to `end`, and skips `end`.
    fn until(&mut self, end: u8) -> Option<&'a [u8]> {
        let length = self.0.iter().position(|byte| *byte == end)?;
        let (bytes, rest) = self.0.split_at(length);
        self.0 = &rest[1..];
        Some(bytes)
    }

    fn quoted(&mut self, key: &str, name: &'static str) -> Result<&'a [u8], FrameError> {
        let value = self.skip(key).and_then(|()| self.skip("\"")).and_then(|()| self.until(b'"'));
        value.ok_or(FrameError::Field(name))
    }

    fn kind(&mut self) -> Result<FrameKind, FrameError> {
        match self.quoted(",\"kind\":", "kind")? {
            b"updates" => Ok(FrameKind::Updates),
            b"fence" => Ok(FrameKind::Fence),
            b"skip" => Ok(FrameKind::Skip),
            b"genesis" => Ok(FrameKind::Genesis),
            _ => Err(FrameError::Field("kind")),
        }
    }

    fn number<N: FromStr>(&mut self, key: &str, name: &'static str) -> Result<N, FrameError> {
        self.skip(key).ok_or(FrameError::Field(name))?;
        let is_digit = |byte: &u8| byte.is_ascii_digit() || *byte == b'-';
        let length = self.0.iter().take_while(|byte| is_digit(byte)).count();
        let (digits, rest) = self.0.split_at(length);
        self.0 = rest;
        if digits.len() > 1 && matches!(digits, [b'0', ..] | [b'-', b'0', ..]) {
            return Err(FrameError::Field(name));
        }
        let number = str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
        number.ok_or(FrameError::Field(name))
    }

    fn hexadecimal(
        &mut self,
        key: &str,
        name: &'static str,
        digits: usize,
    ) -> Result<u128, FrameError> {
        let bytes = self.quoted(key, name)?;
        let text = str::from_utf8(bytes).map_err(|_| FrameError::Field(name))?;
        if text.len() != digits
            || !text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        {
            return Err(FrameError::Field(name));
        }
        u128::from_str_radix(text, 16).map_err(|_| FrameError::Field(name))
    }
}
