//! A shard's state in transit from the hot thread to the writer: its header, then its bytes in
//! buffers that are reused.

use crate::output::frame::Chain;
use crate::output::mark::Mark;
use crate::snapshot::format::{BLOCK_HEAD_BYTES, SNAPSHOT_BLOCK_BYTES};

/// Buffers of state between the hot thread and the writer, 2 MiB: checkpoints wait for a slow disk.
pub(crate) const CHECKPOINT_BUFFERS: usize = 32;

/// A shard's position and digest at its checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointHeader {
    /// The id of the checkpoint.
    pub id: CheckpointId,
    /// Hash of everything that decides what an input means.
    pub ruleset: u32,
    /// Version of the game.
    pub engine_version: u32,
    /// The first input offset that the state does not include.
    pub next_offset: i64,
    /// Leader epoch of the last record before `next_offset`; `None` if unknown.
    pub leader_epoch: Option<i32>,
    /// Number of the first update that the state does not include.
    pub next_update: u64,
    /// The chain over all updates before it.
    pub chain: Chain,
    /// The engine's digest of the state.
    pub digest: u64,
    /// Input offsets from `next_offset` on that every replay skips, in ascending order.
    pub skips: Vec<i64>,
    /// Size of the encoded state.
    pub state_bytes: u64,
}

/// Identifies a checkpoint of a shard's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointId {
    /// The shard's partition.
    pub partition: i32,
    /// The ownership that took it.
    pub ownership_id: u32,
    /// Number of the checkpoint within this process.
    pub number: u64,
}

/// A checkpoint whose preceding frames and dead letters are all acknowledged: its state may become
/// a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GatedCheckpoint {
    /// The checkpoint.
    pub id: CheckpointId,
    /// The mark of an output reader after all acknowledged frames.
    pub mark: Mark,
}

/// A message to the snapshot writer. Checkpoints do not overlap: none begins before the previous
/// one has sent all its bytes or was abandoned.
#[derive(Debug)]
pub enum ToSnapshots {
    /// Starts the next checkpoint. It replaces an earlier, waiting one of its shard.
    Begin(CheckpointHeader),
    /// The next bytes of the current checkpoint.
    Block(Buffer),
    /// The shard has ended before its checkpoint was gated: drop the checkpoint.
    Abandon {
        /// The shard's partition.
        partition: i32,
        /// The ownership that took it.
        ownership_id: u32,
    },
    /// From the publisher: a checkpoint may become a snapshot.
    Gate(GatedCheckpoint),
}

/// Memory for one block of a snapshot: its head, which the writer fills in, then state.
#[derive(Debug)]
pub struct Buffer {
    bytes: Vec<u8>,
}

impl Buffer {
    /// Creates an empty buffer. This allocates; buffers are reused.
    pub fn new() -> Buffer {
        let mut bytes = Vec::with_capacity(SNAPSHOT_BLOCK_BYTES);
        bytes.resize(BLOCK_HEAD_BYTES, 0);
        Buffer { bytes }
    }

    /// Clears the state in it.
    pub(crate) fn clear(&mut self) {
        self.bytes.truncate(BLOCK_HEAD_BYTES);
    }

    /// The bytes to append state to, up to [`SNAPSHOT_BLOCK_BYTES`] in total.
    pub fn bytes_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Writes the head and returns the whole block.
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
