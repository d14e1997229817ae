//! Turf: two teams paint the fields of a square zone while a round runs. A small game that is not
//! the treasure hunt, in three editions: versions between which a state moves.
#![allow(unreachable_pub, reason = "the macros declare what other modules see")]

pub(crate) mod edition;

pub mod play;

pub mod second;

pub mod third;

use crate::kit::stored_names::Migration;

/// In what the editions differ, beside their rows.
trait TurfEdition {
    /// The version.
    const VERSION: u32;

    /// How fields get their values from another edition's.
    const MIGRATIONS: &'static [Migration];

    /// Notes that the player has gone one field on.
    fn stepped(&mut self);

    /// Notes that the player has painted a field, and returns the points for it.
    fn reward(&mut self) -> u64;
}
