//! Bridging a jump: what the records between two frames of ours mean to us, their owner.

use crate::recovery::fold::Fold;
use crate::recovery::mark::Mark;

/// A gap between our frames that has to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jump {
    /// The shard's partition.
    pub partition: i32,
    /// The ownership whose frames jumped.
    pub generation: u32,
    /// Where our last frame that counted ends.
    pub from: Mark,
    /// Output offset of our next frame.
    pub to: i64,
}

/// What lies between two frames of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crossed {
    /// Nothing that is a fence: the frame at the mark is the next one to count.
    Bridged(Mark),
    /// Another owner's fence: the shard is not ours.
    Fenced {
        /// The epoch in force.
        epoch: u64,
    },
    /// The log cannot be read any further as it stands: only acquiring can tell what it is.
    Torn,
}

/// Folds the records of a jump.
#[derive(Debug)]
pub struct Bridge {
    /// What is bridged.
    pub jump: Jump,
    fold: Fold,
    torn: bool,
}

impl Bridge {
    /// Nothing is read yet.
    pub fn new(jump: Jump) -> Bridge {
        // Our own last frame counted a moment ago: the log start is of no interest.
        let fold = Fold::from_mark(jump.from, jump.from.output_offset);
        Bridge { jump, fold, torn: false }
    }

    /// Output offset of the next record to take.
    pub fn next(&self) -> i64 {
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
    pub fn crossed(&self) -> Option<Crossed> {
        if self.torn {
            return Some(Crossed::Torn);
        }
        let mark = self.fold.mark().expect("a mark has a reader");
        if mark.epoch > self.jump.from.epoch {
            return Some(Crossed::Fenced { epoch: mark.epoch });
        }
        (mark.output_offset >= self.jump.to).then_some(Crossed::Bridged(mark))
    }
}
