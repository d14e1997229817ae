//! Verified acknowledgements: whether a reader of the log would accept the acknowledged frames.
//!
//! An acknowledgement alone proves little: another owner's fence may precede the frame. So an
//! acknowledgement counts only if its record directly follows the last one that counted, starting
//! at this owner's fence. The records of a foreign span have to be read first.

use crate::output::frame::FrameHeader;
use crate::output::mark::Mark;
use crate::output::reader::{Reader, Verdict};

/// One shard's acknowledged frames, in log order.
#[derive(Clone, Debug)]
pub(crate) struct Verified {
    next: i64,
    reader: Reader,
}

/// The verdict on an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ack {
    /// A reader accepts the frame.
    Counts,
    /// Foreign records precede it, which have to be folded first.
    AfterForeign,
    /// The frame precedes one that already counted: this owner's frames were reordered, or their
    /// offset is unknown.
    Misplaced,
    /// A reader does not accept the frame.
    NotAccepted,
}

impl Verified {
    /// Creates the state after this owner's fence, without acknowledgements.
    pub(crate) fn new(mark: Mark) -> Verified {
        Verified { next: mark.output_offset, reader: Reader::at(mark.position()) }
    }

    /// A reader's mark after the last frame that counted.
    pub(crate) fn mark(&self) -> Mark {
        Mark::new(self.next, self.reader.position())
    }

    /// Continues after foreign records that were folded.
    pub(crate) fn pass_foreign(&mut self, mark: Mark) {
        assert!(self.next < mark.output_offset, "the check of a foreign span leads forward");
        *self = Verified::new(mark);
    }

    /// Processes the acknowledgement of the next frame. If it does not count, nothing changes.
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
            // An empty frame advances the reader's input offset even if it comes late.
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
