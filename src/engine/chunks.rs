//! An array that grows a chunk at a time and never moves what it holds.

use crate::limits::CHUNK_ROWS;
use std::ops::{Index, IndexMut};

/// Values by number, in chunks.
#[derive(Clone, Debug)]
pub struct Chunks<T> {
    chunks: Vec<Box<Chunk<T>>>,
    chunks_max: usize,
}

/// Begins at a cache line, so that a value of 64 bytes is one.
#[derive(Clone, Debug)]
#[repr(align(64))]
struct Chunk<T>([T; CHUNK_ROWS]);

impl<T: Copy + Default> Chunks<T> {
    /// Nothing yet, with a directory for `count_max` values, so that growing moves nothing.
    pub fn new(count_max: usize) -> Chunks<T> {
        let chunks_max = count_max.div_ceil(CHUNK_ROWS);
        Chunks { chunks: Vec::with_capacity(chunks_max), chunks_max }
    }

    /// Makes the value `at` exist, as a default if it is new.
    pub fn reach(&mut self, at: u32) {
        while self.count() <= at as usize {
            assert!(self.chunks.len() < self.chunks_max, "a table grew beyond its bound");
            let chunk = Box::new(Chunk([T::default(); CHUNK_ROWS]));
            self.chunks.push(chunk);
        }
    }

    /// Values that exist.
    pub fn count(&self) -> usize {
        self.chunks.len() * CHUNK_ROWS
    }
}

impl<T> Index<u32> for Chunks<T> {
    type Output = T;

    fn index(&self, at: u32) -> &T {
        &self.chunks[at as usize / CHUNK_ROWS].0[at as usize % CHUNK_ROWS]
    }
}

impl<T> IndexMut<u32> for Chunks<T> {
    fn index_mut(&mut self, at: u32) -> &mut T {
        &mut self.chunks[at as usize / CHUNK_ROWS].0[at as usize % CHUNK_ROWS]
    }
}
