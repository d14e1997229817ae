//! States on disk and in a topic, from which a shard starts.

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

/// Milliseconds from one snapshot of a shard to its next: below this, taking snapshots is all that
/// the disk does.
pub(crate) const SNAPSHOT_EVERY_MS_MIN: u64 = 100;

/// See [`SNAPSHOT_EVERY_MS_MIN`]: beyond this a restart replays hours.
pub(crate) const SNAPSHOT_EVERY_MS_MAX: u64 = 3_600_000;

/// Snapshots of a shard that are kept at least: the newest may be ahead of what is acknowledged,
/// and another one may be damaged.
pub(crate) const SNAPSHOTS_KEPT_MIN: usize = 3;

/// Snapshots of a shard that are kept at most: a start reads the headers of all of them.
pub(crate) const SNAPSHOTS_KEPT_MAX: usize = 64;

/// What the operator chose for snapshots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotOptions {
    /// Where snapshots are kept; `None`: there are none.
    pub directory: Option<PathBuf>,
    /// Milliseconds from one snapshot of a shard to its next.
    pub every_ms: u64,
    /// Snapshots of each shard that are kept.
    pub keep: usize,
    /// The compacted topic that takes replicas for other hosts; `None`: there are none.
    pub topic: Option<String>,
}
