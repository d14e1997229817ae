//! The results of each version for one fixed game, `tests/data/game.tsv`: a change without a new
//! version fails here. Otherwise one of two daemons with the same version would continue from the
//! other's state and make different updates.

use super::texts;
use crate::decoder::{Decoder, RecordPosition};
use crate::hunt::Shard;
use crate::hunt::change::KINDS;
use crate::hunt::event::{Action, EVENTS, Event};
use crate::hunt::rules::rulebook::Rulebook;
use crate::hunt::rules::{self, ENGINE_VERSION};
use crate::hunt::state::FORMAT;
use crate::kit::engine::encode_state;
use crate::kit::event::DECODER_VERSION;
use crate::kit::stored_names::NamedState;
use crate::kit::update::Updates;
use crate::output::event_json::write_event;
use crate::output::frame::Chain;
use crc32c::crc32c_append;
use std::collections::BTreeSet;

/// One line per record: its time in milliseconds, a tab, its value.
const GAME: &str = include_str!("../../../tests/data/game.tsv");

/// Version, and checksum of the decoded records.
const DECODED: (u64, u32) = (2, 3_304_230_910);

/// Version, chain of the game's updates, and digest of the final state.
const PLAYED: (u64, u64, u64) = (5, 13_147_403_686_807_196_959, 10_645_089_784_255_944_890);

/// Versions of the format and of the engine, length and checksum of the stored state.
const STORED: (u8, u64, usize, u32) = (5, 5, 4_168, 2_140_649_096);

/// Length and checksum of the rows in it: a state without names consists of these.
const STORED_ROWS: (usize, u32) = (2_432, 1_114_152_513);

/// The records, each with its event or reject.
fn records() -> Vec<(&'static str, Result<Event, &'static str>)> {
    let mut decoder = Decoder::new(&EVENTS);
    let record = |(offset, line): (i64, &'static str)| {
        let (time_ms, value) = line.split_once('\t').expect("a time and a value");
        let time_ms = time_ms.parse().expect("a time is a number");
        let position = RecordPosition { offset, time_ms };
        let event = decoder.decode::<Action>(position, Some(value.as_bytes()));
        (value, event.map_err(|reject| reject.name()))
    };
    (0..).zip(GAME.lines()).map(record).collect()
}

/// The rules of the game, which depend on no file.
fn rulebook() -> Rulebook {
    let mut rules = rules::tests::sample();
    rules.world.tiles_per_side = 16;
    rules.world.tile_cm = 256;
    rules.hunts.reach_cm = 512;
    rules.world.walls = vec![0x0000_1ff0_0000_0404, 0x8080_0000_7f00_0000, 0, 0x3c3c];
    rules.actors.count_max = 12;
    rules.actors.per_tile_max = 3;
    rules.actors.respawn_ms = 300;
    rules.hunts.finish_treasures = 2;
    rules.weapons[0].damage = 60;
    rules.weapons[0].reload_ms = 50;
    Rulebook::of(rules)
}

/// The state after the game, with the updates' chain and a bit per kind of update.
fn play() -> (Shard, Chain, u64) {
    let mut shard = Shard::new(1, &rulebook());
    let mut updates = Updates::new();
    let (mut chain, mut kinds) = (Chain::default(), 0);
    for event in records().into_iter().filter_map(|(_, event)| event.ok()) {
        updates.clear();
        shard.apply(&event, &mut updates);
        for update in updates.as_slice() {
            chain = chain.with(update);
            kinds |= 1 << update.payload().kind;
        }
    }
    (shard, chain, kinds)
}

#[test]
fn what_the_decoder_makes_of_records_has_a_version() {
    let (mut checksum, mut rejects) = (0, 0);
    for (_, record) in records() {
        let mut text = Vec::new();
        match record {
            Ok(Event { player_id, seq, ts_us, action, .. }) => {
                write_event(&mut text, player_id, seq, ts_us, &action);
            }
            Err(reject) => {
                text.extend_from_slice(reject.as_bytes());
                rejects += 1;
            }
        }
        checksum = crc32c_append(checksum, &text);
    }
    assert!(rejects > 10, "{rejects} records are none of the game");
    assert_eq!(
        (DECODER_VERSION, checksum),
        DECODED,
        "records give other events or rejects: raise DECODER_VERSION, then put the left side here"
    );
}

#[test]
fn what_the_engine_makes_of_events_has_a_version() {
    let (shard, chain, kinds) = play();
    let is_missing = |(number, _): &(u32, &_)| kinds >> number & 1 == 0;
    let missing: Vec<_> = (1..).zip(KINDS).filter(is_missing).map(|(_, kind)| kind.name).collect();
    // Rules are named by their hash, which changes with the version.
    assert_eq!(
        missing,
        ["rules_changed"],
        "kinds of updates that the game lacks: add records that make them to tests/data/game.tsv"
    );
    assert_eq!(
        (ENGINE_VERSION, chain.0, shard.digest()),
        PLAYED,
        "events give other updates or another state: raise ENGINE_VERSION, then put the left side \
         here"
    );
}

#[test]
fn how_a_state_is_stored_has_a_version() {
    let (mut shard, ..) = play();
    let mut bytes = Vec::new();
    encode_state(&mut shard, &mut bytes);
    let rows = NamedState::of(&bytes).expect("a state").body();
    assert_eq!((rows.len(), crc32c_append(0, rows)), STORED_ROWS, "see below");
    let restored = Shard::decode_state(rows, &rulebook()).expect("a state of before names");
    assert_eq!(restored.digest(), shard.digest());
    assert_eq!(
        (FORMAT.to_le_bytes()[7], ENGINE_VERSION, bytes.len(), crc32c_append(0, &bytes)),
        STORED,
        "a state is stored in another way: raise the version in FORMAT (hunt/state.rs), unless \
         only ENGINE_VERSION or the game has changed, then put the left side here"
    );
}

/// Constants of the engine that are not in `DECIDING`.
const BESIDE_DECIDING: [&[&str]; 7] = [
    // Limits of a rules file's values, and constants that prove another limit.
    &[
        "ACTIONS_MAX",
        "ARRIVAL_UPDATES_MAX",
        "CARRIED_WORDS_MAX",
        "CLOCK_UPDATES_MAX",
        "COUNTS_MAX",
        "FIELDS_MAX",
        "FRAME_UPDATES_MAX",
        "HEALTH_MAX",
        "KINDS_MAX",
        "NAMED_ROW_WORDS_MAX",
        "PLAYERS_MAX",
        "REFUSALS_MAX",
        "ROW_WORDS_MAX",
        "RULES_FILES_MAX",
        "RUNS_MAX",
        "SETTLE_UPDATES_MAX",
        "STATE_BYTES_MAX",
        "TEXT_BYTES_MAX",
        "TILES_PER_SIDE_MAX",
        "ZONE_CM_MAX",
    ],
    // Sizes of look-ups, writes and buffers: they affect only time and memory.
    &[
        "ACTORS_AHEAD",
        "ASCII_ZEROS",
        "BUCKETS_MIN",
        "BUCKET_ENTRIES",
        "BUCKET_PLACES",
        "CHECKPOINT_ROWS_PER_PIECE",
        "CHUNK_NODES",
        "CHUNK_ROWS",
        "CHUNK_WORDS",
        "ENTRIES_FILLED",
        "ENTRIES_MAX",
        "ENTRIES_MIN",
        "EVENTS_AHEAD",
        "GROUP",
        "HEAD_BYTES",
        "LINE_BYTES",
        "LIST",
        "NOTED_WORDS_MAX",
        "NO_NODE",
        "NO_ROW",
        "NO_TILE",
        "NUMBER_BITS",
        "OBSTACLES_AHEAD",
        "PIECES_AHEAD",
        "PLACES",
        "ROW_BITS",
        "TAG_MASK",
        "TEXT_BYTES",
    ],
    // The format of events, rows and updates: if it changes, a pin in this file fails.
    &[
        "ACTORS",
        "ACTOR_WORDS",
        "CLOCK_WORDS",
        "COUNT",
        "DIGEST",
        "EFFECT_SLOTS",
        "EVENT_UPDATES_MAX",
        "FINISHERS",
        "FORMAT",
        "GAME_TABLES",
        "HALVES",
        "HANDOFF_PARTS",
        "HANDOFF_WORDS",
        "HUNTS",
        "INVENTORY_SLOTS",
        "LEAST",
        "MOST",
        "NAMED_STATE",
        "NOTED",
        "NUMBER_MAX",
        "OPENED",
        "PARTS",
        "PLAYER_ID",
        "PRESENT_SHIFT",
        "RING",
        "SEARCHES",
        "SEQ",
        "SET_WORDS",
        "SLOTS",
        "SOUGHT",
        "STORED_ROW_WORDS_MAX",
        "STORED_TOMBSTONE_WORDS",
        "STRIP_TILES",
        "TOMBSTONES",
        "TREASURES",
        "TS_US",
        "TYPE",
        "UPDATE_BYTES",
        "UPDATE_JSON_BYTES_MAX",
        "WORDS",
        "ZONE",
    ],
    // What bots do: their events are input.
    &[
        "BOT_ID_FIRST",
        "BOT_WEAPONS",
        "CM",
        "HUNT_END_TICKS",
        "HUNT_EVERY_TICKS",
        "HUNT_LATER_TICKS",
        "HUNT_MS",
        "HUNT_TREASURES",
        "REACH_CM",
        "ROAMS",
        "SHOTS_PERCENT",
        "SHOT_CM_MAX",
        "SPEED_CM_PER_S",
        "SPEED_PER_S",
        "STEP_CM_MAX",
        "STEP_MAX",
        "TREASURES_SEEN",
        "WALK_SIDE",
    ],
    // Constants of tests beside the code.
    &["ROWS", "YEAR_MS"],
    // Other names for constants in `DECIDING`.
    &["RECORDS", "ROWS_MAX"],
    // The version begins the hash. It must rise if one of the others changes: they belong to sines
    // and headings, or are the first number of a count.
    &["BITS", "CROSSING_START_MAX", "ENGINE_VERSION", "HEADINGS", "PI", "SINE_BITS", "VERSION"],
];

/// The name of the constant that a line declares, if it is a single number.
fn number(line: &str) -> Option<&str> {
    let (_, declared) = line.trim_start().split_once("const ")?;
    let (name, rest) = declared.split_once(": ")?;
    let (form, _) = rest.split_once(" = ")?;
    let is_number = form.starts_with(['u', 'i']) && form[1..].parse::<u8>().is_ok();
    (is_number || form == "usize" || form == "isize").then_some(name)
}

#[test]
fn every_number_of_the_engine_that_decides_is_part_of_the_ruleset() {
    let sources = texts("src/hunt/rules") + &texts("src/hunt") + &texts("src/kit");
    let (_, list) = sources.split_once("const DECIDING: ").expect("the list");
    let (list, _) = list.split_once("];").expect("its end");
    let deciding: Vec<&str> = list.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
    let numbers: BTreeSet<&str> = sources.lines().filter_map(number).collect();
    let beside = BESIDE_DECIDING.concat();
    let gone: Vec<_> = beside.iter().filter(|name| !numbers.contains(*name)).collect();
    assert!(gone.is_empty(), "{gone:?} are no numbers of the engine");
    let is_in_none = |name: &&str| !deciding.contains(name) && !beside.contains(name);
    let in_none: Vec<&str> = numbers.into_iter().filter(is_in_none).collect();
    assert!(
        in_none.is_empty(),
        "{in_none:?}: what decides belongs in DECIDING (hunt/rules/mod.rs), the others here"
    );
}
