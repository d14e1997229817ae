//! Updates to answers: what clients may know of the world, folded from what was published.
//!
//! Pure, like the engine: no I/O, clock or thread. It gets the updates that the reader rule
//! accepted, so it never knows more than the log. Two views of a zone at one update are equal,
//! whether they began with the zone or with a snapshot. A view that began with a snapshot lacks
//! only what happened before it.
//!
//! Cards, boards and recent updates follow from the tables of a game ([`game::ViewSchema`]). A game
//! adds the rest through [`game::GameView`].
#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods, clippy::disallowed_types, clippy::float_arithmetic)]

pub mod game;

pub mod card;

pub mod json;

pub mod zone;

pub(crate) mod board;

pub(crate) mod nearby;

pub(crate) mod recent;

pub mod world;

#[cfg(test)]
mod tests;
