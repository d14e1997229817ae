//! An array that grows a chunk at a time and never moves what it holds.

use crate::limits::CHUNK_ROWS;
use std::ops::{Index, IndexMut};

/// Values by number, in chunks of `ROWS`, a power of two: small values stand many to a chunk, so
/// that the directory of the chunks stays in the nearest cache.
#[derive(Clone, Debug)]
pub struct Chunks<T, const ROWS: usize = CHUNK_ROWS> {
    chunks: Vec<Box<Chunk<T, ROWS>>>,
    chunks_max: usize,
}

/// Begins at a cache line, so that a value of 64 bytes is one.
#[derive(Clone, Debug)]
#[repr(align(64))]
struct Chunk<T, const ROWS: usize>([T; ROWS]);

impl<T: Copy + Default, const ROWS: usize> Chunks<T, ROWS> {
    /// Nothing yet, with a directory for `count_max` values, so that growing moves nothing.
    pub fn new(count_max: usize) -> Chunks<T, ROWS> {
        const { assert!(ROWS.is_power_of_two()) };
        let chunks_max = count_max.div_ceil(ROWS);
        Chunks { chunks: Vec::with_capacity(chunks_max), chunks_max }
    }

    /// Makes the value `at` exist, as a default if it is new.
    pub fn reach(&mut self, at: u32) {
        while self.count() <= at as usize {
            assert!(self.chunks.len() < self.chunks_max, "a table grew beyond its bound");
            let chunk = Box::new(Chunk([T::default(); ROWS]));
            self.chunks.push(chunk);
        }
    }

    /// Values that exist.
    pub fn count(&self) -> usize {
        self.chunks.len() * ROWS
    }
}

impl<T, const ROWS: usize> Index<u32> for Chunks<T, ROWS> {
    type Output = T;

    #[inline]
    fn index(&self, at: u32) -> &T {
        &self.chunks[at as usize / ROWS].0[at as usize % ROWS]
    }
}

impl<T, const ROWS: usize> IndexMut<u32> for Chunks<T, ROWS> {
    #[inline]
    fn index_mut(&mut self, at: u32) -> &mut T {
        &mut self.chunks[at as usize / ROWS].0[at as usize % ROWS]
    }
}
