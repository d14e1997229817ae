//! Entering and leaving.

use super::script::{Game, check, rules};
use crate::decoder::reject::Reject;
use crate::decoder::{Decoder, RecordPosition};
use crate::hunt::event::{Action, EVENTS};

#[test]
fn a_player_joins_and_leaves() {
    check(
        "7 join x=100 y=200
         > 7 joined health=100 x=100 y=200
         7 leave
         > 7 left seq=2",
    );
}

#[test]
fn a_player_that_is_here_cannot_join_again_and_one_that_is_not_can_do_nothing() {
    check(
        "7 join x=100 y=200
         > 7 joined health=100 x=100 y=200
         7 join x=300 y=200
         > 7 refused reason=already_joined action=join seq=2
         8 move x=1 y=1
         > 8 refused reason=not_joined action=move seq=1
         7 leave
         > 7 left seq=3
         7 leave
         > 7 refused reason=not_joined action=leave seq=4",
    );
}

#[test]
fn a_repeated_or_older_seq_is_a_no_op_even_after_the_player_left() {
    check(
        "7 join x=100 y=200 seq=5
         > 7 joined health=100 x=100 y=200
         7 rotate heading=90 seq=5
         7 rotate heading=90 seq=4
         7 rotate heading=90 seq=6
         > 7 rotated heading=90
         7 leave
         > 7 left seq=7
         7 join x=100 y=200 seq=5
         7 leave seq=7
         7 join x=100 y=200 seq=8
         > 7 joined health=100 x=100 y=200",
    );
}

#[test]
fn a_second_join_uses_up_its_seq() {
    check(
        "7 join x=100 y=200
         > 7 joined health=100 x=100 y=200
         7 join x=100 y=200 seq=2
         > 7 refused reason=already_joined action=join seq=2
         7 rotate heading=90 seq=2
         7 rotate heading=90 seq=3
         > 7 rotated heading=90",
    );
}

#[test]
fn a_refused_event_uses_up_its_seq() {
    check(
        "7 join x=100 y=200
         > 7 joined health=100 x=100 y=200
         7 move x=-1 y=0 seq=2
         > 7 refused reason=off_map action=move seq=2
         7 move x=100 y=201 seq=2",
    );
}

#[test]
fn a_refused_event_of_a_player_who_is_not_here_leaves_no_trace() {
    check(
        "7 move x=1 y=1 seq=9
         > 7 refused reason=not_joined action=move seq=9
         7 join x=-1 y=0 seq=5
         > 7 refused reason=off_map action=join seq=5
         7 join x=0 y=0 seq=5
         > 7 joined health=100 x=0 y=0",
    );
}

/// Only other callers of the engine can cause `no_player` and `heading_out_of_range`.
#[test]
fn no_record_has_player_0_or_a_heading_of_a_full_turn() {
    let decode = |fields: &str| {
        let record = format!("{{\"type\":\"shoot\",\"seq\":1,\"ts_us\":1,{fields}}}");
        let position = RecordPosition { offset: 0, time_ms: 0 };
        Decoder::new(&EVENTS)
            .decode::<Action>(position, Some(record.as_bytes()))
            .map(|event| event.player_id)
    };
    assert_eq!(decode("\"player_id\":1,\"heading\":35999"), Ok(1));
    assert_eq!(decode("\"player_id\":0,\"heading\":35999"), Err(Reject::OutOfRange));
    assert_eq!(decode("\"player_id\":1,\"heading\":36000"), Err(Reject::OutOfRange));
}

#[test]
fn a_zone_and_a_tile_hold_no_more_than_the_rules_allow() {
    let mut rules = rules();
    rules.actors.count_max = 3;
    rules.actors.per_tile_max = 2;
    Game::new(rules).check(
        "1 join x=0 y=0
         > 1 joined health=100 x=0 y=0
         2 join x=1 y=1
         > 2 joined health=100 x=1 y=1
         3 join x=1023 y=1023
         > 3 refused reason=tile_full action=join seq=1
         3 join x=1024 y=1023
         > 3 joined health=100 x=1024 y=1023
         3 move x=1023 y=1023
         > 3 refused reason=tile_full action=move seq=3
         4 join x=5000 y=5000
         > 4 refused reason=zone_full action=join seq=1
         1 leave
         > 1 left seq=2
         4 join x=5000 y=5000
         > 4 joined health=100 x=5000 y=5000",
    );
}

#[test]
fn nobody_joins_off_the_map_or_in_a_wall_and_player_0_is_nobody() {
    Game::walled([0b10, 0, 0, 0]).check(
        "1 join x=0 y=-1
         > 1 refused reason=off_map action=join seq=1
         1 join x=16384 y=0
         > 1 refused reason=off_map action=join seq=2
         1 join x=1024 y=0
         > 1 refused reason=wall action=join seq=3
         0 join x=0 y=0 seq=9
         > 0 refused reason=no_player action=join seq=9",
    );
}
