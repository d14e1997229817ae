//! The view equals the engine, after every event of random games.

#![allow(clippy::print_stdout, reason = "a failing game names its seed")]

use crate::hunt::change::Change;
use crate::hunt::queries::hunt_log::PastHunt;
use crate::hunt::refusal::ScoreCause;
use crate::hunt::rules::rulebook::Rulebook;
use crate::hunt::rules_file::built_in;
use crate::kit::update::Update;
use crate::runtime::allocator::thread_bytes;
use crate::testing::random::Random;
use crate::testing::viewed_world::{PLAYERS, ViewedWorld, answers, check_world, hunt_view};
use crate::view::world::View;
use crate::view::zone::{ZonePosition, ZoneView};
use std::sync::Arc;

/// A world, and the chance that plays in it.
fn world(seed: u64) -> (ViewedWorld, Random) {
    (ViewedWorld::new(seed.is_multiple_of(2)), Random::new(seed))
}

#[test]
fn the_view_equals_the_engine_after_every_event_of_random_games() {
    let mut twice = 0;
    for seed in 0..40 {
        println!("seed {seed}");
        let (mut world, mut random) = world(seed);
        for event in 0..1_500 {
            let zone = world.play(&mut |bound| random.below(bound));
            world.check_zone(zone);
            if event % 16 == 0 {
                world.check_world();
            }
        }
        let in_two = (1..=PLAYERS).filter(|player| {
            world.shards.iter().filter(|shard| shard.inventory(*player).is_some()).count() > 1
        });
        twice += in_two.count();
    }
    assert!(twice > 0, "no player is in two zones");
}

#[test]
fn past_hunts_are_those_that_have_ended_with_all_who_finished() {
    let (mut ended, mut finishers) = (0, 0);
    for seed in 200..210 {
        println!("seed {seed}");
        let (mut world, mut random) = world(seed);
        let mut published: Vec<Vec<Change>> = vec![Vec::new(); world.shards.len()];
        for _ in 0..4_000 {
            let zone = world.play(&mut |bound| random.below(bound));
            let changes = world.updates.as_slice().iter().map(Update::change);
            let of_hunts = |change: &Change| matches!(change, Change::HuntEnded { .. });
            published[usize::from(zone)].extend(changes.filter(of_hunts));
        }
        for (zone, published) in (0..).zip(&published) {
            let hunts = hunt_view(world.view.zone(zone).unwrap()).hunts();
            let known: Vec<Change> = hunts.past().map(change_of).collect();
            let expected: Vec<Change> = published.iter().rev().take(16).copied().collect();
            assert_eq!(known, expected);
            ended += known.len();
            for past in hunts.past() {
                let ranks: Vec<u32> = past.first.iter().map(|finished| finished.rank).collect();
                assert_eq!(ranks, (1..=past.finishers.min(100)).collect::<Vec<u32>>());
                finishers += ranks.len();
            }
        }
    }
    assert!(ended > 16 && finishers > 0, "{ended} hunts, {finishers} finishers");
}

fn change_of(past: &PastHunt) -> Change {
    let PastHunt { hunt, cause, opened, finishers, elapsed_ms, .. } = *past;
    Change::HuntEnded { cause, opened, hunt, finishers, elapsed_ms }
}

#[test]
fn a_view_from_a_snapshot_and_the_rest_equals_a_view_from_the_start() {
    for seed in 100..140 {
        println!("seed {seed}");
        let (mut world, mut random) = world(seed);
        let before = 50 + random.below(1_000);
        (0..before).for_each(|_| _ = world.play(&mut |bound| random.below(bound)));
        let mut later = world.view_of_snapshots();
        check_world(&later);
        assert_eq!(answers(&later), answers(&world.view));
        for _ in 0..500 {
            let zone = world.play(&mut |bound| random.below(bound));
            later.fold(zone, world.updates.as_slice()).unwrap();
            later.seal(zone, world.positions[usize::from(zone)].next_offset);
        }
        assert_eq!(answers(&later), answers(&world.view));
        check_world(&later);
    }
}

#[test]
fn a_zone_that_is_taken_away_and_put_back_leaves_the_others_as_they_were() {
    let (mut world, mut random) = world(7);
    (0..2_000).for_each(|_| _ = world.play(&mut |bound| random.below(bound)));
    let whole = answers(&world.view);
    world.view.take(1);
    assert!(world.view.zone(1).is_none());
    world.check_world();
    world.view.put(world.zone_of_snapshot(1));
    assert_eq!(answers(&world.view), whole);
}

#[test]
fn the_last_updates_are_kept_with_the_places_of_their_frames() {
    let (mut world, mut random) = world(3);
    let mut published: Vec<(Update, i64)> = Vec::new();
    while published.len() < 2_000 {
        let zone = world.play(&mut |bound| random.below(bound));
        let next_offset = world.positions[usize::from(zone)].next_offset;
        if zone == 1 {
            published.extend(world.updates.as_slice().iter().map(|update| (*update, next_offset)));
        }
    }
    let recent = world.view.zone(1).unwrap().recent();
    assert_eq!((recent.first(), recent.next()), (0, published.len() as u64));
    for (number, (update, next_offset)) in (0..).zip(&published) {
        assert_eq!(recent.get(number), Some(update));
        assert!(recent.frame_at(next_offset - 1).unwrap().any(|of_frame| of_frame == update));
    }
    assert_eq!(recent.get(published.len() as u64), None);
}

/// A view of one zone that is full with this many players, whose scores have changed.
fn crowded(players: u32) -> View {
    let mut rules = built_in();
    rules.actors.count_max = players;
    let mut view = View::new(1, players as usize);
    view.put(ZoneView::new(0, Arc::new(Rulebook::of(rules)), ZonePosition::default()));
    let mut random = Random::new(11);
    let joined = (1..=u64::from(players)).map(|player_id| {
        let (x, y) = (8 * player_id as i32 % 1000, player_id as i32);
        Update::new(player_id, 0, Change::Joined { health: 100, x, y })
    });
    let scored = (0..players).map(|_| {
        let (player_id, score) = (1 + random.below(players.into()), random.below(1_000_000));
        Update::new(player_id, 0, Change::Scored { cause: ScoreCause::Loot, points: 1, score })
    });
    let updates: Vec<Update> = joined.chain(scored).collect();
    for frame in updates.chunks(1_000) {
        view.fold(0, frame).unwrap();
        view.seal(0, 0);
    }
    view
}

#[test]
fn a_player_takes_at_most_352_bytes_of_a_view() {
    let bytes = |players: u32| {
        let before = thread_bytes();
        let view = crowded(players);
        assert_eq!(view.players(), players);
        let bytes = thread_bytes() - before;
        drop(view);
        assert_eq!(thread_bytes(), before);
        bytes
    };
    // A zone has its last updates and its tiles, however many play in it.
    let (few, many) = (bytes(20_000), bytes(120_000));
    let each = (many - few) / 100_000;
    assert!(few < 20_000 * 352 + (4 << 20) && each <= 352, "{few} bytes, {each} for each player");
}
