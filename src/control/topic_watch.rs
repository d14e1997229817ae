//! Whether the topics that the daemon needs are still there, and still the same ones. A broker that
//! is told to produce to a topic that was deleted answers as one does that has only just started,
//! so a producer waits; this says what it waits for.

use super::ControlOptions;
use super::control_error::ControlError;
use super::dialler::DialOptions;
use super::topic_client::TopicClient;
use super::topic_rules::TopicNames;
use crate::kafka::RECONNECT_MS_MIN;
use crate::service::status::Status;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

/// Milliseconds between two polls.
const POLL_EVERY_MS: u64 = 2_500;

/// Polls in a row that do not find a topic before it is called missing: a broker that has only just
/// started does not know all topics yet.
const POLLS_WITHOUT: u32 = 2;

/// A thread that asks the brokers. Dropped, it ends with its next poll; nobody waits for it.
pub(super) struct TopicWatch {
    is_output_recreated: Arc<AtomicBool>,
    /// Nothing is ever sent: dropping it ends the thread.
    _alive: Option<mpsc::Sender<()>>,
}

impl TopicWatch {
    /// Begins to poll. Without a thread for it nothing is ever called missing.
    pub(super) fn start(options: &ControlOptions, status: Arc<Status>) -> TopicWatch {
        let (alive, ended) = mpsc::channel::<()>();
        let is_output_recreated = Arc::new(AtomicBool::new(false));
        let (dial, names) = (options.dial.clone(), options.topics.clone());
        let recreated = is_output_recreated.clone();
        let watch = move || {
            let (mut client, mut sightings) = (None, Sightings::default());
            loop {
                // What brokers do not answer is no news.
                if let Ok(found) = poll(&mut client, &dial, &names) {
                    if sightings.take(&found) {
                        status.set_missing_topics(sightings.missing());
                    }
                    recreated.store(sightings.is_recreated(&names.output), Ordering::Release);
                }
                let mut pause_ms = POLL_EVERY_MS;
                if sightings.are_doubted() {
                    (client, pause_ms) = (None, RECONNECT_MS_MIN);
                }
                let pause = Duration::from_millis(pause_ms);
                if ended.recv_timeout(pause) != Err(mpsc::RecvTimeoutError::Timeout) {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("topics".to_owned()).spawn(watch);
        TopicWatch { is_output_recreated, _alive: thread.is_ok().then_some(alive) }
    }

    /// Whether the output topic is another one than at the start.
    pub(super) fn is_output_recreated(&self) -> bool {
        self.is_output_recreated.load(Ordering::Acquire)
    }
}

/// Each topic, and its id if it is there.
fn poll<'a>(
    kept: &mut Option<TopicClient>,
    dial: &DialOptions,
    names: &'a TopicNames,
) -> Result<Vec<(&'a str, Option<u128>)>, ControlError> {
    let mut client = match kept.take() {
        Some(client) => client,
        None => TopicClient::connect(dial)?,
    };
    let mut found = Vec::new();
    for name in names.all() {
        found.push((name.as_str(), client.find(name)?.map(|topic| topic.id)));
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
    /// How many polls in a row have not found it.
    polls_without: u32,
    /// Its id, as two connections have told; 0: not known.
    id: u128,
    /// Another id, which a second connection has to tell before it counts; 0: none.
    doubted_id: u128,
    is_recreated: bool,
}

/// What the id of a topic says.
#[derive(Debug, PartialEq, Eq)]
enum Identity {
    Same,
    /// It may be another topic.
    Doubted,
    Another,
}

impl Sightings {
    /// Takes what one poll has found, and says in the log what is new. Whether other topics are
    /// missing now.
    fn take(&mut self, found: &[(&str, Option<u128>)]) -> bool {
        let mut is_news = false;
        for (name, id) in found {
            let sighting = self.topics.entry((*name).to_owned()).or_default();
            let was_missing = sighting.is_missing();
            sighting.polls_without =
                if id.is_some() { 0 } else { sighting.polls_without.saturating_add(1) };
            match (was_missing, sighting.is_missing()) {
                (false, true) => tracing::error!(
                    "the topic `{name}` does not exist any more: nothing that has to be written \
                     to it, and nothing behind that, goes on; create it with `huntd topics`"
                ),
                (true, false) => tracing::warn!("the topic `{name}` exists again"),
                _ => {}
            }
            is_news |= was_missing != sighting.is_missing();
            match sighting.identify(id.unwrap_or(0)) {
                Identity::Same => {}
                // Its first id is told by two connections as well.
                Identity::Doubted if sighting.id == 0 => {}
                Identity::Doubted => tracing::warn!(
                    "a broker says that the topic `{name}` is another one: another connection is \
                     asked before that counts"
                ),
                Identity::Another => {
                    tracing::warn!("the topic `{name}` was deleted and created again");
                }
            }
        }
        is_news
    }

    fn missing(&self) -> Vec<String> {
        let missing = self.topics.iter().filter(|(_, sighting)| sighting.is_missing());
        missing.map(|(name, _)| format!("`{name}`")).collect()
    }

    /// Whether another connection has to be asked.
    fn are_doubted(&self) -> bool {
        self.topics.values().any(|sighting| sighting.doubted_id != 0)
    }

    fn is_recreated(&self, name: &str) -> bool {
        self.topics.get(name).is_some_and(|sighting| sighting.is_recreated)
    }
}

impl Sighting {
    fn is_missing(&self) -> bool {
        self.polls_without >= POLLS_WITHOUT
    }

    /// Takes the id that a connection tells, if it is one.
    fn identify(&mut self, id: u128) -> Identity {
        let doubted = std::mem::replace(&mut self.doubted_id, 0);
        if id == 0 || id == self.id {
            return Identity::Same;
        }
        if id != doubted {
            self.doubted_id = id;
            return Identity::Doubted;
        }
        let is_another = std::mem::replace(&mut self.id, id) != 0;
        self.is_recreated |= is_another;
        if is_another { Identity::Another } else { Identity::Same }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: Option<u128> = Some(7);

    #[test]
    fn a_topic_is_missing_once_two_polls_in_a_row_have_not_found_it() {
        let mut sightings = Sightings::default();
        let mut take = |letters| {
            let is_news = sightings.take(&[("letters", letters), ("updates", ID)]);
            (is_news, sightings.missing())
        };
        let missing = vec!["`letters`".to_owned()];
        assert_eq!(take(ID), (false, vec![]));
        assert_eq!(take(None), (false, vec![]));
        assert_eq!(take(ID), (false, vec![]), "a broker had only just started");
        assert_eq!(take(None), (false, vec![]));
        assert_eq!(take(None), (true, missing.clone()));
        assert_eq!(take(None), (false, missing));
        assert_eq!(take(ID), (true, vec![]));
    }

    #[test]
    fn a_topic_that_comes_back_with_another_id_was_created_again_once_two_connections_say_so() {
        let mut sightings = Sightings::default();
        let mut take = |id| {
            sightings.take(&[("updates", id)]);
            (sightings.are_doubted(), sightings.is_recreated("updates"))
        };
        assert_eq!(take(Some(0)), (false, false), "an old broker tells no id");
        assert_eq!(take(Some(6)), (true, false), "the first id has to be told twice, too");
        assert_eq!(take(ID), (true, false));
        for id in [ID, None, None, ID, Some(0)] {
            assert_eq!(take(id), (false, false));
        }
        assert_eq!(take(Some(8)), (true, false), "only one connection says so");
        assert_eq!(take(ID), (false, false));
        assert_eq!(take(Some(8)), (true, false), "the one before was refuted");
        assert_eq!(take(Some(9)), (true, false), "they do not agree");
        assert_eq!(take(Some(9)), (false, true));
        for id in [None, Some(9), ID] {
            assert!(take(id).1, "it is for good");
        }
    }
}
