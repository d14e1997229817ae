//! When a topic that is fetched by name must be shown to be the one that was fetched before.
//!
//! A topic that is deleted and created again keeps its name, and its new records take the offsets
//! of the old ones. From version 13 on a Fetch names the topic by its id, and the broker refuses a
//! recreated topic. With older brokers, the fetch path asks for the id after a response has arrived
//! and before it is used. An id never returns: if it is unchanged, everything fetched before is of
//! the same topic.

use std::time::{Duration, Instant};

/// Milliseconds without an answer, in addition to the Fetch wait, after which the topic may have
/// been recreated. While a Fetch waits at the broker, deleting the topic fails it.
const PAUSE_MS_MAX: u64 = 200;

/// Upper limit of the milliseconds between two checks.
const CHECK_EVERY_MS: u64 = 5_000;

/// A connection's knowledge of the topic's identity.
#[derive(Debug)]
pub(super) struct TopicCheck {
    /// When the topic's id was last confirmed; `None` on a new connection.
    checked_at: Option<Instant>,
}

impl TopicCheck {
    /// State of a newly opened connection.
    pub(super) fn new() -> TopicCheck {
        TopicCheck { checked_at: None }
    }

    /// Returns whether an answer that has arrived now may come from another topic. `answered_at`
    /// has the time of the last answer for each of its partitions, on any connection.
    pub(super) fn is_due(
        &self,
        now: Instant,
        wait: Duration,
        mut answered_at: impl Iterator<Item = Option<Instant>>,
    ) -> bool {
        let is_older = |at: Option<Instant>, age_max: Duration| {
            at.is_none_or(|at| now.saturating_duration_since(at) > age_max)
        };
        let pause_max = wait + Duration::from_millis(PAUSE_MS_MAX);
        is_older(self.checked_at, Duration::from_millis(CHECK_EVERY_MS))
            || answered_at.any(|at| is_older(at, pause_max))
    }

    /// Records that the topic is the same.
    pub(super) fn passed(&mut self, now: Instant) {
        self.checked_at = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: Duration = Duration::from_millis(100);

    #[test]
    fn the_topic_is_checked_on_a_new_connection_after_a_pause_and_now_and_then() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let mut check = TopicCheck::new();
        let is_due = |check: &TopicCheck, now: u64, answered: &[Option<u64>]| {
            let answered = answered.iter().map(|ms| ms.map(at));
            check.is_due(at(now), WAIT, answered)
        };
        assert!(is_due(&check, 0, &[Some(0)]), "the connection is new");
        check.passed(at(0));
        assert!(!is_due(&check, 100, &[Some(0), Some(50)]));
        assert!(is_due(&check, 100, &[Some(0), None]), "a partition is new here");
        assert!(!is_due(&check, 300, &[Some(0)]));
        assert!(is_due(&check, 301, &[Some(300), Some(0)]), "a partition was left out too long");
        assert!(!is_due(&check, 5_000, &[Some(4_900)]));
        assert!(is_due(&check, 5_001, &[Some(4_900)]), "the last check is long ago");
    }
}
