//! Says what the daemon waits for while it joins the group: librdkafka asks for the coordinator for
//! ever, and tells nobody what it hears.

use super::topic_client::TopicClient;
use crate::kafka::WORDLESS_MS_MAX;
use crate::service::status::Phase;
use crate::telemetry::repeated::Repeated;
use std::time::{Duration, Instant};

/// For how long the daemon has been joining.
#[derive(Default)]
pub(super) struct JoinWatch {
    since: Option<Instant>,
    lines: Repeated,
}

impl JoinWatch {
    /// Takes the daemon's phase. Returns whether it has been joining for too long.
    fn is_late(&mut self, phase: Phase, now: Instant) -> bool {
        if phase != Phase::Joining {
            self.since = None;
            return false;
        }
        let since = *self.since.get_or_insert(now);
        now.saturating_duration_since(since) >= Duration::from_millis(WORDLESS_MS_MAX)
    }

    /// Asks for the coordinator, if joining takes long, and logs what is waited for.
    pub(super) fn poll(&mut self, client: &mut TopicClient, group: &str, phase: Phase) {
        let now = Instant::now();
        if !self.is_late(phase, now) || self.lines.withholds(now) {
            return;
        }
        let found = client.coordinator(group);
        let Some(withheld) = self.lines.notice(now) else { return };
        match found {
            Err(error) => tracing::warn!(withheld, "waiting to join the group: {error}"),
            Ok(broker) => tracing::warn!(
                withheld,
                "waiting to join the group: broker {} coordinates `{group}`, and waits for its \
                 other members to join again, or for their sessions to time out; \
                 `kafka-consumer-groups.sh --describe --members --group {group}` lists them",
                broker.node_id
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joining_is_late_after_a_while_and_each_join_has_its_own() {
        let (mut watch, start) = (JoinWatch::default(), Instant::now());
        let mut is_late = |phase, ms| watch.is_late(phase, start + Duration::from_millis(ms));
        assert!(!is_late(Phase::Joining, 0));
        assert!(!is_late(Phase::Joining, WORDLESS_MS_MAX - 1));
        assert!(is_late(Phase::Joining, WORDLESS_MS_MAX));
        assert!(!is_late(Phase::Ready, WORDLESS_MS_MAX + 1));
        assert!(!is_late(Phase::Joining, WORDLESS_MS_MAX + 2), "it joins again");
        assert!(is_late(Phase::Joining, 2 * WORDLESS_MS_MAX + 2));
    }
}
