//! The path cache of one hunt: from every tile the way to the nearest unopened treasure.
//!
//! Each tile is labelled with its distance and the treasure it leads to, found by a search from all
//! treasures at once. Opening a treasure only makes ways longer, so the labels that lead to other
//! treasures stay exact; those that lead to the opened one are stale from that moment, because the
//! treasure says so itself. Then, some tiles an event, they are cleared, beginning at the treasure,
//! and when all are, the search goes on from the labelled tiles around, nearest first.
//!
//! So a label whose treasure is unopened is exact, at any time; there is no other bookkeeping.

use crate::engine::mix;
use crate::engine::refusal::Hint;
use crate::engine::state::Words;
use crate::engine::table::{Identity, Row, Table};
use crate::engine::tiles::Tiles;
use crate::limits::{PATH_DISTANCE_MAX, TILES_PER_SIDE_MAX, TREASURES_MAX};

/// Bits that hold a tile's number plus one.
const LINK_BITS: u32 = 19;
const _: () = assert!(TILES_PER_SIDE_MAX * TILES_PER_SIDE_MAX < 1 << LINK_BITS);
const _: () = assert!(TREASURES_MAX <= 1 << 12 && PATH_DISTANCE_MAX < 1 << 10);
const LINK: u64 = (1 << LINK_BITS) - 1;

/// What is known of one tile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Label {
    known: bool,
    distance: u16,
    treasure: u16,
    /// In a bucket of the frontier.
    queued: bool,
    /// In the list of tiles to clear.
    clearing: bool,
    /// The next tile of the bucket, plus one; 0 is none.
    queue_link: u32,
    /// The next tile to clear, plus one; 0 is none.
    clear_link: u32,
}

impl Row<1> for Label {
    const IDENTITY: Identity = Identity::Number;

    fn to_words(&self) -> [u64; 1] {
        [u64::from(self.known)
            | u64::from(self.queued) << 1
            | u64::from(self.clearing) << 2
            | u64::from(self.distance) << 3
            | u64::from(self.treasure) << 13
            | u64::from(self.queue_link) << 25
            | u64::from(self.clear_link) << (25 + LINK_BITS)]
    }

    fn from_words([word]: [u64; 1]) -> Option<Label> {
        let label = Label {
            known: word & 1 != 0,
            queued: word & 2 != 0,
            clearing: word & 4 != 0,
            distance: (word >> 3 & 0x3ff) as u16,
            treasure: (word >> 13 & 0xfff) as u16,
            queue_link: (word >> 25 & LINK) as u32,
            clear_link: (word >> (25 + LINK_BITS) & LINK) as u32,
        };
        (label.to_words() == [word]).then_some(label)
    }
}

/// The first tile of a bucket, plus one; 0 is none.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Head(u32);

impl Row<1> for Head {
    const IDENTITY: Identity = Identity::Number;

    fn to_words(&self) -> [u64; 1] {
        [self.0.into()]
    }

    fn from_words([word]: [u64; 1]) -> Option<Head> {
        u32::try_from(word).ok().map(Head)
    }
}

pub(crate) const BUCKETS: u32 = PATH_DISTANCE_MAX + 1;

/// The cache. [`Path::prepare`] it, [`Path::seed`] every treasure, then [`Path::step`];
/// at the end [`Path::stop`] and [`Path::wipe`] it.
#[derive(Clone, Debug)]
pub struct Path {
    pub(crate) labels: Table<Label, 1>,
    /// The frontier: tiles whose neighbours are to be labelled, by distance.
    pub(crate) buckets: Table<Head, 1>,
    /// Tiles that are ready; the others have no labels.
    prepared: u32,
    /// No bucket below this one holds a tile.
    lowest: u32,
    /// The first tile to clear, plus one; 0 is none.
    clear_first: u32,
}

impl Path {
    /// A cache for one of the hunts' slots.
    pub fn new(tiles: u32, slot: u64) -> Path {
        let mut buckets = Table::new(BUCKETS as usize, 20 + slot);
        buckets.reach(BUCKETS - 1);
        let labels = Table::new(tiles as usize, 10 + slot);
        Path { labels, buckets, prepared: 0, lowest: BUCKETS, clear_first: 0 }
    }

    /// Ends the search: nothing waits any more. [`Path::wipe`] does the rest.
    pub fn stop(&mut self) {
        for bucket in self.lowest..BUCKETS {
            self.buckets.write(bucket, Head::default());
        }
        (self.lowest, self.clear_first) = (BUCKETS, 0);
    }

    /// Forgets what is known of one more tile; `false`: there is none left.
    pub fn wipe(&mut self) -> bool {
        let Some(tile) = self.prepared.checked_sub(1) else {
            return false;
        };
        self.labels.write(tile, Label::default());
        self.prepared = tile;
        true
    }

    /// Makes one more tile ready; `false`: all are.
    pub fn prepare(&mut self, tiles: &Tiles) -> bool {
        if self.prepared == tiles.count() {
            return false;
        }
        self.labels.reach(self.prepared);
        self.prepared += 1;
        true
    }

    /// Whether no tile is.
    pub fn is_wiped(&self) -> bool {
        self.prepared == 0
    }

    /// Whether every tile is ready.
    pub fn is_prepared(&self, tiles: &Tiles) -> bool {
        self.prepared == tiles.count()
    }

    /// Tells where a treasure lies. All are told before the first step.
    pub fn seed(&mut self, tile: u32, treasure: u16) {
        let label = Label { known: true, treasure, ..*self.labels.row(tile) };
        self.labels.write(tile, label);
        self.queue(tile);
    }

    /// Tells that the treasure of a tile was opened.
    pub fn open(&mut self, tile: u32) {
        let seeded = tile < self.prepared && self.labels.row(tile).known;
        if seeded && !self.labels.row(tile).clearing {
            self.clear_later(tile);
        }
    }

    /// Works on one tile; `false`: there is nothing to do. `lies` tells which treasures are
    /// unopened.
    pub fn step(&mut self, tiles: &Tiles, lies: impl Fn(u16) -> bool) -> bool {
        if let Some(tile) = self.clear_first.checked_sub(1) {
            self.clear(tile, tiles, lies);
            return true;
        }
        while self.lowest < BUCKETS && self.buckets.row(self.lowest).0 == 0 {
            self.lowest += 1;
        }
        if self.lowest == BUCKETS {
            return false;
        }
        self.expand(tiles, lies);
        true
    }

    fn clear(&mut self, tile: u32, tiles: &Tiles, lies: impl Fn(u16) -> bool) {
        let label = *self.labels.row(tile);
        self.clear_first = label.clear_link;
        let cleared =
            Label { queued: label.queued, queue_link: label.queue_link, ..Label::default() };
        self.labels.write(tile, cleared);
        for near in neighbours(tiles, tile) {
            let label = *self.labels.row(near);
            match label.known {
                true if lies(label.treasure) => self.queue(near),
                true if !label.clearing => self.clear_later(near),
                _ => {}
            }
        }
    }

    fn clear_later(&mut self, tile: u32) {
        let label = *self.labels.row(tile);
        let clear_link = self.clear_first;
        self.labels.write(tile, Label { clearing: true, clear_link, ..label });
        self.clear_first = tile + 1;
    }

    /// Adds a labelled tile to the frontier. One that is still in the bucket of an older, shorter
    /// distance stays there, and is moved on when its turn comes.
    fn queue(&mut self, tile: u32) {
        let label = *self.labels.row(tile);
        if label.queued {
            return;
        }
        let bucket = u32::from(label.distance);
        let queue_link = self.buckets.row(bucket).0;
        self.labels.write(tile, Label { queued: true, queue_link, ..label });
        self.buckets.write(bucket, Head(tile + 1));
        self.lowest = self.lowest.min(bucket);
    }

    fn expand(&mut self, tiles: &Tiles, lies: impl Fn(u16) -> bool) {
        let bucket = self.lowest;
        let tile = self.buckets.row(bucket).0 - 1;
        let label = *self.labels.row(tile);
        self.buckets.write(bucket, Head(label.queue_link));
        self.labels.write(tile, Label { queued: false, queue_link: 0, ..label });
        if !label.known || !lies(label.treasure) {
            return;
        }
        if u32::from(label.distance) > bucket {
            self.queue(tile);
            return;
        }
        if bucket == PATH_DISTANCE_MAX {
            return;
        }
        for near in neighbours(tiles, tile) {
            let old = *self.labels.row(near);
            if !old.known && !tiles.is_wall(near) {
                let distance = label.distance + 1;
                let new = Label { known: true, distance, treasure: label.treasure, ..old };
                self.labels.write(near, new);
                self.queue(near);
            }
        }
    }

    /// The next step from a tile and the number of steps; stale with 0 steps while that is not
    /// known.
    pub fn hint(&self, tiles: &Tiles, tile: u32, lies: impl Fn(u16) -> bool) -> (Hint, u16) {
        if !self.is_prepared(tiles) {
            return (Hint::Stale, 0);
        }
        let label = self.labels.row(tile);
        if !label.known || !lies(label.treasure) {
            return (Hint::Stale, 0);
        }
        if label.distance == 0 {
            return (Hint::Here, 0);
        }
        let (column, row) = tiles.place(tile);
        for (hint, step_x, step_y) in STEPS {
            let near = tiles.numbered(column + step_x, row + step_y);
            let exact = near.map(|near| self.labels.row(near)).filter(|near| {
                near.known && near.distance + 1 == label.distance && lies(near.treasure)
            });
            if exact.is_some() {
                return (hint, label.distance);
            }
        }
        unreachable!("the tile that a label came from has the same treasure and keeps its label")
    }

    /// Tiles that are ready, the first tile to clear, the lowest bucket: what a capture notes at
    /// once. Labels of all those tiles follow, then all buckets from that one on.
    pub(crate) fn noted(&self) -> [u32; 3] {
        [self.prepared, self.clear_first, self.lowest]
    }

    /// Takes over what a capture told. `None`: the words are no cache of these tiles and
    /// treasures.
    pub fn decode(&mut self, tiles: u32, treasures: u16, words: &mut Words) -> Option<()> {
        let number = |word: u64, max: u32| u32::try_from(word).ok().filter(|at| *at <= max);
        self.prepared = number(words.word()?, tiles)?;
        self.clear_first = number(words.word()?, self.prepared)?;
        self.lowest = number(words.word()?, BUCKETS)?;
        for tile in 0..self.prepared {
            let label = Label::from_words(words.take()?)?;
            let linked = label.queue_link.max(label.clear_link) <= tiles;
            if !linked || (label.known && label.treasure >= treasures) {
                return None;
            }
            self.labels.reach(tile);
            self.labels.write(tile, label);
        }
        for bucket in self.lowest..BUCKETS {
            let head = Head(number(words.word()?, self.prepared)?);
            self.buckets.write(bucket, head);
        }
        Some(())
    }

    /// Hash of the whole cache.
    pub fn digest(&self) -> u64 {
        let lists = u64::from(self.clear_first) | u64::from(self.lowest) << 32;
        let at = mix::fold(lists ^ 0x9e37_79b9_7f4a_7c15, u64::from(self.prepared) + 1);
        self.labels.digest().wrapping_add(self.buckets.digest()).wrapping_add(at)
    }
}

const STEPS: [(Hint, i32, i32); 4] =
    [(Hint::East, 1, 0), (Hint::North, 0, 1), (Hint::West, -1, 0), (Hint::South, 0, -1)];

fn neighbours(tiles: &Tiles, tile: u32) -> impl Iterator<Item = u32> + use<> {
    let (column, row) = tiles.place(tile);
    STEPS
        .map(|(_, step_x, step_y)| tiles.numbered(column + step_x, row + step_y))
        .into_iter()
        .flatten()
}
