//! The snapshot writer writes checkpoints to slots, and makes them snapshots once they are gated.
//!
//! It has its own thread, off the hot core. Whatever a disk does, the daemon continues: it counts
//! and logs a snapshot that could not be stored, and tries the next one.

use crate::output::mark::Mark;
use crate::queue::bell::Bell;
use crate::queue::{Received, Receiver, Sender};
use crate::runtime::wall_clock::unix_ms;
use crate::snapshot::checkpoint::{
    Buffer, CHECKPOINT_BUFFERS, CheckpointHeader, CheckpointId, GatedCheckpoint, ToSnapshots,
};
use crate::snapshot::disk::Disk;
use crate::snapshot::format::Header;
use crate::snapshot::slots::{SnapshotDraft, Store};
use crate::telemetry::metrics::{Counter, Metrics};
use crate::telemetry::progress::{Progress, SHARDS_MAX};
use crate::telemetry::repeated::Repeated;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

/// Messages that may wait for the writer: every buffer, and a beginning, a gate and an end for each
/// shard, twice.
pub(crate) const WRITER_MESSAGES_MAX: usize = CHECKPOINT_BUFFERS + 6 * SHARDS_MAX;

/// Messages that the writer takes before it processes gated checkpoints again.
const WRITER_BATCH_MAX: usize = 64;

/// Upper limit of the writer's sleep, in milliseconds, unless it is woken.
const WRITER_IDLE_MS_MAX: u64 = 100;

/// Milliseconds that the end of the daemon waits for the writer: released shards have their
/// snapshots by then, unless a disk does not respond.
pub(crate) const WRITER_END_MS_MAX: u64 = 500;

/// The outcome of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SnapshotOutcome {
    /// It is the shard's newest snapshot.
    Stored(Box<Header>),
    /// It could not be stored; the sentence says why and what to do.
    Failed {
        /// The shard's partition.
        partition: i32,
        /// The cause and the remedy.
        sentence: String,
    },
    /// Its shard has ended, or a newer checkpoint has replaced it.
    Dropped {
        /// The shard's partition.
        partition: i32,
    },
}

/// Matches states with gates, without threads or clocks of its own.
pub struct SnapshotWriter<D> {
    store: Store<D>,
    /// By partition, the checkpoint that is being written or waits for its gate.
    waiting: BTreeMap<i32, WaitingDraft>,
    /// The partition whose state is being received.
    writing: Option<i32>,
    outcomes: VecDeque<SnapshotOutcome>,
}

struct WaitingDraft {
    id: CheckpointId,
    draft: SnapshotDraft,
    gate: Option<Mark>,
}

impl<D: Disk> SnapshotWriter<D> {
    /// Creates an idle writer.
    pub fn new(store: Store<D>) -> SnapshotWriter<D> {
        SnapshotWriter { store, waiting: BTreeMap::new(), writing: None, outcomes: VecDeque::new() }
    }

    /// Processes a message. Returns its buffer for reuse.
    pub fn take(&mut self, message: ToSnapshots) -> Option<Buffer> {
        match message {
            ToSnapshots::Begin(header) => {
                self.begin(&header);
                None
            }
            ToSnapshots::Block(buffer) => Some(self.write(buffer)),
            ToSnapshots::Abandon { partition, ownership_id } => {
                let waiting = self.waiting.get(&partition);
                if waiting.is_some_and(|waiting| waiting.id.ownership_id == ownership_id) {
                    self.forget(partition);
                    self.outcomes.push_back(SnapshotOutcome::Dropped { partition });
                }
                None
            }
            ToSnapshots::Gate(gate) => {
                self.gate(gate);
                None
            }
        }
    }

    fn begin(&mut self, header: &CheckpointHeader) {
        let id = header.id;
        let partition = id.partition;
        if self.forget(partition) {
            self.outcomes.push_back(SnapshotOutcome::Dropped { partition });
        }
        // If it cannot begin, its state must not be mistaken for the previous checkpoint's.
        self.writing = None;
        match self.store.begin(header) {
            Ok(draft) => {
                let waiting = WaitingDraft { id, draft, gate: None };
                self.waiting.insert(partition, waiting);
                self.writing = Some(partition);
            }
            Err(error) => self.fail(partition, &error),
        }
    }

    fn write(&mut self, mut buffer: Buffer) -> Buffer {
        // A failed checkpoint may still send state, which is ignored.
        if let Some(partition) = self.writing
            && let Some(waiting) = self.waiting.get_mut(&partition)
            && let Err(error) = self.store.write_block(&mut waiting.draft, &mut buffer)
        {
            self.fail(partition, &error);
        }
        buffer.clear();
        buffer
    }

    /// Marks a checkpoint as gated. The gate may come before the last of the state.
    fn gate(&mut self, gate: GatedCheckpoint) {
        if let Some(waiting) = self.waiting.get_mut(&gate.id.partition)
            && waiting.id == gate.id
        {
            waiting.gate = Some(gate.mark);
        }
    }

    /// Makes snapshots of all checkpoints that are complete and gated.
    pub fn settle(&mut self, now_ms: i64) {
        let is_ready =
            |waiting: &WaitingDraft| waiting.gate.is_some() && waiting.draft.is_complete();
        while let Some((&partition, _)) = self.waiting.iter().find(|(_, waiting)| is_ready(waiting))
        {
            let WaitingDraft { draft, gate, .. } = self.waiting.remove(&partition).expect("found");
            self.writing = self.writing.filter(|writing| *writing != partition);
            match self.store.commit(draft, gate.expect("it is ready"), now_ms) {
                Ok(header) => self.outcomes.push_back(SnapshotOutcome::Stored(Box::new(header))),
                Err(error) => self.fail(partition, &error),
            }
        }
    }

    /// Returns the next outcome of a checkpoint.
    pub fn next_outcome(&mut self) -> Option<SnapshotOutcome> {
        self.outcomes.pop_front()
    }

    fn fail(&mut self, partition: i32, error: &dyn std::fmt::Display) {
        self.forget(partition);
        let sentence = format!(
            "a snapshot of partition {partition} was not stored: {error}; give the state directory \
             room, make it writable, and raise LimitFSIZE= if a file is too large: until then a \
             restart replays from an older one"
        );
        self.outcomes.push_back(SnapshotOutcome::Failed { partition, sentence });
    }

    fn forget(&mut self, partition: i32) -> bool {
        self.writing = self.writing.filter(|writing| *writing != partition);
        self.waiting.remove(&partition).is_some()
    }
}

/// The snapshot writer's ends of everything that it shares with other threads.
pub(crate) struct WriterEnds {
    /// From the hot thread and the publisher. The writer ends with this queue.
    pub messages: Receiver<ToSnapshots>,
    /// Rung after a message was sent there.
    pub bell: Arc<Bell>,
    /// To the hot thread: buffers to reuse.
    pub free_buffers: Sender<Buffer>,
    /// To the replicator; `None` if there are no replicas.
    pub stored: Option<SyncSender<Header>>,
    /// The progress of each shard.
    pub progress: Arc<Progress>,
    /// The counters.
    pub metrics: Arc<Metrics>,
}

/// Writes snapshots until all senders of checkpoints are gone.
pub(crate) fn run<D: Disk>(mut writer: SnapshotWriter<D>, mut ends: WriterEnds) {
    let mut failures = Repeated::new();
    loop {
        let inbox = take_messages(&mut writer, &mut ends);
        writer.settle(unix_ms());
        while let Some(outcome) = writer.next_outcome() {
            report(&outcome, &ends, &mut failures);
        }
        match inbox {
            ReadOutcome::Ended => return,
            ReadOutcome::Full => {}
            ReadOutcome::Empty => {
                // If sleeping fails, the next turn comes early.
                let _rung = ends.bell.sleep(Duration::from_millis(WRITER_IDLE_MS_MAX));
            }
        }
    }
}

/// Why reading the queue stopped.
enum ReadOutcome {
    /// The batch is full; there may be more.
    Full,
    /// The queue is empty.
    Empty,
    /// All senders are gone.
    Ended,
}

/// Takes a bounded number of messages, because snapshots that are ready wait meanwhile.
fn take_messages<D: Disk>(writer: &mut SnapshotWriter<D>, ends: &mut WriterEnds) -> ReadOutcome {
    for _ in 0..WRITER_BATCH_MAX {
        match ends.messages.receive() {
            Received::Item(message) => {
                if let Some(buffer) = writer.take(message) {
                    // The queue has room for every buffer; the hot thread may be gone.
                    let _gone = ends.free_buffers.try_send(buffer);
                }
            }
            Received::Ended => return ReadOutcome::Ended,
            Received::Empty => return ReadOutcome::Empty,
        }
    }
    ReadOutcome::Full
}

fn report(outcome: &SnapshotOutcome, ends: &WriterEnds, trouble: &mut Repeated) {
    let partition = match outcome {
        SnapshotOutcome::Stored(header) => {
            let progress = ends.progress.shard(header.partition);
            progress.snapshot_at_ms.set(header.taken_at_ms);
            ends.metrics.add(Counter::SnapshotsStored, 1);
            ends.metrics.add(Counter::SnapshotBytes, header.state_bytes);
            let Header { partition, next_offset, next_update, .. } = **header;
            tracing::debug!(partition, next_offset, next_update, "snapshot stored");
            if let Some(stored) = &ends.stored {
                // A replicator that is far behind takes the next one.
                if stored.try_send(Header::clone(header)).is_ok() {
                    progress.replicas.add(1);
                }
            }
            partition
        }
        SnapshotOutcome::Failed { partition, sentence } => {
            ends.metrics.add(Counter::SnapshotsFailed, 1);
            if let Some(withheld) = trouble.notice(Instant::now()) {
                tracing::warn!(withheld, "{sentence}");
            }
            *partition
        }
        SnapshotOutcome::Dropped { partition } => *partition,
    };
    let settled = &ends.progress.shard(partition).checkpoints_settled;
    settled.set(settled.get() + 1);
}
