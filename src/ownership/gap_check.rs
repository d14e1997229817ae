//! Bridging a jump: what the records between two frames of ours mean to us, their owner.

use crate::output::fold::Fold;
use crate::output::mark::Mark;

/// A gap between our frames that has to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The shard's partition.
    pub partition: i32,
    /// The ownership whose frames jumped.
    pub ownership_id: u32,
    /// Where our last frame that counted ends.
    pub from: Mark,
    /// Output offset of our next frame.
    pub to: i64,
}

/// What lies between two frames of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GapResult {
    /// Nothing that is a fence: the frame at the mark is the next one to count.
    Bridged(Mark),
    /// Another owner's fence: the shard is not ours.
    Fenced {
        /// The epoch in force.
        owner_epoch: u64,
    },
    /// The log cannot be read any further as it stands: only acquiring can tell what it is.
    Torn,
}

/// Folds the records of a jump.
#[derive(Debug)]
pub struct GapCheck {
    /// What is bridged.
    pub jump: Gap,
    fold: Fold,
    torn: bool,
}

impl GapCheck {
    /// Nothing is read yet.
    pub fn new(jump: Gap) -> GapCheck {
        // Our own last frame counted a moment ago: the log start is of no interest.
        let fold = Fold::from_mark(jump.from, jump.from.output_offset);
        GapCheck { jump, fold, torn: false }
    }

    /// Output offset of the next record to take.
    pub(crate) fn next(&self) -> i64 {
        self.fold.next()
    }

    /// Takes the next record of the log.
    pub fn take(&mut self, offset: i64, payload: &[u8]) {
        if offset < self.fold.next() {
            return;
        }
        if offset < self.jump.to {
            self.torn |= self.fold.take(offset, payload).is_err();
        } else {
            self.fold.pass_to(self.jump.to);
        }
    }

    /// What lies between; `None` while something is left to be read.
    pub fn result(&self) -> Option<GapResult> {
        if self.torn {
            return Some(GapResult::Torn);
        }
        let mark = self.fold.mark().expect("a mark has a reader");
        if mark.owner_epoch > self.jump.from.owner_epoch {
            return Some(GapResult::Fenced { owner_epoch: mark.owner_epoch });
        }
        (mark.output_offset >= self.jump.to).then_some(GapResult::Bridged(mark))
    }
}
