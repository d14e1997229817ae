//! Rows of state with a write barrier that maintains their digest.
//!
//! Everything that decides a shard's future is in tables and columns, except a few words that a
//! checkpoint copies. All else (indexes, lists, trees, maps) is derived from these, and rebuilt
//! after a restart.

use crate::kit::checkpoint::{Part, StoredRow};
use crate::kit::chunks::{CHUNK_ROWS, CHUNK_WORDS, Chunks, Shadow};
use crate::kit::mix;
use crate::kit::row::{Identity, Row, RowWords};

#[derive(Clone, Copy, Debug, Default)]
struct Kept<R: Row> {
    row: R,
    hash: u64,
    _alignment: [R::Alignment; 0],
}

/// Rows of several words, by number. Each keeps its hash, and the digest is the sum of the hashes.
#[derive(Clone, Debug)]
pub(crate) struct Table<R: Row> {
    rows: Chunks<Kept<R>, CHUNK_ROWS>,
    shadow: Shadow<Kept<R>, CHUNK_ROWS>,
    salt: u64,
    digest: u64,
}

impl<R: Row> Table<R> {
    /// No rows yet. Equal rows of tables with different salts have different hashes.
    pub(crate) fn new(rows_max: usize, salt: u64) -> Table<R> {
        let salt = mix::salt(salt);
        Table { rows: Chunks::new(rows_max), shadow: Shadow::none(), salt, digest: 0 }
    }

    /// Creates the row if it does not exist, as an empty one.
    pub(crate) fn reach(&mut self, number: u32) {
        self.rows.reach(number);
    }

    /// Number of existing rows, including empty ones.
    pub(crate) fn count(&self) -> u32 {
        self.rows.count() as u32
    }

    /// Returns a row.
    #[inline]
    pub(crate) fn row(&self, number: u32) -> &R {
        &self.rows[number].row
    }

    /// Returns a row; `None` if it does not exist.
    #[inline]
    pub(crate) fn get(&self, number: u32) -> Option<&R> {
        self.rows.get(number).map(|kept| &kept.row)
    }

    /// Prefetches a row.
    #[inline]
    pub(crate) fn prefetch(&self, number: u32) {
        self.rows.prefetch(number);
    }

    /// Writes a row. This write barrier is the only way to change one.
    #[inline(always)]
    pub(crate) fn write(&mut self, number: u32, row: R) {
        let words = row.to_words();
        let salt = match R::IDENTITY {
            Identity::Own => self.salt,
            Identity::Number => self.salt.wrapping_add(u64::from(number)),
        };
        // A row with its own identity has it in its first word, unless it is empty.
        let empty = match R::IDENTITY {
            Identity::Own => words.as_slice()[0] == 0,
            Identity::Number => words.as_slice().iter().all(|word| *word == 0),
        };
        self.shadow.before_write(&self.rows, number);
        let kept = &mut self.rows[number];
        // Stored before it is hashed, which takes all registers.
        kept.row = row;
        let hash = if empty { 0 } else { words.hash(salt) };
        self.digest = self.digest.wrapping_sub(kept.hash).wrapping_add(hash);
        kept.hash = hash;
    }

    /// Returns a row as it was when the checkpoint began, or as it is if there is no checkpoint.
    pub(crate) fn checkpointed(&self, number: u32) -> &R {
        &self.shadow.read(&self.rows, number).row
    }

    /// Hash of all rows that are not empty.
    pub(crate) fn digest(&self) -> u64 {
        self.digest
    }
}

/// Rows of one word, by number, which has a meaning.
///
/// The digest is the sum over all rows of the word times a key of the row. So a write costs two
/// products and nothing is stored besides the word. Because the sum has 128 bits and no key is 0,
/// two columns that differ in one row have different sums.
#[derive(Clone, Debug)]
pub(crate) struct Column<R> {
    rows: Chunks<R, CHUNK_WORDS>,
    shadow: Shadow<R, CHUNK_WORDS>,
    salt: u64,
    sum: u128,
}

impl<R: Row<Words = [u64; 1]>> Column<R> {
    /// No rows yet. Equal rows of columns with different salts have different keys.
    pub(crate) fn new(rows_max: usize, salt: u64) -> Column<R> {
        let salt = mix::salt(salt);
        Column { rows: Chunks::new(rows_max), shadow: Shadow::none(), salt, sum: 0 }
    }

    /// Creates the row if it does not exist, as an empty one.
    pub(crate) fn reach(&mut self, number: u32) {
        self.rows.reach(number);
    }

    /// Returns a row.
    #[inline]
    pub(crate) fn row(&self, number: u32) -> R {
        self.rows[number]
    }

    /// Returns a row; `None` if it does not exist.
    #[inline]
    pub(crate) fn get(&self, number: u32) -> Option<R> {
        self.rows.get(number).copied()
    }

    /// Writes a row. This write barrier is the only way to change one.
    #[inline]
    pub(crate) fn write(&mut self, number: u32, row: R) {
        self.shadow.before_write(&self.rows, number);
        let kept = &mut self.rows[number];
        let ([before], [after]) = (kept.to_words(), row.to_words());
        *kept = row;
        let key = mix::fold(self.salt ^ u64::from(number), mix::KEYS[0]) | 1;
        self.sum = self.sum.wrapping_add(mix::difference(before, after, key));
    }

    /// Hash of all rows that are not empty.
    pub(crate) fn digest(&self) -> u64 {
        mix::hash(&[self.sum as u64, (self.sum >> 64) as u64], self.salt)
    }
}

impl<R: Row> Part for Table<R> {
    fn begin_checkpoint(&mut self) {
        self.shadow.begin(&self.rows);
    }

    fn read_row(&self, number: u32, row: &mut StoredRow) {
        row.push(self.checkpointed(number).to_words().as_slice());
    }

    fn pass(&mut self, number: u32) {
        self.shadow.pass(number);
    }

    fn end_checkpoint(&mut self) {
        self.shadow.end();
    }
}

impl<R: Row<Words = [u64; 1]>> Part for Column<R> {
    fn begin_checkpoint(&mut self) {
        self.shadow.begin(&self.rows);
    }

    fn read_row(&self, number: u32, row: &mut StoredRow) {
        row.push(&self.shadow.read(&self.rows, number).to_words());
    }

    fn pass(&mut self, number: u32) {
        self.shadow.pass(number);
    }

    fn end_checkpoint(&mut self) {
        self.shadow.end();
    }
}
