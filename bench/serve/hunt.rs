//! The published hunt window: actors play a hunt over HTTP, and one reads the zone's stream.
//! Measured is the time from when a loot was due until the stream told of it, and from when the
//! loot of the last treasure was, which ends the hunt, until each finisher was told.
//!
//! The engine publishes the finishers of a hunt a few at a time, the first of them with the loot
//! itself and the others with the zone's next events. So there is one hunt of all actors, and the
//! same number of actors in hunts of a second each.

use crate::open_loop::OpenLoop;
use crate::{Size, ZONES, say, servers, start};
use hdrhistogram::Histogram;
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support::PATIENCE;
use support::daemon::Topics;
use support::kafka::Cluster;
use support::scrape::get;
use support::serving::Serving;

/// The zone of the hunts.
const ZONE: u16 = 0;

/// Events of one post.
const POSTED_AT_ONCE: usize = 64;

/// Seconds that a hunt's clock runs on after its last treasure is due.
const REST_S: u64 = 60;

/// A treasure, or an actor who stands on it.
#[derive(Clone, Copy)]
struct Place {
    x: i64,
    y: i64,
}

/// A hunt whose treasures lie there, with an actor on each.
struct Hunt<'a> {
    servings: &'a [Serving],
    number: u64,
    actors: u64,
    /// How long the actors take.
    seconds: u64,
}

/// What was measured of some hunts.
struct Measured {
    /// From when a loot was due to `looted`.
    looted_us: Histogram<u64>,
    /// From when a hunt's last loot was due to its end, and to each `finished`.
    ended_us: Histogram<u64>,
    finished_us: Histogram<u64>,
}

/// What a stream told, and when.
struct Told {
    /// By actor.
    looted: Vec<(u64, Instant)>,
    ended: Instant,
    finished: Vec<Instant>,
}

/// Lets so many actors open a treasure each, in one hunt and in many.
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
    let first = Hunt::begin(&servings, 1, size.actors, size.hunt_s);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| turn(&first, &is_over));
        let _over = Over(&is_over);
        let mut measured = Measured::new();
        measured.play(&first);
        measured.report(1, size.actors, size.hunt_s);
        let (hunts, actors) = (size.hunt_s, size.actors / size.hunt_s);
        let mut measured = Measured::new();
        for number in 2..2 + hunts {
            measured.play(&Hunt::begin(&servings, number, actors, 1));
        }
        measured.report(hunts, actors, 1);
    });
}

impl Hunt<'_> {
    fn begin(servings: &[Serving], number: u64, actors: u64, seconds: u64) -> Hunt<'_> {
        let treasures = lay(&servings[0], number, actors, seconds);
        let hunt = Hunt { servings, number, actors: treasures.len() as u64, seconds };
        let join = |(at, Place { x, y }): (u64, &Place)| {
            format!(r#"{{"type":"join","player_id":{},"x":{x},"y":{y}}}"#, hunt.actor(at))
        };
        post(&servings[0], (0..).zip(&treasures).map(join));
        hunt
    }

    fn actor(&self, number: u64) -> u64 {
        self.number * 1_000_000 + number
    }

    /// Sessions for all actors. An actor stays with one server: of two commands that two servers
    /// write at the same time, the one that comes second may have the earlier seq, and then has no
    /// effect.
    fn connect(&self) -> OpenLoop {
        let addresses: Vec<&str> = self.servings.iter().map(Serving::address).collect();
        OpenLoop::connect(&addresses, self.actors as usize)
    }
}

/// Lets the actors of a hunt turn once a second, until it is over.
fn turn(hunt: &Hunt, is_over: &AtomicBool) {
    let mut turning = hunt.connect();
    while !is_over.load(Ordering::Relaxed) {
        turning.run(hunt.actors, Duration::from_secs(1), &|number| {
            let heading = format!(",\"heading\":{}", number % 36_000);
            command("rotate", hunt.actor(number % hunt.actors), &heading)
        });
    }
}

/// Dropped, it ends the turning, also where a measurement fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A request with one event of an actor.
fn command(kind: &str, id: u64, more: &str) -> String {
    let body = format!(r#"{{"type":"{kind}","player_id":{id}{more}}}"#);
    let head = "POST /v1/events?zone=0&wait_ms=10000 HTTP/1.1\r\nHost: localhost\r\n\
        Content-Type: application/json\r\nContent-Length:";
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
fn lay(serving: &Serving, hunt: u64, treasures: u64, seconds: u64) -> Vec<Place> {
    let window = format!("\"duration_ms\":{}", (seconds + REST_S) * 1_000);
    let start = format!(
        r#"{{"type":"hunt_start","hunt":{hunt},"seed":{hunt},"treasures":{treasures},{window}}}"#
    );
    post(serving, std::iter::once(start));
    let begun = Instant::now();
    loop {
        let (_, body) = get(serving.address(), &format!("/v1/zones/{ZONE}/hunts"));
        let hunts: Value = serde_json::from_str(&body).expect("it is JSON");
        let running = &hunts["running"][0];
        if running["hunt"] == hunt && running["laid"] == running["treasures"] {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{body}");
        // Each event lays some treasures.
        post(serving, (0..POSTED_AT_ONCE).map(|_| r#"{"type":"tick"}"#.to_owned()));
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
    write!(stream, "GET /v1/stream?zone={ZONE} HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .expect("it reads");
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    while !line.starts_with("event: at") {
        line.clear();
        stream.read_line(&mut line).expect("a stream begins with its position");
    }
    stream
}

/// Reads until the hunt is over, and all of its finishers are told.
fn read(stream: BufReader<TcpStream>) -> Told {
    let (mut looted, mut ended, mut finished) = (Vec::new(), None, Vec::new());
    for line in stream.lines() {
        let line = line.expect("the stream goes on");
        let Some(data) = line.strip_prefix("data: ") else { continue };
        let now = Instant::now();
        let update: Value = serde_json::from_str(data).expect("it is JSON");
        match update["kind"].as_str() {
            Some("looted") => {
                let id = update["player_id"].as_str().and_then(|id| id.parse().ok());
                looted.push((id.expect("a player"), now));
            }
            Some("hunt_ended") => ended = update["finishers"].as_u64().zip(Some(now)),
            Some("finished") => finished.push(now),
            _ => {}
        }
        if let Some((finishers, ended)) = ended.filter(|(of, _)| *of == finished.len() as u64) {
            assert_eq!(finishers, looted.len() as u64, "each who opened a treasure finishes");
            return Told { looted, ended, finished };
        }
    }
    panic!("the stream ended");
}

impl Measured {
    fn new() -> Measured {
        let new = || Histogram::new_with_bounds(1, 60_000_000, 3).expect("fine bounds");
        Measured { looted_us: new(), ended_us: new(), finished_us: new() }
    }

    /// Lets the actors of a hunt open their treasures.
    fn play(&mut self, hunt: &Hunt) {
        let stream = listen(&hunt.servings[0]);
        let mut looting = hunt.connect();
        let per_s = (hunt.actors / hunt.seconds).max(1);
        let (begun, told) = std::thread::scope(|scope| {
            let told = scope.spawn(move || read(stream));
            let begun = Instant::now();
            looting.run(per_s, Duration::from_secs(hunt.actors.div_ceil(per_s)), &|number| {
                command("loot", hunt.actor(number), "")
            });
            (begun, told.join().expect("the stream is read"))
        });
        let due = |number: u64| begun + Duration::from_nanos(number * 1_000_000_000 / per_s);
        let us =
            |at: Instant, due: Instant| 1 + at.saturating_duration_since(due).as_micros() as u64;
        for (id, at) in told.looted {
            self.looted_us.saturating_record(us(at, due(id - hunt.actor(0))));
        }
        let last = due(hunt.actors - 1);
        self.ended_us.saturating_record(us(told.ended, last));
        for at in told.finished {
            self.finished_us.saturating_record(us(at, last));
        }
    }

    fn report(&self, hunts: u64, actors: u64, seconds: u64) {
        let quantiles = |of: &Histogram<u64>| {
            let ms = |us: u64| us as f64 / 1e3;
            let [p50, p95, p99] = [0.5, 0.95, 0.99].map(|at| ms(of.value_at_quantile(at)));
            format!("p50 {p50:.2}, p95 {p95:.2}, p99 {p99:.2}, most {:.2} ms", ms(of.max()))
        };
        say(&format!(
            "hunts: {hunts} of {actors} actors in {seconds} s, {} treasures opened; from when a \
             loot was due to `looted` on the stream: {}",
            self.looted_us.len(),
            quantiles(&self.looted_us),
        ));
        say(&format!(
            "hunts: from when the last loot of one was due to `hunt_ended`: {}; to `finished` of \
             {} finishers: {}",
            quantiles(&self.ended_us),
            self.finished_us.len(),
            quantiles(&self.finished_us),
        ));
    }
}
