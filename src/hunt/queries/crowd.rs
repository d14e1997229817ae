//! The number of players on each tile of a zone, and when it changed.

use crate::hunt::rules::Map;

/// Players by tile.
#[derive(Clone, Debug)]
pub(crate) struct Crowd {
    tile_cm: u32,
    tiles_per_side: u32,
    players: Vec<u16>,
    /// By tile: number of the update after the one that last changed its players.
    changed: Vec<u64>,
}

impl Crowd {
    /// Creates a map without players.
    pub(crate) fn new(map: &Map) -> Crowd {
        let tiles = map.tiles() as usize;
        Crowd {
            tile_cm: map.tile_cm,
            tiles_per_side: map.tiles_per_side,
            players: vec![0; tiles],
            changed: vec![0; tiles],
        }
    }

    /// Returns the tile at a position, in cm; `None` if it is not on the map.
    pub(crate) fn tile(&self, x: i32, y: i32) -> Option<u32> {
        let along = |cm: i32| {
            let tile = u32::try_from(cm).ok()? / self.tile_cm;
            (tile < self.tiles_per_side).then_some(tile)
        };
        Some(along(y)? * self.tiles_per_side + along(x)?)
    }

    /// Returns the tiles whose players changed at or after an update, with their players.
    pub(crate) fn changed_since(&self, update: u64) -> impl Iterator<Item = (u32, u16)> + '_ {
        let tiles = (0..).zip(self.players.iter().zip(&self.changed));
        tiles
            .filter(move |(_, (_, changed))| **changed > update)
            .map(|(tile, (players, _))| (tile, *players))
    }

    /// Takes all tiles as changed by this update: what they were before it is not known, and a
    /// genesis has emptied them.
    pub(super) fn begin_at(&mut self, update: u64) {
        self.changed.fill(update + 1);
    }

    /// Moves a player from one position to another; `None` is outside of the zone.
    pub(super) fn step(&mut self, from: Option<(i32, i32)>, to: Option<(i32, i32)>, update: u64) {
        let [from, to] = [from, to].map(|place| place.and_then(|(x, y)| self.tile(x, y)));
        if from == to {
            return;
        }
        for (tile, is_left) in [(from, true), (to, false)] {
            let Some(at) = tile.map(|tile| tile as usize) else { continue };
            let players = &mut self.players[at];
            *players = if is_left { players.saturating_sub(1) } else { players.saturating_add(1) };
            self.changed[at] = update + 1;
        }
    }
}
