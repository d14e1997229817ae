//! How a shard is acquired and released, and how its output is read back.

pub mod reader;

pub mod mark;

pub mod fold;

pub mod acquire;

pub mod refusal;

pub mod verified;

pub mod bridge;

pub mod poison;

pub mod tail;

pub mod tail_error;

pub mod capture;

pub mod snapshot;

pub mod slots;

pub mod disk;

pub mod keeper;

pub mod copies;

pub mod copier;

use std::path::PathBuf;

/// What the operator chose for snapshots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Where snapshots are kept; `None`: there are none.
    pub directory: Option<PathBuf>,
    /// Milliseconds from one snapshot of a shard to its next.
    pub every_ms: u64,
    /// Snapshots of each shard that are kept.
    pub keep: usize,
    /// The compacted topic that takes copies for other hosts; `None`: there are no copies.
    pub topic: Option<String>,
}
