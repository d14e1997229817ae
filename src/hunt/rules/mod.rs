//! The rules as numbers that a game designer may change, checked and hashed.
//!
//! The engine reads no file: the service reads `config/rules.toml` and passes the values in.

pub(crate) mod inventory;

pub mod rulebook;

mod due;

mod hunting;

mod items;

mod looting;

pub(crate) mod motion;

mod presence;

mod score;

mod shots;

use crate::hunt::handoff::{ARRIVAL_UPDATES_MAX, SETTLE_UPDATES_MAX};
use crate::hunt::hunts::{HUNTS_MAX, TREASURES_MAX};
use crate::hunt::path::{PATH_DISTANCE_MAX, PATH_STRIPS_PER_PIECE};
use crate::hunt::refusal::Effect;
use crate::hunt::rules::due::{DUE_ACTORS_PER_EVENT, RESPAWN_TRIES};
use crate::hunt::rules::hunting::{
    HUNT_UPDATES_PER_EVENT, LAYING_TRIES, PATH_PIECE_MS, PATH_PIECES_PER_EVENT,
    PATH_PIECES_PER_TICK,
};
use crate::hunt::rules::presence::ARRIVAL_TILES_PER_SIDE;
use crate::hunt::state::TreasureHunt;
use crate::hunt::tiles::TILES_PER_SIDE_MAX;
use crate::kit::PLAYERS_MAX;
use crate::kit::clock::CLOCK_RECORDS;
use crate::kit::event::{DECODER_VERSION, JSON_DEPTH_MAX, RECORD_BYTES_MAX};
use crate::kit::mix;
use crate::kit::rulebook::{GameRules, RulesError};
use crate::kit::tombstones::TOMBSTONES_MAX;
use crate::kit::update::EVENT_UPDATES_MAX;

/// Limit of an actor's health in the rules.
pub(crate) const HEALTH_MAX: u16 = 10_000;

/// Limit of a zone's side in cm: products of two positions, or of a direction and a range, fit an
/// i64 with a margin.
pub(crate) const ZONE_CM_MAX: u32 = 1 << 24;

/// Limit of one event's updates that publish the zone's clock.
const CLOCK_UPDATES_MAX: usize = 1;
const _: () = assert!(
    DUE_ACTORS_PER_EVENT * SETTLE_UPDATES_MAX
        + HUNTS_MAX
        + ARRIVAL_UPDATES_MAX
        + HUNT_UPDATES_PER_EVENT
        + CLOCK_UPDATES_MAX
        <= EVENT_UPDATES_MAX
);

/// All constants that affect the outcome of an event. They are part of the ruleset hash, so that
/// versions with other limits have other rulesets. Limits that only affect speed, or what is
/// refused at start-up, are left out.
const DECIDING: [u64; 17] = [
    DECODER_VERSION,
    RECORD_BYTES_MAX as u64,
    JSON_DEPTH_MAX as u64,
    HUNTS_MAX as u64,
    TREASURES_MAX as u64,
    LAYING_TRIES,
    HUNT_UPDATES_PER_EVENT as u64,
    PATH_STRIPS_PER_PIECE as u64,
    PATH_PIECE_MS,
    PATH_PIECES_PER_EVENT,
    PATH_PIECES_PER_TICK,
    PATH_DISTANCE_MAX as u64,
    TOMBSTONES_MAX as u64,
    CLOCK_RECORDS as u64,
    DUE_ACTORS_PER_EVENT as u64,
    RESPAWN_TRIES,
    ARRIVAL_TILES_PER_SIDE as u64,
];

/// Incremented whenever the engine makes different updates, or another state, from the same events
/// and rules.
pub(crate) const ENGINE_VERSION: u64 = 5;

/// Everything that determines the outcome of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// The zone's map.
    pub world: Map,
    /// Rules for every actor.
    pub actors: ActorRules,
    /// Rules for every hunt.
    pub hunts: HuntRules,
    /// The points of treasures, by chance.
    pub points: Vec<Points>,
    /// The other contents of treasures, by chance.
    pub finds: Vec<Find>,
    /// Weapons by number.
    pub weapons: Vec<Weapon>,
    /// Items by number, from 1: an item's index is its number minus one.
    pub items: Vec<Item>,
    /// Effects by number.
    pub effects: [EffectRules; Effect::ALL.len()],
}

/// The zone's map: a square of tiles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Map {
    /// Side of a tile in cm, a power of two.
    pub tile_cm: u32,
    /// Tiles along the side of the zone, a power of two.
    pub tiles_per_side: u32,
    /// Speed at which an actor's allowance grows.
    pub speed_cm_per_s_max: u32,
    /// Limit of the allowance, as a time at this speed: the largest burst after a rest.
    pub speed_burst_ms: u32,
    /// A bit per tile, row by row: walls. Empty if there are none.
    pub walls: Vec<u64>,
}

/// Rules for every actor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActorRules {
    /// Limit of the actors in a zone.
    pub count_max: u32,
    /// Limit of the actors on a tile.
    pub per_tile_max: u16,
    /// Full health.
    pub health: u16,
    /// Time that a downed actor waits for its respawn.
    pub respawn_ms: u32,
    /// Points for downing another actor.
    pub downed_points: u32,
}

/// Rules for every hunt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HuntRules {
    /// Limit of a hunt's treasures.
    pub treasures_max: u16,
    /// Limit of a hunt's duration.
    pub duration_ms_max: u32,
    /// Distance from the middle of a treasure's tile within which it can be opened.
    pub reach_cm: u32,
    /// Number of treasures that make a player a finisher.
    pub finish_treasures: u16,
    /// Points of the first, second and third finisher.
    pub prizes: [u32; 3],
}

/// One row of the loot table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Points {
    /// Points of the treasure.
    pub points: u32,
    /// Chance, relative to the other rows.
    pub weight: u32,
}

/// One row of the table of found items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Find {
    /// The item; 0 for none.
    pub item: u8,
    /// Chance, relative to the other rows.
    pub weight: u32,
}

/// A weapon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weapon {
    /// Damage of a hit.
    pub damage: u16,
    /// Range.
    pub range_cm: u32,
    /// Distance from an actor's position within which a shot hits.
    pub radius_cm: u32,
    /// Pause between two shots.
    pub reload_ms: u32,
}

/// An item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// Number of items that fit one slot.
    pub stack_max: u8,
    /// The effect of using it.
    pub does: ItemUse,
}

/// The effect of using an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemUse {
    /// Starts or extends an effect.
    Start(Effect),
    /// Restores health.
    Heal(u16),
}

/// Duration and strength of an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EffectRules {
    /// Duration added by one item.
    pub lasts_ms: u32,
    /// Limit of the duration when items are added up.
    pub lasts_ms_max: u32,
    /// Strength: percentage of the speed, the damage or the points.
    pub percent: u32,
}

fn require(holds: bool, key: &'static str, must_be: &'static str) -> Result<(), RulesError> {
    if holds { Ok(()) } else { Err(RulesError { key, must_be }) }
}

impl GameRules for Rules {
    type Game = TreasureHunt;

    fn check(&self) -> Result<(), RulesError> {
        self.world.check()?;
        self.actors.check()?;
        self.hunts.check(&self.world)?;
        let weights = |rows: &[u32]| {
            rows.iter().try_fold(0u32, |sum, weight| sum.checked_add(*weight)) > Some(0)
        };
        let points: Vec<u32> = self.points.iter().map(|row| row.weight).collect();
        let finds: Vec<u32> = self.finds.iter().map(|row| row.weight).collect();
        let sum = "rows whose weights add up to 1..=4294967295";
        require(weights(&points), "loot.points", sum)?;
        require(weights(&finds), "loot.items", sum)?;
        let known = |item: u8| usize::from(item) <= self.items.len();
        let finds_known = self.finds.iter().all(|find| known(find.item));
        require(finds_known, "loot.items", "rows of items that are defined")?;
        require(self.weapons.len() <= 256, "weapons", "at most 256")?;
        for weapon in &self.weapons {
            let range = 1..=ZONE_CM_MAX.min(256 * self.world.tile_cm);
            require(range.contains(&weapon.range_cm), "weapons.range_cm", "1..=256 tiles")?;
            let radius = weapon.radius_cm <= self.world.tile_cm;
            require(radius, "weapons.radius_cm", "at most a tile")?;
        }
        require(self.items.len() <= 255, "items", "at most 255")?;
        require(self.items.iter().all(|item| item.stack_max > 0), "items.stack_max", "1..=255")?;
        for effect in &self.effects {
            require(effect.lasts_ms > 0, "effects.lasts_ms", "above 0")?;
            let order = effect.lasts_ms <= effect.lasts_ms_max;
            require(order, "effects.lasts_ms_max", "at least lasts_ms")?;
            require(effect.percent <= 1000, "effects.percent", "at most 1000")?;
        }
        Ok(())
    }

    fn check_beside(&self, other: &Rules) -> Result<(), RulesError> {
        let same = "as in the first rules: a game that is under way keeps its map and its size";
        let Rules { world, actors, .. } = self;
        // All numbers of the map and of actors are named here, so that the compiler points out a
        // new one.
        let Map { tile_cm, tiles_per_side, speed_cm_per_s_max: _, speed_burst_ms: _, walls } =
            world;
        let ActorRules { count_max, per_tile_max: _, health: _, respawn_ms: _, downed_points: _ } =
            actors;
        require(*tile_cm == other.world.tile_cm, "world.tile_cm", same)?;
        require(*tiles_per_side == other.world.tiles_per_side, "world.tiles_per_side", same)?;
        require(*walls == other.world.walls, "world.walls", same)?;
        require(*count_max == other.actors.count_max, "actors.count_max", same)
    }

    fn hash(&self) -> u32 {
        let mut hash = ENGINE_VERSION;
        let mut add = |value: u64| hash = mix::hash(&[hash, value], 0);
        DECIDING.iter().for_each(|limit| add(*limit));
        let Rules { world, actors, hunts, points, finds, weapons, items, effects } = self;
        world.hash(&mut add);
        actors.hash(&mut add);
        hunts.hash(&mut add);
        add((points.len() + finds.len() * 256) as u64);
        for Points { points, weight } in points {
            add(u64::from(*points) << 32 | u64::from(*weight));
        }
        for Find { item, weight } in finds {
            add(u64::from(*item) << 32 | u64::from(*weight));
        }
        add((weapons.len() + items.len() * 512) as u64);
        for Weapon { damage, range_cm, radius_cm, reload_ms } in weapons {
            add(u64::from(*damage) << 32 | u64::from(*range_cm));
            add(u64::from(*radius_cm) << 32 | u64::from(*reload_ms));
        }
        for Item { stack_max, does } in items {
            let does = match *does {
                ItemUse::Start(effect) => 1 << 32 | effect as u64,
                ItemUse::Heal(health) => 2 << 32 | u64::from(health),
            };
            add(u64::from(*stack_max) << 48 | does);
        }
        for EffectRules { lasts_ms, lasts_ms_max, percent } in effects {
            add(u64::from(*lasts_ms) << 32 | u64::from(*lasts_ms_max));
            add((*percent).into());
        }
        hash as u32
    }
}

impl Rules {
    /// Returns an item's rules; `None` if there is no such item.
    pub(crate) fn item(&self, number: u8) -> Option<&Item> {
        self.items.get(usize::from(number).checked_sub(1)?)
    }
}

impl Map {
    fn hash(&self, add: &mut impl FnMut(u64)) {
        let Map { tile_cm, tiles_per_side, speed_cm_per_s_max, speed_burst_ms, walls } = self;
        for value in [tile_cm, tiles_per_side, speed_cm_per_s_max, speed_burst_ms] {
            add((*value).into());
        }
        add(walls.len() as u64);
        walls.iter().for_each(|word| add(*word));
    }

    fn check(&self) -> Result<(), RulesError> {
        let tiles = self.tiles_per_side;
        let side = tiles.is_power_of_two() && (4..=TILES_PER_SIDE_MAX).contains(&tiles);
        require(side, "world.tiles_per_side", "a power of two, 4..=512")?;
        let tile =
            self.tile_cm.is_power_of_two() && (16..=ZONE_CM_MAX / tiles).contains(&self.tile_cm);
        require(tile, "world.tile_cm", "a power of two from 16 on, and a zone at most 2^24 cm")?;
        let speed = (1..=100_000).contains(&self.speed_cm_per_s_max);
        require(speed, "world.speed_cm_per_s_max", "1..=100000")?;
        require((1..=10_000).contains(&self.speed_burst_ms), "world.speed_burst_ms", "1..=10000")?;
        let burst_cm = u64::from(self.speed_cm_per_s_max) * u64::from(self.speed_burst_ms) / 1000;
        let burst = burst_cm <= 64 * u64::from(self.tile_cm);
        require(burst, "world.speed_burst_ms", "a burst of at most 64 tiles")?;
        let walls =
            self.walls.is_empty() || self.walls.len() == (self.tiles() as usize).div_ceil(64);
        require(walls, "world.walls", "a bit for every tile")?;
        let open = self.walls.iter().map(|word| u64::from(word.count_zeros())).sum::<u64>() > 0;
        require(self.walls.is_empty() || open, "world.walls", "a map with a free tile")
    }

    /// The limit of an actor's allowance, in thousandths of a cm, at this percentage of the normal
    /// speed.
    pub(crate) fn allowance_max(&self, percent: u32) -> u32 {
        let full = u64::from(self.speed_cm_per_s_max) * u64::from(self.speed_burst_ms);
        u32::try_from(full * u64::from(percent) / 100).unwrap_or(u32::MAX)
    }

    /// Number of tiles in the zone.
    pub(crate) fn tiles(&self) -> u32 {
        self.tiles_per_side * self.tiles_per_side
    }

    /// Side of the zone in cm.
    pub fn side_cm(&self) -> u32 {
        self.tile_cm * self.tiles_per_side
    }
}

impl ActorRules {
    fn hash(&self, add: &mut impl FnMut(u64)) {
        let ActorRules { count_max, per_tile_max, health, respawn_ms, downed_points } = *self;
        for value in [count_max, per_tile_max.into(), health.into()] {
            add(value.into());
        }
        add(u64::from(respawn_ms) << 32 | u64::from(downed_points));
    }

    fn check(&self) -> Result<(), RulesError> {
        let count = (1..=PLAYERS_MAX as u32).contains(&self.count_max);
        require(count, "actors.count_max", "1..=131072")?;
        require((1..=256).contains(&self.per_tile_max), "actors.per_tile_max", "1..=256")?;
        require((1..=HEALTH_MAX).contains(&self.health), "actors.health", "1..=10000")?;
        require(self.respawn_ms > 0, "actors.respawn_ms", "above 0")
    }
}

impl HuntRules {
    fn hash(&self, add: &mut impl FnMut(u64)) {
        let HuntRules { treasures_max, duration_ms_max, reach_cm, finish_treasures, prizes } =
            *self;
        add(u64::from(treasures_max) << 32 | u64::from(duration_ms_max));
        add(u64::from(finish_treasures) << 32 | u64::from(reach_cm));
        prizes.iter().for_each(|prize| add((*prize).into()));
    }

    fn check(&self, world: &Map) -> Result<(), RulesError> {
        let treasures = (1..=TREASURES_MAX as u16).contains(&self.treasures_max);
        require(treasures, "hunts.treasures_max", "1..=4096")?;
        require(self.duration_ms_max > 0, "hunts.duration_ms_max", "above 0")?;
        let reach = (1..=2 * world.tile_cm).contains(&self.reach_cm);
        require(reach, "hunts.reach_cm", "1 cm to two tiles")?;
        require(self.finish_treasures > 0, "hunts.finish_treasures", "above 0")
    }
}

#[cfg(test)]
pub(crate) mod tests;
