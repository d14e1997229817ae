//! What a shard's acquisition gives.

use crate::output::fold::Start;
use crate::output::mark::Mark;
use std::collections::BTreeSet;

/// A shard that is ours, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acquired {
    /// Input and output partition.
    pub partition: i32,
    /// The owner epoch of our frames.
    pub owner_epoch: u64,
    /// The id of our fence, to repeat it with.
    pub fence_id: u128,
    /// The mark after our last record: where our frames begin, and what the output holds up to
    /// there.
    pub mark: Mark,
    /// Where the engine starts.
    pub start: Start,
    /// Which candidate has its state; `None` for the state before the first event.
    pub candidate: Option<usize>,
    /// The rules of the state before the first event, where a start needs them.
    pub begun_by: u32,
    /// Input offsets to pass over.
    pub skips: BTreeSet<i64>,
    /// Leader epoch of the input's leader; -1: brokers do not tell it.
    pub input_leader_epoch: i32,
}

impl Acquired {
    /// The first input offset that no acknowledged frame covers.
    pub(crate) fn acked(&self) -> i64 {
        self.mark.next_offset.max(self.start.next_offset)
    }
}
