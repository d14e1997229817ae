//! Tables whose row numbers have a meaning, and whose rows all exist from the start.

use crate::kit::checkpoint::{Checkpoint, Part, StoredRow};
use crate::kit::row::{Row, RowWords};
use crate::kit::stored_names::RowRun;
use crate::kit::table::Table;
use crate::kit::words::Words;

/// Rows by a number that has a meaning.
#[derive(Clone, Debug)]
pub struct Numbered<R: Row> {
    rows: Table<R>,
    count: u32,
}

impl<R: Row> Numbered<R> {
    /// This many empty rows, at least one.
    pub fn new(count: u32, salt: u64) -> Numbered<R> {
        let mut rows = Table::new(count as usize, salt);
        rows.reach(count - 1);
        Numbered { rows, count }
    }

    /// Returns one row.
    pub fn row(&self, number: u32) -> &R {
        self.rows.row(number)
    }

    /// Changes one row.
    pub fn write(&mut self, number: u32, row: R) {
        self.rows.write(number, row);
    }

    /// Returns the hash of all rows.
    pub fn digest(&self) -> u64 {
        self.rows.digest()
    }

    /// Lists all rows of an encoded state.
    pub fn list(&self, table: u8, part: u8, checkpoint: &mut Checkpoint) {
        let run = RowRun { table, instance: 0, is_counted: false, rows: self.count };
        checkpoint.rows(run, part, 0..self.count, R::WORDS as u64 * u64::from(self.count));
    }

    /// Reads the rows that [`Numbered::list`] has listed. `None`: they are not such rows.
    pub fn load(&mut self, words: &mut Words) -> Option<()> {
        for number in 0..self.count {
            self.rows.write(number, R::from_words(R::Words::read(words)?)?);
        }
        Some(())
    }
}

impl<R: Row> Part for Numbered<R> {
    fn begin_checkpoint(&mut self) {
        self.rows.begin_checkpoint();
    }

    fn read_row(&self, number: u32, row: &mut StoredRow) {
        self.rows.read_row(number, row);
    }

    fn pass(&mut self, number: u32) {
        self.rows.pass(number);
    }

    fn end_checkpoint(&mut self) {
        self.rows.end_checkpoint();
    }
}
