//! Reads little-endian words from untrusted bytes.

/// A reader of words.
pub struct Words<'a> {
    left: &'a [u8],
}

impl<'a> Words<'a> {
    /// Creates a reader of these bytes.
    pub(crate) fn new(bytes: &'a [u8]) -> Words<'a> {
        Words { left: bytes }
    }

    /// Reads the next `COUNT` words; `None` if there are fewer.
    pub(crate) fn take<const COUNT: usize>(&mut self) -> Option<[u64; COUNT]> {
        let mut words = [0; COUNT];
        for word in &mut words {
            *word = self.word()?;
        }
        Some(words)
    }

    /// Returns `COUNT` words at this distance ahead of the next one; `None` if the bytes end
    /// before.
    pub(crate) fn ahead<const COUNT: usize>(&self, words: usize) -> Option<[u64; COUNT]> {
        let left = self.left.get(words * size_of::<u64>()..)?;
        Words { left }.take()
    }

    /// Reads the next word; `None` at the end.
    pub(crate) fn word(&mut self) -> Option<u64> {
        let (word, left) = self.left.split_first_chunk()?;
        self.left = left;
        Some(u64::from_le_bytes(*word))
    }
}
