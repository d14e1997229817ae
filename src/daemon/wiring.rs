//! The queues between the threads. Each thread gets its ends here; apart from these, threads share
//! only counters, status and the stop flag. All messages to a thread form one closed enum. In
//! addition, the control thread receives rulebooks from the service thread, and the hot thread and
//! the publisher the answers of their diallers. Empty frames and buffers return through queues of
//! their own.

use crate::control::dialler::{self, DialOptions, DiallerEnds};
use crate::control::roll_call::roll_call;
use crate::control::topic_rules::TopicNames;
use crate::control::{self, MESSAGES_MAX, RULEBOOKS_MAX};
use crate::daemon::failure::Failure;
use crate::daemon::hot;
use crate::daemon::snapshots::{SnapshotThreads, SnapshotWiring, origin, replica_options};
use crate::daemon::threads::spawn;
use crate::decoder::reject::Reject;
use crate::fetch::dialling::{DialEnds, Endpoint};
use crate::fetch::{QUEUE_BLOCKS, REPORTS_MAX};
use crate::kafka::error_code::ErrorCode;
use crate::kit::engine::{AnyRulebook, GameSchema};
use crate::output::frame::Frame;
use crate::publisher::{self, OUTBOX_ITEMS_MAX};
use crate::queue::bell::Bell;
use crate::queue::{Receiver, Sender, bounded, bounded_with_bell};
use crate::service::config::Config;
use crate::service::reload::Reloader;
use crate::service::{self, Observed, process, shutdown};
use crate::shards::{FRAMES_MAX, ShardEnds};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::progress::Progress;
use std::net::ToSocketAddrs;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Each thread's options and queue ends.
pub(crate) struct Wiring {
    /// The service thread's; `None` if nothing can be read again.
    pub reloader: Option<Reloader>,
    /// The hot thread's.
    pub hot: hot::HotEnds,
    /// Those of the diallers for both topics.
    pub diallers: [(DialOptions, DiallerEnds); 2],
    /// The publisher's.
    pub publisher: (publisher::PublisherEnds, DialEnds),
    /// Those of the snapshot writer and the replicator; `None` if there are no snapshots.
    pub snapshots: Option<SnapshotThreads>,
    /// The control thread's.
    pub control: control::ControlEnds,
}

impl Wiring {
    /// Creates all queues, and the frames that circulate.
    pub(crate) fn new(
        config: &Config,
        rulebook: &AnyRulebook,
        observed: &Observed,
        stop: &Arc<AtomicBool>,
    ) -> Result<Wiring, Failure> {
        check_surroundings()?;
        let (to_control, control_messages) = bounded(MESSAGES_MAX + REPORTS_MAX);
        let hot_bell = Arc::new(Bell::new().map_err(service::Error::Resources)?);
        let (to_hot, hot_messages) = bounded_with_bell(MESSAGES_MAX, &hot_bell);
        let (hot_dial, hot_dialler) =
            dialler::ends(&hot_bell).map_err(service::Error::Resources)?;
        let (to_rulebooks, rulebooks) = bounded(RULEBOOKS_MAX);
        let reloader = Reloader::new(config, rulebook.rulesets(), to_rulebooks);
        let (to_publisher, inbox) = bounded(OUTBOX_ITEMS_MAX + MESSAGES_MAX);
        let (free_frames, hot_free_frames) = recycled_frames();
        let bell = Arc::new(Bell::new().map_err(service::Error::Resources)?);
        let SnapshotWiring { checkpoints, to_writer, writer_bell, threads, store } =
            SnapshotWiring::new(config, observed)?;
        let Observed { metrics, progress, status } = observed.clone();
        let hot = hot::HotEnds {
            messages: hot_messages,
            fetch: config.fetch.clone(),
            dial_ends: hot_dial,
            queue_blocks: QUEUE_BLOCKS,
            shards: config.shards,
            shard_ends: ShardEnds {
                control: to_control.clone(),
                publisher: to_publisher.clone(),
                free_frames: hot_free_frames,
                checkpoints,
            },
            bell: hot_bell,
            publisher_bell: bell.clone(),
            progress: progress.clone(),
            metrics: metrics.clone(),
            events: rulebook.schema().events,
        };
        let publisher = publisher::PublisherEnds {
            inbox,
            free_frames,
            control: to_control,
            snapshots: to_writer,
            snapshots_bell: writer_bell,
            bell,
            progress: progress.clone(),
            metrics: metrics.clone(),
            game: rulebook.schema(),
        };
        let control = control::ControlEnds {
            messages: control_messages,
            hot: to_hot,
            publisher: to_publisher,
            snapshots: store,
            rulebook: rulebook.clone(),
            rulebooks,
            stop: stop.clone(),
            progress,
            metrics,
            status,
        };
        let (diallers, dial_ends) = diallers(config, hot_dialler, &publisher.bell)?;
        let publisher = (publisher, dial_ends);
        Ok(Wiring { reloader, hot, diallers, publisher, snapshots: threads, control })
    }
}

/// Creates the queue in which frames return to the hot thread, filled with all frames.
fn recycled_frames() -> (Sender<Box<Frame>>, Receiver<Box<Frame>>) {
    let (frames, free_frames) = bounded(FRAMES_MAX);
    for _ in 0..FRAMES_MAX {
        assert!(frames.try_send(Frame::new()).is_ok(), "there is room for every frame");
    }
    (frames, free_frames)
}

/// Creates both diallers, and the publisher's ends of its own.
fn diallers(
    config: &Config,
    hot: DiallerEnds,
    publisher_bell: &Arc<Bell>,
) -> Result<([(DialOptions, DiallerEnds); 2], DialEnds), Failure> {
    let dialling = dialler::ends(publisher_bell);
    let (dial_ends, publisher) = dialling.map_err(service::Error::Resources)?;
    let of_input = dial_options(config, &config.fetch.input_topic);
    let of_output = dial_options(config, &config.publisher.output_topic);
    Ok(([(of_input, hot), (of_output, publisher)], dial_ends))
}

/// Starts both diallers. Each ends with the thread that it serves.
pub(crate) fn start_diallers(
    diallers: [(DialOptions, DiallerEnds); 2],
    stop: &Arc<AtomicBool>,
) -> Result<(), Failure> {
    for (options, ends) in diallers {
        spawn("dialler", stop, move || dialler::run(options, ends))?;
    }
    Ok(())
}

/// The options of the control thread.
pub(crate) fn control_options(config: &Config, progress: &Progress) -> control::ControlOptions {
    let origin = origin(config, &progress.input_topic_id);
    control::ControlOptions {
        group: config.group.clone(),
        dial: dial_options(config, &config.fetch.input_topic),
        output: control::output_log::OutputLogOptions {
            client: config.group.client.clone(),
            input_topic: config.fetch.input_topic.clone(),
            output_topic: config.publisher.output_topic.clone(),
            dead_letter_topic: config.publisher.dead_letter_topic.clone(),
            format: config.publisher.format,
        },
        topics: topic_names(config),
        replicas: replica_options(config, &origin),
        origin,
        state_directory: config.snapshot.directory.clone(),
        remedy: config.remedy,
        skips: config.publisher.skips.clone(),
        standby: config.standby,
    }
}

/// The topics that must exist.
pub(crate) fn topic_names(config: &Config) -> TopicNames {
    let snapshot = &config.snapshot;
    TopicNames {
        input: config.fetch.input_topic.clone(),
        output: config.publisher.output_topic.clone(),
        dead_letters: config.publisher.dead_letter_topic.clone(),
        replicas: snapshot.topic.clone(),
        keeps_snapshots: snapshot.directory.is_some() || snapshot.topic.is_some(),
    }
}

/// The counters, with the names of all reasons and errors.
pub(crate) fn metrics(game: &GameSchema) -> Metrics {
    let rejects = &Reject::ALL.map(Reject::name);
    Metrics::with_names(&game.action_names(), game.refusals, rejects)
        .counting_fetch_errors(&ErrorCode::names())
        .counting_in_zones(game.counts)
}

/// How to reach the brokers of a topic.
pub(crate) fn dial_options(config: &Config, topic: &str) -> DialOptions {
    let client = &config.group.client;
    let endpoint = |broker: &String| Endpoint::parse(broker).expect("the configuration is checked");
    DialOptions {
        bootstrap: client.brokers.iter().map(endpoint).collect(),
        client_id: client.client_id.clone(),
        topic: topic.to_owned(),
        security: client.security.clone(),
    }
}

/// Checks that there are file descriptors and threads for a start. Signals are handled only
/// afterwards, because that takes some of both.
fn check_surroundings() -> Result<(), Failure> {
    process::check_descriptors()
        .and_then(|()| process::check_threads())
        .and_then(|()| shutdown::survive_long_files())
        .map_err(Failure::out_of_resources)
}

/// Checks the broker names. Some may be unknown at start-up, but not all. If the name server does
/// not answer, the control thread waits for it as it does for brokers.
pub(crate) fn check_names(brokers: &[String]) -> Result<(), Failure> {
    let is_known = |broker: String| broker.to_socket_addrs().is_ok();
    let answers = roll_call(brokers.to_vec(), is_known).map_err(Failure::out_of_resources)?;
    if answers.contains(&Some(true)) {
        return Ok(());
    }
    if answers.contains(&None) {
        tracing::warn!(
            "the name server does not answer for {}: huntd waits for it; check the name service",
            brokers.join(", ")
        );
        return Ok(());
    }
    Err(Failure::UnknownBrokers(brokers.join(",")))
}
