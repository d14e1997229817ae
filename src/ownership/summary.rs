//! What other threads and operators see of all shards together.

use super::Ownership;
use crate::ownership::shard_state::{OpenPhase, ShardState};
use std::collections::BTreeSet;
use std::time::Instant;

/// A summary of all shards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// The group has let us in.
    pub is_member: bool,
    /// Shards on the hot thread.
    pub open: u32,
    /// Of these, those that are behind.
    pub restoring: u32,
    /// Shards that are being acquired, or will be.
    pub acquiring: u32,
    /// Copies of zones that other instances own, those included that begin again after a failure.
    pub copies: u32,
    /// Shards that only an operator can help.
    pub halted: u32,
}

impl Ownership {
    /// All shards together.
    pub fn summary(&self) -> Summary {
        let (is_member, copies) = (self.session.is_member(), self.acquirer.copies(&self.table));
        let mut summary = Summary { is_member, copies, ..Summary::default() };
        for (partition, shard) in self.table.iter() {
            match shard {
                ShardState::Halted => summary.halted += 1,
                ShardState::Open(open) => {
                    summary.open += 1;
                    let is_restoring = matches!(open.phase, OpenPhase::Restoring(_));
                    summary.restoring += u32::from(is_restoring && open.is_assigned);
                }
                _ if self.table.is_copy(partition) => {}
                _ => summary.acquiring += 1,
            }
        }
        summary
    }

    /// Returns the zones of this instance that another version of the game plays.
    pub(crate) fn awaited(&self, now: Instant) -> BTreeSet<i32> {
        let awaited = self.table.iter().filter(|of| self.acquirer.awaits_version(*of, now));
        awaited.map(|(partition, _)| partition).collect()
    }

    /// How many copies are warm: they could take their zones over.
    pub fn warm_copies(&self, now: Instant) -> u32 {
        self.acquirer.warm_copies(&self.table, now)
    }

    /// Returns the trouble that keeps this instance out of the group, if it is known.
    pub(crate) fn group_trouble(&self) -> Option<&str> {
        self.session.trouble()
    }

    /// The shards whose last attempt at acquiring them has failed, and why.
    pub(crate) fn setbacks(&self) -> impl Iterator<Item = (i32, &str)> {
        let own = self.table.iter().filter(|(partition, _)| !self.table.is_copy(*partition));
        own.filter_map(|(partition, shard)| {
            let why = shard.history().and_then(|history| history.why.as_deref());
            why.map(|why| (partition, why))
        })
    }
}
