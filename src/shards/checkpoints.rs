//! Decides when shards take checkpoints, and passes their bytes to the snapshot writer: one shard
//! at a time, one piece per turn.

use super::shard::{OwnedShard, ShardEnd};
use super::{Shards, contained};
use crate::kit::checkpoint::CheckpointRead;
use crate::publisher::ToPublisher;
use crate::queue::bell::Bell;
use crate::queue::{Receiver, Sender};
use crate::shards::STALL_RETRY_MS;
use crate::snapshot::checkpoint::{Buffer, ToSnapshots};
use crate::snapshot::format::SNAPSHOT_BLOCK_BYTES;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Parts of the time between two snapshots over which the shards' first checkpoints are spread.
const SHARES: u32 = 16;

const STALL_RETRY: Duration = Duration::from_millis(STALL_RETRY_MS);

/// The way to the snapshot writer.
pub struct CheckpointEnds {
    /// To the writer.
    pub writer: Sender<ToSnapshots>,
    /// Wakes the writer.
    pub bell: Arc<Bell>,
    /// Buffers that the writer is done with.
    pub free_buffers: Receiver<Buffer>,
    /// From one snapshot of a shard to its next.
    pub every: Duration,
}

/// The checkpoint that is being written.
#[derive(Default)]
pub(super) struct Checkpoints {
    /// The index of its shard.
    writing: Option<usize>,
    /// A buffer that is not full yet.
    buffer: Option<Buffer>,
    /// Number of the last checkpoint.
    number: u64,
    /// When a shard may be due; `None`: now.
    check_at: Option<Instant>,
}

impl Checkpoints {
    /// A shard was opened, or one is about to end.
    pub(super) fn check_soon(&mut self) {
        self.check_at = None;
    }
}

/// When one shard takes its checkpoints.
pub(super) struct CheckpointSchedule {
    /// When the next one is due.
    due: Instant,
    /// Input offset of the last one.
    last_offset: i64,
}

impl CheckpointSchedule {
    /// The first checkpoint comes soon, at another time for each shard.
    pub(super) fn new(
        partition: i32,
        start_offset: i64,
        every: Duration,
        now: Instant,
    ) -> CheckpointSchedule {
        let share = 1 + partition.cast_unsigned() % SHARES;
        let due = now + every / SHARES * share;
        CheckpointSchedule { due, last_offset: start_offset }
    }
}

impl Shards {
    /// Writes the next piece of this shard's checkpoint, if that is the one under way.
    pub(super) fn write_checkpoint(&mut self, partition: usize) {
        if self.checkpoints.writing == Some(partition) {
            self.write_piece(partition);
        }
    }

    /// Begins the checkpoint that is due first, if none is under way.
    pub(super) fn begin_due_checkpoint(&mut self) {
        if self.workspace.ends.checkpoints.is_some() && self.checkpoints.writing.is_none() {
            self.begin_next();
        }
    }

    /// Whether a shard that ends should take a checkpoint: its state is new, and may become a
    /// snapshot.
    pub(super) fn owes_checkpoint(&self, partition: usize) -> bool {
        let shard = self.shards[partition].as_deref();
        shard.is_some_and(|shard| self.owes(shard))
    }

    fn owes(&self, shard: &OwnedShard) -> bool {
        let is_writing = self.checkpoints.writing == Some(shard.index());
        let is_new = shard.schedule.last_offset != shard.framer.next_offset();
        let is_wanted = self.workspace.ends.checkpoints.is_some() && !shard.cursor.has_failed();
        let has_replayed = !shard.framer.is_replaying() && !shard.framer.is_following();
        is_writing || (is_wanted && is_new && has_replayed)
    }

    fn begin_next(&mut self) {
        let turns = self.workspace.context.turns.clone();
        let now = turns.now();
        if let Some(at) = self.checkpoints.check_at.filter(|at| *at > now) {
            turns.turn_at(at);
            return;
        }
        self.put_off(now);
        let is_due = |shard: &OwnedShard| shard.closing || shard.schedule.due <= now;
        let shards = self.owned.iter().filter_map(|partition| self.shards[*partition].as_deref());
        let ready = shards.filter(|shard| is_due(shard) && self.may_begin(shard));
        if let Some(oldest) = ready.min_by_key(|shard| shard.schedule.due) {
            return self.begin(oldest.index());
        }
        let shards = self.owned.iter().filter_map(|partition| self.shards[*partition].as_deref());
        if let Some(at) = shards.map(|shard| shard.schedule.due).min() {
            // One that is due has to wait for its last checkpoint, or for room.
            self.check_at(at.max(now + STALL_RETRY));
        }
    }

    fn check_at(&mut self, at: Instant) {
        self.checkpoints.check_at = Some(at);
        self.workspace.context.turns.turn_at(at);
    }

    /// A shard that is due but has nothing new is due again after the usual time.
    fn put_off(&mut self, now: Instant) {
        let every = self.workspace.ends.checkpoints.as_ref().map_or(Duration::ZERO, |to| to.every);
        for index in 0..self.owned.len() {
            let partition = self.owned[index];
            let is_due = |shard: &OwnedShard| shard.schedule.due <= now && !self.owes(shard);
            if self.shards[partition].as_deref().is_some_and(is_due) {
                let shard = self.shards[partition].as_deref_mut().expect("just looked at");
                shard.schedule.due = now + every;
            }
        }
    }

    /// Whether a shard's state is new, its replay is over, and its previous checkpoint is finished.
    /// At the shard's end a newer checkpoint replaces that one.
    fn may_begin(&self, shard: &OwnedShard) -> bool {
        let progress = self.workspace.context.progress.shard(shard.cursor.partition);
        let is_free = progress.checkpoints.get() == progress.checkpoints_settled.get();
        let has_room = self.workspace.ends.has_room_beside_frames();
        (is_free || shard.closing) && has_room && self.owes(shard)
    }

    fn begin(&mut self, partition: usize) {
        let Some(shard) = self.shards[partition].as_deref_mut() else { return };
        // The checkpoint comes right after the updates of all that the state has seen.
        if let Err(error) = shard.flush_position(&mut self.workspace) {
            return self.stop_shard(partition, error.into());
        }
        let now = self.workspace.context.turns.now();
        if !shard.owes_nothing() {
            // Without a free frame, or one that may be sent, it has to wait.
            return self.check_at(now + STALL_RETRY);
        }
        self.checkpoints.number += 1;
        let number = self.checkpoints.number;
        let Some(header) = contained(|| shard.begin_checkpoint(number)) else {
            return self.fail(partition);
        };
        let id = header.id;
        let ends = self.workspace.ends.checkpoints.as_ref().expect("the caller looked");
        shard.schedule.due = now + ends.every;
        shard.schedule.last_offset = header.next_offset;
        if ends.writer.try_send(ToSnapshots::Begin(header)).is_err() {
            // The writer has ended: the daemon is about to.
            shard.engine.end_checkpoint();
            return;
        }
        let progress = self.workspace.context.progress.shard(id.partition);
        progress.checkpoints.set(progress.checkpoints.get() + 1);
        // Without a publisher no gate comes, and the daemon is about to end.
        let _gone = self.workspace.ends.publisher.try_send(ToPublisher::Checkpoint(id));
        self.checkpoints.writing = Some(partition);
        self.workspace.context.turns.turn_again();
    }

    fn write_piece(&mut self, partition: usize) {
        let Some(shard) = self.shards[partition].as_deref_mut() else {
            unreachable!("a shard that ends stops its checkpoint");
        };
        let turns = self.workspace.context.turns.clone();
        let ends = self.workspace.ends.checkpoints.as_mut().expect("the caller looked");
        let buffer = self.checkpoints.buffer.take().or_else(|| ends.free_buffers.try_receive());
        let Some(mut buffer) = buffer else {
            return turns.turn_at(turns.now() + STALL_RETRY);
        };
        let bytes = buffer.bytes_mut();
        let read = contained(|| shard.engine.write_checkpoint(bytes, SNAPSHOT_BLOCK_BYTES));
        let Some(read) = read else {
            self.checkpoints.buffer = Some(buffer);
            return self.fail(partition);
        };
        let is_done = read == CheckpointRead::Done;
        if is_done || buffer.bytes_mut().len() == SNAPSHOT_BLOCK_BYTES {
            // The queue has room for every buffer.
            let _gone = ends.writer.try_send(ToSnapshots::Block(buffer));
        } else {
            self.checkpoints.buffer = Some(buffer);
        }
        if is_done {
            self.checkpoints.writing = None;
            self.checkpoints.check_soon();
        }
        turns.turn_again();
    }

    /// The engine could not write its state. No record is to blame, so none is passed over, and it
    /// would most likely fail again.
    fn fail(&mut self, partition: usize) {
        let Some(shard) = self.shards[partition].as_deref() else { return };
        let sentence = format!(
            "the engine failed while its state at offset {} was checkpointed: report it; a restart \
             begins with the snapshot before it (docs/RUNBOOKS.md#checkpoint-fails)",
            shard.framer.next_offset()
        );
        self.stop_shard(partition, ShardEnd::CheckpointFailed(sentence));
    }

    /// A shard is dropped: its checkpoint is abandoned.
    pub(super) fn abandon_checkpoint(&mut self, shard: &OwnedShard) {
        let Some(ends) = &self.workspace.ends.checkpoints else { return };
        if self.checkpoints.writing == Some(shard.index()) {
            self.checkpoints.writing = None;
            self.checkpoints.check_soon();
            if let Some(buffer) = &mut self.checkpoints.buffer {
                buffer.clear();
            }
        }
        let (partition, ownership_id) = (shard.cursor.partition, shard.cursor.ownership_id);
        let _gone = ends.writer.try_send(ToSnapshots::Abandon { partition, ownership_id });
    }
}
