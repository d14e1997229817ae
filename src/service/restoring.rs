//! The progress of restoring shards, in words.

use crate::telemetry::progress::Progress;
use std::fmt::{self, Display};
use std::time::Duration;

/// The remaining work of shards before they are live.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Restoring {
    /// Shards that have not reached the end that their input had when they were acquired.
    pub shards: usize,
    /// Shards owned.
    pub owned: usize,
    /// Records that they still have to apply together.
    pub records_to_go: u64,
}

impl Restoring {
    /// Returns the current state.
    pub(crate) fn of(progress: &Progress) -> Restoring {
        let mut restoring = Restoring::default();
        for (_, shard) in progress.owned() {
            restoring.owned += 1;
            let to_go = shard.goal.get() - shard.applied.get();
            if to_go > 0 {
                restoring.shards += 1;
                restoring.records_to_go += to_go.unsigned_abs();
            }
        }
        restoring
    }

    /// Adds the rate of `records` applied in `time`, for a sentence about it.
    pub(crate) fn at_rate(self, records: u64, time: Duration) -> AtRate {
        let micros = time.as_micros().max(1);
        let per_second = u128::from(records) * 1_000_000 / micros;
        AtRate { restoring: self, per_second: u64::try_from(per_second).unwrap_or(u64::MAX) }
    }
}

/// The remaining work, and the rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AtRate {
    restoring: Restoring,
    per_second: u64,
}

impl Display for AtRate {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AtRate { restoring: Restoring { shards, owned, records_to_go }, per_second } = *self;
        write!(out, "restoring {shards} of {owned} shards, {records_to_go} records to go")?;
        if per_second > 0 {
            let seconds = records_to_go.div_ceil(per_second);
            write!(out, " at {per_second}/s, about {seconds} s")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_that_are_behind_their_goal_are_counted_with_what_they_miss() {
        let progress = Progress::new();
        for (partition, ownership_id, goal, applied) in
            [(0, 1, 100, 40), (1, 2, 50, 50), (2, 0, 90, 0), (3, 3, -1, 7)]
        {
            let shard = progress.shard(partition);
            shard.ownership_id.set(ownership_id);
            shard.goal.set(goal);
            shard.applied.set(applied);
        }
        let restoring = Restoring::of(&progress);
        assert_eq!(restoring, Restoring { shards: 1, owned: 3, records_to_go: 60 });
        let words = restoring.at_rate(40, Duration::from_secs(2)).to_string();
        assert_eq!(words, "restoring 1 of 3 shards, 60 records to go at 20/s, about 3 s");
        let words = restoring.at_rate(0, Duration::ZERO).to_string();
        assert_eq!(words, "restoring 1 of 3 shards, 60 records to go");
    }
}
