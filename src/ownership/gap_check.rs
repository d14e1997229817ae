//! Decides what the records between two of our frames mean: nothing, that another owner has fenced
//! the shard, or that only a new acquisition can tell.

use crate::output::fold::Fold;
use crate::output::mark::Mark;

/// A gap between our frames that has to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The shard's partition.
    pub partition: i32,
    /// The ownership whose frames have a gap between them.
    pub ownership_id: u32,
    /// Where our last frame that counted ends.
    pub from: Mark,
    /// Output offset of our next frame.
    pub to: i64,
}

/// What lies between two frames of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GapResult {
    /// No fence: the frame at the mark is the next one to count.
    Passed(Mark),
    /// Another owner's fence: the shard is not ours.
    Fenced {
        /// The owner epoch in force.
        owner_epoch: u64,
    },
    /// The log cannot be read any further as it stands: only acquiring can find out what it is.
    Torn,
}

/// Folds the records of a gap.
#[derive(Debug)]
pub struct GapCheck {
    /// Where the gap is.
    pub gap: Gap,
    fold: Fold,
    torn: bool,
}

impl GapCheck {
    /// Nothing is read yet.
    pub fn new(gap: Gap) -> GapCheck {
        // Our own last frame counted a moment ago: the log start is of no interest.
        let fold = Fold::from_mark(gap.from, gap.from.output_offset);
        GapCheck { gap, fold, torn: false }
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
        if offset < self.gap.to {
            self.torn |= self.fold.take(offset, payload).is_err();
        } else {
            self.fold.pass_to(self.gap.to);
        }
    }

    /// What lies between; `None` while something is left to be read.
    pub fn result(&self) -> Option<GapResult> {
        if self.torn {
            return Some(GapResult::Torn);
        }
        let mark = self.fold.mark().expect("a mark has a reader");
        if mark.owner_epoch > self.gap.from.owner_epoch {
            return Some(GapResult::Fenced { owner_epoch: mark.owner_epoch });
        }
        (mark.output_offset >= self.gap.to).then_some(GapResult::Passed(mark))
    }
}
