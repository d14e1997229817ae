//! Decides what the records between two of our frames mean: nothing; or that another owner has
//! fenced the shard; or that readers accept something that we did not write, and only a new
//! acquisition can find out where they are.

use crate::kit::update_json::UpdateTable;
use crate::output::fold::Fold;
use crate::output::mark::Mark;
use crate::output::reader::Reader;

/// Records between two of our frames that have to be read: they are not ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForeignSpan {
    /// The shard's partition.
    pub partition: i32,
    /// The ownership whose frames stand around them.
    pub ownership_id: u32,
    /// Where our last frame that counted ends.
    pub from: Mark,
    /// Output offset of our next frame.
    pub to: i64,
}

/// What lies between two frames of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanResult {
    /// No fence: our frame at the mark is the next one to count.
    Passed(Mark),
    /// Another owner's fence: the shard is not ours.
    Fenced {
        /// The owner epoch in force.
        owner_epoch: u64,
        /// The id of the fence that has set it.
        fence_id: u128,
    },
    /// A reader cannot go on, or it takes something from a frame that is not ours: a program that
    /// writes with our owner epoch, such as a clone of this host. Only acquiring can find out what
    /// the log says.
    Torn,
}

/// Folds the records of a foreign span.
#[derive(Debug)]
pub struct SpanCheck {
    /// The records to read.
    pub span: ForeignSpan,
    fold: Fold,
    torn: bool,
}

impl SpanCheck {
    /// Nothing is read yet.
    pub fn new(span: ForeignSpan, updates: &'static UpdateTable) -> SpanCheck {
        // Our own last frame counted a moment ago: the log start is of no interest.
        let fold = Fold::from_mark(span.from, span.from.output_offset, updates);
        SpanCheck { span, fold, torn: false }
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
        if offset < self.span.to {
            self.torn |= self.fold.take(offset, payload).is_err();
        } else {
            self.fold.pass_to(self.span.to);
        }
    }

    /// What the records between mean; `None` while some are left to be read.
    pub fn result(&self) -> Option<SpanResult> {
        if self.torn {
            return Some(SpanResult::Torn);
        }
        let SpanCheck { span: ForeignSpan { from, to, .. }, fold, .. } = self;
        let mark = fold.mark().expect("a mark has a reader");
        if mark.owner_epoch > from.owner_epoch {
            let fence_id = fold.reader().map_or(0, Reader::fence_id);
            return Some(SpanResult::Fenced { owner_epoch: mark.owner_epoch, fence_id });
        }
        let is_moved = mark.position() != from.position();
        if is_moved || fold.genesis().is_some() || !fold.skips().is_empty() {
            return Some(SpanResult::Torn);
        }
        (mark.output_offset >= *to).then_some(SpanResult::Passed(mark))
    }
}
