//! The daemon's end: releases shards in order. A release ends when everything decoded is applied,
//! published and acknowledged, and a last snapshot is stored, or when its time is over.

use crate::ownership::event::ShardFacts;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Milliseconds for which a daemon that is about to end plays on, so that the others in the group
/// can take its shards over: they hear of it within a heartbeat, and have to load the shards.
pub(crate) const PLAY_ON_MS_MAX: u64 = 10_000;

/// Milliseconds that shards may take to end in order, when the daemon ends.
pub(crate) const RELEASE_MS_MAX: u64 = 2_500;

/// Shards that are being released, with one deadline for all.
#[derive(Debug)]
pub(super) struct Release {
    shards: BTreeMap<i32, Leaving>,
    until: Instant,
}

/// One of the shards.
#[derive(Clone, Copy, Debug)]
struct Leaving {
    /// What to commit for it, if it was on the hot thread.
    settled_offset: Option<i64>,
    /// Whether something is on its way to brokers or to the disk, as far as is known.
    is_busy: bool,
    /// How far its farewell is.
    farewell: Farewell,
    /// Whether the release waits for it. It does not wait for what an earlier ownership left, nor
    /// for a shard that cannot end in order any more.
    is_waited_for: bool,
}

/// The note that says that all frames of an owner are published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Farewell {
    /// It is not time for it, or it never is.
    Unsaid,
    Sent,
    /// In the output, or lost.
    Settled,
}

impl Release {
    /// A release without shards.
    pub(super) fn new(now: Instant) -> Release {
        let until = now + Duration::from_millis(RELEASE_MS_MAX);
        Release { shards: BTreeMap::new(), until }
    }

    /// Adds a shard.
    pub(super) fn add(&mut self, partition: i32, settled_offset: Option<i64>) {
        let farewell = Farewell::Unsaid;
        let leaving = Leaving { settled_offset, is_busy: true, farewell, is_waited_for: true };
        self.shards.insert(partition, leaving);
    }

    /// Adds a shard that is not on the hot thread. What an ownership has left that did not end in
    /// order may wait for ever.
    pub(super) fn add_unopened(&mut self, partition: i32) {
        self.add(partition, None);
        self.give_up(partition);
    }

    /// The shard has failed: what it has on its way may never arrive.
    pub(super) fn give_up(&mut self, partition: i32) {
        if let Some(leaving) = self.shards.get_mut(&partition) {
            (leaving.is_busy, leaving.is_waited_for) = (false, false);
        }
    }

    /// Whether a shard is being released.
    pub(super) fn contains(&self, partition: i32) -> bool {
        self.shards.contains_key(&partition)
    }

    /// Shards that are being released.
    pub(super) fn partitions(&self) -> Vec<i32> {
        self.shards.keys().copied().collect()
    }

    /// Takes where a shard stands.
    pub(super) fn take(&mut self, facts: &ShardFacts) {
        if let Some(leaving) = self.shards.get_mut(&facts.partition) {
            leaving.settled_offset = leaving.settled_offset.map(|_| facts.settled_offset);
            leaving.is_busy = leaving.is_waited_for && facts.is_busy;
        }
    }

    /// The shard has ended on the hot thread. Returns whether its farewell has to be sent: once
    /// everything before it is where it belongs.
    pub(super) fn sends_farewell(&mut self, partition: i32) -> bool {
        let leaving = self.shards.get_mut(&partition);
        let is_due =
            |it: &&mut Leaving| it.is_waited_for && !it.is_busy && it.farewell == Farewell::Unsaid;
        leaving.filter(is_due).map(|leaving| leaving.farewell = Farewell::Sent).is_some()
    }

    /// A note was appended, or lost.
    pub(super) fn noted(&mut self, partition: i32) {
        if let Some(leaving) = self.shards.get_mut(&partition)
            && leaving.farewell == Farewell::Sent
        {
            leaving.farewell = Farewell::Settled;
        }
    }

    /// Whether something of the shards is on its way, as far as is known.
    pub(super) fn is_busy(&self) -> bool {
        let is_busy = |it: &Leaving| it.is_busy || it.farewell == Farewell::Sent;
        self.shards.values().any(is_busy)
    }

    /// Whether the time is over.
    pub(super) fn is_late(&self, now: Instant) -> bool {
        now >= self.until
    }

    /// The input offsets to commit.
    pub(super) fn offsets(&self) -> Vec<(i32, i64)> {
        let settled = |(partition, leaving): (&i32, &Leaving)| {
            leaving.settled_offset.map(|offset| (*partition, offset))
        };
        self.shards.iter().filter_map(settled).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(partition: i32, acked: i64, is_busy: bool) -> ShardFacts {
        ShardFacts {
            partition,
            input_end: 100,
            decoded: acked,
            applied: acked,
            acked,
            settled_offset: acked,
            next_update: 0,
            is_busy,
        }
    }

    #[test]
    fn a_release_is_busy_until_every_shard_says_otherwise_or_its_time_is_over() {
        let now = Instant::now();
        let mut release = Release::new(now);
        release.add(0, Some(10));
        release.add(1, Some(20));
        release.take(&facts(0, 15, false));
        assert!(release.is_busy(), "nothing is known of the other one");
        release.take(&facts(1, 20, true));
        assert!(release.is_busy());
        release.take(&facts(1, 25, false));
        assert!(!release.is_busy());
        assert!(release.sends_farewell(1) && !release.sends_farewell(1));
        assert!(release.is_busy(), "a farewell is on its way");
        release.noted(1);
        assert!(!release.is_busy() && !release.sends_farewell(1));
        assert_eq!(release.offsets(), [(0, 15), (1, 25)]);
        assert!(!release.is_late(now + Duration::from_millis(RELEASE_MS_MAX - 1)));
        assert!(release.is_late(now + Duration::from_millis(RELEASE_MS_MAX)));
    }

    #[test]
    fn a_shard_that_was_not_open_commits_nothing() {
        let mut release = Release::new(Instant::now());
        release.add(0, None);
        release.take(&facts(0, 15, false));
        assert!(release.contains(0) && release.offsets().is_empty());
    }
}
