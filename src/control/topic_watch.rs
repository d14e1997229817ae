//! Whether the topics that the daemon needs are still there. A broker that is told to produce to a
//! topic that was deleted answers as one does that has only just started, so a producer waits; this
//! says what it waits for.

use super::ControlOptions;
use super::control_error::ControlError;
use super::dialler::DialOptions;
use super::topic_client::TopicClient;
use super::topic_rules::TopicNames;
use crate::service::status::Status;
use std::collections::BTreeMap;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

/// Milliseconds between two looks.
const LOOK_EVERY_MS: u64 = 2_500;

/// Looks in a row that do not find a topic before it is called missing: a broker that has only just
/// started does not know all topics yet.
const LOOKS_WITHOUT: u32 = 2;

/// A thread that asks the brokers. Dropped, it ends with its next look; nobody waits for it.
pub(super) struct TopicWatch {
    /// Nothing is ever sent: dropping it ends the thread.
    _alive: Option<mpsc::Sender<()>>,
}

impl TopicWatch {
    /// Begins to look. Without a thread for it nothing is ever called missing.
    pub(super) fn start(options: &ControlOptions, status: Arc<Status>) -> TopicWatch {
        let (alive, ended) = mpsc::channel::<()>();
        let (dial, names) = (options.dial.clone(), options.topics.clone());
        let watch = move || {
            let (mut client, mut absences) = (None, Absences::default());
            let pause = Duration::from_millis(LOOK_EVERY_MS);
            while ended.recv_timeout(pause) == Err(mpsc::RecvTimeoutError::Timeout) {
                // What brokers do not answer is no news.
                if let Ok(found) = look(&mut client, &dial, &names)
                    && absences.count(&found)
                {
                    status.set_missing_topics(absences.missing());
                }
            }
        };
        let thread = thread::Builder::new().name("topics".to_owned()).spawn(watch);
        TopicWatch { _alive: thread.is_ok().then_some(alive) }
    }
}

/// Each topic, and whether it is there.
fn look<'a>(
    kept: &mut Option<TopicClient>,
    dial: &DialOptions,
    names: &'a TopicNames,
) -> Result<Vec<(&'a str, bool)>, ControlError> {
    let mut client = match kept.take() {
        Some(client) => client,
        None => TopicClient::connect(dial)?,
    };
    let mut found = Vec::new();
    for name in names.all() {
        found.push((name.as_str(), client.find(name)?.is_some()));
    }
    *kept = Some(client);
    Ok(found)
}

/// How many looks in a row have not found each topic.
#[derive(Default)]
struct Absences {
    looks: BTreeMap<String, u32>,
}

impl Absences {
    /// Counts one look, and says in the log what is new. Whether anything is.
    fn count(&mut self, found: &[(&str, bool)]) -> bool {
        let mut is_news = false;
        for (name, is_there) in found {
            let looks = self.looks.entry((*name).to_owned()).or_default();
            let was_missing = *looks >= LOOKS_WITHOUT;
            *looks = if *is_there { 0 } else { looks.saturating_add(1) };
            match (was_missing, *looks >= LOOKS_WITHOUT) {
                (false, true) => tracing::error!(
                    "the topic `{name}` does not exist any more: nothing that has to be written \
                     to it, and nothing behind that, goes on; create it with `huntd topics`"
                ),
                (true, false) => tracing::warn!("the topic `{name}` exists again"),
                _ => continue,
            }
            is_news = true;
        }
        is_news
    }

    fn missing(&self) -> Vec<String> {
        let missing = self.looks.iter().filter(|(_, looks)| **looks >= LOOKS_WITHOUT);
        missing.map(|(name, _)| format!("`{name}`")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_is_missing_once_two_looks_in_a_row_have_not_found_it() {
        let mut absences = Absences::default();
        let mut count = |is_there| {
            let is_news = absences.count(&[("letters", is_there), ("updates", true)]);
            (is_news, absences.missing())
        };
        let missing = vec!["`letters`".to_owned()];
        assert_eq!(count(true), (false, vec![]));
        assert_eq!(count(false), (false, vec![]));
        assert_eq!(count(true), (false, vec![]), "a broker had only just started");
        assert_eq!(count(false), (false, vec![]));
        assert_eq!(count(false), (true, missing.clone()));
        assert_eq!(count(false), (false, missing));
        assert_eq!(count(true), (true, vec![]));
    }
}
