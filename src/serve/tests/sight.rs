//! What a player sees: what a client has been told equals what is there, while all move.

use super::access::{ORIGIN_S, player_token, token_of, world_at_rate};
use super::contract::{PLAYERS, RandomWorld};
use super::{documented, text_of};
use crate::hunt::change::Change;
use crate::hunt::rules::rulebook::Rulebook;
use crate::hunt::rules_file::built_in;
use crate::kit::update::Update;
use crate::serve::answers::{Served, ZoneState};
use crate::serve::exchange::Exchange;
use crate::serve::gate::Gate;
use crate::serve::lag::Lag;
use crate::serve::sight::SIGHT_PLAYERS_MAX;
use crate::testing::random::Random;
use crate::view::zone::{ZonePosition, ZoneView};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A client that reads what a player sees.
struct Watcher {
    exchange: Exchange,
    player_id: u64,
    radius: i64,
    /// Who is in sight, and what was last told of them.
    in_sight: BTreeMap<u64, Value>,
    /// Names of the events and their parts so far.
    told: BTreeSet<&'static str>,
}

fn id(value: &Value) -> u64 {
    value["player_id"].as_str().expect("a text").parse().expect("a number")
}

impl Watcher {
    fn new(player_id: u64, radius: i64) -> Watcher {
        let target = format!("/v1/stream?around={player_id}&radius={radius}&every_ms=50");
        let mut exchange = Exchange::default();
        exchange.receive(format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes());
        Watcher { exchange, player_id, radius, in_sight: BTreeMap::new(), told: BTreeSet::new() }
    }

    /// Reads what is written at this time.
    fn read(&mut self, served: &Served, now_ms: u64) {
        for _ in 0..2 {
            self.exchange.advance(served, &Gate::open(), now_ms);
        }
        let text = text_of(&self.exchange);
        self.exchange.take_unsent();
        let text = text.split_once("\r\n\r\n").map_or(&*text, |(_, events)| events);
        documented::check_events(text);
        for event in text.split("\n\n").filter(|event| event.starts_with("event: ")) {
            let (name, data) = event.split_once("\ndata: ").expect("it has data");
            let data: Value = serde_json::from_str(data).expect("JSON");
            assert_eq!(id(&data), self.player_id);
            self.take(name, &data);
        }
    }

    fn take(&mut self, name: &str, data: &Value) {
        let players = |part: &str| data[part].as_array().into_iter().flatten();
        if name == "event: around" {
            self.told.insert(if data.get("detail").is_some() { "nobody" } else { "around" });
            self.in_sight = players("players").map(|player| (id(player), player.clone())).collect();
            return;
        }
        assert_eq!(name, "event: sight");
        for player in players("left") {
            self.told.insert("left");
            assert!(self.in_sight.remove(&id(player)).is_some(), "it was not there");
        }
        for player in players("entered") {
            self.told.insert("entered");
            assert!(self.in_sight.insert(id(player), player.clone()).is_none(), "it was there");
        }
        for player in players("changed") {
            self.told.insert("changed");
            assert!(self.in_sight.insert(id(player), player.clone()).is_some(), "it was not there");
        }
    }

    /// Whom it must see: found by looking at everybody.
    fn expected(&self, served: &Served) -> BTreeMap<u64, Value> {
        let Ok(zone) = served.zone_of(self.player_id) else { return BTreeMap::new() };
        let zone = served.zone(zone).expect("all zones are live");
        let spot = |player_id| {
            let (_, card) = zone.card(player_id).expect("it is here");
            (i64::from(card.signed(0)), i64::from(card.signed(1)))
        };
        let centre = spot(self.player_id);
        let distance = |player_id: u64| {
            let (x, y) = spot(player_id);
            (x - centre.0).pow(2) + (y - centre.1).pow(2)
        };
        let all = zone.cards().map(|card| card.player_id);
        let mut near: Vec<u64> = all.filter(|of| distance(*of) <= self.radius.pow(2)).collect();
        near.sort_unstable_by_key(|of| (distance(*of), *of != self.player_id, *of));
        near.truncate(SIGHT_PLAYERS_MAX);
        let told = |player_id: u64| {
            let (_, card) = zone.card(player_id).expect("it is here");
            let [x, y] = [card.signed(0), card.signed(1)];
            let id = player_id.to_string();
            let [heading, health] = [card.fields[2], card.fields[3]];
            json!({"player_id": id, "x": x, "y": y, "heading": heading, "health": health})
        };
        near.into_iter().map(|player_id| (player_id, told(player_id))).collect()
    }
}

#[test]
fn a_client_knows_exactly_the_players_around_one_while_all_of_them_move() {
    let mut told = BTreeSet::new();
    for seed in 0..30 {
        let mut world = RandomWorld::new(seed);
        let mut served = world.served();
        let mut random = Random::new(seed);
        let radius = [400, 2_000, 6_000, 50_000][seed as usize % 4];
        let mut watchers: Vec<Watcher> =
            (1..=PLAYERS).map(|player_id| Watcher::new(player_id, radius)).collect();
        for event in 0..1_500_u64 {
            let (zone, updates, next_offset) = world.play();
            served.fold(zone, &updates);
            // Nothing is told within a frame.
            if random.below(8) == 0 {
                watchers.iter_mut().for_each(|watcher| watcher.read(&served, 60 * event));
            }
            served.seal(zone, next_offset, 1, 0);
            if random.below(6) == 0 {
                for watcher in &mut watchers {
                    watcher.read(&served, 60 * event + 30);
                    let (known, expected) = (&watcher.in_sight, watcher.expected(&served));
                    let player_id = watcher.player_id;
                    assert_eq!(known, &expected, "seed {seed}, event {event}, player {player_id}");
                }
            }
        }
        told.extend(watchers.into_iter().flat_map(|watcher| watcher.told));
    }
    let all = ["around", "changed", "entered", "left", "nobody"];
    assert_eq!(told.into_iter().collect::<Vec<_>>(), all);
}

/// A zone where so many players are near the first one.
fn crowd(players: u64) -> Served {
    let rulebook = Rulebook::of(built_in());
    let mut served = Served::new(&rulebook, 1, Duration::from_secs(2));
    served.view.put(ZoneView::new(0, Arc::new(rulebook), ZonePosition::default()));
    served.zones[0] = ZoneState::Live { owner_epoch: 1, lag: Lag::none(Instant::now()) };
    let mut random = Random::new(3);
    let mut updates = vec![Update::new(1, 0, Change::Joined { health: 100, x: 5_000, y: 5_000 })];
    // Some are at the same place, and some just as far.
    let joined = |player_id| {
        let (x, y) = (random.below(100) as i32 * 100, random.below(100) as i32 * 100);
        Update::new(player_id, 0, Change::Joined { health: 100, x, y })
    };
    updates.extend((2..=players).map(joined));
    served.fold(0, &updates);
    served.seal(0, 1, 1, 0);
    served
}

#[test]
fn who_is_in_a_crowd_is_told_of_it_less_often_and_looks_at_it_only_when_something_has_changed() {
    let mut served = crowd(10_000);
    let mut watcher = Watcher::new(1, 50_000);
    let mut seen = |served: &Served, now_ms| {
        watcher.read(served, now_ms);
        watcher.in_sight[&1]["heading"].as_u64()
    };
    let turn = |served: &mut Served, heading| {
        served.fold(0, &[Update::new(1, 0, Change::Rotated { heading })]);
        served.seal(0, 1, 1, 0);
    };
    assert_eq!(seen(&served, 0), Some(0));
    turn(&mut served, 1);
    // To look at a hundred players takes a millisecond.
    assert_eq!([99, 100].map(|now_ms| seen(&served, now_ms)), [Some(0), Some(1)]);
    // Nobody is looked at where nothing has happened.
    seen(&served, 200);
    turn(&mut served, 2);
    assert_eq!([249, 250].map(|now_ms| seen(&served, now_ms)), [Some(1), Some(2)]);
}

#[test]
fn of_a_crowd_those_are_in_sight_who_are_nearest() {
    let mut served = crowd(2_000);
    let mut watcher = Watcher::new(1, 50_000);
    watcher.read(&served, 0);
    assert_eq!(watcher.in_sight.len(), SIGHT_PLAYERS_MAX);
    assert_eq!(watcher.in_sight, watcher.expected(&served));
    // The nearest ones go, and others are seen instead.
    let nearest = watcher.in_sight.keys().filter(|player| **player != 1).take(20);
    let left =
        nearest.map(|player| Update::new(*player, 0, Change::Left { to_zone: None, seq: 2 }));
    served.fold(0, &left.collect::<Vec<_>>());
    served.seal(0, 2, 1, 0);
    watcher.read(&served, 50);
    assert_eq!(watcher.in_sight.len(), SIGHT_PLAYERS_MAX);
    assert_eq!(watcher.in_sight, watcher.expected(&served));
}

#[test]
fn a_player_sees_from_where_it_is_and_no_other_sees_for_it() {
    let world = world_at_rate(1_000);
    let status = |token: &str, query: &str| {
        let mut exchange = Exchange::default();
        let head = format!("GET /v1/stream?{query} HTTP/1.1\r\nHost: localhost");
        exchange.receive(format!("{head}\r\nAuthorization: Bearer {token}\r\n\r\n").as_bytes());
        exchange.advance(&world.served, &world.gate, 0);
        text_of(&exchange)[9..12].to_owned()
    };
    let player = player_token(2, ORIGIN_S + 600);
    assert_eq!(status(&player, "around=2&radius=5000"), "200");
    assert_eq!(status(&player, "around=1&radius=5000"), "403");
    assert_eq!(status(&token_of("reader"), "around=1&radius=5000"), "200");
    for wrong in [
        "around=0&radius=5",
        "around=1",
        "around=1&radius=0",
        "around=1&radius=50001",
        "around=2&radius=5&around=2",
        "player=2&board=0&player=02",
    ] {
        assert_eq!(status(&player, wrong), "400", "{wrong}");
    }
}
