//! The mark of a snapshot: where a reader of the output stood when everything before it was there.

use crate::publisher::frame::Chain;

/// A reader's folded state of one output partition, and where it reads on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// The first output offset that is not folded yet.
    pub output_offset: i64,
    /// The highest epoch so far.
    pub epoch: u64,
    /// Number of the next update.
    pub next_update: u64,
    /// The input offset up to which (exclusive) the accepted updates have come.
    pub next_offset: i64,
    /// The chain over all updates before `next_update`.
    pub chain: Chain,
}
