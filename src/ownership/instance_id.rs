//! Finds the reason why the group has given our instance id to another member: the coordinator may
//! have forgotten us, or two instances may share the id.
//!
//! A coordinator that was killed may come back without its newest members, and fence those that it
//! has forgotten. One that is slow may take our own earlier request to join for another member's.
//! Two instances that share an id fence each other again and again, although the group is there.

use std::time::{Duration, Instant};

/// How many losses of its instance id within [`FORGOTTEN`] a member bears that count: two instances
/// that share an id lose it again and again.
const LOSSES_MAX: usize = 1;

/// How long a process has to have been a member before the loss of its id counts: brokers have
/// answered by then what it sent before, however slow they are.
const HELD_MIN: Duration = Duration::from_secs(60);

/// Time after which the loss of an instance id is forgotten.
const FORGOTTEN: Duration = Duration::from_secs(900);

/// Milliseconds between two checks of the clock after which this process has stood still for so
/// long that the group may have removed it: with their defaults, brokers allow no shorter group
/// session.
const STOOD_STILL_MS_MIN: u64 = 6_000;

/// Time after which a standstill or the group's absence explains nothing any more.
const EXPLAINS: Duration = Duration::from_secs(60);

/// Milliseconds between two attempts to join again.
pub(super) const REJOIN_MS: u64 = 1_000;

/// How often the wait before a member joins again doubles: each attempt makes the others join
/// again, too, and a group that is slow gets slower. The longest is more than [`HELD_MIN`]: of two
/// instances that share an id, each holds it for so long.
const DOUBLINGS_MAX: u32 = 6;

/// Why the group has given our instance id to another member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdLoss {
    /// This process stood still for this long, as under SIGSTOP: the group removed it, and its own
    /// new membership has the id.
    StoodStill(Duration),
    /// A broker was away, or the group had given us up: it may not know us any more, or it has
    /// answered an old request of ours late and takes it for another member.
    GroupAway,
    /// No known reason: another process may use the id, or a slow broker has answered an old
    /// request of ours.
    Unexplained,
}

/// The times at which our instance id was given away.
#[derive(Debug, Default)]
pub(crate) struct InstanceIdLosses {
    /// Losses that count.
    counted: Vec<Instant>,
    /// When a broker did not answer last, or the group gave us up.
    group_away_at: Option<Instant>,
    /// When the clock was checked last.
    checked_at: Option<Instant>,
    /// When a standstill ended, and how long it was.
    stood_still: Option<(Instant, Duration)>,
    /// The last loss, and how many came in a row, each soon after we had joined again.
    last: Option<(Instant, u32)>,
}

impl InstanceIdLosses {
    /// Takes the current time. If the process stood still since the last check, returns how long.
    pub(crate) fn check_clock(&mut self, now: Instant) -> Option<Duration> {
        let before = self.checked_at.replace(now).unwrap_or(now);
        let pause = now.saturating_duration_since(before);
        let stood_still = pause >= Duration::from_millis(STOOD_STILL_MS_MIN);
        stood_still.then(|| {
            self.stood_still = Some((now, pause));
            pause
        })
    }

    /// A broker does not answer, or the group has given us up: its first answers once it is back
    /// may be wrong.
    pub(crate) fn group_is_away(&mut self, now: Instant) {
        self.group_away_at = Some(now);
    }

    /// Our id was given away after we have been a member for so long: returns why, or `None` if
    /// that happened too often for us to join again. A standstill explains one loss. An absence
    /// explains several: a request to join that the old coordinator has never answered may reach
    /// the new one late.
    pub(crate) fn lose(&mut self, now: Instant, held_for: Duration) -> Option<IdLoss> {
        let is_near = |end: Instant| now.saturating_duration_since(end) < EXPLAINS;
        let is_kept = |at: Instant| now.saturating_duration_since(at) < FORGOTTEN;
        let is_stable = held_for >= HELD_MIN;
        let before = self.last.filter(|(at, _)| is_kept(*at) && !is_stable);
        let before = before.map_or(0, |(_, count)| count);
        self.last = Some((now, before + 1));
        if let Some((_, pause)) = self.stood_still.take().filter(|(end, _)| is_near(*end)) {
            return Some(IdLoss::StoodStill(pause));
        }
        if self.group_away_at.is_some_and(is_near) {
            return Some(IdLoss::GroupAway);
        }
        self.counted.retain(|at| is_kept(*at));
        if is_stable {
            self.counted.push(now);
        }
        (self.counted.len() <= LOSSES_MAX).then_some(IdLoss::Unexplained)
    }

    /// How long to wait after the last loss before joining again.
    pub(crate) fn wait(&self) -> Duration {
        match self.last {
            None | Some((_, 1)) => Duration::ZERO,
            Some((_, count)) => Duration::from_millis(REJOIN_MS << (count - 2).min(DOUBLINGS_MAX)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_that_shares_its_id_gives_up_and_one_whose_broker_was_away_does_not() {
        let now = Instant::now();
        let mut losses = InstanceIdLosses::default();
        for _ in 0..100 {
            losses.group_is_away(now);
            assert_eq!(losses.lose(now, HELD_MIN), Some(IdLoss::GroupAway));
        }
        let now = now + EXPLAINS;
        for _ in 0..100 {
            let lost = losses.lose(now, HELD_MIN - Duration::from_millis(1));
            assert_eq!(lost, Some(IdLoss::Unexplained), "it may be an old request of ours");
        }
        for _ in 0..LOSSES_MAX {
            assert_eq!(losses.lose(now, HELD_MIN), Some(IdLoss::Unexplained));
        }
        assert_eq!(losses.lose(now, HELD_MIN), None);
        losses.group_is_away(now);
        assert_eq!(losses.lose(now, HELD_MIN), Some(IdLoss::GroupAway));
        assert_eq!(losses.lose(now + EXPLAINS, HELD_MIN), None, "it was long ago");
        let later = now + EXPLAINS + FORGOTTEN;
        assert!(losses.lose(later, HELD_MIN).is_some(), "the others are long ago");
    }

    /// Each joins again once its wait is over, and so takes the id from the other one.
    #[test]
    fn of_two_instances_that_share_an_id_one_gives_up_within_ten_minutes() {
        let begun = Instant::now();
        let (mut both, mut now) = ([(); 2].map(|()| InstanceIdLosses::default()), begun);
        let mut held_since = begun;
        let ended = (0..).map(|turn| turn % 2).find(|loser| {
            let lost = both[*loser].lose(now, now - held_since);
            held_since = now;
            now += both[*loser].wait();
            lost.is_none()
        });
        assert!(ended.is_some() && now - begun < Duration::from_secs(600), "{:?}", now - begun);
    }

    #[test]
    fn a_process_that_stood_still_has_lost_its_id_to_nobody() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let mut losses = InstanceIdLosses::default();
        assert_eq!(losses.check_clock(at(0)), None);
        assert_eq!(losses.check_clock(at(STOOD_STILL_MS_MIN - 1)), None);
        assert_eq!(losses.lose(at(STOOD_STILL_MS_MIN - 1), HELD_MIN), Some(IdLoss::Unexplained));
        let pause = Duration::from_millis(30_001 - STOOD_STILL_MS_MIN);
        assert_eq!(losses.check_clock(at(30_000)), Some(pause));
        assert_eq!(losses.check_clock(at(30_010)), None);
        assert_eq!(losses.lose(at(30_500), HELD_MIN), Some(IdLoss::StoodStill(pause)));
        assert_eq!(losses.lose(at(30_600), HELD_MIN), None, "it explains one loss");
        let mut losses = InstanceIdLosses::default();
        losses.check_clock(at(30_010));
        losses.check_clock(at(40_010));
        losses.check_clock(at(40_020));
        let late = at(40_010) + EXPLAINS;
        assert_eq!(losses.lose(late, HELD_MIN), Some(IdLoss::Unexplained), "it was long ago");
    }
}
