//! The block: a pooled buffer of events of one shard, the unit that the queue carries.

use crate::fetch::rejected::Rejected;
use crate::kit::event::PlainEvent;
use crate::kit::event_list::Events;
use crate::kit::field::CARRIED_WORDS_MAX;
use std::cell::{Cell, RefCell};
use std::time::Instant;

/// Bytes of a block of events: two pages stay in the L1 cache between the decoder, which fills the
/// block, and the engine, which empties it.
const BLOCK_BYTES_MAX: usize = 8 * 1024;

/// Events in one block.
pub const BLOCK_EVENTS_MAX: usize =
    (BLOCK_BYTES_MAX - BLOCK_HEADER_BYTES_MAX - BLOCK_CARRIED_WORDS_MAX * size_of::<u64>())
        / size_of::<PlainEvent>();

/// Words that the arrivals in one block carry. Players seldom cross between zones.
const BLOCK_CARRIED_WORDS_MAX: usize = 64;

/// Size of a block's own fields, without its events and what they carry.
const BLOCK_HEADER_BYTES_MAX: usize = 112;

/// Rejects in one block. Each holds a copy of its record, so a block of rejects is short.
pub(crate) const BLOCK_REJECTS_MAX: usize = 32;

/// Blocks of one shard that may be between the decoder and the end of the engine: 1 MiB of events,
/// a few Fetch responses. A shard at the limit is left out of the next Fetch.
pub(crate) const SHARD_BLOCKS_MAX: usize = 128;

/// Blocks allocated at start-up: 8 MiB, enough for eight shards that have fallen behind.
const POOL_BLOCKS_MIN: usize = 8 * SHARD_BLOCKS_MAX;

/// Bytes of rejects at which a block is full. Junk compresses well, and its copies are not
/// compressed.
const BLOCK_REJECT_BYTES_MAX: usize = 256 * 1024;

/// Records at which a block of dead letters for runs is full, so that decoding it takes no longer
/// than decoding a block of events.
const BLOCK_RUN_RECORDS_MAX: u64 = 1024;

/// Events of a contiguous run of one shard's input.
#[derive(Debug)]
pub struct Block {
    /// The shard's input partition.
    pub partition: i32,
    /// The ownership for which the events were decoded.
    pub ownership_id: u32,
    /// The input offset up to which (exclusive) this block and those before it account for the
    /// input, whether as events, rejects or other records.
    pub next_offset: i64,
    /// When the response that contained the events began to arrive.
    pub received_at: Option<Instant>,
    /// The events, at most [`BLOCK_EVENTS_MAX`].
    pub events: Events,
    /// Records that are not events, at most [`BLOCK_REJECTS_MAX`].
    pub rejects: Vec<Rejected>,
    /// Events that were decoded on the fast path, without parsing.
    pub of_known_layout: u64,
}

const _: () = assert!(size_of::<Block>() <= BLOCK_HEADER_BYTES_MAX);

impl Block {
    /// Returns whether one more record fits, event or reject.
    pub fn has_room(&self) -> bool {
        self.events.len() < BLOCK_EVENTS_MAX
            && self.events.carried().len() <= BLOCK_CARRIED_WORDS_MAX - CARRIED_WORDS_MAX
            && self.rejects.len() < BLOCK_REJECTS_MAX
    }

    /// Returns whether the rejects alone fill the block, by their bytes or by the number of records
    /// that they represent. Callers check this after each reject that they add.
    pub(crate) fn is_heavy(&self) -> bool {
        self.rejects.iter().map(Rejected::record_bytes).sum::<usize>() >= BLOCK_REJECT_BYTES_MAX
            || self.rejected_records() >= BLOCK_RUN_RECORDS_MAX
    }

    /// Number of records that are not events.
    pub(crate) fn rejected_records(&self) -> u64 {
        self.rejects.iter().map(Rejected::records).sum()
    }
}

/// A pool of empty blocks. It hands out the most recently used one, which is still in the cache.
#[derive(Default)]
pub struct BlockPool {
    #[expect(clippy::vec_box, reason = "blocks go round as boxes and are never moved")]
    free: RefCell<Vec<Box<Block>>>,
    made: Cell<usize>,
}

impl BlockPool {
    /// Allocates the blocks that this many shards need if the publisher falls behind, so that none
    /// has to be allocated then. Of many shards, only some fall behind.
    pub(crate) fn reserve(&self, shards: usize) {
        let blocks = (shards * SHARD_BLOCKS_MAX).min(POOL_BLOCKS_MIN);
        let mut free = self.free.borrow_mut();
        free.reserve(POOL_BLOCKS_MIN);
        while self.made.get() < blocks {
            free.push(self.make());
        }
    }

    fn make(&self) -> Box<Block> {
        self.made.set(self.made.get() + 1);
        let events = Events::with_touched_capacity(BLOCK_EVENTS_MAX, BLOCK_CARRIED_WORDS_MAX);
        Box::new(Block {
            partition: 0,
            ownership_id: 0,
            next_offset: 0,
            received_at: None,
            events,
            rejects: Vec::new(),
            of_known_layout: 0,
        })
    }

    /// Returns an empty block for one shard, newly allocated only if the pool is empty. Cursors
    /// bound how many are in use.
    pub fn take(&self, partition: i32, ownership_id: u32, next_offset: i64) -> Box<Block> {
        let block = self.free.borrow_mut().pop();
        let mut block = block.unwrap_or_else(|| self.make());
        assert!(block.events.is_empty() && block.rejects.is_empty());
        block.partition = partition;
        block.ownership_id = ownership_id;
        block.next_offset = next_offset;
        block.received_at = None;
        block.of_known_layout = 0;
        block
    }

    /// Returns a block to the pool.
    pub fn give(&self, mut block: Box<Block>) {
        block.events.clear();
        block.rejects.clear();
        self.free.borrow_mut().push(block);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decoder::reject::Reject;

    #[test]
    fn a_block_is_heavy_by_the_bytes_of_its_rejects() {
        let pool = BlockPool::default();
        let mut block = pool.take(0, 1, 0);
        let reject = |bytes: usize| Rejected {
            offset: 0,
            time_ms: 0,
            reject: Reject::TooLong,
            sentence: String::new(),
            key: Some(vec![0; 10]),
            value: Some(vec![0; bytes - 10]),
            cut: None,
            run: None,
        };
        assert!(!block.is_heavy());
        block.rejects.push(reject(BLOCK_REJECT_BYTES_MAX - 100));
        assert!(!block.is_heavy());
        block.rejects.push(reject(100));
        assert!(block.is_heavy());
    }
}
