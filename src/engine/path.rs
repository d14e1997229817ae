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
use crate::engine::table::{Column, Identity, Row};
use crate::engine::tiles::Tiles;
use crate::limits::{PATH_DISTANCE_MAX, TILES_PER_SIDE_MAX, TREASURES_MAX};
use std::hint::black_box;

/// Bits that hold a tile's number plus one.
const LINK_BITS: u32 = 19;
const _: () = assert!(TILES_PER_SIDE_MAX * TILES_PER_SIDE_MAX < 1 << LINK_BITS);
const _: () = assert!(TREASURES_MAX <= 1 << 12 && PATH_DISTANCE_MAX < 1 << 10);

/// What is known of one tile, in one word: a step of the search reads five tiles and writes as
/// many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Label(u64);

/// A part of a label: its lowest bit, and how many.
#[derive(Clone, Copy)]
struct Part(u32, u32);

const KNOWN: u64 = 1;
/// In a bucket of the frontier.
const QUEUED: u64 = 2;
/// In the list of tiles to clear.
const CLEARING: u64 = 4;
const DISTANCE: Part = Part(3, 10);
const TREASURE: Part = Part(13, 12);
/// The next tile of the bucket, plus one; 0 is none.
const QUEUE_LINK: Part = Part(25, LINK_BITS);
/// The next tile to clear, plus one; 0 is none.
const CLEAR_LINK: Part = Part(25 + LINK_BITS, LINK_BITS);

impl Part {
    const fn mask(self) -> u64 {
        ((1 << self.1) - 1) << self.0
    }
}

impl Label {
    fn is(self, flag: u64) -> bool {
        self.0 & flag != 0
    }

    fn get(self, part: Part) -> u32 {
        ((self.0 & part.mask()) >> part.0) as u32
    }

    fn distance(self) -> u32 {
        self.get(DISTANCE)
    }

    fn treasure(self) -> u16 {
        self.get(TREASURE) as u16
    }

    /// Known, so far away from this treasure; whether and where it waits stays as it was.
    fn known(self, distance: u32, treasure: u16) -> Label {
        let waiting = self.0 & !(DISTANCE.mask() | TREASURE.mask());
        let distance = u64::from(distance) << DISTANCE.0;
        Label(waiting | KNOWN | distance | u64::from(treasure) << TREASURE.0)
    }

    /// In a bucket, before the tile that was its first.
    fn queued(self, first: u32) -> Label {
        Label(self.0 & !QUEUE_LINK.mask() | QUEUED | u64::from(first) << QUEUE_LINK.0)
    }

    /// In no bucket.
    fn unqueued(self) -> Label {
        Label(self.0 & !(QUEUED | QUEUE_LINK.mask()))
    }

    /// In the list of tiles to clear, before the one that was its first.
    fn clearing(self, first: u32) -> Label {
        Label(self.0 & !CLEAR_LINK.mask() | CLEARING | u64::from(first) << CLEAR_LINK.0)
    }

    /// Forgotten, but for its bucket.
    fn cleared(self) -> Label {
        Label(self.0 & (QUEUED | QUEUE_LINK.mask()))
    }
}

impl Row<1> for Label {
    const IDENTITY: Identity = Identity::Number;

    fn to_words(&self) -> [u64; 1] {
        [self.0]
    }

    fn from_words([word]: [u64; 1]) -> Option<Label> {
        (word >> (CLEAR_LINK.0 + CLEAR_LINK.1) == 0).then_some(Label(word))
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
    pub(crate) labels: Column<Label>,
    /// The frontier: tiles whose neighbours are to be labelled, by distance.
    pub(crate) buckets: Column<Head>,
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
        let mut buckets = Column::new(BUCKETS as usize, 20 + slot);
        buckets.reach(BUCKETS - 1);
        let labels = Column::new(tiles as usize, 10 + slot);
        Path { labels, buckets, prepared: 0, lowest: BUCKETS, clear_first: 0 }
    }

    /// Ends the search: nothing waits any more. [`Path::wipe`] does the rest.
    pub fn stop(&mut self) {
        for bucket in self.lowest..BUCKETS {
            if self.buckets.row(bucket).0 != 0 {
                self.buckets.write(bucket, Head::default());
            }
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
        self.labels.write(tile, self.labels.row(tile).known(0, treasure));
        self.queue(tile);
    }

    /// Tells that the treasure of a tile was opened.
    pub fn open(&mut self, tile: u32) {
        if tile < self.prepared {
            let label = self.labels.row(tile);
            if label.is(KNOWN) && !label.is(CLEARING) {
                self.clear_later(tile, label);
            }
        }
    }

    /// Works on one tile; `false`: there is nothing to do. `lies` tells which treasures are
    /// unopened.
    #[inline]
    pub fn step(&mut self, tiles: &Tiles, lies: impl Fn(u16) -> bool) -> bool {
        if let Some(tile) = self.clear_first.checked_sub(1) {
            self.clear(tile, tiles, lies);
            self.touch_next(tiles);
            return true;
        }
        while self.lowest < BUCKETS && self.buckets.row(self.lowest).0 == 0 {
            self.lowest += 1;
        }
        if self.lowest == BUCKETS {
            return false;
        }
        self.expand(tiles, lies);
        self.touch_next(tiles);
        true
    }

    /// Reads what the next step will most likely need, so that it is in the cache by then.
    fn touch_next(&self, tiles: &Tiles) {
        let first = match self.clear_first {
            0 => self.buckets.row(self.lowest.min(PATH_DISTANCE_MAX)).0,
            first => first,
        };
        let (tile, side) = (first.saturating_sub(1), tiles.side() as u32);
        for near in [tile, tile.wrapping_sub(side), tile + side] {
            black_box(self.labels.get(near));
        }
    }

    fn clear(&mut self, tile: u32, tiles: &Tiles, lies: impl Fn(u16) -> bool) {
        let label = self.labels.row(tile);
        self.clear_first = label.get(CLEAR_LINK);
        self.labels.write(tile, label.cleared());
        for near in tiles.neighbours(tile).into_iter().flatten() {
            let label = self.labels.row(near);
            if !label.is(KNOWN) {
                continue;
            }
            if lies(label.treasure()) {
                self.queue(near);
            } else if !label.is(CLEARING) {
                self.clear_later(near, label);
            }
        }
    }

    fn clear_later(&mut self, tile: u32, label: Label) {
        self.labels.write(tile, label.clearing(self.clear_first));
        self.clear_first = tile + 1;
    }

    /// Adds a labelled tile to the frontier. One that is still in the bucket of an older, shorter
    /// distance stays there, and is moved on when its turn comes.
    fn queue(&mut self, tile: u32) {
        let label = self.labels.row(tile);
        if label.is(QUEUED) {
            return;
        }
        let bucket = label.distance();
        self.labels.write(tile, label.queued(self.buckets.row(bucket).0));
        self.buckets.write(bucket, Head(tile + 1));
        self.lowest = self.lowest.min(bucket);
    }

    fn expand(&mut self, tiles: &Tiles, lies: impl Fn(u16) -> bool) {
        let bucket = self.lowest;
        let tile = self.buckets.row(bucket).0 - 1;
        let label = self.labels.row(tile);
        self.buckets.write(bucket, Head(label.get(QUEUE_LINK)));
        self.labels.write(tile, label.unqueued());
        let treasure = label.treasure();
        if !label.is(KNOWN) || !lies(treasure) {
            return;
        }
        if label.distance() > bucket {
            self.queue(tile);
            return;
        }
        if bucket == PATH_DISTANCE_MAX {
            return;
        }
        // All that is found here goes to one bucket, so its head is written once.
        let next = bucket + 1;
        let before = self.buckets.row(next).0;
        let mut first = before;
        for near in tiles.neighbours(tile).into_iter().flatten() {
            let old = self.labels.row(near);
            if old.is(KNOWN) || tiles.is_wall(near) {
                continue;
            }
            let mut new = old.known(next, treasure);
            if !old.is(QUEUED) {
                new = new.queued(first);
                first = near + 1;
            }
            self.labels.write(near, new);
        }
        if first != before {
            self.buckets.write(next, Head(first));
        }
    }

    /// The next step from a tile and the number of steps; stale with 0 steps while that is not
    /// known.
    pub fn hint(&self, tiles: &Tiles, tile: u32, lies: impl Fn(u16) -> bool) -> (Hint, u16) {
        if !self.is_prepared(tiles) {
            return (Hint::Stale, 0);
        }
        let label = self.labels.row(tile);
        if !label.is(KNOWN) || !lies(label.treasure()) {
            return (Hint::Stale, 0);
        }
        let distance = label.distance();
        if distance == 0 {
            return (Hint::Here, 0);
        }
        for (hint, near) in HINTS.into_iter().zip(tiles.neighbours(tile)) {
            let exact = near.map(|near| self.labels.row(near)).filter(|near| {
                near.is(KNOWN) && near.distance() + 1 == distance && lies(near.treasure())
            });
            if exact.is_some() {
                return (hint, distance as u16);
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
            let linked = label.get(QUEUE_LINK).max(label.get(CLEAR_LINK)) <= tiles;
            if !linked || (label.is(KNOWN) && label.treasure() >= treasures) {
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

/// In the order of a tile's neighbours.
const HINTS: [Hint; 4] = [Hint::East, Hint::North, Hint::West, Hint::South];
