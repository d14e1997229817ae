//! The format of a snapshot: a header, then the encoded state in blocks. docs/PROTOCOL.md has the
//! tables.
//!
//! Nothing here reads or writes files. Decoding any bytes yields a header, state or an error; a
//! block that is torn, stale, or from another snapshot is never accepted.

use crate::kafka::checksum::{crc32c, crc32c_of_parts};
use crate::kafka::{NAME_CHARS_MAX, TOPIC_NAME_CHARS_MAX};
use crate::kit::checkpoint::STATE_BYTES_MAX;
use crate::kit::checkpoint::StateError;
use crate::kit::engine::{Engine, ZoneDecoder};
use crate::kit::mix;
use crate::output::fold::SKIPS_MAX;
use crate::output::frame::Chain;
use crate::output::mark::Mark;
use crate::snapshot::checkpoint::CheckpointHeader;
use crate::telemetry::progress::{SHARDS_MAX, TopicId};
use std::sync::OnceLock;

/// Size of a block of a snapshot, with its head: small enough that filling one is a short pause.
pub const SNAPSHOT_BLOCK_BYTES: usize = 64 * 1024;

/// Space before the first block; the header uses part of it.
pub(crate) const HEADER_BYTES_MAX: usize = SNAPSHOT_BLOCK_BYTES;

/// Size of a block's head.
pub(crate) const BLOCK_HEAD_BYTES: usize = 16;

/// Bytes of state in every block except the last.
pub const BLOCK_STATE_BYTES: usize = SNAPSHOT_BLOCK_BYTES - BLOCK_HEAD_BYTES;

const MAGIC: [u8; 8] = *b"HNTSNAP\0";
/// Version of the header, and of the chain in it.
const SNAPSHOT_VERSION: u32 = 3;
/// The previous version, which has no leader epoch and is still readable.
const VERSION_WITHOUT_EPOCH: u32 = 2;
const UNKNOWN_ID: [u8; 16] = [0; 16];
/// Marks an unknown leader epoch, as in Kafka's own messages.
const UNKNOWN_EPOCH: i32 = -1;
/// Size of the header's fixed part.
const FIXED_BYTES: usize = 164;
const CRC_AT: std::ops::Range<usize> = 12..16;
/// Size of the fields that tell whether the rest can be read: magic, version, CRC and length.
const UNTIL_RULESET_BYTES: usize = 20;

const BLOCKS_MAX: usize = STATE_BYTES_MAX.div_ceil(BLOCK_STATE_BYTES);
const _: () = assert!(
    FIXED_BYTES + 2 * TOPIC_NAME_CHARS_MAX + NAME_CHARS_MAX + 8 * SKIPS_MAX + 4 * BLOCKS_MAX
        <= HEADER_BYTES_MAX
);

/// The topics that a snapshot's offsets refer to; in other topics the offsets have no meaning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// Id of the Kafka cluster; empty if unknown.
    pub cluster_id: String,
    /// Name of the input topic.
    pub input_topic: String,
    /// Id of the input topic; unknown until a broker has answered.
    pub input_topic_id: TopicId,
    /// Name of the output topic.
    pub output_topic: String,
}

impl Origin {
    /// Returns whether both name the same topics. An unknown name or id matches any.
    pub(crate) fn names_same(&self, other: &Origin) -> bool {
        let same_cluster = self.cluster_id == other.cluster_id
            || self.cluster_id.is_empty()
            || other.cluster_id.is_empty();
        same_cluster
            && self.input_topic == other.input_topic
            && self.output_topic == other.output_topic
    }

    /// Returns whether both may refer to the same offsets, too: as far as known, the input was not
    /// recreated in between.
    pub(crate) fn agrees(&self, other: &Origin) -> bool {
        let (ours, theirs) = (self.input_id(), other.input_id());
        let same_input = ours == theirs || ours == UNKNOWN_ID || theirs == UNKNOWN_ID;
        same_input && self.names_same(other)
    }

    /// The id of the input topic; zeros if unknown.
    pub fn input_id(&self) -> [u8; 16] {
        self.input_topic_id.get().copied().unwrap_or(UNKNOWN_ID)
    }
}

/// All of a snapshot except the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The topics.
    pub origin: Origin,
    /// The shard's partition.
    pub partition: i32,
    /// Sequence number of the shard's snapshot within one store.
    pub sequence: u64,
    /// Hash of everything that decides what an input means.
    pub ruleset: u32,
    /// Version of the engine that wrote it.
    pub engine_version: u32,
    /// The first input offset that the state does not include.
    pub next_offset: i64,
    /// Leader epoch of the last record before `next_offset`, from which a broker can tell whether
    /// its log is still the one that was read (KIP-320); `None` if unknown.
    pub leader_epoch: Option<i32>,
    /// Number of the first update that the state does not include.
    pub next_update: u64,
    /// The chain over all updates before it.
    pub chain: Chain,
    /// The engine's digest of the state.
    pub digest: u64,
    /// The mark of an output reader when every update and dead letter before the state was
    /// acknowledged.
    pub mark: Mark,
    /// Input offsets from `next_offset` on that every replay skips, in ascending order.
    pub skips: Vec<i64>,
    /// When it was stored, in milliseconds since the Unix epoch; informational.
    pub taken_at_ms: i64,
    /// Size of the encoded state.
    pub state_bytes: u64,
    /// CRC-32C of each block, its head included.
    pub block_crcs: Vec<u32>,
}

/// Why bytes are not a usable snapshot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// The file cannot have a snapshot.
    #[error("the snapshot is {0}; an older snapshot takes its place")]
    File(&'static str),
    /// The header is damaged.
    #[error("the snapshot's header is damaged: {0}; an older snapshot takes its place")]
    Header(&'static str),
    /// Another version of huntd wrote it.
    #[error(
        "the snapshot has format version {0}, but this huntd reads {SNAPSHOT_VERSION}; run the \
         other one"
    )]
    Version(u32),
    /// The block is torn, stale, or from another snapshot.
    #[error("block {index} of the snapshot is {what}; an older snapshot takes its place")]
    Block {
        /// Index of the block.
        index: u32,
        /// The fault.
        what: &'static str,
    },
    /// This engine cannot restore the state.
    #[error(transparent)]
    State(#[from] StateError),
    /// The storage failed.
    #[error("the snapshot cannot be read: {0}")]
    Unreadable(String),
}

impl Header {
    /// Creates the header of a checkpoint before its bytes are stored, with a sequence number of
    /// the store.
    pub(crate) fn new(origin: Origin, checkpoint: &CheckpointHeader, sequence: u64) -> Header {
        Header {
            origin,
            partition: checkpoint.id.partition,
            sequence,
            ruleset: checkpoint.ruleset,
            engine_version: checkpoint.engine_version,
            next_offset: checkpoint.next_offset,
            leader_epoch: checkpoint.leader_epoch,
            next_update: checkpoint.next_update,
            chain: checkpoint.chain,
            digest: checkpoint.digest,
            mark: Mark::default(),
            skips: checkpoint.skips.clone(),
            taken_at_ms: 0,
            state_bytes: checkpoint.state_bytes,
            block_crcs: Vec::with_capacity(blocks(checkpoint.state_bytes)),
        }
    }

    /// The id that its blocks carry, so that no block of another snapshot is mistaken for one of
    /// them.
    pub fn id(&self) -> u64 {
        let Header { sequence, next_offset, next_update, digest, .. } = *self;
        let words = [sequence, next_offset.cast_unsigned(), next_update, self.chain.0, digest];
        mix::hash(&words, u64::from(self.partition.cast_unsigned()))
    }

    /// Orders states of a shard by age, the newest last. States of the current input come after all
    /// others, and states of a later owner after those of an earlier one.
    pub fn recency(&self, current: &Origin) -> (bool, u64, i64) {
        (self.origin.agrees(current), self.mark.owner_epoch, self.next_offset)
    }

    /// Number of blocks.
    pub fn blocks(&self) -> u32 {
        blocks(self.state_bytes) as u32
    }

    /// Size of a block, with its head.
    pub fn block_bytes(&self, index: u32) -> usize {
        let before = u64::from(index) * BLOCK_STATE_BYTES as u64;
        let left = self.state_bytes.saturating_sub(before);
        BLOCK_HEAD_BYTES + left.min(BLOCK_STATE_BYTES as u64) as usize
    }

    /// The head of a block.
    pub fn block_head(&self, index: u32) -> [u8; BLOCK_HEAD_BYTES] {
        let mut head = [0; BLOCK_HEAD_BYTES];
        head[..8].copy_from_slice(&self.id().to_le_bytes());
        head[8..12].copy_from_slice(&index.to_le_bytes());
        let state = (self.block_bytes(index) - BLOCK_HEAD_BYTES) as u32;
        head[12..].copy_from_slice(&state.to_le_bytes());
        head
    }

    /// Returns the state in a block, if the bytes are that block.
    pub fn open_block<'a>(&self, index: u32, bytes: &'a [u8]) -> Result<&'a [u8], SnapshotError> {
        let damaged = |what| SnapshotError::Block { index, what };
        let crc = self.block_crcs.get(index as usize).ok_or(damaged("beyond the last"))?;
        if bytes.len() != self.block_bytes(index) {
            return Err(damaged("cut short"));
        }
        let (head, state) = bytes.split_at(BLOCK_HEAD_BYTES);
        if head != self.block_head(index) {
            return Err(damaged("another one's"));
        }
        if crc32c(bytes) != *crc {
            return Err(damaged("damaged"));
        }
        Ok(state)
    }

    /// Restores the zone from the concatenated state of the blocks.
    pub(crate) fn restore<Z: ZoneDecoder>(
        &self,
        state: &[u8],
        decoder: &Z,
    ) -> Result<Box<Z::Zone>, SnapshotError> {
        let zone = decoder.decode_zone(state)?;
        let digest = if decoder.keeps_digest() { zone.digest() } else { self.digest };
        self.check(zone.partition(), digest)?;
        Ok(zone)
    }

    /// Checks that the restored state is that of this snapshot.
    pub(crate) fn check(&self, partition: u16, digest: u64) -> Result<(), SnapshotError> {
        match (i32::from(partition), digest) == (self.partition, self.digest) {
            true => Ok(()),
            false => Err(SnapshotError::Header("it is about another state")),
        }
    }

    /// Encodes the header, at most [`HEADER_BYTES_MAX`] bytes.
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.skips.len() <= SKIPS_MAX && self.block_crcs.len() == self.blocks() as usize);
        let Header {
            origin,
            partition,
            ruleset,
            engine_version,
            leader_epoch,
            skips,
            block_crcs,
            // Encoded by `words`.
            sequence: _,
            next_offset: _,
            next_update: _,
            chain: _,
            digest: _,
            mark: _,
            taken_at_ms: _,
            state_bytes: _,
        } = self;
        let Origin { cluster_id, input_topic, input_topic_id: _, output_topic } = origin;
        let mut out = Vec::with_capacity(HEADER_BYTES_MAX);
        out.extend(MAGIC);
        out.extend(SNAPSHOT_VERSION.to_le_bytes());
        out.extend([0; 4]);
        let numbers = [0, *ruleset, *engine_version, partition.cast_unsigned()];
        numbers.iter().for_each(|number| out.extend(number.to_le_bytes()));
        for word in self.words() {
            out.extend(word.to_le_bytes());
        }
        out.extend(origin.input_id());
        for name in [cluster_id, input_topic, output_topic] {
            out.extend((name.len() as u16).to_le_bytes());
        }
        out.extend((skips.len() as u16).to_le_bytes());
        out.extend(leader_epoch.unwrap_or(UNKNOWN_EPOCH).to_le_bytes());
        debug_assert_eq!(out.len(), FIXED_BYTES);
        for name in [cluster_id, input_topic, output_topic] {
            out.extend(name.as_bytes());
        }
        skips.iter().for_each(|offset| out.extend(offset.to_le_bytes()));
        block_crcs.iter().for_each(|crc| out.extend(crc.to_le_bytes()));
        let length = out.len() as u32;
        out[16..20].copy_from_slice(&length.to_le_bytes());
        let crc = header_crc(&out);
        out[CRC_AT].copy_from_slice(&crc.to_le_bytes());
        out
    }

    fn words(&self) -> [u64; 13] {
        let Mark { output_offset, owner_epoch, next_update, next_offset, chain } = self.mark;
        [
            self.id(),
            self.sequence,
            self.next_offset.cast_unsigned(),
            self.next_update,
            self.chain.0,
            self.digest,
            output_offset.cast_unsigned(),
            owner_epoch,
            next_update,
            next_offset.cast_unsigned(),
            chain.0,
            self.taken_at_ms.cast_unsigned(),
            self.state_bytes,
        ]
    }

    /// Decodes the header at the start of these bytes. Bytes after it are ignored.
    pub fn decode(bytes: &[u8]) -> Result<Header, SnapshotError> {
        let short = SnapshotError::Header("it is too short");
        let mut fields = HeaderFields { left: bytes };
        if fields.take::<8>() != Some(MAGIC) {
            return Err(SnapshotError::Header("it is not a header"));
        }
        let version = fields.number().ok_or(short.clone())?;
        if ![SNAPSHOT_VERSION, VERSION_WITHOUT_EPOCH].contains(&version) {
            return Err(SnapshotError::Version(version));
        }
        let crc = fields.number().ok_or(short.clone())?;
        let length = fields.number().ok_or(short.clone())? as usize;
        if !(UNTIL_RULESET_BYTES..=HEADER_BYTES_MAX).contains(&length) || bytes.len() < length {
            return Err(short);
        }
        let bytes = &bytes[..length];
        if header_crc(bytes) != crc {
            return Err(SnapshotError::Header("its checksum does not match"));
        }
        let mut fields = HeaderFields { left: &bytes[UNTIL_RULESET_BYTES..] };
        fields.header(version).ok_or(SnapshotError::Header("its fields contradict each other"))
    }
}

fn blocks(state_bytes: u64) -> usize {
    state_bytes.div_ceil(BLOCK_STATE_BYTES as u64) as usize
}

/// CRC-32C of a header without the CRC field.
fn header_crc(bytes: &[u8]) -> u32 {
    crc32c_of_parts([&bytes[..CRC_AT.start], &bytes[CRC_AT.end..]])
}

/// Reads fields from bytes.
struct HeaderFields<'a> {
    left: &'a [u8],
}

impl<'a> HeaderFields<'a> {
    fn take<const BYTES: usize>(&mut self) -> Option<[u8; BYTES]> {
        let (taken, left) = self.left.split_first_chunk()?;
        self.left = left;
        Some(*taken)
    }

    fn number(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn word(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn signed(&mut self) -> Option<i64> {
        self.take().map(i64::from_le_bytes)
    }

    fn length(&mut self, max: usize) -> Option<usize> {
        self.take().map(u16::from_le_bytes).map(usize::from).filter(|length| *length <= max)
    }

    fn text(&mut self, length: usize) -> Option<String> {
        let (text, left) = self.left.split_at_checked(length)?;
        self.left = left;
        String::from_utf8(text.to_vec()).ok()
    }

    /// Reads the header's fields after its length, up to its end.
    fn header(&mut self, version: u32) -> Option<Header> {
        let (ruleset, engine_version) = (self.number()?, self.number()?);
        let partition = i32::try_from(self.number()?).ok()?;
        let (id, sequence) = (self.word()?, self.word()?);
        let (next_offset, next_update) = (self.signed()?, self.word()?);
        let (chain, digest) = (Chain(self.word()?), self.word()?);
        let mark = Mark {
            output_offset: self.signed()?,
            owner_epoch: self.word()?,
            next_update: self.word()?,
            next_offset: self.signed()?,
            chain: Chain(self.word()?),
        };
        let (taken_at_ms, state_bytes) = (self.signed()?, self.word()?);
        let input_id = Some(self.take()?).filter(|id| *id != UNKNOWN_ID);
        let cluster_length = self.length(NAME_CHARS_MAX)?;
        let input_length = self.length(TOPIC_NAME_CHARS_MAX)?;
        let output_length = self.length(TOPIC_NAME_CHARS_MAX)?;
        let skips = self.length(SKIPS_MAX)?;
        let leader_epoch = match version {
            VERSION_WITHOUT_EPOCH => UNKNOWN_EPOCH,
            _ => self.take().map(i32::from_le_bytes)?,
        };
        let origin = Origin {
            cluster_id: self.text(cluster_length)?,
            input_topic: self.text(input_length)?,
            input_topic_id: TopicId::new(input_id.map_or_else(OnceLock::new, OnceLock::from)),
            output_topic: self.text(output_length)?,
        };
        let skips: Option<Vec<i64>> = (0..skips).map(|_| self.signed()).collect();
        if state_bytes > STATE_BYTES_MAX as u64 || !state_bytes.is_multiple_of(8) {
            return None;
        }
        let block_crcs: Option<Vec<u32>> =
            (0..blocks(state_bytes)).map(|_| self.number()).collect();
        let (skips, block_crcs) = (skips?, block_crcs?);
        let header = Header {
            origin,
            partition,
            sequence,
            ruleset,
            engine_version,
            next_offset,
            leader_epoch: Some(leader_epoch).filter(|epoch| *epoch != UNKNOWN_EPOCH),
            next_update,
            chain,
            digest,
            mark,
            skips,
            taken_at_ms,
            state_bytes,
            block_crcs,
        };
        let in_order = header.skips.is_sorted_by(|a, b| a < b)
            && header.skips.first().is_none_or(|first| *first >= next_offset);
        let valid = (partition as usize) < SHARDS_MAX
            && next_offset >= 0
            && leader_epoch >= UNKNOWN_EPOCH
            && mark.output_offset >= 0
            && in_order
            && id == header.id()
            && self.left.is_empty();
        valid.then_some(header)
    }
}
