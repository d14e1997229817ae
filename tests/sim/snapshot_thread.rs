//! One daemon's writer thread: states from the hot thread and gates from the publisher go to the
//! writer, step by step, so that the daemon can die between any two of them.

use crate::chance::{Chance, Fault, Sight};
use crate::disk::HostDisk;
use crate::mutation::Mutation;
use crate::surroundings::{Surroundings, store};
use huntd::kit::engine::encode_state;
use huntd::output::mark::Mark;
use huntd::queue::bell::Bell;
use huntd::queue::{Receiver, Sender, bounded};
use huntd::shards::checkpoints::CheckpointEnds;
use huntd::snapshot::checkpoint::{
    Buffer, CheckpointHeader, CheckpointId, GatedCheckpoint, ToSnapshots,
};
use huntd::snapshot::format::{Header, SNAPSHOT_BLOCK_BYTES};
use huntd::snapshot::stored_states::StoredState;
use huntd::snapshot::writer::{SnapshotOutcome, SnapshotWriter};
use huntd::telemetry::progress::Progress;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Buffers for states.
const BUFFERS: usize = 2;

/// The writer with its ends.
pub(crate) struct SnapshotThread {
    writer: SnapshotWriter<HostDisk>,
    messages: Receiver<ToSnapshots>,
    free_buffers: Sender<Buffer>,
    progress: Arc<Progress>,
    mutation: Mutation,
    /// The checkpoints that were begun last.
    headers: BTreeMap<i32, CheckpointHeader>,
    /// Where each ownership began.
    pub(crate) begins: BTreeMap<i32, Mark>,
    /// Snapshots that were stored and nobody has checked.
    pub(crate) stored: Vec<Header>,
    /// Whether a snapshot is half written.
    pub(crate) is_writing: bool,
}

impl SnapshotThread {
    /// A writer, with the ends of the hot thread and the publisher.
    pub(crate) fn new(
        disk: &HostDisk,
        chance: &mut Chance,
        (bell, progress): (Arc<Bell>, Arc<Progress>),
        mutation: Mutation,
    ) -> (SnapshotThread, CheckpointEnds, Sender<ToSnapshots>) {
        let (to_writer, messages) = bounded(64);
        let (free_buffers, hot_free_buffers) = bounded(BUFFERS);
        for _ in 0..BUFFERS {
            let given = free_buffers.try_send(Buffer::new());
            assert!(given.is_ok(), "there is room for every buffer");
        }
        let thread = SnapshotThread {
            writer: SnapshotWriter::new(store(disk, &progress.input_topic_id)),
            messages,
            free_buffers,
            progress,
            mutation,
            headers: BTreeMap::new(),
            begins: BTreeMap::new(),
            stored: Vec::new(),
            is_writing: false,
        };
        let every = Duration::from_millis(chance.pick(&[20, 200, 2_000, 60_000]));
        let hot = CheckpointEnds {
            writer: to_writer.clone(),
            free_buffers: hot_free_buffers,
            bell,
            every,
        };
        (thread, hot, to_writer)
    }

    /// Whether there is something to do.
    pub(crate) fn has_work(&self) -> bool {
        !self.messages.is_empty()
    }

    pub(crate) fn turn(&mut self, around: &mut Surroundings<'_>) {
        for _ in 0..around.chance.between(0, 3) {
            let Some(message) = self.messages.try_receive() else { break };
            self.take(around, message);
        }
        self.writer.settle(around.now as i64 / 1000);
        while let Some(outcome) = self.writer.next_outcome() {
            self.tell(around, outcome);
        }
    }

    fn take(&mut self, around: &mut Surroundings<'_>, message: ToSnapshots) {
        let begun = match &message {
            ToSnapshots::Begin(header) => Some(header.clone()),
            _ => None,
        };
        let message = match message {
            ToSnapshots::Gate(gate) => ToSnapshots::Gate(self.falsified(gate)),
            other => other,
        };
        self.is_writing |= begun.is_some();
        if let Some(mut buffer) = self.writer.take(message) {
            if around.chance.strikes(Fault::CheckpointFails) {
                // More than a block: the engine cannot write a state into it.
                buffer.bytes_mut().resize(SNAPSHOT_BLOCK_BYTES + 1, 0);
            }
            let given = self.free_buffers.try_send(buffer);
            assert!(given.is_ok(), "the queue holds all buffers there are");
        }
        let Some(header) = begun else { return };
        let ungated = [Mutation::Ungated, Mutation::UngatedAndUnfiltered].contains(&self.mutation);
        if ungated && let Some(mark) = self.begins.get(&header.id.partition) {
            let gate = GatedCheckpoint { id: header.id, mark: *mark };
            self.writer.take(ToSnapshots::Gate(gate));
        }
        self.headers.insert(header.id.partition, header);
    }

    /// The gate, or what the mutation makes of it.
    fn falsified(&self, gate: GatedCheckpoint) -> GatedCheckpoint {
        let CheckpointId { partition, .. } = gate.id;
        match self.headers.get(&partition).filter(|header| header.id == gate.id) {
            Some(header) if self.mutation == Mutation::MarkOfSnapshot => {
                let CheckpointHeader { next_update, next_offset, chain, .. } = *header;
                GatedCheckpoint {
                    mark: Mark { next_update, next_offset, chain, ..gate.mark },
                    ..gate
                }
            }
            _ => gate,
        }
    }

    fn tell(&mut self, around: &mut Surroundings<'_>, outcome: SnapshotOutcome) {
        self.is_writing = false;
        let partition = match outcome {
            SnapshotOutcome::Stored(header) => {
                around.trace(|| format!("stored: {header:?}"));
                around.chance.see(Sight::SnapshotStored);
                let partition = header.partition;
                let stored = StoredState::Here((*header).clone());
                if let Some(mut shard) = around.load(&stored, around.rulebook)
                    && (around.keeps_replicas || !around.chance.one_in(3))
                {
                    let mut bytes = Vec::new();
                    encode_state(&mut *shard, &mut bytes);
                    around.replicas.insert(partition, ((*header).clone(), bytes));
                }
                self.stored.push(*header);
                partition
            }
            SnapshotOutcome::Failed { partition, sentence } => {
                around.trace(|| sentence);
                around.chance.see(Sight::SnapshotFailed);
                partition
            }
            SnapshotOutcome::Dropped { partition } => {
                around.chance.see(Sight::SnapshotDropped);
                partition
            }
        };
        let settled = &self.progress.shard(partition).checkpoints_settled;
        settled.set(settled.get() + 1);
    }
}
