//! The kit with a game that is not the treasure hunt.

mod migrating;
mod relay;
mod state_changes;
mod turf;
