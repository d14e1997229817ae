//! An array that grows by chunks and never moves its elements.

use crate::runtime::prefetch::prefetch_at;
use std::ops::{Index, IndexMut};

/// Rows per chunk, the unit in which tables grow: small enough that the first touch of a chunk's
/// memory takes only a few microseconds.
pub(crate) const CHUNK_ROWS: usize = 128;

/// Rows per chunk if a row is a word or less, for chunks of equal size.
pub(crate) const CHUNK_WORDS: usize = 1024;

/// Values by number, in chunks of `ROWS`, a power of two. The address space of all possible chunks
/// is reserved at once, so that a value is found without a directory; memory is used as chunks are
/// reached.
#[derive(Debug)]
pub struct Chunks<T, const ROWS: usize> {
    chunks: Vec<[T; ROWS]>,
    chunks_max: usize,
}

impl<T: Clone, const ROWS: usize> Clone for Chunks<T, ROWS> {
    fn clone(&self) -> Chunks<T, ROWS> {
        // A copy must be able to grow as well.
        let mut chunks = Vec::with_capacity(self.chunks_max);
        chunks.extend_from_slice(&self.chunks);
        Chunks { chunks, chunks_max: self.chunks_max }
    }
}

/// Aligns a struct to a cache line.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
pub struct CacheLine;

impl<T: Copy + Default, const ROWS: usize> Chunks<T, ROWS> {
    /// Creates an empty array for at most `count_max` values.
    pub(crate) fn new(count_max: usize) -> Chunks<T, ROWS> {
        const { assert!(ROWS.is_power_of_two()) };
        let chunks_max = count_max.div_ceil(ROWS);
        Chunks { chunks: Vec::with_capacity(chunks_max), chunks_max }
    }

    /// Creates all values up to `at`, as defaults if they are new.
    #[inline]
    pub(crate) fn reach(&mut self, at: u32) {
        while self.count() <= at as usize {
            self.grow();
        }
    }

    /// A separate function, because it needs stack space for a chunk.
    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        assert!(self.chunks.len() < self.chunks_max, "a table grew beyond its bound");
        self.chunks.push([T::default(); ROWS]);
    }

    /// Returns a value; `None` if it does not exist.
    #[inline]
    pub(crate) fn get(&self, at: u32) -> Option<&T> {
        self.chunks.as_flattened().get(at as usize)
    }

    /// Prefetches a value. It should exist, because a useless prefetch takes time.
    #[inline]
    pub(crate) fn prefetch(&self, at: u32) {
        prefetch_at(self.chunks.as_flattened(), at as usize);
    }

    /// Number of existing values.
    pub(crate) fn count(&self) -> usize {
        self.chunks.len() * ROWS
    }
}

impl<T, const ROWS: usize> Index<u32> for Chunks<T, ROWS> {
    type Output = T;

    #[inline]
    fn index(&self, at: u32) -> &T {
        &self.chunks.as_flattened()[at as usize]
    }
}

impl<T, const ROWS: usize> IndexMut<u32> for Chunks<T, ROWS> {
    #[inline]
    fn index_mut(&mut self, at: u32) -> &mut T {
        &mut self.chunks.as_flattened_mut()[at as usize]
    }
}

/// Copies of the chunks that were written since a checkpoint began.
#[derive(Clone, Debug)]
pub(crate) struct Shadow<T, const ROWS: usize> {
    /// The first chunk that is still to be read.
    from: usize,
    /// Chunks that are still to be read, from there on; 0 without a checkpoint.
    left: usize,
    /// By chunk.
    copies: Vec<Option<Box<[T; ROWS]>>>,
    /// Copies that are no longer needed, for reuse.
    spare: Vec<Box<[T; ROWS]>>,
}

impl<T: Copy, const ROWS: usize> Shadow<T, ROWS> {
    /// Creates the shadow without a checkpoint.
    pub(crate) fn none() -> Shadow<T, ROWS> {
        Shadow { from: 0, left: 0, copies: Vec::new(), spare: Vec::new() }
    }

    /// Starts a checkpoint of all existing values.
    pub(crate) fn begin(&mut self, chunks: &Chunks<T, ROWS>) {
        assert!(self.left == 0, "one checkpoint at a time");
        if self.copies.len() < chunks.chunks_max {
            self.copies.resize_with(chunks.chunks_max, || None);
            self.spare.reserve(chunks.chunks_max);
        }
        (self.from, self.left) = (0, chunks.chunks.len());
    }

    /// Must be called before each write.
    #[inline]
    pub(crate) fn before_write(&mut self, chunks: &Chunks<T, ROWS>, at: u32) {
        let chunk = at as usize / ROWS;
        if chunk.wrapping_sub(self.from) < self.left && self.copies[chunk].is_none() {
            self.copy(chunks, chunk);
        }
    }

    #[cold]
    fn copy(&mut self, chunks: &Chunks<T, ROWS>, chunk: usize) {
        let original = &chunks.chunks[chunk];
        let copy = match self.spare.pop() {
            Some(mut spare) => {
                spare.copy_from_slice(original);
                spare
            }
            None => Box::new(*original),
        };
        self.copies[chunk] = Some(copy);
    }

    /// Returns a value as it was when the checkpoint began, unless it was passed.
    pub(crate) fn read<'a>(&'a self, chunks: &'a Chunks<T, ROWS>, at: u32) -> &'a T {
        match self.copies.get(at as usize / ROWS) {
            Some(Some(copy)) => &copy[at as usize % ROWS],
            _ => &chunks[at],
        }
    }

    /// Marks the values before this one as read.
    pub(crate) fn pass(&mut self, at: u32) {
        let end = self.from + self.left;
        let from = (at as usize / ROWS).min(end);
        while self.from < from {
            self.spare.extend(self.copies[self.from].take());
            self.from += 1;
        }
        self.left = end - self.from;
    }

    /// Ends the checkpoint.
    pub(crate) fn end(&mut self) {
        self.pass(u32::MAX);
    }
}
