//! What a client of `huntd serve` waits for: polls, cards, boards and commands from thousands of
//! sessions, in an open loop, while a daemon publishes what players do. And the same from the
//! published way to do it, an HTTP server in front of Redis.
//!
//! Goal: the time from when a request is due to when its answer was read, and the processor time of
//! the serving processes for each request. Broker, daemon, servers and generators share the
//! machine. Not a goal: the network, TLS, and the highest rate. `--smoke` takes a few sessions and
//! seconds, and no peers; `--huntd` leaves the peers out, too.
//!
//! The peers do less: theirs is no durable log and no game, and nothing changes their cards and
//! boards but the commands. A process has too few descriptors for all sessions, so there are two of
//! each server.

mod generators;
mod open_loop;
mod peers;

use generators::{Ask, GENERATE, Generators, generate};
use open_loop::Measured;
use peers::{Peer, Redis};
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support::daemon::{Huntd, Topics};
use support::kafka::{self, Cluster};
use support::load::Load;
use support::process;
use support::serving::Serving;

const ZONES: i32 = 4;

/// Processes of each server.
const SERVERS: usize = 2;

/// What is asked, and how often.
struct Size {
    sessions: usize,
    players: u64,
    /// Events that are appended beside the requests, per second.
    events_per_s: u64,
    polls_per_s: u64,
    commands_per_s: u64,
    time: Duration,
}

const FULL: Size = Size {
    sessions: 30_000,
    players: 100_000,
    events_per_s: 20_000,
    polls_per_s: 15_000,
    commands_per_s: 2_000,
    time: Duration::from_secs(20),
};

const SMOKE: Size = Size {
    sessions: 50,
    players: 200,
    events_per_s: 200,
    polls_per_s: 200,
    commands_per_s: 50,
    time: Duration::from_secs(1),
};

impl Size {
    fn per_s(&self, ask: Ask) -> u64 {
        match ask {
            Ask::Poll => self.polls_per_s,
            Ask::Card | Ask::Board => self.polls_per_s / 2,
            Ask::Command => self.commands_per_s,
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
    let (size, options) = match is_small {
        true => (SMOKE, kafka::Options::for_tests()),
        false => (FULL, kafka::Options::for_rates()),
    };
    // Built first, so that no compiler runs beside what is measured.
    let peers: &[Peer] = if is_small || has("--huntd") { &[] } else { &Peer::ALL };
    let built = peers.iter().filter(|peer| match peer.build() {
        Ok(()) => true,
        Err(why) => {
            say(&format!("{} is left out: {why}", peer.name()));
            false
        }
    });
    let peers: Vec<Peer> = built.copied().collect();
    let cluster = Cluster::start(1, &options);
    let topics = Topics::create(&cluster, "serve", ZONES);
    let settings = [("publish", "format = \"binary\""), ("input", "tick_every_ms = 0")];
    let mut huntd = Huntd::start(&cluster, &topics, &settings);
    huntd.wait_until("its address", |huntd| huntd.log().contains("\"address\":\""));
    let mut load = Load::new(size.players, ZONES);
    load.produce(&cluster, &topics, size.players);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let ends = cluster.client().ends(&topics.input, ZONES);
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let begun = Instant::now();
                load.produce(&cluster, &topics, size.events_per_s / 10);
                std::thread::sleep(Duration::from_millis(100).saturating_sub(begun.elapsed()));
            }
        });
        compare(&size, &huntd, &ends, &peers);
        is_over.store(true, Ordering::Relaxed);
    });
}

/// Measures huntd's servers, then the peers, while players play.
fn compare(size: &Size, huntd: &Huntd, ends: &[i64], peers: &[Peer]) {
    let servings: Vec<Serving> = (0..SERVERS).map(|_| Serving::start(huntd)).collect();
    for serving in &servings {
        serving.body_at(ends, "/v1/zones");
    }
    let players = servings[0].players(size.sessions.min(100));
    let store = (!peers.is_empty()).then(Redis::start).transpose();
    let store = store.unwrap_or_else(|why| {
        say(&format!("the peers are left out: {why}"));
        None
    });
    if let Some(store) = &store {
        store.fill(servings[0].address(), &players, size.players as usize);
    }
    let quiet = event_cpu_us(huntd, size.time);
    say(&format!(
        "{} sessions, {} players, {} events/s beside",
        size.sessions, size.players, size.events_per_s
    ));
    say("| server | requests | per second | p50 ms | p99 ms | p99.9 ms | most ms | CPU us each | \
         not 200 |");
    say("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    let pids: Vec<u32> = servings.iter().map(Serving::pid).collect();
    let addresses: Vec<String> =
        servings.iter().map(|serving| serving.address().to_owned()).collect();
    let stormy = measure("huntd serve", size, &pids, &addresses, &players, Some(huntd));
    drop(servings);
    for peer in peers {
        let Some(store) = &store else { break };
        let running: Vec<_> = (0..SERVERS).map(|_| peer.start(store)).collect();
        let addresses: Vec<String> = running.iter().map(|one| one.address.clone()).collect();
        let pids = running.iter().map(|one| one.pid()).chain([store.pid()]).collect::<Vec<_>>();
        measure(peer.name(), size, &pids, &addresses, &players, None);
    }
    if let Some(stormy) = stormy {
        say(&format!(
            "huntd run: {quiet:.2} us of CPU per event alone, {stormy:.2} beside the polls"
        ));
    }
}

/// Prints the rows of one kind of server. Gives what an event costs huntd beside the polls.
fn measure(
    name: &str,
    size: &Size,
    pids: &[u32],
    addresses: &[String],
    players: &[String],
    huntd: Option<&Huntd>,
) -> Option<f64> {
    let resident = || pids.iter().map(|pid| process::resident_bytes(*pid)).sum::<u64>();
    let cpu = || pids.iter().map(|pid| process::cpu(*pid)).sum::<Duration>();
    let (before, cpu_before) = (resident(), cpu());
    std::thread::sleep(size.time / 4);
    let idle = (cpu() - cpu_before).as_secs_f64() * 4.0 / size.time.as_secs_f64();
    let mut generators = Generators::connect(addresses, size.sessions);
    let mut event_us = None;
    for ask in Ask::ALL {
        let (before, events) = (cpu(), huntd.map(EventCost::begin));
        let measured = generators.run(ask, size.per_s(ask), size.time, players);
        row(name, size, ask, &measured, cpu() - before);
        if ask == Ask::Poll {
            event_us = events.map(EventCost::end_us);
        }
    }
    say(&format!(
        "{name}: {} MiB resident before, {} after; {:.0} ms of CPU per second without a request",
        before >> 20,
        resident() >> 20,
        idle * 1e3
    ));
    event_us
}

fn row(name: &str, size: &Size, ask: Ask, measured: &Measured, cpu: Duration) {
    let Measured { latency_us, failed } = measured;
    let quantile = |at: f64| latency_us.value_at_quantile(at) as f64 / 1e3;
    let each = cpu.as_secs_f64() * 1e6 / latency_us.len() as f64;
    say(&format!(
        "| {name} | {} | {} | {:.2} | {:.2} | {:.2} | {:.2} | {each:.1} | {failed} |",
        ask.name(),
        size.per_s(ask),
        quantile(0.5),
        quantile(0.99),
        quantile(0.999),
        latency_us.max() as f64 / 1e3,
    ));
}

/// What events cost the daemon.
struct EventCost<'h> {
    huntd: &'h Huntd,
    cpu: Duration,
    events: u64,
}

impl EventCost<'_> {
    fn begin(huntd: &Huntd) -> EventCost<'_> {
        let events = huntd.metric("huntd_records_received_total");
        EventCost { huntd, cpu: process::cpu(huntd.pid()), events }
    }

    /// Microseconds of processor time for each event since the beginning.
    fn end_us(self) -> f64 {
        let cpu = process::cpu(self.huntd.pid()) - self.cpu;
        let events = self.huntd.metric("huntd_records_received_total") - self.events;
        cpu.as_secs_f64() * 1e6 / events.max(1) as f64
    }
}

/// What an event costs the daemon while nobody asks for anything.
fn event_cpu_us(huntd: &Huntd, time: Duration) -> f64 {
    let cost = EventCost::begin(huntd);
    std::thread::sleep(time);
    cost.end_us()
}

pub(crate) fn say(line: &str) {
    writeln!(std::io::stdout(), "{line}").expect("standard output is open");
}
