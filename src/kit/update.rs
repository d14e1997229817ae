//! Updates: the whole output of a game.
//!
//! An update is 32 bytes, four little-endian words, in memory as in a binary frame. A game's
//! [`Kinds`] are their readable form. The words are packed once and never rearranged, so the chain
//! over a zone's updates is a hash over the published bytes.

use crate::kit::kinds::{Kinds, PayloadPart};

/// Limit of the updates of one event, a refusal and the clock included. Longer consequences wait in
/// a work list for later events.
pub(crate) const EVENT_UPDATES_MAX: usize = 64;

/// Limit of the updates in one list, which becomes one frame: in their longest JSON form they fit
/// it.
pub(crate) const FRAME_UPDATES_MAX: usize = 4096;
const _: () = assert!(EVENT_UPDATES_MAX <= FRAME_UPDATES_MAX);

/// Size of an update.
pub(crate) const UPDATE_BYTES: usize = 32;

/// One published fact about a player or the world.
///
/// Layout of the 32 bytes, little-endian: player_id u64, ts_us i64, kind u8, code u8, short u16,
/// word u32, then 8 bytes that are a u64 or two u32, depending on the kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Update([u64; 4]);

/// Updates in the order in which the engine made them, with room for a whole frame.
#[derive(Debug)]
pub struct Updates {
    list: Vec<Update>,
    is_touched: bool,
}

impl Updates {
    /// Creates an empty list that can hold a frame's updates without growing.
    pub fn new() -> Updates {
        Updates { list: Vec::with_capacity(FRAME_UPDATES_MAX), is_touched: false }
    }

    /// Touches the memory of an empty list once, so that it is mapped at once and never later,
    /// however long the list becomes.
    pub(crate) fn touch(&mut self) {
        assert!(self.list.is_empty());
        if !self.is_touched {
            self.is_touched = true;
            self.list.resize(FRAME_UPDATES_MAX, Update([0; 4]));
            self.list.clear();
        }
    }

    /// Returns whether the updates of one more event fit, whatever the event.
    pub(crate) fn has_room(&self) -> bool {
        self.list.len() + EVENT_UPDATES_MAX <= FRAME_UPDATES_MAX
    }

    /// Appends one update. A caller that checked [`Updates::has_room`] before each event never
    /// exceeds the capacity.
    #[inline]
    pub(crate) fn push(&mut self, update: Update) {
        assert!(self.list.len() < self.list.capacity(), "a list of updates never grows");
        self.list.push(update);
    }

    /// The updates.
    pub fn as_slice(&self) -> &[Update] {
        &self.list
    }

    /// The number of updates.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Returns whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Removes the first `count` updates, which an earlier owner has already published.
    pub(crate) fn discard_first(&mut self, count: usize) {
        self.list.drain(..count);
    }

    /// Removes all updates and keeps the memory.
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
    /// Creates an update about `player_id`, or about the world if that is 0.
    #[inline(always)]
    pub fn new(player_id: u64, ts_us: i64, change: impl Kinds) -> Update {
        let payload = change.pack();
        Update([player_id, ts_us as u64, payload.first_word(), payload.long])
    }

    /// Creates an update from its words, which a table has to check.
    pub(crate) fn from_words(words: [u64; 4]) -> Update {
        Update(words)
    }

    /// The four words; written little-endian, they are the update's bytes.
    pub fn words(&self) -> [u64; 4] {
        self.0
    }

    /// The player that the update is about; 0 for the world.
    pub fn player_id(&self) -> u64 {
        self.0[0]
    }

    /// `ts_us` of the event that caused the update.
    pub(crate) fn ts_us(&self) -> i64 {
        self.0[1] as i64
    }

    /// The change.
    pub fn change<K: Kinds>(&self) -> K {
        K::unpack(self.payload()).expect("an update is made of a change or checked to be one")
    }

    /// The second half of the update, split into fields.
    pub(crate) fn payload(&self) -> Payload {
        let first = self.0[2];
        Payload {
            kind: first as u8,
            code: (first >> 8) as u8,
            short: (first >> 16) as u16,
            word: (first >> 32) as u32,
            long: self.0[3],
        }
    }
}

/// The fields of an update after its player and time, by width. The kind determines their meaning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Payload {
    /// Number of the kind, from 1.
    pub kind: u8,
    /// A small number: a reason, an item.
    pub code: u8,
    /// A number up to 65,535.
    pub short: u16,
    /// A 32-bit number.
    pub word: u32,
    /// A 64-bit number, or two 32-bit ones, the low half first.
    pub long: u64,
}

impl Payload {
    /// Returns the bits of one part.
    pub fn get(&self, place: PayloadPart) -> u64 {
        match place {
            PayloadPart::Code => self.code.into(),
            PayloadPart::Short => self.short.into(),
            PayloadPart::Word => self.word.into(),
            PayloadPart::Low => self.long & u64::from(u32::MAX),
            PayloadPart::High => self.long >> 32,
            PayloadPart::Long => self.long,
        }
    }

    /// Sets one part, which was 0. Bits that do not fit it are lost.
    pub fn set(&mut self, place: PayloadPart, bits: u64) {
        match place {
            PayloadPart::Code => self.code = bits as u8,
            PayloadPart::Short => self.short = bits as u16,
            PayloadPart::Word => self.word = bits as u32,
            PayloadPart::Low => self.long |= bits & u64::from(u32::MAX),
            PayloadPart::High => self.long |= bits << 32,
            PayloadPart::Long => self.long = bits,
        }
    }

    /// The update's third word.
    pub(crate) fn first_word(&self) -> u64 {
        u64::from(self.kind)
            | u64::from(self.code) << 8
            | u64::from(self.short) << 16
            | u64::from(self.word) << 32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::resident::is_resident;

    #[test]
    fn memory_that_is_touched_is_resident_before_the_first_update() {
        let mut updates = Updates::new();
        updates.touch();
        assert!(is_resident(&updates.list));
    }
}
