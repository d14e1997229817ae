//! Finds the row of a player by the player's id. The index is a hash table that grows by linear
//! hashing.
//!
//! A table that doubles has to move all its entries at once. This one grows by one bucket at a time
//! and moves only the entries of one old bucket, so no insertion pauses. A bucket is a cache line,
//! so a look-up waits for memory once. Entries that do not fit their bucket form a list through
//! `links`. The ids themselves are in the rows.

use crate::kit::chunks::{CHUNK_ROWS, CHUNK_WORDS, Chunks};
use crate::kit::mix;
use crate::runtime::prefetch::{WORDS, places_of};

/// Number of buckets of an empty index.
const BUCKETS_MIN: u32 = 4;

/// Average entries per bucket. At the end of a round, the buckets that are split last have twice as
/// many, and few have more entries than places.
const BUCKET_ENTRIES: u32 = 5;

/// Places of a bucket, which is a cache line. The last one holds the head of the list of entries
/// that did not fit.
const BUCKET_PLACES: usize = WORDS;
const LIST: usize = BUCKET_PLACES - 1;

/// Bits of an entry that hold a row's number plus one. The others are a tag from the hash of the
/// row's player, so that hardly any other player's row is read in vain.
const ROW_BITS: u32 = 18;
const TAG_MASK: u32 = !((1 << ROW_BITS) - 1);

/// Limit of row numbers in an index: the number of players in a full zone.
pub(crate) const ROWS_MAX: usize = 128 * 1024;
const _: () = assert!(ROWS_MAX < 1 << ROW_BITS);

/// A row with its tag; 0 if there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct IndexEntry(u32);

impl IndexEntry {
    fn new(hash: u64, row: u32) -> IndexEntry {
        IndexEntry(tag(hash) | (row + 1))
    }

    fn row(self) -> Option<u32> {
        (self.0 & !TAG_MASK).checked_sub(1)
    }

    fn tag(self) -> u32 {
        self.0 & TAG_MASK
    }
}

/// The words of its entries, which a look-up compares at once.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct Bucket([u32; BUCKET_PLACES]);

/// The result of the first step of a look-up, for the second one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lookup {
    bucket: u32,
    tag: u32,
}

fn tag(hash: u64) -> u32 {
    (hash >> 32) as u32 & TAG_MASK
}

fn hash_of(player_id: u64) -> u64 {
    mix::fold(player_id ^ 0x2545_f491_4f6c_dd1d, 0x9e37_79b9_7f4a_7c15)
}

/// Row numbers by player id.
#[derive(Clone, Debug)]
pub(crate) struct Index {
    buckets: Chunks<Bucket, CHUNK_ROWS>,
    /// By row, the next entry in its bucket's list.
    links: Chunks<IndexEntry, CHUNK_WORDS>,
    bucket_count: u32,
    /// Mask of the bits that number a bucket.
    mask: u32,
    len: u32,
}

impl Index {
    /// Creates an empty index for rows below `rows_max`.
    pub(crate) fn new(rows_max: usize) -> Index {
        let buckets_max = (rows_max as u32).div_ceil(BUCKET_ENTRIES) + BUCKETS_MIN;
        let mut buckets = Chunks::new(buckets_max as usize);
        buckets.reach(BUCKETS_MIN - 1);
        Index {
            buckets,
            links: Chunks::new(rows_max),
            bucket_count: BUCKETS_MIN,
            mask: BUCKETS_MIN - 1,
            len: 0,
        }
    }

    /// Number of entries.
    pub(crate) fn count(&self) -> u32 {
        self.len
    }

    fn bucket(&self, hash: u64) -> u32 {
        // Buckets below the split point of this round are addressed with one more bit than the
        // others.
        let at = hash as u32 & self.mask;
        if at < self.bucket_count { at } else { at & (self.mask >> 1) }
    }

    /// The first step of a look-up ahead of time: prefetches a player's bucket.
    #[inline]
    pub(crate) fn begin_lookup(&self, player_id: u64) -> Lookup {
        let hash = hash_of(player_id);
        let bucket = self.bucket(hash);
        self.buckets.prefetch(bucket);
        Lookup { bucket, tag: tag(hash) }
    }

    /// The second step: returns the row of the player if it is in its bucket; otherwise any number.
    #[inline]
    pub(crate) fn likely(&self, Lookup { bucket, tag }: Lookup) -> u32 {
        // Compares all places at once and without a branch, because no processor could predict the
        // matching one.
        let Bucket(places) = &self.buckets[bucket];
        let tagged = places_of(tag, TAG_MASK, places);
        let place = (tagged | 1 << LIST).trailing_zeros() as usize;
        IndexEntry(places[place]).row().unwrap_or(u32::MAX)
    }

    /// Returns the row of a player, if it is here. `id_of` reads a row's player.
    pub(crate) fn find(&self, player_id: u64, id_of: impl Fn(u32) -> u64) -> Option<u32> {
        let hash = hash_of(player_id);
        let entries = self.entries(self.bucket(hash)).filter(|entry| entry.tag() == tag(hash));
        entries.filter_map(IndexEntry::row).find(|row| id_of(*row) == player_id)
    }

    /// All places of a bucket, and after the last one its list; some are empty.
    fn entries(&self, bucket: u32) -> impl Iterator<Item = IndexEntry> + '_ {
        let Bucket(places) = &self.buckets[bucket];
        let next = |entry: &IndexEntry| Some(self.links[entry.row()?]);
        let list = std::iter::successors(Some(IndexEntry(places[LIST])), next);
        places[..LIST].iter().map(|word| IndexEntry(*word)).chain(list)
    }

    /// Adds a row that is not here yet. `id_of` must already return its player.
    pub(crate) fn insert(&mut self, player_id: u64, row: u32, id_of: impl Fn(u32) -> u64) {
        self.links.reach(row);
        self.push(hash_of(player_id), row);
        self.len += 1;
        if self.len > self.bucket_count * BUCKET_ENTRIES {
            self.split(&id_of);
        }
    }

    fn push(&mut self, hash: u64, row: u32) {
        let number = self.bucket(hash);
        let Bucket(places) = &mut self.buckets[number];
        let free = places.iter().position(|word| *word == 0);
        let IndexEntry(entry) = IndexEntry::new(hash, row);
        let before = std::mem::replace(&mut places[free.unwrap_or(LIST)], entry);
        self.links[row] = IndexEntry(before);
    }

    /// Adds a bucket and moves entries to it from the bucket that it splits.
    fn split(&mut self, id_of: impl Fn(u32) -> u64) {
        let added = self.bucket_count;
        let halved = added - (added + 1).next_power_of_two() / 2;
        self.buckets.reach(added);
        self.bucket_count += 1;
        self.mask = self.bucket_count.next_power_of_two() - 1;
        let Bucket(places) = std::mem::take(&mut self.buckets[halved]);
        for word in places {
            // Only the last place has a list after it.
            let mut entry = IndexEntry(word);
            while let Some(row) = entry.row() {
                entry = self.links[row];
                self.push(hash_of(id_of(row)), row);
            }
        }
    }

    /// Removes a row, which must be here.
    pub(crate) fn remove(&mut self, player_id: u64, row: u32) {
        self.len -= 1;
        let after = self.links[row];
        let number = self.bucket(hash_of(player_id));
        let Bucket(places) = &mut self.buckets[number];
        if let Some(word) = places.iter_mut().find(|word| IndexEntry(**word).row() == Some(row)) {
            *word = after.0;
            return;
        }
        let mut at = IndexEntry(places[LIST]);
        loop {
            let before = at.row().expect("a row of the index is in its bucket");
            at = self.links[before];
            if at.row() == Some(row) {
                self.links[before] = after;
                return;
            }
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
    fn hardly_anybody_in_a_full_index_stands_in_a_list() {
        for count in [50_000, 80_000, 100_000, ROWS_MAX as u32] {
            let mut index = Index::new(count as usize);
            (0..count).for_each(|row| index.insert(u64::from(row), row, u64::from));
            let entries = |bucket| index.entries(bucket).filter_map(IndexEntry::row).count();
            let listed = |bucket| entries(bucket).saturating_sub(BUCKET_PLACES);
            let listed: usize = (0..index.bucket_count).map(listed).sum();
            assert!(listed * 100 < count as usize, "{listed} of {count}");
        }
    }

    #[test]
    fn a_look_ahead_finds_almost_everybody() {
        let mut index = Index::new(100_000);
        (0..100_000).for_each(|row| index.insert(u64::from(row), row, u64::from));
        let found =
            (0..100_000).filter(|row| index.likely(index.begin_lookup(u64::from(*row))) == *row);
        assert!(found.count() > 99_000);
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
