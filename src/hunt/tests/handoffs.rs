//! Handoffs from one zone to another.

use super::script::{Game, check, rules};
use crate::hunt::event::Action;
use crate::hunt::handoff::{HANDOFF_PARTS, HandoffOut};

#[test]
fn a_handoff_takes_everything_along_and_enters_at_the_opposite_edge() {
    let mut west = Game::of_zone(1, rules());
    west.check(
        "7 arrive x=16000 y=3000 from_zone=9 crossing=4 last_seq=20 score=700 item=2 count=3 \
           effect=3 left_ms=5000
         > 7 arrived from_zone=9 crossing=4 x=16000 y=3000
         > 7 item_gained item=2 gained=3 held=3
         > 7 effect_started effect=compass lasts_ms=5000
         > 7 scored cause=arrival points=700 score=700
         wait 1000
         7 leave to_zone=1 seq=21
         > 7 refused reason=same_zone action=leave seq=21",
    );
    let updates = west.play("7 leave to_zone=2 seq=22");
    let parts: &[_; HANDOFF_PARTS] = updates[1..].try_into().unwrap();
    let (player_id, out) = HandoffOut::from_updates(1, parts).unwrap();
    assert_eq!((player_id, out.to_zone), (7, 2));
    let mut east = Game::of_zone(2, rules());
    let HandoffOut { x, y, handoff, .. } = out;
    let arrived = east.apply(7, 0, Action::Arrive { x, y, handoff });
    let published: Vec<String> = arrived.iter().map(super::script::sentence).collect();
    assert_eq!(
        published,
        [
            "7 arrived from_zone=1 crossing=5 x=383 y=3000",
            "7 item_gained item=2 gained=3 held=3",
            "7 effect_started effect=compass lasts_ms=4000",
            "7 scored cause=arrival points=700 score=700",
        ]
    );
    assert_eq!(east.apply(7, 0, Action::Arrive { x, y, handoff }), []);
    east.check(
        "7 rotate heading=5 seq=22
         7 rotate heading=5 seq=23
         > 7 rotated heading=5",
    );
}

#[test]
fn a_handoff_that_comes_after_its_player_is_added() {
    check(
        "7 join x=0 y=0 seq=30
         > 7 joined health=100 x=0 y=0
         7 arrive x=99 y=99 crossing=3 last_seq=20 score=70 item=1 count=4
         > 7 item_gained item=1 gained=4 held=4
         > 7 scored cause=arrival points=70 score=70
         7 arrive x=99 y=99 crossing=3 last_seq=20 score=70 item=1 count=4
         7 move x=1 y=0 seq=30
         7 move x=1 y=0 seq=31
         > 7 moved tile=0 x=1 y=0",
    );
}

/// A player who was sent to and fro has a higher handoff number than its next zones may count from,
/// and still arrives; a repetition does not.
#[test]
fn a_later_departure_is_accepted_whatever_number_it_has() {
    check(
        "7 arrive x=0 y=0 from_zone=1 crossing=7 last_seq=4 item=1 count=1
         > 7 arrived from_zone=1 crossing=7 x=0 y=0
         > 7 item_gained item=1 gained=1 held=1
         7 leave seq=5
         > 7 left seq=5
         7 arrive x=0 y=0 from_zone=2 crossing=7 last_seq=7 item=1 count=2
         > 7 arrived from_zone=2 crossing=7 x=0 y=0
         > 7 item_gained item=1 gained=2 held=2
         7 arrive x=0 y=0 from_zone=2 crossing=7 last_seq=7 item=1 count=2
         7 arrive x=0 y=0 from_zone=1 crossing=7 last_seq=4 item=1 count=1",
    );
}

#[test]
fn an_arrival_at_a_full_tile_or_a_wall_or_off_the_map_stands_nearby() {
    let mut rules = rules();
    rules.actors.per_tile_max = 1;
    rules.world.walls = vec![0b10, 0, 0, 0];
    Game::new(rules).check(
        "1 join x=0 y=0
         > 1 joined health=100 x=0 y=0
         2 arrive x=-5 y=3 crossing=1
         > 2 arrived from_zone=9 crossing=1 x=512 y=1536
         3 join x=16383 y=3
         > 3 joined health=100 x=16383 y=3
         4 arrive x=16383 y=3 crossing=1
         > 4 arrived from_zone=9 crossing=1 x=15872 y=1536",
    );
}

#[test]
fn an_arrival_at_a_full_zone_is_sent_back_once_with_everything() {
    let mut rules = rules();
    rules.actors.count_max = 1;
    Game::of_zone(4, rules).check(
        "1 join x=0 y=0
         > 1 joined health=100 x=0 y=0
         2 arrive x=0 y=50 from_zone=6 crossing=8 last_seq=11 score=5 item=3 count=2
         > 2 handoff to_zone=6 crossing=9 last_seq=11
         > 2 handoff_place x=16383 y=50
         > 2 handoff_score score=5
         > 2 handoff_items first_slot=0 items=[[3,2],[0,0],[0,0],[0,0]]
         > 2 handoff_items first_slot=4 items=[[0,0],[0,0],[0,0],[0,0]]
         > 2 handoff_effect slot=0 effect=0 left_ms=0
         > 2 handoff_effect slot=1 effect=0 left_ms=0
         > 2 handoff_effect slot=2 effect=0 left_ms=0
         > 2 handoff_effect slot=3 effect=0 left_ms=0
         2 arrive x=0 y=50 from_zone=6 crossing=8 last_seq=11 score=5 item=3 count=2",
    );
}

/// Zones count handoffs from what they know of a player, so a number may occur twice.
#[test]
fn a_handoff_is_accepted_whatever_number_an_earlier_one_had() {
    check(
        "7 arrive x=0 y=0 crossing=2147483648 last_seq=3000000001 item=1 count=1
         > 7 arrived from_zone=9 crossing=2147483648 x=0 y=0
         > 7 item_gained item=1 gained=1 held=1
         7 leave seq=3000000002
         > 7 left seq=3000000002
         # From a zone where it joined again it comes back ahead of its handoff.
         7 join x=0 y=0 seq=3000000011
         > 7 joined health=100 x=0 y=0
         7 arrive x=0 y=0 crossing=2147483648 last_seq=3000000010 item=2 count=3
         > 7 item_gained item=2 gained=3 held=3
         7 arrive x=0 y=0 crossing=2147483648 last_seq=3000000010 item=2 count=3
         # One that was sent back has the same last_seq and a higher number.
         7 arrive x=0 y=0 crossing=2147483650 last_seq=3000000010 item=2 count=1
         > 7 item_gained item=2 gained=1 held=4",
    );
}

#[test]
fn nobody_arrives_from_the_zone_it_comes_to() {
    check(
        "7 arrive x=0 y=0 from_zone=0 crossing=1
         > 7 refused reason=same_zone action=arrive seq=1",
    );
}
