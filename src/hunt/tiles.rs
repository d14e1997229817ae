//! The grid: the positions of actors, walls and treasures.
//!
//! All of it is derived from the actors, the treasures and the rules, so it is layout, not state:
//! the order of a tile's list has no effect.

use crate::hunt::hunts::{HUNTS_MAX, TREASURES_MAX};
use crate::hunt::rules::Map;
use crate::kit::chunks::{CHUNK_WORDS, Chunks};
use crate::runtime::prefetch::prefetch;

/// Limit of the tiles along a zone's side: the path cache can count the longest path on a map
/// without walls.
pub(crate) const TILES_PER_SIDE_MAX: u32 = 512;

/// Tiles of a strip: as many consecutive ones as a word has bits.
pub(crate) const STRIP_TILES: u32 = u64::BITS;

/// The zone's tiles.
#[derive(Clone, Debug)]
pub(crate) struct Tiles {
    tile_shift: u32,
    side_shift: u32,
    tiles: Vec<Tile>,
    /// Bit masks of walls, of occupied tiles (by a wall or an actor), and of treasures, so that a
    /// scan of many tiles finds all its data in the nearest cache.
    walls: Bits,
    taken: Bits,
    treasures: Bits,
    /// By actor, the next one on its tile, plus one; 0 for none.
    links: Chunks<u32, CHUNK_WORDS>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Tile {
    /// The first actor on this tile, plus one; 0 for none.
    first: u32,
    actors: u16,
    /// The treasure on this tile, if any.
    treasure: PackedKey,
}

/// A treasure's slot above its number.
#[derive(Clone, Copy, Debug, Default)]
struct PackedKey(u16);

const NUMBER_BITS: u32 = TREASURES_MAX.trailing_zeros();
const _: () = assert!(TREASURES_MAX.is_power_of_two() && HUNTS_MAX << NUMBER_BITS <= 1 << 16);

/// A bit per tile.
#[derive(Clone, Debug)]
struct Bits(Vec<u64>);

impl Bits {
    fn none(tiles: u32) -> Bits {
        Bits(vec![0; tiles.div_ceil(64) as usize])
    }

    #[inline]
    fn has(&self, tile: u32) -> bool {
        self.0[tile as usize / 64] >> (tile % 64) & 1 == 1
    }

    /// Returns the bits of this many consecutive tiles, fewer than 64; bits beyond the last tile
    /// are 0.
    #[inline]
    fn window(&self, first: u32, tiles: u32) -> u64 {
        let (word, shift) = (first as usize / 64, first % 64);
        let after = self.0.get(word + 1).map_or(0, |after| *after);
        let bits = u128::from(self.0[word]) | u128::from(after) << 64;
        (bits >> shift) as u64 & ((1 << tiles) - 1)
    }

    #[inline]
    fn set(&mut self, tile: u32, bit: bool) {
        let word = &mut self.0[tile as usize / 64];
        *word = *word & !(1 << (tile % 64)) | u64::from(bit) << (tile % 64);
    }
}

/// Identifies a treasure among those of all running hunts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TreasureKey {
    /// The hunt's slot.
    pub slot: u8,
    /// Number within the hunt.
    pub number: u16,
}

impl Tiles {
    /// Creates the empty map of these rules.
    pub(crate) fn new(world: &Map, actors_max: usize) -> Tiles {
        let mut walls = Bits::none(world.tiles());
        walls.0.iter_mut().zip(&world.walls).for_each(|(word, wall)| *word = *wall);
        Tiles {
            tile_shift: world.tile_cm.trailing_zeros(),
            side_shift: world.tiles_per_side.trailing_zeros(),
            tiles: vec![Tile::default(); world.tiles() as usize],
            taken: walls.clone(),
            walls,
            treasures: Bits::none(world.tiles()),
            links: Chunks::new(actors_max),
        }
    }

    /// Number of tiles.
    pub(crate) fn count(&self) -> u32 {
        self.tiles.len() as u32
    }

    /// Side of the zone in cm.
    #[inline]
    pub(crate) fn side_cm(&self) -> i32 {
        1 << (self.tile_shift + self.side_shift)
    }

    /// Side of a tile in cm.
    #[inline]
    pub(crate) fn tile_cm(&self) -> i32 {
        1 << self.tile_shift
    }

    /// The number of bits by which a position in cm is shifted right to yield a column or a row.
    #[inline]
    pub(crate) fn tile_shift(&self) -> u32 {
        self.tile_shift
    }

    /// Number of tiles along a side.
    #[inline]
    fn side(&self) -> i32 {
        1 << self.side_shift
    }

    /// Returns the tile at a position; `None` if it is off the map.
    #[inline]
    pub(crate) fn at(&self, x: i32, y: i32) -> Option<u32> {
        self.numbered(x >> self.tile_shift, y >> self.tile_shift)
    }

    /// Returns the tile at a position that is on the map.
    #[inline]
    pub(crate) fn under(&self, x: i32, y: i32) -> u32 {
        ((y >> self.tile_shift) << self.side_shift | x >> self.tile_shift) as u32
    }

    /// Returns the tile in this column and row; `None` if it is off the map.
    #[inline]
    pub(crate) fn numbered(&self, column: i32, row: i32) -> Option<u32> {
        let inside = (column | row) as u32 & !(self.side() as u32 - 1) == 0;
        inside.then(|| (row as u32) << self.side_shift | column as u32)
    }

    /// Returns column and row of a tile.
    pub(crate) fn place(&self, tile: u32) -> (i32, i32) {
        ((tile & (self.side() as u32 - 1)) as i32, (tile >> self.side_shift) as i32)
    }

    /// Returns the tiles to the east, north, west and south; `None` at the map's edge.
    #[inline]
    pub(crate) fn neighbours(&self, tile: u32) -> [Option<u32>; 4] {
        let last = self.side() as u32 - 1;
        let column = tile & last;
        [
            (column != last).then(|| tile + 1),
            (tile < last << self.side_shift).then(|| tile + last + 1),
            (column != 0).then(|| tile - 1),
            (tile > last).then(|| tile - last - 1),
        ]
    }

    /// The tiles of a square around this one, with this many on a side, or all tiles of a smaller
    /// map. At the map's edge it is shifted inwards.
    pub(crate) fn square(&self, tile: u32, per_side: u32) -> impl Iterator<Item = u32> + use<> {
        let (column, row) = self.place(tile);
        let (map, shift) = (self.side(), self.side_shift);
        let side = map.min(per_side as i32);
        let first = |at: i32| (at - side / 2).clamp(0, map - side);
        let (columns, rows) = (first(column)..first(column) + side, first(row)..first(row) + side);
        rows.flat_map(move |row| columns.clone().map(move |column| (row << shift | column) as u32))
    }

    /// Returns the middle of a tile, in cm.
    pub(crate) fn middle(&self, tile: u32) -> (i32, i32) {
        let (column, row) = self.place(tile);
        let half = self.tile_cm() / 2;
        ((column << self.tile_shift) + half, (row << self.tile_shift) + half)
    }

    /// Returns whether the tile is a wall.
    #[inline]
    pub(crate) fn is_wall(&self, tile: u32) -> bool {
        self.walls.has(tile)
    }

    /// Returns whether the tile has neither a wall nor an actor.
    #[inline]
    pub(crate) fn is_clear(&self, tile: u32) -> bool {
        !self.taken.has(tile)
    }

    /// Number of actors on the tile.
    #[inline]
    pub(crate) fn actors_on(&self, tile: u32) -> u16 {
        self.tiles[tile as usize].actors
    }

    /// Returns the first actor on the tile, if any.
    #[inline]
    pub(crate) fn first_actor(&self, tile: u32) -> Option<u32> {
        self.tiles[tile as usize].first.checked_sub(1)
    }

    /// Returns the next actor on the same tile, if any.
    #[inline]
    pub(crate) fn next_actor(&self, actor: u32) -> Option<u32> {
        self.links.get(actor)?.checked_sub(1)
    }

    /// The actors on the tile, in no particular order.
    #[inline]
    pub(crate) fn actors(&self, tile: u32) -> impl Iterator<Item = u32> + '_ {
        let mut entry = self.tiles[tile as usize].first;
        std::iter::from_fn(move || {
            let actor = entry.checked_sub(1)?;
            entry = self.links[actor];
            Some(actor)
        })
    }

    /// Prefetches the tile at a position, if it is on the map.
    #[inline]
    pub(crate) fn prefetch(&self, x: i32, y: i32) {
        if let Some(tile) = self.at(x, y) {
            prefetch(&self.tiles[tile as usize]);
        }
    }

    /// Adds an actor to a tile.
    #[inline]
    pub(crate) fn enter(&mut self, tile: u32, actor: u32) {
        self.links.reach(actor);
        self.taken.set(tile, true);
        let tile = &mut self.tiles[tile as usize];
        self.links[actor] = tile.first;
        tile.first = actor + 1;
        tile.actors += 1;
    }

    /// Removes an actor from its tile.
    #[inline]
    pub(crate) fn exit(&mut self, number: u32, actor: u32) {
        let tile = &mut self.tiles[number as usize];
        let after = self.links[actor];
        tile.actors -= 1;
        self.taken.set(number, tile.actors > 0 || self.walls.has(number));
        if tile.first == actor + 1 {
            tile.first = after;
            return;
        }
        let mut before = tile.first - 1;
        while self.links[before] != actor + 1 {
            before = self.links[before] - 1;
        }
        self.links[before] = after;
    }

    /// Returns the treasure on the tile.
    #[inline]
    pub(crate) fn treasure(&self, tile: u32) -> Option<TreasureKey> {
        if !self.treasures.has(tile) {
            return None;
        }
        let PackedKey(key) = self.tiles[tile as usize].treasure;
        Some(TreasureKey { slot: (key >> NUMBER_BITS) as u8, number: key % TREASURES_MAX as u16 })
    }

    /// The tiles with treasures among those that touch a square around a position, which extends
    /// this far to each side.
    #[inline]
    pub(crate) fn treasures_around(
        &self,
        x: i32,
        y: i32,
        reach: i32,
    ) -> impl Iterator<Item = u32> + '_ {
        let last = self.side_cm() - 1;
        let clamped = |at: i32| (at.clamp(0, last) >> self.tile_shift) as u32;
        let (column, columns) = (clamped(x - reach), clamped(x + reach) - clamped(x - reach) + 1);
        let (mut row, last_row) = (clamped(y - reach), clamped(y + reach));
        let mut first = row << self.side_shift | column;
        let mut left = self.treasures.window(first, columns);
        std::iter::from_fn(move || {
            while left == 0 && row < last_row {
                row += 1;
                first = row << self.side_shift | column;
                left = self.treasures.window(first, columns);
            }
            let tile = first + left.trailing_zeros();
            let found = left != 0;
            left &= left.wrapping_sub(1);
            found.then_some(tile)
        })
    }

    /// Bit mask of a strip's tiles without a wall.
    #[inline]
    pub(crate) fn free_of_walls(&self, strip: u32) -> u64 {
        first_bits(self.count() - strip * STRIP_TILES) & !self.walls.0[strip as usize]
    }

    /// Bit mask of a strip's tiles that are next to some of these, which are the bits of all
    /// strips. Bits beyond the map's end are unspecified.
    #[inline]
    pub(crate) fn next_to(&self, strips: &[u64], strip: u32) -> u64 {
        let [east, west] = shifted(strips, strip, 1);
        let sideways = east & !self.first_column(strip) | west & !self.last_column(strip);
        let rows = self.side() as u32;
        let [up, down] = if rows < STRIP_TILES {
            shifted(strips, strip, rows)
        } else {
            let (at, row) = (strip as usize, (rows / STRIP_TILES) as usize);
            [word(strips, at.wrapping_sub(row)), word(strips, at + row)]
        };
        sideways | up | down
    }

    /// Bit mask of the strips of a word that are in `strips`, which has all strips of the map, and
    /// of their neighbours. Other bits may be set, too.
    #[inline]
    pub(crate) fn strips_beside(&self, strips: &[u64], word: u32) -> u64 {
        // Rows of the largest map have eight strips.
        const { assert!(TILES_PER_SIDE_MAX / STRIP_TILES < u64::BITS) };
        let [east, west] = shifted(strips, word, 1);
        let [up, down] = shifted(strips, word, (self.side() as u32 / STRIP_TILES).max(1));
        let there = first_bits(self.count().div_ceil(STRIP_TILES) - word * u64::BITS);
        (strips[word as usize] | east | west | up | down) & there
    }

    /// Bit mask of a strip's tiles in the map's first column.
    #[inline]
    fn first_column(&self, strip: u32) -> u64 {
        let side = self.side() as u32;
        if side < STRIP_TILES {
            return u64::MAX / ((1 << side) - 1);
        }
        u64::from(strip & (side / STRIP_TILES - 1) == 0)
    }

    /// Bit mask of a strip's tiles in the map's last column.
    #[inline]
    fn last_column(&self, strip: u32) -> u64 {
        let side = self.side() as u32;
        if side < STRIP_TILES {
            return self.first_column(strip) << (side - 1);
        }
        u64::from((strip + 1) & (side / STRIP_TILES - 1) == 0) << 63
    }

    /// Places or removes a treasure.
    #[inline]
    pub(crate) fn lay(&mut self, tile: u32, treasure: Option<TreasureKey>) {
        self.treasures.set(tile, treasure.is_some());
        if let Some(TreasureKey { slot, number }) = treasure {
            self.tiles[tile as usize].treasure = PackedKey(u16::from(slot) << NUMBER_BITS | number);
        }
    }
}

/// Returns the word at this index of a bit array; 0 beyond its ends.
#[inline]
fn word(bits: &[u64], at: usize) -> u64 {
    bits.get(at).copied().unwrap_or(0)
}

/// Returns a word of a bit array after it was shifted up, and down, by fewer bits than a word has.
#[inline]
fn shifted(bits: &[u64], at: u32, by: u32) -> [u64; 2] {
    let at = at as usize;
    let (before, here, after) = (word(bits, at.wrapping_sub(1)), bits[at], word(bits, at + 1));
    [here << by | before >> (u64::BITS - by), here >> by | after << (u64::BITS - by)]
}

/// A mask of the first bits of a word; of all bits if `count` is larger.
#[inline]
fn first_bits(count: u32) -> u64 {
    if count < u64::BITS { (1 << count) - 1 } else { u64::MAX }
}
