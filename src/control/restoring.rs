//! How far the shards are that have to catch up before the daemon is ready.

use super::Control;
use crate::ownership::shard_state::ShardState;
use crate::service::restoring::Restoring;
use crate::service::status::Phase;
use crate::telemetry::metrics::{Counter, Gauge};
use std::time::{Duration, Instant};

impl Control {
    /// Ready is whoever has joined, is connected, has acquired what it was given, and has applied
    /// what was in the input by then.
    pub(super) fn show_phase(&mut self) {
        self.notice_restored();
        self.log_restoring();
        let stands = |wanted: fn(&ShardState) -> bool| {
            self.shards.iter().any(|(_, standing)| wanted(&standing))
        };
        let open = stands(|shard| matches!(shard, ShardState::Live(_) | ShardState::Restoring(_)));
        let acquiring = stands(|shard| matches!(shard, ShardState::Due(_) | ShardState::Acquiring));
        let restoring = stands(|shard| matches!(shard, ShardState::Restoring(_)));
        // A standby has looked at the topic's leaders, and needs no connection beyond that.
        let connected = match open {
            true => self.ends.metrics.gauge(Gauge::Connections) > 0,
            false => self.ends.metrics.get(Counter::ConnectionsOpened) > 0,
        };
        self.ends.status.enter(match (self.joined, connected) {
            (false, _) => Phase::Joining,
            (true, false) => Phase::Connecting,
            (true, true) if acquiring || restoring => Phase::Restoring,
            (true, true) => Phase::Ready,
        });
    }

    /// A line a second, while there is something to tell.
    fn log_restoring(&mut self) {
        let elapsed = self.restoring_told_at.elapsed();
        if elapsed < Duration::from_secs(1) {
            return;
        }
        self.restoring_told_at = Instant::now();
        let records = self.ends.metrics.get(Counter::RecordsReceived);
        let received = records - std::mem::replace(&mut self.records_told, records);
        let restoring = Restoring::of(&self.ends.progress);
        if restoring.shards > 0 {
            tracing::info!("{}", restoring.at_rate(received, elapsed));
        }
    }

    /// The first Fetch of an ownership tells where its input ends: at or behind where it ended when
    /// the fence was written. From there on the shard is live.
    fn notice_restored(&mut self) {
        let restoring: Vec<i32> = self
            .shards
            .iter()
            .filter(|(_, standing)| matches!(standing, ShardState::Restoring(_)))
            .map(|(partition, _)| partition)
            .collect();
        let shards = self.ends.progress.clone();
        for partition in restoring {
            let progress = shards.shard(partition);
            if progress.is_input_short() {
                self.acquire_again(partition, "the input ends before what the output covers of it");
                continue;
            }
            if progress.goal.get() < 0 {
                progress.goal.set(progress.high_watermark.get());
            }
            let goal = progress.goal.get();
            if goal >= 0 && progress.applied.get() >= goal {
                self.shards.restored(partition);
                tracing::info!(partition, offset = goal, "live");
            }
        }
    }
}
