//! The mark of a snapshot: where a reader of the output stood when everything before the snapshot
//! was in the output.

use crate::output::frame::Chain;
use crate::output::reader::Position;

/// A reader's folded state of one output partition, and where it reads on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// The first output offset that is not folded yet.
    pub output_offset: i64,
    /// The highest owner epoch so far.
    pub owner_epoch: u64,
    /// Number of the next update.
    pub next_update: u64,
    /// The input offset up to which (exclusive) the accepted updates have come.
    pub next_offset: i64,
    /// The chain over all updates before `next_update`.
    pub chain: Chain,
}

impl Mark {
    /// Where a reader with this position reads on.
    pub fn new(output_offset: i64, position: Position) -> Mark {
        let Position { owner_epoch, next_update, next_offset, chain } = position;
        Mark { output_offset, owner_epoch, next_update, next_offset, chain }
    }

    /// Where the reader stands.
    pub(crate) fn position(&self) -> Position {
        let Mark { output_offset: _, owner_epoch, next_update, next_offset, chain } = *self;
        Position { owner_epoch, next_update, next_offset, chain }
    }
}
