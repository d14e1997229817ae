//! Updates to answers: what clients may know of the world, folded from what was published.
//!
//! Pure, like the engine: no I/O, clock or thread. It gets the updates that the reader rule
//! accepted, so it never knows more than the log. Two views of a zone at one update are equal,
//! whether they began with the zone or with a snapshot; only hunts that ended before a snapshot,
//! and updates before it, are not known to a view that began with it.
#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods, clippy::disallowed_types, clippy::float_arithmetic)]

pub(crate) mod card;

pub mod zone;

pub(crate) mod board;

pub(crate) mod hunts;

pub(crate) mod crowd;

pub(crate) mod recent;

pub mod world;

#[cfg(test)]
mod tests;
