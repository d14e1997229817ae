//! When the zone's clock is published.

use super::script::{Game, rules, sentence};
use crate::hunt::event::Action;

fn played(game: &mut Game, player_id: u64, seq: u64, action: Action) -> Vec<String> {
    game.apply_clocked(player_id, seq, action).iter().map(sentence).collect()
}

const JOIN: Action = Action::Join { x: 500, y: 500 };

#[test]
fn the_clock_is_published_by_the_event_that_starts_it() {
    let mut game = Game::unstarted(rules());
    for seq in 1..8 {
        assert!(played(&mut game, 0, seq, Action::Tick).is_empty(), "tick {seq}");
    }
    assert_eq!(played(&mut game, 0, 8, Action::Tick), ["0 clock unix_ms=1000000"]);
    assert!(played(&mut game, 0, 9, Action::Tick).is_empty(), "it stands");
}

#[test]
fn the_clock_is_published_once_before_what_begins_or_lasts_from_now_on() {
    let mut game = Game::new(rules());
    assert_eq!(played(&mut game, 4, 1, JOIN), ["4 joined health=100 x=500 y=500"]);
    game.pass(700);
    let joined = ["0 clock unix_ms=1000700", "5 joined health=100 x=500 y=500"];
    assert_eq!(played(&mut game, 5, 1, JOIN), joined);
    assert_eq!(played(&mut game, 6, 1, JOIN).len(), 1);
    game.pass(10);
    let turned = ["4 rotated heading=5"];
    assert_eq!(played(&mut game, 4, 20, Action::Rotate { heading: 5 }), turned);
    let hunt = Action::HuntStart { hunt: 1, seed: 3, treasures: 2, duration_ms: 60_000 };
    let started = &played(&mut game, 0, 0, hunt)[..2];
    let expected =
        ["0 clock unix_ms=1000710", "0 hunt_started treasures=2 hunt=1 duration_ms=60000"];
    assert_eq!(started, expected);
}

#[test]
fn each_tick_publishes_the_clock_if_it_moved() {
    let mut game = Game::new(rules());
    game.pass(30);
    assert_eq!(played(&mut game, 0, 100, Action::Tick), ["0 clock unix_ms=1000030"]);
    assert!(played(&mut game, 0, 100, Action::Tick).is_empty(), "a repeated tick is a no-op");
    game.pass(5);
    assert!(played(&mut game, 0, 100, Action::Tick).is_empty());
    assert_eq!(played(&mut game, 0, 101, Action::Tick), ["0 clock unix_ms=1000035"]);
}
