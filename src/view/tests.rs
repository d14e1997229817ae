//! The view equals the engine, after every event of random games.

#![allow(clippy::print_stdout, reason = "a failing game names its seed")]

use crate::engine::actor::HuntProgress;
use crate::engine::event::Event;
use crate::engine::outline::PlayerOutline;
use crate::engine::refusal::Effect;
use crate::engine::rules::rulebook::Rulebook;
use crate::engine::update::{Update, Updates};
use crate::engine::{Outcome, Shard};
use crate::testing::hostile_zone::rulebook;
use crate::testing::random::Random;
use crate::testing::random_game::{RandomGame, Setting};
use crate::view::board::Place;
use crate::view::world::View;
use crate::view::zone::{ZonePosition, ZoneView};
use std::collections::{BTreeMap, BTreeSet};

/// Zones of a random world, whose players cross from one to another.
const ZONES: u16 = 3;

/// A world of shards, and the view of it.
struct World {
    rulebook: Rulebook,
    shards: Vec<Shard>,
    game: RandomGame,
    random: Random,
    view: View,
    /// Events and updates of each zone so far.
    positions: Vec<ZonePosition>,
    updates: Updates,
}

fn players_max(rulebook: &Rulebook) -> usize {
    rulebook.first().rules.actors.count_max as usize * usize::from(ZONES)
}

impl World {
    fn new(seed: u64) -> World {
        let rulebook = rulebook(seed.is_multiple_of(2));
        let setting = Setting { players: 30, ..Setting::of(&rulebook) };
        let mut view = View::new(ZONES.into(), players_max(&rulebook));
        (0..ZONES).for_each(|zone| view.put(ZoneView::new(zone, &rulebook)));
        World {
            shards: (0..ZONES).map(|zone| Shard::new(zone, &rulebook)).collect(),
            game: RandomGame::new(setting),
            random: Random::new(seed),
            view,
            positions: vec![ZonePosition::default(); ZONES.into()],
            updates: Updates::new(),
            rulebook,
        }
    }

    /// Plays one event in some zone. Gives the zone.
    fn play(&mut self) -> u16 {
        let event = self.game.event(&mut |bound| self.random.below(bound));
        let zone = match event.player_id {
            // Most players stay in a zone for a while; some are in two at once.
            player if self.random.below(20) > 0 => (player % u64::from(ZONES)) as u16,
            _ => self.random.below(ZONES.into()) as u16,
        };
        self.apply(zone, &event);
        zone
    }

    fn apply(&mut self, zone: u16, event: &Event) {
        self.updates.clear();
        let outcome = self.shards[usize::from(zone)].apply(event, &mut self.updates);
        assert!(!matches!(outcome, Outcome::RulesMissing { .. }));
        let position = &mut self.positions[usize::from(zone)];
        position.update += self.updates.len() as u64;
        position.next_offset += 1;
        self.view.fold(zone, self.updates.as_slice()).unwrap();
        self.view.seal(zone, position.next_offset);
    }

    /// A view that begins with snapshots of all zones.
    fn view_of_snapshots(&self) -> View {
        let mut view = View::new(ZONES.into(), players_max(&self.rulebook));
        for (shard, position) in self.shards.iter().zip(&self.positions) {
            view.put(ZoneView::of_shard(shard, &self.rulebook, *position));
        }
        view
    }
}

/// What both the engine and a view know of a player.
#[derive(Debug, PartialEq, Eq)]
struct Known {
    place: (i32, i32, u16),
    health: u16,
    score: u64,
    items: Vec<(u8, u16)>,
    effects_until_ms: Vec<Option<i64>>,
    respawn_at_ms: Option<i64>,
    scored_at_ms: i64,
    found: Vec<(u32, u16)>,
    hint: (u32, u8, u16),
}

fn known_to_engine(player: &PlayerOutline, running: &BTreeSet<u32>) -> Known {
    let mut items = BTreeMap::<u8, u16>::new();
    for stack in player.items.iter().filter(|stack| stack.count > 0) {
        *items.entry(stack.item).or_default() += u16::from(stack.count);
    }
    let found = player.progress.iter().filter(|progress| running.contains(&progress.hunt));
    let mut found: Vec<_> = found.map(|HuntProgress { hunt, found }| (*hunt, *found)).collect();
    found.sort_unstable();
    Known {
        place: (player.x, player.y, player.heading),
        health: player.health,
        score: player.score,
        items: items.into_iter().collect(),
        effects_until_ms: player.effects_until_ms.to_vec(),
        respawn_at_ms: player.respawn_at_ms,
        scored_at_ms: player.scored_at_ms,
        found,
        hint: (player.compass.hunt, player.compass.hint, player.compass.distance),
    }
}

fn known_to_view(zone: &ZoneView, player_id: u64, running: &BTreeSet<u32>) -> Known {
    let (card, details) = zone.card(player_id).expect("a player of the engine is in the view");
    let found = running.iter().map(|hunt| (*hunt, details.found(*hunt)));
    let compass = details.compass();
    Known {
        place: (card.x, card.y, card.heading),
        health: card.health,
        score: card.score,
        items: card.items().collect(),
        effects_until_ms: Effect::ALL
            .iter()
            .map(|effect| card.has(*effect).then(|| details.until_ms(*effect)))
            .collect(),
        respawn_at_ms: (card.health == 0).then_some(details.respawn_at_ms),
        scored_at_ms: details.scored_at_ms,
        found: found.filter(|(_, found)| *found > 0).collect(),
        hint: (compass.hunt, compass.hint, compass.distance),
    }
}

fn check_zone(shard: &Shard, zone: &ZoneView) {
    let hunts = shard.hunt_outlines();
    let running: BTreeSet<u32> = hunts.iter().map(|hunt| hunt.hunt).collect();
    let players = shard.outline();
    assert_eq!(zone.players() as usize, players.len());
    assert_eq!(zone.ruleset(), shard.ruleset());
    let mut crowd = BTreeMap::<u32, u16>::new();
    for player in &players {
        let known = known_to_view(zone, player.player_id, &running);
        assert_eq!(known, known_to_engine(player, &running), "player {}", player.player_id);
        *crowd.entry(zone.crowd().tile(player.x, player.y).unwrap()).or_default() += 1;
    }
    let on_tiles = zone.crowd().changed_since(0);
    assert_eq!(on_tiles.filter(|(_, on)| *on > 0).collect::<BTreeMap<_, _>>(), crowd);
    let board: Vec<u64> = zone.places(1, u32::MAX).map(|place| place.player_id).collect();
    let expected: Vec<u64> = players.iter().map(|player| player.player_id).collect();
    assert_eq!(board, expected);
    for (rank, player_id) in (1..).zip(&expected) {
        assert_eq!(zone.place(*player_id).map(|place| place.rank), Some(rank));
    }
    assert_eq!(zone.hunts().running().len(), hunts.len());
    for (hunt, outline) in zone.hunts().running().iter().zip(&hunts) {
        let counts = (hunt.hunt, hunt.treasures, hunt.laid, hunt.opened);
        assert_eq!(counts, (outline.hunt, outline.treasures, outline.laid, outline.opened));
        assert_eq!(hunt.lying().collect::<Vec<_>>(), outline.lying);
        let times = (hunt.started_at_ms, hunt.ends_at_ms);
        assert_eq!(times, (outline.started_at_ms, outline.ends_at_ms));
    }
}

/// The world's board is what merging the boards of all zones gives.
fn check_world(view: &View) {
    let zones = (0..ZONES).filter_map(|zone| view.zone(zone));
    let mut all: Vec<Place> = zones.flat_map(|zone| zone.places(1, u32::MAX)).collect();
    all.sort_by_key(|place| {
        (u64::MAX - place.score, place.scored_at_ms, place.zone, place.player_id)
    });
    let mut seen = BTreeSet::new();
    all.retain(|place| seen.insert(place.player_id));
    (1..).zip(&mut all).for_each(|(rank, place)| place.rank = rank);
    assert_eq!(view.places(1, u32::MAX).collect::<Vec<_>>(), all);
    assert_eq!(view.players() as usize, all.len());
    for place in &all {
        assert_eq!(view.place(place.player_id), Some(*place));
    }
}

/// All that a view answers, except what happened before it began.
fn answers(view: &View) -> Vec<String> {
    let world: Vec<_> = view.places(1, u32::MAX).collect();
    let zone = |zone: &ZoneView| {
        let board: Vec<_> = zone.places(1, u32::MAX).collect();
        let cards = board.iter().map(|place| zone.card(place.player_id).unwrap());
        let cards = cards.map(|(card, details)| {
            let items: Vec<_> = card.items().collect();
            let effects = Effect::ALL.iter().filter(|effect| card.has(**effect));
            let effects: Vec<_> = effects.map(|effect| details.until_ms(*effect)).collect();
            let running = zone.hunts().running().iter();
            let found: Vec<_> = running.map(|hunt| details.found(hunt.hunt)).collect();
            let place = (card.x, card.y, card.heading, card.health, details.respawn_at_ms);
            format!("{place:?} {items:?} {effects:?} {found:?} {:?}", details.compass())
        });
        let cards: Vec<_> = cards.collect();
        let tiles = zone.crowd().changed_since(0).filter(|(_, players)| *players > 0);
        let tiles: Vec<_> = tiles.collect();
        let hunts = zone.hunts().running();
        let (position, now_ms) = (zone.position(), zone.now_ms());
        format!("{position:?} {now_ms} {board:?} {cards:?} {tiles:?} {hunts:?}")
    };
    let zones = (0..ZONES).filter_map(|partition| view.zone(partition)).map(zone);
    [format!("{world:?}")].into_iter().chain(zones).collect()
}

#[test]
fn the_view_equals_the_engine_after_every_event_of_random_games() {
    let mut twice = 0;
    for seed in 0..40 {
        println!("seed {seed}");
        let mut world = World::new(seed);
        for event in 0..1_500 {
            let zone = world.play();
            let shard = &world.shards[usize::from(zone)];
            check_zone(shard, world.view.zone(zone).unwrap());
            if event % 16 == 0 {
                check_world(&world.view);
            }
        }
        let in_two = (1..=30).filter(|player| {
            world.shards.iter().filter(|shard| shard.inventory(*player).is_some()).count() > 1
        });
        twice += in_two.count();
    }
    assert!(twice > 0, "no player is in two zones");
}

#[test]
fn a_view_from_a_snapshot_and_the_rest_equals_a_view_from_the_start() {
    for seed in 100..140 {
        println!("seed {seed}");
        let mut world = World::new(seed);
        let before = 50 + world.random.below(1_000);
        (0..before).for_each(|_| _ = world.play());
        let mut later = world.view_of_snapshots();
        check_world(&later);
        assert_eq!(answers(&later), answers(&world.view));
        for _ in 0..500 {
            let zone = world.play();
            later.fold(zone, world.updates.as_slice()).unwrap();
            later.seal(zone, world.positions[usize::from(zone)].next_offset);
        }
        assert_eq!(answers(&later), answers(&world.view));
        check_world(&later);
    }
}

#[test]
fn a_zone_that_is_taken_away_and_put_back_leaves_the_others_as_they_were() {
    let mut world = World::new(7);
    (0..2_000).for_each(|_| _ = world.play());
    let whole = answers(&world.view);
    let taken = world.view.zone(1).unwrap().clone();
    world.view.take(1);
    assert!(world.view.zone(1).is_none());
    check_world(&world.view);
    world.view.put(taken);
    assert_eq!(answers(&world.view), whole);
}

#[test]
fn the_last_updates_are_kept_with_the_places_of_their_frames() {
    let mut world = World::new(3);
    let mut published: Vec<(Update, i64)> = Vec::new();
    while published.len() < 2_000 {
        let zone = world.play();
        let next_offset = world.positions[usize::from(zone)].next_offset;
        if zone == 1 {
            published.extend(world.updates.as_slice().iter().map(|update| (*update, next_offset)));
        }
    }
    let recent = world.view.zone(1).unwrap().recent();
    assert_eq!((recent.first(), recent.next()), (0, published.len() as u64));
    for (number, (update, next_offset)) in (0..).zip(&published) {
        assert_eq!(recent.get(number), Some(update));
        assert!(recent.frame_at(next_offset - 1).any(|of_frame| of_frame == update));
    }
    assert_eq!(recent.get(published.len() as u64), None);
}
