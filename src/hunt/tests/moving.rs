//! Moving and turning.

use super::script::{Game, check, rules, sentence};

#[test]
fn a_move_tells_the_new_place_and_its_tile() {
    check(
        "7 join x=1000 y=2000
         > 7 joined health=100 x=1000 y=2000
         7 move x=1024 y=2048
         > 7 moved tile=33 x=1024 y=2048
         7 move x=0 y=16384
         > 7 refused reason=off_map action=move seq=3",
    );
}

#[test]
fn a_burst_is_allowed_once_and_comes_back_with_time() {
    // 25 m/s, a burst of 2 s: 50 m.
    check(
        "7 join x=0 y=0
         > 7 joined health=100 x=0 y=0
         7 move x=3000 y=4001
         > 7 refused reason=too_fast action=move seq=2
         7 move x=3000 y=4000
         > 7 moved tile=50 x=3000 y=4000
         7 move x=3000 y=4001
         > 7 refused reason=too_fast action=move seq=4
         wait 1
         7 move x=3000 y=4003
         > 7 refused reason=too_fast action=move seq=5
         7 move x=3000 y=4002
         > 7 moved tile=50 x=3000 y=4002
         wait 999
         7 move x=5499 y=4002
         > 7 refused reason=too_fast action=move seq=7
         7 move x=5498 y=4002
         > 7 moved tile=53 x=5498 y=4002
         wait 60000
         7 move x=498 y=4002
         > 7 moved tile=48 x=498 y=4002
         7 move x=499 y=4002
         > 7 refused reason=too_fast action=move seq=10",
    );
}

#[test]
fn a_join_comes_with_the_whole_allowance_however_late_it_is() {
    for wait in ["wait 0", "wait 60000"] {
        check(&format!(
            "{wait}
             7 join x=0 y=0
             > 7 joined health=100 x=0 y=0
             7 move x=5000 y=0
             > 7 moved tile=4 x=5000 y=0
             7 move x=5001 y=0
             > 7 refused reason=too_fast action=move seq=3"
        ));
    }
}

#[test]
fn a_move_costs_its_length_rounded_up_and_less_than_a_centimetre_is_kept() {
    // 2.5 cm each millisecond.
    check(
        "7 join x=0 y=0
         > 7 joined health=100 x=0 y=0
         7 move x=5000 y=0
         > 7 moved tile=4 x=5000 y=0
         wait 1
         7 move x=5003 y=0
         > 7 refused reason=too_fast action=move seq=3
         7 move x=5001 y=1
         > 7 moved tile=4 x=5001 y=1
         7 move x=5002 y=1
         > 7 refused reason=too_fast action=move seq=5
         wait 1
         7 move x=5004 y=1
         > 7 moved tile=4 x=5004 y=1",
    );
}

#[test]
fn a_move_is_refused_for_the_map_then_the_speed_then_a_wall_then_a_full_tile() {
    let mut rules = rules();
    rules.actors.per_tile_max = 1;
    // Row 0: .#..
    rules.world.walls = vec![0b10, 0, 0, 0];
    Game::new(rules).check(
        "7 join x=500 y=500
         > 7 joined health=100 x=500 y=500
         8 join x=2500 y=500
         > 8 joined health=100 x=2500 y=500
         9 join x=3500 y=500
         > 9 joined health=100 x=3500 y=500
         10 join x=9000 y=500
         > 10 joined health=100 x=9000 y=500
         # Off the map, and too far.
         7 move x=16384 y=500
         > 7 refused reason=off_map action=move seq=2
         # Too far, behind a wall, and on a full tile.
         7 move x=9000 y=500
         > 7 refused reason=too_fast action=move seq=3
         # Behind a wall, and on a full tile.
         7 move x=2500 y=500
         > 7 refused reason=wall action=move seq=4
         9 move x=2500 y=500
         > 9 refused reason=tile_full action=move seq=2",
    );
}

#[test]
fn nobody_walks_through_a_wall_or_around_a_corner_in_one_step() {
    // Row 0: ..#.   Row 1: ....
    Game::walled([0b100, 0, 0, 0]).check(
        "7 join x=1500 y=500
         > 7 joined health=100 x=1500 y=500
         7 move x=2100 y=500
         > 7 refused reason=wall action=move seq=2
         7 move x=3100 y=500
         > 7 refused reason=wall action=move seq=3
         7 move x=3100 y=1100
         > 7 refused reason=wall action=move seq=4
         7 move x=1500 y=1100
         > 7 moved tile=17 x=1500 y=1100
         7 move x=3100 y=1100
         > 7 moved tile=19 x=3100 y=1100
         7 move x=3100 y=500
         > 7 moved tile=3 x=3100 y=500",
    );
}

/// A diagonal step through the corner of four tiles goes along x first.
#[test]
fn a_step_through_a_corner_needs_the_tile_along_x_free_and_not_the_one_along_y() {
    let step = |walls: [u64; 4]| {
        let mut game = Game::walled(walls);
        game.play("7 join x=512 y=512");
        sentence(&game.play("7 move x=1536 y=1536")[0])
    };
    assert_eq!(step([0b10, 0, 0, 0]), "7 refused reason=wall action=move seq=2");
    assert_eq!(step([1 << 16, 0, 0, 0]), "7 moved tile=17 x=1536 y=1536");
}

#[test]
fn a_heading_is_less_than_a_full_turn() {
    check(
        "7 join x=0 y=0
         > 7 joined health=100 x=0 y=0
         7 rotate heading=35999
         > 7 rotated heading=35999
         7 rotate heading=36000
         > 7 refused reason=heading_out_of_range action=rotate seq=3",
    );
}
