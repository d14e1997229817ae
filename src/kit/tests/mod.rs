//! The kit with a game that is not the treasure hunt.

mod proof;
pub(crate) mod turf;
