//! huntd's servers and the peers, asked for the same at the same rates.

use crate::generators::{Ask, Generators};
use crate::inside::Inside;
use crate::open_loop::Measured;
use crate::peers::{Peer, Redis};
use crate::{SERVERS, Size, say, servers};
use std::time::Duration;
use support::daemon::Huntd;
use support::process;
use support::serving::Serving;

/// Measures huntd's servers, then the peers, while players play.
pub(crate) fn compare(size: &Size, huntd: &Huntd, ends: &[i64], peers: &[Peer]) {
    let servings: Vec<Serving> = servers(huntd, ends);
    let players = servings[0].players(size.sessions.min(100));
    let store = (!peers.is_empty()).then(Redis::start).transpose();
    let store = store.unwrap_or_else(|why| {
        say(&format!("the peers are left out: {why}"));
        None
    });
    if let Some(store) = &store {
        store.fill(servings[0].address(), &players, size.players as usize);
    }
    let quiet = event_cost_alone(huntd, size.time);
    say(&format!(
        "{} sessions, {} players, {} events/s beside",
        size.sessions, size.players, size.events_per_s
    ));
    head();
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
        say(&format!("huntd run alone: {quiet}"));
        say(&format!("huntd run beside the polls: {stormy}"));
    }
}

/// Prints the head of a table.
pub(crate) fn head() {
    say("| server | requests | per second | p50 ms | p99 ms | p99.9 ms | most ms | CPU us each | \
         not 200 |");
    say("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
}

/// Prints the rows of one kind of server. Gives what an event costs huntd beside the polls.
fn measure(
    name: &str,
    size: &Size,
    pids: &[u32],
    addresses: &[String],
    players: &[String],
    huntd: Option<&Huntd>,
) -> Option<String> {
    let resident = || pids.iter().map(|pid| process::resident_bytes(*pid)).sum::<u64>();
    let cpu = || pids.iter().map(|pid| process::cpu(*pid)).sum::<Duration>();
    let (before, cpu_before) = (resident(), cpu());
    std::thread::sleep(size.time / 4);
    let idle = (cpu() - cpu_before).as_secs_f64() * 4.0 / size.time.as_secs_f64();
    let mut generators = Generators::connect(addresses, size.sessions);
    let (mut event_cost, mut inside) = (None, Vec::new());
    for ask in Ask::REQUESTS {
        let (before, events) = (cpu(), huntd.map(EventCost::begin));
        let began = huntd.map(|_| Inside::of(addresses));
        let measured = generators.run(ask, size.per_s(ask), size.time, players);
        if let Some(began) = began {
            let said = Inside::of(addresses).since(&began, size.time);
            inside.push(format!("{name}, {}: {said}", ask.name()));
        }
        row(name, size.per_s(ask), ask, &measured, cpu() - before);
        if ask == Ask::Poll {
            event_cost = events.map(EventCost::end);
        }
    }
    inside.iter().for_each(|line| say(line));
    say(&format!(
        "{name}: {} MiB resident before, {} after; {:.0} ms of CPU per second without a request",
        before >> 20,
        resident() >> 20,
        idle * 1e3
    ));
    event_cost
}

pub(crate) fn row(name: &str, per_s: u64, ask: Ask, measured: &Measured, cpu: Duration) {
    let Measured { latency_us, failed } = measured;
    let quantile = |at: f64| latency_us.value_at_quantile(at) as f64 / 1e3;
    let each = cpu.as_secs_f64() * 1e6 / latency_us.len() as f64;
    say(&format!(
        "| {name} | {} | {} | {:.2} | {:.2} | {:.2} | {:.2} | {each:.1} | {failed} |",
        ask.name(),
        per_s,
        quantile(0.5),
        quantile(0.99),
        quantile(0.999),
        latency_us.max() as f64 / 1e3,
    ));
}

/// What events cost the daemon.
#[derive(Clone, Copy)]
struct EventCost<'h> {
    huntd: &'h Huntd,
    cpu: Duration,
    counts: [u64; COUNTED.len()],
}

/// What is counted of the daemon: its events, and what its hot thread does for them.
const COUNTED: [&str; 3] =
    ["huntd_records_received_total", "huntd_ring_enters_total", "huntd_hot_allocations_total"];

impl EventCost<'_> {
    fn begin(huntd: &Huntd) -> EventCost<'_> {
        let counts = COUNTED.map(|name| huntd.metric(name));
        EventCost { huntd, cpu: process::cpu(huntd.pid()), counts }
    }

    /// What events have cost since the beginning.
    fn end(self) -> String {
        let cpu = process::cpu(self.huntd.pid()) - self.cpu;
        let now = COUNTED.map(|name| self.huntd.metric(name));
        let [events, enters, allocations] = [0, 1, 2].map(|at| now[at] - self.counts[at]);
        let us = cpu.as_secs_f64() * 1e6 / events.max(1) as f64;
        let calls = enters as f64 * 1e3 / events.max(1) as f64;
        format!(
            "{us:.2} us of CPU per event, {calls:.1} calls per 1,000 events, {allocations} \
                 allocations"
        )
    }
}

/// What an event costs the daemon while nobody asks for anything.
fn event_cost_alone(huntd: &Huntd, time: Duration) -> String {
    let cost = EventCost::begin(huntd);
    std::thread::sleep(time);
    cost.end()
}
