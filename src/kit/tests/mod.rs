//! The kit under a game that is not the treasure hunt.

mod proof;
mod turf;
