//! Determines when the next event is due.

use std::time::{Duration, Instant};

/// An open-loop pace: event n is due n/rate after the start, however late the earlier ones were, so
/// that a slow broker shows as latency and not as fewer events.
pub(crate) struct Pace {
    start: Instant,
    rate: Option<u64>,
}

impl Pace {
    /// Starts now. Without a rate, everything is due at once.
    pub(crate) fn start(rate: Option<u64>) -> Pace {
        Pace { start: Instant::now(), rate }
    }

    /// Returns the time to wait for event `number`, counted from 0; `None` if it is due.
    pub(crate) fn wait(&self, number: u64) -> Option<Duration> {
        self.due(number)?.checked_sub(self.start.elapsed()).filter(|wait| !wait.is_zero())
    }

    /// When event `number` is due, in microseconds since the start; without a rate, now.
    pub(crate) fn due_us(&self, number: u64) -> u64 {
        self.due(number).unwrap_or_else(|| self.start.elapsed()).as_micros() as u64
    }

    fn due(&self, number: u64) -> Option<Duration> {
        let due_ns = u128::from(number) * 1_000_000_000 / u128::from(self.rate?);
        Some(Duration::from_nanos(due_ns as u64))
    }

    /// Time since the start.
    pub(crate) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }
}
