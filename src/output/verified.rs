//! Verified acknowledgements: whether a reader of the log would accept the acknowledged frames.
//!
//! An acknowledgement alone says little: another owner's fence may stand before the frame. So an
//! acknowledgement counts only if its record stands right after the last one that counted, from our
//! fence on. The records of a foreign span have to be read first.

use crate::output::frame::FrameHeader;
use crate::output::mark::Mark;
use crate::output::reader::{Reader, Verdict};

/// One shard's acknowledged frames, in the order of the log.
#[derive(Clone, Debug)]
pub(crate) struct Verified {
    next: i64,
    reader: Reader,
}

/// Whether an acknowledgement counts, and if not, why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ack {
    /// A reader has accepted the frame.
    Counts,
    /// Records that are not ours stand before it. They have to be folded first.
    AfterForeign,
    /// The frame stands before one that counted already: our own frames changed places, or nobody
    /// knows where it stands.
    Misplaced,
    /// A reader does not accept the frame.
    NotAccepted,
}

impl Verified {
    /// Nothing is acknowledged yet. The mark is after our own fence.
    pub(crate) fn new(mark: Mark) -> Verified {
        Verified { next: mark.output_offset, reader: Reader::at(mark.position()) }
    }

    /// Where a reader stands after the last frame that counted.
    pub(crate) fn mark(&self) -> Mark {
        Mark::new(self.next, self.reader.position())
    }

    /// The foreign records before our next frame were folded.
    pub(crate) fn pass_foreign(&mut self, mark: Mark) {
        assert!(self.next < mark.output_offset, "the check of a foreign span leads forward");
        *self = Verified::new(mark);
    }

    /// Takes the acknowledgement of our next frame. If it does not count, nothing changes.
    pub(crate) fn ack(&mut self, output_offset: i64, header: &FrameHeader) -> Ack {
        if output_offset < self.next {
            return Ack::Misplaced;
        }
        if output_offset > self.next {
            return Ack::AfterForeign;
        }
        let mut reader = self.reader.clone();
        let accepted = match reader.fold_own(header) {
            Verdict::Accepted { .. } | Verdict::Fence => true,
            // An empty frame moves the reader's input offset even when it comes late.
            Verdict::Progress { .. } => header.first_update <= reader.position().next_update,
            _ => false,
        };
        if !accepted {
            return Ack::NotAccepted;
        }
        self.reader = reader;
        self.next = output_offset + 1;
        Ack::Counts
    }
}
