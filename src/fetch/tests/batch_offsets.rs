//! Batches at unexpected offsets: no checksum covers where a batch begins.

use super::{Daemon, metadata, partition_answer};
use crate::ownership::event::{InputTrouble, ToControl};
use crate::testing::batch_builder::{BatchPlan, Owned};

/// Records of each batch.
const BATCH_RECORDS: i64 = 10;

impl Daemon {
    /// Answers the nth Fetch of a task, the only outstanding one: partition 0 has a batch at this
    /// offset.
    fn answer_with_batch(&mut self, nth: u32, base_offset: i64) {
        let null = |offset| Owned { offset, timestamp_ms: 0, key: None, value: None };
        let records: Vec<Owned> = (0..BATCH_RECORDS).map(null).collect();
        let batch = BatchPlan { base_offset, ..BatchPlan::new(&records) }.build();
        self.answer(nth, 0, &partition_answer(0, &batch));
    }
}

#[test]
fn a_batch_that_one_connection_puts_elsewhere_is_fetched_again_before_it_is_used() {
    for bit in [0, 1, 2, 3, 4, 40] {
        let mut daemon = Daemon::start(metadata(&[1], 1));
        daemon.turn_until_connected(1);
        daemon.answer_with_batch(1, 0);
        daemon.turn_until_connected(1);
        daemon.answer_with_batch(2, BATCH_RECORDS ^ 1 << bit);
        daemon.turn_until_connected(1);
        assert_eq!(daemon.connections.len(), 2, "bit {bit}");
        assert_eq!(daemon.decoded, Vec::from_iter(0..BATCH_RECORDS), "bit {bit}");
        // The third Fetch was outstanding on the first connection.
        daemon.answer_with_batch(4, BATCH_RECORDS);
        daemon.turn_until_connected(1);
        assert_eq!(daemon.decoded, Vec::from_iter(0..2 * BATCH_RECORDS), "bit {bit}");
        assert!(!daemon.cursor.has_failed());
    }
}

/// Compaction leaves such a log. The remaining records are fetched once more.
#[test]
fn a_gap_counts_once_two_connections_have_told_of_it() {
    let mut daemon = Daemon::start(metadata(&[1], 1));
    daemon.turn_until_connected(1);
    for (nth, connections) in [(1, 2), (3, 2), (4, 2)] {
        assert!(daemon.decoded.is_empty());
        daemon.answer_with_batch(nth, 20);
        daemon.turn_until_connected(1);
        assert_eq!(daemon.connections.len(), connections);
    }
    assert_eq!(daemon.decoded, Vec::from_iter(20..20 + BATCH_RECORDS));
    let mut sentences = Vec::new();
    while let Some(report) = daemon.reports.try_receive() {
        if let ToControl::InputTrouble { trouble: InputTrouble::RecordsGone(sentence), .. } = report
        {
            sentences.push(sentence);
        }
    }
    assert_eq!(sentences, ["input partition 0 continues at offset 20 instead of 0"]);
}

/// There is nothing read earlier to compare it with.
#[test]
fn two_answers_have_to_say_where_the_batch_begins_in_which_a_shard_starts() {
    let mut daemon = Daemon::start_at(15, metadata(&[1], 1));
    daemon.turn_until_connected(1);
    for (nth, base_offset) in [(1, 8), (2, 10), (3, 10)] {
        assert!(daemon.decoded.is_empty());
        daemon.answer_with_batch(nth, base_offset);
        daemon.turn_until_connected(1);
    }
    assert_eq!(daemon.decoded, Vec::from_iter(15..20));
    assert_eq!(daemon.connections.len(), 1);
}
