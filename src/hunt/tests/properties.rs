//! Properties of any game: replays, interleavings and batches yield the same result, and nothing
//! that crosses from zone to zone is lost or duplicated. The engine's own tests check its
//! internals.

use crate::hunt::change::{Change, KINDS};
use crate::hunt::event::{Action, Event, Handoff, ItemStack};
use crate::hunt::handoff::{HANDOFF_PARTS, HandoffOut};
use crate::hunt::refusal::Refusal;
use crate::hunt::rules::Rules;
use crate::hunt::rules::rulebook::Rulebook;
use crate::hunt::rules_file::built_in;
use crate::hunt::{Outcome, Shard};
use crate::kit::event_list::Events;
use crate::kit::update::{Update, Updates};
use crate::output::frame::Chain;
use crate::testing::random::Random;
use crate::testing::random_game::{RandomGame, Setting};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

fn rules() -> Rules {
    let mut rules = built_in();
    rules.world.tiles_per_side = 16;
    rules.actors.count_max = 20;
    rules.actors.per_tile_max = 2;
    rules.actors.respawn_ms = 500;
    rules.hunts.finish_treasures = 1;
    rules.weapons[0].damage = 55;
    rules.weapons[0].reload_ms = 60;
    rules
}

/// These rules, and others to switch to.
fn rulebook() -> Rulebook {
    let mut others = rules();
    others.actors.health = 70;
    others.world.speed_cm_per_s_max *= 2;
    others.weapons[0].damage = 40;
    let mut rulebook = Rulebook::of(rules());
    rulebook.add(others).expect("the map is the same");
    rulebook
}

/// A seeded game; a failing one prints its seed.
struct Game {
    random: Random,
    events: RandomGame,
}

impl Game {
    fn new(seed: u64) -> Game {
        let setting = Setting { edge_one_in: 100, ..Setting::of(&rulebook()) };
        Game { random: Random::new(seed), events: RandomGame::new(setting) }
    }

    fn event(&mut self) -> Event {
        self.events.event(&mut |bound| self.random.below(bound))
    }
}

fn apply(shard: &mut Shard, event: &Event) -> (Outcome, Vec<Update>) {
    let mut updates = Updates::new();
    let outcome = shard.apply(event, &mut updates);
    (outcome, updates.as_slice().to_vec())
}

fn kind(update: &Update) -> u8 {
    update.payload().kind
}

/// Number of games, and their events: a hostile time ends one game and not all.
const GAMES: u64 = 10;
const GAME_EVENTS: usize = 6_000;

/// The results of some games.
#[derive(Debug, Default, PartialEq, Eq)]
struct Reached {
    chain: Chain,
    digests: Vec<u64>,
    kinds: BTreeSet<&'static str>,
    refusals: BTreeSet<&'static str>,
    /// Number of applied events and of no-ops.
    applied: usize,
    no_ops: usize,
}

impl Reached {
    fn play(&mut self, seed: u64) {
        let mut shard = Shard::new(1, &rulebook());
        let mut game = Game::new(seed);
        for _ in 0..GAME_EVENTS {
            let (outcome, updates) = apply(&mut shard, &game.event());
            match outcome {
                Outcome::Applied => self.applied += 1,
                Outcome::NoOp => self.no_ops += 1,
                Outcome::RulesMissing { .. } => {}
                Outcome::Refused(refusal) => {
                    self.refusals.insert(refusal.name());
                }
            }
            self.kinds
                .extend(updates.iter().map(|update| KINDS[usize::from(kind(update)) - 1].name));
            self.chain = updates.iter().fold(self.chain, |chain, update| chain.with(update));
        }
        self.digests.push(shard.digest());
    }
}

#[test]
fn random_games_reach_everything_and_replay_to_the_same_chain_and_digests() {
    let play = || {
        let mut reached = Reached::default();
        (0..GAMES).for_each(|seed| reached.play(seed));
        reached
    };
    let reached = play();
    let kinds = KINDS.iter().map(|kind| kind.name).filter(|name| !reached.kinds.contains(name));
    // This map has no walls.
    let refusals = Refusal::NAMES.iter().copied().filter(|name| *name != "wall");
    let refusals = refusals.filter(|name| !reached.refusals.contains(name));
    let (kinds, refusals): (Vec<_>, Vec<_>) = (kinds.collect(), refusals.collect());
    assert!(
        kinds.is_empty() && refusals.is_empty(),
        "no game came to the updates {kinds:?} and the refusals {refusals:?}: give RandomGame \
         (testing/random_game.rs) numbers and weights that lead there"
    );
    assert!(reached.applied.min(reached.no_ops) > 1000, "{reached:?}");
    assert_eq!(play(), reached);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]

    #[test]
    fn any_interleaving_of_two_zones_gives_each_the_same(seed: u64, turns: [u64; 16]) {
        let rulebook = rulebook();
        let streams: Vec<Vec<Event>> = (0..2)
            .map(|zone| {
                let mut game = Game::new(seed ^ zone);
                (0..1000).map(|_| game.event()).collect()
            })
            .collect();
        let shard = |zone: usize| Shard::new(zone as u16, &rulebook);
        let mut alone = [shard(0), shard(1)];
        let mut mixed = [shard(0), shard(1)];
        let mut published_alone = [Vec::new(), Vec::new()];
        let mut published_mixed = [Vec::new(), Vec::new()];
        for zone in 0..2 {
            for event in &streams[zone] {
                published_alone[zone].extend(apply(&mut alone[zone], event).1);
            }
        }
        let mut next = [0, 0];
        for turn in 0.. {
            if next == [1000, 1000] {
                break;
            }
            let wanted = (turns[turn / 64 % 16] >> (turn % 64) & 1) as usize;
            let zone = if next[wanted] < 1000 { wanted } else { 1 - wanted };
            published_mixed[zone].extend(apply(&mut mixed[zone], &streams[zone][next[zone]]).1);
            next[zone] += 1;
        }
        prop_assert!(published_mixed == published_alone);
        for zone in 0..2 {
            prop_assert_eq!(mixed[zone].digest(), alone[zone].digest());
        }
    }

    #[test]
    fn any_batching_gives_the_same_updates(seed: u64, sizes: [u8; 8]) {
        let mut game = Game::new(seed);
        let events: Vec<Event> = (0..2000).map(|_| game.event()).collect();
        let mut one_by_one = Shard::new(3, &rulebook());
        let published: Vec<Update> =
            events.iter().flat_map(|event| apply(&mut one_by_one, event).1).collect();
        let mut batched = Shard::new(3, &rulebook());
        let (mut all, mut updates, mut at) = (Vec::new(), Updates::new(), 0);
        for size in sizes.iter().cycle() {
            let end = (at + 1 + usize::from(*size)).min(events.len());
            let batch: Events = events[at..end].iter().copied().collect();
            let begin = at;
            while at < end {
                let part = at - begin..batch.len();
                at += batched.apply_all(&batch, part, &mut updates, |_, _, _| {});
                // Some frames are full before the batch is over, others are sent half empty.
                if !updates.has_room() || size % 2 == 0 {
                    all.extend_from_slice(updates.as_slice());
                    updates.clear();
                }
            }
            if at == events.len() {
                break;
            }
        }
        all.extend_from_slice(updates.as_slice());
        prop_assert_eq!(all, published);
        prop_assert_eq!(batched.digest(), one_by_one.digest());
    }
}

/// Two zones, and the handoffs between them, which may come late and more than once.
struct World {
    zones: [Shard; 2],
    /// Handoffs with their player, in the order of publication.
    handoffs: Vec<(u64, HandoffOut)>,
    /// Number of arrived handoffs, by player.
    arrived: BTreeMap<u64, usize>,
    seqs: BTreeMap<u64, u64>,
    time_ms: i64,
    /// The possessions of all players, according to the updates.
    there: Carried,
}

/// Possessions of players: items, see [`items`], and points.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Carried {
    items: i64,
    points: u64,
}

impl Carried {
    fn of(handoff: &Handoff) -> Carried {
        let items = handoff.items.iter().map(items_of).sum();
        Carried { items, points: handoff.score }
    }

    fn and(self, more: Carried) -> Carried {
        Carried { items: self.items + more.items, points: self.points + more.points }
    }

    fn without(self, less: Carried) -> Carried {
        Carried { items: self.items - less.items, points: self.points - less.points }
    }
}

const PLAYERS: std::ops::Range<u64> = 1..5;

/// A number of an item, in a sum with separate digits for each kind.
fn items(item: u8, count: u16) -> i64 {
    i64::from(count) << (8 * item)
}

fn items_of(stack: &ItemStack) -> i64 {
    items(stack.item, stack.count.into())
}

impl World {
    fn new() -> World {
        let mut rules = rules();
        rules.actors.count_max = 3;
        let rulebook = Rulebook::of(rules);
        World {
            zones: [Shard::new(0, &rulebook), Shard::new(1, &rulebook)],
            handoffs: Vec::new(),
            arrived: BTreeMap::new(),
            seqs: BTreeMap::new(),
            time_ms: 0,
            there: Carried::default(),
        }
    }

    fn act(&mut self, zone: usize, player_id: u64, action: Action) {
        self.time_ms += 30;
        let seq = self.seqs.entry(player_id).or_default();
        *seq += 1;
        let (seq, time_ms) = (*seq, self.time_ms);
        let held = self.held_by(zone, player_id);
        let event = Event { offset: 0, time_ms, player_id, seq, ts_us: 0, action };
        let (_, updates) = apply(&mut self.zones[zone], &event);
        for (at, update) in updates.iter().enumerate() {
            match update.change() {
                Change::ItemUsed { item, .. } => self.there.items -= items(item, 1),
                Change::ItemLost { item, lost } => self.there.items -= items(item, lost),
                // What a player owns is lost when it leaves the game.
                Change::Left { to_zone: None, .. } => self.there = self.there.without(held),
                Change::Handoff { .. } => {
                    let parts = updates[at..at + HANDOFF_PARTS].try_into().unwrap();
                    self.handoffs.extend(HandoffOut::from_updates(zone as u16, parts));
                }
                _ => {}
            }
        }
    }

    /// Delivers a player's next handoff, or an older one again.
    fn deliver(&mut self, player_id: u64, again: Option<usize>) {
        let mine = self.handoffs.iter().filter(|(player, _)| *player == player_id);
        let mine: Vec<HandoffOut> = mine.map(|(_, out)| *out).collect();
        let arrived = self.arrived.entry(player_id).or_default();
        let number = again.map_or(*arrived, |again| again % (*arrived + 1));
        let Some(HandoffOut { to_zone, x, y, handoff }) = mine.get(number).copied() else {
            return;
        };
        *arrived = (*arrived).max(number + 1);
        self.act(to_zone.into(), player_id, Action::Arrive { x, y, handoff });
    }

    fn held_by(&self, zone: usize, player_id: u64) -> Carried {
        let zone = &self.zones[zone];
        let stacks = zone.inventory(player_id);
        let items = stacks.map_or(0, |stacks| stacks.iter().map(items_of).sum());
        let players = zone.outline();
        let points = players.iter().find(|player| player.player_id == player_id);
        let points = points.map_or(0, |player| player.score);
        Carried { items, points }
    }

    fn carried(&self) -> Carried {
        let held = PLAYERS.flat_map(|player| [self.held_by(0, player), self.held_by(1, player)]);
        let on_the_way = PLAYERS.flat_map(|player| {
            let mine = self.handoffs.iter().filter(move |(of, _)| *of == player);
            mine.skip(self.arrived.get(&player).copied().unwrap_or(0))
        });
        let carried = on_the_way.map(|(_, out)| Carried::of(&out.handoff));
        held.chain(carried).fold(Carried::default(), Carried::and)
    }

    /// Lets a player arrive from elsewhere with five items and some points.
    fn come(&mut self, player_id: u64, to_zone: u16) {
        let (from_zone, score) = (1 - to_zone, 7 << (8 * player_id));
        let mut handoff = Handoff { from_zone, crossing: 1, score, ..Handoff::default() };
        handoff.items[0] = ItemStack { item: 1, count: 3 };
        handoff.items[5] = ItemStack { item: 4, count: 2 };
        self.there = self.there.and(Carried::of(&handoff));
        self.handoffs.push((player_id, HandoffOut { to_zone, x: 70, y: 900, handoff }));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn items_and_points_are_conserved_over_two_zones_whatever_comes_late_or_twice(
        steps in prop::collection::vec((0u8..12, PLAYERS, 0usize..2, 0usize..9), 1..150),
    ) {
        let mut world = World::new();
        for player in PLAYERS {
            world.come(player, (player % 2) as u16);
        }
        for (what, player, zone, again) in steps {
            match what {
                0..3 => world.act(zone, player, Action::Leave { to_zone: Some(1 - zone as u16) }),
                3..7 => world.deliver(player, None),
                7..9 => world.deliver(player, Some(again)),
                9 => world.act(zone, player, Action::Join { x: 3000, y: 3000 }),
                10 => world.act(zone, player, Action::Use { item: 1 + 3 * (again % 2) as u8 }),
                _ => world.act(zone, player, Action::Leave { to_zone: None }),
            }
            prop_assert_eq!(world.carried(), world.there);
        }
    }
}
