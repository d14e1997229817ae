//! Our membership in the consumer group: whether we are a member, and what to do about the group's
//! errors.

use crate::kafka::membership::{MembershipError, MembershipEvent};
use crate::ownership::action::{Note, OwnershipAction, Waiting};
use crate::ownership::instance_id::{IdLoss, InstanceIdLosses, REJOIN_MS};
use std::time::{Duration, Instant};

/// Milliseconds over which a topic has to be missing before it counts as missing: a broker that has
/// just started does not know its topics.
pub(crate) const TOPIC_MISSING_MS_MAX: u64 = 5_000;

/// Milliseconds between two questions about a topic that is missing. One broker may be behind the
/// others.
const TOPIC_ASKED_EVERY_MS: u64 = 1_000;

/// Milliseconds between two commits of input offsets: lag tools look every few seconds.
const COMMIT_EVERY_MS: u64 = 1_000;

/// Our place in the group.
#[derive(Debug)]
pub(super) struct GroupSession {
    state: SessionState,
    /// The last trouble with the group, since it last gave partitions to us or took them away.
    trouble: Option<String>,
    losses: InstanceIdLosses,
    /// The input topic is said to be missing.
    missing: Option<MissingTopic>,
    committed_at: Instant,
}

/// An input topic that brokers do not know.
#[derive(Clone, Copy, Debug)]
struct MissingTopic {
    /// When it is asked for next.
    ask_at: Instant,
    /// A broker that was asked for it does not know it either.
    is_confirmed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SessionState {
    /// The group has not let us in yet.
    Joining,
    Member {
        since: Instant,
    },
    /// Our instance id is taken: we join as another member.
    Rejoining {
        since: Instant,
        /// `None`: an attempt is under way.
        retry_at: Option<Instant>,
    },
}

impl GroupSession {
    /// We are about to join.
    pub(super) fn new(now: Instant) -> GroupSession {
        GroupSession {
            state: SessionState::Joining,
            trouble: None,
            losses: InstanceIdLosses::default(),
            missing: None,
            committed_at: now,
        }
    }

    /// Whether the group has let us in.
    pub(super) fn is_member(&self) -> bool {
        matches!(self.state, SessionState::Member { .. })
    }

    /// Returns the trouble that keeps us out of the group, if the group or a broker has named it.
    pub(super) fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref().filter(|_| !self.is_member())
    }

    /// Whether the group's events are meant for our former membership.
    pub(super) fn is_rejoining(&self) -> bool {
        matches!(self.state, SessionState::Rejoining { .. })
    }

    /// The group lets us in, or has given our partitions away and has to let us in again.
    pub(super) fn on_group_event(&mut self, event: &MembershipEvent, now: Instant) {
        if let MembershipEvent::Assigned(_) | MembershipEvent::Lost(_) = event {
            self.trouble = None;
        }
        if let MembershipEvent::Lost(_) = event {
            self.losses.group_is_away(now);
        }
        self.state = match (event, self.state) {
            (MembershipEvent::Assigned(_), SessionState::Joining) => {
                SessionState::Member { since: now }
            }
            (MembershipEvent::Lost(_), SessionState::Member { .. }) => SessionState::Joining,
            (_, state) => state,
        };
    }

    /// Takes the current time. If the process stood still, returns the line to log.
    pub(super) fn check_clock(&mut self, now: Instant) -> Option<OwnershipAction> {
        let pause = self.losses.check_clock(now)?;
        Some(OwnershipAction::Log(Note::StoodStill(pause)))
    }

    /// Handles the loss of our instance id. If we join again, nothing is assigned to us, and the
    /// cause is returned.
    pub(super) fn lose_id(&mut self, now: Instant) -> Option<IdLoss> {
        let held_for = match self.state {
            SessionState::Member { since } => now.saturating_duration_since(since),
            SessionState::Joining | SessionState::Rejoining { .. } => Duration::ZERO,
        };
        let loss = self.losses.lose(now, held_for)?;
        let retry_at = Some(now + self.losses.wait());
        self.state = SessionState::Rejoining { since: now, retry_at };
        Some(loss)
    }

    /// What to do about an error of the group.
    pub(super) fn fails(&mut self, error: MembershipError, now: Instant) -> OwnershipAction {
        match error {
            MembershipError::TopicMissing(_) => {
                let ask_at = now + Duration::from_millis(TOPIC_MISSING_MS_MAX);
                self.missing.get_or_insert(MissingTopic { ask_at, is_confirmed: false });
                self.wait(&error)
            }
            MembershipError::InstanceHeld(_) => {
                let retry_at = Some(now + Duration::from_millis(REJOIN_MS));
                self.state = SessionState::Rejoining { since: now, retry_at };
                self.wait(&error)
            }
            // A new start reads the current files, and loses nothing that we could still save.
            error if error.is_cured_by_a_start() && !self.is_member() => {
                OwnershipAction::Fail(error)
            }
            error if error.is_final() => OwnershipAction::Fail(error),
            error => self.bear(&error, now),
        }
    }

    /// The result of joining again.
    pub(super) fn rejoined(
        &mut self,
        result: Result<(), MembershipError>,
        now: Instant,
    ) -> Option<OwnershipAction> {
        let SessionState::Rejoining { since, .. } = self.state else { return None };
        let Err(error) = result else {
            self.state = SessionState::Joining;
            return None;
        };
        let is_missing = matches!(error, MembershipError::TopicMissing(_));
        let patience = Duration::from_millis(TOPIC_MISSING_MS_MAX);
        let may_pass = is_missing && now.saturating_duration_since(since) < patience;
        if error.is_final() && !may_pass {
            return Some(OwnershipAction::Fail(error));
        }
        let retry_at = Some(now + Duration::from_millis(REJOIN_MS));
        self.state = SessionState::Rejoining { since, retry_at };
        Some(self.bear(&error, now))
    }

    /// The result of looking for the input topic. It is gone if that is said twice in a row.
    pub(super) fn topic_checked(
        &mut self,
        result: Result<(), MembershipError>,
        now: Instant,
    ) -> Option<OwnershipAction> {
        let before = self.missing.take();
        match result {
            Err(error @ MembershipError::TopicMissing(_)) => {
                if before.is_some_and(|missing| missing.is_confirmed) {
                    return Some(OwnershipAction::Fail(error));
                }
                let ask_at = now + Duration::from_millis(TOPIC_ASKED_EVERY_MS);
                self.missing = Some(MissingTopic { ask_at, is_confirmed: true });
                None
            }
            Ok(()) => None,
            // That is no answer. The group reports a missing topic once, so it is asked for again.
            Err(_) => {
                let ask_at = now + Duration::from_millis(TOPIC_ASKED_EVERY_MS);
                self.missing = before.map(|missing| MissingTopic { ask_at, ..missing });
                None
            }
        }
    }

    /// A trouble that passes.
    fn bear(&mut self, error: &MembershipError, now: Instant) -> OwnershipAction {
        if matches!(error, MembershipError::Unreachable(_) | MembershipError::TlsOutdated(_)) {
            self.losses.group_is_away(now);
        }
        self.wait(error)
    }

    fn wait(&mut self, error: &MembershipError) -> OwnershipAction {
        let sentence = error.to_string();
        self.trouble = Some(sentence.clone());
        // The brokers that are away meanwhile are reported again and again.
        let kind = if error.is_cured_by_a_start() { Waiting::Restart } else { Waiting::Group };
        OwnershipAction::Log(Note::Waiting { kind, sentence })
    }

    /// What is due now.
    pub(super) fn next_action(&mut self, now: Instant) -> Option<OwnershipAction> {
        if let SessionState::Rejoining { since, retry_at: Some(at) } = self.state {
            if at <= now {
                self.state = SessionState::Rejoining { since, retry_at: None };
                return Some(OwnershipAction::Rejoin);
            }
            return None;
        }
        let missing = self.missing.as_mut().filter(|missing| missing.ask_at <= now)?;
        // The answer says when it is asked for again.
        missing.ask_at = now + Duration::from_millis(TOPIC_MISSING_MS_MAX);
        Some(OwnershipAction::CheckTopic)
    }

    /// Whether it is time to commit input offsets again.
    pub(super) fn is_commit_due(&mut self, now: Instant) -> bool {
        let pause = Duration::from_millis(COMMIT_EVERY_MS);
        let is_due = now.saturating_duration_since(self.committed_at) >= pause;
        if is_due {
            self.committed_at = now;
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kafka::right::Right;

    fn missing() -> MembershipError {
        MembershipError::TopicMissing("events".to_owned())
    }

    fn after_ms(now: Instant, ms: u64) -> Instant {
        now + Duration::from_millis(ms)
    }

    #[test]
    fn a_topic_is_looked_for_once_it_has_been_missing_for_a_while() {
        let now = Instant::now();
        let mut session = GroupSession::new(now);
        assert!(matches!(session.fails(missing(), now), OwnershipAction::Log(_)));
        let late = after_ms(now, TOPIC_MISSING_MS_MAX);
        assert_eq!(session.next_action(after_ms(now, TOPIC_MISSING_MS_MAX - 1)), None);
        session.fails(missing(), late);
        assert_eq!(session.next_action(late), Some(OwnershipAction::CheckTopic));
        assert_eq!(session.next_action(late), None);
    }

    #[test]
    fn a_topic_is_gone_once_two_answers_in_a_row_say_so() {
        let now = Instant::now();
        let unreachable = || Err(MembershipError::Unreachable("broker:9092".to_owned()));
        for (answer, is_asked_again) in [(Ok(()), false), (unreachable(), true)] {
            let mut session = GroupSession::new(now);
            assert_eq!(session.topic_checked(Err(missing()), now), None, "a broker is behind");
            let again = after_ms(now, TOPIC_ASKED_EVERY_MS);
            assert_eq!(session.next_action(after_ms(now, TOPIC_ASKED_EVERY_MS - 1)), None);
            assert_eq!(session.next_action(again), Some(OwnershipAction::CheckTopic));
            assert_eq!(session.topic_checked(answer, again), None);
            let later = session.next_action(after_ms(now, 60_000));
            assert_eq!(later, is_asked_again.then_some(OwnershipAction::CheckTopic));
        }
        let mut session = GroupSession::new(now);
        assert_eq!(session.topic_checked(Err(missing()), now), None);
        assert_eq!(session.topic_checked(unreachable(), now), None, "nobody has answered");
        let gone = session.topic_checked(Err(missing()), now);
        assert_eq!(gone, Some(OwnershipAction::Fail(missing())));
    }

    #[test]
    fn what_only_an_operator_can_help_ends_the_daemon_and_the_rest_is_waited_for() {
        let now = Instant::now();
        let mut session = GroupSession::new(now);
        for passing in [
            MembershipError::Unreachable("broker:9092".to_owned()),
            MembershipError::Passing("rebalancing".to_owned()),
        ] {
            assert!(matches!(session.fails(passing, now), OwnershipAction::Log(_)));
        }
        let what = "the topic `events`".to_owned();
        let refused = MembershipError::NotAuthorised { what, right: Right::Read };
        assert_eq!(session.fails(refused.clone(), now), OwnershipAction::Fail(refused));
    }

    #[test]
    fn what_a_start_cures_ends_the_daemon_once_the_group_has_given_it_up() {
        let now = Instant::now();
        for error in [
            MembershipError::NotAuthenticated("wrong password".to_owned()),
            MembershipError::TlsOutdated("certificate expired".to_owned()),
        ] {
            let mut session = GroupSession::new(now);
            session.on_group_event(&MembershipEvent::Assigned(vec![0]), now);
            let OwnershipAction::Log(Note::Waiting { kind, .. }) =
                session.fails(error.clone(), now)
            else {
                panic!("a member goes on")
            };
            // A line about brokers that are away does not withhold this one.
            assert_eq!(kind, Waiting::Restart);
            session.on_group_event(&MembershipEvent::Lost(vec![0]), now);
            assert_eq!(session.fails(error.clone(), now), OwnershipAction::Fail(error));
            // A start has nothing that this one has not.
            let failed = MembershipError::TlsFailed("certificate expired".to_owned());
            assert!(matches!(session.fails(failed, now), OwnershipAction::Log(_)));
        }
    }

    #[test]
    fn joining_again_is_tried_every_second_and_a_missing_topic_may_come_back() {
        let now = Instant::now();
        let mut session = GroupSession::new(now);
        assert_eq!(session.lose_id(now), Some(IdLoss::Unexplained));
        assert!(session.is_rejoining() && !session.is_member());
        assert_eq!(session.next_action(now), Some(OwnershipAction::Rejoin));
        assert_eq!(session.next_action(after_ms(now, REJOIN_MS)), None, "it is under way");
        assert!(matches!(session.rejoined(Err(missing()), now), Some(OwnershipAction::Log(_))));
        assert_eq!(session.next_action(after_ms(now, REJOIN_MS - 1)), None);
        let again = session.next_action(after_ms(now, REJOIN_MS));
        assert_eq!(again, Some(OwnershipAction::Rejoin));
        let late = after_ms(now, TOPIC_MISSING_MS_MAX);
        let failed = session.rejoined(Err(missing()), late);
        assert_eq!(failed, Some(OwnershipAction::Fail(missing())));
        assert_eq!(session.rejoined(Ok(()), late), None);
        assert!(!session.is_rejoining() && !session.is_member(), "the group has to let us in");
    }

    /// A slow coordinator takes an earlier request of ours for another member's.
    #[test]
    fn a_member_whom_the_group_has_given_up_may_lose_its_id_again_and_again() {
        let now = Instant::now();
        let mut session = GroupSession::new(now);
        session.on_group_event(&MembershipEvent::Lost(vec![0]), now);
        for wait_ms in [0, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 64_000] {
            assert_eq!(session.lose_id(now), Some(IdLoss::GroupAway));
            if wait_ms > 0 {
                assert_eq!(session.next_action(after_ms(now, wait_ms - 1)), None, "{wait_ms}");
            }
            let again = session.next_action(after_ms(now, wait_ms));
            assert_eq!(again, Some(OwnershipAction::Rejoin), "{wait_ms}");
            assert_eq!(session.rejoined(Ok(()), now), None);
        }
    }

    #[test]
    fn a_group_that_still_has_our_instance_id_is_asked_every_second() {
        let mut now = Instant::now();
        let mut session = GroupSession::new(now);
        let held = || MembershipError::InstanceHeld("host-7".to_owned());
        for _ in 0..100 {
            assert!(matches!(session.fails(held(), now), OwnershipAction::Log(_)));
            assert_eq!(session.next_action(after_ms(now, REJOIN_MS - 1)), None);
            now = after_ms(now, REJOIN_MS);
            assert_eq!(session.next_action(now), Some(OwnershipAction::Rejoin));
            assert_eq!(session.rejoined(Ok(()), now), None);
        }
        assert_eq!(session.trouble(), Some(held().to_string().as_str()));
        session.on_group_event(&MembershipEvent::Assigned(vec![0]), now);
        assert!(session.is_member() && session.trouble().is_none());
    }

    #[test]
    fn offsets_are_committed_once_a_second() {
        let now = Instant::now();
        let mut session = GroupSession::new(now);
        assert!(!session.is_commit_due(after_ms(now, COMMIT_EVERY_MS - 1)));
        assert!(session.is_commit_due(after_ms(now, COMMIT_EVERY_MS)));
        assert!(!session.is_commit_due(after_ms(now, COMMIT_EVERY_MS + 1)));
    }
}
