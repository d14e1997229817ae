//! The rules of the hunt as they are written: `config/rules.toml`, and the map of walls.

use crate::edition::{self, RulesFileError, RulesFolder, from_toml};
use crate::hunt::refusal::Effect;
use crate::hunt::rules::{
    ActorRules, EffectRules, Find, HuntRules, Item, ItemUse, Map, Points, Rules, Weapon,
};
use crate::hunt::state::TreasureHunt;
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// The built-in rules: `config/rules.toml` at build time.
pub const BUILT_IN: &str = include_str!("../../config/rules.toml");

/// Returns the built-in rules.
pub fn built_in() -> Rules {
    edition::built_in::<TreasureHunt>()
}

/// Reads rules. A map of walls is a file beside that of the rules.
pub(crate) fn read_rules(text: &str, beside: &RulesFolder) -> Result<Rules, RulesFileError> {
    let raw: RawRules = from_toml(text)?;
    let mut world = Map {
        tile_cm: raw.world.tile_cm,
        tiles_per_side: raw.world.tiles_per_side,
        speed_cm_per_s_max: raw.world.speed_cm_per_s_max,
        speed_burst_ms: raw.world.speed_burst_ms,
        walls: Vec::new(),
    };
    if let Some(file) = raw.world.walls {
        world.walls = walls(&file, &beside.read(&file)?, world.tiles_per_side)?;
    }
    Ok(Rules {
        world,
        actors: raw.actors.into(),
        hunts: raw.hunts.into(),
        points: raw.loot.points.into_iter().map(Points::from).collect(),
        finds: raw.loot.items.into_iter().map(Find::from).collect(),
        weapons: raw.weapons.into_iter().map(Weapon::from).collect(),
        items: raw.items.into_iter().map(Item::try_from).collect::<Result<_, _>>()?,
        effects: raw.effects.in_order(),
    })
}

/// Returns the walls of a map, a bit for each tile.
fn walls(file: &Path, text: &str, tiles: u32) -> Result<Vec<u64>, RulesFileError> {
    let side = tiles as usize;
    let bad = || {
        let file = file.display();
        let sentence = format!("{file} must have {tiles} lines of {tiles} characters '#' or '.'");
        RulesFileError::Own(sentence)
    };
    let rows: Vec<&[u8]> = text.lines().map(str::as_bytes).collect();
    if rows.len() != side || rows.iter().any(|row| row.len() != side) {
        return Err(bad());
    }
    let mut walls = vec![0; (side * side).div_ceil(64)];
    for (at, mark) in rows.concat().into_iter().enumerate() {
        match mark {
            b'#' => walls[at / 64] |= 1 << (at % 64),
            b'.' => {}
            _ => return Err(bad()),
        }
    }
    Ok(walls)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRules {
    world: RawWorld,
    actors: RawActors,
    hunts: RawHunts,
    loot: RawLoot,
    weapons: Vec<RawWeapon>,
    items: Vec<RawItem>,
    effects: RawEffects,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawWorld {
    tile_cm: u32,
    tiles_per_side: u32,
    speed_cm_per_s_max: u32,
    speed_burst_ms: u32,
    walls: Option<PathBuf>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawActors {
    count_max: u32,
    per_tile_max: u16,
    health: u16,
    respawn_ms: u32,
    downed_points: u32,
}

impl From<RawActors> for ActorRules {
    fn from(raw: RawActors) -> ActorRules {
        let RawActors { count_max, per_tile_max, health, respawn_ms, downed_points } = raw;
        ActorRules { count_max, per_tile_max, health, respawn_ms, downed_points }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawHunts {
    treasures_max: u16,
    duration_ms_max: u32,
    reach_cm: u32,
    finish_treasures: u16,
    prizes: [u32; 3],
}

impl From<RawHunts> for HuntRules {
    fn from(raw: RawHunts) -> HuntRules {
        let RawHunts { treasures_max, duration_ms_max, reach_cm, finish_treasures, prizes } = raw;
        HuntRules { treasures_max, duration_ms_max, reach_cm, finish_treasures, prizes }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLoot {
    points: Vec<RawPoints>,
    items: Vec<RawFind>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPoints {
    points: u32,
    weight: u32,
}

impl From<RawPoints> for Points {
    fn from(RawPoints { points, weight }: RawPoints) -> Points {
        Points { points, weight }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFind {
    item: u8,
    weight: u32,
}

impl From<RawFind> for Find {
    fn from(RawFind { item, weight }: RawFind) -> Find {
        Find { item, weight }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawWeapon {
    #[serde(rename = "name")]
    _name: String,
    damage: u16,
    range_cm: u32,
    radius_cm: u32,
    reload_ms: u32,
}

impl From<RawWeapon> for Weapon {
    fn from(raw: RawWeapon) -> Weapon {
        let RawWeapon { damage, range_cm, radius_cm, reload_ms, .. } = raw;
        Weapon { damage, range_cm, radius_cm, reload_ms }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawItem {
    name: String,
    stack_max: u8,
    starts: Option<RawEffect>,
    heals: Option<u16>,
}

impl TryFrom<RawItem> for Item {
    type Error = RulesFileError;

    fn try_from(raw: RawItem) -> Result<Item, RulesFileError> {
        let does = match (raw.starts, raw.heals) {
            (Some(effect), None) => ItemUse::Start(effect.into()),
            (None, Some(health)) => ItemUse::Heal(health),
            _ => {
                let name = raw.name;
                let sentence = format!("item {name:?} must have either `starts` or `heals`");
                return Err(RulesFileError::Own(sentence));
            }
        };
        Ok(Item { stack_max: raw.stack_max, does })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum RawEffect {
    Haste,
    Shield,
    Compass,
    DoubleLoot,
}

impl From<RawEffect> for Effect {
    fn from(raw: RawEffect) -> Effect {
        match raw {
            RawEffect::Haste => Effect::Haste,
            RawEffect::Shield => Effect::Shield,
            RawEffect::Compass => Effect::Compass,
            RawEffect::DoubleLoot => Effect::DoubleLoot,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawEffects {
    haste: RawEffectRules,
    shield: RawEffectRules,
    compass: RawEffectRules,
    double_loot: RawEffectRules,
}

impl RawEffects {
    fn in_order(&self) -> [EffectRules; Effect::ALL.len()] {
        let RawEffects { haste, shield, compass, double_loot } = self;
        [haste, shield, compass, double_loot].map(|raw| EffectRules {
            lasts_ms: raw.lasts_ms,
            lasts_ms_max: raw.lasts_ms_max,
            percent: raw.percent,
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawEffectRules {
    lasts_ms: u32,
    lasts_ms_max: u32,
    percent: u32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edition::parse;
    use crate::kit::rulebook::GameRules;
    use std::ops::Range;

    #[test]
    fn a_key_that_the_rules_do_not_have_is_an_error_that_names_it() {
        let text = BUILT_IN.replace("[world]", "[world]\ngravity = 9\n");
        let error = parse::<TreasureHunt>(&text, Path::new(".")).unwrap_err().to_string();
        assert!(error.contains("gravity"), "{error}");
    }

    #[test]
    fn a_value_that_no_game_can_be_played_with_is_an_error_that_names_its_key() {
        for (from, to, key) in [
            ("tile_cm = 1024", "tile_cm = 1000", "world.tile_cm"),
            ("tiles_per_side = 256", "tiles_per_side = 2048", "world.tiles_per_side"),
            ("health = 100", "health = 0", "actors.health"),
            ("reach_cm = 1536", "reach_cm = 9999", "hunts.reach_cm"),
            ("{ item = 5, weight = 10 }", "{ item = 6, weight = 10 }", "loot.items"),
            ("stack_max = 3", "stack_max = 0", "items.stack_max"),
        ] {
            assert!(BUILT_IN.contains(from));
            let error =
                parse::<TreasureHunt>(&BUILT_IN.replace(from, to), Path::new(".")).unwrap_err();
            assert!(error.to_string().contains(key), "{error}");
        }
    }

    /// The ranges of the numbers in a rules file.
    fn numbers(text: &str) -> Vec<Range<usize>> {
        let mut numbers = Vec::new();
        let mut at = 0;
        for line in text.split_inclusive('\n') {
            let rule = line.split('#').next().unwrap_or(line);
            let digits = rule.match_indices(|c: char| c.is_ascii_digit());
            for (start, _) in digits.map(|(start, digit)| (at + start, digit)) {
                match numbers.last_mut() {
                    Some(Range { end, .. }) if *end == start => *end += 1,
                    _ => numbers.push(start..start + 1),
                }
            }
            at += line.len();
        }
        numbers
    }

    #[test]
    fn every_number_of_the_rules_file_is_in_the_hash() {
        let hash = built_in().hash();
        let numbers = numbers(BUILT_IN);
        assert!(numbers.len() > 60, "{} numbers", numbers.len());
        for place in numbers {
            let number: u64 = BUILT_IN[place.clone()].parse().unwrap();
            let others = [number + 1, number.saturating_sub(1), number * 2, number / 2, 0];
            let mut played = 0;
            for other in others.into_iter().filter(|other| *other != number) {
                let mut text = BUILT_IN.to_owned();
                text.replace_range(place.clone(), &other.to_string());
                let Ok(rules) = parse::<TreasureHunt>(&text, Path::new(".")) else { continue };
                let line = BUILT_IN[..place.start].lines().count();
                assert_ne!(rules.hash(), hash, "line {line}: {number} or {other}");
                played += 1;
            }
            assert!(played > 0, "no other number than {number} at {place:?} can be played");
        }
    }

    #[test]
    fn a_map_puts_walls_where_its_marks_are() {
        let folder = tempfile::tempdir().unwrap();
        let text = BUILT_IN
            .replace("tiles_per_side = 256", "tiles_per_side = 4")
            .replace("# walls = ", "walls = ");
        std::fs::write(folder.path().join("zone.map"), ".#..\n....\n...#\n....\n").unwrap();
        let rules = parse::<TreasureHunt>(&text, folder.path()).unwrap();
        assert_eq!(rules.world.walls, [1 << 1 | 1 << 11]);
        std::fs::write(folder.path().join("zone.map"), ".#..\n....\n...\n....\n").unwrap();
        let error = parse::<TreasureHunt>(&text, folder.path()).unwrap_err().to_string();
        assert!(error.contains("4 lines of 4 characters"), "{error}");
    }
}
