//! Rows of logical state behind one write barrier, which keeps their digest.
//!
//! All that decides a shard's future stands in tables. What stands beside them (indexes, lists,
//! trees) follows from the rows and is built again after a restart.

use crate::engine::chunks::{Chunks, Shadow};
use crate::engine::mix;
use crate::limits::CHUNK_ROWS;

/// A row: a fixed number of words, of which all zero is the empty row.
pub trait Row<const WORDS: usize>: Copy + Default {
    /// What the row's part of the digest is bound to.
    const IDENTITY: Identity;

    /// Every field, packed.
    fn to_words(&self) -> [u64; WORDS];

    /// The row that these words are; `None` if there is no such row.
    fn from_words(words: [u64; WORDS]) -> Option<Self>;
}

/// What a row's part of the digest is bound to beside its words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    /// Its first word: the row names itself, and where it lies in the table is layout.
    FirstWord,
    /// The row's number, which has a meaning.
    Number,
}

/// Rows by number.
///
/// The digest is the sum, over all words of all rows, of the word times a key of its own. So a
/// change costs what has changed, an empty row adds nothing, and because the sum has 128 bits and
/// no key is 0, two states that differ in one word have different sums.
#[derive(Clone, Debug)]
pub struct Table<R, const WORDS: usize, const ROWS: usize = CHUNK_ROWS> {
    rows: Chunks<R, ROWS>,
    shadow: Shadow<R, ROWS>,
    salt: u64,
    sum: u128,
}

impl<R: Row<WORDS>, const WORDS: usize, const ROWS: usize> Table<R, WORDS, ROWS> {
    /// No rows yet. Equal rows of tables with different salts have different parts in the digest.
    pub fn new(rows_max: usize, salt: u64) -> Table<R, WORDS, ROWS> {
        let salt = salt.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Table { rows: Chunks::new(rows_max), shadow: Shadow::none(), salt, sum: 0 }
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
    #[inline]
    pub fn row(&self, number: u32) -> &R {
        &self.rows[number]
    }

    /// The write barrier: the only way in which a row changes.
    #[inline]
    pub fn write(&mut self, number: u32, row: R) {
        self.shadow.before_write(&self.rows, number);
        let kept = &mut self.rows[number];
        let (before, after) = (kept.to_words(), row.to_words());
        *kept = row;
        let identity = match R::IDENTITY {
            Identity::Number => u64::from(number),
            // A row is empty before it becomes another one's: what is empty adds nothing.
            Identity::FirstWord => {
                debug_assert!(before[0] == after[0] || before[0] == 0 || after[0] == 0);
                before[0] | after[0]
            }
        };
        let key = mix::fold(identity ^ self.salt, mix::KEYS[0]);
        for at in 0..WORDS {
            if before[at] != after[at] {
                let part = mix::difference(before[at], after[at], mix::word_key(key, at));
                self.sum = self.sum.wrapping_add(part);
            }
        }
    }

    /// Begins a capture: from now on [`Table::captured`] says what rows were at this moment.
    pub fn begin_capture(&mut self) {
        self.shadow.begin(&self.rows);
    }

    /// A row as it was when the capture began, or as it is if there is no capture.
    pub fn captured(&self, number: u32) -> &R {
        self.shadow.read(&self.rows, number)
    }

    /// Rows below this one will not be read any more for the capture.
    pub fn pass_captured(&mut self, number: u32) {
        self.shadow.pass(number);
    }

    /// Ends the capture.
    pub fn end_capture(&mut self) {
        self.shadow.end();
    }

    /// Hash of all rows that are not empty.
    pub fn digest(&self) -> u64 {
        mix::hash(&[self.sum as u64, (self.sum >> 64) as u64], self.salt)
    }
}
