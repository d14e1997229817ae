//! Rate limit of a repeated log line, which counts the suppressed ones.

use std::num::NonZeroU64;
use std::time::{Duration, Instant};

/// Seconds between two log lines about the same recurring problem.
const REPEATED_NOTICE_S: u64 = 10;

/// A rate limit of equal log lines, which counts the suppressed ones.
#[derive(Debug, Default)]
pub(crate) struct Repeated {
    last: Option<Instant>,
    withheld: u64,
}

impl Repeated {
    /// Starts without a logged line.
    pub(crate) const fn new() -> Repeated {
        Repeated { last: None, withheld: 0 }
    }

    /// Returns whether a line would be suppressed now.
    pub(crate) fn withholds(&self, now: Instant) -> bool {
        let pause = Duration::from_secs(REPEATED_NOTICE_S);
        self.last.is_some_and(|last| now.saturating_duration_since(last) < pause)
    }

    /// Returns `None` if the line is to be suppressed. Otherwise returns the number of lines
    /// suppressed since the last logged one, or `Some(None)` if there were none, so that the line
    /// omits this field.
    pub(crate) fn notice(&mut self, now: Instant) -> Option<Option<NonZeroU64>> {
        if self.withholds(now) {
            self.withheld += 1;
            return None;
        }
        self.last = Some(now);
        Some(NonZeroU64::new(std::mem::take(&mut self.withheld)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_notices_are_counted_and_let_through_after_a_pause() {
        let start = Instant::now();
        let pause = Duration::from_secs(REPEATED_NOTICE_S);
        let mut repeated = Repeated::new();
        assert_eq!(repeated.notice(start), Some(None));
        assert_eq!(repeated.notice(start + pause / 2), None);
        assert_eq!(repeated.notice(start + pause / 2), None);
        assert_eq!(repeated.notice(start + pause), Some(NonZeroU64::new(2)));
        assert_eq!(repeated.notice(start + pause + pause), Some(None));
    }
}
