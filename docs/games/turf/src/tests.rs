//! Turf is a function of its log: batches, and restarts from a stored state, change nothing.

use crate::bots::Painters;
use crate::events::TurfAction;
use crate::{first, second};
use huntd::edition::built_in;
use huntd::kit::bots::{Bots, SplitMix64};
use huntd::kit::event::{Event, GameAction};
use huntd::testing::proof::prove;
use huntd::testing::random::Random;

const PLAYERS: usize = 50;

/// What the bots do in one zone.
fn events(seed: u64) -> Vec<Event<TurfAction>> {
    let (mut chance, mut bots) = (SplitMix64::new(seed), Painters { fields: 1024 });
    let event = |number: usize| {
        let time_ms = 20 * number as i64;
        let player = number % (PLAYERS + 1);
        let words = match player {
            0 => bots.act_as_world(time_ms as u64 / 1000 + 1, 0, &mut chance),
            _ if number <= PLAYERS => bots.enter(player - 1, 0),
            _ => bots.act(player - 1, 0, &mut chance),
        };
        let action = TurfAction::unpack(&words, &[]);
        let (player_id, seq) = (player as u64, number as u64 + 1);
        Event { offset: number as i64, time_ms, player_id, seq, ts_us: 0, action }
    };
    (0..5_000).map(event).collect()
}

#[test]
fn both_versions_are_functions_of_their_log() {
    for seed in 0..20 {
        let (events, mut random) = (events(seed), Random::new(seed));
        let first =
            prove::<first::play::Turf>(&built_in::<first::play::Turf>(), &events, &mut random);
        let second =
            prove::<second::play::Turf>(&built_in::<second::play::Turf>(), &events, &mut random);
        let (first, second) = (first.expect("a function"), second.expect("a function"));
        assert!(!first.is_empty() && first.len() == second.len() && first != second, "{seed}");
    }
}
