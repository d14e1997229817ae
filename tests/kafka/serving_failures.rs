//! `huntd serve` where processes are killed and connections are cut: commands take effect once and
//! are answered as the replay decides, streams have every update once.

use crate::players;
use crate::snapshots::{settings, start};
use huntd::decoder::{Decoder, RecordPosition};
use huntd::hunt::event::{Action, EVENTS};
use huntd::hunt::rules::rulebook::Rulebook;
use huntd::hunt::rules_file::built_in;
use huntd::hunt::{Outcome, Shard};
use huntd::kit::update::Updates;
use huntd::testing::random::Random;
use rdkafka::message::Message;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use support::PATIENCE;
use support::daemon::{Huntd, Topics};
use support::kafka::{self, Cluster, Options};
use support::scrape::get;
use support::serving::Serving;

const ZONES: i32 = 2;

/// Players who post, each by its own thread.
const POSTERS: u64 = 6;

/// Events that each of them posts. Meanwhile there is a kill after every so many answers.
const POSTS: u64 = 150;
const ANSWERS_PER_KILL: u64 = 120;

/// Updates that a stream is followed for, and how often it is cut meanwhile at least.
const STREAMED: u64 = 6_000;
const CUTS: usize = 30;

/// Time in which a client reads an answer, or goes on with another process.
const ANSWER_WAIT: Duration = Duration::from_secs(5);

fn run(topics: &Topics, folder: &Path) -> Huntd {
    let mut huntd = start(topics, &settings(folder), &[]);
    huntd.wait_for_address();
    huntd
}

/// What a player's event was answered with: its status, its offset, what became of it.
struct Answer {
    status: u16,
    offset: i64,
    outcome: String,
}

/// Posts one event. `None`: no whole answer came.
fn post(address: &str, body: &str, wait_ms: u64) -> Option<(u16, serde_json::Value)> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(ANSWER_WAIT)).ok()?;
    let head = format!(
        "POST /v1/events?wait_ms={wait_ms}&zone=1 HTTP/1.1\r\nHost: localhost\r\n\
        Content-Type: application/json\r\n"
    );
    let length = body.len();
    write!(stream, "{head}Connection: close\r\nContent-Length: {length}\r\n\r\n{body}").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, serde_json::from_str(body).ok()?))
}

/// Posts one player's events, each until it is answered with what became of it or is in the log.
fn play(address: &str, player: u64, answered: &AtomicU64) -> BTreeMap<u64, Answer> {
    let mut random = Random::new(player);
    let mut answers = BTreeMap::new();
    for seq in 1..=POSTS {
        let action = match (seq, random.below(4)) {
            (1, _) => format!(r#""type":"join","x":{},"y":2000"#, 1_000 * player),
            (_, 0) => r#""type":"loot""#.to_owned(),
            (_, 1) => format!(r#""type":"move","x":{},"y":2000"#, 1_000 * player + seq % 50),
            _ => format!(r#""type":"rotate","heading":{}"#, random.below(36_000)),
        };
        let ts_us = 1_767_225_600_000_000 + 100_000 * seq;
        let body = format!(r#"{{"player_id":{player},"seq":{seq},"ts_us":{ts_us},{action}}}"#);
        let wait_ms = if random.below(8) == 0 { 1 } else { 2_000 };
        let end = Instant::now() + PATIENCE;
        let (status, text) = loop {
            match post(address, &body, wait_ms) {
                Some((status @ (200 | 202), text)) => break (status, text),
                // No process answers, or the outcome is not known: the event is posted again with
                // the same `seq`.
                None | Some((503 | 504, _)) => std::thread::sleep(Duration::from_millis(20)),
                Some((status, text)) => panic!("{body}: {status} {text}"),
            }
            assert!(Instant::now() < end, "{body} is never answered");
        };
        let offset = text["offset"].as_i64().expect("it is in the log");
        let outcome = text["outcome"].as_str().expect("an outcome has a name").to_owned();
        answers.insert(seq, Answer { status, offset, outcome });
        answered.fetch_add(1, Ordering::Relaxed);
    }
    answers
}

/// What became of each record of a zone, applied once more: its player, its `seq`, its outcome.
fn replay(topics: &Topics, zone: u16) -> BTreeMap<i64, (u64, u64, &'static str)> {
    let mut shard = Shard::new(zone, &Rulebook::of(built_in()));
    let (mut decoder, mut updates) = (Decoder::new(&EVENTS), Updates::new());
    let mut outcomes = BTreeMap::new();
    for record in kafka::shared().client().consume(&topics.input, zone.into()) {
        let time_ms = record.timestamp().to_millis().expect("a record has a time");
        let origin = RecordPosition { offset: record.offset(), time_ms };
        let event = decoder.decode::<Action>(origin, record.payload()).expect("all are events");
        updates.clear();
        let outcome = match shard.apply(&event, &mut updates) {
            Outcome::Applied => "applied",
            Outcome::Refused(_) => "refused",
            Outcome::NoOp => "no_op",
            Outcome::RulesMissing { .. } => unreachable!("nobody changes the rules"),
        };
        outcomes.insert(record.offset(), (event.player_id, event.seq, outcome));
    }
    outcomes
}

#[test]
fn commands_take_effect_once_and_are_answered_as_the_replay_decides_whichever_process_is_killed() {
    let topics = Topics::create(kafka::shared(), "killed-commands", ZONES);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut daemon = Some(run(&topics, folder.path()));
    let mut serving = daemon.as_ref().map(Serving::start);
    let address = serving.as_ref().expect("it was started").address().to_owned();
    let answered = AtomicU64::new(0);
    let answers = std::thread::scope(|scope| {
        let players = 1..=POSTERS;
        let (address, answered) = (&address, &answered);
        let play = |player| (player, scope.spawn(move || play(address, player, answered)));
        let posting: Vec<_> = players.map(play).collect();
        let mut kills = 0;
        while posting.iter().any(|(_, thread)| !thread.is_finished()) {
            std::thread::sleep(Duration::from_millis(10));
            if answered.load(Ordering::Relaxed) < (kills + 1) * ANSWERS_PER_KILL {
                continue;
            }
            kills += 1;
            if kills % 2 == 0 {
                daemon.take().map(Huntd::kill9);
                daemon = Some(run(&topics, folder.path()));
            } else {
                drop(serving.take());
                serving = daemon.as_ref().map(|huntd| Serving::start_at(huntd, address, &[]));
            }
        }
        assert!(kills >= 6, "{kills} kills");
        let answers = posting.into_iter().map(|(player, thread)| (player, thread.join().unwrap()));
        answers.collect::<BTreeMap<_, _>>()
    });
    let ends = kafka::shared().client().ends(&topics.input, ZONES);
    serving.expect("it was started again").body_at(&ends, "/v1/zones");
    let outcomes = replay(&topics, 1);
    let mut decided = BTreeMap::<(u64, u64), usize>::new();
    for (player, seq, outcome) in outcomes.values() {
        *decided.entry((*player, *seq)).or_default() += usize::from(*outcome != "no_op");
    }
    let mut later = 0;
    for (player, answers) in &answers {
        for (seq, Answer { status, offset, outcome }) in answers {
            let what = format!("event {seq} of player {player} at {offset}");
            let replayed = outcomes.get(offset).expect("what is answered is in the log");
            assert_eq!((replayed.0, replayed.1), (*player, *seq), "{what}");
            match status {
                200 => assert_eq!(outcome, replayed.2, "{what}"),
                _ => later += 1,
            }
            assert_eq!(decided[&(*player, *seq)], 1, "{what} takes effect once");
        }
    }
    assert!(later > 0, "none was answered before it was decided");
    assert_eq!(decided.len() as u64, POSTERS * POSTS);
}

/// A client that follows a zone's updates by streams that are cut.
#[derive(Default)]
struct Listener {
    /// The events that came whole: their ids, and their data.
    updates: Vec<(String, String)>,
    resets: usize,
    cuts: usize,
}

impl Listener {
    /// Reads a stream from where the last one ended, until this many bytes have come.
    fn listen(&mut self, address: &str, zone: u16, bytes_max: usize) {
        let mut stream = TcpStream::connect(address).expect("it listens");
        stream.set_read_timeout(Some(ANSWER_WAIT)).expect("a socket takes a timeout");
        let resumed = self.updates.last().map(|(id, _)| format!("Last-Event-ID: {id}\r\n"));
        let resumed = resumed.unwrap_or_default();
        let head =
            format!("GET /v1/stream?zone={zone} HTTP/1.1\r\nHost: localhost\r\n{resumed}\r\n");
        stream.write_all(head.as_bytes()).expect("it reads");
        let mut text = vec![0; bytes_max];
        let mut read = 0;
        while read < bytes_max {
            match stream.read(&mut text[read..]) {
                Ok(0) | Err(_) => break,
                Ok(count) => read += count,
            }
        }
        self.cuts += 1;
        let text = String::from_utf8_lossy(&text[..read]);
        let events = text.split_once("\r\n\r\n").map_or("", |(_, events)| events);
        // What comes after the last empty line is half an event.
        let whole = events.rsplit_once("\n\n").map_or("", |(whole, _)| whole);
        for event in whole.split("\n\n") {
            let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name));
            match field("event: ") {
                Some("update") => {
                    let field = |name| field(name).expect("an update has it").to_owned();
                    self.updates.push((field("id: "), field("data: ")));
                }
                Some("reset") => self.resets += 1,
                _ => {}
            }
        }
    }
}

#[test]
fn streams_that_are_cut_anywhere_and_resumed_at_another_process_have_every_update_once() {
    let topics = Topics::create(kafka::shared(), "cut-streams", 1);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let huntd = run(&topics, folder.path());
    let processes = [(); 3].map(|()| Serving::start(&huntd));
    for serving in &processes {
        serving.body_at(&[0], "/v1/zones");
    }
    let load = players::Load::start(kafka::shared(), &topics);
    let seed = u64::from(std::process::id());
    println!("seed {seed}");
    let (mut random, mut listener) = (Random::new(seed), Listener::default());
    let end = Instant::now() + PATIENCE;
    while (listener.updates.len() as u64) < STREAMED || listener.cuts < CUTS {
        let process = &processes[random.below(2) as usize];
        let bytes_max = 200 + random.below(60_000) as usize;
        listener.listen(process.address(), 0, bytes_max);
        assert!(Instant::now() < end, "{} updates came", listener.updates.len());
    }
    load.finish();
    assert_eq!(listener.resets, 0);
    let number = |id: &str| id.strip_prefix("0:").and_then(|number| number.parse::<u64>().ok());
    let numbers = listener.updates.iter().map(|(id, _)| number(id).expect("an id is zone:update"));
    let numbers: Vec<u64> = numbers.collect();
    assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "{numbers:?}");
    // A third process says the same in one piece.
    let ends = kafka::shared().client().ends(&topics.input, 1);
    processes[2].body_at(&ends, "/v1/zones");
    let mut whole = Listener::default();
    whole.updates.push(listener.updates[0].clone());
    let bytes: usize = listener.updates.iter().map(|(id, data)| id.len() + data.len() + 40).sum();
    whole.listen(processes[2].address(), 0, bytes);
    let both = whole.updates.len().min(listener.updates.len());
    assert!(both > STREAMED as usize / 2);
    assert_eq!(whole.updates[..both], listener.updates[..both]);
}

/// How old the oldest of a process's zones is, as `/v1/zones` and the metrics have it.
fn oldest_ms(serving: &Serving) -> u64 {
    let (_, body) = get(serving.address(), "/v1/zones");
    let zones: serde_json::Value = serde_json::from_str(&body).expect("it is JSON");
    let lags = zones["zones"].as_array().expect("there are zones").iter();
    lags.map(|zone| zone["lag_ms"].as_u64().expect("it is live")).max().expect("there are some")
}

#[test]
fn a_view_whose_brokers_are_frozen_says_how_old_it_is_until_they_go_on() {
    let mut cluster = Cluster::start(1, &Options::for_tests());
    let topics = Topics::create(&cluster, "frozen-brokers", ZONES);
    let mut huntd = Huntd::start(&cluster, &topics, &[]);
    huntd.wait_for_address();
    let serving = Serving::start(&huntd);
    serving.wait_for("loaded: 2 of 2");
    let wait_until = |what: &str, is_true: &dyn Fn(u64) -> bool| {
        let end = Instant::now() + PATIENCE;
        while !is_true(oldest_ms(&serving)) {
            assert!(Instant::now() < end, "{what}: {} ms\n{}", oldest_ms(&serving), serving.log());
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    // Longer than any proof counts without another one, and nothing is published meanwhile.
    std::thread::sleep(Duration::from_secs(6));
    wait_until("a zone without news is of now", &|lag_ms| lag_ms < 3_000);
    cluster.broker_mut(0).freeze();
    wait_until("it grows old", &|lag_ms| lag_ms > 6_000);
    let (_, metrics) = get(serving.address(), "/metrics");
    for zone in 0..ZONES {
        let name = format!("huntd_view_lag_seconds{{zone=\"{zone}\"}} ");
        let lag = metrics.lines().find_map(|line| line.strip_prefix(&name)).expect("it is there");
        assert!(lag.parse::<f64>().expect("it is a number") > 5.0, "{metrics}");
    }
    serving.wait_for("waiting for the brokers to say where");
    huntd.wait_until("the daemon says what it waits for", |huntd| {
        huntd.log().contains("s there has not been a")
    });
    cluster.broker_mut(0).thaw();
    wait_until("it is of now again", &|lag_ms| lag_ms < 3_000);
}

#[test]
fn a_zone_whose_daemon_has_stopped_is_stale_until_one_plays_it_again() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let topics = Topics::create(kafka::shared(), "stale", 1);
    let mut settings = settings(folder.path());
    settings.push(("input", "tick_every_ms = 1000".to_owned()));
    let run = || {
        let mut huntd = start(&topics, &settings, &[]);
        huntd.wait_for_address();
        huntd
    };
    let huntd = run();
    let serving = Serving::start(&huntd);
    let shows = |state: &str| {
        let end = Instant::now() + PATIENCE;
        loop {
            let (_, zones) = get(serving.address(), "/v1/zones");
            if zones.contains(&format!("\"state\":\"{state}\"")) {
                return;
            }
            assert!(Instant::now() < end, "not {state}: {zones}");
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    shows("live");
    assert!(huntd.stop().status.success());
    shows("stale");
    let (code, text) = get(serving.address(), "/readyz");
    assert!(code == 200 && text.contains("zone 0 is stale"), "{code} {text}");
    let (_, board) = get(serving.address(), "/v1/boards/0");
    assert!(board.contains("\"stale_ms\":"), "{board}");
    let huntd = run();
    shows("live");
    let (_, board) = get(serving.address(), "/v1/boards/0");
    assert!(!board.contains("stale_ms"), "{board}");
    assert!(huntd.stop().status.success());
}
