//! The game as a pure, deterministic state machine that turns events into updates.
//!
//! The engine has no I/O, clock, randomness, float, lock or thread, and no order that depends on
//! memory addresses. The same events yield the same updates and the same digest, however they are
//! batched and however often the shard is restarted.
#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods, clippy::disallowed_types, clippy::float_arithmetic)]

pub mod event;

pub mod frames;

pub mod change;

pub mod refusal;

pub mod rules;

pub mod rules_file;

pub(crate) mod playable;

pub(crate) mod hunters;

pub(crate) mod walkers;

pub(crate) mod actor;

pub(crate) mod actors;

pub(crate) mod handoff;

pub(crate) mod outline;

pub(crate) mod hunts;

pub(crate) mod path;

pub(crate) mod tiles;

pub(crate) mod walk;

pub(crate) mod game;

pub mod state;

pub(crate) mod tables;

pub(crate) mod queries;

pub(crate) mod page;

#[cfg(test)]
mod tests;

use crate::kit;
use crate::kit::engine::{GameSchema, schema_of};
use crate::kit::zone::Zone;
use handoff::HandoffOut;
use hunts::HUNTS_MAX;
use refusal::Refusal;
use rules::inventory::Inventory;
use state::TreasureHunt;

/// The state of one zone of the hunt.
pub type Shard = Zone<TreasureHunt>;

/// Returns the tables of the hunt.
pub fn schema() -> &'static GameSchema {
    schema_of::<TreasureHunt>()
}

/// The outcome of an event of the hunt.
pub type Outcome = kit::zone::Outcome<Refusal>;

/// The destination of updates of the hunt's events.
pub(crate) type EventOutput<'a> = kit::zone::EventOutput<'a, TreasureHunt>;

/// Counts of a zone's players, hunts and treasures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Population {
    /// Players who have joined and not left.
    pub players: u32,
    /// Running hunts.
    pub hunts: u32,
    /// Laid and unopened treasures of these hunts.
    pub treasures: u32,
}

impl EventOutput<'_> {
    /// Publishes all parts of a handoff.
    pub(crate) fn handoff(&mut self, player_id: u64, handoff: &HandoffOut) {
        handoff.parts().into_iter().for_each(|part| self.push(player_id, part));
    }
}

impl Shard {
    /// Returns the counts of the zone.
    pub(crate) fn population(&self) -> Population {
        let hunts =
            (0..HUNTS_MAX).map(|slot| self.game.hunts.hunt(slot)).filter(|hunt| hunt.running());
        let mut population =
            Population { players: self.game.actors.count(), ..Population::default() };
        for hunt in hunts {
            population.hunts += 1;
            population.treasures += u32::from(hunt.laid.saturating_sub(hunt.opened));
        }
        population
    }

    /// Returns a player's inventory; `None` if the player is not here.
    pub(crate) fn inventory(&self, player_id: u64) -> Option<&Inventory> {
        self.game.actors.find(player_id).map(|row| &self.game.actors.pack(row).items)
    }
}
