//! The daemon inside the demo: the same threads as under systemd, stopped when the demo is over.

use crate::engine::rules::rulebook::Rulebook;
use crate::metrics::Metrics;
use crate::pipeline;
use crate::progress::Progress;
use crate::service::config::Config;
use crate::tools::failure::ToolError;
use std::sync::Arc;

/// A running daemon, and its numbers after it has ended.
pub(super) struct Daemon {
    /// How far each shard is.
    pub(super) progress: Arc<Progress>,
    /// The counters.
    pub(super) metrics: Arc<Metrics>,
    running: Option<pipeline::Daemon>,
}

impl Daemon {
    /// Starts all threads.
    pub(super) fn start(config: Config, rulebook: Rulebook) -> Result<Daemon, ToolError> {
        let running = pipeline::Daemon::start(config, rulebook)?;
        let progress = running.observed.progress.clone();
        let metrics = running.observed.metrics.clone();
        Ok(Daemon { progress, metrics, running: Some(running) })
    }

    /// Whether it has ended by itself, or because a signal asked for it.
    pub(super) fn has_ended(&self) -> bool {
        self.running.as_ref().is_none_or(pipeline::Daemon::has_ended)
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
