//! `huntd serve` beside daemons on a real broker.

use crate::players::{Load, Pace, events, produce};
use crate::snapshots::{settings, start, wait_for_snapshots};
use huntd::decoder::{Decoder, RecordPosition};
use huntd::hunt::Shard;
use huntd::hunt::event::{Action, EVENTS};
use huntd::hunt::frames::encode;
use huntd::hunt::rules::rulebook::Rulebook;
use huntd::hunt::rules_file::built_in;
use huntd::kit::update::Updates;
use huntd::output::frame::Format;
use huntd::serve::answers::{Served, ZoneState};
use huntd::serve::exchange::Exchange;
use huntd::serve::gate::Gate;
use huntd::serve::lag::Lag;
use huntd::testing::frame_maker::FrameMaker;
use huntd::view::game::ZoneImage;
use huntd::view::zone::{ZonePosition, ZoneView};
use rdkafka::message::Message;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::PATIENCE;
use support::daemon::{Huntd, Topics};
use support::kafka;
use support::scrape::{Page, get, tasks};
use support::serving::Serving;

const ZONES: i32 = 2;
const PLAYERS: u64 = 20;

/// What should be served: the input applied once more, without Kafka's output.
fn expected(topics: &Topics) -> Served {
    let rulebook = Rulebook::of(built_in());
    let mut served = Served::new(&rulebook, ZONES as usize, Duration::from_secs(2));
    for zone in 0..ZONES as u16 {
        let mut shard = Shard::new(zone, &rulebook);
        let (mut decoder, mut position) = (Decoder::new(&EVENTS), ZonePosition::default());
        for record in kafka::shared().client().consume(&topics.input, zone.into()) {
            let time_ms = record.timestamp().to_millis().expect("a record has a time");
            let origin = RecordPosition { offset: record.offset(), time_ms };
            position.next_offset = record.offset() + 1;
            let Ok(event) = decoder.decode::<Action>(origin, record.payload()) else { continue };
            let mut updates = Updates::new();
            shard.apply(&event, &mut updates);
            position.update += updates.len() as u64;
        }
        served.view.put(ZoneView::of_engine(
            ZoneImage::of(&shard),
            Arc::new(rulebook.clone()),
            position,
        ));
        served.zones[usize::from(zone)] =
            ZoneState::Live { owner_epoch: 1, lag: Lag::none(Instant::now()) };
    }
    served
}

fn body_of(served: &Served, path: &str) -> String {
    let mut exchange = Exchange::default();
    exchange.receive(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes());
    exchange.advance(served, &Gate::open(), 0);
    let answer = String::from_utf8(exchange.unsent().to_vec()).expect("an answer is text");
    answer.split_once("\r\n\r\n").expect("an answer has a head").1.to_owned()
}

fn assert_serves_the_replay(serving: &Serving, topics: &Topics) {
    let ends = kafka::shared().client().ends(&topics.input, ZONES);
    let expected = expected(topics);
    let cards = (1..=PLAYERS).map(|player| format!("/v1/players/{player}/poll"));
    let others = ["/v1/zones/0/tiles", "/v1/zones/1/hunts", "/v1/boards/0?count=100"];
    let others = others.into_iter().chain(["/v1/boards/world?count=100"]).map(str::to_owned);
    for path in cards.chain(others) {
        assert_eq!(serving.body_at(&ends, &path), body_of(&expected, &path), "{path}");
    }
}

#[test]
fn what_is_served_is_the_replay_from_the_log_s_start_and_from_snapshots() {
    let topics = Topics::create(kafka::shared(), "serving", ZONES);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut huntd = start(&topics, &settings(folder.path()), &[]);
    huntd.wait_for_address();
    let serving = Serving::start(&huntd);
    produce(kafka::shared(), &topics, &events(ZONES, PLAYERS, 1..=100));
    assert_serves_the_replay(&serving, &topics);
    wait_for_snapshots(&mut huntd, ZONES as usize);
    produce(kafka::shared(), &topics, &events(ZONES, PLAYERS, 101..=200));
    let later = Serving::start(&huntd);
    assert!(later.body_at(&[0, 0], "/v1/openapi.json").contains("openapi"));
    for serving in [&serving, &later] {
        assert_serves_the_replay(serving, &topics);
    }
    assert!(later.log().contains("began with a snapshot"), "{}", later.log());
}

#[test]
fn a_zone_is_live_while_its_game_goes_on_and_its_log_never_ends() {
    let topics = Topics::create(kafka::shared(), "no_end", 1);
    let mut huntd = Huntd::start(kafka::shared(), &topics, &[]);
    huntd.wait_for_address();
    let load = Load::start_at(Pace::DENSE, kafka::shared(), &topics);
    let serving = Serving::start(&huntd);
    // A server that waits for a moment without a frame waits for ever.
    let until = Instant::now() + PATIENCE;
    let mut ready = get(serving.address(), "/readyz");
    while ready.0 != 200 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
        ready = get(serving.address(), "/readyz");
    }
    load.finish();
    assert_eq!(ready.0, 200, "{}", ready.1);
    serving.wait_for("loaded: 1 of 1 zones are served");
}

#[test]
fn a_zone_whose_log_is_cut_is_halted_and_the_others_go_on() {
    let topics = Topics::create(kafka::shared(), "cut_log", ZONES);
    let mut huntd = Huntd::start(kafka::shared(), &topics, &[]);
    huntd.wait_for_address();
    let client = kafka::shared().client();
    let play = |numbers| {
        let before = client.ends(&topics.output, ZONES)[0];
        produce(kafka::shared(), &topics, &events(ZONES, PLAYERS, numbers));
        let until = Instant::now() + PATIENCE;
        while client.ends(&topics.output, ZONES)[0] == before {
            assert!(Instant::now() < until, "nothing is published");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    play(1..=50);
    let serving = Serving::start(&huntd);
    serving.body_at(&client.ends(&topics.input, ZONES), "/v1/zones");
    // The first frame answers the fetch that is under way, those after it are not asked for.
    serving.freeze();
    play(51..=60);
    play(61..=100);
    client.delete_records(&topics.output, 0, client.ends(&topics.output, ZONES)[0]);
    serving.thaw();
    serving.wait_for("its log was cut before it was read");
    play(101..=150);
    let later = Serving::start(&huntd);
    later.wait_for("and there is no snapshot to begin with");
    later.wait_for(&format!("loaded: {} of {ZONES} zones are served", ZONES - 1));
    let end = client.ends(&topics.input, ZONES)[1];
    for serving in [&serving, &later] {
        let until = Instant::now() + PATIENCE;
        while get(serving.address(), &format!("/v1/zones/1/hunts?at=1:{end}")).0 != 200 {
            assert!(Instant::now() < until, "zone 1 does not go on:\n{}", serving.log());
        }
        assert_eq!(get(serving.address(), "/v1/zones/0/hunts").0, 503);
    }
}

#[test]
fn a_halted_zone_leaves_the_world_and_who_joins_a_living_zone_is_found_there() {
    let topics = Topics::create(kafka::shared(), "halted-zone", ZONES);
    let mut huntd = Huntd::start(kafka::shared(), &topics, &[]);
    huntd.wait_for_address();
    let serving = Serving::start(&huntd);
    serving.body_at(&[0, 0], "/v1/zones");
    let apply = |path: &str, action: &str, player: u64, seq: u64| {
        let event = format!(r#"{{"type":{action},"player_id":{player},"seq":{seq}}}"#);
        let (status, body) = serving.post(&format!("/v1/events?{path}wait_ms=10000"), &event);
        assert!(status == "200" && body.contains("\"outcome\":\"applied\""), "{status} {body}");
    };
    let join = r#""join","x":1000,"y":2000"#;
    apply("zone=0&", join, 7, 1);
    apply("zone=1&", join, 8, 1);
    assert_eq!(BTreeSet::from_iter(serving.players(10)), ["7", "8"].map(str::to_owned).into());
    // The kind of its update is unknown.
    let (frame, mut bytes) = (FrameMaker::new(0).frame(1), Vec::new());
    encode(Format::Binary, &frame.header, frame.updates.as_slice(), &mut bytes);
    bytes[64 + 16] = u8::MAX;
    kafka::shared().client().produce(&topics.output, [(0, &b""[..], &bytes[..])]);
    serving.wait_for("cannot be read: ");
    let until = Instant::now() + PATIENCE;
    while serving.players(10) != ["8"] {
        assert!(Instant::now() < until, "{:?}", serving.players(10));
    }
    let (code, zones) = get(serving.address(), "/v1/zones");
    assert!(code == 200 && zones.contains("\"state\":\"halted\""), "{zones}");
    assert_eq!(get(serving.address(), "/v1/boards/0").0, 503);

    apply("zone=1&", join, 7, 2);
    let (code, card) = get(serving.address(), "/v1/players/7");
    assert!(code == 200 && card.contains("\"zone\":1"), "{code} {card}");
    apply("", r#""rotate","heading":9000"#, 7, 3);
    let (_, card) = get(serving.address(), "/v1/players/7");
    assert!(card.contains("\"heading\":9000"), "{card}");
    assert_eq!(BTreeSet::from_iter(serving.players(10)), ["7", "8"].map(str::to_owned).into());
}

#[test]
fn commands_are_answered_with_what_the_daemon_published_and_a_repeated_seq_takes_effect_once() {
    let topics = Topics::create(kafka::shared(), "commands", ZONES);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut huntd = start(&topics, &settings(folder.path()), &[]);
    huntd.wait_for_address();
    let serving = Serving::start(&huntd);
    serving.body_at(&[0, 0], "/v1/zones");
    let join = r#"{"type":"join","player_id":7,"x":1000,"y":2000}"#;
    let (status, body) = serving.post("/v1/events?zone=1&wait_ms=10000", join);
    assert_eq!(status, "200", "{body}");
    assert!(body.contains("\"outcome\":\"applied\"") && body.contains("joined"), "{body}");
    // From now on the view knows the zone.
    let turn = r#"{"type":"rotate","player_id":7,"heading":9000,"seq":9000000000000000}"#;
    for outcome in ["applied", "no_op"] {
        let (status, body) = serving.post("/v1/events?wait_ms=10000", turn);
        assert_eq!(status, "200", "{body}");
        assert!(body.contains(&format!("\"outcome\":\"{outcome}\"")), "{body}");
    }
    let list = r#"[{"type":"loot","player_id":7,"seq":9000000000000001},
        {"type":"rotate","player_id":7,"heading":1,"seq":9000000000000002}]"#;
    let (_, body) = serving.post("/v1/events?wait_ms=10000", list);
    assert!(body.contains("nothing_in_reach") && body.contains("\"applied\""), "{body}");
    // While no daemon runs, a command is accepted; it happens once one runs again.
    let config = huntd.kill9();
    drop(config);
    let late = r#"{"type":"rotate","player_id":7,"heading":333,"seq":9000000000000003}"#;
    let (status, body) = serving.post("/v1/events?wait_ms=300", late);
    assert_eq!(status, "202", "{body}");
    // Five posts, the time of each of which is told.
    assert_eq!(Page::of(serving.address()).value("huntd_serve_post_seconds_count"), 5);
    let mut huntd = start(&topics, &settings(folder.path()), &[]);
    huntd.wait_for_address();
    let ends = kafka::shared().client().ends(&topics.input, ZONES);
    let card = serving.body_at(&ends, "/v1/players/7");
    assert!(card.contains("\"heading\":333"), "{card}");
    // A process that starts now knows the same.
    let other = Serving::start(&huntd);
    assert_eq!(other.body_at(&ends, "/v1/players/7"), card);
}

#[test]
fn the_serving_thread_alone_may_call_only_what_it_needs() {
    let topics = Topics::create(kafka::shared(), "confined-serving", ZONES);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut huntd = start(&topics, &settings(folder.path()), &[]);
    huntd.wait_for_address();
    let serving = Serving::start(&huntd);
    // It answers, so it has begun to serve.
    assert_eq!(get(serving.address(), "/livez").0, 200);
    let pid = serving.pid();
    for task in tasks(pid) {
        assert_eq!(task.is_confined, task.id == pid, "{task:?}");
    }
}

/// A secret in base64url: bytes of 11.
pub(crate) const SECRET: &str = "CwsLCwsLCwsLCwsLCwsLCwsLCwsLCwsLCwsLCwsLCws";

/// A token that it has signed as the key `one`: of `a`, which may read until 2100.
pub(crate) const TOKEN: &str = "eyJhbGciOiJIUzI1NiIsImtpZCI6Im9uZSJ9.\
    eyJhdWQiOiJodW50ZCIsImV4cCI6NDEwMjQ0NDgwMCwic3ViIjoiYSIsInNjb3BlIjoicmVhZCJ9.\
    tMbUJva4ePiRDoHfSGVsqOO5--HGBfpEwg6eF5Asb14";

/// The status that a path is answered with for this token.
fn status_for(serving: &Serving, path: &str, token: &str) -> u16 {
    let mut stream = TcpStream::connect(serving.address()).expect("it listens");
    let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
    write!(stream, "{head}Authorization: Bearer {token}\r\n\r\n").expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    answer["HTTP/1.1 ".len()..][..3].parse().expect("a status")
}

#[test]
fn a_process_on_any_address_wants_tokens_and_reads_keys_and_log_level_again_when_asked_to() {
    let topics = Topics::create(kafka::shared(), "tokens", ZONES);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut huntd = start(&topics, &settings(folder.path()), &[]);
    huntd.wait_for_address();
    let file = folder.path().join("keys.json");
    let write = |kid: &str| {
        let key = format!("{{\"kty\":\"oct\",\"kid\":\"{kid}\",\"k\":\"{SECRET}\"}}");
        std::fs::write(&file, format!("{{\"keys\":[{key}]}}")).expect("the file is written");
    };
    write("one");
    let keys = file.to_str().expect("the path is text");
    let serving = Serving::start_at(&huntd, "0.0.0.0:0", &[("HUNTD_SERVE__KEYS", keys)]);
    assert_eq!(status_for(&serving, "/v1/openapi.json", TOKEN), 200);
    assert_eq!(status_for(&serving, "/v1/openapi.json", "abd"), 401);
    std::fs::write(&file, "nonsense").expect("the file is written");
    serving.reload();
    serving.wait_for("not reloaded, old settings kept");
    assert_eq!(status_for(&serving, "/v1/openapi.json", TOKEN), 200);
    write("two");
    let config = std::fs::read_to_string(huntd.config()).expect("it is there");
    let quiet = config.replace("[service]\n", "[service]\nlog_level = \"warn\"\n");
    assert_ne!(config, quiet);
    std::fs::write(huntd.config(), quiet).expect("it is writable");
    serving.reload();
    let end = Instant::now() + PATIENCE;
    while status_for(&serving, "/v1/openapi.json", TOKEN) != 401 {
        assert!(Instant::now() < end, "{}", serving.log());
        std::thread::sleep(Duration::from_millis(20));
    }
    // The log level is in force before the keys are.
    assert!(!serving.log().contains("\"reloaded\""), "{}", serving.log());
}
