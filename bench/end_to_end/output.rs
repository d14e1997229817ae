//! Follows an output topic: how far each partition's input is accounted for, and that nothing is
//! told twice or left out; where nobody is timed meanwhile, also every update in it.

use huntd::hunt::frames::decode_frame;
use huntd::kafka::codec::Decompressor;
use huntd::kafka::record_batch::{Batch, BatchHeader};
use huntd::kafka::wire::WireReader;
use huntd::output::frame::Chain;
use std::ops::Range;
use support::wire::{self, Connection};

/// Bytes of a batch at most.
const BATCH_BYTES_MAX: usize = 64 << 20;

/// What the records of an output topic are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Frames in either form.
    Frames,
    /// Copies of the input's records.
    Copies,
}

/// A reader of one output topic.
pub(crate) struct Output {
    connection: Connection,
    topic_id: u128,
    kind: Kind,
    offsets: Vec<i64>,
    folds: Vec<Fold>,
    /// Whether every update is read, and not only the frames' headers.
    reads_updates: bool,
    decompressor: Decompressor,
}

/// What one partition has told so far.
#[derive(Clone, Copy, Default)]
pub(crate) struct Fold {
    /// Input offset up to which all is accounted for.
    pub covered: i64,
    pub updates: u64,
    /// Bytes of the frames, before they were compressed.
    bytes: u64,
    /// Over all updates that were read.
    chain: Chain,
}

/// A run of one partition's input that a batch of the output accounts for.
pub(crate) struct Covered {
    pub offsets: Range<i64>,
    /// The batch's timestamp, in milliseconds since the Unix epoch.
    pub time_ms: u64,
}

impl Covered {
    pub(crate) fn events(&self) -> u64 {
        (self.offsets.end - self.offsets.start) as u64
    }
}

impl Output {
    pub(crate) fn new(address: &str, topic: &str, partitions: usize, kind: Kind) -> Output {
        let mut connection = Connection::open(address);
        Output {
            topic_id: connection.topic_id(topic),
            connection,
            kind,
            offsets: vec![0; partitions],
            folds: vec![Fold::default(); partitions],
            reads_updates: false,
            decompressor: Decompressor::new(BATCH_BYTES_MAX),
        }
    }

    /// This reader, reading every update.
    pub(crate) fn reading_updates(self) -> Output {
        Output { reads_updates: true, ..self }
    }

    /// Reads what has come, waiting at most so long for it, and hands out what it accounts for.
    pub(crate) fn follow(&mut self, wait_ms_max: i32, mut covered: impl FnMut(Covered)) {
        let Output { connection, topic_id, kind, offsets, folds, reads_updates, decompressor } =
            self;
        connection.fetch(*topic_id, offsets, wait_ms_max, |partition, bytes| {
            let ranges: Vec<(BatchHeader, Range<usize>)> = wire::batches(bytes).collect();
            for (header, range) in ranges {
                let fold = &mut folds[partition];
                let before = fold.covered;
                match kind {
                    Kind::Frames => {
                        fold_batch(fold, &mut bytes[range], *reads_updates, decompressor);
                    }
                    Kind::Copies => fold.covered = header.last_offset() + 1,
                }
                if fold.covered > before {
                    let offsets = before..fold.covered;
                    let time_ms = header.max_timestamp_ms as u64;
                    covered(Covered { offsets, time_ms });
                }
            }
        });
    }

    /// Input offset up to which all of a partition is accounted for.
    pub(crate) fn covered_of(&self, partition: usize) -> i64 {
        self.folds[partition].covered
    }

    /// Input records that are accounted for.
    pub(crate) fn covered(&self) -> u64 {
        self.folds.iter().map(|fold| fold.covered as u64).sum()
    }

    /// Updates that were told.
    pub(crate) fn updates(&self) -> u64 {
        self.folds.iter().map(|fold| fold.updates).sum()
    }

    /// Bytes of all frames, before they were compressed.
    pub(crate) fn bytes(&self) -> u64 {
        self.folds.iter().map(|fold| fold.bytes).sum()
    }

    /// Hash of all updates that were read.
    pub(crate) fn told(&self) -> u64 {
        self.folds.iter().fold(0, |all, fold| all.rotate_left(7) ^ fold.chain.0)
    }

    /// Where the reading of an output partition goes on.
    pub(crate) fn offset(&self, partition: usize) -> i64 {
        self.offsets[partition]
    }

    /// Output records so far.
    pub(crate) fn records(&self) -> u64 {
        self.offsets.iter().map(|offset| *offset as u64).sum()
    }
}

/// Folds the frames of a batch, and tells how many records it has.
pub(crate) fn fold_batch(
    fold: &mut Fold,
    bytes: &mut [u8],
    reads_updates: bool,
    decompressor: &mut Decompressor,
) -> i64 {
    let batch = Batch::read(bytes, BATCH_BYTES_MAX).expect("the broker's batches are sound");
    let batch = batch.expect("the batch is whole");
    let count = batch.header.record_count.into();
    let mut records = batch.open(0, decompressor).expect("the broker's batches are sound");
    while let Some(record) = records.next_record().expect("the broker's batches are sound") {
        let value = record.value().expect("a frame has a value");
        let Some(head) = Head::read(value) else { continue };
        assert_eq!(head.first_update, fold.updates, "an update is told twice or left out");
        fold.updates += head.count;
        fold.bytes += value.len() as u64;
        if reads_updates {
            let (header, updates) = decode_frame(value).expect("a frame");
            assert_eq!(updates.len() as u64, head.count, "a frame says how many updates it has");
            fold.chain = updates.iter().fold(fold.chain, Chain::with);
            // The peers number their updates and do not chain them.
            let is_chained = header.chain != Chain::default();
            assert!(!is_chained || header.chain == fold.chain, "other updates than were chained");
        }
        fold.covered = fold.covered.max(head.next_offset);
    }
    count
}

/// The part of a frame's header that counts here.
pub(crate) struct Head {
    first_update: u64,
    count: u64,
    next_offset: i64,
}

impl Head {
    /// `None` for a fence.
    pub(crate) fn read(frame: &[u8]) -> Option<Head> {
        if frame.starts_with(b"HNTF") {
            return (frame[5] == 1).then(|| Head::binary(frame));
        }
        let text = frame.strip_prefix(b"{\"version\":2,\"kind\":\"updates\"")?;
        let head = str::from_utf8(&text[..text.len().min(256)]).expect("a header is ASCII");
        Some(Head {
            first_update: number(head, "\"first_update\":") as u64,
            count: number(head, "\"count\":") as u64,
            next_offset: number(head, "\"next_offset\":"),
        })
    }

    fn binary(frame: &[u8]) -> Head {
        let word = |at: usize| {
            let bytes = frame[at..at + 8].first_chunk().expect("eight bytes");
            u64::from_le_bytes(*bytes)
        };
        Head {
            first_update: word(16),
            count: word(24) & u64::from(u32::MAX),
            next_offset: word(32) as i64,
        }
    }
}

fn number(text: &str, key: &str) -> i64 {
    let at = text.find(key).expect("a frame's header has all its fields") + key.len();
    let digits = text[at..].split(|c: char| !c.is_ascii_digit()).next();
    digits.and_then(|digits| digits.parse().ok()).expect("a number")
}

/// Checks the CRC-32C of whole batches, as the reader of frames does.
pub(crate) fn check(bytes: &[u8]) {
    let mut reader = WireReader::new(bytes);
    while reader.left() > 0 {
        reader.i64().expect("a whole batch");
        let length = reader.i32().expect("a whole batch") as usize;
        let range = reader.skip(length).expect("a whole batch");
        let stated = WireReader::resume(bytes, range.start + 5).u32().expect("a whole batch");
        assert_eq!(crc32c::crc32c(&bytes[range.start + 9..range.end]), stated, "damaged bytes");
    }
}
