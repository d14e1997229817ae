//! When states are captured, and how their bytes go to the keeper: one shard at a time, a piece a
//! turn.

use super::shard::OwnedShard;
use super::{Shards, Tools, contained};
use crate::publisher::{CheckpointId, OUTBOX_ITEMS_MAX, Outgoing};
use crate::queue::{Receiver, Sender};
use crate::shards::{FRAMES_MAX, STALL_RETRY_MS};
use crate::snapshot::checkpoint::{Buffer, CheckpointHeader, Message};
use crate::snapshot::format::SNAPSHOT_BLOCK_BYTES;
use std::time::{Duration, Instant};

/// The way to the keeper.
pub struct WriterPath {
    /// What the keeper is told.
    pub messages: Sender<Message>,
    /// Buffers that it is done with.
    pub free_buffers: Receiver<Buffer>,
    /// From one snapshot of a shard to its next.
    pub every: Duration,
}

/// What is being captured.
#[derive(Default)]
pub(super) struct Checkpoints {
    /// The index of the shard whose state is told.
    writing: Option<usize>,
    /// A buffer that is not full yet.
    buffer: Option<Buffer>,
    /// Number of the last capture.
    number: u64,
    /// When a shard may be due; `None`: now.
    look_at: Option<Instant>,
}

impl Checkpoints {
    /// A shard has come, or one is about to end.
    pub(super) fn check_soon(&mut self) {
        self.look_at = None;
    }
}

/// Captures of one shard.
pub(super) struct CheckpointSchedule {
    /// When the next one is due.
    due: Instant,
    /// Input offset of the last one.
    last_offset: i64,
    /// Whether this ownership has begun one.
    begun: bool,
}

impl CheckpointSchedule {
    /// The first capture comes soon, at another time for each shard.
    pub(super) fn new(
        partition: i32,
        start_offset: i64,
        every: Duration,
        now: Instant,
    ) -> CheckpointSchedule {
        let share = 1 + partition.cast_unsigned() % SHARES;
        CheckpointSchedule {
            due: now + every / SHARES * share,
            last_offset: start_offset,
            begun: false,
        }
    }
}

/// Shards are spread over so many parts of the time between two snapshots.
const SHARES: u32 = 16;

impl Shards {
    /// Tells the next piece of a state, or begins with the next shard.
    pub(super) fn write_checkpoints(&mut self) {
        if self.tools.keeper.is_none() {
            return;
        }
        match self.checkpoints.writing {
            Some(partition) => self.write(partition),
            None => self.begin_next(),
        }
    }

    /// Whether a shard that ends has a state that no snapshot has, and may have one.
    pub(super) fn owes_snapshot(&self, owned: &OwnedShard) -> bool {
        let telling = self.checkpoints.writing == Some(owned.index());
        let new = owned.schedule.last_offset != owned.framer.next_offset();
        let wanted = self.tools.keeper.is_some() && !owned.cursor.has_failed();
        telling || (wanted && new && !owned.framer.is_replaying())
    }

    fn begin_next(&mut self) {
        let now = self.tools.driver.now();
        if let Some(at) = self.checkpoints.look_at.filter(|at| *at > now) {
            self.tools.driver.turn_at(at);
            return;
        }
        self.put_off(now);
        let due = |owned: &OwnedShard| owned.closing || owned.schedule.due <= now;
        let owned = self.owned.iter().filter_map(|partition| self.shards[*partition].as_deref());
        let ready = owned.filter(|owned| due(owned) && self.may_begin(owned));
        if let Some(oldest) = ready.min_by_key(|owned| owned.schedule.due) {
            let partition = oldest.index();
            self.begin(partition);
            return;
        }
        let owned = self.owned.iter().filter_map(|partition| self.shards[*partition].as_deref());
        if let Some(at) = owned.map(|owned| owned.schedule.due).min() {
            // One that is due has to wait for its last capture, or for room.
            let at = at.max(now + Duration::from_millis(STALL_RETRY_MS));
            self.checkpoints.look_at = Some(at);
            self.tools.driver.turn_at(at);
        }
    }

    /// What is due and has nothing new is looked at again when it is due the next time.
    fn put_off(&mut self, now: Instant) {
        let every = self.tools.keeper.as_ref().map_or(Duration::ZERO, |keeper| keeper.every);
        for index in 0..self.owned.len() {
            let partition = self.owned[index];
            let Some(owned) = self.shards[partition].as_deref() else { continue };
            if owned.schedule.due <= now && !self.owes_snapshot(owned) {
                let owned = self.shards[partition].as_deref_mut().expect("it is there");
                owned.schedule.due = now + every;
            }
        }
    }

    /// Whether a shard's state is new, all its updates are known to be as published, and the
    /// capture before is done with. At the shard's end a newer capture takes that one's place, and
    /// one of an earlier ownership has nobody who would end it.
    fn may_begin(&self, owned: &OwnedShard) -> bool {
        let progress = self.tools.progress.shard(owned.cursor.partition);
        let done = !owned.schedule.begun
            || progress.checkpoints.get() == progress.checkpoints_settled.get();
        let room = self.tools.outbox.len() + FRAMES_MAX < OUTBOX_ITEMS_MAX;
        (done || owned.closing) && room && self.owes_snapshot(owned)
    }

    fn begin(&mut self, partition: usize) {
        let Some(owned) = self.shards[partition].as_deref_mut() else { return };
        let tools = &mut self.tools;
        // The capture comes right after the updates of all that the state has seen.
        if let Err(refusal) = owned.flush_position(tools) {
            self.diverge(partition, refusal);
            return;
        }
        let keeper = tools.keeper.as_ref().expect("the caller looked");
        if !owned.owes_nothing() {
            // Without a frame at hand, or one that may be sent, it has to wait.
            let at = tools.driver.now() + Duration::from_millis(STALL_RETRY_MS);
            self.checkpoints.look_at = Some(at);
            tools.driver.turn_at(at);
            return;
        }
        self.checkpoints.number += 1;
        let number = self.checkpoints.number;
        let Some(captured) = contained(|| owned.begin_checkpoint(number)) else {
            return self.fail(partition);
        };
        let CheckpointHeader { ownership_id, checkpoint: capture, next_offset, .. } = captured;
        let partition_number = captured.partition;
        owned.schedule.due = tools.driver.now() + keeper.every;
        owned.schedule.last_offset = next_offset;
        owned.schedule.begun = true;
        if keeper.messages.try_send(Message::Begin(captured)).is_err() {
            // The keeper has ended: the daemon is about to.
            owned.engine.end_capture();
            return;
        }
        let progress = tools.progress.shard(partition_number);
        progress.checkpoints.set(progress.checkpoints.get() + 1);
        let capture =
            CheckpointId { partition: partition_number, ownership_id, checkpoint: capture };
        // Without a publisher no gate comes, and the daemon is about to end.
        let _gone = tools.outbox.try_send(Outgoing::Capture(capture));
        self.checkpoints.writing = Some(partition);
        self.tools.driver.turn_again();
    }

    fn write(&mut self, partition: usize) {
        let Some(owned) = self.shards[partition].as_deref_mut() else {
            unreachable!("a shard that ends stops its capture");
        };
        let Tools { driver, keeper, .. } = &mut self.tools;
        let keeper = keeper.as_mut().expect("the caller looked");
        let buffer = self.checkpoints.buffer.take().or_else(|| keeper.free_buffers.try_receive());
        let Some(mut buffer) = buffer else {
            driver.turn_at(driver.now() + Duration::from_millis(STALL_RETRY_MS));
            return;
        };
        let bytes = buffer.bytes_mut();
        let told = contained(|| owned.engine.write_checkpoint(bytes, SNAPSHOT_BLOCK_BYTES));
        let Some(told) = told else {
            self.checkpoints.buffer = Some(buffer);
            return self.fail(partition);
        };
        let is_whole = told == crate::engine::checkpoint::CheckpointRead::Done;
        if is_whole || buffer.bytes_mut().len() == SNAPSHOT_BLOCK_BYTES {
            // The queue has room for every buffer.
            let _gone = keeper.messages.try_send(Message::Block(buffer));
        } else {
            self.checkpoints.buffer = Some(buffer);
        }
        if is_whole {
            self.checkpoints.writing = None;
            self.checkpoints.check_soon();
        }
        driver.turn_again();
    }

    /// The engine could not tell its state. No record is to blame, so none is passed over, and it
    /// would most likely fail again.
    fn fail(&mut self, partition: usize) {
        let Some(owned) = self.shards[partition].as_deref() else { return };
        let sentence = format!(
            "the engine failed while its state at offset {} was captured: report it; a restart \
             begins with the snapshot before it",
            owned.framer.next_offset()
        );
        self.halt(partition, sentence);
    }

    /// A shard ends before its time: nothing comes of its capture.
    pub(super) fn abandon_checkpoint(&mut self, owned: &OwnedShard) {
        let Some(keeper) = &self.tools.keeper else { return };
        if self.checkpoints.writing == Some(owned.index()) {
            self.checkpoints.writing = None;
            self.checkpoints.check_soon();
            if let Some(buffer) = &mut self.checkpoints.buffer {
                buffer.clear();
            }
        }
        let (partition, ownership_id) = (owned.cursor.partition, owned.cursor.ownership_id);
        let _gone = keeper.messages.try_send(Message::Abandon { partition, ownership_id });
    }
}
