//! A world of shards beside a view of it, which is folded from their updates alone and held against
//! them. `src/view/tests.rs` draws its events from a seed, `fuzz/fuzz_targets/view.rs` from bytes.

use crate::hunt::Shard;
use crate::hunt::actor::HuntProgress;
use crate::hunt::event::Event;
use crate::hunt::outline::PlayerOutline;
use crate::hunt::queries::HuntView;
use crate::hunt::refusal::Effect;
use crate::hunt::rules::rulebook::Rulebook;
use crate::kit::update::Updates;
use crate::testing::hostile_zone::{rulebook, setting};
use crate::testing::random_game::{RandomGame, Setting};
use crate::view::board::{Place, SCORED_AT_MS_MAX};
use crate::view::game::ZoneImage;
use crate::view::world::View;
use crate::view::zone::{ZonePosition, ZoneView};
use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Zones of the world.
pub(crate) const ZONES: u16 = 3;

/// Players that the events are about.
pub(crate) const PLAYERS: u64 = 30;

/// Shards whose players cross from one to another, and the view of them.
pub struct ViewedWorld {
    rulebook: Rulebook,
    pub(crate) shards: Vec<Shard>,
    game: RandomGame,
    pub(crate) view: View,
    /// Events and updates of each zone so far.
    pub(crate) positions: Vec<ZonePosition>,
    pub(crate) updates: Updates,
}

impl ViewedWorld {
    /// An empty world, with walls or without.
    pub fn new(walls: bool) -> ViewedWorld {
        let rulebook = rulebook(walls);
        let setting = Setting { players: PLAYERS, ..setting(&rulebook) };
        let mut view = empty_view(&rulebook);
        (0..ZONES).for_each(|zone| {
            view.put(ZoneView::new(zone, Arc::new(rulebook.clone()), ZonePosition::default()))
        });
        ViewedWorld {
            shards: (0..ZONES).map(|zone| Shard::new(zone, &rulebook)).collect(),
            game: RandomGame::new(setting),
            view,
            positions: vec![ZonePosition::default(); ZONES.into()],
            updates: Updates::new(),
            rulebook,
        }
    }

    /// Plays one event in some zone, and folds its updates. Gives the zone.
    pub fn play(&mut self, below: &mut dyn FnMut(u64) -> u64) -> u16 {
        let mut event = self.game.event(&mut |bound| below(bound));
        // Until 1970 a clock is published as 0, like one that has not started: no view knows its
        // times.
        event.time_ms = event.time_ms.max(1);
        let zone = match event.player_id {
            // Most players stay in a zone for a while; some are in two at once.
            player if below(20) > 0 => (player % u64::from(ZONES)) as u16,
            _ => below(ZONES.into()) as u16,
        };
        self.apply(zone, &event);
        zone
    }

    fn apply(&mut self, zone: u16, event: &Event) {
        self.updates.clear();
        self.shards[usize::from(zone)].apply(event, &mut self.updates);
        let position = &mut self.positions[usize::from(zone)];
        position.update += self.updates.len() as u64;
        position.next_offset += 1;
        self.view.fold(zone, self.updates.as_slice()).unwrap();
        self.view.seal(zone, position.next_offset);
    }

    /// The view goes on from snapshots of all zones. It must answer as before.
    pub fn restart_view(&mut self) {
        let later = self.view_of_snapshots();
        assert_eq!(answers(&later), answers(&self.view));
        self.view = later;
    }

    /// A view that begins with snapshots of all zones.
    pub(crate) fn view_of_snapshots(&self) -> View {
        let mut view = empty_view(&self.rulebook);
        (0..ZONES).for_each(|zone| view.put(self.zone_of_snapshot(zone)));
        view
    }

    /// A zone that begins with a snapshot.
    pub(crate) fn zone_of_snapshot(&self, zone: u16) -> ZoneView {
        let at = usize::from(zone);
        ZoneView::of_engine(
            ZoneImage::of(&self.shards[at]),
            Arc::new(self.rulebook.clone()),
            self.positions[at],
        )
    }

    /// Every field of every card, board and hunt of a zone equals the engine's.
    pub fn check_zone(&self, zone: u16) {
        let view = self.view.zone(zone).expect("all zones are known");
        check_zone(&self.shards[usize::from(zone)], view);
    }

    /// The world's board is what the zones' boards come to.
    pub fn check_world(&self) {
        check_world(&self.view);
    }
}

fn empty_view(rulebook: &Rulebook) -> View {
    let players_max = rulebook.first().rules.actors.count_max as usize;
    View::new(ZONES.into(), players_max * usize::from(ZONES))
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

/// The hunt's part of the view of a zone.
pub(crate) fn hunt_view(zone: &ZoneView) -> &HuntView {
    (zone.game() as &dyn Any).downcast_ref().expect("the zone is one of the hunt")
}

fn known_to_view(zone: &ZoneView, player_id: u64, running: &BTreeSet<u32>) -> Known {
    let (row, card) = zone.card(player_id).expect("a player of the engine is in the view");
    let player = hunt_view(zone).belongings(row);
    let found = running.iter().map(|hunt| (*hunt, player.found(*hunt)));
    let compass = player.compass();
    let effects: Vec<_> = player.effects().collect();
    let until_ms = |effect: &Effect| effects.iter().find(|(of, _)| of == effect).map(|of| of.1);
    let [_, _, heading, health, _] = card.fields.map(|field| u16::try_from(field).unwrap_or(0));
    Known {
        place: (card.signed(0), card.signed(1), heading),
        health,
        score: card.score,
        items: player.items().collect(),
        effects_until_ms: Effect::ALL.iter().map(until_ms).collect(),
        respawn_at_ms: (health == 0).then_some(player.respawn_at_ms),
        scored_at_ms: card.scored_at_ms,
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
        *crowd.entry(hunt_view(zone).crowd().tile(player.x, player.y).unwrap()).or_default() += 1;
    }
    let on_tiles = hunt_view(zone).crowd().changed_since(0);
    assert_eq!(on_tiles.filter(|(_, on)| *on > 0).collect::<BTreeMap<_, _>>(), crowd);
    let board: Vec<u64> = zone.places(1, u32::MAX).map(|place| place.player_id).collect();
    let expected: Vec<u64> = players.iter().map(|player| player.player_id).collect();
    assert_eq!(board, expected);
    for (rank, player_id) in (1..).zip(&expected) {
        assert_eq!(zone.place(*player_id).map(|place| place.rank), Some(rank));
    }
    assert_eq!(hunt_view(zone).hunts().running().len(), hunts.len());
    for (hunt, outline) in hunt_view(zone).hunts().running().iter().zip(&hunts) {
        let counts = (hunt.hunt, hunt.treasures, hunt.laid, hunt.opened);
        assert_eq!(counts, (outline.hunt, outline.treasures, outline.laid, outline.opened));
        assert_eq!(hunt.lying().collect::<Vec<_>>(), outline.lying);
        let times = (hunt.started_at_ms, hunt.ends_at_ms);
        assert_eq!(times, (outline.started_at_ms, outline.ends_at_ms));
    }
}

/// The world's board is what merging the boards of all zones gives.
pub(crate) fn check_world(view: &View) {
    let zones = (0..ZONES).filter_map(|zone| view.zone(zone));
    let mut all: Vec<Place> = zones.flat_map(|zone| zone.places(1, u32::MAX)).collect();
    all.sort_by_key(|place| {
        let at_ms = place.scored_at_ms.min(SCORED_AT_MS_MAX);
        (u64::MAX - place.score, at_ms, place.zone, place.player_id)
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
pub(crate) fn answers(view: &View) -> Vec<String> {
    let world: Vec<_> = view.places(1, u32::MAX).collect();
    let zone = |zone: &ZoneView| {
        let board: Vec<_> = zone.places(1, u32::MAX).collect();
        let cards = board.iter().map(|place| zone.card(place.player_id).unwrap());
        let cards = cards.map(|(row, card)| {
            let player = hunt_view(zone).belongings(row);
            let items: Vec<_> = player.items().collect();
            let effects: Vec<_> = player.effects().collect();
            let running = hunt_view(zone).hunts().running().iter();
            let found: Vec<_> = running.map(|hunt| player.found(hunt.hunt)).collect();
            let times = (player.respawn_at_ms, player.compass());
            format!("{:?} {times:?} {items:?} {effects:?} {found:?}", card.fields)
        });
        let cards: Vec<_> = cards.collect();
        let tiles = hunt_view(zone).crowd().changed_since(0).filter(|(_, players)| *players > 0);
        let tiles: Vec<_> = tiles.collect();
        let hunts = hunt_view(zone).hunts().running();
        let (position, now_ms) = (zone.position(), zone.now_ms());
        format!("{position:?} {now_ms} {board:?} {cards:?} {tiles:?} {hunts:?}")
    };
    let zones = (0..ZONES).filter_map(|partition| view.zone(partition)).map(zone);
    [format!("{world:?}")].into_iter().chain(zones).collect()
}
