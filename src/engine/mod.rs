//! Events to updates: the game, a pure and deterministic state machine.
pub mod event;
pub mod update;
