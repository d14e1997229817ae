//! The queues between the threads: each thread gets its ends here, and shares nothing else.

use crate::control::{MESSAGES_MAX, output_log};
use crate::daemon::failure::Failure;
use crate::daemon::hot;
use crate::daemon::snapshots::{SnapshotParts, SnapshotWiring, copy_options, origin};
use crate::engine::rules::rulebook::Rulebook;
use crate::fetch::REPORTS_MAX;
use crate::output::frame::Frame;
use crate::publisher::OUTBOX_ITEMS_MAX;
use crate::queue::bell::Bell;
use crate::queue::bounded;
use crate::service::config::Config;
use crate::service::{self, Observed};
use crate::shards::FRAMES_MAX;
use crate::telemetry::progress::Progress;
use crate::{control, publisher};
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// What each thread is given.
pub struct Wiring {
    /// The hot thread's.
    pub hot: hot::HotEnds,
    /// The publisher's.
    pub publisher: publisher::PublisherEnds,
    /// The keeper's; `None`: there are no snapshots.
    pub keeper: Option<SnapshotParts>,
    /// The control thread's.
    pub control: control::ControlEnds,
}

impl Wiring {
    /// Makes all queues, and the frames that go round.
    pub fn new(
        config: &Config,
        rulebook: &Rulebook,
        observed: &Observed,
        stop: &Arc<AtomicBool>,
    ) -> Result<Wiring, Failure> {
        let (commands, hot_commands) = bounded(MESSAGES_MAX);
        let (hot_notices, notices) = bounded(MESSAGES_MAX);
        let (hot_reports, reports) = bounded(REPORTS_MAX);
        let (resolved, hot_resolved) = bounded(REPORTS_MAX);
        let (orders, publisher_orders) = bounded(MESSAGES_MAX);
        let (publisher_failures, failures) = bounded(MESSAGES_MAX);
        let (publisher_jumps, jumps) = bounded(MESSAGES_MAX);
        let (outbox, inbox) = bounded(OUTBOX_ITEMS_MAX);
        let (free_frames, hot_free_frames) = bounded(FRAMES_MAX);
        for _ in 0..FRAMES_MAX {
            assert!(free_frames.try_send(Frame::new()).is_ok(), "there is room for every frame");
        }
        let bell = Arc::new(Bell::new().map_err(service::Error::Resources)?);
        let keeping = SnapshotWiring::new(config, observed)?;
        let Observed { metrics, progress, status } = observed.clone();
        let hot = hot::HotEnds {
            fetch: config.fetch.clone(),
            bootstrap: resolve(&config.group.client.brokers)?,
            queue_blocks: config.queue_blocks,
            linger: Duration::from_micros(config.publisher.linger_us_max.into()),
            frames_per_shard: config.publisher.frames_per_shard as u64,
            bytes_max: config.publisher.queue_kbytes_max as u64 * 1024,
            commands: hot_commands,
            notices: hot_notices,
            reports: hot_reports,
            resolved: hot_resolved,
            outbox,
            free_frames: hot_free_frames,
            bell: bell.clone(),
            keeper: None,
            progress: progress.clone(),
            metrics: metrics.clone(),
        };
        let SnapshotWiring { hot: hot_keeper, gates, bell: keeper_bell, keeper, snapshots } =
            keeping;
        let hot = hot::HotEnds { keeper: hot_keeper, ..hot };
        let publisher = publisher::PublisherEnds {
            inbox,
            free_frames,
            orders: publisher_orders,
            failures: publisher_failures,
            jumps: publisher_jumps,
            gates,
            keeper_bell,
            bell,
        };
        let stop = stop.clone();
        let control = control::ControlEnds {
            commands,
            notices,
            reports,
            resolved,
            orders,
            failures,
            jumps,
            snapshots,
            rulebook: rulebook.clone(),
            stop,
            progress,
            metrics,
            status,
        };
        Ok(Wiring { hot, publisher, keeper, control })
    }
}

/// What the control thread is told.
pub fn control_options(config: &Config, progress: &Progress) -> control::ControlOptions {
    let tail = output_log::OutputLogOptions {
        client: config.group.client.clone(),
        input_topic: config.fetch.input_topic.clone(),
        output_topic: config.publisher.output_topic.clone(),
        dead_letter_topic: config.publisher.dead_letter_topic.clone(),
        format: config.publisher.format,
    };
    let origin = origin(config, &progress.input_topic_id);
    control::ControlOptions {
        group: config.group.clone(),
        tail,
        copies: copy_options(config, &origin),
        origin,
        state_directory: config.snapshot.directory.clone(),
        remedy: config.remedy,
        skips: config.skips.clone(),
    }
}

/// Addresses of the brokers to ask first. Some may be unknown, but not all.
fn resolve(brokers: &[String]) -> Result<Vec<SocketAddr>, Failure> {
    let found = brokers.iter().filter_map(|broker| broker.to_socket_addrs().ok());
    let addresses: Vec<SocketAddr> = found.flatten().collect();
    if addresses.is_empty() {
        return Err(Failure::UnknownBrokers(brokers.join(",")));
    }
    Ok(addresses)
}
