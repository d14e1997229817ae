//! One daemon's keeper thread: states from the hot thread and gates from the publisher go to the
//! keeper, step by step, so that the daemon can die between any two of them.

use crate::chance::{Chance, Fault, Sight};
use crate::disk::HostDisk;
use crate::mutation::Mutation;
use crate::surroundings::{Place, Surroundings, store};
use huntd::daemon::hot::CheckpointEnds;
use huntd::output::mark::Mark;
use huntd::publisher::Gate;
use huntd::queue::bell::Bell;
use huntd::queue::{Receiver, Sender, bounded};
use huntd::snapshot::checkpoint::{Buffer, CheckpointHeader, Message};
use huntd::snapshot::format::{Header, SNAPSHOT_BLOCK_BYTES};
use huntd::snapshot::writer::{SnapshotWriter, Written};
use huntd::telemetry::progress::Progress;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Buffers for states.
const BUFFERS: usize = 2;

/// The keeper with its ends.
pub(crate) struct Keeping {
    keeper: SnapshotWriter<HostDisk>,
    messages: Receiver<Message>,
    free_buffers: Sender<Buffer>,
    gates: Receiver<Gate>,
    progress: Arc<Progress>,
    mutation: Mutation,
    /// The captures that were begun last.
    captured: BTreeMap<i32, CheckpointHeader>,
    /// Where each ownership began.
    pub(crate) begins: BTreeMap<i32, Mark>,
    /// Snapshots that were stored and nobody has checked.
    pub(crate) stored: Vec<Header>,
    /// Whether a snapshot is half written.
    pub(crate) is_writing: bool,
}

impl Keeping {
    /// A keeper, with the ends of the hot thread and the publisher.
    pub(crate) fn new(
        disk: &HostDisk,
        chance: &mut Chance,
        bell: Arc<Bell>,
        progress: Arc<Progress>,
        mutation: Mutation,
    ) -> (Keeping, CheckpointEnds, Sender<Gate>) {
        let (hot_messages, messages) = bounded(64);
        let (free_buffers, hot_free_buffers) = bounded(BUFFERS);
        let (publisher_gates, gates) = bounded(64);
        for _ in 0..BUFFERS {
            let given = free_buffers.try_send(Buffer::new());
            assert!(given.is_ok(), "there is room for every buffer");
        }
        let keeping = Keeping {
            keeper: SnapshotWriter::new(store(disk)),
            messages,
            free_buffers,
            gates,
            progress,
            mutation,
            captured: BTreeMap::new(),
            begins: BTreeMap::new(),
            stored: Vec::new(),
            is_writing: false,
        };
        let messages = hot_messages;
        let every = Duration::from_millis(chance.pick(&[20, 200, 2_000, 60_000]));
        let hot = CheckpointEnds { messages, free_buffers: hot_free_buffers, bell, every };
        (keeping, hot, publisher_gates)
    }

    /// Whether there is something to do.
    pub(crate) fn has_work(&self) -> bool {
        !self.messages.is_empty() || !self.gates.is_empty()
    }

    pub(crate) fn turn(&mut self, around: &mut Surroundings<'_>) {
        for _ in 0..around.chance.between(0, 3) {
            let Some(message) = self.messages.try_receive() else { break };
            self.take(around, message);
        }
        if around.chance.one_in(2)
            && let Some(gate) = self.gates.try_receive()
        {
            self.gate(gate);
        }
        self.keeper.settle(around.now as i64 / 1000);
        while let Some(outcome) = self.keeper.next_outcome() {
            self.tell(around, outcome);
        }
    }

    fn take(&mut self, around: &mut Surroundings<'_>, message: Message) {
        let begun = match &message {
            Message::Begin(captured) => Some(captured.clone()),
            Message::Block(_) | Message::Abandon { .. } => None,
        };
        self.is_writing |= begun.is_some();
        if let Some(mut buffer) = self.keeper.take(message) {
            if around.chance.strikes(Fault::CaptureFails) {
                // More than a block: the engine cannot tell a state to it.
                buffer.bytes_mut().resize(SNAPSHOT_BLOCK_BYTES + 1, 0);
            }
            let given = self.free_buffers.try_send(buffer);
            assert!(given.is_ok(), "the queue holds all buffers there are");
        }
        let Some(captured) = begun else { return };
        let ungated = [Mutation::Ungated, Mutation::UngatedAndUnfiltered].contains(&self.mutation);
        if ungated && let Some(mark) = self.begins.get(&captured.partition) {
            let CheckpointHeader { partition, ownership_id, checkpoint: capture, .. } = captured;
            self.keeper.gate(Gate { partition, ownership_id, capture, mark: *mark });
        }
        self.captured.insert(captured.partition, captured);
    }

    fn gate(&mut self, mut gate: Gate) {
        if self.mutation == Mutation::MarkOfSnapshot
            && let Some(captured) = self.captured.get(&gate.partition)
            && captured.checkpoint == gate.capture
        {
            let CheckpointHeader { next_update, next_offset, chain, .. } = *captured;
            gate.mark = Mark { next_update, next_offset, chain, ..gate.mark };
        }
        self.keeper.gate(gate);
    }

    fn tell(&mut self, around: &mut Surroundings<'_>, outcome: Written) {
        self.is_writing = false;
        let partition = match outcome {
            Written::Stored(header) => {
                around.trace(|| format!("stored: {header:?}"));
                around.chance.see(Sight::SnapshotStored);
                let partition = header.partition;
                if let Some(shard) = around.load(&Place::Here((*header).clone()))
                    && !around.chance.one_in(3)
                {
                    around.copies.insert(partition, ((*header).clone(), *shard));
                }
                self.stored.push(*header);
                partition
            }
            Written::Failed { partition, sentence } => {
                around.trace(|| sentence);
                around.chance.see(Sight::SnapshotFailed);
                partition
            }
            Written::Dropped { partition } => {
                around.chance.see(Sight::SnapshotDropped);
                partition
            }
        };
        let settled = &self.progress.shard(partition).checkpoints_settled;
        settled.set(settled.get() + 1);
    }
}
