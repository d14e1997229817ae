//! How far a zone's answers can be trusted to be of now: their lag, and the silence of its owner.
//!
//! A zone without new frames is up to date only if the brokers have lately named its log's end, and
//! everything before that end is folded. Without that proof its lag grows, whatever keeps frames
//! away: a broker that is frozen or gone, or a gap. And a zone whose log is read to its end is of
//! now only while its owner publishes: each tick makes a frame, so silence means that nobody plays
//! the zone.

use crate::output::frame::FENCE_EVERY_MS;
use std::time::{Duration, Instant};

/// The time for which a proof counts. The brokers are asked every second, and may take another one
/// to answer.
const PROOF_AGE_MAX: Duration = Duration::from_secs(3);

/// Milliseconds of silence that an owner may need at least, however often it ticks: a frame waits
/// for brokers, too.
const SILENCE_MS_MIN: u64 = 2_000;

/// For how long the owner of a zone may be silent, if it ticks this often: two ticks, or two
/// repeated fences if these come sooner or it never ticks (0).
pub(crate) fn silence_max(tick_every_ms: u32) -> Duration {
    let fences_ms = 2 * FENCE_EVERY_MS;
    Duration::from_millis(match 2 * u64::from(tick_every_ms) {
        0 => fences_ms,
        ticks_ms => ticks_ms.clamp(SILENCE_MS_MIN, fences_ms),
    })
}

/// The lag of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lag {
    /// Milliseconds from when its newest frame was published to when it was folded.
    frame_ms: u64,
    /// Everything that was published before is folded.
    complete_until: Instant,
    /// When its owner published the last frame or fence that counts.
    owner_heard: Instant,
}

impl Lag {
    /// Everything that is published is folded, and the owner has just published.
    pub fn none(now: Instant) -> Lag {
        Lag { frame_ms: 0, complete_until: now, owner_heard: now }
    }

    /// A frame that was published this many milliseconds ago is folded, and with it all before it.
    pub(crate) fn folded(&mut self, frame_ms: u64, now: Instant) {
        self.frame_ms = frame_ms;
        if let Some(published) = now.checked_sub(Duration::from_millis(frame_ms)) {
            self.complete_until = self.complete_until.max(published);
            self.heard(published);
        }
    }

    /// All before the end that the log had at this time is folded.
    pub(crate) fn confirmed(&mut self, asked: Instant, now: Instant) {
        self.complete_until = self.complete_until.max(asked);
        self.frame_ms = self.frame_ms.min(since(asked, now));
    }

    /// The zone's owner has published at this time, perhaps nothing new.
    pub(crate) fn heard(&mut self, published: Instant) {
        self.owner_heard = self.owner_heard.max(published);
    }

    /// The lag of a zone whose owner was heard last at this time.
    pub(crate) fn of_owner_heard(owner_heard: Instant, now: Instant) -> Lag {
        Lag { owner_heard, ..Lag::none(now) }
    }

    /// Milliseconds.
    pub(crate) fn ms(&self, now: Instant) -> u64 {
        match since(self.complete_until, now) {
            age_ms if u128::from(age_ms) > PROOF_AGE_MAX.as_millis() => age_ms,
            _ => self.frame_ms,
        }
    }

    /// Milliseconds since the owner was heard, if it is silent for longer than it may be.
    pub(crate) fn stale_ms(&self, now: Instant, silence_max: Duration) -> Option<u64> {
        let silent_ms = since(self.owner_heard, now);
        (u128::from(silent_ms) > silence_max.as_millis()).then_some(silent_ms)
    }

    /// When the owner has to be heard again.
    pub(crate) fn stale_at(&self, silence_max: Duration) -> Instant {
        self.owner_heard + silence_max
    }
}

fn since(earlier: Instant, now: Instant) -> u64 {
    now.saturating_duration_since(earlier).as_millis() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_grows_old_without_a_frame_and_without_a_proof_that_there_is_none() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut lag = Lag::none(start);
        lag.folded(41, at(1_000));
        assert_eq!(lag.ms(at(3_959)), 41, "the frame is the proof");
        assert_eq!(lag.ms(at(3_960)), 3_001);
        lag.confirmed(at(3_900), at(4_000));
        assert_eq!(lag.ms(at(6_900)), 41);
        assert_eq!(lag.ms(at(12_000)), 8_100, "nobody has said anything for so long");
        // What was held up comes, and then there is no more.
        lag.folded(7_000, at(12_100));
        assert_eq!(lag.ms(at(12_100)), 7_000);
        lag.confirmed(at(12_200), at(12_210));
        assert_eq!(lag.ms(at(12_210)), 10, "it is of now, although its newest frame was late");
    }

    #[test]
    fn a_zone_is_stale_once_its_owner_is_silent_for_two_ticks_or_two_fences() {
        for (tick_every_ms, silence_ms) in
            [(1_000, 2_000), (10, 2_000), (4_000, 8_000), (60_000, 20_000), (0, 20_000)]
        {
            assert_eq!(silence_max(tick_every_ms), Duration::from_millis(silence_ms));
        }
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let silence_max = silence_max(1_000);
        let mut lag = Lag::none(start);
        lag.folded(500, at(1_000));
        assert_eq!(lag.stale_ms(at(2_500), silence_max), None);
        assert_eq!(lag.stale_ms(at(2_501), silence_max), Some(2_001));
        // That nothing is missing says nothing of the owner.
        lag.confirmed(at(106_000), at(106_010));
        assert_eq!(
            (lag.ms(at(106_010)), lag.stale_ms(at(106_010), silence_max)),
            (10, Some(105_510))
        );
        lag.heard(at(106_000));
        lag.heard(at(3_000));
        assert_eq!(lag.stale_ms(at(108_000), silence_max), None);
    }
}
