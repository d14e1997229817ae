//! A shard's state on its way from the hot thread to the writer: its header, then its bytes
//! in buffers that go round.

use crate::output::frame::Chain;
use crate::output::mark::Mark;
use crate::snapshot::format::{BLOCK_HEAD_BYTES, SNAPSHOT_BLOCK_BYTES};

/// Buffers of state from the hot thread to the writer, 2 MiB: checkpoints wait for a slow disk.
pub(crate) const CHECKPOINT_BUFFERS: usize = 32;

/// Where a shard stood at its checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointHeader {
    /// Which one.
    pub id: CheckpointId,
    /// Hash of all that decides what an input means.
    pub ruleset: u32,
    /// The first input offset that the state has not seen.
    pub next_offset: i64,
    /// Leader epoch of the last record before `next_offset`; `None`: not known.
    pub leader_epoch: Option<i32>,
    /// Number of the first update that the state has not made.
    pub next_update: u64,
    /// The chain over all updates before it.
    pub chain: Chain,
    /// The engine's digest of the state.
    pub digest: u64,
    /// Input offsets from `next_offset` on that every replay passes over, in ascending order.
    pub skips: Vec<i64>,
    /// Bytes of the encoded state.
    pub state_bytes: u64,
}

/// Which checkpoint of a shard's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointId {
    /// The shard's partition.
    pub partition: i32,
    /// The ownership that has taken it.
    pub ownership_id: u32,
    /// Number of the checkpoint within this process.
    pub number: u64,
}

/// Every frame and dead letter before a checkpoint is acknowledged: its state may become a
/// snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GatedCheckpoint {
    /// The checkpoint.
    pub id: CheckpointId,
    /// Where a reader of the output stands after all acknowledged frames.
    pub mark: Mark,
}

/// What the other threads send to the snapshot writer. Checkpoints follow one another: none begins
/// before the previous one has given all its bytes or was abandoned.
#[derive(Debug)]
pub enum ToSnapshots {
    /// The next checkpoint. It replaces an earlier one of its shard that still waits.
    Begin(CheckpointHeader),
    /// The next bytes of the checkpoint that was begun last.
    Block(Buffer),
    /// The shard has ended before its checkpoint was gated: nothing will come of it.
    Abandon {
        /// The shard's partition.
        partition: i32,
        /// The ownership that has taken it.
        ownership_id: u32,
    },
    /// From the publisher: a checkpoint may become a snapshot.
    Gate(GatedCheckpoint),
}

/// Room for one block of a snapshot: its head, which the writer fills in, then state.
#[derive(Debug)]
pub struct Buffer {
    bytes: Vec<u8>,
}

impl Buffer {
    /// An empty one. This allocates; buffers are used again.
    pub fn new() -> Buffer {
        let mut bytes = Vec::with_capacity(SNAPSHOT_BLOCK_BYTES);
        bytes.resize(BLOCK_HEAD_BYTES, 0);
        Buffer { bytes }
    }

    /// Forgets the state in it.
    pub(crate) fn clear(&mut self) {
        self.bytes.truncate(BLOCK_HEAD_BYTES);
    }

    /// Where state is appended to, up to [`SNAPSHOT_BLOCK_BYTES`] in all.
    pub fn bytes_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// The whole block, with the head that it is given.
    pub(crate) fn with_head(&mut self, head: [u8; BLOCK_HEAD_BYTES]) -> &[u8] {
        self.bytes[..BLOCK_HEAD_BYTES].copy_from_slice(&head);
        &self.bytes
    }
}

impl Default for Buffer {
    fn default() -> Buffer {
        Buffer::new()
    }
}
