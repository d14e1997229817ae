//! Shooting, being downed, and respawning.

use super::script::{Game, check, rules, sentence};
use crate::hunt::Shard;
use crate::hunt::rules::rulebook::Rulebook;
use crate::kit::engine::encode_state;

#[test]
fn a_shot_hits_the_first_actor_along_its_heading() {
    check(
        "1 join x=1000 y=1000
         > 1 joined health=100 x=1000 y=1000
         2 join x=3000 y=1040
         > 2 joined health=100 x=3000 y=1040
         3 join x=2500 y=960
         > 3 joined health=100 x=2500 y=960
         1 shoot weapon=0 heading=0
         > 1 shot weapon=0 heading=0 distance_cm=1501 target=3
         > 3 damaged weapon=0 damage=20 health=80 by=1",
    );
}

#[test]
fn a_shot_passes_who_stands_too_far_beside_the_line_or_out_of_range() {
    check(
        "1 join x=1000 y=1000
         > 1 joined health=100 x=1000 y=1000
         2 join x=3000 y=1061
         > 2 joined health=100 x=3000 y=1061
         3 join x=5001 y=1000
         > 3 joined health=100 x=5001 y=1000
         1 shoot weapon=0 heading=0
         > 1 shot weapon=0 heading=0 distance_cm=4000
         wait 400
         3 move x=5000 y=1000
         > 3 moved tile=4 x=5000 y=1000
         1 shoot weapon=0 heading=0
         > 1 shot weapon=0 heading=0 distance_cm=4000 target=3
         > 3 damaged weapon=0 damage=20 health=80 by=1",
    );
}

#[test]
fn of_two_at_the_same_distance_the_lowest_player_id_is_hit() {
    check(
        "1 join x=1000 y=1000
         > 1 joined health=100 x=1000 y=1000
         3 join x=1000 y=1500
         > 3 joined health=100 x=1000 y=1500
         2 join x=1000 y=1500
         > 2 joined health=100 x=1000 y=1500
         1 rotate heading=9000
         > 1 rotated heading=9000
         1 shoot weapon=0
         > 1 shot weapon=0 heading=9000 distance_cm=500 target=2
         > 2 damaged weapon=0 damage=20 health=80 by=1",
    );
}

#[test]
fn a_wall_stops_a_shot() {
    Game::walled([0b10, 0, 0, 0]).check(
        "1 join x=500 y=512
         > 1 joined health=100 x=500 y=512
         2 join x=2500 y=512
         > 2 joined health=100 x=2500 y=512
         1 shoot weapon=0 heading=0
         > 1 shot weapon=0 heading=0 distance_cm=1036",
    );
}

/// It goes along x first, over the tile to the east, not the one to the north.
#[test]
fn a_shot_through_the_corner_of_four_tiles_meets_the_one_along_x() {
    let shot = |walls: [u64; 4]| {
        let mut game = Game::walled(walls);
        game.play("1 join x=512 y=512");
        sentence(&game.play("1 shoot weapon=0 heading=4500")[0])
    };
    let east = shot([0b10, 0, 0, 0]);
    assert_eq!(east, "1 shot weapon=0 heading=4500 distance_cm=1024");
    let north = shot([1 << 16, 0, 0, 0]);
    assert_eq!(north, "1 shot weapon=0 heading=4500 distance_cm=4000");
}

/// A later version may have a wall there.
#[test]
fn an_actor_on_what_became_a_wall_leaves_it_and_the_wall_stays() {
    let mut game = Game::new(rules());
    game.play("1 join x=512 y=512");
    game.play("2 join x=1536 y=512");
    let mut walled = rules();
    walled.world.walls = vec![0b10, 0, 0, 0];
    let rulebook = Rulebook::of(walled);
    let mut bytes = Vec::new();
    encode_state(&mut game.shard, &mut bytes);
    game.shard = Shard::migrate_state(&bytes, &rulebook).expect("a wall costs no player its place");
    assert_eq!(sentence(&game.play("2 move x=1536 y=1536")[0]), "2 moved tile=17 x=1536 y=1536");
    let shot = sentence(&game.play("1 shoot weapon=0 heading=0")[0]);
    assert_eq!(shot, "1 shot weapon=0 heading=0 distance_cm=1024");
}

#[test]
fn without_a_free_tile_an_actor_respawns_where_it_lies() {
    let mut rules = rules();
    rules.weapons[0].damage = 100;
    rules.actors.per_tile_max = 1;
    // All tiles but the two on which the actors stand.
    rules.world.walls = vec![!0b11, !0, !0, !0];
    let mut game = Game::new(rules);
    game.play("1 join x=500 y=500");
    game.play("2 join x=1500 y=500");
    game.play("1 shoot weapon=0 heading=0");
    let published: Vec<String> = game.wait(5000).iter().map(sentence).collect();
    assert_eq!(published, ["2 respawned health=100 tile=1 x=1500 y=500"]);
}

#[test]
fn a_weapon_needs_its_pause_and_must_exist() {
    check(
        "1 join x=500 y=500
         > 1 joined health=100 x=500 y=500
         1 shoot weapon=3
         > 1 refused reason=unknown_weapon action=shoot seq=2
         1 shoot weapon=0
         > 1 shot weapon=0 heading=0 distance_cm=4000
         wait 399
         1 shoot weapon=0
         > 1 refused reason=reloading action=shoot seq=4
         wait 1
         1 shoot weapon=0 heading=36000
         > 1 refused reason=heading_out_of_range action=shoot seq=5
         1 shoot weapon=0 heading=18000
         > 1 shot weapon=0 heading=18000 distance_cm=4000",
    );
}

#[test]
fn an_actor_without_health_is_down_until_the_respawn() {
    let mut rules = rules();
    rules.weapons[0].damage = 100;
    let mut game = Game::new(rules);
    game.check(
        "1 join x=500 y=500
         > 1 joined health=100 x=500 y=500
         2 join x=1500 y=500
         > 2 joined health=100 x=1500 y=500
         1 shoot weapon=0 heading=0
         > 1 shot weapon=0 heading=0 distance_cm=1000 target=2
         > 2 damaged weapon=0 damage=100 health=0 by=1
         > 2 downed weapon=0 respawn_ms=5000 by=1
         > 1 scored cause=downed points=50 score=50
         2 move x=1500 y=501
         > 2 refused reason=downed action=move seq=2
         2 leave to_zone=4
         > 2 refused reason=downed action=leave seq=3
         wait 4999
         1 shoot weapon=0 heading=0
         > 1 shot weapon=0 heading=0 distance_cm=4000",
    );
    let updates = game.wait(1);
    let [respawned] = updates.as_slice() else { panic!("{updates:?}") };
    let sentence = sentence(respawned);
    assert!(sentence.starts_with("2 respawned health=100 tile="), "{sentence}");
    assert_ne!(sentence, "2 respawned health=100 tile=1 x=1500 y=500");
}
