//! Polls of topics: which are there, and which of them are still the same ones. A broker may be cut
//! off from the controllers, so what contradicts earlier polls counts once two connections say so.

use super::control_error::ControlError;
use super::dialler::DialOptions;
use super::topic_client::{FoundTopic, TopicClient};
use crate::kafka::RECONNECT_MS_MIN;
use crate::kafka::right::Right;
use crate::kafka::topic_error::TopicError;
use crate::telemetry::long_wait::LongWait;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// How long polls use one connection. Its broker may not know what happens to topics.
const CONNECTION_AGE_MAX: Duration = Duration::from_secs(10);

/// Milliseconds for which all polls, at least two, have to be without a topic before it counts as
/// missing: a broker that has only just started does not know all topics yet.
const MISSING_MS_MIN: u64 = 2_000;

/// The findings of one poll: each topic that this user may ask for, and its identity if it exists.
pub(super) type PolledTopics<'a> = Vec<(&'a str, Option<TopicIdentity>)>;

/// Asks the brokers about topics, poll by poll.
pub(super) struct TopicPolls {
    dial: DialOptions,
    client: Option<TopicClient>,
    /// When the connection was opened.
    opened: Instant,
    /// Connections that were tried.
    tried: usize,
    /// The result of all polls.
    sightings: Sightings,
}

impl TopicPolls {
    /// Nothing is asked yet.
    pub(super) fn new(dial: DialOptions) -> TopicPolls {
        let (opened, sightings) = (Instant::now(), Sightings::default());
        TopicPolls { dial, client: None, opened, tried: 0, sightings }
    }

    /// Asks about each topic, for someone who needs this right, and hands each answer on, until
    /// `pause` breaks. A poll without an answer changes nothing.
    pub(super) fn run(
        mut self,
        topics: &[(String, Right)],
        every: Duration,
        pause: impl Fn(Duration) -> ControlFlow<()>,
        mut take: impl FnMut(&mut TopicClient, &Sightings, &PolledTopics<'_>, Instant),
    ) {
        let mut silence = LongWait::since(Instant::now());
        loop {
            let asked = Instant::now();
            let mut wait = every;
            match self.ask(topics) {
                Ok(found) => {
                    silence = LongWait::since(Instant::now());
                    self.sightings.take(&found, asked);
                    if self.sightings.doubts_any_of(&found) {
                        wait = Duration::from_millis(RECONNECT_MS_MIN);
                    }
                    let client = self.client.as_mut().expect("it has answered");
                    take(client, &self.sightings, &found, asked);
                }
                Err(error) if silence.word(Instant::now()).is_some() => {
                    tracing::warn!("waiting for an answer about the topics: {error}");
                }
                Err(_) => {}
            }
            if pause(wait).is_break() {
                return;
            }
        }
    }

    /// Finds each topic; one that this user may not ask for is left out.
    fn ask<'a>(&mut self, topics: &'a [(String, Right)]) -> Result<PolledTopics<'a>, ControlError> {
        let is_used_up = self.sightings.are_doubted() || self.opened.elapsed() > CONNECTION_AGE_MAX;
        let mut client = match self.client.take().filter(|_| !is_used_up) {
            Some(client) => client,
            None => {
                (self.opened, self.tried) = (Instant::now(), self.tried + 1);
                TopicClient::connect(&self.dial, self.tried)?
            }
        };
        let mut found = Vec::new();
        for (name, right) in topics {
            match client.find(name, *right) {
                Ok(topic) => found.push((name.as_str(), topic.map(TopicIdentity::of))),
                Err(ControlError::Topic(TopicError::NotAuthorised { .. })) => {}
                Err(error) => return Err(error),
            }
        }
        self.client = Some(client);
        Ok(found)
    }
}

/// The result of all polls.
#[derive(Default)]
pub(super) struct Sightings {
    topics: BTreeMap<String, Sighting>,
}

/// The findings of all polls about one topic.
#[derive(Default)]
struct Sighting {
    /// Since when no poll has found it.
    gone_since: Option<Instant>,
    /// Long enough to count as missing.
    is_missing: bool,
    /// As two connections have reported.
    identity: Option<TopicIdentity>,
    /// Another one, which a second connection has to report before it counts.
    doubted: Option<TopicIdentity>,
    is_recreated: bool,
}

/// What a topic is, as opposed to where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TopicIdentity {
    id: u128,
    partitions: usize,
}

impl TopicIdentity {
    fn of(topic: FoundTopic) -> TopicIdentity {
        TopicIdentity { id: topic.id, partitions: topic.partitions }
    }

    /// What another identity says of the topic.
    fn contradiction(self, other: TopicIdentity) -> String {
        match self.id == other.id {
            true => format!("has {} partitions instead of {}", other.partitions, self.partitions),
            false => "is another one".to_owned(),
        }
    }
}

impl Sightings {
    /// Takes the result of one poll, and logs the changes.
    fn take(&mut self, found: &[(&str, Option<TopicIdentity>)], now: Instant) {
        for (name, identity) in found {
            let sighting = self.topics.entry((*name).to_owned()).or_default();
            let was_missing = sighting.is_missing;
            sighting.gone_since = match identity {
                Some(_) => None,
                None => sighting.gone_since.or(Some(now)),
            };
            let gone = sighting.gone_since.map(|since| now.saturating_duration_since(since));
            sighting.is_missing =
                gone.is_some_and(|gone| gone.as_millis() >= MISSING_MS_MIN.into());
            match (was_missing, sighting.is_missing) {
                (false, true) => tracing::error!(
                    "the topic `{name}` does not exist any more: nothing that has to be written \
                     to it, and nothing behind that, goes on; create it with `huntd topics`"
                ),
                (true, false) => tracing::warn!("the topic `{name}` exists again"),
                _ => {}
            }
            if let Some(identity) = identity {
                sighting.meet(name, *identity);
            }
        }
    }

    pub(super) fn missing(&self) -> Vec<String> {
        let missing = self.topics.iter().filter(|(_, sighting)| sighting.is_missing);
        missing.map(|(name, _)| format!("`{name}`")).collect()
    }

    /// Whether another connection has to be asked.
    fn are_doubted(&self) -> bool {
        self.topics.values().any(|sighting| sighting.doubted.is_some())
    }

    /// Whether another connection has to be asked at once: a topic that is not there has no answer.
    fn doubts_any_of(&self, found: &[(&str, Option<TopicIdentity>)]) -> bool {
        let is_doubted = |name| self.topics.get(name).is_some_and(|topic| topic.doubted.is_some());
        found.iter().any(|(name, identity)| identity.is_some() && is_doubted(*name))
    }

    pub(super) fn partitions(&self, name: &str) -> usize {
        let identity = self.topics.get(name).and_then(|sighting| sighting.identity);
        identity.map_or(0, |identity| identity.partitions)
    }

    /// The id of a topic that this poll has found, unless it is in doubt.
    pub(super) fn confirmed(&self, name: &str, found: &PolledTopics<'_>) -> Option<u128> {
        let (_, present) = found.iter().find(|(topic, _)| *topic == name)?;
        let sighting = self.topics.get(name).filter(|topic| topic.doubted.is_none())?;
        present.and(sighting.identity).map(|identity| identity.id)
    }

    pub(super) fn is_recreated(&self, name: &str) -> bool {
        self.topics.get(name).is_some_and(|sighting| sighting.is_recreated)
    }
}

impl Sighting {
    /// Takes the report of a connection, and logs it if it differs from before.
    fn meet(&mut self, name: &str, identity: TopicIdentity) {
        let doubted = self.doubted.take();
        if Some(identity) == self.identity {
            return;
        }
        if Some(identity) != doubted {
            self.doubted = Some(identity);
            if let Some(before) = self.identity {
                tracing::warn!(
                    "a broker says that the topic `{name}` {}: confirming over another connection",
                    before.contradiction(identity)
                );
            }
            return;
        }
        if let Some(before) = self.identity.replace(identity)
            && before.id != 0
            && before.id != identity.id
        {
            self.is_recreated = true;
            tracing::warn!("the topic `{name}` was deleted and created again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A topic with this id and two partitions.
    const fn with_id(id: u128) -> Option<TopicIdentity> {
        Some(TopicIdentity { id, partitions: 2 })
    }

    const SEEN: Option<TopicIdentity> = with_id(7);

    #[test]
    fn a_topic_is_missing_once_no_poll_has_found_it_for_a_while() {
        let (mut sightings, start) = (Sightings::default(), Instant::now());
        let mut take = |letters, ms| {
            let found = [("letters", letters), ("updates", SEEN)];
            sightings.take(&found, start + Duration::from_millis(ms));
            sightings.missing()
        };
        let (missing, none) = (["`letters`"], [""; 0]);
        assert_eq!(take(SEEN, 0), none);
        assert_eq!(take(None, 1), none);
        assert_eq!(take(None, 51), none, "two polls right after each other");
        assert_eq!(take(SEEN, 1_900), none, "a broker had only just started");
        assert_eq!(take(None, 2_001), none);
        assert_eq!(take(None, 2_000 + MISSING_MS_MIN), none);
        assert_eq!(take(None, 2_001 + MISSING_MS_MIN), missing);
        assert_eq!(take(None, 9_000), missing);
        assert_eq!(take(SEEN, 9_001), none);
    }

    #[test]
    fn a_doubt_is_settled_at_once_only_while_brokers_tell_of_the_topic() {
        let (mut sightings, now) = (Sightings::default(), Instant::now());
        let mut take = |updates| {
            let found = [("updates", updates), ("letters", SEEN)];
            sightings.take(&found, now);
            (sightings.doubts_any_of(&found), sightings.are_doubted())
        };
        assert_eq!(take(SEEN), (true, true));
        assert_eq!(take(SEEN), (false, false));
        assert_eq!(take(with_id(8)), (true, true));
        assert_eq!(take(None), (false, true), "it is gone, and may come back as either");
        assert_eq!(take(with_id(8)), (false, false));
    }

    #[test]
    fn a_topic_that_comes_back_with_another_id_was_created_again_once_two_connections_say_so() {
        let mut sightings = Sightings::default();
        let mut take = |identity| {
            sightings.take(&[("updates", identity)], Instant::now());
            (sightings.are_doubted(), sightings.is_recreated("updates"))
        };
        assert_eq!(take(with_id(6)), (true, false), "the first id has to be told twice, too");
        assert_eq!(take(SEEN), (true, false));
        for identity in [SEEN, None, None, SEEN] {
            assert_eq!(take(identity), (false, false));
        }
        assert_eq!(take(with_id(8)), (true, false), "only one connection says so");
        assert_eq!(take(SEEN), (false, false));
        assert_eq!(take(with_id(8)), (true, false), "the one before was refuted");
        assert_eq!(take(with_id(9)), (true, false), "they do not agree");
        assert_eq!(take(with_id(9)), (false, true));
        for identity in [None, with_id(9), SEEN] {
            assert!(take(identity).1, "it is for good");
        }
    }

    #[test]
    fn partitions_count_once_two_connections_have_told_of_them() {
        let mut sightings = Sightings::default();
        let mut take = |partitions| {
            sightings
                .take(&[("events", Some(TopicIdentity { id: 7, partitions }))], Instant::now());
            (sightings.are_doubted(), sightings.partitions("events"))
        };
        assert_eq!(take(2), (true, 0));
        assert_eq!(take(2), (false, 2));
        assert_eq!(take(3), (true, 2));
        assert_eq!(take(2), (false, 2));
        assert_eq!(take(3), (true, 2));
        assert_eq!(take(3), (false, 3));
        assert!(!sightings.is_recreated("events"), "it has only grown");
    }
}
