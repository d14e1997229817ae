//! Long waits for the environment. The code that waits logs what it waits for, the last answer and
//! what to do; a [`LongWait`] says when its line is due.

use std::time::{Duration, Instant};

/// Milliseconds for which the process may wait for its environment without a log line. A new group
/// waits three seconds for further members.
pub(crate) const WORDLESS_MS_MAX: u64 = 4_000;

/// Milliseconds between two lines about the same wait.
const WORD_EVERY_MS: u64 = 10_000;

/// One wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LongWait {
    since: Instant,
    word_at: Instant,
}

impl LongWait {
    /// Creates a wait that began at this time.
    pub(crate) fn since(since: Instant) -> LongWait {
        LongWait { since, word_at: since + Duration::from_millis(WORDLESS_MS_MAX) }
    }

    /// Returns how long the wait has lasted.
    pub(crate) fn elapsed(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.since)
    }

    /// Returns how many seconds the wait has lasted if a line about it is due: after a while, and
    /// then at intervals.
    pub(crate) fn word(&mut self, now: Instant) -> Option<u64> {
        (self.word_at <= now).then(|| {
            self.word_at = now + Duration::from_millis(WORD_EVERY_MS);
            self.elapsed(now).as_secs()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_has_its_first_word_after_a_while_and_more_of_them_now_and_then() {
        let start = Instant::now();
        let mut wait = LongWait::since(start);
        let mut word = |ms: &u64| wait.word(start + Duration::from_millis(*ms));
        let words: Vec<_> = (0..30_000).filter_map(|ms| Some((ms, word(&ms)?))).collect();
        assert_eq!(words, [(4_000, 4), (14_000, 14), (24_000, 24)]);
        assert_eq!(wait.elapsed(start + Duration::from_secs(7)), Duration::from_secs(7));
    }
}
