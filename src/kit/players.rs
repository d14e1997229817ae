//! The players of a zone: their rows, and the index that finds a player's row.

use crate::kit::checkpoint::{Checkpoint, Part, StoredRow};
use crate::kit::index::{Index, Lookup};
use crate::kit::row::{Row, RowWords};
use crate::kit::stored_names::RowRun;
use crate::kit::table::Table;
use crate::kit::words::Words;

/// A player's row, which names its player.
pub trait Player: Row {
    /// Returns the player; 0 in a row that is free.
    fn player_id(&self) -> u64;

    /// Returns the last `seq` that was applied.
    fn seq(&self) -> u64;

    /// Sets the last `seq`.
    fn set_seq(&mut self, seq: u64);
}

/// Implements [`Player`] for a row with the fields `player_id` and `seq`.
#[macro_export]
macro_rules! player_row {
    ($row:ident) => {
        impl $crate::kit::players::Player for $row {
            #[inline(always)]
            fn player_id(&self) -> u64 {
                self.player_id
            }

            #[inline(always)]
            fn seq(&self) -> u64 {
                self.seq
            }

            #[inline(always)]
            fn set_seq(&mut self, seq: u64) {
                self.seq = seq;
            }
        }
    };
}

/// Players by row.
#[derive(Clone, Debug)]
pub struct Players<P: Player> {
    rows: Table<P>,
    index: Index,
    /// Rows below `used` that are free again.
    free: Vec<u32>,
    used: u32,
}

impl<P: Player> Players<P> {
    /// Nobody, with room for this many.
    pub fn new(players_max: usize, salt: u64) -> Players<P> {
        Players {
            rows: Table::new(players_max, salt),
            index: Index::new(players_max),
            free: Vec::with_capacity(players_max),
            used: 0,
        }
    }

    /// Returns the number of players.
    pub fn count(&self) -> u32 {
        self.index.count()
    }

    /// Returns the row of a player as it was when the checkpoint began.
    pub(crate) fn checkpointed(&self, row: u32) -> &P {
        self.rows.checkpointed(row)
    }

    /// Lists all players of an encoded state: their number, and the rows that are not empty.
    pub fn list(&self, table: u8, part: u8, row_words: usize, checkpoint: &mut Checkpoint) {
        let run = RowRun { table, instance: 0, is_counted: true, rows: self.count() };
        checkpoint.rows(run, part, 0..self.used, row_words as u64 * u64::from(run.rows));
    }

    /// Reads players that [`Players::list`] has listed. `None`: they are not such players, or more
    /// than there may be.
    pub fn load(&mut self, players_max: u32, words: &mut Words) -> Option<()> {
        for _ in 0..words.word()? {
            let player = P::from_words(P::Words::read(words)?)?;
            let is_new = player.player_id() != 0 && self.find(player.player_id()).is_none();
            if !is_new || self.count() == players_max {
                return None;
            }
            self.add(player);
        }
        Some(())
    }

    /// Returns how many rows may hold a player.
    pub fn used(&self) -> u32 {
        self.used
    }

    /// Returns whether all rows in use hold a player.
    pub(crate) fn is_dense(&self) -> bool {
        self.free.is_empty()
    }

    /// Returns the row of a player.
    pub fn find(&self, player_id: u64) -> Option<u32> {
        self.index.find(player_id, |row| self.rows.row(row).player_id())
    }

    /// The first step of a look-up ahead of time: prefetches the index entry of a player.
    #[inline]
    pub(crate) fn begin_lookup(&self, player_id: u64) -> Lookup {
        self.index.begin_lookup(player_id)
    }

    /// The second step: prefetches the row that a player most likely has and returns its number, or
    /// the number of no row.
    #[inline]
    pub(crate) fn likely_row(&self, lookup: Lookup) -> u32 {
        let row = self.index.likely(lookup);
        self.prefetch(row);
        row
    }

    /// Prefetches a row.
    #[inline]
    pub(crate) fn prefetch(&self, row: u32) {
        self.rows.prefetch(row);
    }

    /// Returns a player and its row, which may be `hint`. The player's id is not 0, as it is in
    /// free rows.
    #[inline]
    pub(crate) fn find_from(&self, hint: u32, player_id: u64) -> Option<(u32, &P)> {
        match self.rows.get(hint) {
            Some(player) if player.player_id() == player_id => Some((hint, player)),
            _ => self.find(player_id).map(|row| (row, self.row(row))),
        }
    }

    /// Adds a player who is not here yet, and returns its row.
    pub fn add(&mut self, player: P) -> u32 {
        let player_id = player.player_id();
        assert!(player_id != 0);
        let row = self.free.pop().unwrap_or(self.used);
        self.used = self.used.max(row + 1);
        self.rows.reach(row);
        self.rows.write(row, player);
        self.index.insert(player_id, row, |row| self.rows.row(row).player_id());
        row
    }

    /// Removes a player and frees its row.
    pub fn remove(&mut self, row: u32) {
        self.index.remove(self.row(row).player_id(), row);
        self.rows.write(row, P::default());
        self.free.push(row);
    }

    /// Returns a player.
    #[inline]
    pub fn row(&self, row: u32) -> &P {
        self.rows.row(row)
    }

    /// Writes a player.
    #[inline(always)]
    pub fn write(&mut self, row: u32, player: P) {
        self.rows.write(row, player);
    }

    /// Returns the hash of all players.
    pub fn digest(&self) -> u64 {
        // The index is derived from the rows; `free` and `used` only determine where a row is.
        let Players { rows, index: _, free: _, used: _ } = self;
        rows.digest()
    }
}

impl<P: Player> Part for Players<P> {
    fn begin_checkpoint(&mut self) {
        self.rows.begin_checkpoint();
    }

    fn read_row(&self, number: u32, row: &mut StoredRow) {
        let player = self.checkpointed(number);
        if player.player_id() != 0 {
            row.push(player.to_words().as_slice());
        }
    }

    fn pass(&mut self, number: u32) {
        self.rows.pass(number);
    }

    fn end_checkpoint(&mut self) {
        self.rows.end_checkpoint();
    }
}
