//! Finds the reason why the group has given our instance id to another member: the coordinator may
//! have forgotten us, or two instances may share the id.
//!
//! A coordinator that was killed may come back without its newest members, and fence those that it
//! has forgotten. One that is slow may take our own earlier request to join for another member's.
//! Two instances that share an id fence each other again and again, although the group is there.

use std::time::{Duration, Instant};

/// How often within [`INSTANCE_ID_TAKEN_S`] a member joins again under its instance id after the
/// group has given it to another one, while the group was there: two instances that share an id do
/// so without end.
const INSTANCE_ID_TAKEN_MAX: u32 = 3;

/// Seconds after which the loss of an instance id is forgotten.
const INSTANCE_ID_TAKEN_S: u64 = 300;

/// Milliseconds between two checks of the clock after which this process has stood still for so
/// long that the group may have removed it: with their defaults, brokers allow no shorter group
/// session.
const STOOD_STILL_MS_MIN: u64 = 6_000;

/// Time after which a standstill or the group's absence explains nothing any more.
const EXPLAINS: Duration = Duration::from_secs(60);

/// Milliseconds between two attempts to join again.
pub(super) const REJOIN_MS: u64 = 1_000;

/// How often the wait before a member joins again doubles: each attempt makes the others join
/// again, too, and a group that is slow gets slower.
const DOUBLINGS_MAX: u32 = 3;

/// Why the group has given our instance id to another member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdLoss {
    /// This process stood still for this long, as under SIGSTOP: the group removed it, and its own
    /// new membership has the id.
    StoodStill(Duration),
    /// A broker was away, or the group had given us up: it may not know us any more, or it has
    /// answered an old request of ours late and takes it for another member.
    GroupAway,
    /// No known reason: another process may use the id.
    Unexplained,
}

/// The times at which our instance id was given away.
#[derive(Debug, Default)]
pub(crate) struct InstanceIdLosses {
    /// Losses without an explanation.
    unexplained: Vec<Instant>,
    /// When a broker did not answer last, or the group gave us up.
    group_away_at: Option<Instant>,
    /// When the clock was checked last.
    checked_at: Option<Instant>,
    /// When a standstill ended, and how long it was.
    stood_still: Option<(Instant, Duration)>,
    /// The last loss, and how many came within [`EXPLAINS`] of each other.
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

    /// Our id was given away: returns why, or `None` if that happened too often for us to join
    /// again. A standstill explains one loss. An absence explains several: a request to join that
    /// the old coordinator has never answered may reach the new one late.
    pub(crate) fn lose(&mut self, now: Instant) -> Option<IdLoss> {
        let is_near = |end: Instant| now.saturating_duration_since(end) < EXPLAINS;
        let before = self.last.filter(|(at, _)| is_near(*at)).map_or(0, |(_, count)| count);
        self.last = Some((now, before + 1));
        if let Some((_, pause)) = self.stood_still.take().filter(|(end, _)| is_near(*end)) {
            return Some(IdLoss::StoodStill(pause));
        }
        if self.group_away_at.is_some_and(is_near) {
            return Some(IdLoss::GroupAway);
        }
        let window = Duration::from_secs(INSTANCE_ID_TAKEN_S);
        self.unexplained.retain(|at| now.saturating_duration_since(*at) < window);
        self.unexplained.push(now);
        let is_bearable = self.unexplained.len() <= INSTANCE_ID_TAKEN_MAX as usize;
        is_bearable.then_some(IdLoss::Unexplained)
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
            assert_eq!(losses.lose(now), Some(IdLoss::GroupAway));
        }
        let now = now + EXPLAINS;
        for _ in 0..INSTANCE_ID_TAKEN_MAX {
            assert_eq!(losses.lose(now), Some(IdLoss::Unexplained));
        }
        assert_eq!(losses.lose(now), None);
        losses.group_is_away(now);
        assert_eq!(losses.lose(now), Some(IdLoss::GroupAway));
        assert_eq!(losses.lose(now + EXPLAINS), None, "it was long ago");
        let later = now + EXPLAINS + Duration::from_secs(INSTANCE_ID_TAKEN_S);
        assert!(losses.lose(later).is_some(), "the others are long ago");
    }

    #[test]
    fn a_process_that_stood_still_has_lost_its_id_to_nobody() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let mut losses = InstanceIdLosses::default();
        assert_eq!(losses.check_clock(at(0)), None);
        assert_eq!(losses.check_clock(at(STOOD_STILL_MS_MIN - 1)), None);
        assert_eq!(losses.lose(at(STOOD_STILL_MS_MIN - 1)), Some(IdLoss::Unexplained));
        let pause = Duration::from_millis(30_001 - STOOD_STILL_MS_MIN);
        assert_eq!(losses.check_clock(at(30_000)), Some(pause));
        assert_eq!(losses.check_clock(at(30_010)), None);
        assert_eq!(losses.lose(at(30_500)), Some(IdLoss::StoodStill(pause)));
        assert_eq!(losses.lose(at(30_600)), Some(IdLoss::Unexplained), "it explains one loss");
        losses.check_clock(at(40_010));
        losses.check_clock(at(40_020));
        let late = at(40_010) + EXPLAINS;
        assert_eq!(losses.lose(late), Some(IdLoss::Unexplained), "it was long ago");
    }
}
