//! Decompresses the records of a batch into one reused buffer of fixed size.
//!
//! The buffer's size is the limit: whatever a batch claims, nothing is written beyond it and
//! nothing is allocated. The checksums inside the compressed formats are not checked: the batch's
//! CRC-32C covers the compressed bytes.

use flate2::{Decompress, FlushDecompress, Status};
use lz4_flex::block::DecompressError;
use std::io::{self, BufRead, BufReader, Read};
use thiserror::Error;
use zstd::zstd_safe;

/// Bytes that a stream decompresses at a time.
const STREAM_BUFFER_BYTES: usize = 64 * 1024;

/// Upper bound of Snappy's compression ratio, rounded up: three bytes can copy 64.
const SNAPPY_RATIO_MAX: usize = 22;

/// How the records of a batch are compressed: the lowest three bits of its attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// Uncompressed.
    None,
    /// gzip (RFC 1952).
    Gzip,
    /// Snappy, one raw block or several in snappy-java's framing.
    Snappy,
    /// One LZ4 frame.
    Lz4,
    /// Zstandard frames (KIP-110).
    Zstd,
}

impl Codec {
    /// The codec in a batch's attributes; `None` for a number that Kafka has not assigned.
    pub fn from_attributes(attributes: i16) -> Option<Codec> {
        match attributes & 0b111 {
            0 => Some(Codec::None),
            1 => Some(Codec::Gzip),
            2 => Some(Codec::Snappy),
            3 => Some(Codec::Lz4),
            4 => Some(Codec::Zstd),
            _ => None,
        }
    }

    /// The attributes of a batch with this codec and no other flags.
    pub(crate) fn attributes(self) -> i16 {
        match self {
            Codec::None => 0,
            Codec::Gzip => 1,
            Codec::Snappy => 2,
            Codec::Lz4 => 3,
            Codec::Zstd => 4,
        }
    }
}

/// Why compressed records cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CodecError {
    /// The decompressed records exceed the bound.
    #[error("it decompresses to more than batch_bytes_max: raise it, or let producers send less")]
    TooLarge,
    /// The bytes are not valid output of the codec.
    #[error("its compressed bytes are damaged: check the producer and the brokers' disks")]
    Damaged,
}

/// The codecs' working memory and their output buffer.
pub struct Decompressor {
    scratch: Vec<u8>,
    inflate: Decompress,
    snappy: snap::raw::Decoder,
    zstd: zstd_safe::DCtx<'static>,
}

impl Decompressor {
    /// Creates a decompressor with an output limit of `batch_bytes_max` bytes. The memory is
    /// reserved here; pages that no batch reaches are never touched.
    pub fn new(batch_bytes_max: usize) -> Decompressor {
        Decompressor {
            scratch: vec![0; batch_bytes_max],
            inflate: Decompress::new(false),
            snappy: snap::raw::Decoder::new(),
            zstd: zstd_safe::DCtx::create(),
        }
    }

    /// The limit of a batch and of its decompressed size, in bytes.
    pub(crate) fn batch_bytes_max(&self) -> usize {
        self.scratch.len()
    }

    /// Decompresses `input` into the reused buffer and returns the output. `Codec::None` copies.
    pub fn decompress(&mut self, codec: Codec, input: &[u8]) -> Result<&mut [u8], CodecError> {
        let length = self.fill(codec, input)?;
        Ok(self.filled(length))
    }

    /// Decompresses `input` into the reused buffer. Returns the number of bytes.
    pub(crate) fn fill(&mut self, codec: Codec, input: &[u8]) -> Result<usize, CodecError> {
        let output = &mut self.scratch[..];
        match codec {
            Codec::None => copy(input, output),
            Codec::Gzip => gzip(&mut self.inflate, input, output),
            Codec::Snappy => snappy(&mut self.snappy, input, output),
            Codec::Lz4 => lz4(input, output),
            Codec::Zstd => self.zstd.decompress(output, input).map_err(zstd_error),
        }
    }

    /// The first bytes of the reused buffer.
    pub(crate) fn filled(&mut self, bytes: usize) -> &mut [u8] {
        &mut self.scratch[..bytes]
    }
}

/// Returns a reader that decompresses `input` as it is read. It allocates the codec's window.
/// Snappy is decompressed at once: its output is less than [`SNAPPY_RATIO_MAX`] times the input.
pub(crate) fn stream<'a>(
    codec: Codec,
    input: &'a [u8],
) -> Result<Box<dyn BufRead + 'a>, CodecError> {
    Ok(match codec {
        Codec::None => Box::new(input),
        Codec::Gzip => {
            let members = GzipMembers(flate2::bufread::GzDecoder::new(input));
            Box::new(BufReader::with_capacity(STREAM_BUFFER_BYTES, members))
        }
        Codec::Snappy => {
            let mut output = vec![0; input.len() * SNAPPY_RATIO_MAX];
            let length = snappy(&mut snap::raw::Decoder::new(), input, &mut output);
            // No Snappy block can decompress to more than this, so the stated length is wrong.
            output.truncate(length.map_err(|_| CodecError::Damaged)?);
            Box::new(io::Cursor::new(output))
        }
        Codec::Lz4 => {
            let frames = Lz4Frames(lz4_flex::frame::FrameDecoder::new(input));
            Box::new(BufReader::with_capacity(STREAM_BUFFER_BYTES, frames))
        }
        Codec::Zstd => {
            let frames = zstd::stream::read::Decoder::with_buffer(input);
            let frames = frames.map_err(|_| CodecError::Damaged)?;
            Box::new(BufReader::with_capacity(STREAM_BUFFER_BYTES, frames))
        }
    })
}

fn copy(input: &[u8], output: &mut [u8]) -> Result<usize, CodecError> {
    output.get_mut(..input.len()).ok_or(CodecError::TooLarge)?.copy_from_slice(input);
    Ok(input.len())
}

fn zstd_error(code: zstd_safe::ErrorCode) -> CodecError {
    // ZSTD_error_dstSize_tooSmall, returned as its negative; zstd keeps this number stable.
    const OUTPUT_TOO_SMALL: usize = 70;
    if code.wrapping_neg() == OUTPUT_TOO_SMALL { CodecError::TooLarge } else { CodecError::Damaged }
}

/// Inflates all gzip members, as [`gzip`] does.
struct GzipMembers<'a>(flate2::bufread::GzDecoder<&'a [u8]>);

impl Read for GzipMembers<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.0.read(out)?;
            let rest = *self.0.get_ref();
            if read > 0 || out.is_empty() || !rest.starts_with(&GZIP_MAGIC) {
                return Ok(read);
            }
            self.0 = flate2::bufread::GzDecoder::new(rest);
        }
    }
}

/// Decompresses all LZ4 frames, as [`lz4`] does.
struct Lz4Frames<'a>(lz4_flex::frame::FrameDecoder<&'a [u8]>);

impl Read for Lz4Frames<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.0.read(out)?;
            if read > 0 || out.is_empty() || self.0.get_ref().is_empty() {
                return Ok(read);
            }
        }
    }
}

/// The start of a gzip member: its magic number, and deflate as its method.
const GZIP_MAGIC: [u8; 3] = [0x1f, 0x8b, 8];

/// Inflates all gzip members of `input`. Other bytes after a member are ignored, as Java's decoder
/// and librdkafka do: some producers pad their buffers.
///
/// The member's header is read here, because flate2 can reset a raw deflate state without an
/// allocation, but not a gzip one.
fn gzip(
    inflate: &mut Decompress,
    mut input: &[u8],
    output: &mut [u8],
) -> Result<usize, CodecError> {
    const TRAILER_BYTES: usize = 8;
    let mut written = 0;
    while !input.is_empty() {
        input = gzip_body(input).ok_or(CodecError::Damaged)?;
        inflate.reset(false);
        let status = inflate
            .decompress(input, &mut output[written..], FlushDecompress::Finish)
            .map_err(|_| CodecError::Damaged)?;
        written += inflate.total_out() as usize;
        if status != Status::StreamEnd {
            let full = written == output.len();
            return Err(if full { CodecError::TooLarge } else { CodecError::Damaged });
        }
        let end = inflate.total_in() as usize + TRAILER_BYTES;
        input = input.get(end..).ok_or(CodecError::Damaged)?;
        if !input.starts_with(&GZIP_MAGIC) {
            break;
        }
    }
    Ok(written)
}

/// Returns the bytes after the header of a gzip member (RFC 1952, section 2.3).
fn gzip_body(member: &[u8]) -> Option<&[u8]> {
    const HEADER_CRC: u8 = 1 << 1;
    const EXTRA: u8 = 1 << 2;
    const NAME: u8 = 1 << 3;
    const COMMENT: u8 = 1 << 4;
    let (header, mut rest) = member.split_at_checked(10)?;
    if header[..3] != GZIP_MAGIC {
        return None;
    }
    let flags = header[3];
    if flags & EXTRA != 0 {
        let length = u16::from_le_bytes(*rest.first_chunk()?);
        rest = rest.get(2 + usize::from(length)..)?;
    }
    for text in [NAME, COMMENT] {
        if flags & text != 0 {
            let end = rest.iter().position(|&byte| byte == 0)?;
            rest = &rest[end + 1..];
        }
    }
    if flags & HEADER_CRC != 0 {
        rest = rest.get(2..)?;
    }
    Some(rest)
}

/// Decompresses one raw Snappy block, or blocks in the framing of snappy-java, which Java clients
/// write: a magic, two version numbers, then blocks, each after its big-endian length.
fn snappy(
    decoder: &mut snap::raw::Decoder,
    input: &[u8],
    output: &mut [u8],
) -> Result<usize, CodecError> {
    const XERIAL_MAGIC: &[u8] = b"\x82SNAPPY\0";
    const XERIAL_HEADER_BYTES: usize = 16;
    if !input.starts_with(XERIAL_MAGIC) {
        return snappy_block(decoder, input, output);
    }
    let mut blocks = input.get(XERIAL_HEADER_BYTES..).ok_or(CodecError::Damaged)?;
    let mut written = 0;
    while !blocks.is_empty() {
        let (length, rest) = blocks.split_first_chunk().ok_or(CodecError::Damaged)?;
        let length = u32::from_be_bytes(*length) as usize;
        let (block, rest) = rest.split_at_checked(length).ok_or(CodecError::Damaged)?;
        written += snappy_block(decoder, block, &mut output[written..])?;
        blocks = rest;
    }
    Ok(written)
}

fn snappy_block(
    decoder: &mut snap::raw::Decoder,
    block: &[u8],
    output: &mut [u8],
) -> Result<usize, CodecError> {
    decoder.decompress(block, output).map_err(|error| match error {
        snap::Error::BufferTooSmall { .. } => CodecError::TooLarge,
        _ => CodecError::Damaged,
    })
}

/// Decompresses LZ4 frames (LZ4 Frame Format Description 1.6). The blocks go straight into the
/// output, which also serves as the window of linked blocks.
fn lz4(mut input: &[u8], output: &mut [u8]) -> Result<usize, CodecError> {
    let mut written = 0;
    while !input.is_empty() {
        let frame = Lz4Frame::read(input).ok_or(CodecError::Damaged)?;
        input = &input[frame.header_bytes..];
        let frame_start = written;
        loop {
            let (block, rest) = lz4_block(input, &frame).ok_or(CodecError::Damaged)?;
            input = rest;
            let Some((stored, bytes)) = block else { break };
            let (done, free) = output.split_at_mut(written);
            written += if stored {
                copy(bytes, free)?
            } else {
                let window = if frame.linked { &done[frame_start..] } else { &[] };
                let window = &window[window.len().saturating_sub(LZ4_WINDOW_BYTES)..];
                lz4_flex::block::decompress_into_with_dict(bytes, free, window)
                    .map_err(lz4_error)?
            };
        }
    }
    Ok(written)
}

const LZ4_WINDOW_BYTES: usize = 64 * 1024;

struct Lz4Frame {
    header_bytes: usize,
    linked: bool,
    block_checksum_bytes: usize,
    content_checksum_bytes: usize,
}

impl Lz4Frame {
    fn read(bytes: &[u8]) -> Option<Lz4Frame> {
        const MAGIC: [u8; 4] = 0x184D_2204_u32.to_le_bytes();
        let (magic, rest) = bytes.split_first_chunk::<4>()?;
        let flags = *rest.first()?;
        let has = |bit: u8| flags >> bit & 1 == 1;
        let (version, dictionary) = (flags >> 6, has(0));
        if *magic != MAGIC || version != 1 || dictionary {
            return None;
        }
        // Magic, flags, block size, content size if there, header checksum.
        let header_bytes = 4 + 1 + 1 + if has(3) { 8 } else { 0 } + 1;
        (bytes.len() >= header_bytes).then_some(Lz4Frame {
            header_bytes,
            linked: !has(5),
            block_checksum_bytes: if has(4) { 4 } else { 0 },
            content_checksum_bytes: if has(2) { 4 } else { 0 },
        })
    }
}

/// A block and whether it is stored uncompressed (`None` at the end mark), and the rest of the
/// input.
type Lz4Block<'a> = (Option<(bool, &'a [u8])>, &'a [u8]);

fn lz4_block<'a>(input: &'a [u8], frame: &Lz4Frame) -> Option<Lz4Block<'a>> {
    let (size, rest) = input.split_first_chunk()?;
    let size = u32::from_le_bytes(*size);
    if size == 0 {
        return Some((None, rest.get(frame.content_checksum_bytes..)?));
    }
    let stored = size >> 31 == 1;
    let (block, rest) = rest.split_at_checked((size & 0x7fff_ffff) as usize)?;
    Some((Some((stored, block)), rest.get(frame.block_checksum_bytes..)?))
}

fn lz4_error(error: DecompressError) -> CodecError {
    match error {
        DecompressError::OutputTooSmall { .. } => CodecError::TooLarge,
        _ => CodecError::Damaged,
    }
}
