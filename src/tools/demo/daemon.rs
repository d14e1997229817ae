//! The daemon inside the demo: the same threads as under systemd, stopped when the demo is over.

use crate::daemon;
use crate::kit::engine::AnyRulebook;
use crate::service::config::Config;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::progress::Progress;
use crate::tools::failure::ToolError;
use std::sync::Arc;

/// A running daemon, and its counters after it has ended.
pub(super) struct DemoDaemon {
    /// The progress of each shard.
    pub(super) progress: Arc<Progress>,
    /// The counters.
    pub(super) metrics: Arc<Metrics>,
    running: Option<daemon::Daemon>,
}

impl DemoDaemon {
    /// Starts all threads.
    pub(super) fn start(config: Config, rulebook: AnyRulebook) -> Result<DemoDaemon, ToolError> {
        let running = daemon::Daemon::start(config, rulebook)?;
        let progress = running.observed.progress.clone();
        let metrics = running.observed.metrics.clone();
        Ok(DemoDaemon { progress, metrics, running: Some(running) })
    }

    /// Returns whether it has ended by itself or because of a signal.
    pub(super) fn has_ended(&self) -> bool {
        self.running.as_ref().is_none_or(daemon::Daemon::has_ended)
    }

    /// Returns whether every shard is on the hot thread, which then publishes its digest.
    pub(super) fn has_opened(&self, partitions: i32) -> bool {
        (0..partitions).all(|partition| self.progress.shard(partition).digest.get() != 0)
    }

    /// Lets it drain and end.
    pub(super) fn stop(&mut self) -> Result<(), ToolError> {
        let Some(running) = self.running.take() else {
            return Ok(());
        };
        running.stop();
        Ok(running.wait()?)
    }
}
