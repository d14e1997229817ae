//! Turf is a function of its log: batches, and restarts from a stored state, change nothing.

use crate::bots::Painters;
use crate::events::TurfAction;
use crate::{first, second};
use huntd::edition::built_in;
use huntd::kit::bots::{Bots, SplitMix64};
use huntd::kit::engine::{Engine, encode_state};
use huntd::kit::event::{Event, GameAction};
use huntd::kit::rulebook::Rulebook;
use huntd::kit::update::Updates;
use huntd::kit::zone::Zone;
use huntd::testing::proof::prove;

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
fn a_player_goes_to_the_second_version_with_its_painted_fields_and_back_with_its_score() {
    let first_book = Rulebook::of(built_in::<first::play::Turf>());
    let mut zone = Zone::<first::play::Turf>::new(0, &first_book);
    for event in events(1) {
        zone.apply(&event, &mut Updates::new());
    }
    let state = |zone: &mut dyn Engine| {
        let mut bytes = Vec::new();
        encode_state(zone, &mut bytes);
        bytes
    };
    let second_book = Rulebook::of(built_in::<second::play::Turf>());
    let later = Zone::<second::play::Turf>::migrate_state(&state(&mut zone), &second_book);
    let mut later = later.expect("the second version takes it over");
    let back = Zone::<first::play::Turf>::migrate_state(&state(&mut later), &first_book);
    let back = back.expect("the first version takes it back");
    let mut points = 0;
    for row in 0..zone.game.players.used() {
        let before = zone.game.players.row(row);
        assert_eq!(u64::from(later.game.players.row(row).painted), before.score);
        assert_eq!(back.game.players.row(row).score, before.score);
        points += before.score;
    }
    assert!(points > 100, "{points} points");
}

#[test]
fn both_versions_are_functions_of_their_log() {
    for seed in 0..20 {
        let events = events(seed);
        let first = prove::<first::play::Turf>(&built_in::<first::play::Turf>(), &events, seed);
        let second = prove::<second::play::Turf>(&built_in::<second::play::Turf>(), &events, seed);
        let (first, second) = (first.expect("a function"), second.expect("a function"));
        assert!(!first.is_empty() && first.len() == second.len() && first != second, "{seed}");
    }
}
