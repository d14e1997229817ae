//! A shard's state on its way from the hot thread to the keeper: what is said of it, then its bytes
//! in buffers that go round.

use crate::output::frame::Chain;
use crate::snapshot::format::{BLOCK_HEAD_BYTES, SNAPSHOT_BLOCK_BYTES};

/// Buffers of state from the hot thread to the keeper, 2 MiB: behind a slow disk captures wait.
pub const CHECKPOINT_BUFFERS: usize = 32;

/// Where a shard stood when its state was captured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointHeader {
    /// The shard's partition.
    pub partition: i32,
    /// The ownership that captured.
    pub ownership_id: u32,
    /// Number of the capture within this process.
    pub checkpoint: u64,
    /// Hash of all that decides what an input means.
    pub ruleset: u32,
    /// The first input offset that the state has not seen.
    pub next_offset: i64,
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

/// What the hot thread tells the keeper. Captures follow one another; none begins before the one
/// before it has given all its bytes or was abandoned.
#[derive(Debug)]
pub enum Message {
    /// The next capture. Of the same shard it takes the place of an earlier one that still waits.
    Begin(CheckpointHeader),
    /// The next bytes of the capture that was begun last.
    Block(Buffer),
    /// The shard has ended before its capture was gated: nothing will come of it.
    Abandon {
        /// The shard's partition.
        partition: i32,
        /// The ownership that captured.
        ownership_id: u32,
    },
}

/// Room for one block of a snapshot: its head, which the keeper writes, then state.
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
    pub fn clear(&mut self) {
        self.bytes.truncate(BLOCK_HEAD_BYTES);
    }

    /// Where state is appended to, up to [`SNAPSHOT_BLOCK_BYTES`] in all.
    pub fn bytes_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// The state in it.
    pub fn state(&self) -> &[u8] {
        &self.bytes[BLOCK_HEAD_BYTES..]
    }

    /// The whole block, with the head that it is given.
    pub fn with_head(&mut self, head: [u8; BLOCK_HEAD_BYTES]) -> &[u8] {
        self.bytes[..BLOCK_HEAD_BYTES].copy_from_slice(&head);
        &self.bytes
    }
}

impl Default for Buffer {
    fn default() -> Buffer {
        Buffer::new()
    }
}
