//! Counts how often each record panicked the engine. The control thread keeps the counts over
//! restarts.

use std::collections::BTreeMap;

/// How often each record panicked the engine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PanicCounts {
    counts: BTreeMap<(i32, i64), u32>,
}

impl PanicCounts {
    /// No record has panicked it.
    pub fn new() -> PanicCounts {
        PanicCounts::default()
    }

    /// Counts one more panic of a record, and returns the count.
    pub(crate) fn add(&mut self, partition: i32, offset: i64) -> u32 {
        let count = self.counts.entry((partition, offset)).or_default();
        *count += 1;
        *count
    }

    /// Sets a record's count.
    pub(crate) fn set(&mut self, partition: i32, offset: i64, count: u32) {
        self.counts.insert((partition, offset), count);
    }

    /// The input offsets of a partition with at least this many panics, in ascending order.
    pub(crate) fn offsets(&self, partition: i32, times: u32) -> Vec<i64> {
        let all = self.counts.range((partition, i64::MIN)..=(partition, i64::MAX));
        all.filter(|(_, count)| **count >= times).map(|((_, offset), _)| *offset).collect()
    }

    /// Partition, input offset and count of every record that has panicked the engine.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (i32, i64, u32)> {
        self.counts.iter().map(|((partition, offset), count)| (*partition, *offset, *count))
    }
}
