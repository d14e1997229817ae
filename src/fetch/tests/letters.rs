//! The limits of the dead letters of one batch.

use super::{Daemon, metadata, partition_answer};
use crate::output::dead_letter::LETTER_HEAD_BYTES_MAX;
use crate::telemetry::metrics::Counter;
use crate::testing::batch_builder::{BatchPlan, Owned, Packing};

/// Records of a batch that compresses well.
const RECORDS: i64 = 40_000;

/// Bytes of letters that a partition may produce at once, and per byte of its batches.
const LETTER_BYTES: (usize, usize) = (8 * 1024 * 1024, 64);

fn batch(packing: Packing, records: i64, value: impl Fn(i64) -> Option<Vec<u8>>) -> Vec<u8> {
    plan(packing, records, value).build()
}

fn plan(packing: Packing, records: i64, value: impl Fn(i64) -> Option<Vec<u8>>) -> BatchPlan {
    let record = |offset| Owned { offset, timestamp_ms: 7, key: None, value: value(offset) };
    let records: Vec<Owned> = (0..records).map(record).collect();
    BatchPlan { packing, ..BatchPlan::new(&records) }
}

fn decoded(batch: &[u8], records: i64) -> Daemon {
    let mut daemon = Daemon::start(metadata(&[1], 1));
    daemon.turn_until_connected(1);
    decode(&mut daemon, 1, batch, records);
    daemon
}

/// Answers the nth Fetch with this batch, at the end of the log.
fn decode(daemon: &mut Daemon, nth: u32, batch: &[u8], end: i64) {
    daemon.answer(nth, 0, &partition_answer(0, batch));
    let turns = (0..end).take_while(|_| {
        daemon.turn(0);
        daemon.cursor.position.get() < end
    });
    assert!((turns.count() as i64) < end && !daemon.cursor.has_failed());
    // The last block may not be in the queue yet.
    (0..3).for_each(|_| daemon.turn(0));
}

/// The number of letters with a record's bytes, of letters for runs, and of all their records.
fn letters(daemon: &Daemon) -> (usize, usize, u64) {
    let whole = daemon.decoded.len() - daemon.runs.len();
    let in_runs: u64 = daemon.runs.iter().map(|run| run.records).sum();
    (whole, daemon.runs.len(), whole as u64 + in_runs)
}

#[test]
fn the_letters_of_tiny_junk_are_bounded_by_the_bytes_of_its_batch() {
    let batch = batch(Packing::Zstd, RECORDS, |_| None);
    let daemon = decoded(&batch, RECORDS);
    let (whole, runs, records) = letters(&daemon);
    let bytes_max = LETTER_BYTES.0 + LETTER_BYTES.1 * batch.len();
    assert!(whole <= bytes_max / LETTER_HEAD_BYTES_MAX + 1, "{whole} of {} bytes", batch.len());
    assert!(runs <= RECORDS as usize / 500, "{runs}");
    assert_eq!(records, RECORDS as u64, "each is counted once");
    assert_eq!(daemon.metrics.get(Counter::RecordsReceived), RECORDS as u64);
}

/// Alternating between reasons does not evade the limit.
#[test]
fn each_reason_has_a_run_of_its_own() {
    let value =
        |offset: i64| [None, Some(Vec::new()), Some(b"{]".to_vec())][offset as usize % 3].clone();
    let batch = batch(Packing::Zstd, RECORDS, value);
    let daemon = decoded(&batch, RECORDS);
    let (whole, runs, records) = letters(&daemon);
    let bytes_max = LETTER_BYTES.0 + LETTER_BYTES.1 * batch.len();
    assert!(whole <= bytes_max / LETTER_HEAD_BYTES_MAX + 1, "{whole} of {} bytes", batch.len());
    assert!(runs <= 3 * RECORDS as usize / 500, "{runs}");
    assert_eq!(records, RECORDS as u64);
    assert!(daemon.runs.iter().all(|run| run.records > 1), "they are not cut at each reason");
}

#[test]
fn a_few_rejects_and_those_of_uncompressed_events_have_letters_of_their_own() {
    let daemon = decoded(&batch(Packing::Zstd, 1_000, |_| None), 1_000);
    assert_eq!(letters(&daemon), (1_000, 0, 1_000));
    let mut daemon = Daemon::start(metadata(&[1], 1));
    daemon.turn_until_connected(1);
    for nth in 1..=6 {
        let plan = plan(Packing::None, 500, |_| Some(vec![b'x'; 100]));
        let base_offset = 500 * i64::from(nth - 1);
        let batch = BatchPlan { base_offset, ..plan }.build();
        decode(&mut daemon, nth, &batch, base_offset + 500);
    }
    assert_eq!(letters(&daemon), (3_000, 0, 3_000));
}

#[test]
fn what_one_batch_has_spent_is_missing_to_the_next() {
    let first = batch(Packing::Zstd, RECORDS, |_| None);
    let mut daemon = decoded(&first, RECORDS);
    let (before, ..) = letters(&daemon);
    let second = BatchPlan { base_offset: RECORDS, ..plan(Packing::Zstd, RECORDS, |_| None) };
    let second = second.build();
    decode(&mut daemon, 2, &second, 2 * RECORDS);
    let (whole, _, records) = letters(&daemon);
    let bytes_max = LETTER_BYTES.1 * second.len();
    assert!(whole - before <= bytes_max / LETTER_HEAD_BYTES_MAX + 1, "{before}, {whole}");
    assert_eq!(records, 2 * RECORDS as u64);
}
