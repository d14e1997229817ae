//! The contract of docs/QUERIES.md, beyond single requests: several zones, and several processes.

#![allow(clippy::print_stdout, reason = "a failing game names its seed")]

use super::{World, documented};
use crate::hunt::Shard;
use crate::hunt::event::Action;
use crate::hunt::rules::rulebook::Rulebook;
use crate::kit::update::{Update, Updates};
use crate::serve::answers::{Served, ZoneState};
use crate::serve::exchange::{Exchange, ExchangeNeed};
use crate::serve::gate::Gate;
use crate::serve::lag::Lag;
use crate::testing::hostile_zone::rulebook;
use crate::testing::random::Random;
use crate::testing::random_game::{RandomGame, Setting};
use crate::view::game::ZoneImage;
use crate::view::zone::{ZonePosition, ZoneView};
use simd_json::prelude::*;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(super) const ZONES: u16 = 3;

/// Players of a random game, from 1 on.
pub(super) const PLAYERS: u64 = 24;

/// A world whose players cross from zone to zone at random.
pub(super) struct RandomWorld {
    rulebook: Rulebook,
    shards: Vec<Shard>,
    positions: Vec<ZonePosition>,
    game: RandomGame,
    random: Random,
}

impl RandomWorld {
    pub(super) fn new(seed: u64) -> RandomWorld {
        println!("seed {seed}");
        let rulebook = rulebook(seed.is_multiple_of(2));
        RandomWorld {
            shards: (0..ZONES).map(|zone| Shard::new(zone, &rulebook)).collect(),
            positions: vec![ZonePosition::default(); ZONES.into()],
            game: RandomGame::new(Setting { players: PLAYERS, ..Setting::of(&rulebook) }),
            random: Random::new(seed),
            rulebook,
        }
    }

    /// One event: its zone, its updates, and where the zone is then.
    pub(super) fn play(&mut self) -> (u16, Vec<Update>, i64) {
        let event = self.game.event(&mut |bound| self.random.below(bound));
        let zone = self.random.below(ZONES.into()) as u16;
        let mut updates = Updates::new();
        self.shards[usize::from(zone)].apply(&event, &mut updates);
        let position = &mut self.positions[usize::from(zone)];
        position.update += updates.len() as u64;
        position.next_offset += 1;
        (zone, updates.as_slice().to_vec(), position.next_offset)
    }

    /// A process that begins with the world as it is.
    pub(super) fn served(&self) -> Served {
        let mut served = Served::new(&self.rulebook, ZONES.into(), Duration::from_secs(2));
        for (shard, position) in self.shards.iter().zip(&self.positions) {
            served.view.put(ZoneView::of_engine(
                ZoneImage::of(shard),
                Arc::new(self.rulebook.clone()),
                *position,
            ));
        }
        served.zones.fill(ZoneState::Live { owner_epoch: 1, lag: Lag::none(Instant::now()) });
        served
    }
}

fn answer(served: &Served, path: &str) -> String {
    let mut exchange = Exchange::default();
    exchange.receive(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes());
    exchange.advance(served, &Gate::open(), 0);
    let answer = super::text_of(&exchange);
    documented::check("GET", path, &answer);
    answer
}

/// Everything that is asked of a world, except what happened before a process began.
fn answers(served: &Served) -> Vec<String> {
    let mut paths = vec!["/v1/zones".to_owned(), "/v1/boards/world?count=100".to_owned()];
    for zone in 0..ZONES {
        paths.push(format!("/v1/boards/{zone}?count=100"));
        paths.push(format!("/v1/zones/{zone}/tiles"));
        paths.push(format!("/v1/zones/{zone}/hunts"));
        for player in 1..=PLAYERS {
            paths.push(format!("/v1/players/{player}?zone={zone}"));
        }
    }
    for player in 1..=PLAYERS {
        paths.push(format!("/v1/players/{player}"));
        paths.push(format!("/v1/players/{player}/poll"));
        paths.push(format!("/v1/boards/world?around={player}&each_side=3"));
    }
    let answers = paths.iter().map(|path| {
        let answer = answer(served, path);
        let (head, body) = answer.split_once("\r\n\r\n").expect("an answer has a head");
        let at = head.lines().find(|line| line.starts_with("Huntd-At")).unwrap_or_default();
        let body = body.split("\"past\":").next().expect("it has a beginning");
        format!("{path} {} {at} {body}", &head[..12])
    });
    answers.collect()
}

/// Point 4.
#[test]
fn processes_that_began_anywhere_and_read_frames_of_any_size_give_the_same_bytes() {
    for seed in 0..20 {
        let mut world = RandomWorld::new(seed);
        let mut first = world.served();
        let mut later = None;
        let begin = world.random.below(800);
        // What `later` has read of the frames that are to come.
        let mut read: Vec<Vec<Update>> = vec![Vec::new(); ZONES.into()];
        for event in 0..1_200 {
            if event == begin {
                later = Some(world.served());
            }
            let (zone, updates, next_offset) = world.play();
            first.fold(zone, &updates);
            first.seal(zone, next_offset, 1, 0);
            let Some(later) = later.as_mut() else { continue };
            let unread = &mut read[usize::from(zone)];
            unread.extend(updates);
            if world.random.below(5) == 0 || event >= 1_000 {
                for piece in unread.chunks(7) {
                    later.fold(zone, piece);
                }
                unread.clear();
                later.seal(zone, next_offset, 1, 0);
            }
        }
        let later = later.expect("it began");
        for (first, later) in answers(&first).iter().zip(&answers(&later)) {
            assert_eq!(first, later);
        }
        assert!(read.iter().all(Vec::is_empty), "every zone had an event at the end");
    }
}

/// Point 2, at two processes of which one lags.
#[test]
fn a_client_that_echoes_its_position_never_goes_back_in_time() {
    let (mut ahead, mut behind) = (World::new(), World::new());
    ahead.act(1, Action::Rotate { heading: 77 });
    let answer = ahead.get("/v1/players/1");
    let at = answer.lines().find_map(|line| line.strip_prefix("Huntd-At: ")).expect("its position");
    let mut exchange = Exchange::default();
    let head = "GET /v1/players/1 HTTP/1.1\r\nHost: localhost\r\nHuntd-At: ";
    exchange.receive(format!("{head}{at}\r\n\r\n").as_bytes());
    let need = exchange.advance(&behind.served, &behind.gate, 0);
    assert!(matches!(need, ExchangeNeed::Offset { .. }) && exchange.unsent().is_empty());
    behind.act(1, Action::Rotate { heading: 77 });
    exchange.advance(&behind.served, &behind.gate, 1);
    assert_eq!(super::text_of(&exchange), answer);
}

/// Point 3.
#[test]
fn the_world_s_board_names_a_prefix_of_each_zone_and_has_nobody_twice() {
    for seed in 100..110 {
        let mut world = RandomWorld::new(seed);
        let mut served = world.served();
        for _ in 0..1_000 {
            let (zone, updates, next_offset) = world.play();
            served.fold(zone, &updates);
            served.seal(zone, next_offset, 1, 0);
        }
        let board = answer(&served, "/v1/boards/world?count=100");
        let board = super::json(board.split_once("\r\n\r\n").expect("a head").1);
        let zones = board["zones"].as_array().expect("all zones");
        let at: Vec<_> = zones.iter().map(|zone| zone["at"]["offset"].as_i64()).collect();
        let expected = world.positions.iter().map(|position| Some(position.next_offset));
        assert_eq!(at, expected.collect::<Vec<_>>());
        let places = board["places"].as_array().expect("places");
        let mut ids: Vec<_> = places.iter().map(|place| place["player_id"].as_str()).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), places.len());
        let is_here =
            |player: u64| world.shards.iter().any(|shard| shard.inventory(player).is_some());
        assert_eq!(ids.len(), (1..=PLAYERS).filter(|player| is_here(*player)).count());
    }
}

/// Point 3: between leaving one zone and arriving in another.
#[test]
fn a_player_on_its_way_is_on_no_board() {
    let mut world = World::new();
    assert!(world.body("/v1/boards/world").contains("\"player_id\":\"2\""));
    world.act(2, Action::Leave { to_zone: Some(1) });
    for board in ["world", "0", "1"] {
        let places = world.body(&format!("/v1/boards/{board}"));
        assert!(!places.contains("\"player_id\":\"2\""), "{places}");
    }
    assert_eq!(world.status("/v1/players/2"), "404");
}

/// Point 5.
#[test]
fn a_halted_zone_says_why_and_the_others_go_on() {
    let mut world = World::new();
    world.served.halt(1, "restore the output topic".to_owned());
    for path in ["/v1/boards/1", "/v1/zones/1/hunts", "/v1/zones/1/tiles", "/v1/zones?at=1:1"] {
        let answer = world.get(path);
        assert!(answer.starts_with("HTTP/1.1 503 "), "{path}: {answer}");
        assert!(answer.contains("zone 1 is halted: restore the output topic"), "{answer}");
    }
    // What comes for it changes nothing.
    world.served.fold(1, &[]);
    world.served.live(1, 9, None);
    assert_eq!(world.status("/v1/boards/1"), "503");
    for path in ["/v1/boards/0", "/v1/boards/world", "/v1/players/1", "/v1/zones", "/livez"] {
        assert_eq!(world.status(path), "200", "{path}");
    }
}
