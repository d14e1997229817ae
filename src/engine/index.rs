//! From player id to row number, by linear hashing.
//!
//! A table that doubles has to move everything at once; this one grows by two buckets with each
//! entry and moves only what one old bucket held, so no insertion ever pauses. Entries of a bucket
//! form a list through `links`; the ids themselves stay in the rows.

use crate::engine::chunks::Chunks;
use crate::engine::mix;
use crate::limits::{ACTORS_MAX, CHUNK_WORDS, TOMBSTONES_MAX};

/// Buckets of an empty index.
const BUCKETS_MIN: u32 = 64;

/// Half of the buckets are empty, so that most lists have one entry.
const BUCKETS_PER_ENTRY: u32 = 2;

/// Bits of an entry that hold a row's number plus one; the others are a tag, taken from the hash of
/// the row's player, so that hardly any row is read only to see that it is another one's.
const ROW_BITS: u32 = 18;
const _: () = assert!(ACTORS_MAX < 1 << ROW_BITS && TOMBSTONES_MAX < 1 << ROW_BITS);

/// A row with its tag; 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Entry(u32);

impl Entry {
    fn new(hash: u64, row: u32) -> Entry {
        Entry(tag(hash) | (row + 1))
    }

    /// The row; `u32::MAX` if there is none.
    fn place(self) -> u32 {
        (self.0 & ((1 << ROW_BITS) - 1)).wrapping_sub(1)
    }

    fn row(self) -> Option<u32> {
        (self.0 & ((1 << ROW_BITS) - 1)).checked_sub(1)
    }

    fn tag(self) -> u32 {
        self.0 & !((1 << ROW_BITS) - 1)
    }
}

/// What the first step of a look ahead tells the second one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Glance {
    first: Entry,
    tag: u32,
}

fn tag(hash: u64) -> u32 {
    (hash >> 32) as u32 & !((1 << ROW_BITS) - 1)
}

fn hash_of(player_id: u64) -> u64 {
    mix::fold(player_id ^ 0x2545_f491_4f6c_dd1d, 0x9e37_79b9_7f4a_7c15)
}

/// Row numbers by player id.
#[derive(Clone, Debug)]
pub struct Index {
    /// First entry of each bucket.
    heads: Chunks<Entry, CHUNK_WORDS>,
    /// By row: the next entry of its bucket.
    links: Chunks<Entry, CHUNK_WORDS>,
    buckets: u32,
    /// Ones for every bit that numbers a bucket.
    mask: u32,
    len: u32,
}

impl Index {
    /// No entries. Rows are numbered below `rows_max`.
    pub fn new(rows_max: usize) -> Index {
        let mut heads = Chunks::new(rows_max * BUCKETS_PER_ENTRY as usize + BUCKETS_MIN as usize);
        heads.reach(BUCKETS_MIN - 1);
        Index {
            heads,
            links: Chunks::new(rows_max),
            buckets: BUCKETS_MIN,
            mask: BUCKETS_MIN - 1,
            len: 0,
        }
    }

    /// Entries.
    pub fn count(&self) -> u32 {
        self.len
    }

    fn bucket(&self, hash: u64) -> u32 {
        // Buckets below the split point of this round are reached by one bit more than the others.
        let at = hash as u32 & self.mask;
        if at < self.buckets { at } else { at & (self.mask >> 1) }
    }

    /// The first step of a look ahead: the first entry of a player's bucket.
    #[inline]
    pub fn glance(&self, player_id: u64) -> Glance {
        let hash = hash_of(player_id);
        Glance { first: self.heads[self.bucket(hash)], tag: tag(hash) }
    }

    /// The second step: the row of the player, if it is here and one of the first two of its
    /// bucket; any number if not.
    #[inline]
    pub fn likely(&self, Glance { first, tag }: Glance) -> u32 {
        match first.tag() == tag {
            true => first.place(),
            false => self.links.get(first.place()).unwrap_or(&first).place(),
        }
    }

    /// The row of a player, if it is here. `id_of` reads a row's player.
    pub fn find(&self, player_id: u64, id_of: impl Fn(u32) -> u64) -> Option<u32> {
        let hash = hash_of(player_id);
        let mut entry = self.heads[self.bucket(hash)];
        while let Some(row) = entry.row() {
            if entry.tag() == tag(hash) && id_of(row) == player_id {
                return Some(row);
            }
            entry = self.links[row];
        }
        None
    }

    /// Adds a row, which must not be here. Its player must be readable by `id_of` already.
    pub fn insert(&mut self, player_id: u64, row: u32, id_of: impl Fn(u32) -> u64) {
        self.links.reach(row);
        self.push(hash_of(player_id), row);
        self.len += 1;
        while self.len * BUCKETS_PER_ENTRY > self.buckets {
            self.split(&id_of);
        }
    }

    fn push(&mut self, hash: u64, row: u32) {
        let bucket = self.bucket(hash);
        self.links[row] = self.heads[bucket];
        self.heads[bucket] = Entry::new(hash, row);
    }

    /// Adds a bucket and moves to it what belongs there from the one bucket that it halves.
    fn split(&mut self, id_of: impl Fn(u32) -> u64) {
        let added = self.buckets;
        let halved = added - (added + 1).next_power_of_two() / 2;
        self.heads.reach(added);
        self.buckets += 1;
        self.mask = self.buckets.next_power_of_two() - 1;
        let mut entry = std::mem::take(&mut self.heads[halved]);
        while let Some(row) = entry.row() {
            entry = self.links[row];
            self.push(hash_of(id_of(row)), row);
        }
    }

    /// Removes a row, which must be here.
    pub fn remove(&mut self, player_id: u64, row: u32) {
        let bucket = self.bucket(hash_of(player_id));
        let after = self.links[row];
        self.len -= 1;
        let mut at = self.heads[bucket].row().expect("a row of the index is in its bucket");
        if at == row {
            self.heads[bucket] = after;
            return;
        }
        loop {
            let next = self.links[at].row().expect("a row of the index is in its bucket");
            if next == row {
                self.links[at] = after;
                return;
            }
            at = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn every_size_from_one_to_ten_thousand_finds_what_was_inserted() {
        let ids: Vec<u64> = (0..10_000).map(|n| n * n + 17).collect();
        let mut index = Index::new(ids.len());
        for (row, id) in ids.iter().enumerate() {
            index.insert(*id, row as u32, |row| ids[row as usize]);
            let probe = row / 2;
            assert_eq!(index.find(ids[probe], |row| ids[row as usize]), Some(probe as u32));
        }
        for (row, id) in ids.iter().enumerate() {
            assert_eq!(index.find(*id, |row| ids[row as usize]), Some(row as u32));
        }
        assert_eq!(index.find(16, |row| ids[row as usize]), None);
    }

    #[test]
    fn no_bucket_of_a_full_index_is_long() {
        let mut index = Index::new(100_000);
        for row in 0..100_000 {
            index.insert(u64::from(row), row, u64::from);
        }
        let length = |bucket| {
            let mut entry = index.heads[bucket];
            let mut count = 0;
            while let Some(row) = entry.row() {
                count += 1;
                entry = index.links[row];
            }
            count
        };
        assert!((0..index.buckets).map(length).max().unwrap() <= 16);
    }

    proptest! {
        #[test]
        fn the_index_agrees_with_a_map(
            steps in prop::collection::vec((0u64..64, any::<bool>()), 1..400),
        ) {
            let mut rows: Vec<u64> = Vec::new();
            let mut model = BTreeMap::new();
            let mut index = Index::new(512);
            for (id, insert) in steps {
                match (insert, model.get(&id).copied()) {
                    (true, None) => {
                        let row = rows.len() as u32;
                        rows.push(id);
                        index.insert(id, row, |row| rows[row as usize]);
                        model.insert(id, row);
                    }
                    (false, Some(row)) => {
                        index.remove(id, row);
                        model.remove(&id);
                    }
                    _ => {}
                }
                prop_assert_eq!(index.count() as usize, model.len());
                for id in 0..64 {
                    let found = index.find(id, |row| rows[row as usize]);
                    prop_assert_eq!(found, model.get(&id).copied());
                }
            }
        }
    }
}
