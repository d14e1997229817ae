//! Records that are not events, with as many of their bytes as fit a dead letter.

use crate::decoder::Decoder;
use crate::decoder::reject::Reject;
use crate::kafka::checksum::crc32c;
use crate::kafka::record::Record;
use crate::kafka::record_batch::{BROKER_BATCH_BYTES, BatchHeader};
use crate::kafka::record_stream::StreamedRecord;
use crate::kit::event::RECORD_BYTES_MAX;
use crate::output::dead_letter::{CutValue, LETTER_HEAD_BYTES_MAX, LetterRun};
use std::cell::Cell;

/// Bytes of a record's key that a letter keeps; a longer key is cut.
const KEY_BYTES_MAX: usize = 4 * 1024;

/// Bytes of a record's value that a letter keeps; a longer value is cut. With the rest of the
/// letter, this fits a topic with default settings.
const VALUE_BYTES_MAX: usize = BROKER_BATCH_BYTES - LETTER_HEAD_BYTES_MAX - KEY_BYTES_MAX;

/// Bytes of letters that a partition may produce per byte of its batches. Junk compresses well, and
/// letters are sent uncompressed: without a limit, a batch of a few kilobytes could hold its zone
/// up for minutes. An uncompressed batch never reaches the limit.
const LETTER_BYTES_PER_BATCH_BYTE: i64 = 64;

/// Burst allowance for a partition's letters: two thousand short ones, or eight of the longest.
const LETTER_CREDIT_BYTES_MAX: i64 = 8 * 1024 * 1024;

/// The timestamp of a record without one.
const TIME_UNKNOWN_MS: i64 = -1;

/// A record that is not a valid event, on its way to the dead-letter topic.
#[derive(Debug)]
pub struct Rejected {
    /// Offset of the record.
    pub offset: i64,
    /// Timestamp of the record, in milliseconds since the Unix epoch.
    pub time_ms: i64,
    /// Why it is not an event.
    pub reject: Reject,
    /// The reason in words, with the offending field or type.
    pub sentence: String,
    /// The record's key, if not null.
    pub key: Option<Vec<u8>>,
    /// The record's value, unchanged, if not null.
    pub value: Option<Vec<u8>>,
    /// Length and checksum of the whole value, if `value` holds only its first bytes.
    pub cut: Option<CutValue>,
    /// The run of records that this reject represents, if it holds no bytes.
    pub run: Option<LetterRun>,
}

impl Rejected {
    /// A reject that holds the whole record.
    pub(super) fn of(reject: Reject, decoder: &mut Decoder, record: &Record<'_>) -> Rejected {
        let value = record.value();
        let cut =
            || value.map(|value| CutValue { bytes: value.len() as u64, crc32c: crc32c(value) });
        let rejected = Rejected {
            offset: record.offset,
            time_ms: record.timestamp_ms,
            reject,
            sentence: decoder.explain(reject, value),
            key: record.key.map(<[u8]>::to_vec),
            value: value.map(|value| first(value, VALUE_BYTES_MAX)),
            cut: None,
            run: None,
        };
        rejected.fit(value.map_or(0, <[u8]>::len) as u64, cut)
    }

    /// A reject of a streamed record, which may hold only the first bytes.
    pub(super) fn of_streamed(
        reject: Reject,
        decoder: &mut Decoder,
        record: &StreamedRecord<'_>,
    ) -> Rejected {
        let value = record.value.map(|value| &value.head[..]);
        let cut =
            || record.value.map(|value| CutValue { bytes: value.bytes, crc32c: value.crc32c() });
        let rejected = Rejected {
            offset: record.offset,
            time_ms: record.timestamp_ms,
            reject,
            sentence: decoder.explain(reject, value),
            key: record.key.map(|key| key.head.clone()),
            value: value.map(|value| first(value, VALUE_BYTES_MAX)),
            cut: None,
            run: None,
        };
        rejected.fit(record.value.map_or(0, |value| value.bytes), cut)
    }

    /// A reject that represents this record and later ones with the same reason, without their
    /// bytes.
    pub(super) fn run(reject: Reject, (offset, time_ms): (i64, i64), sentence: String) -> Rejected {
        Rejected {
            offset,
            time_ms,
            reject,
            sentence,
            key: None,
            value: None,
            cut: None,
            run: Some(LetterRun { last_offset: offset, records: 1 }),
        }
    }

    /// Number of records that it represents.
    pub(crate) fn records(&self) -> u64 {
        self.run.map_or(1, |run| run.records)
    }

    /// Bytes of the record that it holds.
    pub(super) fn record_bytes(&self) -> usize {
        let bytes = |part: &Option<Vec<u8>>| part.as_ref().map_or(0, Vec::len);
        bytes(&self.key) + bytes(&self.value)
    }

    /// A reject that represents the offsets of an unreadable batch, from this one on.
    pub(super) fn batch(offset: i64, sentence: &str) -> Rejected {
        Rejected {
            offset,
            time_ms: TIME_UNKNOWN_MS,
            reject: Reject::UnreadableBatch,
            sentence: sentence.to_owned(),
            key: None,
            value: None,
            cut: None,
            run: None,
        }
    }

    /// Cuts the record to the size of its letter. The letter for a record that an operator skips is
    /// small enough for every topic.
    fn fit(mut self, value_bytes: u64, cut: impl FnOnce() -> Option<CutValue>) -> Rejected {
        let bytes_max = match self.reject {
            Reject::Skipped => RECORD_BYTES_MAX,
            _ => VALUE_BYTES_MAX,
        };
        if let Some(value) = self.value.as_mut().filter(|_| value_bytes > bytes_max as u64) {
            value.truncate(bytes_max);
            self.cut = cut();
        }
        if let Some(key) = &mut self.key {
            key.truncate(KEY_BYTES_MAX);
        }
        self
    }
}

/// Bytes of letters that a partition may still produce. At zero, letters represent runs of records.
#[derive(Debug)]
pub(crate) struct LetterCredit(Cell<i64>);

impl LetterCredit {
    /// Starts with the full allowance.
    pub(crate) fn new() -> LetterCredit {
        LetterCredit(Cell::new(LETTER_CREDIT_BYTES_MAX))
    }

    /// Adds the credit for this many offsets of a batch.
    pub(super) fn earn(&self, header: &BatchHeader, offsets: i64) {
        let credit = self.0.get();
        if credit < LETTER_CREDIT_BYTES_MAX {
            let bytes = i128::from(LETTER_BYTES_PER_BATCH_BYTE) * header.bytes as i128;
            let all = i128::from(header.last_offset() - header.base_offset) + 1;
            let earned = bytes * i128::from(offsets) / all;
            let credit = (i128::from(credit) + earned).min(LETTER_CREDIT_BYTES_MAX.into());
            self.0.set(credit as i64);
        }
    }

    /// Returns whether the next record may have a letter with its bytes, however many these are.
    pub(super) fn is_left(&self) -> bool {
        self.0.get() > 0
    }

    /// Subtracts the cost of a letter.
    pub(super) fn spend(&self, rejected: &Rejected) {
        let bytes = LETTER_HEAD_BYTES_MAX + rejected.record_bytes();
        self.0.set(self.0.get() - bytes as i64);
    }
}

fn first(bytes: &[u8], bytes_max: usize) -> Vec<u8> {
    bytes[..bytes.len().min(bytes_max)].to_vec()
}
