//! The path cache of one hunt: the path from every tile to the nearest unopened treasure.
//!
//! A search starts from all unopened treasures at once and finds the distance of every tile, in
//! order of increasing distance. Each tile is a bit, so a few operations on words find the tiles
//! next to a strip of 64. There are two maps. The search fills one of them, a piece of work at a
//! time, while hints are read from the other, finished one. Then the two are swapped. If treasures
//! were opened in the meantime, the next search begins.
//!
//! Opened treasures never close. So a distance in a finished map is exact as long as the treasure
//! that it leads to is unopened. A hint follows the distances down to check this. If the treasure
//! has been opened, the hint is stale.
//!
//! Two things determine the result of a search: which treasures it seeks, and how many pieces of
//! work are counted. Only they are state; the maps are computed from them. So the work runs ahead
//! of the count, many pieces at a time: between two pieces, a daemon with many zones loses a zone's
//! maps from its caches.

use crate::hunt::hunts::TREASURES_MAX;
use crate::hunt::refusal::Hint;
use crate::hunt::tables;
use crate::hunt::tiles::{STRIP_TILES, TILES_PER_SIDE_MAX, Tiles};
use crate::kit::checkpoint::Checkpoint;
use crate::kit::mix;
use crate::kit::words::Words;

/// Strips of 64 tiles in one piece of the path search: some 300 ns.
pub(crate) const PATH_STRIPS_PER_PIECE: u32 = 16;

/// Pieces that a search does at once, ahead of their count: some 10 us.
const PIECES_AHEAD: u32 = 32;

/// Largest distance to a treasure that the path cache can hold: on a map without walls, no path is
/// longer.
pub(crate) const PATH_DISTANCE_MAX: u32 = 1023;
const _: () = assert!(2 * (TILES_PER_SIDE_MAX - 1) <= PATH_DISTANCE_MAX);

/// Words of a set of treasures.
pub(crate) const SET_WORDS: usize = TREASURES_MAX / 64;

/// A set of a hunt's treasures, one bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TreasureSet([u64; SET_WORDS]);

impl TreasureSet {
    /// The empty set.
    pub(crate) const NONE: TreasureSet = TreasureSet([0; SET_WORDS]);

    /// Adds or removes a treasure.
    pub(crate) fn set(&mut self, number: u16, lies: bool) {
        let word = &mut self.0[usize::from(number) / 64];
        *word = *word & !(1 << (number % 64)) | u64::from(lies) << (number % 64);
    }

    /// Returns the first treasure in the set from a number on.
    fn next(&self, number: u32) -> Option<u32> {
        let mut at = number as usize / 64;
        let mut bits = self.0.get(at)? & u64::MAX << (number % 64);
        while bits == 0 {
            at += 1;
            bits = *self.0.get(at)?;
        }
        Some(at as u32 * 64 + bits.trailing_zeros())
    }

    fn hash(&self) -> u64 {
        mix::hash(&self.0, mix::KEYS[2])
    }
}

/// The results of a search for the tiles of a strip, one bit each.
///
/// Two neighbours' distances differ by at most one, so two binary digits show which is nearer, and
/// following the nearer neighbours counts the whole distance.
#[derive(Clone, Copy, Debug, Default)]
struct Strip {
    reached: u64,
    digits: [u64; 2],
}

/// The results of a search, by strip.
#[derive(Clone, Debug)]
struct DistanceMap(Vec<Strip>);

impl DistanceMap {
    /// Returns the last two binary digits of a tile's distance; `None` if the search has not
    /// reached it.
    #[inline]
    fn digits(&self, tile: u32) -> Option<u16> {
        let (strip, bit) = (&self.0[(tile / STRIP_TILES) as usize], tile % STRIP_TILES);
        let digit = |word: u64| (word >> bit & 1) as u16;
        (digit(strip.reached) == 1).then(|| digit(strip.digits[0]) | digit(strip.digits[1]) << 1)
    }

    /// Stores the distance of these tiles of a strip.
    #[inline]
    fn reach(&mut self, strip: u32, tiles: u64, distance: u16) {
        let Strip { reached, digits: [low, high] } = &mut self.0[strip as usize];
        *reached |= tiles;
        *low |= tiles & u64::from(distance & 1).wrapping_neg();
        *high |= tiles & u64::from(distance >> 1 & 1).wrapping_neg();
    }

    /// Returns the direction and number of a neighbour that is one step nearer; `None` if there is
    /// a treasure here.
    #[inline]
    fn nearer(&self, tiles: &Tiles, tile: u32) -> Option<(Hint, u32)> {
        let wanted = self.digits(tile)?.wrapping_sub(1) & 3;
        HINTS.into_iter().zip(tiles.neighbours(tile)).find_map(|(way, near)| {
            let near = near.filter(|near| self.digits(*near) == Some(wanted))?;
            Some((way, near))
        })
    }
}

/// The tiles at one distance.
#[derive(Clone, Debug)]
struct Front {
    /// By strip, a bit per tile.
    strips: Vec<u64>,
    /// Bitmap of non-empty strips.
    used: Vec<u64>,
}

impl Front {
    fn new(strips: u32) -> Front {
        let words = strips.div_ceil(u64::BITS);
        Front { strips: vec![0; strips as usize], used: vec![0; words as usize] }
    }

    fn is_empty(&self) -> bool {
        self.used.iter().all(|word| *word == 0)
    }

    #[inline]
    fn add(&mut self, strip: u32, tiles: u64) {
        self.strips[strip as usize] |= tiles;
        self.used[(strip / u64::BITS) as usize] |= 1 << (strip % u64::BITS);
    }

    fn clear(&mut self) {
        for (word, used) in self.used.iter_mut().enumerate() {
            while *used != 0 {
                self.strips[word * u64::BITS as usize + used.trailing_zeros() as usize] = 0;
                *used &= *used - 1;
            }
        }
    }
}

/// The next step of a search.
#[derive(Clone, Copy, Debug)]
enum SearchPhase {
    /// Clears this strip of the map and those after it.
    Clear(u32),
    /// Starts from this treasure and those after it.
    Seed(u32),
    /// Spreads from the tiles at one distance to those at the next one, in the remaining strips of
    /// a word and in the words after it.
    Spread { distance: u16, word: u32, left: u64 },
}

/// A search and its progress.
#[derive(Clone, Debug)]
struct Search {
    sought: TreasureSet,
    hash: u64,
    /// Pieces of work counted.
    pieces: u32,
}

/// The work of the running search, which is ahead of its count.
#[derive(Clone, Copy, Debug, Default)]
struct WorkDone {
    /// Pieces that are done.
    pieces: u32,
    /// True once there is no work left.
    is_all: bool,
}

/// The cache. [`Path::seek`] all treasures, then [`Path::work`]; at the end [`Path::stop`].
#[derive(Clone, Debug)]
pub(crate) struct Path {
    /// The search of the finished map, and the running one; `None` if there is none.
    finished: Option<Search>,
    running: Option<Search>,
    work_done: WorkDone,
    phase: SearchPhase,
    finished_map: DistanceMap,
    running_map: DistanceMap,
    /// The tiles at the current distance, and at the next one.
    front: Front,
    next_front: Front,
}

impl Path {
    /// Creates the cache of one hunt slot.
    pub(crate) fn new(tiles: u32) -> Path {
        let strips = tiles.div_ceil(STRIP_TILES);
        Path {
            finished: None,
            running: None,
            work_done: WorkDone::default(),
            phase: SearchPhase::Clear(0),
            finished_map: DistanceMap(vec![Strip::default(); strips as usize]),
            running_map: DistanceMap(vec![Strip::default(); strips as usize]),
            front: Front::new(strips),
            next_front: Front::new(strips),
        }
    }

    /// Drops the searches.
    pub(crate) fn stop(&mut self) {
        (self.finished, self.running) = (None, None);
    }

    /// Starts a search for these treasures, unless one is running or the finished one was for the
    /// same. Returns false if there is nothing to search for.
    pub(crate) fn seek(&mut self, treasures: &TreasureSet) -> bool {
        if self.running.is_none() {
            if self.finished.as_ref().is_some_and(|search| search.sought == *treasures) {
                return false;
            }
            self.begin(*treasures);
        }
        true
    }

    fn begin(&mut self, sought: TreasureSet) {
        self.running = Some(Search { sought, hash: sought.hash(), pieces: 0 });
        self.work_done = WorkDone::default();
        self.phase = SearchPhase::Clear(0);
    }

    /// Counts one piece of work of the running search, if any. `tile_of` returns the tile of a
    /// treasure, opened or not.
    pub(crate) fn work(&mut self, tiles: &Tiles, tile_of: impl Fn(u32) -> u32) {
        let Some(search) = &mut self.running else { return };
        search.pieces += 1;
        let counted = search.pieces;
        if self.work_done.pieces < counted {
            let sought = search.sought;
            for _ in 0..PIECES_AHEAD {
                self.do_piece(tiles, &sought, &tile_of);
                if self.work_done.is_all {
                    break;
                }
            }
        }
        if self.work_done.is_all && self.work_done.pieces == counted {
            std::mem::swap(&mut self.finished_map, &mut self.running_map);
            self.finished = self.running.take();
        }
    }

    fn do_piece(&mut self, tiles: &Tiles, sought: &TreasureSet, tile_of: impl Fn(u32) -> u32) {
        self.work_done.pieces += 1;
        let mut left = PATH_STRIPS_PER_PIECE;
        while left > 0 && !self.work_done.is_all {
            left -= 1;
            match self.phase {
                SearchPhase::Clear(strip) => self.clear(strip),
                SearchPhase::Seed(number) => self.seed(tiles, sought.next(number), &tile_of),
                SearchPhase::Spread { distance, word, left: 0 } => {
                    self.next_word(tiles, distance, word + 1);
                }
                SearchPhase::Spread { distance, word, left: strips } => {
                    let count = strips.count_ones().min(left + 1);
                    self.spread(tiles, distance, word, strips, count);
                    left -= count - 1;
                }
            }
        }
    }

    fn clear(&mut self, strip: u32) {
        self.running_map.0[strip as usize] = Strip::default();
        let is_last = strip as usize + 1 == self.running_map.0.len();
        self.phase = if is_last { SearchPhase::Seed(0) } else { SearchPhase::Clear(strip + 1) };
        if strip == 0 {
            self.front.clear();
            self.next_front.clear();
        }
    }

    fn seed(&mut self, tiles: &Tiles, number: Option<u32>, tile_of: impl Fn(u32) -> u32) {
        match number {
            Some(number) => {
                let tile = tile_of(number);
                let (strip, bit) = (tile / STRIP_TILES, 1 << (tile % STRIP_TILES));
                self.running_map.reach(strip, bit, 0);
                self.next_front.add(strip, bit);
                self.phase = SearchPhase::Seed(number + 1);
            }
            None => self.advance(tiles, 1),
        }
    }

    /// Continues from the tiles found last to those at this distance.
    fn advance(&mut self, tiles: &Tiles, distance: u16) {
        std::mem::swap(&mut self.front, &mut self.next_front);
        self.next_front.clear();
        self.phase = self.spread_from(tiles, distance, 0);
    }

    fn spread_from(&self, tiles: &Tiles, distance: u16, word: u32) -> SearchPhase {
        SearchPhase::Spread { distance, word, left: tiles.strips_beside(&self.front.used, word) }
    }

    /// Continues with a word of strips or, after the last one, with the next distance, if there is
    /// one.
    fn next_word(&mut self, tiles: &Tiles, distance: u16, word: u32) {
        if (word as usize) < self.front.used.len() {
            self.phase = self.spread_from(tiles, distance, word);
        } else if self.next_front.is_empty() || u32::from(distance) == PATH_DISTANCE_MAX {
            self.work_done.is_all = true;
        } else {
            self.advance(tiles, distance + 1);
        }
    }

    /// Processes the first few of a word's strips.
    fn spread(&mut self, tiles: &Tiles, distance: u16, word: u32, mut left: u64, count: u32) {
        for _ in 0..count {
            let strip = word * u64::BITS + left.trailing_zeros();
            left &= left - 1;
            let room = tiles.free_of_walls(strip) & !self.running_map.0[strip as usize].reached;
            let new = if room == 0 { 0 } else { tiles.next_to(&self.front.strips, strip) & room };
            if new != 0 {
                self.running_map.reach(strip, new, distance);
                self.next_front.add(strip, new);
            }
        }
        self.phase = SearchPhase::Spread { distance, word, left };
    }

    /// Returns the next step from a tile and the number of steps; stale with 0 steps if unknown.
    /// `lies` returns whether the treasure on a tile is still unopened.
    pub(crate) fn hint(&self, tiles: &Tiles, tile: u32, lies: impl Fn(u32) -> bool) -> (Hint, u16) {
        let map = &self.finished_map;
        if self.finished.is_none() || map.digits(tile).is_none() {
            return (Hint::Stale, 0);
        }
        let (mut hint, mut at, mut distance) = (Hint::Here, tile, 0);
        while let Some((way, near)) = map.nearer(tiles, at) {
            hint = if distance == 0 { way } else { hint };
            at = near;
            distance += 1;
        }
        if lies(at) { (hint, distance) } else { (Hint::Stale, 0) }
    }

    /// Appends the cache's state to a checkpoint.
    pub(crate) fn note(&self, instance: u8, checkpoint: &mut Checkpoint) {
        let searches = self.searches();
        let pieces = searches.map(|search| search.as_ref().map_or(0, Search::to_word));
        checkpoint.note((tables::SEARCHES, instance), 1, pieces);
        let sought = searches.into_iter().flatten();
        let rows = sought.clone().count() as u32;
        let words = sought.flat_map(|Search { sought, hash: _, pieces: _ }| sought.0);
        checkpoint.note((tables::SOUGHT, instance), rows, words);
    }

    /// Restores the state from a checkpoint, and searches again. `tile_of` returns the tile of a
    /// treasure that was laid. `None` if the words are not a cache of these treasures.
    pub(crate) fn decode(
        &mut self,
        tiles: &Tiles,
        words: &mut Words,
        tile_of: impl Fn(u32) -> Option<u32>,
    ) -> Option<()> {
        let [finished, running] = words.take()?;
        for (word, is_running) in [(finished, false), (running, true)] {
            let Some(pieces) = word.checked_sub(1) else { continue };
            let sought = TreasureSet(words.take()?);
            let mut number = sought.next(0);
            while let Some(treasure) = number {
                tile_of(treasure)?;
                number = sought.next(treasure + 1);
            }
            self.begin(sought);
            for _ in 0..pieces {
                self.running.as_ref()?;
                self.work(tiles, |treasure| tile_of(treasure).expect("all were looked up"));
            }
            if self.running.is_some() != is_running {
                return None;
            }
        }
        Some(())
    }

    /// Hash of the whole cache.
    pub(crate) fn digest(&self) -> u64 {
        let words = |search: &Option<Search>| match search {
            None => [0, 0],
            Some(search @ Search { sought: _, hash, pieces: _ }) => [search.to_word(), *hash],
        };
        let [finished, running] = self.searches().map(words);
        mix::hash(&[finished[0], finished[1], running[0], running[1]], mix::KEYS[4])
    }

    /// Everything that determines the cache; the rest is derived.
    fn searches(&self) -> [&Option<Search>; 2] {
        let Path {
            finished,
            running,
            work_done: _,
            phase: _,
            finished_map: _,
            running_map: _,
            front: _,
            next_front: _,
        } = self;
        [finished, running]
    }
}

impl Search {
    /// Returns the pieces of work plus one; 0 means no search.
    fn to_word(&self) -> u64 {
        u64::from(self.pieces) + 1
    }
}

/// The hints in the order of a tile's neighbours.
const HINTS: [Hint; 4] = [Hint::East, Hint::North, Hint::West, Hint::South];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hunt::rules::Map;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    /// Distances from every tile to the nearest treasure, by a simple search.
    fn distances(tiles: &Tiles, treasures: &[u32]) -> Vec<Option<u16>> {
        let mut found = vec![None; tiles.count() as usize];
        let mut queue: VecDeque<u32> = treasures.iter().copied().collect();
        treasures.iter().for_each(|tile| found[*tile as usize] = Some(0));
        while let Some(tile) = queue.pop_front() {
            for near in tiles.neighbours(tile).into_iter().flatten() {
                if !tiles.is_wall(near) && found[near as usize].is_none() {
                    found[near as usize] = found[tile as usize].map(|distance: u16| distance + 1);
                    queue.push_back(near);
                }
            }
        }
        found
    }

    fn search(path: &mut Path, tiles: &Tiles, treasures: &[u32]) {
        let mut sought = TreasureSet::NONE;
        (0..treasures.len() as u16).for_each(|number| sought.set(number, true));
        assert!(path.seek(&sought));
        while path.running.is_some() {
            path.work(tiles, |number| treasures[number as usize]);
        }
        assert!(!path.seek(&sought));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Several searches in one cache do not disturb each other.
        #[test]
        fn on_maps_of_every_size_a_search_finds_what_a_plain_one_does(
            side_bits in 2u32..=9,
            walls: Vec<u32>,
            searches in prop::collection::vec(prop::collection::vec(any::<u32>(), 0..40), 1..3),
        ) {
            let tiles_per_side = 1 << side_bits;
            let count = tiles_per_side * tiles_per_side;
            let mut world =
                Map { tiles_per_side, ..crate::hunt::rules::tests::sample().world };
            world.walls = vec![0; count.div_ceil(64) as usize];
            // Enough walls for long paths, at least on small maps.
            let regular = (0..count / 4).map(|n| n.wrapping_mul(0x9e37_79b9));
            for wall in walls.into_iter().chain(regular).map(|wall| wall % count) {
                world.walls[wall as usize / 64] |= 1 << (wall % 64);
            }
            let tiles = Tiles::new(&world, 1);
            let mut path = Path::new(count);
            for (at, places) in searches.iter().enumerate() {
                let mut treasures: Vec<u32> = places.iter().map(|place| place % count).collect();
                treasures.retain(|tile| !tiles.is_wall(*tile));
                treasures.sort_unstable();
                treasures.dedup();
                path.stop();
                if at == 0 {
                    // A search that is stopped half-way.
                    path.seek(&TreasureSet::NONE);
                    path.work(&tiles, |_| 0);
                    path.stop();
                }
                search(&mut path, &tiles, &treasures);
                let expected = distances(&tiles, &treasures);
                // On large maps, only some tiles of each row.
                for tile in (0..count).step_by(count as usize / 1024 + 1) {
                    let (hint, distance) = path.hint(&tiles, tile, |_| true);
                    let known = (hint != Hint::Stale).then_some(distance);
                    let expected = expected[tile as usize]
                        .filter(|distance| u32::from(*distance) <= PATH_DISTANCE_MAX);
                    prop_assert_eq!(known, expected, "tile {} of {}", tile, count);
                }
            }
        }
    }
}
