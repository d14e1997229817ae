//! Whether the topics that the daemon needs are still there, and as they were. A broker that
//! is told to produce to a topic that was deleted answers as one does that has only just started,
//! so a producer waits; this says what it waits for.

use super::ControlOptions;
use super::join_watch::JoinWatch;
use super::topic_polls::{Sightings, TopicPolls};
use super::topic_rules::TopicNames;
use crate::kafka::RECONNECT_MS_MIN;
use crate::kafka::right::Right;
use crate::service::status::Status;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// Milliseconds between two polls.
const POLL_EVERY_MS: u64 = 2_500;

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
            let name = |(name, right): (&String, Right)| (name.clone(), right);
            let topics: Vec<(String, Right)> = names.all().map(name).collect();
            let (mut polls, mut join_watch) = (TopicPolls::new(dial), JoinWatch::default());
            loop {
                let mut pause_ms = POLL_EVERY_MS;
                // A poll without an answer changes nothing.
                if let Ok(found) = polls.ask(&topics) {
                    let sightings = &mut polls.sightings;
                    if sightings.take(&found, Instant::now()) {
                        status.set_missing_topics(sightings.missing());
                    }
                    by_thread.take(sightings, &names);
                    if sightings.doubts_any_of(&found) {
                        pause_ms = RECONNECT_MS_MIN;
                    }
                }
                if let Some(client) = polls.client() {
                    join_watch.poll(client, &group, status.phase());
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
