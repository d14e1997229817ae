//! The published hunt window: actors play a hunt over HTTP, and one reads the zone's stream.
//! Measured is the time from when a loot was due until the stream told of it, and from the last
//! treasure's loot until every finisher was told.

use crate::open_loop::OpenLoop;
use crate::{Size, ZONES, say, servers, start};
use hdrhistogram::Histogram;
use serde_json::Value;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use support::daemon::{PATIENCE, Topics};
use support::kafka::Cluster;
use support::scrape::get;
use support::serving::Serving;

/// The zone of the hunt.
const ZONE: u16 = 0;

/// Events of one post.
const POSTED_AT_ONCE: usize = 64;

/// Seconds that the hunt's clock runs on after its last treasure is due.
const REST_S: u64 = 60;

/// A treasure, or an actor who stands on it.
#[derive(Clone, Copy)]
struct Place {
    x: i64,
    y: i64,
}

/// Lets so many actors open a treasure each.
pub(crate) fn hunt(size: &Size, cluster: &Cluster) {
    let topics = Topics::create(cluster, "hunt", ZONES);
    // A player who opens one treasure finishes.
    let rules = include_str!("../../config/rules.toml");
    let rules = rules.replace("finish_treasures = 3", "finish_treasures = 1");
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), rules).expect("it is written");
    let files = format!("files = [\"{}\"]", file.path().display());
    let huntd = start(cluster, &topics, &[("rules", files.as_str())]);
    let servings = servers(&huntd, &[0; ZONES as usize]);
    let serving = &servings[0];
    let treasures = lay(serving, size);
    post(
        serving,
        treasures.iter().enumerate().map(|(at, Place { x, y })| {
            format!(r#"{{"type":"join","player_id":{},"x":{x},"y":{y}}}"#, actor(at as u64))
        }),
    );
    let count = treasures.len() as u64;
    let per_s = (count / size.hunt_s).max(1);
    let told = std::thread::scope(|scope| {
        let stream = listen(serving);
        let told = scope.spawn(move || read(stream, count));
        // An actor stays with one server: of two commands that two servers write at the same time,
        // the one that comes second may have the earlier seq, and then has no effect.
        let addresses = [servings[0].address(), servings[1].address()];
        // The other things that actors do.
        scope.spawn(move || {
            let mut turning = OpenLoop::connect(&addresses, count as usize);
            let time = Duration::from_secs(size.hunt_s + 2);
            turning.run(count, time, &|number| command("rotate", number % count, number));
        });
        let mut looting = OpenLoop::connect(&addresses, count as usize);
        let begun = Instant::now();
        looting.run(per_s, Duration::from_secs(count.div_ceil(per_s)), &|number| {
            command("loot", number, number)
        });
        (begun, told.join().expect("the stream is read"))
    });
    report(size, count, per_s, told);
}

fn actor(number: u64) -> u64 {
    1_000_000 + number
}

/// A request with one event of an actor.
fn command(kind: &str, number: u64, heading: u64) -> String {
    let id = actor(number);
    let more =
        if kind == "rotate" { format!(",\"heading\":{}", heading % 36_000) } else { "".into() };
    let body = format!(r#"{{"type":"{kind}","player_id":{id}{more}}}"#);
    let head = "POST /v1/events?zone=0&wait_ms=10000 HTTP/1.1\r\nHost: h\r\nContent-Length:";
    format!("{head} {}\r\n\r\n{body}", body.len())
}

/// Posts events, some at once.
fn post(serving: &Serving, events: impl Iterator<Item = String>) {
    let events: Vec<String> = events.collect();
    for some in events.chunks(POSTED_AT_ONCE) {
        let path = format!("/v1/events?zone={ZONE}&wait_ms=10000");
        let (status, body) = serving.post(&path, &format!("[{}]", some.join(",")));
        assert_eq!(status, "200", "{body}");
    }
}

/// Starts a hunt, and waits until its treasures lie there.
fn lay(serving: &Serving, size: &Size) -> Vec<Place> {
    let treasures = size.actors;
    let duration = format!("\"duration_ms\":{}", (size.hunt_s + REST_S) * 1_000);
    post(
        serving,
        std::iter::once(format!(
            r#"{{"type":"hunt_start","hunt":1,"seed":7,"treasures":{treasures},{duration}}}"#
        )),
    );
    let begun = Instant::now();
    for first in 1.. {
        // Each event lays some treasures.
        post(
            serving,
            (0..POSTED_AT_ONCE as u64).map(|at| {
                let id = first * POSTED_AT_ONCE as u64 + at;
                format!(r#"{{"type":"join","player_id":{id},"x":{},"y":{}}}"#, 50 + id * 300, 50)
            }),
        );
        let (_, body) = get(serving.address(), &format!("/v1/zones/{ZONE}/hunts"));
        let hunts: Value = serde_json::from_str(&body).expect("it is JSON");
        if hunts["running"][0]["laid"] == hunts["running"][0]["treasures"] {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{body}");
    }
    let (_, body) = get(serving.address(), &format!("/v1/zones/{ZONE}/tiles"));
    let tiles: Value = serde_json::from_str(&body).expect("it is JSON");
    let number = |row: &Value, at: usize| row[at].as_i64().expect("a number");
    let rows = tiles["treasures"].as_array().expect("a list");
    rows.iter().map(|row| Place { x: number(row, 2), y: number(row, 3) }).collect()
}

/// Begins to read the zone's stream.
fn listen(serving: &Serving) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(serving.address()).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket takes the option");
    write!(stream, "GET /v1/stream?zone={ZONE} HTTP/1.1\r\nHost: h\r\n\r\n").expect("it reads");
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    while !line.starts_with("event: at") {
        line.clear();
        stream.read_line(&mut line).expect("a stream begins with its position");
    }
    stream
}

/// What a stream told, and when.
struct Told {
    /// By actor.
    looted: HashMap<u64, Instant>,
    /// When the last finisher was told.
    finished: Instant,
}

/// Reads until all who opened a treasure are told as finishers.
fn read(stream: BufReader<TcpStream>, count: u64) -> Told {
    let mut told = Told { looted: HashMap::new(), finished: Instant::now() };
    let (mut finished, mut finishers) = (0, u64::MAX);
    for line in stream.lines() {
        let line = line.expect("the stream goes on");
        let Some(data) = line.strip_prefix("data: ") else { continue };
        let updates: Value = serde_json::from_str(data).expect("it is JSON");
        let update = if updates.is_array() { &updates[0] } else { &updates };
        let id = || update["player_id"].as_str().and_then(|id| id.parse().ok());
        match update["kind"].as_str() {
            Some("looted") => {
                told.looted.insert(id().expect("a player"), Instant::now());
            }
            Some("hunt_ended") => finishers = update["finishers"].as_u64().expect("a number"),
            Some("finished") => finished += 1,
            _ => {}
        }
        if finished == finishers.min(count) {
            break;
        }
    }
    told.finished = Instant::now();
    told
}

fn report(size: &Size, count: u64, per_s: u64, (begun, told): (Instant, Told)) {
    let mut latency_us = Histogram::<u64>::new_with_bounds(1, 60_000_000, 3).expect("fine bounds");
    let due = |number: u64| begun + Duration::from_nanos(number * 1_000_000_000 / per_s);
    for (id, at) in &told.looted {
        let late = at.saturating_duration_since(due(id - actor(0)));
        latency_us.saturating_record(1 + late.as_micros() as u64);
    }
    let ms = |us: u64| us as f64 / 1e3;
    let quantile = |at: f64| ms(latency_us.value_at_quantile(at));
    say(&format!(
        "hunt: {count} actors in {} s, {} treasures opened; from a loot's due time to `looted` on \
         the stream: p50 {:.2}, p95 {:.2}, p99 {:.2}, most {:.2} ms; from the last loot's to the \
         last `finished`: {:.1} ms",
        size.hunt_s,
        latency_us.len(),
        quantile(0.5),
        quantile(0.95),
        quantile(0.99),
        ms(latency_us.max()),
        told.finished.saturating_duration_since(due(count - 1)).as_secs_f64() * 1e3,
    ));
}
