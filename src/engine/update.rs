//! What others are told: the engine's whole output.
//!
//! An update is 32 bytes, four little-endian words, in memory as in a binary frame. [`Change`] is
//! its readable form. The words are packed once, by the engine, and never rearranged after that, so
//! the chain over a shard's updates is a hash over the bytes that are published.

use crate::limits::{EVENT_UPDATES_MAX, FRAME_UPDATES_MAX};

/// Bytes of one update.
pub const UPDATE_BYTES: usize = 32;

/// One published fact about a player or a hunt.
///
/// Layout of the 32 bytes, little-endian: player_id u64, ts_us i64, kind u8, code u8, short u16,
/// word u32, then 8 bytes that are a u64 or two u32, as the kind has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Update([u64; 4]);

/// Updates in the order the engine made them, with room for a whole frame's.
#[derive(Debug)]
pub struct Updates {
    list: Vec<Update>,
}

impl Updates {
    /// An empty list that can hold a frame's updates without growing.
    pub fn new() -> Updates {
        Updates { list: Vec::with_capacity(FRAME_UPDATES_MAX) }
    }

    /// Whether one more event's updates fit, whatever the event.
    pub fn has_room(&self) -> bool {
        self.list.len() + EVENT_UPDATES_MAX <= FRAME_UPDATES_MAX
    }

    /// Appends one update. A caller that checked [`Updates::has_room`] before each event never
    /// exceeds the capacity.
    pub fn push(&mut self, update: Update) {
        assert!(self.list.len() < FRAME_UPDATES_MAX);
        self.list.push(update);
    }

    /// The updates so far.
    pub fn as_slice(&self) -> &[Update] {
        &self.list
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Forgets the first `count` updates: those that an earlier owner has published already.
    pub fn discard_first(&mut self, count: usize) {
        self.list.drain(..count);
    }

    /// Forgets all updates and keeps the memory.
    pub fn clear(&mut self) {
        self.list.clear();
    }
}

impl Default for Updates {
    fn default() -> Updates {
        Updates::new()
    }
}

impl Update {
    /// The four words, which are the update's bytes once each is written little-endian.
    pub fn words(&self) -> [u64; 4] {
        self.0
    }

    /// The player that the update is about; 0 for the world's.
    pub fn player_id(&self) -> u64 {
        self.0[0]
    }

    /// `ts_us` of the event that caused the update.
    pub fn ts_us(&self) -> i64 {
        self.0[1] as i64
    }
}
