//! The tables of the hunt's stored state: which bits of a row are which field.

use crate::hunt::actor::{Body, Pack};
use crate::hunt::actors::ACTOR_WORDS;
use crate::hunt::hunts::{Finisher, Hunt, Treasure};
use crate::hunt::path::SET_WORDS;
use crate::kit::row::Row;
use crate::kit::stored_names::{GAME_TABLES, StoredField, StoredTable};

/// An actor: the words of its two rows.
pub(crate) const ACTORS: u8 = GAME_TABLES;
/// What is of no slot.
pub(crate) const HUNTS: u8 = ACTORS + 1;
/// The hunt in a slot.
pub(crate) const SLOTS: u8 = HUNTS + 1;
/// The treasures of a slot, by number.
pub(crate) const TREASURES: u8 = SLOTS + 1;
/// The finishers of a slot that are not published yet.
pub(crate) const FINISHERS: u8 = TREASURES + 1;
/// The path searches of a slot, the finished one and the running one.
pub(crate) const SEARCHES: u8 = FINISHERS + 1;
/// The treasures that the searches seek.
pub(crate) const SOUGHT: u8 = SEARCHES + 1;

/// The tables, in the order of their numbers.
pub(crate) const TABLES: &[StoredTable] = &[
    StoredTable::new("actors", ACTOR_WORDS, ACTOR),
    StoredTable::new(
        "hunts",
        2,
        &[
            StoredField::new("last_hunt", "u32", 0, 64),
            StoredField::new("searched_ms", "u64", 64, 64),
        ],
    ),
    StoredTable::new("slots", Hunt::WORDS, SLOT),
    StoredTable::new("treasures", Treasure::WORDS, &[StoredField::new("place", "Treasure", 0, 64)]),
    StoredTable::new("finishers", Finisher::WORDS, FINISHER),
    StoredTable::new(
        "searches",
        2,
        &[
            StoredField::new("finished", "Search", 0, 64),
            StoredField::new("running", "Search", 64, 64),
        ],
    ),
    StoredTable::new(
        "sought",
        SET_WORDS,
        &[StoredField::new("treasures", "TreasureSet", 0, 64 * SET_WORDS as u32)],
    ),
];

const _: () = assert!(Body::WORDS == 7 && Pack::WORDS == 17 && Hunt::WORDS == 6);

const ACTOR: &[StoredField] = &[
    StoredField::new("player_id", "u64", 0, 64),
    StoredField::new("seq", "u64", 64, 64),
    StoredField::new("x", "i32", 128, 32),
    StoredField::new("y", "i32", 160, 32),
    StoredField::new("allowance", "u32", 192, 32),
    StoredField::new("heading", "u16", 224, 16),
    StoredField::new("health", "u16", 240, 16),
    StoredField::new("allowance_at_ms", "u64", 256, 64),
    StoredField::new("ready_at_ms", "u64", 320, 64),
    StoredField::new("effects", "u8", 384, 8),
    StoredField::new("compass_hint", "Hint", 392, 8),
    StoredField::new("compass_distance", "u16", 400, 16),
    StoredField::new("compass_hunt", "u32", 416, 32),
    StoredField::new("pack_player_id", "u64", 448, 64),
    StoredField::new("items", "[ItemStack; 8]", 512, 128),
    StoredField::new("effects_until_ms", "[u64; 4]", 640, 256),
    StoredField::new("respawn_at_ms", "u64", 896, 64),
    StoredField::new("score", "u64", 960, 64),
    StoredField::new("scored_ordinal", "u64", 1024, 64),
    StoredField::new("scored_at_ms", "u64", 1088, 64),
    StoredField::new("crossing_sent", "u32", 1152, 32),
    StoredField::new("accepted_crossing", "u32", 1184, 32),
    StoredField::new("accepted_seq", "u64", 1216, 64),
    StoredField::new("progress", "[HuntProgress; 4]", 1280, 256),
];

const SLOT: &[StoredField] = &[
    StoredField::new("hunt", "u32", 0, 32),
    StoredField::new("phase", "HuntPhase", 32, 32),
    StoredField::new("treasures", "u16", 64, 16),
    StoredField::new("tried", "u16", 80, 16),
    StoredField::new("laid", "u16", 96, 16),
    StoredField::new("opened", "u16", 112, 16),
    StoredField::new("swept", "u16", 128, 16),
    StoredField::new("finishers", "u16", 144, 16),
    StoredField::new("announced", "u16", 160, 16),
    StoredField::new("seed", "u64", 192, 64),
    StoredField::new("started_ms", "u64", 256, 64),
    StoredField::new("ends_ms", "u64", 320, 64),
];

const FINISHER: &[StoredField] = &[
    StoredField::new("player_id", "u64", 0, 64),
    StoredField::new("elapsed_ms", "u32", 64, 32),
    StoredField::new("found", "u16", 96, 16),
];
