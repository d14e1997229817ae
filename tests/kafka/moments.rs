//! `huntd replay --until` and `huntd serve --at`: a zone as it was at a moment.

use crate::players::{events, produce};
use crate::snapshots::{settings, start, wait_for_snapshots};
use crate::verbs::huntd;
use serde_json::Value;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;
use support::accounts::{self, Follower};
use support::daemon::Topics;
use support::kafka;
use support::scrape::get;
use support::serving::Serving;

const ZONES: i32 = 2;
/// How long a stream is read that sends nothing more.
const QUIET: Duration = Duration::from_secs(1);

const BOARD: &str = "/v1/boards/0?count=100";

/// What `replay` prints as JSON.
fn replayed(config: &str, more: &[&str]) -> Value {
    let said = huntd(&[&["replay", "--config", config, "--json"], more].concat());
    assert_eq!(said.code, 0, "{}", said.errors);
    serde_json::from_str(&said.output).expect("one object")
}

#[test]
fn a_zone_is_shown_as_it_was_after_a_record_whatever_came_later() {
    let topics = Topics::create(kafka::shared(), "moments", ZONES);
    let folder = tempfile::tempdir().expect("a temporary folder");
    produce(kafka::shared(), &topics, &events(ZONES, 10, 1..=5));
    // Without ticks, so that the test knows the offsets.
    let mut settings = settings(folder.path());
    settings.push(("input", "tick_every_ms = 0".to_owned()));
    let mut daemon = start(&topics, &settings, &[]);
    let mut follower = Follower::new(kafka::shared(), &topics);
    accounts::wait_until_covered(kafka::shared(), &topics, &mut follower, &mut daemon);
    let ends = kafka::shared().client().ends(&topics.input, ZONES);
    let config = daemon.config();
    let whole = &replayed(&config, &["--topic", &topics.input])["partitions"]["0"];
    let board = Serving::start(&daemon).body_at(&ends, BOARD);
    wait_for_snapshots(&mut daemon, ZONES as usize);
    produce(kafka::shared(), &topics, &events(ZONES, 10, 6..=9));
    accounts::wait_until_covered(kafka::shared(), &topics, &mut follower, &mut daemon);

    let place = format!("0:{}", ends[0] - 1);
    let until = replayed(&config, &["--until", &place]);
    let from_start = ["--set", "snapshot.directory=", "--until", &place];
    let without_snapshots = replayed(&config, &from_start);
    for replayed in [&until, &without_snapshots] {
        let zone = &replayed["partitions"]["0"];
        assert_eq!((&zone["digest"], &zone["chain"]), (&whole["digest"], &whole["chain"]));
    }
    assert_eq!(until["state"]["source"], "a snapshot on disk");
    assert_eq!(without_snapshots["state"]["source"], "the start of the input");
    assert_eq!(&without_snapshots["partitions"]["0"], whole);
    let beyond = huntd(&["replay", "--config", &config, "--until", "0:9999"]);
    assert!(beyond.errors.contains("has no record at offset 9999"), "{}", beyond.errors);

    let showing = Serving::start_showing(&daemon, &place);
    assert_eq!(showing.body_at(&ends[..1], BOARD), board);
    let zones: Value = serde_json::from_str(&get(showing.address(), "/v1/zones").1).expect("JSON");
    let as_of = &zones["zones"][0]["as_of"];
    assert_eq!(as_of["offset"], ends[0] - 1);
    assert!(as_of["time_ms"].as_u64() > Some(1_767_225_600_000), "{as_of}");
    assert_streams_end_at(&showing, ends[0]);
    assert_eq!(get(showing.address(), "/readyz").0, 200);
    let (status, other) = get(showing.address(), "/v1/boards/1?count=100");
    assert!(status == 503 && other.contains("another zone alone"), "{status} {other}");
    let event = r#"{"player_id":3,"type":"rotate","heading":77}"#;
    assert!(showing.post("/v1/events", event).0.starts_with(['4', '5']), "it takes no commands");
    daemon.kill9();
}

/// The streams of a moment say where it is, to a client that resumes, too, and send nothing after
/// that.
fn assert_streams_end_at(showing: &Serving, next_offset: i64) {
    for (resumed, begins) in [("", "at"), ("&last_event_id=0:1", "reset")] {
        let mut stream = TcpStream::connect(showing.address()).expect("it listens");
        let path = format!("/v1/stream?zone=0{resumed}");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("it reads");
        stream.set_read_timeout(Some(QUIET)).expect("it is not 0");
        let mut bytes = Vec::new();
        let ended = stream.read_to_end(&mut bytes).expect_err("a stream does not end");
        assert_eq!(ended.kind(), ErrorKind::WouldBlock, "{ended}");
        let text = String::from_utf8_lossy(&bytes);
        let events: Vec<&str> =
            text.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
        assert_eq!(events, [begins], "{text}");
        assert!(text.contains(&format!("\"offset\":{next_offset}")), "{text}");
    }
}
