//! Reads and checks `config/rules.toml` and the map of walls.

use crate::hunt::refusal::Effect;
use crate::hunt::rules::rulebook::Rulebook;
use crate::hunt::rules::{
    ActorRules, EffectRules, Find, HuntRules, Item, ItemUse, Map, Points, Rules, Weapon,
};
use crate::kit::rulebook::{GameRules, RulesError};
use crate::runtime::regular_file::{RegularFileError, read_text};
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// Limit of a file of rules or walls: four times the map of the largest zone.
const RULES_BYTES_MAX: u64 = 1 << 20;

/// The built-in rules: `config/rules.toml` at build time.
pub const BUILT_IN: &str = include_str!("../../config/rules.toml");

/// Why the rules cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RulesFileError {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}; check the path and its permissions")]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: RegularFileError,
    },
    /// The file is not valid TOML, or has other keys than the rules.
    #[error("line {line} of the rules is not valid: {message}; see config/rules.toml")]
    Syntax {
        /// Line number, from 1.
        line: usize,
        /// The parser's reason.
        message: String,
    },
    /// A value with which no game can be played.
    #[error("the rules are not valid: {0}; change it in the rules file")]
    Value(#[from] RulesError),
    /// An item does not do exactly one thing.
    #[error("item {name:?} must have either `starts` or `heals`; change it in the rules file")]
    Item {
        /// The item.
        name: String,
    },
    /// The map of walls has another size or other characters.
    #[error("{path} must have {tiles} lines of {tiles} characters '#' or '.'")]
    Map {
        /// The file.
        path: PathBuf,
        /// Tiles per side.
        tiles: u32,
    },
}

/// The built-in rules.
pub fn built_in() -> Rules {
    parse(BUILT_IN, Path::new(".")).expect("the built-in rules are valid")
}

/// Reads the rules in these files, the first for new zones; without files, the built-in ones. An
/// error has a line for each invalid file.
pub(crate) fn rulebook(files: &[PathBuf]) -> Result<Rulebook, String> {
    let sentence = |(file, error): &(&Path, RulesFileError)| match error {
        RulesFileError::Read { .. } | RulesFileError::Map { .. } => error.to_string(),
        _ => format!("{}: {error}", file.display()),
    };
    load_all(files).map_err(|errors| errors.iter().map(sentence).collect::<Vec<_>>().join("\n"))
}

/// Reads the rules in these files, as in [`rulebook`]. Each error comes with its file.
pub fn load_all(files: &[PathBuf]) -> Result<Rulebook, Vec<(&Path, RulesFileError)>> {
    let mut rulebook = files.is_empty().then(|| Rulebook::of(built_in()));
    let mut errors = Vec::new();
    for file in files {
        let added = load(file).and_then(|rules| match &mut rulebook {
            Some(rulebook) => Ok(rulebook.add(rules)?),
            None => {
                rulebook = Some(Rulebook::of(rules));
                Ok(())
            }
        });
        errors.extend(added.err().map(|error| (file.as_path(), error)));
    }
    match rulebook {
        Some(rulebook) if errors.is_empty() => Ok(rulebook),
        _ => Err(errors),
    }
}

/// Reads the rules in a file. The path of a map in it is relative to the file.
fn load(path: &Path) -> Result<Rules, RulesFileError> {
    parse(&read(path)?, path.parent().unwrap_or(Path::new(".")))
}

/// Parses rules; `folder` is the folder of their map of walls.
pub(crate) fn parse(text: &str, folder: &Path) -> Result<Rules, RulesFileError> {
    let raw: RawRules = toml::from_str(text).map_err(|error| {
        let before = &text.as_bytes()[..error.span().map_or(0, |span| span.start)];
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        // serde's message may have several lines.
        RulesFileError::Syntax { line, message: error.message().replace('\n', ", ") }
    })?;
    let mut world = Map {
        tile_cm: raw.world.tile_cm,
        tiles_per_side: raw.world.tiles_per_side,
        speed_cm_per_s_max: raw.world.speed_cm_per_s_max,
        speed_burst_ms: raw.world.speed_burst_ms,
        walls: Vec::new(),
    };
    if let Some(walls) = raw.world.walls {
        world.walls = read_walls(&folder.join(walls), world.tiles_per_side)?;
    }
    let rules = Rules {
        world,
        actors: raw.actors.into(),
        hunts: raw.hunts.into(),
        points: raw.loot.points.into_iter().map(Points::from).collect(),
        finds: raw.loot.items.into_iter().map(Find::from).collect(),
        weapons: raw.weapons.into_iter().map(Weapon::from).collect(),
        items: raw.items.into_iter().map(Item::try_from).collect::<Result<_, _>>()?,
        effects: raw.effects.in_order(),
    };
    rules.check()?;
    Ok(rules)
}

fn read(path: &Path) -> Result<String, RulesFileError> {
    read_text(path, RULES_BYTES_MAX)
        .map_err(|source| RulesFileError::Read { path: path.to_owned(), source })
}

fn read_walls(path: &Path, tiles: u32) -> Result<Vec<u64>, RulesFileError> {
    let text = read(path)?;
    let side = tiles as usize;
    let bad = || RulesFileError::Map { path: path.to_owned(), tiles };
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
            _ => return Err(RulesFileError::Item { name: raw.name }),
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
    use std::ops::Range;

    #[test]
    fn a_key_that_the_rules_do_not_have_is_an_error_that_names_it() {
        let text = BUILT_IN.replace("[world]", "[world]\ngravity = 9\n");
        let error = parse(&text, Path::new(".")).unwrap_err().to_string();
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
            let error = parse(&BUILT_IN.replace(from, to), Path::new(".")).unwrap_err();
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
                let Ok(rules) = parse(&text, Path::new(".")) else { continue };
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
        assert_eq!(parse(&text, folder.path()).unwrap().world.walls, [1 << 1 | 1 << 11]);
        std::fs::write(folder.path().join("zone.map"), ".#..\n....\n...\n....\n").unwrap();
        let error = parse(&text, folder.path()).unwrap_err().to_string();
        assert!(error.contains("4 lines of 4 characters"), "{error}");
    }
}
