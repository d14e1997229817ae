//! Whether the topics that the daemon needs are still there, and as they were. A broker that
//! is told to produce to a topic that was deleted answers as one does that has only just started,
//! so a producer waits; this says what it waits for.

use super::ControlOptions;
use super::topic_client::TopicClient;
use super::topic_polls::{Sightings, TopicPolls};
use super::topic_rules::TopicNames;
use crate::kafka::right::Right;
use crate::service::status::{Phase, Status};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

/// From one poll to the next.
const POLL_EVERY: Duration = Duration::from_millis(2_500);

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
    /// A broker's word about the group's coordinator while the daemon joins.
    coordinator: Mutex<Option<String>>,
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
            let mut missing = Vec::new();
            let pause = |wait| match ended.recv_timeout(wait) {
                Err(mpsc::RecvTimeoutError::Timeout) => ControlFlow::Continue(()),
                _ => ControlFlow::Break(()),
            };
            TopicPolls::new(dial).run(&topics, POLL_EVERY, pause, |client, sightings, _, _| {
                let missing_now = sightings.missing();
                if missing != missing_now {
                    missing.clone_from(&missing_now);
                    status.set_missing_topics(missing_now);
                }
                by_thread.take(sightings, &names);
                let coordinator =
                    (status.phase() == Phase::Joining).then(|| coordinator(client, &group));
                *by_thread.coordinator.lock().expect(UNPOISONED) = coordinator;
            });
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

    /// Why the group may not let the daemon in, and what to do. librdkafka asks for the coordinator
    /// for ever, and tells nobody what it hears.
    pub(super) fn coordinator(&self) -> String {
        let said = self.seen.coordinator.lock().expect(UNPOISONED).clone();
        said.unwrap_or_else(|| {
            "no broker says who coordinates it; see whether the brokers hang, and what is between \
             them and this host"
                .to_owned()
        })
    }
}

/// Why a lock is not poisoned.
const UNPOISONED: &str = "nobody panics while it is held";

/// A broker's word about the group's coordinator.
fn coordinator(client: &mut TopicClient, group: &str) -> String {
    match client.coordinator(group) {
        Err(error) => error.to_string(),
        Ok(broker) => format!(
            "broker {} coordinates `{group}`, and waits for its other members to join again, or \
             for their sessions to time out; `kafka-consumer-groups.sh --describe --members \
             --group {group}` lists them",
            broker.node_id
        ),
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
