//! Counts by partition and by a name from a closed list of another module.

use super::progress::SHARDS_MAX;
use std::sync::atomic::{AtomicU64, Ordering};

/// Limit of names in a tally: 128 of them take a megabyte. Kafka's error codes are the longest
/// list.
const TALLY_NAMES_MAX: usize = 128;

/// One count per partition and name, written by one thread.
pub struct Tally {
    names: Box<[&'static str]>,
    /// One row of names per partition.
    counts: Box<[AtomicU64]>,
}

impl Tally {
    /// All zero. The names are in the order of their codes; an empty name marks a code that never
    /// occurs. Without names nothing is counted.
    pub fn new(names: &[&'static str]) -> Tally {
        assert!(names.len() <= TALLY_NAMES_MAX);
        let counts = (0..names.len() * SHARDS_MAX).map(|_| AtomicU64::new(0)).collect();
        Tally { names: names.into(), counts }
    }

    /// Returns a bit for each of the first 64 codes that can occur.
    pub(crate) fn codes(&self) -> u64 {
        let codes = (0..u64::BITS).zip(&self.names).filter(|(_, name)| !name.is_empty());
        match self.names.is_empty() {
            true => u64::MAX,
            false => codes.fold(0, |codes, (code, _)| codes | 1 << code),
        }
    }

    /// Adds `n` to the name with this code. Only the tally's writing thread may call this.
    pub fn add(&self, partition: i32, code: usize, n: u64) {
        if self.names.is_empty() {
            return;
        }
        let is_named = self.names.get(code).is_some_and(|name| !name.is_empty());
        assert!(is_named, "the list of names is closed");
        let partition = usize::try_from(partition).expect("partition numbers are not negative");
        let count = &self.counts[partition * self.names.len() + code];
        count.store(count.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// All counts, zeros included, as partition, name and count, in this order.
    pub fn counts(&self) -> impl Iterator<Item = (i32, &'static str, u64)> {
        let rows = (0..).zip(self.counts.chunks(self.names.len().max(1)));
        rows.flat_map(|(partition, row)| {
            let row = row.iter().map(|count| count.load(Ordering::Relaxed));
            self.names.iter().zip(row).map(move |(name, count)| (partition, *name, count))
        })
    }

    /// The sum of all counts.
    pub fn total(&self) -> u64 {
        self.counts.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_kept_by_partition_and_name() {
        let tally = Tally::new(&["too_far", "no_treasure"]);
        tally.add(0, 1, 2);
        tally.add(3, 0, 1);
        tally.add(3, 0, 1);
        assert_eq!(tally.counts().count(), 2 * SHARDS_MAX);
        let counted: Vec<_> = tally.counts().filter(|(.., count)| *count > 0).collect();
        assert_eq!(counted, [(0, "no_treasure", 2), (3, "too_far", 2)]);
        assert_eq!(tally.total(), 4);
    }

    #[test]
    fn a_code_without_a_name_is_a_bug_whatever_comes_behind_it() {
        let tally = Tally::new(&["too_far", "", "no_treasure"]);
        let counts = |code| std::panic::catch_unwind(|| tally.add(0, code, 1)).is_ok();
        assert_eq!([0, 1, 2, 3].map(counts), [true, false, true, false]);
        assert_eq!(tally.total(), 2);
    }

    #[test]
    fn a_tally_without_names_counts_nothing() {
        let tally = Tally::new(&[]);
        tally.add(0, 5, 1);
        assert_eq!((tally.counts().count(), tally.total()), (0, 0));
    }
}
