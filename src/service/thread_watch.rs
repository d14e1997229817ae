//! Watches the daemon's threads: a stuck one makes the daemon unready, is named by `/livez`, and
//! lets systemd's watchdog restart the daemon.
//!
//! The service thread itself is not watched: while it is stuck, it answers nobody and does not feed
//! the watchdog.

use super::status::Phase;
use crate::telemetry::metrics::{Counter, Metrics};
use crate::telemetry::turning::Turning;
use std::time::Instant;

/// Milliseconds without a turn after which a thread that waits for nothing external counts as
/// stuck.
pub const STUCK_MS: u64 = 5_000;

/// The limit of the control thread, which waits for brokers and the disk, but not for that long.
pub const CONTROL_STUCK_MS: u64 = 30_000;

/// The threads, their turn counters, and when they count as stuck.
const WATCHED: [(&str, Counter, u64); 3] = [
    ("hot", Counter::Turns, STUCK_MS),
    ("control", Counter::ControlTurns, CONTROL_STUCK_MS),
    ("publisher", Counter::PublisherTurns, STUCK_MS),
];

/// Sum of the turns of all watched threads.
pub(super) fn all_turns(metrics: &Metrics) -> u64 {
    WATCHED.iter().map(|(_, counter, _)| metrics.get(*counter)).sum()
}

/// Records when each thread last turned.
#[derive(Debug, Default)]
pub struct ThreadWatch {
    threads: [Turning; WATCHED.len()],
    stuck: Vec<&'static str>,
}

impl ThreadWatch {
    /// Samples all threads, and returns the names of stuck ones. Logs a line on each change. While
    /// the daemon drains, its threads end one by one, and none counts as stuck: a drain has its own
    /// limit.
    pub fn sample(&mut self, metrics: &Metrics, phase: Phase, now: Instant) -> Vec<&'static str> {
        let mut stuck = Vec::new();
        for ((name, counter, stuck_ms), thread) in WATCHED.into_iter().zip(&mut self.threads) {
            thread.note(metrics.get(counter), now);
            if phase != Phase::Draining && thread.is_stuck(stuck_ms, now) {
                stuck.push(name);
            }
            match (self.stuck.contains(&name), stuck.contains(&name)) {
                (false, true) => tracing::error!(
                    "the {name} thread has not turned for {stuck_ms} ms; the watchdog is not fed \
                     (docs/RUNBOOKS.md#thread-stuck)"
                ),
                (true, false) => tracing::warn!("the {name} thread turns again"),
                _ => {}
            }
        }
        self.stuck.clone_from(&stuck);
        stuck
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn each_thread_that_turned_and_stopped_is_stuck_unless_the_daemon_drains() {
        let (start, metrics) = (Instant::now(), Metrics::new());
        let mut watch = ThreadWatch::default();
        let mut stuck_at =
            |ms, phase| watch.sample(&metrics, phase, start + Duration::from_millis(ms));
        assert_eq!(stuck_at(0, Phase::Starting), [""; 0]);
        assert_eq!(stuck_at(60_000, Phase::Starting), [""; 0], "none has begun to turn");
        WATCHED.iter().for_each(|(_, counter, _)| metrics.add(*counter, 1));
        assert_eq!(stuck_at(60_001, Phase::Ready), [""; 0]);
        metrics.add(Counter::Turns, 1);
        assert_eq!(stuck_at(60_002 + STUCK_MS, Phase::Ready), ["publisher"]);
        metrics.add(Counter::PublisherTurns, 1);
        let later = 60_002 + CONTROL_STUCK_MS;
        assert_eq!(stuck_at(later, Phase::Ready), ["hot", "control"]);
        assert_eq!(stuck_at(later + 1, Phase::Draining), [""; 0]);
    }
}
