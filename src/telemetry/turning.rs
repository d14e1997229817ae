//! A watchdog: a thread counts its turns, and another thread watches the count.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The number of turns of one thread, which alone counts them.
#[derive(Clone, Debug, Default)]
pub(crate) struct TurnCount(Arc<AtomicU64>);

impl TurnCount {
    /// Counts a turn.
    pub(crate) fn add_one(&self) {
        self.0.store(self.get().wrapping_add(1), Ordering::Relaxed);
    }

    /// Number of turns so far.
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The watchdog's view of a thread: when it last made a turn.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Turning {
    turns: u64,
    /// `None` before the first turn.
    seen_at: Option<Instant>,
}

impl Turning {
    /// Records the number of turns that the thread has made by now.
    pub(crate) fn note(&mut self, turns: u64, now: Instant) {
        if turns != self.turns {
            (self.turns, self.seen_at) = (turns, Some(now));
        }
    }

    /// Returns whether the thread has started, and has made no turn for more than this many
    /// milliseconds.
    pub(crate) fn is_stuck(&self, stuck_ms: u64, now: Instant) -> bool {
        let stands = |at| now.saturating_duration_since(at) > Duration::from_millis(stuck_ms);
        self.seen_at.is_some_and(stands)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_turned_and_stopped_is_stuck_until_it_turns_again() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let (mut turning, count) = (Turning::default(), TurnCount::default());
        turning.note(count.get(), at(0));
        assert!(!turning.is_stuck(100, at(500)), "it has not begun to turn");
        count.add_one();
        turning.note(count.get(), at(1_000));
        turning.note(count.get(), at(1_100));
        assert!(!turning.is_stuck(100, at(1_100)), "it may pause for a while");
        assert!(turning.is_stuck(100, at(1_101)));
        count.add_one();
        turning.note(count.get(), at(1_102));
        assert!(!turning.is_stuck(100, at(1_102)), "it turns again");
    }
}
