//! Rows of logical state behind one write barrier, which keeps their digest.
//!
//! All that decides a shard's future stands in tables. What stands beside them (indexes, lists,
//! trees) follows from the rows and is built again after a restart.

use crate::engine::chunks::Chunks;
use crate::engine::mix;

/// A row: a fixed number of words, of which all zero is the empty row.
pub trait Row<const WORDS: usize>: Copy + Default {
    /// Every field, packed.
    fn to_words(&self) -> [u64; WORDS];

    /// The row that these words are; `None` if there is no such row.
    fn from_words(words: [u64; WORDS]) -> Option<Self>;
}

/// What a row's hash is bound to beside its words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    /// Nothing: the row names itself, and where it lies in the table is layout.
    Own,
    /// The row's number, which has a meaning.
    Number,
}

#[derive(Clone, Copy, Debug, Default)]
struct Kept<R> {
    row: R,
    hash: u64,
}

/// Rows by number.
#[derive(Clone, Debug)]
pub struct Table<R, const WORDS: usize> {
    rows: Chunks<Kept<R>>,
    salt: u64,
    identity: Identity,
    digest: u64,
}

impl<R: Row<WORDS>, const WORDS: usize> Table<R, WORDS> {
    /// No rows yet. Equal rows of tables with different salts have different hashes.
    pub fn new(rows_max: usize, salt: u64, identity: Identity) -> Table<R, WORDS> {
        let rows = Chunks::new(rows_max);
        Table { rows, salt: salt.wrapping_mul(0x9e37_79b9_7f4a_7c15), identity, digest: 0 }
    }

    /// Makes the row exist, empty if it is new.
    pub fn reach(&mut self, number: u32) {
        self.rows.reach(number);
    }

    /// Rows that exist, the empty ones included.
    pub fn count(&self) -> u32 {
        self.rows.count() as u32
    }

    /// One row.
    pub fn row(&self, number: u32) -> &R {
        &self.rows[number].row
    }

    /// The write barrier: the only way in which a row changes.
    #[inline]
    pub fn write(&mut self, number: u32, row: R) {
        let words = row.to_words();
        let salt = match self.identity {
            Identity::Own => self.salt,
            Identity::Number => self.salt.wrapping_add(u64::from(number)),
        };
        let empty = words.iter().fold(0, |bits, word| bits | word) == 0;
        let hash = if empty { 0 } else { mix::hash(&words, salt) };
        let kept = &mut self.rows[number];
        self.digest = self.digest.wrapping_sub(kept.hash).wrapping_add(hash);
        *kept = Kept { row, hash };
    }

    /// Hash of all rows that are not empty.
    pub fn digest(&self) -> u64 {
        self.digest
    }
}
