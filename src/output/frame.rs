//! The frame: one Kafka record of updates for a contiguous run of one shard's input.

use crate::kit::mix;
use crate::kit::update::{FRAME_UPDATES_MAX, Update, Updates};
use crate::kit::update_json::UPDATE_JSON_BYTES_MAX;
use std::time::Instant;

const _: () =
    assert!(FRAME_UPDATES_MAX * UPDATE_JSON_BYTES_MAX + RECORD_HEAD_BYTES_MAX <= FRAME_BYTES_MAX);

/// Upper limit of a queued record's size without its updates, or without its key and value:
/// headers, a handoff.
pub(crate) const RECORD_HEAD_BYTES_MAX: usize = 1024;

/// Milliseconds between two fences of one owner, for readers that want to join. None is sent during
/// a replay, while updates are unsent, or without a free frame.
pub(crate) const FENCE_EVERY_MS: u64 = 10_000;

/// Upper limit of an encoded frame. Kafka's default limit for a batch is 1,048,588 bytes; the
/// difference is for the batch header, the key and the record headers.
pub const FRAME_BYTES_MAX: usize = 900 * 1024;

/// The kind of a record in the output topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameKind {
    /// Updates, possibly none.
    Updates = 1,
    /// Raises a shard's owner epoch, or repeats the shard's position.
    Fence = 2,
    /// Names an input record that every replay skips, such as one that panics the engine.
    Skip = 3,
    /// Starts the zone over: an operator's response to a state that is irrecoverably lost.
    Genesis = 4,
}

/// The encoding of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// One JSON object per frame, readable with any console consumer.
    Json,
    /// A 64-byte header, then 32 bytes per update, all little-endian.
    Binary,
}

/// Compression of frames, on the network and in the broker's log. Consumers decompress them
/// transparently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// No compression.
    None,
    /// LZ4, by far the fastest of Kafka's codecs.
    Lz4,
}

impl Compression {
    /// The codec that costs the least CPU time in total. LZ4 shrinks JSON to a fifth, and with it
    /// the brokers' work. Binary frames are mostly ids and times, and cost brokers little
    /// uncompressed.
    pub(crate) fn best_for(format: Format) -> Compression {
        match format {
            Format::Json => Compression::Lz4,
            Format::Binary => Compression::None,
        }
    }

    /// librdkafka's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Compression::None => "none",
            Compression::Lz4 => "lz4",
        }
    }
}

/// `next_offset` of a fence that only raises the owner epoch, because its writer does not know the
/// shard's position yet. A repeated fence carries the real position, and readers may join there.
pub const POSITION_UNKNOWN: i64 = -1;

/// A frame without its updates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// The kind of record.
    pub kind: FrameKind,
    /// Owner epoch of the shard's output.
    pub owner_epoch: u64,
    /// Number of the first update, counted from 0 over the shard's whole life.
    pub first_update: u64,
    /// Number of updates that follow.
    pub count: u32,
    /// The input offset up to which (exclusive) the shard has consumed its input. In a skip, the
    /// offset after the record to skip; in a genesis, the first offset that the new zone consumes.
    pub next_offset: i64,
    /// Hash of everything that decides what an input means: rules, limits, decoder, engine version.
    pub ruleset: u32,
    /// The chain after the last update of this frame.
    pub chain: Chain,
    /// In a fence, the random id of this acquisition; otherwise 0.
    pub fence_id: u128,
}

/// A frame in transit from the engine to the publisher. The hot thread fills it, the publisher
/// encodes it and returns it: frames are recycled, never freed.
#[derive(Debug)]
pub struct Frame {
    /// Input and output partition.
    pub partition: i32,
    /// The ownership within this process that the frame belongs to.
    pub ownership_id: u32,
    /// The frame's own fields.
    pub header: FrameHeader,
    /// When the input of the oldest update began to arrive.
    pub received_at: Option<Instant>,
    /// The updates, `header.count` of them.
    pub updates: Updates,
}

/// Running hash over all updates of a shard, from its first.
///
/// Two runs that made the same updates have the same chain, so a replay is checked against the
/// published updates with one comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chain(pub u64);

impl Chain {
    /// Returns the chain after one more update.
    #[must_use]
    pub fn with(self, update: &Update) -> Chain {
        // The words are hashed independently of the chain, so an update waits for only one
        // multiplication of the previous update.
        Chain(mix::hash(&update.words(), self.0))
    }
}

impl Frame {
    /// Creates an empty frame with room for the largest number of updates.
    pub fn new() -> Box<Frame> {
        let header = FrameHeader {
            kind: FrameKind::Updates,
            owner_epoch: 0,
            first_update: 0,
            count: 0,
            next_offset: 0,
            ruleset: 0,
            chain: Chain::default(),
            fence_id: 0,
        };
        let updates = Updates::new();
        Box::new(Frame { partition: 0, ownership_id: 0, header, received_at: None, updates })
    }
}
