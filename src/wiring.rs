//! The queues between the threads: each thread gets its ends here, and shares nothing else.

use crate::engine::rules::rulebook::Rulebook;
use crate::failure::Failure;
use crate::keeping::{KeeperParts, Keeping, copy_options, origin};
use crate::limits::{FRAMES_MAX, MESSAGES_MAX, OUTBOX_ITEMS_MAX, REPORTS_MAX};
use crate::progress::Progress;
use crate::publisher::bell::Bell;
use crate::publisher::frame::Frame;
use crate::queue::bounded;
use crate::recovery::tail;
use crate::service::config::Config;
use crate::service::{self, Observed};
use crate::{control, hot, publisher};
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// What each thread is given.
pub struct Wiring {
    /// The hot thread's.
    pub hot: hot::Ends,
    /// The publisher's.
    pub publisher: publisher::Ends,
    /// The keeper's; `None`: there are no snapshots.
    pub keeper: Option<KeeperParts>,
    /// The control thread's.
    pub control: control::Ends,
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
        let keeping = Keeping::new(config, observed)?;
        let Observed { metrics, progress, status } = observed.clone();
        let hot = hot::Ends {
            consumer: config.consumer.clone(),
            bootstrap: resolve(&config.consumer.brokers)?,
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
        let Keeping { hot: hot_keeper, gates, bell: keeper_bell, keeper, snapshots } = keeping;
        let hot = hot::Ends { keeper: hot_keeper, ..hot };
        let publisher = publisher::Ends {
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
        let control = control::Ends {
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
pub fn control_options(config: &Config, progress: &Progress) -> control::Options {
    let tail = tail::Options {
        brokers: config.consumer.brokers.clone(),
        client_id: config.consumer.client_id.clone(),
        group: config.consumer.group.clone(),
        input_topic: config.consumer.input_topic.clone(),
        output_topic: config.publisher.output_topic.clone(),
        dead_letter_topic: config.publisher.dead_letter_topic.clone(),
        format: config.publisher.format,
    };
    let origin = origin(config, &progress.input_topic_id);
    control::Options {
        consumer: config.consumer.clone(),
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
