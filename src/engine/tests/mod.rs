//! The engine as scripts, a file a rule, and as random games.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "tests are not pure")]

mod changing_rules;
mod checkpoints;
mod clock;
mod documents;
mod handoffs;
mod hostile;
mod hunting;
mod items;
mod moving;
mod presence;
mod properties;
mod random_games;
mod script;
mod shooting;
mod versions;
