//! Where each shard stands that the group gave us. Pure: time is an argument.

use std::collections::BTreeMap;
use std::time::Instant;

/// Where a shard stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShardState {
    /// To be acquired at this time.
    Due(Instant),
    /// Its output is being read and fenced.
    Acquiring,
    /// On the hot thread, and behind the end that its input had when it began.
    Restoring(u32),
    /// On the hot thread.
    Live(u32),
    /// On the hot thread, and about to end.
    Closing(u32),
    /// Stopped: only an operator can help.
    Halted,
}

impl ShardState {
    /// The ownership within this process, for a shard that is on the hot thread.
    fn ownership_id(self) -> Option<u32> {
        match self {
            ShardState::Restoring(ownership_id)
            | ShardState::Live(ownership_id)
            | ShardState::Closing(ownership_id) => Some(ownership_id),
            ShardState::Due(_) | ShardState::Acquiring | ShardState::Halted => None,
        }
    }
}

/// All shards that are ours, by partition.
#[derive(Debug, Default)]
pub struct ShardStates {
    shards: BTreeMap<i32, ShardState>,
    ownership_id: u32,
}

impl ShardStates {
    /// No shard is ours.
    pub fn new() -> ShardStates {
        ShardStates::default()
    }

    /// The partitions that are ours.
    pub fn partitions(&self) -> Vec<i32> {
        self.shards.keys().copied().collect()
    }

    /// All shards with where they stand.
    pub fn iter(&self) -> impl Iterator<Item = (i32, ShardState)> {
        self.shards.iter().map(|(partition, standing)| (*partition, *standing))
    }

    /// The group gave us a shard, or it has to be acquired once more.
    pub fn make_due(&mut self, partition: i32, at: Instant) {
        self.shards.insert(partition, ShardState::Due(at));
    }

    /// The shards to be acquired now. From here on they are being acquired.
    pub fn take_due(&mut self, now: Instant) -> Vec<i32> {
        let mut taken = Vec::new();
        for (partition, standing) in &mut self.shards {
            if matches!(standing, ShardState::Due(at) if *at <= now) {
                *standing = ShardState::Acquiring;
                taken.push(*partition);
            }
        }
        taken
    }

    /// A shard that was being acquired goes to the hot thread, under a ownership of its own.
    pub fn open(&mut self, partition: i32) -> u32 {
        assert!(self.is_acquiring(partition), "only what is being acquired is opened");
        self.ownership_id += 1;
        self.shards.insert(partition, ShardState::Restoring(self.ownership_id));
        self.ownership_id
    }

    /// The shard has come to where its input ended when it began.
    pub fn restored(&mut self, partition: i32) {
        if let Some(standing) = self.shards.get_mut(&partition)
            && let ShardState::Restoring(ownership_id) = *standing
        {
            *standing = ShardState::Live(ownership_id);
        }
    }

    /// A shard on the hot thread is about to end: whether it was there.
    pub fn close(&mut self, partition: i32) -> bool {
        match self.shards.get_mut(&partition) {
            Some(standing @ (ShardState::Restoring(_) | ShardState::Live(_))) => {
                *standing = ShardState::Closing(standing.ownership_id().expect("it is open"));
                true
            }
            _ => false,
        }
    }

    /// A shard is stopped.
    pub fn halt(&mut self, partition: i32) {
        self.shards.insert(partition, ShardState::Halted);
    }

    /// A shard is not ours any more: where it stood.
    pub fn remove(&mut self, partition: i32) -> Option<ShardState> {
        self.shards.remove(&partition)
    }

    /// Where a shard stands; `None`: it is not ours.
    pub fn get(&self, partition: i32) -> Option<ShardState> {
        self.shards.get(&partition).copied()
    }

    /// Whether a shard is being acquired.
    pub fn is_acquiring(&self, partition: i32) -> bool {
        self.shards.get(&partition) == Some(&ShardState::Acquiring)
    }

    /// Whether a shard is about to end.
    pub fn is_closing(&self, partition: i32) -> bool {
        matches!(self.shards.get(&partition), Some(ShardState::Closing(_)))
    }

    /// Whether this is the ownership that is on the hot thread now. Of any other, nothing that is
    /// told counts.
    pub fn is_current(&self, partition: i32, ownership_id: u32) -> bool {
        let standing = self.shards.get(&partition);
        standing.and_then(|standing| standing.ownership_id()) == Some(ownership_id)
    }

    /// Shards that cannot go on.
    pub fn halted(&self) -> u32 {
        let halted = self.shards.values().filter(|standing| **standing == ShardState::Halted);
        halted.count() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_an_earlier_ownership_tells_does_not_count() {
        let now = Instant::now();
        let mut standings = ShardStates::new();
        standings.make_due(3, now);
        assert_eq!(standings.take_due(now), [3]);
        let first = standings.open(3);
        standings.make_due(3, now + Duration::from_secs(1));
        assert!(!standings.is_current(3, first));
        assert!(standings.take_due(now).is_empty());
        assert_eq!(standings.take_due(now + Duration::from_secs(1)), [3]);
        let second = standings.open(3);
        assert!(first < second && standings.is_current(3, second));
        assert!(!standings.is_current(3, first));
    }

    #[test]
    fn only_a_shard_on_the_hot_thread_has_to_be_closed() {
        let now = Instant::now();
        let mut standings = ShardStates::new();
        for partition in 0..4 {
            standings.make_due(partition, now);
        }
        standings.take_due(now);
        standings.open(0);
        standings.open(1);
        standings.restored(1);
        standings.halt(2);
        let closed: Vec<bool> = (0..5).map(|partition| standings.close(partition)).collect();
        assert_eq!(closed, [true, true, false, false, false]);
        assert!(standings.is_closing(0) && standings.is_closing(1));
        assert_eq!(standings.halted(), 1);
    }
}
