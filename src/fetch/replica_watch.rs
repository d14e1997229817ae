//! Whether the follower replica that a partition is fetched from (KIP-392) stands still: its log
//! does not grow, and the leader's has grown. To those who ask it alone it looks like an idle one.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// Milliseconds for which a follower may lack records of its leader and get none. A sound one gets
/// them within one or two of its own Fetches, of 500 ms each (`replica.fetch.wait.max.ms`). The
/// leader is asked once a second, and the shard counts as standing still after ten.
const FOLLOWER_STILL_MS: u64 = 4_000;

/// An end that no follower has named yet.
const NOT_NAMED: i64 = -1;

/// What is known of the follower.
pub(crate) struct ReplicaWatch {
    /// The highest end of its log that it has named.
    end: Cell<i64>,
    /// Since when it lacks records and has got none, moved on by the time in which it was mute.
    behind_since: Cell<Option<Instant>>,
    /// Until then it reads no question, because it throttles us.
    mute_until: Cell<Option<Instant>>,
}

impl ReplicaWatch {
    /// No follower is asked yet.
    pub(crate) fn new() -> ReplicaWatch {
        let end = Cell::new(NOT_NAMED);
        ReplicaWatch { end, behind_since: Cell::new(None), mute_until: Cell::new(None) }
    }

    /// From now on a follower is asked, maybe another one than before.
    pub(crate) fn begin(&self) {
        self.end.set(NOT_NAMED);
        self.mute_until.set(None);
        self.pause();
    }

    /// The follower says that its log ends here.
    pub(crate) fn ends_at(&self, end: i64) {
        if end > self.end.get() {
            self.end.set(end);
            self.behind_since.set(None);
        }
    }

    /// The partition is not asked for at the moment, so the follower can show nothing.
    pub(crate) fn pause(&self) {
        self.behind_since.set(None);
    }

    /// The follower throttles us: from now on until then it reads no question, so it can show
    /// nothing. The clock stands still meanwhile.
    pub(crate) fn mute(&self, now: Instant, until: Instant) {
        let from = self.mute_until.get().map_or(now, |until| until.max(now));
        let muted = until.saturating_duration_since(from);
        self.behind_since.set(self.behind_since.get().map(|since| since + muted));
        self.mute_until.set(Some(until.max(from)));
    }

    /// The leader says that its log ends here. True: the follower stands still.
    pub(crate) fn leader_ends_at(&self, leader_end: i64, now: Instant) -> bool {
        if self.end.get() >= leader_end {
            self.behind_since.set(None);
            return false;
        }
        let can_show_from = self.mute_until.get().map_or(now, |until| until.max(now));
        let since = self.behind_since.get().unwrap_or(can_show_from);
        self.behind_since.set(Some(since));
        can_show_from.saturating_duration_since(since) >= Duration::from_millis(FOLLOWER_STILL_MS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a watch says in each of these seconds, in which leader and follower end there.
    fn said(watch: &ReplicaWatch, ends: impl IntoIterator<Item = (i64, i64)>) -> Vec<bool> {
        let begun = Instant::now();
        let second = |(second, (leader_end, follower_end))| {
            watch.ends_at(follower_end);
            watch.leader_ends_at(leader_end, begun + Duration::from_secs(second))
        };
        (0..).zip(ends).map(second).collect()
    }

    #[test]
    fn a_follower_that_gets_none_of_its_leaders_records_stands_still_after_four_seconds() {
        let stands = said(&ReplicaWatch::new(), (0..6).map(|second| (100 + second, 50)));
        assert_eq!(stands, [false, false, false, false, true, true]);
        let has_named_none = said(&ReplicaWatch::new(), [(0, -1); 5]);
        assert_eq!(has_named_none.last(), Some(&true));
    }

    #[test]
    fn a_follower_that_gets_records_may_be_far_behind() {
        let gets_some = (0..60).map(|second| (1_000_000, second / 3));
        assert!(!said(&ReplicaWatch::new(), gets_some).contains(&true));
        let is_idle = [(100, 100); 60];
        assert!(!said(&ReplicaWatch::new(), is_idle).contains(&true));
        let leader_is_unknown = [(-1, 100); 60];
        assert!(!said(&ReplicaWatch::new(), leader_is_unknown).contains(&true));
    }

    #[test]
    fn time_counts_only_while_the_follower_is_asked_and_lacks_records() {
        let ten_behind = || (0..4).map(|_| (110, 100));
        for interrupt in [ReplicaWatch::pause, ReplicaWatch::begin] {
            let watch = ReplicaWatch::new();
            assert!(!said(&watch, ten_behind()).contains(&true));
            interrupt(&watch);
            assert!(!said(&watch, ten_behind()).contains(&true));
        }
        let has_come = ten_behind().chain([(110, 110)]).chain((0..4).map(|_| (120, 110)));
        assert!(!said(&ReplicaWatch::new(), has_come).contains(&true));
    }

    /// A second is a throttle, and half a second that the follower takes to answer.
    #[test]
    fn the_clock_stands_still_while_the_follower_is_mute_and_then_goes_on() {
        let (watch, begun) = (ReplicaWatch::new(), Instant::now());
        let stands_after = (0..100).find(|half| {
            let now = begun + Duration::from_millis(500 * half);
            if half % 3 == 0 {
                watch.ends_at(50);
                watch.mute(now, now + Duration::from_secs(1));
            }
            watch.leader_ends_at(100, now)
        });
        assert_eq!(stands_after, Some(3 * 8), "eight times half a second");
    }
}
