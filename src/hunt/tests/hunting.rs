//! Hunts: their start, treasures, finishers and end.

use super::script::{Game, check, plain, rules, sentence};
use crate::hunt::change::Change;

#[test]
fn a_hunt_needs_treasures_a_duration_and_a_number_above_the_last() {
    check(
        "0 hunt_start hunt=5 seed=1 treasures=0 duration_ms=1000
         > 0 refused reason=treasures_out_of_range action=hunt_start seq=1
         0 hunt_start hunt=6 seed=1 treasures=4097 duration_ms=1000
         > 0 refused reason=treasures_out_of_range action=hunt_start seq=2
         0 hunt_start hunt=7 seed=1 treasures=1 duration_ms=0
         > 0 refused reason=duration_out_of_range action=hunt_start seq=3
         # A refused number is used up.
         0 hunt_start hunt=7 seed=1 treasures=1 duration_ms=1000
         0 hunt_end hunt=7
         0 hunt_end hunt=8
         > 0 refused reason=unknown_hunt action=hunt_end seq=6",
    );
}

#[test]
fn treasures_are_laid_by_the_seed_alone() {
    let laid = |players: u64| {
        let mut game = Game::new(plain());
        for player in 1..=players {
            game.play(&format!("{player} join x=5000 y=5000"));
        }
        let start = "0 hunt_start hunt=1 seed=77 treasures=40 duration_ms=60000";
        let mut updates = game.play(start);
        updates.extend(game.wait(0));
        let laid = |change: &Change| matches!(change, Change::TreasureLaid { .. });
        updates.iter().map(|update| update.change()).filter(laid).collect::<Vec<_>>()
    };
    assert_eq!(laid(0).len(), 40);
    assert_eq!(laid(0), laid(9));
    let mut places: Vec<String> = laid(0).iter().map(|change| format!("{change:?}")).collect();
    places.sort();
    places.dedup();
    assert_eq!(places.len(), 40);
}

#[test]
fn a_hunt_from_its_start_to_its_prizes() {
    Game::new(plain()).check(
        "1 join x=7000 y=3584
         > 1 joined health=100 x=7000 y=3584
         1 loot
         > 1 refused reason=nothing_in_reach action=loot seq=2
         0 hunt_start hunt=3 seed=9 treasures=3 duration_ms=60000
         > 0 hunt_started treasures=3 hunt=3 duration_ms=60000
         > 0 treasure_laid treasure=0 hunt=3 x=7680 y=3584
         > 0 treasure_laid treasure=1 hunt=3 x=13824 y=9728
         > 0 treasure_laid treasure=2 hunt=3 x=4608 y=7680
         wait 1500
         1 loot hunt=2
         > 1 refused reason=unknown_hunt action=loot seq=3
         1 loot hunt=3
         > 1 looted doubled=false treasure=0 hunt=3 points=100 elapsed_ms=1500
         > 1 scored cause=loot points=100 score=100
         # A treasure opens once.
         1 loot
         > 1 refused reason=nothing_in_reach action=loot seq=5
         1 move x=4608 y=7680
         > 1 moved tile=116 x=4608 y=7680
         wait 500
         1 loot
         > 1 looted doubled=false treasure=2 hunt=3 points=100 elapsed_ms=2000
         > 1 scored cause=loot points=100 score=200
         2 join x=13824 y=9728
         > 2 joined health=100 x=13824 y=9728
         # The last treasure ends the hunt; one find does not make a finisher here.
         wait 700
         2 loot
         > 2 looted doubled=false treasure=1 hunt=3 points=100 elapsed_ms=2700
         > 2 scored cause=loot points=100 score=100
         > 0 hunt_ended cause=all_found opened=3 hunt=3 finishers=1 elapsed_ms=2700
         > 1 finished found=2 hunt=3 rank=1 elapsed_ms=2000
         > 1 scored cause=prize points=1000 score=1200
         0 hunt_end hunt=3",
    );
}

/// Points and items of the treasures that a player finds in many hunts of a zone.
fn finds(partition: u16, first_seed: u32) -> (Vec<u32>, Vec<u8>, usize) {
    let mut game = Game::of_zone(partition, rules());
    game.play("1 join x=7000 y=3584");
    let (mut worths, mut items, mut lost) = (Vec::new(), Vec::new(), 0);
    for hunt in 1..=200 {
        let seed = first_seed + hunt;
        game.play(&format!("0 hunt_start hunt={hunt} seed={seed} treasures=100 duration_ms=60000"));
        game.wait(0);
        for _ in 0..4 {
            for update in game.play("1 loot") {
                match update.change() {
                    Change::Looted { points, .. } => worths.push(points),
                    Change::ItemGained { item, .. } => items.push(item),
                    Change::ItemLost { .. } => lost += 1,
                    _ => {}
                }
            }
        }
        game.play(&format!("0 hunt_end hunt={hunt}"));
        game.wait(0);
    }
    (worths, items, lost)
}

#[test]
fn treasures_hold_what_the_loot_table_says_by_seed_and_zone() {
    let (worths, items, lost) = finds(0, 0);
    let share =
        |worth: u32| worths.iter().filter(|found| **found == worth).count() * 100 / worths.len();
    assert!(worths.len() > 300, "{}", worths.len());
    // The table has 50, 30, 15 and 5 per cent.
    for (worth, expected) in [(100, 42..=58), (250, 23..=37), (500, 10..=20), (1000, 2..=9)] {
        assert!(expected.contains(&share(worth)), "{worth}: {} of a hundred", share(worth));
    }
    assert!((1..=5).all(|item| items.contains(&item)), "{items:?}");
    assert!(lost > 0, "the inventory was full in the end");
    let again = (worths, items, lost);
    assert_eq!(finds(0, 0), again);
    assert_ne!(finds(0, 1000), again, "the seed decides");
    assert_ne!(finds(1, 0), again, "the zone decides");
}

#[test]
fn what_is_not_found_in_time_is_gone() {
    Game::new(plain()).check(
        "1 join x=7000 y=3584
         > 1 joined health=100 x=7000 y=3584
         0 hunt_start hunt=3 seed=9 treasures=1 duration_ms=2000
         > 0 hunt_started treasures=1 hunt=3 duration_ms=2000
         > 0 treasure_laid treasure=0 hunt=3 x=7680 y=3584
         wait 1999
         wait 1
         > 0 hunt_ended cause=time_up opened=0 hunt=3 finishers=0 elapsed_ms=2000
         1 loot
         > 1 refused reason=nothing_in_reach action=loot seq=2",
    );
}

#[test]
fn a_hunt_that_is_called_off_still_tells_its_finishers() {
    let mut rules = plain();
    rules.hunts.finish_treasures = 1;
    Game::new(rules).check(
        "1 join x=7000 y=3584
         > 1 joined health=100 x=7000 y=3584
         0 hunt_start hunt=3 seed=9 treasures=2 duration_ms=2000
         > 0 hunt_started treasures=2 hunt=3 duration_ms=2000
         > 0 treasure_laid treasure=0 hunt=3 x=7680 y=3584
         > 0 treasure_laid treasure=1 hunt=3 x=13824 y=9728
         1 loot
         > 1 looted doubled=false treasure=0 hunt=3 points=100 elapsed_ms=0
         > 1 scored cause=loot points=100 score=100
         # A finisher that left is published, but has no use for a prize.
         1 leave
         > 1 left seq=3
         0 hunt_end hunt=3
         > 0 hunt_ended cause=called_off opened=1 hunt=3 finishers=1 elapsed_ms=0
         > 1 finished found=1 hunt=3 rank=1 elapsed_ms=0",
    );
}

#[test]
fn a_compass_points_the_way_and_never_the_wrong_one() {
    let mut game = Game::new(plain());
    game.play("1 arrive x=500 y=3584 crossing=1 item=3 count=2");
    game.check(
        "0 hunt_start hunt=3 seed=9 treasures=2 duration_ms=60000
         > 0 hunt_started treasures=2 hunt=3 duration_ms=60000
         > 0 treasure_laid treasure=0 hunt=3 x=7680 y=3584
         > 0 treasure_laid treasure=1 hunt=3 x=13824 y=9728
         1 use item=3
         > 1 item_used item=3 held=1
         > 1 effect_started effect=compass lasts_ms=60000
         > 1 path_hint hint=stale hunt=3 distance_tiles=0
         # Some events later the paths are known.
         wait 0
         1 move x=1500 y=3584
         > 1 moved tile=49 x=1500 y=3584
         > 1 path_hint hint=east hunt=3 distance_tiles=6
         1 move x=1600 y=3584
         > 1 moved tile=49 x=1600 y=3584
         2 join x=7600 y=3584
         > 2 joined health=100 x=7600 y=3584
         2 loot
         > 2 looted doubled=false treasure=0 hunt=3 points=100 elapsed_ms=0
         > 2 scored cause=loot points=100 score=100
         # The treasure it led to is open: the way is not known until it is searched again.
         1 move x=2500 y=3584
         > 1 moved tile=50 x=2500 y=3584
         > 1 path_hint hint=stale hunt=3 distance_tiles=0
         1 move x=3500 y=3584
         > 1 moved tile=51 x=3500 y=3584
         wait 0
         1 move x=4500 y=3584
         > 1 moved tile=52 x=4500 y=3584
         > 1 path_hint hint=east hunt=3 distance_tiles=15",
    );
}

/// The path hints that a line publishes.
fn hints(game: &mut Game, line: &str) -> Vec<String> {
    let published = game.play(line);
    published.iter().map(sentence).filter(|published| published.contains("path_hint")).collect()
}

#[test]
fn a_hint_is_published_again_when_it_is_about_another_hunt() {
    let mut game = Game::new(plain());
    game.play("1 arrive x=500 y=3584 crossing=1 effect=3 left_ms=60000");
    game.play("0 hunt_start hunt=1 seed=9 treasures=200 duration_ms=60000");
    let first = ["1 path_hint hint=stale hunt=1 distance_tiles=0"];
    assert_eq!(hints(&mut game, "1 move x=501 y=3584"), first);
    assert_eq!(hints(&mut game, "1 move x=502 y=3584"), [""; 0]);
    game.play("0 hunt_end hunt=1");
    game.wait(0);
    game.play("0 hunt_start hunt=2 seed=9 treasures=200 duration_ms=60000");
    let second = ["1 path_hint hint=stale hunt=2 distance_tiles=0"];
    assert_eq!(hints(&mut game, "1 move x=503 y=3584"), second);
}

#[test]
fn an_arrival_or_a_respawn_with_a_compass_gets_a_hint_at_once() {
    let mut rules = plain();
    rules.weapons[0].damage = 100;
    let mut game = Game::new(rules);
    game.play("0 hunt_start hunt=3 seed=9 treasures=2 duration_ms=60000");
    game.wait(0);
    let arrival = "1 arrive x=1500 y=3584 crossing=1 effect=3 left_ms=60000";
    assert_eq!(hints(&mut game, arrival), ["1 path_hint hint=east hunt=3 distance_tiles=6"]);
    game.play("2 join x=500 y=3584");
    game.play("2 shoot weapon=0 heading=0");
    let published = game.wait(5000).iter().map(sentence).collect::<Vec<_>>();
    assert!(published[0].starts_with("1 respawned"), "{published:?}");
    assert!(published[1].starts_with("1 path_hint"), "{published:?}");
}

#[test]
fn a_further_compass_publishes_the_hint_again() {
    let mut game = Game::new(plain());
    game.play("0 hunt_start hunt=3 seed=9 treasures=2 duration_ms=600000");
    game.wait(0);
    let way = ["1 path_hint hint=east hunt=3 distance_tiles=6"];
    let arrival = "1 arrive x=1500 y=3584 crossing=1 effect=3 left_ms=400";
    assert_eq!(hints(&mut game, arrival), way);
    game.wait(400);
    let carried = "1 arrive x=0 y=0 crossing=2 effect=3 left_ms=400";
    assert_eq!(hints(&mut game, carried), way);
}

#[test]
fn what_a_finisher_found_counts_on_after_it_was_away() {
    let mut rules = plain();
    rules.hunts.finish_treasures = 1;
    let mut game = Game::new(rules);
    game.play("0 hunt_start hunt=3 seed=9 treasures=3 duration_ms=60000");
    for line in ["join x=7000 y=3584", "loot", "leave", "join x=4608 y=7680", "loot"] {
        game.play(&format!("1 {line}"));
    }
    game.check(
        "0 hunt_end hunt=3
         > 0 hunt_ended cause=called_off opened=2 hunt=3 finishers=1 elapsed_ms=0
         > 1 finished found=2 hunt=3 rank=1 elapsed_ms=0
         > 1 scored cause=prize points=1000 score=1100",
    );
}

#[test]
fn many_finishers_are_published_a_few_per_event_and_the_first_three_get_prizes() {
    let mut rules = plain();
    rules.hunts.finish_treasures = 1;
    let mut game = Game::new(rules);
    let mut laid = game.play("0 hunt_start hunt=1 seed=5 treasures=40 duration_ms=60000");
    laid.extend(game.wait(0));
    let places: Vec<(i32, i32)> = laid
        .iter()
        .filter_map(|update| match update.change() {
            Change::TreasureLaid { x, y, .. } => Some((x, y)),
            _ => None,
        })
        .collect();
    assert_eq!(places.len(), 40);
    for (player, (x, y)) in (1..).zip(&places[..39]) {
        game.play(&format!("{player} join x={x} y={y}"));
        game.play(&format!("{player} loot"));
    }
    let mut published = vec![game.play("0 hunt_end hunt=1")];
    published.extend((0..8).map(|_| game.play("50 join x=0 y=0")));
    assert!(published.iter().all(|event| event.len() <= 14));
    let published: Vec<String> = published.iter().flatten().map(sentence).collect();
    let of = |what: &str| {
        published.iter().filter(|published| published.contains(what)).collect::<Vec<_>>()
    };
    let wanted: Vec<String> = (1..40)
        .map(|rank| format!("{rank} finished found=1 hunt=1 rank={rank} elapsed_ms=0"))
        .collect();
    assert_eq!(of(" finished "), wanted.iter().collect::<Vec<_>>());
    let prizes = [(1, 1000), (2, 500), (3, 250)].map(|(player, points)| {
        format!("{player} scored cause=prize points={points} score={}", points + 100)
    });
    assert_eq!(of("cause=prize"), prizes.iter().collect::<Vec<_>>());
}

#[test]
fn four_hunts_at_once_and_no_more() {
    let mut game = Game::new(plain());
    for hunt in 1..=4 {
        let line = format!("0 hunt_start hunt={hunt} seed=1 treasures=1 duration_ms=1000");
        let updates = game.play(&line);
        assert!(sentence(&updates[0]).starts_with("0 hunt_started"));
    }
    game.check(
        "0 hunt_start hunt=5 seed=1 treasures=1 duration_ms=1000
         > 0 refused reason=hunts_full action=hunt_start seq=5",
    );
    let ended = game
        .wait(1000)
        .iter()
        .filter(|update| matches!(update.change(), Change::HuntEnded { elapsed_ms: 1000, .. }))
        .count();
    assert_eq!(ended, 4);
    let updates = game.play("0 hunt_start hunt=6 seed=1 treasures=1 duration_ms=1000");
    assert!(sentence(&updates[0]).starts_with("0 hunt_started"));
}
