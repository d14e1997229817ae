//! Rows of state behind a write barrier, which keeps their digest.
//!
//! Everything that decides a shard's future is in tables and columns, except a few words that a
//! checkpoint copies. All else (indexes, lists, trees, maps) is computed from these, and built
//! again after a restart.

use crate::kit::chunks::{CHUNK_ROWS, CHUNK_WORDS, Chunks, Shadow};
use crate::kit::mix;

/// A row: a fixed number of words, of which all zero is the empty row.
pub(crate) trait Row<const WORDS: usize>: Copy + Default {
    /// What the row's hash is bound to beside its words.
    const IDENTITY: Identity;

    /// Every field, packed.
    fn to_words(&self) -> [u64; WORDS];

    /// The row that these words are; `None` if there is no such row.
    fn from_words(words: [u64; WORDS]) -> Option<Self>;
}

/// What a row's hash is bound to beside its words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Identity {
    /// Nothing: the row names itself, and where it lies in the table is layout.
    Own,
    /// The row's number, which has a meaning.
    Number,
}

#[derive(Clone, Copy, Debug, Default)]
struct Kept<R, A> {
    row: R,
    hash: u64,
    _alignment: [A; 0],
}

/// Rows of several words, by number. Each keeps its hash, and the digest is the sum of the hashes.
/// Rows lie in memory as values of the type `A` do.
#[derive(Clone, Debug)]
pub(crate) struct Table<R, const WORDS: usize, A = u64> {
    rows: Chunks<Kept<R, A>, CHUNK_ROWS>,
    shadow: Shadow<Kept<R, A>, CHUNK_ROWS>,
    salt: u64,
    digest: u64,
}

impl<R: Row<WORDS>, const WORDS: usize, A: Copy + Default> Table<R, WORDS, A> {
    /// No rows yet. Equal rows of tables with different salts have different hashes.
    pub(crate) fn new(rows_max: usize, salt: u64) -> Table<R, WORDS, A> {
        let salt = mix::salt(salt);
        Table { rows: Chunks::new(rows_max), shadow: Shadow::none(), salt, digest: 0 }
    }

    /// Makes the row exist, empty if it is new.
    pub(crate) fn reach(&mut self, number: u32) {
        self.rows.reach(number);
    }

    /// Rows that exist, the empty ones included.
    pub(crate) fn count(&self) -> u32 {
        self.rows.count() as u32
    }

    /// One row.
    #[inline]
    pub(crate) fn row(&self, number: u32) -> &R {
        &self.rows[number].row
    }

    /// One row; `None`: it does not exist.
    #[inline]
    pub(crate) fn get(&self, number: u32) -> Option<&R> {
        self.rows.get(number).map(|kept| &kept.row)
    }

    /// Prefetches a row.
    #[inline]
    pub(crate) fn prefetch(&self, number: u32) {
        self.rows.prefetch(number);
    }

    /// The write barrier: the only way in which a row changes.
    #[inline(always)]
    pub(crate) fn write(&mut self, number: u32, row: R) {
        let words = row.to_words();
        let salt = match R::IDENTITY {
            Identity::Own => self.salt,
            Identity::Number => self.salt.wrapping_add(u64::from(number)),
        };
        // A row that names itself has a name in its first word, unless it is empty.
        let empty = match R::IDENTITY {
            Identity::Own => words[0] == 0,
            Identity::Number => words.iter().all(|word| *word == 0),
        };
        let hash = if empty { 0 } else { mix::hash(&words, salt) };
        self.shadow.before_write(&self.rows, number);
        let kept = &mut self.rows[number];
        self.digest = self.digest.wrapping_sub(kept.hash).wrapping_add(hash);
        *kept = Kept { row, hash, _alignment: [] };
    }

    /// Begins a checkpoint: from now on [`Table::checkpointed`] gives rows as they are now.
    pub(crate) fn begin_checkpoint(&mut self) {
        self.shadow.begin(&self.rows);
    }

    /// A row as it was when the checkpoint began, or as it is if there is no checkpoint.
    pub(crate) fn checkpointed(&self, number: u32) -> &R {
        &self.shadow.read(&self.rows, number).row
    }

    /// Rows below this one will not be read any more for the checkpoint.
    pub(crate) fn pass_checkpointed(&mut self, number: u32) {
        self.shadow.pass(number);
    }

    /// Ends the checkpoint.
    pub(crate) fn end_checkpoint(&mut self) {
        self.shadow.end();
    }

    /// Hash of all rows that are not empty.
    pub(crate) fn digest(&self) -> u64 {
        self.digest
    }
}

/// Rows of one word, by number, which has a meaning.
///
/// The digest is the sum over all rows of the word times a key of the row. So a write costs two
/// products, nothing is kept beside the word, and because the sum has 128 bits and no key is 0, two
/// columns that differ in one row have different sums.
#[derive(Clone, Debug)]
pub(crate) struct Column<R> {
    rows: Chunks<R, CHUNK_WORDS>,
    shadow: Shadow<R, CHUNK_WORDS>,
    salt: u64,
    sum: u128,
}

impl<R: Row<1>> Column<R> {
    /// No rows yet. Equal rows of columns with different salts have different keys.
    pub(crate) fn new(rows_max: usize, salt: u64) -> Column<R> {
        let salt = mix::salt(salt);
        Column { rows: Chunks::new(rows_max), shadow: Shadow::none(), salt, sum: 0 }
    }

    /// Makes the row exist, empty if it is new.
    pub(crate) fn reach(&mut self, number: u32) {
        self.rows.reach(number);
    }

    /// One row.
    #[inline]
    pub(crate) fn row(&self, number: u32) -> R {
        self.rows[number]
    }

    /// One row; `None`: it does not exist.
    #[inline]
    pub(crate) fn get(&self, number: u32) -> Option<R> {
        self.rows.get(number).copied()
    }

    /// The write barrier: the only way in which a row changes.
    #[inline]
    pub(crate) fn write(&mut self, number: u32, row: R) {
        self.shadow.before_write(&self.rows, number);
        let kept = &mut self.rows[number];
        let ([before], [after]) = (kept.to_words(), row.to_words());
        *kept = row;
        let key = mix::fold(self.salt ^ u64::from(number), mix::KEYS[0]) | 1;
        self.sum = self.sum.wrapping_add(mix::difference(before, after, key));
    }

    /// Begins a checkpoint: from now on [`Column::checkpointed`] gives rows as they are now.
    pub(crate) fn begin_checkpoint(&mut self) {
        self.shadow.begin(&self.rows);
    }

    /// A row as it was when the checkpoint began, or as it is if there is no checkpoint.
    pub(crate) fn checkpointed(&self, number: u32) -> R {
        *self.shadow.read(&self.rows, number)
    }

    /// Rows below this one will not be read any more for the checkpoint.
    pub(crate) fn pass_checkpointed(&mut self, number: u32) {
        self.shadow.pass(number);
    }

    /// Ends the checkpoint.
    pub(crate) fn end_checkpoint(&mut self) {
        self.shadow.end();
    }

    /// Hash of all rows that are not empty.
    pub(crate) fn digest(&self) -> u64 {
        mix::hash(&[self.sum as u64, (self.sum >> 64) as u64], self.salt)
    }
}
