//! Whether the topics that the daemon needs are still there, and as they were. A broker that
//! is told to produce to a topic that was deleted answers as one does that has only just started,
//! so a producer waits; this says what it waits for.

use super::ControlOptions;
use super::control_error::ControlError;
use super::dialler::DialOptions;
use super::join_watch::JoinWatch;
use super::topic_client::{FoundTopic, TopicClient};
use super::topic_rules::TopicNames;
use crate::kafka::RECONNECT_MS_MIN;
use crate::service::status::Status;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// Milliseconds between two polls.
const POLL_EVERY_MS: u64 = 2_500;

/// Polls over one connection. Its broker may be cut off from the controllers, and not know of what
/// happens to topics.
const CONNECTION_POLLS_MAX: u32 = 4;

/// Milliseconds for which all polls, at least two, have to be without a topic before it counts as
/// missing: a broker that has only just started does not know all topics yet.
const MISSING_MS_MIN: u64 = 2_000;

/// A thread that asks the brokers. Dropped, it ends with its next poll; nobody waits for it.
pub(super) struct TopicWatch {
    seen: Arc<TopicFindings>,
    /// Nothing is ever sent: dropping it ends the thread.
    _alive: Option<mpsc::Sender<()>>,
}

/// What the thread has seen.
#[derive(Default)]
struct TopicFindings {
    is_output_recreated: AtomicBool,
    /// 0: nothing yet.
    input_partitions: AtomicU32,
}

impl TopicWatch {
    /// Begins to poll. Without a thread for it, no topic ever counts as missing.
    pub(super) fn start(options: &ControlOptions, status: Arc<Status>) -> TopicWatch {
        let (alive, ended) = mpsc::channel::<()>();
        let seen = Arc::new(TopicFindings::default());
        let (dial, names) = (options.dial.clone(), options.topics.clone());
        let (group, by_thread) = (options.group.client.group.clone(), seen.clone());
        let watch = move || {
            let (mut client, mut tried, mut sightings) = (None, 0, Sightings::default());
            let mut join_watch = JoinWatch::default();
            for polls in 1_u32.. {
                let mut pause_ms = POLL_EVERY_MS;
                // A poll without an answer changes nothing.
                if let Ok(found) = poll((&mut client, &mut tried), &dial, &names) {
                    if sightings.take(&found, Instant::now()) {
                        status.set_missing_topics(sightings.missing());
                    }
                    by_thread.take(&sightings, &names);
                    if sightings.doubts_any_of(&found) {
                        pause_ms = RECONNECT_MS_MIN;
                    }
                }
                if let Some(client) = &mut client {
                    join_watch.poll(client, &group, status.phase());
                }
                if sightings.are_doubted() || polls.is_multiple_of(CONNECTION_POLLS_MAX) {
                    client = None;
                }
                let pause = Duration::from_millis(pause_ms);
                if ended.recv_timeout(pause) != Err(mpsc::RecvTimeoutError::Timeout) {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("topics".to_owned()).spawn(watch);
        TopicWatch { seen, _alive: thread.is_ok().then_some(alive) }
    }

    /// Whether the output topic was created again since the start.
    pub(super) fn is_output_recreated(&self) -> bool {
        self.seen.is_output_recreated.load(Ordering::Acquire)
    }

    /// How many partitions the input has, once that is known.
    pub(super) fn input_partitions(&self) -> Option<i32> {
        let partitions = self.seen.input_partitions.load(Ordering::Acquire);
        (partitions > 0).then_some(partitions as i32)
    }
}

impl TopicFindings {
    fn take(&self, sightings: &Sightings, names: &TopicNames) {
        let is_recreated = sightings.is_recreated(&names.output);
        self.is_output_recreated.store(is_recreated, Ordering::Release);
        let partitions = sightings.partitions(&names.input) as u32;
        self.input_partitions.store(partitions, Ordering::Release);
    }
}

/// Each topic, as it is if it is there. Tries to connect are counted.
fn poll<'a>(
    (kept, tried): (&mut Option<TopicClient>, &mut usize),
    dial: &DialOptions,
    names: &'a TopicNames,
) -> Result<Vec<(&'a str, Option<TopicIdentity>)>, ControlError> {
    let mut client = match kept.take() {
        Some(client) => client,
        None => {
            *tried += 1;
            TopicClient::connect(dial, *tried)?
        }
    };
    let mut found = Vec::new();
    for (name, right) in names.all() {
        found.push((name.as_str(), client.find(name, right)?.map(TopicIdentity::of)));
    }
    *kept = Some(client);
    Ok(found)
}

/// What the polls have found of each topic.
#[derive(Default)]
struct Sightings {
    topics: BTreeMap<String, Sighting>,
}

/// What the polls have found of one topic.
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
struct TopicIdentity {
    /// 0: the brokers tell none.
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
    /// Takes the result of one poll, and logs the changes. Returns whether other topics are missing
    /// than before.
    fn take(&mut self, found: &[(&str, Option<TopicIdentity>)], now: Instant) -> bool {
        let mut is_news = false;
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
            is_news |= was_missing != sighting.is_missing;
            if let Some(identity) = identity {
                sighting.meet(name, *identity);
            }
        }
        is_news
    }

    fn missing(&self) -> Vec<String> {
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

    fn partitions(&self, name: &str) -> usize {
        let identity = self.topics.get(name).and_then(|sighting| sighting.identity);
        identity.map_or(0, |identity| identity.partitions)
    }

    fn is_recreated(&self, name: &str) -> bool {
        self.topics.get(name).is_some_and(|sighting| sighting.is_recreated)
    }
}

impl Sighting {
    /// Takes the report of a connection, and logs it if it differs from before.
    fn meet(&mut self, name: &str, identity: TopicIdentity) {
        let (doubted, known) = (self.doubted.take(), self.identity.unwrap_or(identity));
        let identity =
            TopicIdentity { id: if identity.id == 0 { known.id } else { identity.id }, ..identity };
        if Some(identity) == self.identity {
            return;
        }
        if Some(identity) != doubted {
            self.doubted = Some(identity);
            if let Some(before) = self.identity {
                tracing::warn!(
                    "a broker says that the topic `{name}` {}: another connection is asked before \
                     that counts",
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
            let is_news = sightings.take(&found, start + Duration::from_millis(ms));
            (is_news, sightings.missing())
        };
        let missing = vec!["`letters`".to_owned()];
        assert_eq!(take(SEEN, 0), (false, vec![]));
        assert_eq!(take(None, 1), (false, vec![]));
        assert_eq!(take(None, 51), (false, vec![]), "two polls right after each other");
        assert_eq!(take(SEEN, 1_900), (false, vec![]), "a broker had only just started");
        assert_eq!(take(None, 2_001), (false, vec![]));
        assert_eq!(take(None, 2_000 + MISSING_MS_MIN), (false, vec![]));
        assert_eq!(take(None, 2_001 + MISSING_MS_MIN), (true, missing.clone()));
        assert_eq!(take(None, 9_000), (false, missing));
        assert_eq!(take(SEEN, 9_001), (true, vec![]));
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
        assert_eq!(take(with_id(0)), (true, false));
        assert_eq!(take(with_id(0)), (false, false), "old brokers tell no id");
        assert_eq!(take(with_id(6)), (true, false), "the first id has to be told twice, too");
        assert_eq!(take(SEEN), (true, false));
        for identity in [SEEN, None, None, SEEN, with_id(0)] {
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
