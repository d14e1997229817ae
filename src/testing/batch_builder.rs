//! Builds record batches and Fetch responses byte by byte, valid or not.

use std::io::Write;

use crate::kafka::aborted::{AbortedTransactions, Marker};
use crate::kafka::checksum::crc32c;
use crate::kafka::codec::Decompressor;
use crate::kafka::record_batch::{BATCH_HEADER_BYTES, Batch, BatchError, Batches};
use crate::kafka::wire::WireWriter;

/// The bound that the tests give to batches.
pub const BATCH_BYTES_MAX: usize = 1024 * 1024;

/// A record with everything owned: what is written and what is read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owned {
    pub offset: i64,
    pub timestamp_ms: i64,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
}

/// How the records of a test batch are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    None,
    Gzip,
    SnappyRaw,
    SnappyXerial,
    Lz4Independent,
    Lz4Linked,
    Zstd,
}

pub const PACKINGS: [Packing; 7] = [
    Packing::None,
    Packing::Gzip,
    Packing::SnappyRaw,
    Packing::SnappyXerial,
    Packing::Lz4Independent,
    Packing::Lz4Linked,
    Packing::Zstd,
];

impl Packing {
    pub fn attributes(self) -> i16 {
        match self {
            Packing::None => 0,
            Packing::Gzip => 1,
            Packing::SnappyRaw | Packing::SnappyXerial => 2,
            Packing::Lz4Independent | Packing::Lz4Linked => 3,
            Packing::Zstd => 4,
        }
    }

    pub fn compress(self, plain: &[u8]) -> Vec<u8> {
        match self {
            Packing::None => plain.to_vec(),
            Packing::Gzip => {
                let mut encoder = flate2::GzBuilder::new()
                    .filename("a name")
                    .comment("a comment")
                    .extra(vec![1, 2, 3])
                    .write(Vec::new(), flate2::Compression::fast());
                encoder.write_all(plain).unwrap();
                encoder.finish().unwrap()
            }
            Packing::SnappyRaw => snap::raw::Encoder::new().compress_vec(plain).unwrap(),
            Packing::SnappyXerial => xerial(plain),
            Packing::Lz4Independent => lz4(plain, lz4_flex::frame::BlockMode::Independent),
            Packing::Lz4Linked => lz4(plain, lz4_flex::frame::BlockMode::Linked),
            Packing::Zstd => zstd::bulk::compress(plain, 1).unwrap(),
        }
    }
}

fn xerial(plain: &[u8]) -> Vec<u8> {
    let mut out = b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01".to_vec();
    for chunk in plain.chunks(1000) {
        let block = snap::raw::Encoder::new().compress_vec(chunk).unwrap();
        out.extend_from_slice(&(block.len() as u32).to_be_bytes());
        out.extend_from_slice(&block);
    }
    out
}

fn lz4(plain: &[u8], mode: lz4_flex::frame::BlockMode) -> Vec<u8> {
    let linked = mode == lz4_flex::frame::BlockMode::Linked;
    let info = lz4_flex::frame::FrameInfo::new()
        .block_mode(mode)
        .block_size(lz4_flex::frame::BlockSize::Max64KB)
        .block_checksums(linked)
        .content_checksum(!linked)
        .content_size((!linked).then_some(plain.len() as u64));
    let mut encoder = lz4_flex::frame::FrameEncoder::with_frame_info(info, Vec::new());
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

/// Everything about a batch that a test may want to be different.
#[derive(Clone, Debug)]
pub struct BatchPlan {
    pub base_offset: i64,
    pub base_timestamp_ms: i64,
    pub max_timestamp_ms: i64,
    pub attributes: i16,
    pub last_offset_delta: i32,
    pub producer_id: i64,
    pub record_count: i32,
    pub packing: Packing,
    /// The records as they are stored, before compression.
    pub body: Vec<u8>,
}

impl BatchPlan {
    /// A valid batch of these records, whose offsets must rise.
    pub fn new(records: &[Owned]) -> BatchPlan {
        let first = &records[0];
        let mut body = Vec::new();
        for record in records {
            append_record(record, first.offset, first.timestamp_ms, 0, &mut body);
        }
        BatchPlan {
            base_offset: first.offset,
            base_timestamp_ms: first.timestamp_ms,
            max_timestamp_ms: records.iter().map(|record| record.timestamp_ms).max().unwrap(),
            attributes: 0,
            last_offset_delta: (records[records.len() - 1].offset - first.offset) as i32,
            producer_id: -1,
            record_count: records.len() as i32,
            packing: Packing::None,
            body,
        }
    }

    /// The batch's bytes, with the checksum that belongs to them.
    pub fn build(&self) -> Vec<u8> {
        let stored = self.packing.compress(&self.body);
        let mut out = Vec::new();
        let mut writer = WireWriter::new(&mut out);
        writer.i64(self.base_offset);
        writer.i32((BATCH_HEADER_BYTES - 12 + stored.len()) as i32);
        writer.i32(7); // partition leader epoch
        writer.i8(2);
        writer.u32(0);
        writer.i16(self.attributes | self.packing.attributes());
        writer.i32(self.last_offset_delta);
        writer.i64(self.base_timestamp_ms);
        writer.i64(self.max_timestamp_ms);
        writer.i64(self.producer_id);
        writer.i16(0);
        writer.i32(-1);
        writer.i32(self.record_count);
        writer.raw(&stored);
        seal(&mut out);
        out
    }
}

/// Writes the checksum that the bytes of this batch have now.
pub fn seal(batch: &mut [u8]) {
    let crc = crc32c(&batch[21..]);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
}

/// Appends a record with `headers` headers, one of them with a null value.
pub fn append_record(
    record: &Owned,
    base_offset: i64,
    base_timestamp_ms: i64,
    headers: i32,
    out: &mut Vec<u8>,
) {
    let mut body = Vec::new();
    let mut writer = WireWriter::new(&mut body);
    writer.i8(0);
    writer.varlong(record.timestamp_ms - base_timestamp_ms);
    writer.varint((record.offset - base_offset) as i32);
    for field in [&record.key, &record.value] {
        match field {
            Some(bytes) => {
                writer.varint(bytes.len() as i32);
                writer.raw(bytes);
            }
            None => writer.varint(-1),
        }
    }
    writer.varint(headers);
    for header in 0..headers {
        writer.varint(1);
        writer.raw(b"h");
        writer.varint(if header == 0 { -1 } else { 0 });
    }
    WireWriter::new(out).varint(body.len() as i32);
    out.extend_from_slice(&body);
}

/// `count` records from `offset` on, of game-like size and repetition.
pub fn records(offset: i64, count: i64) -> Vec<Owned> {
    (0..count)
        .map(|place| Owned {
            offset: offset + place,
            timestamp_ms: 1_767_225_600_000 + place * 3 % 50,
            key: (place % 3 != 0).then(|| format!("player-{}", place % 7).into_bytes()),
            value: (place % 11 != 5).then(|| {
                format!("{{\"type\":\"move\",\"player_id\":{place},\"x\":{}}}", place * 37)
                    .into_bytes()
            }),
        })
        .collect()
}

/// Reads one batch completely.
pub fn read_batch(bytes: &mut [u8], offset_min: i64) -> Result<Vec<Owned>, BatchError> {
    let mut decompressor = Decompressor::new(BATCH_BYTES_MAX);
    match Batch::read(bytes, BATCH_BYTES_MAX)? {
        Some(batch) => read_records(batch, offset_min, &mut decompressor),
        None => Ok(Vec::new()),
    }
}

/// Reads all whole batches of a partition's records.
pub fn read_batches(
    bytes: &mut [u8],
    offset_min: i64,
    decompressor: &mut Decompressor,
) -> Result<Vec<Owned>, BatchError> {
    let mut all = Vec::new();
    for batch in Batches::new(bytes, BATCH_BYTES_MAX) {
        all.extend(read_records(batch?, offset_min, decompressor)?);
    }
    Ok(all)
}

/// Reads the records of one batch.
pub fn read_records(
    batch: Batch<'_>,
    offset_min: i64,
    decompressor: &mut Decompressor,
) -> Result<Vec<Owned>, BatchError> {
    let mut records = batch.open(offset_min, decompressor)?;
    let mut all = Vec::new();
    while let Some(record) = records.next_record()? {
        all.push(Owned {
            offset: record.offset,
            timestamp_ms: record.timestamp_ms,
            key: record.key.map(<[u8]>::to_vec),
            value: record.value().map(<[u8]>::to_vec),
        });
    }
    Ok(all)
}

/// Reads the records of a partition's valid batches, without aborted ones and markers.
pub fn read_committed(
    bytes: &mut [u8],
    offset_min: i64,
    aborted: &mut AbortedTransactions,
    decompressor: &mut Decompressor,
) -> Vec<Owned> {
    let mut all = Vec::new();
    for batch in Batches::new(bytes, BATCH_BYTES_MAX) {
        let batch = batch.unwrap();
        let header = batch.header;
        let covered = aborted.covers(&header);
        let records = read_records(batch, offset_min, decompressor).unwrap();
        if header.is_control() {
            let key = records.first().and_then(|record| record.key.as_deref());
            if let Some(marker) = key.and_then(Marker::from_key) {
                aborted.pass(&header, marker);
            }
        } else if !covered {
            all.extend(records);
        }
    }
    all
}
