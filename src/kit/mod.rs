//! The building blocks of a game: tables with a digest and checkpoints, a clock, an index of
//! players, and the words of events and updates. It knows no game, Kafka, file or thread.
//!
//! Everything here depends on its input alone: no I/O, clock, randomness, float, lock or thread,
//! and no order that depends on memory addresses.
#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods, clippy::disallowed_types, clippy::float_arithmetic)]

#[macro_use]
pub mod list;

#[macro_use]
pub mod kinds;

pub mod packed;

#[macro_use]
pub mod players;

#[macro_use]
pub mod row;

#[macro_use]
pub mod state;

pub mod numbered;

pub(crate) mod names;

pub mod field;

pub mod update;

pub(crate) mod line;

pub mod update_json;

#[macro_use]
pub mod event;

pub mod event_list;

pub mod zone;

pub mod engine;

pub mod game;

pub mod rulebook;

pub mod bots;

pub mod checkpoint;

pub mod stored_names;

pub(crate) mod state_changes;

pub mod clock;

pub(crate) mod table;

pub(crate) mod chunks;

pub(crate) mod index;

pub(crate) mod rank_tree;

pub mod tombstones;

pub mod words;

pub mod mix;

#[cfg(test)]
pub(crate) mod tests;

use chunks::CHUNK_ROWS;
use index::ROWS_MAX;

/// Limit of players in a zone: a full zone is a refusal, never a resize.
pub(crate) const PLAYERS_MAX: usize = ROWS_MAX;
const _: () = assert!(PLAYERS_MAX.is_multiple_of(CHUNK_ROWS) && CHUNK_ROWS.is_power_of_two());
