//! The lag of a zone: how old its answers are.
//!
//! A zone without new frames is up to date only if the brokers have lately named its log's end, and
//! everything before that end is folded. Without that proof its lag grows, whatever keeps frames
//! away: a broker that is frozen or gone, or a gap.

use std::time::{Duration, Instant};

/// How long a proof counts. The brokers are asked every second, and may take another one to answer.
const PROOF_AGE_MAX: Duration = Duration::from_secs(3);

/// The lag of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lag {
    /// Milliseconds from when its newest frame was published to when it was folded.
    frame_ms: u64,
    /// Everything that was published before is folded.
    complete_until: Instant,
}

impl Lag {
    /// Everything that is published is folded.
    pub fn none(now: Instant) -> Lag {
        Lag { frame_ms: 0, complete_until: now }
    }

    /// A frame that was published this many milliseconds ago is folded, and with it all before it.
    pub(crate) fn folded(&mut self, frame_ms: u64, now: Instant) {
        self.frame_ms = frame_ms;
        if let Some(published) = now.checked_sub(Duration::from_millis(frame_ms)) {
            self.complete_until = self.complete_until.max(published);
        }
    }

    /// All before the end that the log had at this time is folded.
    pub(crate) fn confirmed(&mut self, asked: Instant, now: Instant) {
        self.complete_until = self.complete_until.max(asked);
        self.frame_ms = self.frame_ms.min(since(asked, now));
    }

    /// Milliseconds.
    pub(crate) fn ms(&self, now: Instant) -> u64 {
        match since(self.complete_until, now) {
            age_ms if u128::from(age_ms) > PROOF_AGE_MAX.as_millis() => age_ms,
            _ => self.frame_ms,
        }
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
}
