//! What a client of `huntd serve` waits for: polls, cards, boards and commands from thousands of
//! sessions, in an open loop, while a daemon publishes what players do.
//!
//! Goal: the time from when a request is due to when its answer was read, and the processor time of
//! the serving process for each request. Broker, daemon, server and generator share the machine.
//! Not a goal: the network, TLS, and the highest rate. `--smoke` takes a few sessions and seconds.

mod open_loop;

use open_loop::{Measured, OpenLoop};
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use support::daemon::{Huntd, Topics};
use support::kafka::{self, Cluster};
use support::load::Load;
use support::serving::Serving;

const ZONES: i32 = 4;

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
    sessions: 15_000,
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

fn main() {
    // `cargo test` runs it too, and asks for the small one by not asking for a bench.
    let is_small = std::env::args().any(|argument| argument == "--smoke")
        || !std::env::args().any(|argument| argument == "--bench");
    let (size, options) = match is_small {
        true => (SMOKE, kafka::Options::for_tests()),
        false => (FULL, kafka::Options::for_rates()),
    };
    let cluster = Cluster::start(1, &options);
    let topics = Topics::create(&cluster, "serve", ZONES);
    let settings = [("publish", "format = \"binary\""), ("input", "tick_every_ms = 0")];
    let mut huntd = Huntd::start(&cluster, &topics, &settings);
    huntd.wait_until("its address", |huntd| huntd.log().contains("\"address\":\""));
    let serving = Serving::start(&huntd);
    let mut load = Load::new(size.players, ZONES);
    load.produce(&cluster, &topics, size.players);
    serving.body_at(&cluster.client().ends(&topics.input, ZONES), "/v1/zones");
    say(&format!(
        "{} sessions, {} players, {} events/s beside; {} MiB resident",
        size.sessions,
        size.players,
        size.events_per_s,
        serving.resident() >> 20
    ));
    say("| requests | per second | p50 ms | p99 ms | p99.9 ms | most ms | CPU us each | not 200 |");
    say("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    let ids = serving.players(size.sessions.min(100));
    let player = |number: u64| ids[number as usize % ids.len()].as_str();
    let get = |path: String| format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n");
    let mut open_loop = OpenLoop::connect(serving.address(), size.sessions);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let begun = std::time::Instant::now();
                load.produce(&cluster, &topics, size.events_per_s / 10);
                std::thread::sleep(Duration::from_millis(100).saturating_sub(begun.elapsed()));
            }
        });
        let mut measure = |name: &str, rate: u64, request: &dyn Fn(u64) -> String| {
            let cpu = serving.cpu();
            let measured = open_loop.run(rate, size.time, request);
            row(name, rate, &measured, serving.cpu() - cpu);
        };
        let rate = size.polls_per_s;
        measure("poll", rate, &|n| get(format!("/v1/players/{}/poll", player(n))));
        measure("card", rate / 2, &|n| get(format!("/v1/players/{}", player(n))));
        measure("board", rate / 2, &|n| get(format!("/v1/boards/world?from={}", 1 + n % 1_000)));
        measure("command", size.commands_per_s, &|n| {
            let id = player(n);
            let body = format!(r#"{{"type":"loot","player_id":"{id}"}}"#);
            let head = "POST /v1/events?wait_ms=10000 HTTP/1.1\r\nHost: h\r\nContent-Length:";
            format!("{head} {}\r\n\r\n{body}", body.len())
        });
        is_over.store(true, Ordering::Relaxed);
    });
    say(&format!("{} MiB resident at the end", serving.resident() >> 20));
}

fn row(name: &str, rate: u64, measured: &Measured, cpu: Duration) {
    let Measured { latency_us, failed } = measured;
    let quantile = |at: f64| latency_us.value_at_quantile(at) as f64 / 1e3;
    let each = cpu.as_secs_f64() * 1e6 / latency_us.len() as f64;
    say(&format!(
        "| {name} | {rate} | {:.2} | {:.2} | {:.2} | {:.2} | {each:.1} | {failed} |",
        quantile(0.5),
        quantile(0.99),
        quantile(0.999),
        latency_us.max() as f64 / 1e3,
    ));
}

fn say(line: &str) {
    writeln!(std::io::stdout(), "{line}").expect("standard output is open");
}
