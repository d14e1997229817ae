//! The cursor: the fetch path's position in one input partition, and how many blocks it may still
//! bring.
//!
//! The stages of the hot thread share the cursors: connections advance them; the shards stage
//! opens, stalls and closes them.

use crate::fetch::block::{Block, BlockPool, SHARD_BLOCKS_MAX};
use crate::fetch::rejected::LetterCredit;
use crate::kafka::record_batch::{BatchStart, HeaderScan};
use crate::ownership::event::Claim;
use crate::ownership::start_error::StartError;
use crate::telemetry::progress::SHARDS_MAX;
use std::cell::{Cell, RefCell};
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::time::Instant;

/// Blocks of all shards together: 32 MiB of events, divided evenly.
pub(crate) const ALL_BLOCKS_MAX: usize = 4096;

/// Blocks that every shard may have: one being filled, one being applied.
pub(crate) const SHARD_BLOCKS_MIN: usize = 2;

/// An unknown leader epoch.
pub(crate) const UNKNOWN_EPOCH: i32 = -1;

/// The fetch path's place in one input partition.
pub(crate) struct Cursor {
    /// The input partition.
    pub partition: i32,
    /// The ownership of the partition that this cursor belongs to.
    pub ownership_id: u32,
    /// The next offset to decode.
    pub position: Cell<i64>,
    /// Where the batch that contains `position` begins.
    pub batch_start: Cell<BatchStart>,
    /// The start of that batch as the last answer claimed it, until something else confirms it.
    claimed_batch_start: Cell<Option<i64>>,
    /// The offset that the next Fetch asks for: `position`, or beyond it while records wait to be
    /// decoded.
    pub fetch_offset: Cell<i64>,
    /// Leader epoch of the batch before `fetch_offset`, -1 while unknown. From it a broker can tell
    /// whether its log is still the one that was read (KIP-320). It must belong to that offset;
    /// otherwise a change of leaders looks like a truncated log.
    pub fetch_leader_epoch: Cell<i32>,
    /// The leader's epoch in the last Fetch, -1 while unknown.
    pub current_leader_epoch: Cell<i32>,
    /// The fetch task that asks for the partition or decodes its records.
    pub owner_task: Cell<Option<usize>>,
    /// The partition's state.
    pub state: Cell<CursorState>,
    /// Blocks that are being filled, queued or waiting in the shards stage.
    blocks_out: Cell<usize>,
    /// Limit of `blocks_out`; the more shards, the lower.
    blocks_max: Cell<usize>,
    /// True if the fetch path has yet to see the partition.
    pub is_new: Cell<bool>,
    /// True while another owner publishes, so that the records wait for the output.
    pub is_following: Cell<bool>,
    /// Earliest time of the next Fetch for the partition.
    pub retry_at: Cell<Option<Instant>>,
    /// A pending claim of one connection that would stop the shard or leave records out. Another
    /// connection has to confirm it.
    pending_claim: RefCell<Option<PendingClaim>>,
    /// A pending claim of a gap after the position. A partitioned broker lacks the records after
    /// the gap, so its claims must not clear this one; this one clears its claims.
    pending_gap: RefCell<Option<PendingClaim>>,
    /// When the leader last reported the end of the log, or was asked for it; `None` before the
    /// first Fetch.
    pub end_known_at: Cell<Option<Instant>>,
    /// The position when [`Cursor::take_quiet`] was last called.
    sampled_position: Cell<Option<i64>>,
    /// Leader epoch of the last record before `position`, -1 while unknown.
    pub leader_epoch: Cell<i32>,
    /// Leader epoch of the leader when the shard was acquired, -1 while unknown.
    pub surveyed_leader_epoch: Cell<i32>,
    /// Input offsets to skip, in ascending order: their records panicked the engine, or an operator
    /// asked for it.
    pub skips: Box<[i64]>,
    /// How many bytes of rejected records may still go to the dead-letter topic.
    pub letter_credit: LetterCredit,
    /// Why the input cannot be read any further.
    fault: RefCell<Option<CursorFault>>,
}

/// Why an input cannot be read any further, as one sentence with the offset.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CursorFault {
    /// The log cannot be read there.
    #[error("{0}")]
    Unreadable(String),
    /// The log is not the one that was read earlier.
    #[error(transparent)]
    Diverged(StartError),
}

/// A pending claim of one connection about a position.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PendingClaim {
    /// The whole claim in words, including details such as the checksum that was found.
    sentence: String,
    position: i64,
    connection: u64,
    /// The broker that made the claim, if only a leader can make it; no other broker can confirm
    /// it.
    leader: Option<i32>,
}

/// The state of a partition in the fetch path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CursorState {
    /// Fetch and decode.
    Flowing,
    /// The shards stage accepts no more blocks: decode nothing, and leave the partition out of the
    /// next Fetch.
    Stalled,
    /// The shard is released or has failed: drop everything in flight.
    Closed,
}

impl Cursor {
    /// Creates a cursor at the first offset to decode. `leader_epoch` is that of the record before
    /// it, if known.
    pub(crate) fn new(
        partition: i32,
        ownership_id: u32,
        (position, leader_epoch): (i64, Option<i32>),
        skips: Box<[i64]>,
    ) -> Rc<Cursor> {
        let leader_epoch = leader_epoch.unwrap_or(UNKNOWN_EPOCH);
        Rc::new(Cursor {
            partition,
            ownership_id,
            position: Cell::new(position),
            batch_start: Cell::new(BatchStart::up_to(position)),
            claimed_batch_start: Cell::new(None),
            fetch_offset: Cell::new(position),
            fetch_leader_epoch: Cell::new(leader_epoch),
            current_leader_epoch: Cell::new(UNKNOWN_EPOCH),
            owner_task: Cell::new(None),
            state: Cell::new(CursorState::Flowing),
            blocks_out: Cell::new(0),
            blocks_max: Cell::new(SHARD_BLOCKS_MAX),
            is_new: Cell::new(true),
            is_following: Cell::new(false),
            retry_at: Cell::new(None),
            pending_claim: RefCell::default(),
            pending_gap: RefCell::default(),
            end_known_at: Cell::new(None),
            sampled_position: Cell::new(None),
            leader_epoch: Cell::new(leader_epoch),
            surveyed_leader_epoch: Cell::new(UNKNOWN_EPOCH),
            skips,
            letter_credit: LetterCredit::new(),
            fault: RefCell::new(None),
        })
    }

    /// Returns whether the next Fetch should ask for this partition: it is flowing, and half of its
    /// blocks are free, so the response will hardly be thrown away.
    pub(crate) fn is_fetchable(&self, now: Instant) -> bool {
        self.state.get() == CursorState::Flowing
            && self.blocks_out.get() <= self.blocks_max.get() / 2
            && self.retry_at.get().is_none_or(|at| at <= now)
    }

    /// Returns whether the partition could be fetched but has not moved since the last call.
    pub(crate) fn take_quiet(&self) -> bool {
        let position = Some(self.position.get());
        let before = self.sampled_position.replace(position);
        self.state.get() == CursorState::Flowing && before == position
    }

    /// The offsets to skip from this offset on; nearly always none.
    pub(crate) fn skips_from(&self, offset: i64) -> &[i64] {
        &self.skips[self.skips.partition_point(|skip| *skip < offset)..]
    }

    /// Returns whether any of these offsets is to be skipped.
    pub(crate) fn skips_any_of(&self, offsets: &RangeInclusive<i64>) -> bool {
        self.skips_from(*offsets.start()).first().is_some_and(|skip| offsets.contains(skip))
    }

    /// Leader epoch of the last record before `offset`, up to which everything is applied. `None`
    /// if it is unknown, or if more than that is decoded.
    pub(crate) fn leader_epoch_at(&self, offset: i64) -> Option<i32> {
        let is_last = self.position.get() == offset && self.leader_epoch.get() != UNKNOWN_EPOCH;
        is_last.then_some(self.leader_epoch.get())
    }

    /// Moves the next Fetch past the received batches.
    pub(crate) fn run_ahead(&self, scan: &HeaderScan) {
        self.fetch_offset.set(scan.next_offset);
        if let Some(epoch) = scan.leader_epoch {
            let before = self.fetch_leader_epoch.get();
            self.fetch_leader_epoch.set(self.plausible_epoch(before, epoch));
        }
    }

    /// Returns the leader epoch of a batch after a record of epoch `before`, or unknown if it is
    /// implausible. No checksum covers the epoch, and a wrong one makes a broker believe that its
    /// log was truncated. An epoch is implausible if it is lower than the one before, or higher
    /// than the leader's.
    pub(crate) fn plausible_epoch(&self, before: i32, stated: i32) -> i32 {
        match (before..=self.current_leader_epoch.get()).contains(&stated) {
            true => stated,
            false => UNKNOWN_EPOCH,
        }
    }

    /// Returns the leader epochs of the record before the position and of the leader, if the
    /// record's is higher: it came from another leader, which this one does not know of (KIP-320).
    pub(crate) fn epoch_beyond_leader(&self) -> Option<(i32, i32)> {
        let (epoch, leader_epoch) = (self.leader_epoch.get(), self.current_leader_epoch.get());
        let is_beyond = leader_epoch != UNKNOWN_EPOCH && epoch > leader_epoch;
        is_beyond.then_some((epoch, leader_epoch))
    }

    /// Makes the next Fetch start at the first record that is not decoded. Bytes that are received
    /// or in flight are thrown away.
    pub(crate) fn rewind(&self) {
        self.fetch_offset.set(self.position.get());
        self.fetch_leader_epoch.set(self.leader_epoch.get());
    }

    /// Returns whether another connection has made an equal claim about the position, in the same
    /// words. If not, the claim is noted. Bits may flip in transit, and a broker that has just
    /// started may be wrong about its log.
    pub(crate) fn is_confirmed(
        &self,
        claim: Claim,
        sentence: &str,
        (node_id, connection): (i32, u64),
    ) -> bool {
        let leader = claim.is_of_leader().then_some(node_id);
        let (sentence, position) = (sentence.to_owned(), self.position.get());
        let pending = PendingClaim { sentence, position, connection, leader };
        if claim == Claim::Gap {
            self.trust();
        }
        let slot = if claim == Claim::Gap { &self.pending_gap } else { &self.pending_claim };
        let before = slot.replace(Some(pending.clone()));
        before.is_some_and(|it| {
            it.connection != connection && PendingClaim { connection, ..it } == pending
        })
    }

    /// Returns whether a batch that may contain the position begins at `claimed`, where no record
    /// before it was read. Two answers in a row must agree. Both may come on one connection: every
    /// start asks this, and opening a connection takes long.
    pub(crate) fn confirms_batch_start(&self, claimed: i64) -> bool {
        claimed > self.position.get()
            || self.claimed_batch_start.replace(Some(claimed)) == Some(claimed)
    }

    /// Drops the pending claim: a broker's log has the position, or ends there, so claims that it
    /// does not were wrong.
    pub(crate) fn trust(&self) {
        self.pending_claim.take();
    }

    /// Fails the input: it cannot be read any further. Nothing is skipped; the shard halts once
    /// everything decoded so far is applied.
    pub(crate) fn fail(&self, sentence: String) {
        self.stop(CursorFault::Unreadable(sentence));
    }

    /// See [`Cursor::fail`].
    pub(crate) fn stop(&self, fault: CursorFault) {
        if self.state.get() != CursorState::Closed {
            self.state.set(CursorState::Closed);
            *self.fault.borrow_mut() = Some(fault);
        }
    }

    /// Returns whether there is a fault that nobody has taken yet.
    pub(crate) fn has_failed(&self) -> bool {
        self.fault.borrow().is_some()
    }

    /// Takes the fault given to [`Cursor::stop`], once.
    pub(crate) fn take_fault(&self) -> Option<CursorFault> {
        self.fault.borrow_mut().take()
    }

    /// Stalls the partition: the shards stage accepts no more of this shard now.
    pub(crate) fn stall(&self) {
        if self.state.get() == CursorState::Flowing {
            self.state.set(CursorState::Stalled);
        }
    }

    /// Resumes a stalled partition. Returns whether it was stalled, because then the fetch path
    /// needs a turn.
    pub(crate) fn go_on(&self) -> bool {
        let was_stalled = self.state.get() == CursorState::Stalled;
        if was_stalled {
            self.state.set(CursorState::Flowing);
        }
        was_stalled
    }

    /// Returns whether the shard may have another block.
    pub(crate) fn has_credit(&self) -> bool {
        self.blocks_out.get() < self.blocks_max.get()
    }

    /// Blocks of this shard that are not back in the pool.
    pub(crate) fn blocks_out(&self) -> usize {
        self.blocks_out.get()
    }

    /// Takes an empty block from the pool and charges it to this shard.
    pub(crate) fn take_block(&self, pool: &BlockPool) -> Box<Block> {
        assert!(self.has_credit());
        self.blocks_out.set(self.blocks_out.get() + 1);
        pool.take(self.partition, self.ownership_id, self.position.get())
    }

    /// Returns a block of this shard to the pool.
    pub(crate) fn give_block(&self, pool: &BlockPool, block: Box<Block>) {
        assert!(block.partition == self.partition && block.ownership_id == self.ownership_id);
        self.blocks_out.set(self.blocks_out.get() - 1);
        pool.give(block);
    }
}

/// All open cursors, in the order of the partition numbers.
pub(crate) struct Cursors {
    open: RefCell<Vec<Rc<Cursor>>>,
    ended: Cell<bool>,
}

impl Cursors {
    /// Creates an empty set.
    pub(crate) fn new() -> Rc<Cursors> {
        Rc::new(Cursors {
            open: RefCell::new(Vec::with_capacity(SHARDS_MAX)),
            ended: Cell::new(false),
        })
    }

    /// Ends the fetch path: no cursor will be opened any more.
    pub(crate) fn end(&self) {
        self.ended.set(true);
    }

    /// Returns whether the fetch path has to end.
    pub(crate) fn have_ended(&self) -> bool {
        self.ended.get()
    }

    /// Starts fetching a partition.
    pub(crate) fn open(&self, cursor: Rc<Cursor>) {
        let mut open = self.open.borrow_mut();
        let Err(place) = open.binary_search_by_key(&cursor.partition, |open| open.partition) else {
            panic!("partition {} is opened once", cursor.partition);
        };
        open.insert(place, cursor);
        share_blocks(&open);
    }

    /// Stops fetching a partition. Data in flight for it is dropped because its cursor is closed.
    pub(crate) fn close(&self, partition: i32) {
        let mut open = self.open.borrow_mut();
        if let Ok(place) = open.binary_search_by_key(&partition, |open| open.partition) {
            open.remove(place).state.set(CursorState::Closed);
            share_blocks(&open);
        }
    }

    /// Calls `visit` for each open cursor, in the order of the partition numbers.
    pub(crate) fn each(&self, mut visit: impl FnMut(&Rc<Cursor>)) {
        self.open.borrow().iter().for_each(&mut visit);
    }
}

/// Divides the blocks evenly among the open shards. A shard above its new share gets no further
/// block until enough have come back.
fn share_blocks(open: &[Rc<Cursor>]) {
    let share = (ALL_BLOCKS_MAX / open.len().max(1)).clamp(SHARD_BLOCKS_MIN, SHARD_BLOCKS_MAX);
    open.iter().for_each(|cursor| cursor.blocks_max.set(share));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kafka::error_code::ErrorCode;
    use crate::kafka::record_batch::{BatchError, BatchReason};

    fn damage(found: u32) -> String {
        BatchError { offset: 100, reason: BatchReason::Crc { stated: 1, found } }.to_string()
    }

    #[test]
    fn what_would_stop_a_shard_counts_once_two_connections_have_said_it_of_one_position() {
        use Claim::{OutOfRange, Refused, Unreadable};
        let cursor = Cursor::new(0, 1, (100, None), Box::default());
        assert!(!cursor.is_confirmed(OutOfRange, "no offset", (1, 1)));
        assert!(
            !cursor.is_confirmed(OutOfRange, "no offset", (1, 1)),
            "the same connection proves nothing"
        );
        cursor.position.set(200);
        assert!(!cursor.is_confirmed(OutOfRange, "no offset", (1, 2)), "another position");
        assert!(!cursor.is_confirmed(Unreadable, "damage", (1, 3)), "something else");
        assert!(cursor.is_confirmed(Unreadable, "damage", (1, 4)));
        cursor.trust();
        assert!(!cursor.is_confirmed(Refused(ErrorCode(2)), "error 2", (1, 5)));
        assert!(
            !cursor.is_confirmed(Refused(ErrorCode(42)), "error 42", (1, 6)),
            "another refusal"
        );
        assert!(!cursor.is_confirmed(Refused(ErrorCode(42)), "error 42", (2, 7)), "another leader");
        assert!(cursor.is_confirmed(Refused(ErrorCode(42)), "error 42", (2, 8)));
        assert!(!cursor.is_confirmed(Unreadable, &damage(2), (1, 9)));
        assert!(cursor.is_confirmed(Unreadable, &damage(2), (2, 10)), "logs are alike");
    }

    #[test]
    fn a_broker_that_does_not_have_what_is_behind_a_gap_hides_it_no_longer_than_once() {
        let cursor = Cursor::new(0, 1, (100, None), Box::default());
        assert!(!cursor.is_confirmed(Claim::OutOfRange, "no offset", (1, 1)));
        assert!(!cursor.is_confirmed(Claim::Gap, "a gap", (1, 2)));
        assert!(
            !cursor.is_confirmed(Claim::OutOfRange, "no offset", (1, 3)),
            "there is something behind it"
        );
        cursor.trust();
        assert!(cursor.is_confirmed(Claim::Gap, "a gap", (1, 4)));
    }

    #[test]
    fn a_leader_epoch_that_goes_back_or_is_ahead_of_the_leader_is_unknown() {
        let cursor = Cursor::new(0, 1, (0, None), Box::default());
        assert_eq!(cursor.plausible_epoch(3, 3), -1, "the leader's is unknown");
        cursor.current_leader_epoch.set(5);
        for (before, stated, plausible) in
            [(-1, 0, 0), (3, 3, 3), (3, 5, 5), (3, 6, -1), (3, 2, -1), (3, -1, -1), (-1, 6, -1)]
        {
            assert_eq!(
                cursor.plausible_epoch(before, stated),
                plausible,
                "{stated} after {before}"
            );
        }
    }

    #[test]
    fn damage_is_confirmed_by_the_same_damage_on_another_connection() {
        let cursor = Cursor::new(0, 1, (100, None), Box::default());
        assert!(!cursor.is_confirmed(Claim::Unreadable, &damage(2), (1, 1)));
        assert!(
            !cursor.is_confirmed(Claim::Unreadable, &damage(3), (1, 2)),
            "bits flip on the way"
        );
        assert!(cursor.is_confirmed(Claim::Unreadable, &damage(3), (1, 3)));
    }

    #[test]
    fn a_batch_is_passed_over_for_a_skip_within_it_and_for_no_other_one() {
        let cursor = Cursor::new(0, 1, (0, None), Box::from([10, 50]));
        for (offsets, is_skipped) in
            [(0..=9, false), (0..=10, true), (10..=10, true), (11..=49, false), (45..=60, true)]
        {
            assert_eq!(cursor.skips_any_of(&offsets), is_skipped, "{offsets:?}");
        }
        assert!(!cursor.skips_any_of(&(51..=100)));
    }
}
