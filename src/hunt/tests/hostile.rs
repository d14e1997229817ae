//! A million random events, valid and invalid, over several zones: nothing panics, invariants hold,
//! and neither restarts nor batches change anything. `HUNTD_FUZZ_EVENTS` sets the number.

use crate::hunt::change::KINDS;
use crate::hunt::event::Event;
use crate::testing::hostile_zone::{HostileZone, rulebook, setting};
use crate::testing::random::Random;
use crate::testing::random_game::RandomGame;
use std::panic::catch_unwind;

const ZONES: usize = 3;

/// Events after which a zone starts over, so that a hostile time ends only one game.
const GAME_EVENTS: usize = 5_000;

/// Events between two checks of the whole zone.
const CHECK_EVENTS: usize = 500;

/// Plays a game in each zone with interleaved events; then each zone's game again, alone. Returns
/// the kinds of updates and the number of applied events.
fn play(seed: u64) -> (u64, u64) {
    let rulebooks = [rulebook(false), rulebook(true)];
    let zone = |number: usize| HostileZone::new(number as u16, &rulebooks[number % 2]);
    let seeds = (0..ZONES).map(|number| seed * ZONES as u64 + number as u64);
    let mut chances: Vec<Random> = seeds.map(Random::new).collect();
    let game = |number: usize| RandomGame::new(setting(&rulebooks[number % 2]));
    let mut makers: Vec<RandomGame> = (0..ZONES).map(game).collect();
    let mut zones: Vec<HostileZone> = (0..ZONES).map(zone).collect();
    let mut games: Vec<Vec<Event>> = vec![Vec::new(); ZONES];
    for count in 1..=GAME_EVENTS {
        for number in 0..ZONES {
            let chance = &mut chances[number];
            let event = makers[number].event(&mut |bound| chance.below(bound));
            zones[number].apply(&event);
            games[number].push(event);
            if count % CHECK_EVENTS == 0 {
                zones[number].check_and_restart();
            }
        }
    }
    for number in 0..ZONES {
        let mut again = zone(number);
        again.apply_ahead(&games[number]);
        assert_eq!(again.outcome(), zones[number].outcome(), "zone {number} differs");
    }
    zones
        .iter()
        .map(HostileZone::reached)
        .fold((0, 0), |all, zone| (all.0 | zone.0, all.1 + zone.1))
}

#[test]
fn no_sequence_of_events_breaks_a_zone_and_a_replay_gives_the_same() {
    let events = std::env::var("HUNTD_FUZZ_EVENTS")
        .map_or(1_000_000, |count| count.parse().expect("HUNTD_FUZZ_EVENTS is a number of events"));
    let games = u64::div_ceil(events, (ZONES * GAME_EVENTS) as u64);
    let (mut kinds, mut applied) = (0, 0);
    for seed in 0..games {
        let played = catch_unwind(|| play(seed));
        let reached =
            played.unwrap_or_else(|_| panic!("the game of seed {seed} failed, see above"));
        (kinds, applied) = (kinds | reached.0, applied + reached.1);
    }
    // Hostile events did not prevent normal games.
    let never = (1..).zip(KINDS).filter(|(number, _)| kinds >> number & 1 == 0);
    let never: Vec<_> = never.map(|(_, kind)| kind.name).collect();
    assert!(never.is_empty(), "no game had an update that is {never:?}: see RandomGame");
    assert!(applied > games * (ZONES * GAME_EVENTS) as u64 / 5, "{applied} of {events} applied");
}
