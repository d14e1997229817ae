//! The shards that this daemon owns: the stage of the hot thread that applies their events and
//! hands their frames to the publisher.
//!
//! A *follower* is a shard whose output another owner publishes still. It applies what the output
//! covers and nothing further, and nothing of it leaves, until it is promoted.
//!
//! A shard that has no frame to write to keeps its blocks and waits. Its cursor is stalled, so the
//! fetch path fetches no more for it, and the other shards go on. A panic of the engine takes down
//! only its own shard.

pub mod checkpoints;
pub mod framer;
mod kept;
mod shard;

#[cfg(test)]
mod tests;

use crate::fetch::block::{Block, BlockPool};
use crate::fetch::cursor::{Cursor, CursorFault, Cursors};
use crate::kit::engine::{AnyRulebook, Engine};
use crate::output::frame::{FRAME_BYTES_MAX, Frame};
use crate::ownership::action::Cover;
use crate::ownership::event::{ShardNotice, ToControl};
use crate::ownership::start_error::StartError;
use crate::publisher::{OUTBOX_ITEMS_MAX, ToPublisher};
use crate::queue::{Receiver, Sender};
use crate::runtime::turns::HotContext;
use crate::shards::framer::{Grant, ShardRole};
use crate::telemetry::metrics::Gauge;
use crate::telemetry::progress::{SHARDS_MAX, ShardProgress};
use checkpoints::{CheckpointEnds, CheckpointSchedule, Checkpoints};
use shard::{OwnedShard, ShardEnd};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

/// Frames that exist at once: each shard may hold one that it fills, and some are being encoded.
/// They are recycled, and one that was never used takes no memory.
pub(crate) const FRAMES_MAX: usize = SHARDS_MAX + 64;

/// Frames whose memory is taken before they are needed, at most: 56 MiB.
const FRAMES_TOUCHED_MAX: usize = 448;

/// Microseconds that updates may wait for more: a longer wait would not be real time.
pub(crate) const LINGER_US_MAX: u32 = 900_000;

/// Frames, dead letters and handoffs of one shard that may be unacknowledged, the upper bound of
/// `publish.frames_per_shard`.
pub(crate) const SHARD_FRAMES_MAX: u64 = 1024;

/// Upper limit of `publish.queue_kbytes_max`, in KiB. A larger number was probably meant in
/// bytes.
pub(crate) const PUBLISH_QUEUE_KBYTES_MAX: u64 = 2_097_151;

/// Milliseconds before a shard that waits for the publisher is tried again.
pub const STALL_RETRY_MS: u64 = 1;

/// What the control thread sends to the hot thread.
pub enum ToHot {
    /// Begin a shard where its state was taken.
    Open {
        /// What it must know of its output.
        grant: Grant,
        /// Decides where its updates go.
        role: ShardRole,
        /// The state: making one takes longer than a turn may.
        engine: Box<dyn Engine>,
        /// Input offsets to pass over, in ascending order.
        skips: Box<[i64]>,
    },
    /// A follower may go on: the output covers more input.
    Cover(Cover),
    /// A follower becomes the owner.
    Promote {
        /// What it must know of its output now.
        grant: Grant,
        /// What stands beside the output of the input before this offset need not be sent.
        settled_offset: i64,
    },
    /// The rules that an event may change to from now on: those known before, and perhaps more.
    Rulebook(AnyRulebook),
    /// End a shard: stop its fetch, apply what is decoded, hand over its last frame.
    Close {
        /// The shard's partition.
        partition: i32,
    },
    /// End a shard at once: its output belongs to another owner, or failed.
    Drop {
        /// The shard's partition.
        partition: i32,
    },
}

/// What the operator chose for the shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardOptions {
    /// How long updates may wait for more, while more keeps coming.
    pub linger: Duration,
    /// Frames, dead letters and handoffs of one shard that may be unacknowledged.
    pub frames_per_shard: u64,
    /// Bytes that may be unacknowledged, over all shards. Each shard may exceed its share of them
    /// by what it sends last.
    pub bytes_max: u64,
}

/// The shards' ends of what they share with other threads.
pub struct ShardEnds {
    /// To the control thread.
    pub control: Sender<ToControl>,
    /// To the publisher.
    pub publisher: Sender<ToPublisher>,
    /// Frames that the publisher is done with.
    pub free_frames: Receiver<Box<Frame>>,
    /// To the snapshot writer; `None`: there are no snapshots.
    pub checkpoints: Option<CheckpointEnds>,
}

impl ShardEnds {
    /// Whether the outbox has room for something other than a frame: it keeps room for every frame
    /// there is.
    fn has_room_beside_frames(&self) -> bool {
        self.publisher.len() + FRAMES_MAX < OUTBOX_ITEMS_MAX
    }
}

/// What all shards work with.
struct Workspace {
    context: HotContext,
    options: ShardOptions,
    ends: ShardEnds,
    cursors: Rc<Cursors>,
    pool: Rc<BlockPool>,
    /// Frames that nobody fills.
    #[expect(clippy::vec_box, reason = "they come and go as boxes")]
    spare_frames: Vec<Box<Frame>>,
    /// Shards that share `bytes_max`: as many as were ever owned at once.
    shards_max: u64,
}

impl Workspace {
    /// Takes back the frames that the publisher is done with.
    fn gather_frames(&mut self) {
        while let Some(frame) = self.ends.free_frames.try_receive() {
            self.spare_frames.push(frame);
        }
    }

    /// Takes the memory of as many frames from the system as this many shards can fill, so that the
    /// daemon does not grow when they first do.
    fn touch_frames(&mut self, shards: usize) {
        self.gather_frames();
        // Each shard fills one. On their way are as many as have room, and one of each shard.
        let under_way = shards * self.options.frames_per_shard as usize;
        let with_room = (self.options.bytes_max as usize / FRAME_BYTES_MAX).max(shards);
        let frames = shards + under_way.min(with_room);
        for frame in self.spare_frames.iter_mut().rev().take(frames.min(FRAMES_TOUCHED_MAX)) {
            frame.updates.clear();
            frame.updates.touch();
        }
    }

    /// The part of `bytes_max` that one shard may use, also if its output partition is down.
    fn bytes_per_shard(&self) -> u64 {
        self.options.bytes_max / self.shards_max.max(1)
    }
}

/// Publishes what the game counts in a zone.
fn publish_counts(progress: &ShardProgress, engine: &dyn Engine) {
    for (count, number) in progress.counts.iter().zip(engine.counts()) {
        count.set(number);
    }
}

thread_local! {
    static ENGINE_AT_WORK: Cell<bool> = const { Cell::new(false) };
}

/// Whether a panic of this thread takes down one shard only.
pub fn is_engine_at_work() -> bool {
    ENGINE_AT_WORK.get()
}

/// Lets the engine work. `None`: it panicked, and its shard has to go down.
fn contained<T>(work: impl FnOnce() -> T) -> Option<T> {
    ENGINE_AT_WORK.set(true);
    let done = catch_unwind(AssertUnwindSafe(work)).ok();
    ENGINE_AT_WORK.set(false);
    done
}

/// The shards that this daemon owns.
pub(crate) struct Shards {
    workspace: Workspace,
    shards: Vec<Option<Box<OwnedShard>>>,
    /// Partitions of the shards that are there, in ascending order.
    owned: Vec<usize>,
    checkpoints: Checkpoints,
}

impl Shards {
    /// No shard is owned.
    pub(crate) fn new(
        context: HotContext,
        options: ShardOptions,
        ends: ShardEnds,
        cursors: Rc<Cursors>,
        pool: Rc<BlockPool>,
    ) -> Shards {
        let spare_frames = Vec::with_capacity(FRAMES_MAX);
        let workspace =
            Workspace { context, options, ends, cursors, pool, spare_frames, shards_max: 1 };
        let shards = (0..SHARDS_MAX).map(|_| None).collect();
        let owned = Vec::with_capacity(SHARDS_MAX);
        Shards { workspace, shards, owned, checkpoints: Checkpoints::default() }
    }

    /// One turn: applies the blocks that are there, and lets every shard hand over what it has to.
    /// Ready once the queue has ended and every shard is closed.
    pub(crate) fn turn(&mut self, blocks: &mut Receiver<Box<Block>>) -> Poll<()> {
        self.workspace.context.metrics.set_gauge(Gauge::QueueBlocks, blocks.len() as u64);
        // Not polled: the fetch path has had its turn before. A wake-up for each block would only
        // cost one more turn, and keep the thread from resting.
        while let Some(block) = blocks.try_receive() {
            self.place(block);
        }
        let has_ended = blocks.senders_gone();
        for index in 0..self.owned.len() {
            self.turn_shard(self.owned[index]);
        }
        self.begin_due_checkpoint();
        self.owned.retain(|partition| self.shards[*partition].is_some());
        match has_ended && self.owned.is_empty() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }

    /// Gives a block to its shard and applies it while it is in the cache. A block of an earlier
    /// ownership has no shard: it goes back to the pool.
    fn place(&mut self, block: Box<Block>) {
        let partition = usize::try_from(block.partition).expect("a partition number");
        let Some(shard) = self.shards[partition]
            .as_deref_mut()
            .filter(|shard| shard.cursor.ownership_id == block.ownership_id)
        else {
            return self.workspace.pool.give(block);
        };
        shard.pending.push_back(block);
        if let Err(end) = shard.apply(&mut self.workspace) {
            self.stop_shard(partition, end);
        }
    }

    /// One turn of one shard: applies what waits, hands over what was made, repeats the fence,
    /// continues the checkpoint, and ends a shard that is closed and has nothing left.
    fn turn_shard(&mut self, partition: usize) {
        let Some(shard) = self.shards[partition].as_deref_mut() else { return };
        if let Err(end) = shard.apply(&mut self.workspace) {
            return self.stop_shard(partition, end);
        }
        if let Err(error) = shard.flush_if_due(&mut self.workspace) {
            return self.stop_shard(partition, error.into());
        }
        shard.repeat_fence(&mut self.workspace);
        self.write_checkpoint(partition);
        let Some(shard) = self.shards[partition].as_deref() else { return };
        let has_ended = shard.is_done() && shard.owes_nothing();
        if has_ended && !self.owes_checkpoint(partition) {
            return self.end_shard(partition);
        }
        shard.ask_for_turn(&self.workspace);
        if has_ended {
            self.checkpoints.check_soon();
        }
    }

    /// Begins a shard where its state was taken.
    pub(crate) fn open(
        &mut self,
        grant: Grant,
        role: ShardRole,
        engine: Box<dyn Engine>,
        skips: Box<[i64]>,
    ) {
        let partition = usize::try_from(grant.partition).expect("a partition number");
        assert!(self.shards[partition].is_none(), "partition {partition} is opened once");
        let Workspace { context, cursors, pool, shards_max, ends, .. } = &mut self.workspace;
        let (start, now) = (grant.start_offset, context.turns.now());
        let start_epoch = grant.start_leader_epoch;
        let progress = context.progress.shard(grant.partition);
        for offset in [&progress.fetched, &progress.decoded, &progress.applied] {
            offset.set(start);
        }
        progress.published.set(start);
        progress.next_update.set(grant.start_update);
        progress.ruleset.set(engine.ruleset().into());
        progress.applied_time_ms.set(0);
        publish_counts(progress, &*engine);
        progress.digest.set(engine.digest());
        let cursor = Cursor::new(grant.partition, grant.ownership_id, (start, start_epoch), skips);
        cursor.surveyed_leader_epoch.set(grant.input_leader_epoch);
        cursor.is_following.set(role == ShardRole::Follower);
        cursors.open(cursor.clone());
        context.turns.turn_again();
        self.checkpoints.check_soon();
        let every = ends.checkpoints.as_ref().map_or(Duration::ZERO, |ends| ends.every);
        let schedule = CheckpointSchedule::new(grant.partition, start, every, now);
        let shard = OwnedShard::new((grant, role), engine, cursor, schedule, context);
        self.shards[partition] = Some(Box::new(shard));
        // It may have been dropped in this very turn.
        if let Err(place) = self.owned.binary_search(&partition) {
            self.owned.insert(place, partition);
        }
        pool.reserve(self.owned.len());
        *shards_max = (*shards_max).max(self.owned.len() as u64);
        self.workspace.touch_frames(self.owned.len());
    }

    /// A follower may go on. One that is gone, or that owns its output by now, need not know.
    pub(crate) fn cover(&mut self, cover: Cover) {
        let index = usize::try_from(cover.partition).expect("a partition number");
        if let Some(shard) = self.shards[index].as_deref_mut()
            && shard.cursor.ownership_id == cover.ownership_id
        {
            shard.cover(&cover);
            self.workspace.context.turns.turn_again();
        }
    }

    /// A follower becomes the owner. If it has stopped, the notice is on its way.
    pub(crate) fn promote(&mut self, grant: Grant, settled_offset: i64) {
        let partition = usize::try_from(grant.partition).expect("a partition number");
        let now = self.workspace.context.turns.now();
        let shard = self.shards[partition].as_deref_mut();
        let shard = shard.filter(|shard| shard.cursor.ownership_id == grant.ownership_id);
        let Some(shard) = shard else { return };
        match shard.promote(grant, settled_offset, now) {
            Ok(()) => self.workspace.context.turns.turn_again(),
            Err(end) => self.stop_shard(partition, end),
        }
        self.checkpoints.check_soon();
    }

    /// Each shard knows these rules from the next event on.
    pub(crate) fn know(&mut self, rulebook: &AnyRulebook) {
        for shard in self.shards.iter_mut().flatten() {
            shard.engine.know(rulebook);
        }
        self.workspace.context.progress.set_rulesets(rulebook.rulesets());
    }

    /// Ends a shard in order: stops its fetch, applies what is decoded, hands over its last frame,
    /// and stores its last state.
    pub(crate) fn close(&mut self, partition: i32) {
        self.workspace.cursors.close(partition);
        let index = usize::try_from(partition).expect("a partition number");
        if let Some(shard) = self.shards[index].as_deref_mut() {
            shard.closing = true;
        }
    }

    /// Ends a shard at once.
    pub(crate) fn drop_shard(&mut self, partition: i32) {
        if let Some(shard) = self.remove(partition) {
            self.abandon_checkpoint(&shard);
        }
    }

    /// Ends all shards at once: the control thread is gone, and none will come.
    pub(crate) fn drop_all(&mut self) {
        for partition in 0..self.shards.len() {
            self.drop_shard(partition as i32);
        }
    }

    /// Removes a shard that has closed, or whose cursor has failed, and that has nothing left to
    /// do.
    fn end_shard(&mut self, partition: usize) {
        let shard = self.shards[partition].as_deref().expect("the caller looked");
        let (partition, ownership_id) = (shard.cursor.partition, shard.cursor.ownership_id);
        let fault = shard.cursor.take_fault();
        self.remove(partition);
        self.notify(match fault {
            Some(CursorFault::Unreadable(sentence)) => {
                ShardNotice::Halted { partition, ownership_id, sentence }
            }
            Some(CursorFault::Diverged(error)) => {
                ShardNotice::Diverged { partition, ownership_id, error }
            }
            None => ShardNotice::Closed { partition, ownership_id },
        });
    }

    /// A shard cannot go on.
    fn stop_shard(&mut self, partition: usize, end: ShardEnd) {
        let Some(shard) = self.shards[partition].as_deref() else { return };
        let (partition, ownership_id) = (shard.cursor.partition, shard.cursor.ownership_id);
        self.drop_shard(partition);
        self.notify(match end {
            ShardEnd::CannotContinue(error @ StartError::RulesMissing { .. }) => {
                ShardNotice::Halted { partition, ownership_id, sentence: error.to_string() }
            }
            ShardEnd::CannotContinue(error) => {
                ShardNotice::Diverged { partition, ownership_id, error }
            }
            ShardEnd::Panicked { offset } => {
                ShardNotice::Panicked { partition, ownership_id, offset }
            }
            ShardEnd::CheckpointFailed(sentence) => {
                ShardNotice::Halted { partition, ownership_id, sentence }
            }
            ShardEnd::CannotTakeOver => ShardNotice::CannotTakeOver { partition, ownership_id },
        });
    }

    /// Forgets a shard and gives back what it holds.
    fn remove(&mut self, partition: i32) -> Option<Box<OwnedShard>> {
        self.workspace.cursors.close(partition);
        let index = usize::try_from(partition).expect("a partition number");
        let mut shard = self.shards[index].take()?;
        for block in shard.pending.drain(..) {
            shard.cursor.give_block(&self.workspace.pool, block);
        }
        if let Some(mut frame) = shard.framer.abandon() {
            frame.updates.clear();
            self.workspace.spare_frames.push(frame);
        }
        Some(shard)
    }

    /// The queue has room for several notices a shard; without its receiver nobody needs them.
    fn notify(&mut self, notice: ShardNotice) {
        let _nobody = self.workspace.ends.control.try_send(ToControl::Shard(notice));
    }
}
