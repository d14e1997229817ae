//! What a client of `huntd serve` waits for: polls, cards, boards and commands from thousands of
//! sessions, in an open loop, while a daemon publishes what players do. And the same from the
//! published way to do it, an HTTP server in front of Redis.
//!
//! Goal: the time from when a request is due to when its answer was read, and the processor time of
//! the serving processes for each request. Broker, daemon, servers and generators share the
//! machine. Not a goal: the network and TLS. `--smoke` takes a few sessions and seconds, and no
//! peers. Names of parts take these alone: `polls`, `cards`, `boards`, `commands`, `peers` (the
//! same of the peers), `search`, `streams`, `sockets`, `sights`, `hunt`, `million`, `page`.
//! `--events N` sets the events per second that are played beside polls; beside the others there
//! are fewer.
//!
//! Where the bench may set real-time priorities, servers have the highest, as huntd's unit can give
//! it: huntd's serving thread, and all threads of the peers and of Redis. The generators come next:
//! like clients on machines of their own, they wait for nothing but a running server, and take no
//! core from it. How late requests were sent nevertheless stands in a column of its own.
//!
//! The peers do less: theirs is no durable log and no game, and nothing changes their cards and
//! boards but the commands. A process has too few descriptors for all sessions, so there are two of
//! each server.

mod appended;
mod beside;
mod busy;
mod compare;
mod foreign;
mod generators;
mod hunt;
mod inside;
mod million;
mod open_loop;
mod page;
mod peers;
mod search;
mod streams;
mod ticks;

use busy::{BUSY, be_busy};
use compare::compare;
use generators::{Ask, GENERATE, generate};
use peers::Peer;
use std::io::Write;
use std::time::Duration;
use support::daemon::{Huntd, Topics};
use support::kafka::{self, Cluster};
use support::serving::Serving;

const ZONES: i32 = 4;

/// Processes of each server.
const SERVERS: usize = 2;

/// Names of the parts.
const PARTS: [&str; 12] = [
    "polls", "cards", "boards", "commands", "peers", "search", "streams", "sockets", "sights",
    "hunt", "million", "page",
];

/// What is asked, and how often.
struct Size {
    sessions: usize,
    players: u64,
    /// Events that are appended beside polls, and beside the other requests, per second. Each of
    /// the servers folds the updates of all of them.
    events_per_s: u64,
    few_events_per_s: u64,
    polls_per_s: u64,
    commands_per_s: u64,
    /// Up to which the highest rate is searched.
    commands_per_s_max: u64,
    streams: usize,
    /// Streams of what players see, and the players of their one zone.
    sights: usize,
    players_in_sights: u64,
    /// Actors of a hunt with a treasure for each, and how many seconds they take.
    actors: u64,
    hunt_s: u64,
    /// Players of the largest world, who do nothing.
    players_at_rest: u64,
    /// Players whom the page draws.
    players_on_page: u64,
    /// How long players play before anything is measured: the broker compiles its code meanwhile,
    /// and that takes a sixth of the machine.
    warm: Duration,
    /// Of each kind of request.
    time: Duration,
}

const FULL: Size = Size {
    sessions: 30_000,
    players: 100_000,
    events_per_s: 235_000,
    few_events_per_s: 20_000,
    polls_per_s: 15_000,
    commands_per_s: 5_000,
    commands_per_s_max: 32_000,
    streams: 10_000,
    sights: 1_000,
    players_in_sights: 3_000,
    actors: 2_500,
    hunt_s: 60,
    players_at_rest: 1_000_000,
    players_on_page: 3_000,
    warm: Duration::from_secs(30),
    time: Duration::from_secs(10),
};

const SMOKE: Size = Size {
    sessions: 50,
    players: 200,
    events_per_s: 400,
    few_events_per_s: 200,
    polls_per_s: 200,
    commands_per_s: 50,
    commands_per_s_max: 0,
    streams: 50,
    sights: 20,
    players_in_sights: 100,
    actors: 100,
    hunt_s: 2,
    players_at_rest: 1_600,
    players_on_page: 100,
    warm: Duration::ZERO,
    time: Duration::from_secs(1),
};

impl Size {
    fn events_beside(&self, ask: Ask) -> u64 {
        if ask == Ask::Poll { self.events_per_s } else { self.few_events_per_s }
    }

    fn per_s(&self, ask: Ask) -> u64 {
        match ask {
            Ask::Poll => self.polls_per_s,
            Ask::Card | Ask::Board => self.polls_per_s / 2,
            Ask::Command => self.commands_per_s,
            Ask::Stream | Ask::Socket => self.streams as u64 * 1_000 / streams::EVERY_MS,
            Ask::Sight => self.sights as u64 * 1_000 / streams::EVERY_MS,
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
    if let [_, verb, each] = &arguments[..]
        && verb == BUSY
    {
        be_busy(Duration::from_nanos(each.parse().expect("nanoseconds")));
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
    let mut asks: Vec<Ask> = Ask::REQUESTS.into_iter().filter(|ask| has(ask.part())).collect();
    if is_whole || (asks.is_empty() && has("peers")) {
        asks = Ask::REQUESTS.to_vec();
    }
    if !asks.is_empty() {
        beside::play(&cluster, &size, |beside| compare(&size, beside, &asks, &peers));
    }
    if is_whole || has("search") {
        beside::play(&cluster, &size, |beside| search::search(&size, beside));
    }
    for ask in Ask::STREAMS {
        if is_whole || has(ask.part()) {
            streams::streams(&size, &cluster, ask);
        }
    }
    if is_whole || has("hunt") {
        hunt::hunt(&size, &cluster);
    }
    if is_whole || has("million") {
        million::million(&size, &cluster);
    }
    if is_whole || has("page") {
        page::page(&size);
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
    let servings: Vec<Serving> =
        (0..SERVERS).map(|_| Serving::start_before_others(huntd)).collect();
    for serving in &servings {
        serving.body_at(ends, "/v1/zones");
    }
    servings
}

pub(crate) fn say(line: &str) {
    writeln!(std::io::stdout(), "{line}").expect("standard output is open");
}
