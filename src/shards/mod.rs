//! The world: the shards that this daemon owns, and the stage of the hot thread that applies their
//! events and hands their frames on.
//!
//! A shard that has no frame to write to keeps its blocks and waits; its cursor is stalled, so that
//! the fetch path brings no more of it, and the other shards go on. A panic of the engine takes
//! down its shard, and no other.

pub mod checkpoints;
pub mod framer;
mod shard;

use crate::engine::Shard;
use crate::fetch::block::{BLOCK_EVENTS_MAX, Block, BlockPool, SHARD_BLOCKS_MAX};
use crate::fetch::cursor::{Cursor, Cursors};
use crate::output::frame::Frame;
use crate::ownership::start_error::StartError;
use crate::publisher::Outgoing;
use crate::queue::{Receiver, Sender};
use crate::runtime::driver::Turns;
use crate::shards::framer::{Framer, Ownership};
use crate::telemetry::metrics::{Gauge, Metrics};
use crate::telemetry::progress::{Progress, SHARDS_MAX};
use checkpoints::{CheckpointSchedule, Checkpoints, WriterPath};
use shard::{OwnedShard, ShardEnd};
use std::cell::Cell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// Frames that exist at once: each shard may hold one that it fills, and some are being encoded.
/// They are recycled, and one that was never used takes no memory.
pub const FRAMES_MAX: usize = SHARDS_MAX + 64;

/// Milliseconds between two looks at a shard that waits for the publisher.
pub const STALL_RETRY_MS: u64 = 1;

/// What the control thread tells the world.
pub enum Command {
    /// Begin a shard where its state was taken.
    Open {
        /// What it has to know of its output.
        ownership: Ownership,
        /// The state: making one takes longer than a turn may.
        engine: Box<Shard>,
        /// Input offsets to pass over, in ascending order.
        skips: Box<[i64]>,
    },
    /// End a shard: stop its fetch, apply what is decoded, hand over its last frame.
    Close { partition: i32 },
    /// End a shard at once: its output belongs to somebody else, or failed.
    Drop { partition: i32 },
}

/// What the world tells the control thread.
#[derive(Debug)]
pub enum Notice {
    /// A shard has ended. What it had sent to the publisher may still be on its way.
    Closed { partition: i32, ownership_id: u32 },
    /// A shard was stopped by a fault, or by what only an operator can help with: the sentence says
    /// which, and what to do.
    Halted { partition: i32, ownership_id: u32, sentence: String },
    /// A shard was stopped because its replay does not make what is published.
    Diverged { partition: i32, ownership_id: u32, refusal: StartError },
    /// A shard was stopped because the engine failed at this input offset.
    Panicked { partition: i32, ownership_id: u32, offset: i64 },
}

impl Notice {
    /// The partition and the ownership that it is about.
    pub fn ownership(&self) -> (i32, u32) {
        match self {
            Notice::Closed { partition, ownership_id }
            | Notice::Halted { partition, ownership_id, .. }
            | Notice::Diverged { partition, ownership_id, .. }
            | Notice::Panicked { partition, ownership_id, .. } => (*partition, *ownership_id),
        }
    }
}

/// Everything the world works with.
pub struct Tools {
    /// Time and turns.
    pub driver: Rc<Turns>,
    /// The cursors of the fetch path.
    pub cursors: Rc<Cursors>,
    /// Where empty blocks go.
    pub pool: Rc<BlockPool>,
    /// From the control thread.
    pub commands: Receiver<Command>,
    /// To the control thread.
    pub notices: Sender<Notice>,
    /// Frames that the publisher is done with.
    pub free_frames: Receiver<Box<Frame>>,
    /// Frames that are at hand.
    pub spare_frames: Vec<Box<Frame>>,
    /// To the publisher.
    pub outbox: Sender<Outgoing>,
    /// Unacknowledged frames that a shard may have.
    pub frames_per_shard: u64,
    /// Bytes that all shards together may have on their way.
    pub bytes_max: u64,
    /// Shards that share them: as many as were ever owned at once.
    pub shards_max: Cell<u64>,
    /// How long updates may wait for more, while more keeps coming.
    pub linger: Duration,
    /// To the keeper; `None`: there are no snapshots.
    pub keeper: Option<WriterPath>,
    /// How far each shard is.
    pub progress: Arc<Progress>,
    /// The counters.
    pub metrics: Arc<Metrics>,
}

impl Tools {
    /// What a dead output partition may take of the producer's buffer: the others' share is theirs.
    fn bytes_per_shard(&self) -> u64 {
        self.bytes_max / self.shards_max.get().max(1)
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
pub struct Shards {
    tools: Tools,
    shards: Vec<Option<Box<OwnedShard>>>,
    /// Partitions of the shards that are there, in ascending order.
    owned: Vec<usize>,
    checkpoints: Checkpoints,
    stopping: bool,
}

impl Shards {
    /// A world without shards.
    pub fn new(tools: Tools) -> Shards {
        let shards = (0..SHARDS_MAX).map(|_| None).collect();
        let owned = Vec::with_capacity(SHARDS_MAX);
        Shards { tools, shards, owned, checkpoints: Checkpoints::default(), stopping: false }
    }

    /// Applies the blocks that are there. Ready once the queue has ended and every shard is closed.
    pub fn turn(
        &mut self,
        context: &mut Context<'_>,
        blocks: &mut Receiver<Box<Block>>,
    ) -> Poll<()> {
        self.take_commands(context);
        self.tools.metrics.set_gauge(Gauge::QueueBlocks, blocks.len() as u64);
        // Not polled: the fetch path has its turn before, so to be woken for a block would only
        // cost one more turn, and keep this one from resting.
        while let Some(block) = blocks.try_receive() {
            self.place(block);
        }
        let ended = blocks.senders_gone();
        if self.stopping {
            for partition in 0..self.shards.len() {
                self.discard(partition as i32);
            }
        }
        for index in 0..self.owned.len() {
            let partition = self.owned[index];
            self.settle(partition);
        }
        self.write_checkpoints();
        self.owned.retain(|partition| self.shards[*partition].is_some());
        if ended && self.stopping && self.owned.is_empty() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }

    fn take_commands(&mut self, context: &mut Context<'_>) {
        while let Poll::Ready(command) = self.tools.commands.poll_receive(context) {
            let Some(command) = command else {
                // The control thread is gone: no shard is left, and none will come.
                self.stopping = true;
                self.tools.cursors.end();
                self.tools.driver.turn_again();
                break;
            };
            match command {
                Command::Open { ownership, engine, skips } => self.open(ownership, engine, skips),
                Command::Close { partition } => {
                    self.tools.cursors.close(partition);
                    if let Some(owned) = self.owned(partition) {
                        owned.closing = true;
                    }
                }
                Command::Drop { partition } => self.discard(partition),
            }
        }
    }

    fn owned(&mut self, partition: i32) -> Option<&mut OwnedShard> {
        self.shards[usize::try_from(partition).expect("a partition number")].as_deref_mut()
    }

    fn open(&mut self, ownership: Ownership, engine: Box<Shard>, skips: Box<[i64]>) {
        let partition = usize::try_from(ownership.partition).expect("a partition number");
        assert!(self.shards[partition].is_none(), "partition {partition} is opened once");
        let start = ownership.start_offset;
        let cursor = Cursor::new(ownership.partition, ownership.ownership_id, start, skips);
        let progress = self.tools.progress.shard(ownership.partition);
        for offset in [&progress.fetched, &progress.decoded, &progress.applied] {
            offset.set(start);
        }
        progress.published.set(start);
        progress.next_update.set(ownership.start_update);
        progress.ruleset.set(engine.ruleset().into());
        progress.digest.set(engine.digest());
        self.tools.cursors.open(cursor.clone());
        self.tools.driver.turn_again();
        self.checkpoints.check_soon();
        let every = self.tools.keeper.as_ref().map_or(Duration::ZERO, |keeper| keeper.every);
        let schedule =
            CheckpointSchedule::new(ownership.partition, start, every, self.tools.driver.now());
        self.shards[partition] = Some(Box::new(OwnedShard {
            engine,
            framer: Framer::new(ownership, self.tools.driver.now()),
            cursor,
            pending: VecDeque::with_capacity(SHARD_BLOCKS_MAX),
            applied: 0,
            departures: VecDeque::with_capacity(BLOCK_EVENTS_MAX),
            dirty_since: None,
            closing: false,
            schedule,
        }));
        // It may have been dropped in this very turn.
        if let Err(place) = self.owned.binary_search(&partition) {
            self.owned.insert(place, partition);
        }
        self.tools.pool.reserve(self.owned.len());
        let owned = self.owned.len() as u64;
        self.tools.shards_max.set(self.tools.shards_max.get().max(owned));
    }

    /// Puts a block to its shard and applies what can be applied. A block of an earlier ownership
    /// has no shard: it goes back to the pool.
    fn place(&mut self, block: Box<Block>) {
        let partition = usize::try_from(block.partition).expect("a partition number");
        match self.shards[partition].as_deref_mut() {
            Some(owned) if owned.cursor.ownership_id == block.ownership_id => {
                owned.pending.push_back(block);
                self.work(partition);
            }
            _ => self.tools.pool.give(block),
        }
    }

    fn work(&mut self, partition: usize) {
        let Some(owned) = self.shards[partition].as_deref_mut() else { return };
        match owned.work(&mut self.tools) {
            Ok(()) => {}
            Err(ShardEnd::Refused(refusal @ StartError::RulesMissing { .. })) => {
                self.halt(partition, refusal.to_string());
            }
            Err(ShardEnd::Refused(refusal)) => self.diverge(partition, refusal),
            Err(ShardEnd::Panicked { offset }) => {
                self.end(partition, |partition, ownership_id| Notice::Panicked {
                    partition,
                    ownership_id,
                    offset,
                });
            }
        }
    }

    /// What a shard needs once a turn: a stalled one is tried again, a silent one says where it is,
    /// a closing one ends.
    fn settle(&mut self, partition: usize) {
        self.work(partition);
        let Some(owned) = self.shards[partition].as_deref_mut() else { return };
        let ending = owned.closing || owned.cursor.has_failed();
        let done = ending && owned.cursor.blocks_out() == 0;
        if (done || owned.is_flush_due(&self.tools))
            && let Err(refusal) = owned.flush_position(&mut self.tools)
        {
            self.diverge(partition, refusal);
            return;
        }
        owned.repeat_fence(&mut self.tools);
        let ended = done && owned.owes_nothing();
        let Some(owned) = self.shards[partition].as_deref() else { return };
        if !ended || self.owes_snapshot(owned) {
            owned.retry_soon(&self.tools);
            if ended {
                self.checkpoints.check_soon();
            }
            return;
        }
        let (partition, ownership_id) = (owned.cursor.partition, owned.cursor.ownership_id);
        let fault = owned.cursor.take_fault();
        self.remove(partition);
        self.notify(match fault {
            Some(sentence) => Notice::Halted { partition, ownership_id, sentence },
            None => Notice::Closed { partition, ownership_id },
        });
    }

    fn halt(&mut self, partition: usize, sentence: String) {
        self.end(partition, |partition, ownership_id| Notice::Halted {
            partition,
            ownership_id,
            sentence,
        });
    }

    fn diverge(&mut self, partition: usize, refusal: StartError) {
        self.end(partition, |partition, ownership_id| Notice::Diverged {
            partition,
            ownership_id,
            refusal,
        });
    }

    fn end(&mut self, partition: usize, notice: impl FnOnce(i32, u32) -> Notice) {
        let Some(owned) = self.shards[partition].as_deref() else { return };
        let (partition, ownership_id) = (owned.cursor.partition, owned.cursor.ownership_id);
        self.discard(partition);
        self.notify(notice(partition, ownership_id));
    }

    /// Forgets a shard before its time.
    fn discard(&mut self, partition: i32) {
        if let Some(owned) = self.remove(partition) {
            self.abandon_checkpoint(&owned);
        }
    }

    /// Forgets a shard and gives back what it holds.
    fn remove(&mut self, partition: i32) -> Option<Box<OwnedShard>> {
        self.tools.cursors.close(partition);
        let index = usize::try_from(partition).expect("a partition number");
        let mut owned = self.shards[index].take()?;
        for block in owned.pending.drain(..) {
            owned.cursor.give_block(&self.tools.pool, block);
        }
        if let Some(mut frame) = owned.framer.abandon() {
            frame.updates.clear();
            self.tools.spare_frames.push(frame);
        }
        Some(owned)
    }

    /// The queue has room for several notices a shard; without its receiver nobody needs them.
    fn notify(&mut self, notice: Notice) {
        let _nobody = self.tools.notices.try_send(notice);
    }
}
