//! Readiness, as `/readyz` has it, against what the group and the logs say.

use crate::chance::Sight;
use crate::mutation::Mutation;
use crate::node::Node;
use crate::sim::Sim;
use huntd::service::status::{Phase, Trouble, is_ready};
use huntd::telemetry::metrics::Gauge;

impl Node {
    /// The control thread has turned: whether the daemon says that it is ready.
    pub(crate) fn note_readiness(&mut self, wrong: Mutation) {
        let mut summary = self.control.ownership.summary();
        if wrong == Mutation::ReadyTooSoon {
            (summary.acquiring, summary.restoring) = (0, 0);
        }
        let connections = self.metrics.gauge(Gauge::Connections);
        let phase = Phase::of(&summary, connections, self.control.is_input_known);
        let trouble = Trouble { halted: summary.halted, ..Trouble::default() };
        // A daemon that has to end drains, whatever it still has.
        self.watched.is_ready = !self.control.is_stopping() && is_ready(phase, trouble);
    }
}

impl Sim {
    /// A daemon that says that it is ready plays all partitions that the group lets it have, and
    /// has applied what their logs had when it got them.
    pub(crate) fn check_readiness(&mut self, host: usize) -> Result<(), String> {
        let Some(node) = self.hosts[host].node.as_ref().filter(|node| node.watched.is_ready) else {
            return Ok(());
        };
        let Some(partitions) = self.group.settled(node.control.member) else { return Ok(()) };
        // One that was given back while it closes is acquired again after that.
        for partition in partitions.iter().filter(|of| !node.control.closing.contains(*of)) {
            let progress = node.progress.shard(*partition);
            let what = match (progress.ownership_id.get(), progress.applied.get()) {
                (0, _) => "does not play",
                (_, applied) if applied < progress.goal.get() => "is behind in",
                _ => continue,
            };
            return Err(format!("node {} is ready, and {what} partition {partition}", node.name));
        }
        self.chance.see(Sight::Ready);
        Ok(())
    }

    /// Returns whether each daemon that has partitions is ready, unless a shard of it is halted.
    pub(crate) fn are_ready(&self) -> bool {
        self.hosts.iter().filter_map(|host| host.node.as_ref()).all(|node| {
            let partitions = self.group.settled(node.control.member).unwrap_or_default();
            let is_hindered =
                node.control.is_stopping() || partitions.iter().any(|of| self.is_hopeless(*of));
            let is_halted = node.control.needs_operator();
            partitions.is_empty() || is_hindered || node.watched.is_ready != is_halted
        })
    }
}
