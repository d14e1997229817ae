//! What a shard's acquisition gives.

use crate::output::fold::Start;
use crate::output::mark::Mark;
use std::collections::BTreeSet;

/// A shard that is ours, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acquired {
    /// Input and output partition.
    pub partition: i32,
    /// The owner epoch of our frames; 0 while we only follow what another owner publishes.
    pub owner_epoch: u64,
    /// The id of our fence, to repeat it with; 0 while we have none.
    pub fence_id: u128,
    /// The mark after our last record: where our frames begin, and what the output holds up to
    /// there.
    pub mark: Mark,
    /// Where the engine starts.
    pub start: Start,
    /// Which candidate has its state; `None` for the state before the first event.
    pub candidate: Option<usize>,
    /// The rules by which the state of another version continues; `None`: it is of this version.
    pub migrates_to: Option<u32>,
    /// The rules of the state before the first event, where a start needs them.
    pub begun_by: u32,
    /// Input offsets to pass over.
    pub skips: BTreeSet<i64>,
    /// Leader epoch of the input's leader; -1: brokers do not tell it.
    pub input_leader_epoch: i32,
}

impl Acquired {
    /// Where what stands beside the output has to be sent again from, as the group has committed.
    /// An offset that the output does not cover is of another history.
    pub(super) fn settled_offset(&self, committed: Option<i64>) -> i64 {
        let settled = committed.filter(|offset| *offset <= self.mark.next_offset);
        settled.map_or(self.start.next_offset, |offset| offset.max(self.start.next_offset))
    }

    /// Whether it begins empty within the input: a zone that has a replica elsewhere must not be
    /// taken for that.
    pub(super) fn begins_late(&self) -> bool {
        self.start.next_offset > 0 && self.mark.next_update == 0 && self.candidate.is_none()
    }

    /// Whether an engine that has begun there has begun here, too.
    pub(super) fn begins_like(&self, other: &Acquired) -> bool {
        let beginning = |acquired: &Acquired| {
            let Acquired { start, candidate, begun_by, migrates_to, .. } = *acquired;
            (start, candidate, begun_by, migrates_to, acquired.input_leader_epoch)
        };
        beginning(self) == beginning(other) && self.skips == other.skips
    }

    /// The first input offset that no acknowledged frame covers.
    pub(crate) fn acked(&self) -> i64 {
        self.mark.next_offset.max(self.start.next_offset)
    }
}
