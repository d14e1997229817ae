//! What is on its way to the broker, shard by shard, and how far the verified part reaches.
//!
//! Each shard keeps a window of everything it sent, in order. Frames are verified in the order of
//! the log. Dead letters and handoffs go to other topics, and count as soon as they are
//! acknowledged. What counts as acknowledged is a prefix of the window without a gap. A checkpoint
//! stands in the same window: it is gated when it comes to the front.

use crate::output::frame::FrameHeader;
use crate::output::mark::Mark;
use crate::output::verified::{Ack, Verified};
use crate::ownership::foreign_span::ForeignSpan;
use crate::snapshot::checkpoint::{CheckpointId, GatedCheckpoint};
use crate::telemetry::progress::SHARDS_MAX;
use std::collections::VecDeque;

/// The windows of all shards, by partition number.
pub(crate) struct Ledger {
    shards: Vec<Window>,
    /// Checkpoints that came to the front of their window.
    gates: VecDeque<GatedCheckpoint>,
    /// Records between frames of ours that have to be read.
    spans: VecDeque<ForeignSpan>,
}

impl Default for Ledger {
    fn default() -> Ledger {
        Ledger::new()
    }
}

/// Names one sent record until its delivery is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Receipt {
    /// The shard's partition.
    pub partition: i32,
    /// The ownership that sent it.
    pub ownership_id: u32,
    /// Its place in the shard's window.
    pub sequence: u64,
}

/// What an acknowledgement has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settled {
    /// Nothing.
    Nothing,
    /// A frame counts, and so does everything that was handed over before it.
    UpTo {
        /// The output covers the input up to here.
        acked: i64,
        /// Up to here, the dead letters and handoffs are acknowledged, too.
        settled_offset: i64,
    },
    /// A reader does not accept our frames as we sent them: the ownership has failed.
    Unverified(&'static str),
}

/// What one shard has sent in its latest ownership.
#[derive(Default)]
struct Window {
    ownership_id: u32,
    failed: bool,
    /// Sequence of the window's first entry.
    first: u64,
    entries: VecDeque<LedgerEntry>,
    /// Entries at the window's front that are verified as far as they can be.
    verified_entries: usize,
    /// How far the log is verified; `None` before the first ownership.
    verified: Option<Verified>,
    /// Where a reader stands after all that has left the window.
    mark: Mark,
    /// Ownership is reading what lies before our next frame.
    is_at_span: bool,
}

/// What stands in a window.
enum LedgerEntry {
    /// A frame that is not acknowledged yet.
    Frame(FrameHeader),
    /// One that is acknowledged at this output offset.
    Acked(FrameHeader, i64),
    /// One that a reader has accepted, where the reader stands after it, and the input offset that
    /// the frame itself states: less than the reader's while a replay goes on.
    Verified(Mark, i64),
    /// A dead letter or an own record of the input, and whether it is acknowledged.
    Beside { acked: bool },
    /// It counts as acknowledged when everything before it does.
    Checkpoint(CheckpointId),
}

impl Ledger {
    /// Nothing was sent.
    pub(crate) fn new() -> Ledger {
        Ledger {
            shards: (0..SHARDS_MAX).map(|_| Window::default()).collect(),
            gates: VecDeque::new(),
            spans: VecDeque::new(),
        }
    }

    /// An ownership begins: its frames will stand after this mark. Returns the previous ownership
    /// if a checkpoint of it still waits: that one will not be gated any more.
    pub(crate) fn begin(&mut self, partition: i32, ownership_id: u32, mark: Mark) -> Option<u32> {
        let window = self.window(partition);
        let before = window.ownership_id;
        assert!(ownership_id > before, "ownership ids count up");
        let is_waiting = |entry: &LedgerEntry| matches!(entry, LedgerEntry::Checkpoint(_));
        let ungated = window.entries.iter().any(is_waiting).then_some(before);
        window.clear();
        window.ownership_id = ownership_id;
        window.failed = false;
        window.verified = Some(Verified::new(mark));
        window.mark = mark;
        ungated
    }

    /// Whether something of this ownership may be sent: not before it has begun, not when a newer
    /// one has, and not after it failed.
    pub(crate) fn admits(&mut self, partition: i32, ownership_id: u32) -> bool {
        let window = self.window(partition);
        ownership_id == window.ownership_id && !window.failed
    }

    /// The receipt of what is sent next.
    pub(crate) fn receipt(&mut self, partition: i32) -> Receipt {
        let window = self.window(partition);
        let sequence = window.first + window.entries.len() as u64;
        Receipt { partition, ownership_id: window.ownership_id, sequence }
    }

    /// The receipt's record is in the producer's hands. `header` is a frame's, `None` for what goes
    /// to another topic.
    pub(crate) fn sent(&mut self, receipt: Receipt, header: Option<FrameHeader>) {
        assert_eq!(receipt, self.receipt(receipt.partition), "sent in another order");
        self.window(receipt.partition).entries.push_back(match header {
            Some(header) => LedgerEntry::Frame(header),
            None => LedgerEntry::Beside { acked: false },
        });
    }

    /// A checkpoint was begun after all that was sent so far.
    pub(crate) fn checkpoint(&mut self, id: CheckpointId) {
        self.window(id.partition).entries.push_back(LedgerEntry::Checkpoint(id));
        let _moved = self.settle(id.partition);
    }

    /// The broker has acknowledged it, at this offset of its topic. Nothing of an older or a failed
    /// ownership counts.
    pub(crate) fn acked(&mut self, receipt: Receipt, offset: i64) -> Settled {
        let window = self.window(receipt.partition);
        if receipt.ownership_id != window.ownership_id || window.failed {
            return Settled::Nothing;
        }
        let entry = &mut window.entries[(receipt.sequence - window.first) as usize];
        *entry = match entry {
            LedgerEntry::Frame(header) => LedgerEntry::Acked(*header, offset),
            LedgerEntry::Beside { acked: false } => LedgerEntry::Beside { acked: true },
            _ => panic!("delivered twice"),
        };
        self.settle(receipt.partition)
    }

    /// Ownership has read what lies before our next frame, and it is no other owner's fence.
    pub(crate) fn span_checked(
        &mut self,
        partition: i32,
        ownership_id: u32,
        mark: Mark,
    ) -> Settled {
        let window = self.window(partition);
        if ownership_id != window.ownership_id || window.failed || !window.is_at_span {
            return Settled::Nothing;
        }
        window.is_at_span = false;
        window.verified.as_mut().expect("it has begun").pass_foreign(mark);
        self.settle(partition)
    }

    /// A checkpoint before which everything is acknowledged.
    pub(crate) fn next_gate(&mut self) -> Option<GatedCheckpoint> {
        self.gates.pop_front()
    }

    /// Records between our frames, which ownership has to check.
    pub(crate) fn next_span(&mut self) -> Option<ForeignSpan> {
        self.spans.pop_front()
    }

    fn settle(&mut self, partition: i32) -> Settled {
        let Ledger { shards, gates, spans } = self;
        let window = &mut shards[usize::try_from(partition).expect("not negative")];
        let ownership_id = window.ownership_id;
        match window.verify() {
            Ok(None) => {}
            Ok(Some((from, to))) => {
                spans.push_back(ForeignSpan { partition, ownership_id, from, to })
            }
            Err(sentence) => return Settled::Unverified(sentence),
        }
        let mut stated = None;
        while let Some(entry) = window.entries.front().filter(|entry| entry.is_done()) {
            match *entry {
                LedgerEntry::Verified(mark, next_offset) => {
                    window.mark = mark;
                    stated = Some(next_offset);
                }
                LedgerEntry::Checkpoint(id) => {
                    let mark = window.mark;
                    gates.push_back(GatedCheckpoint { id, mark });
                }
                LedgerEntry::Frame(_) | LedgerEntry::Acked(..) | LedgerEntry::Beside { .. } => {}
            }
            window.entries.pop_front();
            window.first += 1;
            window.verified_entries = window.verified_entries.saturating_sub(1);
        }
        stated.map_or(Settled::Nothing, |settled_offset| Settled::UpTo {
            acked: window.mark.next_offset,
            settled_offset,
        })
    }

    /// Notes that a delivery failed, or does not count. True: this is the ownership's first
    /// failure, and the ownership is not over.
    pub(crate) fn failed(&mut self, partition: i32, ownership_id: u32) -> bool {
        let window = self.window(partition);
        let news = ownership_id == window.ownership_id && !window.failed;
        if news {
            window.failed = true;
            window.clear();
        }
        news
    }

    fn window(&mut self, partition: i32) -> &mut Window {
        &mut self.shards[usize::try_from(partition).expect("partition numbers are not negative")]
    }
}

impl Window {
    fn clear(&mut self) {
        self.first += self.entries.len() as u64;
        self.entries.clear();
        self.verified_entries = 0;
        self.is_at_span = false;
    }

    /// Verifies the acknowledged frames, in their order, up to the first that is not acknowledged.
    /// It stops at a foreign span, and returns between which output offsets the log has to be read.
    fn verify(&mut self) -> Result<Option<(Mark, i64)>, &'static str> {
        let Some(verified) = &mut self.verified else { return Ok(None) };
        while !self.is_at_span
            && let Some(entry) = self.entries.get_mut(self.verified_entries)
        {
            match entry {
                LedgerEntry::Frame(_) => break,
                LedgerEntry::Acked(header, output_offset) => {
                    match verified.ack(*output_offset, header) {
                        Ack::Counts => {
                            *entry = LedgerEntry::Verified(verified.mark(), header.next_offset);
                        }
                        Ack::AfterForeign => {
                            self.is_at_span = true;
                            return Ok(Some((verified.mark(), *output_offset)));
                        }
                        Ack::Misplaced => return Err("frames stand in another order than sent"),
                        Ack::NotAccepted => return Err("readers do not accept a frame"),
                    }
                }
                LedgerEntry::Verified(..)
                | LedgerEntry::Beside { .. }
                | LedgerEntry::Checkpoint(_) => {}
            }
            self.verified_entries += 1;
        }
        Ok(None)
    }
}

impl LedgerEntry {
    fn is_done(&self) -> bool {
        match self {
            LedgerEntry::Verified(..) | LedgerEntry::Checkpoint(_) => true,
            LedgerEntry::Beside { acked } => *acked,
            LedgerEntry::Frame(_) | LedgerEntry::Acked(..) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::frame::{Chain, Frame};

    const FENCE: Mark = Mark {
        output_offset: 100,
        owner_epoch: 3,
        next_update: 0,
        next_offset: 5,
        chain: Chain(0),
    };

    /// Sends a frame of this many updates that covers the input up to this offset.
    fn send(ledger: &mut Ledger, first_update: u64, count: u32, next_offset: i64) -> Receipt {
        let header = FrameHeader {
            owner_epoch: 3,
            first_update,
            count,
            next_offset,
            chain: Chain(first_update + u64::from(count)),
            ..Frame::new().header
        };
        let receipt = ledger.receipt(PARTITION);
        ledger.sent(receipt, Some(header));
        receipt
    }

    fn up_to(offset: i64) -> Settled {
        Settled::UpTo { acked: offset, settled_offset: offset }
    }

    fn send_letter(ledger: &mut Ledger) -> Receipt {
        let receipt = ledger.receipt(PARTITION);
        ledger.sent(receipt, None);
        receipt
    }

    fn begun() -> Ledger {
        let mut ledger = Ledger::new();
        assert!(!ledger.admits(PARTITION, 1));
        ledger.begin(PARTITION, 1, FENCE);
        assert!(ledger.admits(PARTITION, 1));
        ledger
    }

    fn checkpoint(number: u64) -> CheckpointId {
        CheckpointId { partition: PARTITION, ownership_id: 1, number }
    }

    const PARTITION: i32 = 3;

    #[test]
    fn the_acked_offset_waits_for_dead_letters_before_a_frame() {
        let mut ledger = begun();
        let first = send(&mut ledger, 0, 2, 10);
        let letter = send_letter(&mut ledger);
        let second = send(&mut ledger, 2, 1, 20);
        let third = send(&mut ledger, 3, 0, 30);
        assert_eq!(ledger.acked(first, 100), up_to(10));
        assert_eq!(ledger.acked(second, 101), Settled::Nothing);
        assert_eq!(ledger.acked(third, 102), Settled::Nothing);
        assert_eq!(ledger.acked(letter, 7), up_to(30));
    }

    /// What it makes again is covered, but nobody knows what became of its dead letters.
    #[test]
    fn a_replay_settles_what_its_own_frames_state_and_not_what_the_output_covers() {
        let mut ledger = Ledger::new();
        ledger.begin(PARTITION, 1, Mark { next_offset: 50, ..FENCE });
        let first = send(&mut ledger, 0, 0, 20);
        let letter = send_letter(&mut ledger);
        let second = send(&mut ledger, 0, 0, 60);
        assert_eq!(ledger.acked(first, 100), Settled::UpTo { acked: 50, settled_offset: 20 });
        assert_eq!(ledger.acked(second, 101), Settled::Nothing);
        assert_eq!(ledger.acked(letter, 7), up_to(60));
    }

    #[test]
    fn a_checkpoint_is_gated_when_everything_before_it_is_verified_and_nothing_after_it() {
        let mut ledger = begun();
        ledger.checkpoint(checkpoint(6));
        assert_eq!(ledger.next_gate().map(|gate| gate.mark), Some(FENCE));
        let frame = send(&mut ledger, 0, 2, 10);
        let letter = send_letter(&mut ledger);
        ledger.checkpoint(checkpoint(7));
        let later = send(&mut ledger, 2, 3, 20);
        assert_eq!(ledger.acked(frame, 100), up_to(10));
        assert_eq!(ledger.next_gate(), None);
        assert_eq!(ledger.acked(later, 101), Settled::Nothing);
        assert_eq!(ledger.acked(letter, 5), up_to(20));
        let gate = ledger.next_gate().expect("everything before it is acknowledged");
        assert_eq!((gate.id.partition, gate.id.ownership_id, gate.id.number), (PARTITION, 1, 7));
        let mark = Mark {
            output_offset: 101,
            owner_epoch: 3,
            next_update: 2,
            next_offset: 10,
            chain: Chain(2),
        };
        assert_eq!(gate.mark, mark);
        ledger.checkpoint(checkpoint(8));
        assert_eq!(ledger.next_gate().map(|gate| gate.mark.output_offset), Some(102));
    }

    #[test]
    fn after_a_foreign_span_nothing_counts_until_it_is_checked() {
        let mut ledger = begun();
        let first = send(&mut ledger, 0, 1, 10);
        let second = send(&mut ledger, 1, 1, 20);
        ledger.checkpoint(checkpoint(7));
        assert_eq!(ledger.acked(first, 103), Settled::Nothing);
        let (partition, ownership_id) = (PARTITION, 1);
        let span = ForeignSpan { partition, ownership_id, from: FENCE, to: 103 };
        assert_eq!(ledger.next_span(), Some(span));
        assert_eq!(ledger.acked(second, 104), Settled::Nothing);
        assert_eq!((ledger.next_span(), ledger.next_gate()), (None, None));
        let mark = Mark { output_offset: 103, ..FENCE };
        assert_eq!(ledger.span_checked(PARTITION, 7, mark), Settled::Nothing);
        assert_eq!(ledger.span_checked(PARTITION, 1, mark), up_to(20));
        assert_eq!(ledger.next_gate().map(|gate| gate.mark.output_offset), Some(105));
    }

    #[test]
    fn frames_that_a_reader_does_not_accept_end_their_ownership() {
        let mut ledger = begun();
        let first = send(&mut ledger, 0, 1, 10);
        let second = send(&mut ledger, 1, 1, 20);
        assert!(matches!(ledger.acked(second, 100), Settled::Nothing));
        assert!(matches!(ledger.acked(first, 101), Settled::Nothing));
        assert!(ledger.next_span().is_some());
        let mark = Mark { output_offset: 101, ..FENCE };
        assert!(matches!(ledger.span_checked(PARTITION, 1, mark), Settled::Unverified(_)));

        let mut ledger = begun();
        let beyond = send(&mut ledger, 4, 1, 10);
        assert!(matches!(ledger.acked(beyond, 100), Settled::Unverified(_)));
        assert!(ledger.failed(PARTITION, 1));
    }

    #[test]
    fn deliveries_of_an_earlier_ownership_do_not_count() {
        let mut ledger = begun();
        let old = send(&mut ledger, 0, 1, 10);
        assert_eq!(ledger.begin(PARTITION, 2, FENCE), None);
        assert!(!ledger.admits(PARTITION, 1));
        let new = send(&mut ledger, 0, 1, 15);
        assert_eq!(ledger.acked(old, 100), Settled::Nothing);
        assert!(!ledger.failed(PARTITION, 1));
        assert_eq!(ledger.acked(new, 100), up_to(15));
    }

    /// An ownership that was lost during its release leaves one behind.
    #[test]
    fn the_next_ownership_ends_a_checkpoint_that_waits() {
        let mut ledger = begun();
        send(&mut ledger, 0, 1, 10);
        ledger.checkpoint(checkpoint(7));
        assert_eq!(ledger.begin(PARTITION, 2, FENCE), Some(1));
        assert_eq!(ledger.next_gate(), None);
    }

    #[test]
    fn a_failure_is_news_once_and_ends_its_ownership() {
        let mut ledger = begun();
        let first = send(&mut ledger, 0, 1, 10);
        let second = send(&mut ledger, 1, 1, 20);
        ledger.checkpoint(checkpoint(7));
        assert!(ledger.failed(first.partition, first.ownership_id));
        assert!(!ledger.failed(second.partition, second.ownership_id));
        assert!(!ledger.admits(PARTITION, 1));
        assert_eq!(ledger.acked(second, 101), Settled::Nothing);
        assert!(ledger.next_gate().is_none());
        assert_eq!(ledger.begin(PARTITION, 2, FENCE), None);
        let next = send(&mut ledger, 0, 2, 20);
        assert_eq!(ledger.acked(next, 100), up_to(20));
    }
}
