//! Turf, the game of docs/GAMES.md: two teams paint the fields of a square zone while a round runs.
//! Here it is the small game beside the treasure hunt, with further versions between which a state
//! moves, and with faults.
#![allow(unreachable_pub, reason = "the macros declare what other modules see")]

#[path = "../../../docs/games/turf/src/bots.rs"]
mod bots;

#[path = "../../../docs/games/turf/src/events.rs"]
pub mod events;

#[path = "../../../docs/games/turf/src/first.rs"]
pub mod first;

#[path = "../../../docs/games/turf/src/second.rs"]
pub mod second;

#[cfg(test)]
pub(crate) mod third;

#[cfg(test)]
pub(crate) mod forgetful;

#[cfg(test)]
pub(crate) mod secretive;

#[cfg(test)]
pub(crate) mod boastful;

use crate::kit::event::Event;
use crate::testing::random::Random;
use events::TurfAction;

/// The rules of a small zone in the first version.
pub const FIRST_RULES: first::play::TurfRules = first::play::TurfRules { side: 8, players_max: 6 };

/// The rules of a small zone in the second version.
pub const SECOND_RULES: second::play::TurfRules =
    second::play::TurfRules { side: 8, players_max: 6 };

/// Random events of every kind, most of them new and in range.
pub fn random_events(random: &mut Random, count: i64) -> Vec<Event<TurfAction>> {
    let (mut seqs, mut time_ms) = ([0; 10], 1_000_000);
    let event = |offset| {
        time_ms += random.below(40) as i64;
        let action = match random.below(20) {
            0..3 => TurfAction::Join { field: random.below(70) as u32 },
            3..10 => TurfAction::Step { east: u8::from(random.below(3) > 0) },
            10..16 => TurfAction::Paint,
            16 => TurfAction::Leave,
            17 => TurfAction::Round { seconds: random.below(3) as u16 },
            _ => TurfAction::Tick,
        };
        let player =
            if action.kind().spec().subject.is_world() { 0 } else { random.below(10) as usize };
        seqs[player] += u64::from(random.below(30) > 0);
        let (player_id, seq) = (player as u64, seqs[player]);
        Event { offset, time_ms, player_id, seq, ts_us: 7, action }
    };
    (0..count).map(event).collect()
}
