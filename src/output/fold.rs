//! Folds a range of one output partition, record by record, to learn what an owner needs from it.
//!
//! Pure: the caller reads the log and passes the records in order.

use crate::kit::update_json::UpdateTable;
use crate::output::encode::{self, FrameError};
use crate::output::fence_id::{InputTag, ended_epoch, is_resignation};
use crate::output::frame::{Chain, FrameHeader, FrameKind};
use crate::output::mark::Mark;
use crate::output::reader::{Reader, Verdict};
use std::collections::BTreeSet;

/// Limit of the input offsets of one shard that replays still have to skip: a snapshot has room for
/// this many. Owners write few.
pub(crate) const SKIPS_MAX: usize = 1024;

/// The state that an engine starts from: its position in input and output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Start {
    /// The first input offset to apply.
    pub next_offset: i64,
    /// Leader epoch of the last record before it, if known.
    pub leader_epoch: Option<i32>,
    /// Number of the first update that the engine will make.
    pub next_update: u64,
    /// The chain over all updates before that.
    pub chain: Chain,
}

/// Where another version of the game has taken the state over: at an empty frame with other rules
/// than the frame before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Takeover {
    /// The rules by which it continues.
    pub(crate) ruleset: u32,
    /// The number of the next update.
    pub(crate) next_update: u64,
    /// The first input offset that it applies.
    pub(crate) next_offset: i64,
}

impl Takeover {
    /// Returns whether it is where an engine starts.
    pub(crate) fn is_at(self, start: Start) -> bool {
        (self.next_update, self.next_offset) == (start.next_update, start.next_offset)
    }
}

/// Why a range of the log cannot be folded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// The updates do not match the chain.
    Damaged {
        /// Output offset of the frame.
        offset: i64,
    },
    /// A frame that this huntd cannot read, for example one of another version. It may be a fence,
    /// so it cannot be skipped.
    Unreadable {
        /// Output offset of the frame.
        offset: i64,
        /// The cause.
        error: FrameError,
    },
    /// The log is not the one in which the mark was taken: it was truncated or recreated.
    OtherLog,
}

/// Folds records from one offset on.
#[derive(Clone, Debug)]
pub(crate) struct Fold {
    /// The updates of the game.
    updates: &'static UpdateTable,
    next: i64,
    /// The reader; it has to join if the start of the log is gone.
    reader: Reader,
    /// The mark that the first record has to confirm.
    anchor: Option<Mark>,
    /// Input offsets that every replay skips.
    skips: BTreeSet<i64>,
    /// The last genesis.
    genesis: Option<Start>,
    /// The ruleset of the last accepted frame.
    ruleset: Option<u32>,
    /// The last place where another version has taken over.
    takeover: Option<Takeover>,
    /// The ruleset that the zone began with: that of the last owner before any frame was accepted,
    /// or of the last genesis.
    begun_by: Option<u32>,
    /// The input of the last accepted frame, if its owner's fence states it.
    input: Option<InputTag>,
    /// The id of the last resignation.
    resignation: Option<u128>,
    /// The owner epoch of the last farewell.
    ended_epoch: Option<u64>,
}

impl Fold {
    /// Starts at the first record that the log still has.
    pub(crate) fn from_log_start(log_start: i64, updates: &'static UpdateTable) -> Fold {
        // At offset 0 a reader needs no position; later, it has to join.
        let reader = if log_start == 0 { Reader::new() } else { Reader::joining() };
        Fold::new(log_start, reader, None, updates)
    }

    /// Starts at a mark. The record before the mark, if the log still has it, must be the one at
    /// which the mark was taken.
    pub(crate) fn from_mark(mark: Mark, log_start: i64, updates: &'static UpdateTable) -> Fold {
        let reader = Reader::at(mark.position());
        match mark.output_offset > log_start {
            true => Fold::new(mark.output_offset - 1, reader, Some(mark), updates),
            false => Fold::new(mark.output_offset, reader, None, updates),
        }
    }

    /// Starts at a mark up to which these rules were in force.
    pub(crate) fn under(self, ruleset: u32) -> Fold {
        Fold { ruleset: Some(ruleset), ..self }
    }

    fn new(next: i64, reader: Reader, anchor: Option<Mark>, updates: &'static UpdateTable) -> Fold {
        Fold {
            updates,
            next,
            reader,
            anchor,
            skips: BTreeSet::new(),
            genesis: None,
            ruleset: None,
            takeover: None,
            begun_by: None,
            input: None,
            resignation: None,
            ended_epoch: None,
        }
    }

    /// Output offset of the next record.
    pub(crate) fn next(&self) -> i64 {
        self.next
    }

    /// The reader, once it has joined the log.
    pub(crate) fn reader(&self) -> Option<&Reader> {
        Some(&self.reader).filter(|reader| reader.has_joined())
    }

    /// Input offsets that every replay skips, as far as this range shows.
    pub(crate) fn skips(&self) -> &BTreeSet<i64> {
        &self.skips
    }

    /// The last genesis in this range.
    pub(crate) fn genesis(&self) -> Option<Start> {
        self.genesis
    }

    /// The ruleset of the last accepted frame.
    pub(crate) fn ruleset(&self) -> Option<u32> {
        self.ruleset
    }

    /// The last place in this range where another version has taken over.
    pub(crate) fn takeover(&self) -> Option<Takeover> {
        self.takeover
    }

    /// The ruleset that the zone began with, if this range shows it.
    pub(crate) fn begun_by(&self) -> Option<u32> {
        self.begun_by
    }

    /// The input of the last accepted frame. `None` if this range does not show it.
    pub(crate) fn input(&self) -> Option<InputTag> {
        self.input
    }

    /// The id of the last resignation in this range.
    pub(crate) fn resignation(&self) -> Option<u128> {
        self.resignation
    }

    /// Whether the owner whose epoch is in force has published its last frame.
    pub(crate) fn has_owner_ended(&self) -> bool {
        self.reader().is_some_and(|it| self.ended_epoch == Some(it.position().owner_epoch))
    }

    /// The position after the last record. `None` until the reader has joined.
    pub(crate) fn mark(&self) -> Option<Mark> {
        Some(Mark::new(self.next, self.reader()?.position()))
    }

    /// Advances to `offset`: there is no unread record before it.
    pub(crate) fn pass_to(&mut self, offset: i64) {
        self.next = self.next.max(offset);
    }

    /// Folds the next record of the log.
    pub(crate) fn take(&mut self, offset: i64, payload: &[u8]) -> Result<(), Broken> {
        assert!(self.next <= offset, "records come in the order of the log");
        self.next = offset + 1;
        let frame = match encode::decode(payload, self.updates) {
            Err(FrameError::NotAFrame) => None,
            frame => Some(frame.map_err(|error| Broken::Unreadable { offset, error })?),
        };
        if let Some(mark) = self.anchor.take()
            && offset + 1 == mark.output_offset
        {
            let is_ours = frame.is_some_and(|(header, _)| mark.is_taken_at(&header));
            return if is_ours { Ok(()) } else { Err(Broken::OtherLog) };
        }
        // No reader accepts a record that is not a frame.
        let Some((header, updates)) = frame else { return Ok(()) };
        if is_note(&header) {
            if is_resignation(header.fence_id) {
                self.resignation = Some(header.fence_id);
            }
            self.ended_epoch = ended_epoch(header.fence_id).or(self.ended_epoch);
        }
        let reader = &mut self.reader;
        let epoch_before = reader.position().owner_epoch;
        let verdict = reader.fold(&header, &updates);
        if let Verdict::Accepted { .. }
        | Verdict::Progress { is_at_next: true }
        | Verdict::Genesis
        | Verdict::Joined = verdict
        {
            self.input = InputTag::of_fence(reader.fence_id());
        }
        match verdict {
            Verdict::Halt => return Err(Broken::Damaged { offset }),
            Verdict::Skip { offset } => {
                self.skips.insert(offset);
            }
            Verdict::Genesis => {
                let FrameHeader { next_offset, first_update: next_update, chain, .. } = header;
                self.genesis = Some(Start { next_offset, leader_epoch: None, next_update, chain });
                self.skips.clear();
                self.takeover = None;
                self.ruleset = Some(header.ruleset);
                self.begun_by = Some(header.ruleset);
            }
            // The reader accepted earlier frames at a position that was not valid.
            Verdict::Joined => {
                self.skips.clear();
                (self.genesis, self.ruleset, self.begun_by) = (None, None, None);
                self.takeover = None;
            }
            Verdict::Accepted { .. } => self.ruleset = Some(header.ruleset),
            Verdict::Progress { is_at_next: true } => {
                let FrameHeader { ruleset, first_update: next_update, next_offset, .. } = header;
                // Rules change by an update; without one, another version has taken over.
                if self.ruleset.is_some_and(|before| before != ruleset) {
                    self.takeover = Some(Takeover { ruleset, next_update, next_offset });
                }
                self.ruleset = Some(ruleset);
            }
            Verdict::Fence if self.ruleset.is_none() && epoch_before < header.owner_epoch => {
                self.begun_by = Some(header.ruleset);
            }
            Verdict::Progress { is_at_next: false }
            | Verdict::Fence
            | Verdict::Waiting
            | Verdict::Stale
            | Verdict::Duplicate
            | Verdict::Gap { .. } => {}
        }
        Ok(())
    }
}

/// Returns whether a frame is a note: a fence of no owner.
fn is_note(header: &FrameHeader) -> bool {
    header.kind == FrameKind::Fence && header.owner_epoch == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::encode::{FRAME_VERSION, encode_empty};
    use crate::output::frame::{Format, Frame};

    /// It may be a fence. A reader that ignored it would mistake a former owner for the current
    /// one.
    #[test]
    fn an_unreadable_frame_is_not_ignored_like_a_record_that_is_no_frame() {
        let mut fold = Fold::from_log_start(0, crate::hunt::change::UPDATES);
        assert_eq!(fold.take(0, b"no frame"), Ok(()));
        let mut bytes = Vec::new();
        encode_empty(Format::Binary, &Frame::new().header, &mut bytes);
        assert_eq!(fold.take(1, &bytes), Ok(()));
        bytes[4] = FRAME_VERSION + 1;
        let broken = |error| Err(Broken::Unreadable { offset: 2, error });
        assert_eq!(fold.clone().take(2, &bytes), broken(FrameError::Version(FRAME_VERSION + 1)));
        (bytes[4], bytes[5]) = (FRAME_VERSION, 9);
        assert_eq!(fold.take(2, &bytes), broken(FrameError::Field("kind")));
    }
}
