//! Requests and answers without sockets or Kafka.

mod absurd;
mod access;
mod clients;
mod closing;
mod contract;
mod cross_origin;
mod documented;
mod examples;
mod expecting;
mod polls;
mod posting;
mod schema;
mod second_game;
mod sharing;
mod sight;
mod sockets;
mod statuses;
mod streaming;
mod tickets;
mod tokens;
mod turns;
mod zone_players;

use crate::hunt::Shard;
use crate::hunt::change::Change;
use crate::hunt::event::{Action, Event};
use crate::hunt::queries::VIEW_SCHEMA;
use crate::hunt::rules::rulebook::Rulebook;
use crate::kit::update::{Update, Updates};
use crate::runtime::allocator;
use crate::serve::answers::{Served, ZoneState};
use crate::serve::exchange::{Exchange, ExchangeNeed};
use crate::serve::gate::Gate;
use crate::serve::lag::Lag;
use crate::serve::openapi;
use crate::serve::routes::{EVENTS, STREAM, TICKET};
use crate::serve::waiting::AwaitedOffset;
use crate::testing::hostile_zone::rulebook;
use crate::testing::random::Random;
use crate::view::game::ZoneImage;
use crate::view::zone::{ZonePosition, ZoneView};
use simd_json::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Every route with its method: what the server answers and the OpenAPI document has.
const ROUTES: &[(&str, &str)] = &[
    ("get", "/v1/players/{id}"),
    ("get", "/v1/players/{id}/poll"),
    ("get", "/v1/boards/{board}"),
    ("get", "/v1/zones"),
    ("get", "/v1/zones/{zone}/hunts"),
    ("get", "/v1/zones/{zone}/tiles"),
    ("get", "/v1/zones/{zone}/players"),
    ("get", "/v1/openapi.json"),
    ("post", EVENTS),
    ("post", TICKET),
    ("get", STREAM),
];

/// A world of two zones, the first of which has players.
struct World {
    rulebook: Rulebook,
    shard: Shard,
    served: Served,
    gate: Gate,
    events: i64,
}

impl World {
    fn new() -> World {
        let rulebook = rulebook(false);
        let mut served = Served::new(&rulebook, 2, Duration::from_secs(2));
        for zone in 0..2 {
            served.view.put(ZoneView::new(
                zone,
                Arc::new(rulebook.clone()),
                ZonePosition::default(),
            ));
            served.zones[usize::from(zone)] =
                ZoneState::Live { owner_epoch: 3, lag: Lag::none(Instant::now()) };
        }
        let (shard, gate) = (Shard::new(0, &rulebook), Gate::open());
        let mut world = World { shard, rulebook, served, gate, events: 0 };
        for player_id in 1..=4 {
            world.act(player_id, Action::Join { x: 2000 * player_id as i32, y: 70 });
        }
        world
    }

    fn act(&mut self, player_id: u64, action: Action) {
        self.within_frame(player_id, action);
        self.served.view.seal(0, self.events);
    }

    fn within_frame(&mut self, player_id: u64, action: Action) {
        self.events += 1;
        let (offset, seq) = (self.events, self.events as u64);
        let time_ms = 1_767_225_600_000 + 50 * offset;
        let event = Event { offset, time_ms, player_id, seq, ts_us: 1000 * time_ms, action };
        let mut updates = Updates::new();
        self.shard.apply(&event, &mut updates);
        self.served.view.fold(0, updates.as_slice()).unwrap();
    }

    /// A genesis of the first zone.
    fn start_over(&mut self) {
        let position = self.served.view.zone(0).unwrap().position();
        self.shard = Shard::new(0, &self.rulebook);
        self.served.begin(ZoneView::new(0, Arc::new(self.rulebook.clone()), position));
    }

    /// Number of the first zone's next update.
    fn next_update(&self) -> u64 {
        self.served.view.zone(0).unwrap().position().update
    }

    fn get(&self, target: &str) -> String {
        let mut exchange = Exchange::default();
        exchange.receive(format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes());
        exchange.advance(&self.served, &self.gate, 0);
        let answer = text_of(&exchange);
        documented::check("GET", target, &answer);
        answer
    }

    fn body(&self, target: &str) -> String {
        let answer = self.get(target);
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{target}: {answer}");
        assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{answer}");
        body.to_owned()
    }

    fn status(&self, target: &str) -> String {
        self.get(target)["HTTP/1.1 ".len()..][..3].to_owned()
    }
}

fn json(text: &str) -> simd_json::OwnedValue {
    simd_json::to_owned_value(&mut text.as_bytes().to_vec()).unwrap()
}

#[test]
fn every_route_answers_with_what_the_view_knows() {
    let world = World::new();
    let card = json(&world.body("/v1/players/2"));
    assert_eq!(card["player_id"].as_str(), Some("2"));
    assert_eq!((card["x"].as_i64(), card["y"].as_i64()), (Some(4000), Some(70)));
    assert_eq!((card["rank"].as_u64(), card["world_rank"].as_u64()), (Some(2), Some(2)));
    assert_eq!((card["at"]["update"].as_u64(), card["at"]["offset"].as_u64()), (Some(4), Some(4)));
    assert_eq!(world.body("/v1/players/3/poll"), format!("{:50}", "[4,0,0,3,6000,70,100,0]"));
    for board in ["0", "world"] {
        let places = json(&world.body(&format!("/v1/boards/{board}?from=2&count=2")));
        let places = places["places"].as_array().unwrap().clone();
        let ids: Vec<_> = places.iter().map(|place| place["player_id"].as_str().unwrap()).collect();
        assert_eq!(ids, ["2", "3"]);
        let around = json(&world.body(&format!("/v1/boards/{board}?around=4&each_side=1")));
        assert_eq!(around["places"].as_array().unwrap().len(), 2);
    }
    let zones = json(&world.body("/v1/zones"));
    assert_eq!(zones["zones"][0]["players"].as_u64(), Some(4));
    assert_eq!(zones["zones"][1]["state"].as_str(), Some("live"));
    json(&world.body("/v1/zones/0/hunts"));
    let tiles = json(&world.body("/v1/zones/0/tiles"));
    assert!(!tiles["players"].as_array().unwrap().is_empty());
    let later = json(&world.body("/v1/zones/0/tiles?since=4"));
    assert!(later["players"].as_array().unwrap().is_empty());
}

#[test]
fn the_openapi_document_has_exactly_the_routes() {
    let document = json(&World::new().body("/v1/openapi.json"));
    assert_eq!(document, json(&openapi::document(&VIEW_SCHEMA)));
    let mut documented = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap().iter() {
        for method in methods.as_object().unwrap().keys() {
            documented.push((method.clone(), path.clone()));
        }
    }
    documented.sort();
    let mut routes: Vec<_> = ROUTES.iter().map(|(m, p)| (m.to_string(), p.to_string())).collect();
    routes.sort();
    assert_eq!(documented, routes);
    // Each of them is one for the server, too.
    let world = World::new();
    for (_, path) in ROUTES.iter().filter(|(method, path)| *method == "get" && *path != STREAM) {
        let path = path.replace("{id}", "1").replace("{board}", "world").replace("{zone}", "0");
        assert_eq!(world.status(&path), "200", "{path}");
    }
}

#[test]
fn what_cannot_be_answered_is_refused_with_a_sentence() {
    let mut world = World::new();
    let refused = [
        ("/v2/zones", "404"),
        ("/v1/zones/", "404"),
        ("/v1/zones/0/hunts/1", "404"),
        ("/v1/players/9", "404"),
        ("/v1/players/0", "400"),
        ("/v1/players/x", "400"),
        ("/v1/players/1?zone=7", "404"),
        ("/v1/boards/7", "404"),
        ("/v1/boards/moon", "400"),
        ("/v1/boards/0?around=9", "404"),
        ("/v1/boards/0?from=0", "400"),
        ("/v1/players/1?after=4", "400"),
        ("/v1/players/1/poll?after=0:", "400"),
        ("/v1/zones/0/tiles?since=-1", "400"),
        ("/v1/zones?at=4", "400"),
        ("/v1/players/1?at=1:x", "400"),
    ];
    for (target, status) in refused {
        assert_eq!(world.status(target), status, "{target}");
        assert!(world.get(target).contains("\"detail\":\""), "{target}");
    }
    world.served.halt(1, "the log is damaged".to_owned());
    assert!(world.get("/v1/boards/1").contains("zone 1 is halted: the log is damaged"));
    assert_eq!(world.status("/v1/players/9"), "503", "it may be in the halted zone");
    assert_eq!(world.status("/v1/players/1"), "200", "the others go on");
    world.served.zones[1] = ZoneState::Loading;
    assert!(world.get("/v1/zones/1/hunts").contains("Retry-After: 1\r\n"));
}

/// Point 1 of the contract.
#[test]
fn an_answer_names_its_position_and_is_never_made_within_a_frame() {
    let mut world = World::new();
    assert!(world.get("/v1/players/1").contains("Huntd-At: 0:4:4\r\n"));
    world.within_frame(1, Action::Move { x: 2020, y: 70 });
    let ask = |world: &World, target: &str| {
        let mut exchange = Exchange::default();
        exchange.receive(format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes());
        let need = exchange.advance(&world.served, &world.gate, 0);
        assert!(matches!(need, ExchangeNeed::Frame { .. }), "{target}: {need:?}");
        assert_eq!(exchange.unsent(), b"");
        exchange
    };
    let targets = ["/v1/players/1/poll", "/v1/boards/0", "/v1/boards/world", "/v1/zones"];
    let mut asked = targets.map(|target| ask(&world, target));
    assert!(world.get("/v1/players/1?at=0:9&wait_ms=0").contains("\r\nHuntd-At: 0:4:4\r\n"));
    world.served.view.seal(0, world.events);
    for exchange in &mut asked {
        assert_eq!(exchange.advance(&world.served, &world.gate, 1), ExchangeNeed::Bytes);
        let answer = text_of(exchange);
        let names_it = ["\r\nHuntd-At: 0:5:5\r\n", "\"at\":{\"update\":5,\"offset\":5}"];
        assert!(names_it.iter().any(|at| answer.contains(at)), "{answer}");
    }
    assert!(text_of(&asked[0]).contains("[5,0,0,1,2020,70,100,0]"));
}

/// Point 2 of the contract.
#[test]
fn a_request_waits_until_its_position_is_there_or_its_time_is_up() {
    let mut world = World::new();
    let awaited = AwaitedOffset { zone: 0, next_offset: 6 };
    let ask = |world: &World| {
        let mut exchange = Exchange::default();
        let request = "GET /v1/players/1?at=0:6&wait_ms=50 HTTP/1.1\r\nHost: localhost\r\n\r\n";
        exchange.receive(request.as_bytes());
        assert_eq!(
            exchange.advance(&world.served, &world.gate, 100),
            ExchangeNeed::Offset { awaited, until_ms: 150 }
        );
        exchange
    };
    let (mut in_time, mut late) = (ask(&world), ask(&world));
    world.act(1, Action::Rotate { heading: 5 });
    assert_eq!(
        in_time.advance(&world.served, &world.gate, 120),
        ExchangeNeed::Offset { awaited, until_ms: 150 }
    );
    assert_eq!(late.advance(&world.served, &world.gate, 150), ExchangeNeed::Bytes);
    assert!(late.unsent().starts_with(b"HTTP/1.1 412 "));
    world.act(1, Action::Rotate { heading: 7 });
    assert_eq!(in_time.advance(&world.served, &world.gate, 140), ExchangeNeed::Bytes);
    let answer = String::from_utf8(in_time.unsent().to_vec()).unwrap();
    assert!(answer.contains("\"heading\":7"), "{answer}");
    assert_eq!(world.status("/v1/players/1?at=0:6"), "200");
}

#[test]
fn a_card_that_did_not_change_is_not_sent_again() {
    let mut world = World::new();
    assert_eq!(world.status("/v1/players/2?after=0:4"), "204");
    world.act(1, Action::Rotate { heading: 5 });
    assert_eq!(world.status("/v1/players/2?after=0:4"), "204");
    assert_eq!(world.status("/v1/players/1?after=0:4"), "200");
}

#[test]
fn a_card_is_sent_again_when_its_player_has_crossed_to_a_zone_with_lower_numbers() {
    let mut world = World::new();
    world.act(2, Action::Leave { to_zone: Some(1) });
    world.served.fold(1, &[Update::new(2, 0, Change::Joined { health: 100, x: 70, y: 70 })]);
    world.served.seal(1, 1, 3, 0);
    for path in ["/v1/players/2", "/v1/players/2/poll"] {
        assert_eq!(world.status(&format!("{path}?after=0:4")), "200", "{path}");
        assert_eq!(world.status(&format!("{path}?after=1:1")), "204", "{path}");
    }
}

#[test]
fn a_client_that_asks_for_changed_tiles_learns_that_a_genesis_has_emptied_them() {
    let mut world = World::new();
    let players = |world: &World, since: u64| {
        let tiles = json(&world.body(&format!("/v1/zones/0/tiles?since={since}")));
        let rows = tiles["players"].as_array().expect("a list").iter();
        rows.filter_map(|row| Some((row[0].as_u64()?, row[1].as_u64()?)))
            .collect::<BTreeMap<_, _>>()
    };
    let (before, next) = (players(&world, 0), world.next_update());
    assert!(!before.is_empty() && players(&world, next).is_empty());
    world.start_over();
    let emptied = players(&world, next);
    assert!(before.keys().all(|tile| emptied.get(tile) == Some(&0)), "{emptied:?}");
    assert!(players(&world, 0).is_empty());
    world.act(1, Action::Join { x: 70, y: 70 });
    assert_eq!(players(&world, next + 1), BTreeMap::new());
}

/// Point 4 of the contract.
#[test]
fn a_view_from_a_snapshot_gives_the_same_bytes() {
    let world = World::new();
    let mut other = World::new();
    let position = world.served.view.zone(0).unwrap().position();
    other.served.view.put(ZoneView::of_engine(
        ZoneImage::of(&world.shard),
        Arc::new(world.rulebook.clone()),
        position,
    ));
    let targets =
        ["/v1/players/1", "/v1/boards/world", "/v1/boards/0", "/v1/zones", "/v1/zones/0/hunts"];
    for target in targets {
        assert_eq!(world.get(target), other.get(target), "{target}");
    }
}

#[test]
fn pipelined_requests_are_answered_in_their_order_however_their_bytes_are_split() {
    let world = World::new();
    let requests = "GET /v1/players/1/poll HTTP/1.1\r\nHost: localhost\r\n\r\n\
                    POST /v1/zones HTTP/1.1\r\nHost: localhost\r\n\
                        Content-Type: application/json\r\nContent-Length: 3\r\n\r\nabc\
                    HEAD /v1/players/2/poll HTTP/1.1\r\nHost: localhost\r\n\r\n\
                    GET /v1/players/3/poll HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n\
                    GET /v1/players/4/poll HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let answers = |split: &[usize]| {
        let (mut exchange, mut out, mut from) = (Exchange::default(), Vec::new(), 0);
        for to in split.iter().copied().chain([requests.len()]) {
            exchange.receive(&requests.as_bytes()[from..to]);
            let need = exchange.advance(&world.served, &world.gate, 0);
            out.extend_from_slice(&exchange.take_unsent());
            assert!(need != ExchangeNeed::Sending);
            from = to;
        }
        String::from_utf8(out).unwrap()
    };
    let whole = answers(&[]);
    assert_eq!(whole.matches("HTTP/1.1 200 OK").count(), 3, "{whole}");
    assert!(whole.contains("405 Method Not Allowed\r\n") && whole.contains("Allow: GET, HEAD"));
    assert_eq!(whole.matches(",70,100,0]").count(), 2, "HEAD has no body: {whole}");
    assert!(whole.trim_end().ends_with(",6000,70,100,0]"), "nothing follows the close");
    for at in 1..requests.len() {
        assert_eq!(answers(&[at]), whole, "split at {at}");
    }
    let mut random = Random::new(5);
    for _ in 0..200 {
        let mut split: Vec<usize> =
            (0..8).map(|_| random.below(requests.len() as u64) as usize).collect();
        split.sort_unstable();
        assert_eq!(answers(&split), whole, "{split:?}");
    }
}

#[test]
fn a_client_that_does_not_read_is_not_answered_on() {
    let world = World::new();
    let mut exchange = Exchange::default();
    let request = "GET /v1/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n";
    exchange.receive(request.repeat(100).as_bytes());
    assert_eq!(exchange.advance(&world.served, &world.gate, 0), ExchangeNeed::Sending);
    assert!(exchange.unsent().len() < 16 * 1024 + openapi::document(&VIEW_SCHEMA).len() + 1024);
    let mut answers = 0;
    while !exchange.unsent().is_empty() {
        answers += exchange.unsent().windows(8).filter(|bytes| bytes == b"HTTP/1.1").count();
        exchange.take_unsent();
        exchange.advance(&world.served, &world.gate, 0);
    }
    assert_eq!(answers, 100);
}

#[test]
fn after_bytes_that_are_no_request_comes_one_answer_and_the_end() {
    let world = World::new();
    let mut random = Random::new(9);
    let text =
        "GET /v1/players/1 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n".repeat(3);
    for _ in 0..5_000 {
        let mut bytes = text.as_bytes().to_vec();
        for _ in 0..1 + random.below(3) {
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] = random.below(256) as u8;
        }
        let mut exchange = Exchange::default();
        exchange.receive(&bytes);
        let need = exchange.advance(&world.served, &world.gate, 0);
        let answers = String::from_utf8_lossy(exchange.unsent()).into_owned();
        let count = answers.matches("\r\nContent-Length: ").count();
        assert!(
            count <= 3 && matches!(need, ExchangeNeed::Bytes | ExchangeNeed::Close),
            "{answers}"
        );
    }
}

#[test]
fn the_page_comes_from_this_server_alone() {
    let world = World::new();
    let files = world.served.schema().page.iter().map(|asset| asset.path);
    // The client names the servers of others in its comments.
    for path in files.filter(|path| *path != "/huntd-browser.mjs") {
        let answer = world.get(path);
        assert!(answer.contains("Content-Security-Policy: default-src 'self'"), "{path}");
        let body = answer.split_once("\r\n\r\n").unwrap().1;
        let is_namespace = |url: &str| url.starts_with("http://www.w3.org/2000/svg");
        let foreign = body.match_indices("http").map(|(at, _)| &body[at..]);
        assert!(foreign.clone().all(is_namespace), "{path}");
        assert!(!body.contains("innerHTML") && !body.contains("style="), "{path}");
    }
}

#[test]
fn a_process_says_how_its_zones_are() {
    let mut world = World::new();
    assert!(world.get("/livez").ends_with("live\n"));
    assert!(world.get("/readyz").ends_with("ready\n"));
    world.served.zones[1] = ZoneState::Loading;
    assert_eq!(world.status("/readyz"), "503");
    world.served.halt(1, "why".to_owned());
    assert_eq!(world.status("/readyz"), "200", "the others are served");
    let mut lag = Lag::none(Instant::now() + Duration::from_secs(3_600));
    lag.folded(1_250, Instant::now());
    world.served.zones[0] = ZoneState::Live { owner_epoch: 3, lag };
    let metrics = world.get("/metrics");
    for line in [
        "huntd_view_live{zone=\"1\"} 0\n",
        "huntd_view_halted{zone=\"1\"} 1\n",
        "huntd_view_players{zone=\"0\"} 4\n",
        "huntd_view_lag_seconds{zone=\"0\"} 1.25\n",
        "huntd_view_updates_total{zone=\"0\"} 4\n",
    ] {
        assert!(metrics.contains(line), "{metrics}");
    }
    world.served.zones.fill(ZoneState::Halted("why".to_owned()));
    assert_eq!(world.status("/readyz"), "503", "nobody is served");
}

fn text_of(exchange: &Exchange) -> String {
    String::from_utf8(exchange.unsent().to_vec()).unwrap()
}

#[test]
fn requests_take_no_allocation_once_an_exchange_has_its_buffers() {
    let world = World::new();
    let mut exchange = Exchange::default();
    let mut ask = |path: &str| {
        exchange.receive(b"GET ");
        exchange.receive(path.as_bytes());
        exchange.receive(b" HTTP/1.1\r\nHost: localhost\r\nUser-Agent: game/1.0\r\n\r\n");
        let need = exchange.advance(&world.served, &world.gate, 0);
        assert!(need == ExchangeNeed::Bytes && exchange.unsent().starts_with(b"HTTP/1.1 200"));
        let answer = exchange.take_unsent();
        exchange.sent(answer);
        exchange.shrink();
        assert!(exchange.is_idle());
    };
    let paths = ["/v1/players/1/poll", "/v1/players/1", "/v1/boards/world", "/v1/boards/0?from=2"];
    paths.into_iter().for_each(&mut ask);
    allocator::count_serving_thread();
    let before = allocator::serving_allocations();
    for _ in 0..1_000 {
        paths.into_iter().for_each(&mut ask);
    }
    assert_eq!(allocator::serving_allocations() - before, 0);
}
