//! The mark of a snapshot: the position of an output reader when everything before the snapshot was
//! in the output.

use crate::output::frame::{Chain, FrameHeader, FrameKind};
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

    /// Returns whether a log with this frame right before `output_offset` can be the one that the
    /// mark was taken in.
    pub fn is_taken_at(&self, header: &FrameHeader) -> bool {
        let end = header.first_update.saturating_add(u64::from(header.count));
        let is_there = (end, header.chain) == (self.next_update, self.chain);
        let may_be_there = match header.kind {
            FrameKind::Updates if header.count > 0 => is_there,
            // An owner that plays again what is published is behind it.
            FrameKind::Updates | FrameKind::Genesis => is_there || end < self.next_update,
            FrameKind::Fence => header.next_offset < 0 || is_there || end < self.next_update,
            FrameKind::Skip => true,
        };
        header.owner_epoch == self.owner_epoch && may_be_there
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::frame_maker::FrameMaker;

    #[test]
    fn a_mark_fits_what_its_owner_can_have_written_right_before_it() {
        let mut owner = FrameMaker::new(0);
        let mut frames = [3, 0].map(|count| owner.frame(count).header).to_vec();
        frames.push(owner.fence(7));
        let FrameMaker { owner_epoch, next_update, next_offset, chain, .. } = owner;
        let mark = Mark { output_offset: 9, owner_epoch, next_update, next_offset, chain };
        for frame in frames {
            assert!(mark.is_taken_at(&frame), "{frame:?}");
            let by_another = FrameHeader { owner_epoch: 2, ..frame };
            let of_another_log = FrameHeader { chain: Chain(1), ..frame };
            let ahead = FrameHeader { first_update: frame.first_update + 1, ..frame };
            for other in [by_another, of_another_log, ahead] {
                assert!(!mark.is_taken_at(&other), "{other:?}");
            }
        }
        let taking_over = FrameHeader { next_offset: -1, first_update: 0, ..owner.fence(7) };
        assert!(mark.is_taken_at(&FrameHeader { chain: Chain(1), ..taking_over }));
    }
}
