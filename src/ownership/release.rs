//! Releases shards in order. A release ends when everything decoded is applied, published and
//! acknowledged, and a last snapshot is stored, or when its time is over.

use crate::kafka::membership::MembershipEvent;
use crate::ownership::event::ShardFacts;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// Milliseconds that shards may take to end in order, when they are revoked or the daemon stops.
pub(crate) const RELEASE_MS_MAX: u64 = 2_500;

/// Why shards are released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReleaseReason {
    /// The group wants them back.
    Revoked,
    /// The daemon ends.
    Stopping,
}

/// Shards that are being released, with one deadline for all.
#[derive(Debug)]
pub(super) struct Release {
    /// Why.
    pub(super) reason: ReleaseReason,
    shards: BTreeMap<i32, Leaving>,
    until: Instant,
    /// Events of the group that wait. There are few while a revocation is not answered.
    postponed: VecDeque<MembershipEvent>,
}

/// One of the shards.
#[derive(Clone, Copy, Debug)]
struct Leaving {
    /// What to commit for it, if it was on the hot thread.
    settled_offset: Option<i64>,
    /// Whether something is on its way to the broker or to the disk, as far as is known.
    is_busy: bool,
    /// Whether the release waits for it. It does not wait for what an earlier ownership left, nor
    /// for a shard that cannot end in order any more.
    is_waited_for: bool,
}

impl Release {
    /// A release without shards.
    pub(super) fn new(reason: ReleaseReason, now: Instant) -> Release {
        let until = now + Duration::from_millis(RELEASE_MS_MAX);
        Release { reason, shards: BTreeMap::new(), until, postponed: VecDeque::new() }
    }

    /// Adds a shard.
    pub(super) fn add(&mut self, partition: i32, settled_offset: Option<i64>) {
        self.shards
            .insert(partition, Leaving { settled_offset, is_busy: true, is_waited_for: true });
    }

    /// Adds a shard that is not on the hot thread. What an ownership has left that did not end in
    /// order may wait for ever.
    pub(super) fn add_unopened(&mut self, partition: i32) {
        let nothing = Leaving { settled_offset: None, is_busy: false, is_waited_for: false };
        self.shards.insert(partition, nothing);
    }

    /// The shard has failed: what it has on its way may never arrive.
    pub(super) fn give_up(&mut self, partition: i32) {
        if let Some(leaving) = self.shards.get_mut(&partition) {
            (leaving.is_busy, leaving.is_waited_for) = (false, false);
        }
    }

    /// The shard has another owner already: there is nothing to release.
    pub(super) fn remove(&mut self, partition: i32) {
        self.shards.remove(&partition);
        // An assignment of it that waits is void, too.
        for event in &mut self.postponed {
            if let MembershipEvent::Assigned(partitions) = event {
                partitions.retain(|assigned| *assigned != partition);
            }
        }
    }

    /// Whether a shard is being released.
    pub(super) fn contains(&self, partition: i32) -> bool {
        self.shards.contains_key(&partition)
    }

    /// Whether no shard is left.
    pub(super) fn is_empty(&self) -> bool {
        self.shards.is_empty()
    }

    /// Shards that are being released.
    pub(super) fn partitions(&self) -> Vec<i32> {
        self.shards.keys().copied().collect()
    }

    /// Keeps an event of the group until the shards are released.
    pub(super) fn postpone(&mut self, event: MembershipEvent) {
        self.postponed.push_back(event);
    }

    /// Takes the events of the group that waited.
    pub(super) fn into_postponed(self) -> VecDeque<MembershipEvent> {
        self.postponed
    }

    /// Takes where a shard stands.
    pub(super) fn take(&mut self, facts: &ShardFacts) {
        if let Some(leaving) = self.shards.get_mut(&facts.partition) {
            leaving.settled_offset = leaving.settled_offset.map(|_| facts.settled_offset);
            leaving.is_busy = leaving.is_waited_for && facts.is_busy;
        }
    }

    /// Whether something of the shards is on its way, as far as is known.
    pub(super) fn is_busy(&self) -> bool {
        self.shards.values().any(|leaving| leaving.is_busy)
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
        let mut release = Release::new(ReleaseReason::Revoked, now);
        release.add(0, Some(10));
        release.add(1, Some(20));
        release.take(&facts(0, 15, false));
        assert!(release.is_busy(), "nothing is known of the other one");
        release.take(&facts(1, 20, true));
        assert!(release.is_busy());
        release.take(&facts(1, 25, false));
        assert!(!release.is_busy());
        assert_eq!(release.offsets(), [(0, 15), (1, 25)]);
        assert!(!release.is_late(now + Duration::from_millis(RELEASE_MS_MAX - 1)));
        assert!(release.is_late(now + Duration::from_millis(RELEASE_MS_MAX)));
    }

    #[test]
    fn a_shard_that_was_not_open_commits_nothing() {
        let mut release = Release::new(ReleaseReason::Stopping, Instant::now());
        release.add(0, None);
        release.take(&facts(0, 15, false));
        assert!(release.contains(0) && release.offsets().is_empty());
    }

    #[test]
    fn a_lost_shard_is_removed_from_the_events_that_wait() {
        let mut release = Release::new(ReleaseReason::Revoked, Instant::now());
        release.add(0, Some(1));
        release.postpone(MembershipEvent::Assigned(vec![0, 3]));
        release.remove(0);
        assert!(release.is_empty());
        assert_eq!(release.into_postponed(), [MembershipEvent::Assigned(vec![3])]);
    }
}
