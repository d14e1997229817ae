//! What operators do: they restart a daemon of which a shard has halted, and may ask to pass over a
//! record, or that what cannot be started starts over.

use crate::chance::{Fault, Sight};
use crate::sim::{HOSTS, Sim};
use huntd::output::fence_id::FenceIds;
use huntd::ownership::acquisition::Remedy;
use huntd::ownership::{OwnershipOptions, START_ERROR_MS_MAX};

/// Microseconds between two looks at the daemons while there are faults.
const LOOK_US: u64 = 1_000_000;

/// The same without faults. What still fails gets the time to show that it persists: otherwise one
/// shard that nothing helps would keep the others from it for ever.
const CALM_LOOK_US: u64 = 3 * START_ERROR_MS_MAX * 1_000;

impl Sim {
    /// Restarts each daemon of which a shard has halted.
    pub(crate) fn operate(&mut self) {
        let is_calm = self.now >= self.chaos_until;
        self.next_operator = self.now + if is_calm { CALM_LOOK_US } else { LOOK_US };
        if is_calm && self.plays_editions {
            self.agree_on_version();
        }
        for host in 0..HOSTS {
            let node = self.hosts[host].node.as_ref();
            let is_needed = node.is_some_and(|node| node.control.needs_operator());
            if is_needed && self.hosts[host].stop_at.is_none() {
                self.chance.see(Sight::OperatorRestarted);
                if self.starts_over {
                    self.chance.counts.faults[Fault::GenesisAsked as usize] += 1;
                    self.hosts[host].remedy = Remedy::StartOver;
                    self.is_genesis_asked = true;
                }
                self.stop(host);
            }
        }
    }

    /// What a daemon is told at its start.
    pub(crate) fn options(&mut self, host: usize) -> OwnershipOptions {
        let mut skips = Vec::new();
        if self.chance.strikes_of(Fault::SkipAsked, 10) {
            let partition = self.chance.below(self.broker.inputs.len() as u64) as i32;
            let end = self.broker.inputs[partition as usize].end;
            let offset = (end - self.chance.below(6) as i64 + 2).max(0);
            self.asked_skips.entry((partition, offset)).or_insert(false);
            skips.push((partition, offset));
        }
        let remedy = std::mem::replace(&mut self.hosts[host].remedy, Remedy::Refuse);
        if remedy == Remedy::StartOver {
            // Shards that could not be started can start over.
            self.start_errors.clear();
        }
        OwnershipOptions {
            updates: huntd::hunt::change::UPDATES,
            partitions: self.broker.inputs.len() as i32,
            rulesets: Vec::new(),
            version: self.hosts[host].version,
            remedy,
            skips,
            read_slots: 1,
            standby: self.standby,
            fence_ids: FenceIds::new("", 0),
        }
    }
}
