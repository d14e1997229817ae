//! Detects rivals: owners outside our group, for example another deployment that publishes to the
//! same output.
//!
//! The id of a fence names its deployment, so a fence of our own group is never a rival's. Within a
//! group, only the instance that the group gives a shard to fences it. So a fence of another
//! deployment above ours, in a partition that the group still gives to us, is a rival's. So is a
//! fence whose id names no deployment; a single one of these may be late and come from a former
//! owner. A rival's fences come again and again, because the rival takes back what we take. The one
//! that came later gives up: an owner that had the shard for long before the first foreign fence is
//! most likely the right one.

use crate::output::frame::FENCE_EVERY_MS;
use crate::ownership::START_ERROR_MS_MAX;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Ownerships in a row that a rival ended soon, after which the shard halts.
const OWNERSHIPS_LOST_MAX: u32 = 3;

/// Milliseconds of an ownership after which it does not count as one that was ended soon. A rival
/// takes an output back within a few seconds.
const OWNED_MS_MIN: u64 = 30_000;

/// Milliseconds after a rival published in which it may be the cause of whatever is wrong.
const SUSPECTED_MS: u64 = 60_000;

/// The facts about rivals, by partition, since the group gave us the partition.
#[derive(Debug, Default)]
pub(super) struct Rivals {
    known: BTreeMap<i32, Rivalry>,
}

/// What the last fences in an output say about another owner.
#[derive(Debug, Default)]
struct Rivalry {
    /// The owner epoch of our last fence; 0: we have written none.
    owner_epoch: u64,
    /// When the shard went to the hot thread last.
    opened_at: Option<Instant>,
    /// Ownerships in a row that were ended soon.
    lost: u32,
    /// When a rival was seen to publish last.
    seen_at: Option<Instant>,
    /// Where the output ended when a start failed last.
    output_end: Option<i64>,
    /// Where the output ended when another version was last waited for, and since when.
    awaited: Option<(i64, Instant)>,
    /// Whether something is wrong that a rival would explain.
    is_doubted: bool,
}

/// The state of an output that we are about to fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OutputState {
    /// No fence that the group does not explain.
    Ours,
    /// A rival's fence.
    Taken,
    /// One fence of a rival too many, or one that explains what is wrong with the shard.
    Lost,
}

impl Rivals {
    /// The group has given the partition to us or to others: that explains earlier fences.
    pub(super) fn forget(&mut self, partition: i32) {
        self.known.remove(&partition);
    }

    /// The group says that the partition is ours. `owner_epoch` is the one in force in its output;
    /// `is_foreign` if another deployment has set it.
    pub(super) fn check(
        &mut self,
        partition: i32,
        owner_epoch: u64,
        is_foreign: bool,
        now: Instant,
    ) -> OutputState {
        let rivalry = self.known.entry(partition).or_default();
        if !is_foreign || rivalry.owner_epoch == 0 || owner_epoch <= rivalry.owner_epoch {
            return OutputState::Ours;
        }
        let was_owned_long = rivalry
            .opened_at
            .is_some_and(|at| now.saturating_duration_since(at).as_millis() >= OWNED_MS_MIN.into());
        rivalry.lost = if was_owned_long { 0 } else { rivalry.lost + 1 };
        rivalry.seen_at = Some(now);
        match rivalry.is_doubted || rivalry.lost >= OWNERSHIPS_LOST_MAX {
            true => OutputState::Lost,
            false => OutputState::Taken,
        }
    }

    /// We write a fence of this owner epoch.
    pub(super) fn fence(&mut self, partition: i32, owner_epoch: u64) {
        let rivalry = self.known.entry(partition).or_default();
        (rivalry.owner_epoch, rivalry.output_end) = (owner_epoch, None);
    }

    /// A start has failed, and the output ends here. If it ended earlier the last time, the owner
    /// whose fence is in force lives: a rival, unless the fence `is_ours`. Returns whether an
    /// instance of our group does.
    pub(super) fn start_failed(
        &mut self,
        partition: i32,
        output_end: i64,
        is_ours: bool,
        now: Instant,
    ) -> bool {
        let rivalry = self.known.entry(partition).or_default();
        let before = rivalry.output_end.replace(output_end);
        let is_played = before.is_some_and(|before| before < output_end);
        if is_played && !is_ours {
            rivalry.seen_at = Some(now);
        }
        is_played && is_ours
    }

    /// Returns for how long a start is tried again before its failure counts: until the owner
    /// before us would have been seen.
    pub(super) fn failing_max(&self, partition: i32) -> Duration {
        let rivalry = self.known.get(&partition);
        let may_live = rivalry.is_some_and(|rivalry| rivalry.output_end.is_some());
        let silence_ms_max = if may_live { FENCE_EVERY_MS } else { 0 };
        Duration::from_millis(START_ERROR_MS_MAX + silence_ms_max)
    }

    /// Another version is waited for, and the output ends here.
    pub(super) fn wait(&mut self, partition: i32, output_end: i64, now: Instant) {
        let rivalry = self.known.entry(partition).or_default();
        let before = rivalry.awaited.filter(|(end, _)| *end == output_end);
        rivalry.awaited = Some(before.unwrap_or((output_end, now)));
    }

    /// Returns whether the version that is waited for is silent for longer than a living owner.
    pub(super) fn are_gone(&self, partition: i32, now: Instant) -> bool {
        let awaited = self.known.get(&partition).and_then(|rivalry| rivalry.awaited);
        let silence_max = Duration::from_millis(START_ERROR_MS_MAX + FENCE_EVERY_MS);
        awaited.is_some_and(|(_, since)| now.saturating_duration_since(since) >= silence_max)
    }

    /// The shard goes to the hot thread.
    pub(super) fn opened(&mut self, partition: i32, now: Instant) {
        self.known.entry(partition).or_default().opened_at = Some(now);
    }

    /// The shard's replay has reached the published updates: nothing is wrong with it.
    pub(super) fn trust(&mut self, partition: i32) {
        self.known.entry(partition).or_default().is_doubted = false;
    }

    /// Notes that something is wrong with the shard that a rival would explain. Returns whether
    /// that was noted before.
    pub(super) fn doubt(&mut self, partition: i32) -> bool {
        let rivalry = self.known.entry(partition).or_default();
        std::mem::replace(&mut rivalry.is_doubted, true)
    }

    /// Whether there was a rival recently.
    pub(super) fn are_suspected(&self, partition: i32, now: Instant) -> bool {
        let seen_at = self.known.get(&partition).and_then(|rivalry| rivalry.seen_at);
        let suspected = Duration::from_millis(SUSPECTED_MS);
        seen_at.is_some_and(|at| now.saturating_duration_since(at) < suspected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARTITION: i32 = 3;

    /// One of two deployments that take an output from each other.
    struct Owner {
        rivals: Rivals,
        has_given_up: bool,
    }

    impl Owner {
        fn new() -> Owner {
            Owner { rivals: Rivals::default(), has_given_up: false }
        }

        /// Takes the output over, if it does not give up: the owner epoch in force then.
        fn take(&mut self, owner_epoch: u64, now: Instant) -> u64 {
            if self.rivals.check(PARTITION, owner_epoch, true, now) == OutputState::Lost {
                self.has_given_up = true;
                return owner_epoch;
            }
            self.rivals.fence(PARTITION, owner_epoch + 1);
            self.rivals.opened(PARTITION, now);
            owner_epoch + 1
        }
    }

    #[test]
    fn of_two_deployments_with_one_output_the_one_that_came_later_gives_up() {
        let start = Instant::now();
        let (mut first, mut later) = (Owner::new(), Owner::new());
        let mut now = start;
        let mut owner_epoch = first.take(0, now);
        now += Duration::from_secs(3_600);
        for _ in 0..10 {
            for owner in [&mut later, &mut first] {
                now += Duration::from_secs(3);
                owner_epoch =
                    if owner.has_given_up { owner_epoch } else { owner.take(owner_epoch, now) };
            }
        }
        assert!(later.has_given_up && !first.has_given_up);
        assert!(later.rivals.are_suspected(PARTITION, now));
        assert_eq!(
            first.rivals.check(PARTITION, owner_epoch, true, now),
            OutputState::Ours,
            "it owns the output"
        );
    }

    #[test]
    fn a_fence_that_the_group_explains_is_no_rival_s_and_one_straggler_is_tolerated() {
        let now = Instant::now();
        let mut rivals = Rivals::default();
        assert_eq!(
            rivals.check(PARTITION, 7, true, now),
            OutputState::Ours,
            "of the owner before us"
        );
        rivals.fence(PARTITION, 8);
        assert_eq!(rivals.check(PARTITION, 8, true, now), OutputState::Ours, "our own");
        assert_eq!(rivals.check(PARTITION, 9, true, now), OutputState::Taken);
        rivals.forget(PARTITION);
        assert!(!rivals.are_suspected(PARTITION, now));
        let after_a_move = rivals.check(PARTITION, 12, true, now);
        assert_eq!(after_a_move, OutputState::Ours, "the group has moved it");
    }

    #[test]
    fn fences_of_our_own_deployment_are_no_rival_s_however_many_there_are() {
        let now = Instant::now();
        let mut rivals = Rivals::default();
        for owner_epoch in [1, 4, 7, 10, 13] {
            assert_eq!(rivals.check(PARTITION, owner_epoch, false, now), OutputState::Ours);
            rivals.fence(PARTITION, owner_epoch + 1);
            rivals.opened(PARTITION, now);
        }
        assert!(!rivals.are_suspected(PARTITION, now));
    }

    #[test]
    fn where_something_is_wrong_the_first_fence_of_a_rival_explains_it() {
        let now = Instant::now();
        let mut rivals = Rivals::default();
        rivals.fence(PARTITION, 8);
        assert!(!rivals.doubt(PARTITION));
        assert_eq!(rivals.check(PARTITION, 8, true, now), OutputState::Ours);
        assert!(rivals.doubt(PARTITION), "nobody has taken the output back");
        assert_eq!(rivals.check(PARTITION, 9, true, now), OutputState::Lost);
        rivals.trust(PARTITION);
        assert_eq!(rivals.check(PARTITION, 9, true, now), OutputState::Taken);
    }
}
