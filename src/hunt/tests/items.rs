//! Items and effects.

use super::script::{Game, check, rules, sentence};
use crate::hunt::change::Change;
use crate::kit::update::Update;

#[test]
fn an_item_must_exist_and_be_held() {
    check(
        "7 join x=0 y=0
         > 7 joined health=100 x=0 y=0
         7 use item=0
         > 7 refused reason=unknown_item action=use seq=2
         7 use item=6
         > 7 refused reason=unknown_item action=use seq=3
         7 use item=1
         > 7 refused reason=item_not_held action=use seq=4",
    );
}

#[test]
fn an_effect_lasts_as_long_as_its_item_says_and_several_add_up_to_a_limit() {
    // Boots: 10 s each, 30 s at most.
    check(
        "7 arrive x=0 y=0 crossing=1 last_seq=0 item=1 count=5
         > 7 arrived from_zone=9 crossing=1 x=0 y=0
         > 7 item_gained item=1 gained=5 held=5
         7 use item=1 seq=1
         > 7 item_used item=1 held=4
         > 7 effect_started effect=haste lasts_ms=10000
         wait 4000
         7 use item=1
         > 7 item_used item=1 held=3
         > 7 effect_started effect=haste lasts_ms=16000
         7 use item=1
         > 7 item_used item=1 held=2
         > 7 effect_started effect=haste lasts_ms=26000
         7 use item=1
         > 7 item_used item=1 held=1
         > 7 effect_started effect=haste lasts_ms=30000
         7 use item=1
         > 7 refused reason=item_useless action=use seq=5
         wait 29999
         wait 1
         > 7 effect_ended effect=haste",
    );
}

#[test]
fn haste_makes_the_allowance_larger() {
    // 25 m/s for 2 s, times 1.5.
    check(
        "7 arrive x=0 y=0 crossing=1 last_seq=0 effect=1 left_ms=9000
         > 7 arrived from_zone=9 crossing=1 x=0 y=0
         > 7 effect_started effect=haste lasts_ms=9000
         wait 2000
         7 move x=7501 y=0
         > 7 refused reason=too_fast action=move seq=2
         7 move x=7500 y=0
         > 7 moved tile=7 x=7500 y=0",
    );
}

#[test]
fn haste_counts_from_its_start_to_its_end() {
    check(
        "7 arrive x=0 y=0 crossing=1 item=1 count=1
         > 7 arrived from_zone=9 crossing=1 x=0 y=0
         > 7 item_gained item=1 gained=1 held=1
         7 move x=5000 y=0
         > 7 moved tile=4 x=5000 y=0
         wait 2000
         7 use item=1
         > 7 item_used item=1 held=0
         > 7 effect_started effect=haste lasts_ms=10000
         # The rest was one without haste: 50 m.
         7 move x=10001 y=0
         > 7 refused reason=too_fast action=move seq=4
         7 move x=10000 y=0
         > 7 moved tile=9 x=10000 y=0
         8 arrive x=0 y=0 crossing=1 effect=1 left_ms=400
         > 8 arrived from_zone=9 crossing=1 x=0 y=0
         > 8 effect_started effect=haste lasts_ms=400
         8 move x=5000 y=0
         > 8 moved tile=4 x=5000 y=0
         wait 1000
         > 8 effect_ended effect=haste
         # 0.4 s with it, and 0.6 s without.
         8 move x=8001 y=0
         > 8 refused reason=too_fast action=move seq=3
         8 move x=8000 y=0
         > 8 moved tile=7 x=8000 y=0",
    );
}

/// Four actors are settled per event: the fifth one's haste is over, but not settled yet.
#[test]
fn haste_that_is_over_does_not_count_when_more_haste_arrives() {
    let mut game = Game::new(rules());
    for player in 1..=5 {
        game.play(&format!("{player} join x=0 y={} seq=10", 1024 * player));
        game.play(&format!("{player} arrive x=0 y=0 crossing=1 last_seq=5 effect=1 left_ms=400"));
        game.play(&format!("{player} move x=5000 y={} seq=11", 1024 * player));
    }
    let published =
        game.play_late("5 arrive x=0 y=0 crossing=1 last_seq=6 effect=1 left_ms=9000", 1000);
    let published: Vec<String> = published.iter().map(sentence).collect();
    assert_eq!(
        published.last().unwrap(),
        "5 effect_started effect=haste lasts_ms=9000",
        "{published:?}"
    );
    assert!(
        !published.iter().any(|published| published.starts_with("5 effect_ended")),
        "{published:?}"
    );
    game.check(
        "5 move x=8001 y=5120 seq=12
         > 5 refused reason=too_fast action=move seq=12
         5 move x=8000 y=5120 seq=13
         > 5 moved tile=87 x=8000 y=5120",
    );
}

/// Four actors are settled per event, and after them the event's own player.
#[test]
fn what_is_over_for_the_player_of_an_event_ends_before_it_unless_the_event_is_old() {
    let ended = |line: &str| -> Vec<u64> {
        let mut game = Game::new(rules());
        for player in 1..=6 {
            let arrival = "arrive x=0 y=0 crossing=1 last_seq=5 effect=1 left_ms=400";
            game.play(&format!("{player} {arrival}"));
        }
        let published = game.play_late(line, 1000);
        let ends = |update: &&Update| matches!(update.change(), Change::EffectEnded { .. });
        published.iter().filter(ends).map(Update::player_id).collect()
    };
    for new in ["6 move x=0 y=0 seq=6", "6 leave seq=6", "6 join x=0 y=0 seq=6"] {
        assert_eq!(ended(new), [1, 2, 3, 4, 6], "{new}");
    }
    for other in ["6 move x=0 y=0 seq=5", "9 move x=0 y=0 seq=1", "0 hunt_end hunt=1"] {
        assert_eq!(ended(other), [1, 2, 3, 4], "{other}");
    }
}

#[test]
fn a_shield_halves_the_damage_until_it_ends() {
    check(
        "1 join x=0 y=0
         > 1 joined health=100 x=0 y=0
         2 arrive x=500 y=0 crossing=1 last_seq=0 effect=2 left_ms=400
         > 2 arrived from_zone=9 crossing=1 x=500 y=0
         > 2 effect_started effect=shield lasts_ms=400
         1 shoot weapon=0
         > 1 shot weapon=0 heading=0 distance_cm=500 target=2
         > 2 damaged weapon=0 damage=10 health=90 by=1
         wait 400
         > 2 effect_ended effect=shield
         1 shoot weapon=0
         > 1 shot weapon=0 heading=0 distance_cm=500 target=2
         > 2 damaged weapon=0 damage=20 health=70 by=1",
    );
}

#[test]
fn a_medkit_heals_and_is_kept_by_who_is_unhurt() {
    check(
        "1 join x=0 y=0
         > 1 joined health=100 x=0 y=0
         2 arrive x=500 y=0 crossing=1 last_seq=0 item=5 count=2
         > 2 arrived from_zone=9 crossing=1 x=500 y=0
         > 2 item_gained item=5 gained=2 held=2
         2 use item=5
         > 2 refused reason=item_useless action=use seq=2
         1 shoot weapon=0
         > 1 shot weapon=0 heading=0 distance_cm=500 target=2
         > 2 damaged weapon=0 damage=20 health=80 by=1
         2 use item=5
         > 2 item_used item=5 held=1
         > 2 healed gained=20 health=100",
    );
}

#[test]
fn a_charm_doubles_points() {
    let mut rules = rules();
    rules.points.truncate(1);
    rules.finds.truncate(1);
    rules.hunts.reach_cm = 2048;
    let mut game = Game::new(rules);
    game.play("0 hunt_start hunt=1 seed=9 treasures=256 duration_ms=60000");
    (0..10).for_each(|_| drop(game.wait(0)));
    game.play("1 arrive x=5120 y=5120 crossing=1 last_seq=0 effect=4 left_ms=1000");
    let updates = game.play("1 loot");
    let published: Vec<String> = updates.iter().map(super::script::sentence).collect();
    assert!(published[0].starts_with("1 looted doubled=true"), "{published:?}");
    assert_eq!(published[1], "1 scored cause=loot points=200 score=200");
}

#[test]
fn items_without_room_are_lost() {
    // A slot holds three charms.
    check(
        "7 join x=0 y=0
         > 7 joined health=100 x=0 y=0
         7 arrive x=0 y=0 crossing=1 item=4 count=25
         > 7 item_gained item=4 gained=24 held=24
         > 7 item_lost item=4 lost=1",
    );
}
