//! The mark of a snapshot: the position of an output reader when everything before the snapshot was
//! in the output.

use crate::output::frame::Chain;
use crate::output::reader::Position;

/// A reader's position in one output partition, and the offset where it continues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// The first output offset that is not folded yet.
    pub output_offset: i64,
    /// The highest owner epoch so far.
    pub owner_epoch: u64,
    /// Number of the next update.
    pub next_update: u64,
    /// The input offset up to which (exclusive) the accepted updates cover the input.
    pub next_offset: i64,
    /// The chain over all updates before `next_update`.
    pub chain: Chain,
}

impl Mark {
    /// Creates the mark of a reader with this position.
    pub fn new(output_offset: i64, position: Position) -> Mark {
        let Position { owner_epoch, next_update, next_offset, chain } = position;
        Mark { output_offset, owner_epoch, next_update, next_offset, chain }
    }

    /// The reader's position.
    pub(crate) fn position(&self) -> Position {
        let Mark { output_offset: _, owner_epoch, next_update, next_offset, chain } = *self;
        Position { owner_epoch, next_update, next_offset, chain }
    }
}
