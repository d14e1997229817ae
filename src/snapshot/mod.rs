//! States on disk and in a topic, from which shards start.

pub mod checkpoint;
pub mod disk;
pub mod format;
pub mod replicas;
pub(crate) mod replicator;
pub mod slots;
pub mod stored_states;
pub mod writer;

#[cfg(test)]
mod tests;

use std::path::PathBuf;

/// Lower limit of the interval between two snapshots of a shard, in milliseconds: below it, the
/// disk does nothing but store snapshots.
pub(crate) const SNAPSHOT_EVERY_MS_MIN: u64 = 100;

/// Upper limit; see [`SNAPSHOT_EVERY_MS_MIN`]. Above it, a restart replays hours of input.
pub(crate) const SNAPSHOT_EVERY_MS_MAX: u64 = 3_600_000;

/// Lower limit of the snapshots kept per shard: the newest may be ahead of the acknowledged output,
/// and another one may be damaged.
pub(crate) const SNAPSHOTS_KEPT_MIN: usize = 3;

/// Upper limit of the snapshots kept per shard: a start reads all their headers.
pub(crate) const SNAPSHOTS_KEPT_MAX: usize = 64;

/// The operator's options for snapshots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotOptions {
    /// Directory of the snapshots; `None` for no snapshots.
    pub directory: Option<PathBuf>,
    /// Interval between two snapshots of a shard, in milliseconds.
    pub every_ms: u64,
    /// Number of snapshots to keep per shard.
    pub keep: usize,
    /// The compacted topic for replicas; `None` for no replicas.
    pub topic: Option<String>,
}
