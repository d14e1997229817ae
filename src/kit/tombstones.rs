//! A zone's memory of players who left it.

use crate::kit::PLAYERS_MAX;
use crate::kit::checkpoint::{Checkpoint, Part, StoredRow};
use crate::kit::index::Index;
use crate::kit::row::{Identity, Row};
use crate::kit::stored_names::{self, RowRun};
use crate::kit::table::Table;
use crate::kit::words::Words;

/// Limit of remembered players: as many as a zone holds, because all may leave.
pub(crate) const TOMBSTONES_MAX: usize = PLAYERS_MAX;

/// Words of a player that left in a stored state: its row's number, then the row.
pub(crate) const STORED_TOMBSTONE_WORDS: usize = 1 + Tombstone::WORDS;

/// Identifies one of a player's handoffs, and orders them. A later handoff has a higher `seq`; one
/// that was sent back, or on, has the same `seq` and a higher number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct HandoffId {
    /// The `seq` of the `leave`.
    pub seq: u64,
    /// Number of the handoff.
    pub crossing: u32,
}

/// The memory of a player who left, so that repeated events stay no-ops and each handoff is
/// accepted once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tombstone {
    /// The player; 0 in an empty row.
    pub player_id: u64,
    /// The last `seq` that was applied.
    pub seq: u64,
    /// Number of the player's last handoff out of a zone, as far as known here.
    pub crossing_sent: u32,
    /// The last handoff that was accepted here.
    pub accepted: HandoffId,
}

impl Row for Tombstone {
    type Words = [u64; 4];
    type Alignment = u64;
    const IDENTITY: Identity = Identity::Number;

    fn to_words(&self) -> [u64; 4] {
        let Tombstone { player_id, seq, crossing_sent, accepted } = *self;
        let HandoffId { seq: accepted_seq, crossing: accepted_crossing } = accepted;
        let crossings = u64::from(crossing_sent) | u64::from(accepted_crossing) << 32;
        [player_id, seq, crossings, accepted_seq]
    }

    fn from_words([player_id, seq, crossings, accepted_seq]: [u64; 4]) -> Option<Tombstone> {
        let accepted = HandoffId { seq: accepted_seq, crossing: (crossings >> 32) as u32 };
        Some(Tombstone { player_id, seq, crossing_sent: crossings as u32, accepted })
    }
}

const ROWS_MAX: u32 = TOMBSTONES_MAX as u32;

/// The players who left last, in a ring: a new one replaces the oldest.
#[derive(Clone, Debug)]
pub struct Tombstones {
    rows: Table<Tombstone>,
    index: Index,
    next: u32,
}

impl Tombstones {
    /// Creates an empty ring.
    pub(crate) fn none() -> Tombstones {
        Tombstones {
            rows: Table::new(TOMBSTONES_MAX, 3),
            index: Index::new(TOMBSTONES_MAX),
            next: 0,
        }
    }

    /// Returns the tombstone of a player.
    pub(crate) fn find(&self, player_id: u64) -> Option<&Tombstone> {
        self.row_of(player_id).map(|row| self.rows.row(row))
    }

    fn row_of(&self, player_id: u64) -> Option<u32> {
        self.index.find(player_id, |row| self.rows.row(row).player_id)
    }

    /// Adds a tombstone, replacing the player's previous one.
    pub fn put(&mut self, tombstone: Tombstone) {
        self.take(tombstone.player_id);
        let row = self.next;
        self.next = (row + 1) % ROWS_MAX;
        self.rows.reach(row);
        let oldest = self.rows.row(row).player_id;
        if oldest != 0 {
            self.index.remove(oldest, row);
        }
        self.rows.write(row, tombstone);
        self.index.insert(tombstone.player_id, row, |row| self.rows.row(row).player_id);
    }

    /// Removes and returns a player's tombstone.
    pub fn take(&mut self, player_id: u64) -> Option<Tombstone> {
        let row = self.row_of(player_id)?;
        let tombstone = *self.rows.row(row);
        self.index.remove(player_id, row);
        self.rows.write(row, Tombstone::default());
        Some(tombstone)
    }

    /// Lists all tombstones of an encoded state: the row that is written next, the number of rows
    /// that are not empty, and these.
    pub(crate) fn list(&self, part: u8, checkpoint: &mut Checkpoint) {
        let Tombstones { rows, index, next } = self;
        checkpoint.note((stored_names::RING, 0), 1, [(*next).into()]);
        let (table, count) = (stored_names::TOMBSTONES, index.count());
        let run = RowRun { table, instance: 0, is_counted: true, rows: count };
        let words = STORED_TOMBSTONE_WORDS as u64 * u64::from(count);
        checkpoint.rows(run, part, 0..rows.count(), words);
    }

    /// Decodes the tombstones of a checkpoint.
    pub(crate) fn decode(words: &mut Words) -> Option<Tombstones> {
        let row_of = |word: u64| u32::try_from(word).ok().filter(|row| *row < ROWS_MAX);
        let mut tombstones = Tombstones::none();
        let next = row_of(words.word()?)?;
        for _ in 0..words.word()? {
            let row = row_of(words.word()?)?;
            let tombstone = Tombstone::from_words(words.take()?)?;
            tombstones.rows.reach(row);
            let taken = tombstones.rows.row(row).player_id != 0;
            if taken || tombstone.player_id == 0 || tombstones.find(tombstone.player_id).is_some() {
                return None;
            }
            tombstones.rows.write(row, tombstone);
            let rows = &tombstones.rows;
            tombstones.index.insert(tombstone.player_id, row, |row| rows.row(row).player_id);
        }
        tombstones.next = next;
        Some(tombstones)
    }

    /// Hash of all tombstones.
    pub(crate) fn digest(&self) -> u64 {
        let Tombstones { rows, index: _, next } = self;
        rows.digest().wrapping_add(u64::from(*next))
    }
}

impl Part for Tombstones {
    fn begin_checkpoint(&mut self) {
        self.rows.begin_checkpoint();
    }

    fn read_row(&self, number: u32, row: &mut StoredRow) {
        let tombstone = self.rows.checkpointed(number);
        if tombstone.player_id != 0 {
            row.push(&[number.into()]);
            row.push(&tombstone.to_words());
        }
    }

    fn pass(&mut self, number: u32) {
        self.rows.pass(number);
    }

    fn end_checkpoint(&mut self) {
        self.rows.end_checkpoint();
    }
}
