//! What a client of `huntd serve` waits for: polls, cards, boards and commands from thousands of
//! sessions, in an open loop, while a daemon publishes what players do. And the same from the
//! published way to do it, an HTTP server in front of Redis.
//!
//! Goal: the time from when a request is due to when its answer was read, and the processor time of
//! the serving processes for each request. Broker, daemon, servers and generators share the
//! machine. Not a goal: the network and TLS. `--smoke` takes a few sessions and seconds, and no
//! peers. Names of parts take these alone: `polls` (and cards, boards, commands), `peers` (the same
//! beside the peers), `search`, `streams`, `hunt`, `million`. `--events N` sets the events per
//! second that are played beside polls and commands.
//!
//! The peers do less: theirs is no durable log and no game, and nothing changes their cards and
//! boards but the commands. A process has too few descriptors for all sessions, so there are two of
//! each server.

mod compare;
mod generators;
mod hunt;
mod inside;
mod million;
mod open_loop;
mod peers;
mod search;
mod streams;

use compare::compare;
use generators::{Ask, GENERATE, generate};
use peers::Peer;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support::daemon::{Huntd, Topics};
use support::kafka::{self, Cluster};
use support::load::Load;
use support::serving::Serving;

const ZONES: i32 = 4;

/// Processes of each server.
const SERVERS: usize = 2;

/// Between two pieces of what players do.
const PIECE: Duration = Duration::from_millis(100);

/// Names of the parts.
const PARTS: [&str; 6] = ["polls", "peers", "search", "streams", "hunt", "million"];

/// What is asked, and how often.
struct Size {
    sessions: usize,
    players: u64,
    /// Events that are appended beside the requests, per second.
    events_per_s: u64,
    polls_per_s: u64,
    commands_per_s: u64,
    /// Up to which the highest rate is searched.
    commands_per_s_max: u64,
    streams: usize,
    /// Actors of a hunt with a treasure for each, and how many seconds they take.
    actors: u64,
    hunt_s: u64,
    /// Players of the largest world, who do nothing.
    players_at_rest: u64,
    /// Of each kind of request.
    time: Duration,
}

const FULL: Size = Size {
    sessions: 30_000,
    players: 100_000,
    events_per_s: 20_000,
    polls_per_s: 15_000,
    commands_per_s: 5_000,
    commands_per_s_max: 32_000,
    streams: 10_000,
    actors: 2_500,
    hunt_s: 60,
    players_at_rest: 1_000_000,
    time: Duration::from_secs(10),
};

const SMOKE: Size = Size {
    sessions: 50,
    players: 200,
    events_per_s: 200,
    polls_per_s: 200,
    commands_per_s: 50,
    commands_per_s_max: 0,
    streams: 50,
    actors: 100,
    hunt_s: 2,
    players_at_rest: 1_600,
    time: Duration::from_secs(1),
};

impl Size {
    fn per_s(&self, ask: Ask) -> u64 {
        match ask {
            Ask::Poll => self.polls_per_s,
            Ask::Card | Ask::Board => self.polls_per_s / 2,
            Ask::Command => self.commands_per_s,
            Ask::Stream => self.streams as u64 * 1_000 / streams::EVERY_MS,
        }
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, verb, address, sessions] = &arguments[..]
        && verb == GENERATE
    {
        return generate(address, sessions.parse().expect("a number of sessions"));
    }
    let has = |name: &str| arguments.iter().any(|argument| argument == name);
    // `cargo test` runs it too, and asks for the small one by not asking for a bench.
    let is_small = has("--smoke") || !has("--bench");
    let (mut size, options) = match is_small {
        true => (SMOKE, kafka::Options::for_tests()),
        false => (FULL, kafka::Options::for_rates()),
    };
    if let Some(at) = arguments.iter().position(|argument| argument == "--events") {
        size.events_per_s = arguments[at + 1].parse().expect("a number of events");
    }
    let is_whole = !PARTS.into_iter().any(has);
    // Built first, so that no compiler runs beside what is measured.
    let wants_peers = has("peers") || (is_whole && !is_small);
    let peers = if wants_peers { built_peers() } else { Vec::new() };
    let cluster = Cluster::start(1, &options);
    if is_whole || has("polls") || has("peers") {
        beside_players(&cluster, &size, &|huntd, ends| compare(&size, huntd, ends, &peers));
    }
    if is_whole || has("search") {
        beside_players(&cluster, &size, &|huntd, ends| search::search(&size, huntd, ends));
    }
    if is_whole || has("streams") {
        streams::streams(&size, &cluster);
    }
    if is_whole || has("hunt") {
        hunt::hunt(&size, &cluster);
    }
    if is_whole || has("million") {
        million::million(&size, &cluster);
    }
}

/// Builds the peers. Those that cannot be built are left out.
fn built_peers() -> Vec<Peer> {
    let is_built = |peer: &Peer| match peer.build() {
        Ok(()) => true,
        Err(why) => {
            say(&format!("{} is left out: {why}", peer.name()));
            false
        }
    };
    Peer::ALL.into_iter().filter(is_built).collect()
}

/// Measures something while players play.
fn beside_players(cluster: &Cluster, size: &Size, measure: &dyn Fn(&Huntd, &[i64])) {
    let topics = Topics::create(cluster, "serve", ZONES);
    let huntd = start(cluster, &topics, &[]);
    let mut load = Load::new(size.players, ZONES);
    load.produce(cluster, &topics, size.players);
    let ends = cluster.client().ends(&topics.input, ZONES);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (begun, mut made) = (Instant::now(), 0);
            while !is_over.load(Ordering::Relaxed) {
                let due = (begun.elapsed().as_secs_f64() * size.events_per_s as f64) as u64;
                load.produce(cluster, &topics, (due - made).min(size.events_per_s));
                made = due;
                std::thread::sleep(PIECE);
            }
        });
        measure(&huntd, &ends);
        is_over.store(true, Ordering::Relaxed);
    });
}

/// A daemon with binary frames and no ticks, and further settings.
pub(crate) fn start(cluster: &Cluster, topics: &Topics, more: &[(&str, &str)]) -> Huntd {
    let mut settings = vec![("publish", "format = \"binary\""), ("input", "tick_every_ms = 0")];
    settings.extend_from_slice(more);
    let mut huntd = Huntd::start(cluster, topics, &settings);
    huntd.wait_until("its address", |huntd| huntd.log().contains("\"address\":\""));
    huntd
}

/// Servers that have come to these offsets.
pub(crate) fn servers(huntd: &Huntd, ends: &[i64]) -> Vec<Serving> {
    let servings: Vec<Serving> = (0..SERVERS).map(|_| Serving::start(huntd)).collect();
    for serving in &servings {
        serving.body_at(ends, "/v1/zones");
    }
    servings
}

pub(crate) fn say(line: &str) {
    writeln!(std::io::stdout(), "{line}").expect("standard output is open");
}
