//! huntd's servers and the peers, asked for the same at the same rates.

use crate::appended::Log;
use crate::beside::Beside;
use crate::busy::Busy;
use crate::foreign::Client;
use crate::generators::{Ask, Generators};
use crate::inside::Inside;
use crate::open_loop::Measured;
use crate::peers::{Peer, Redis};
use crate::{SERVERS, Size, say, servers};
use hdrhistogram::Histogram;
use std::time::{Duration, Instant};
use support::daemon::Huntd;
use support::process;
use support::serving::Serving;

/// Measures huntd's servers, then the peers, while players play.
pub(crate) fn compare(size: &Size, beside: &Beside, asks: &[Ask], peers: &[Peer]) {
    let servings: Vec<Serving> = servers(beside.huntd, beside.ends);
    let players = servings[0].players(size.sessions.min(100));
    let store = (!peers.is_empty()).then(Redis::start).transpose();
    let store = store.unwrap_or_else(|why| {
        say(&format!("the peers are left out: {why}"));
        None
    });
    if let Some(store) = &store {
        store.fill(servings[0].address(), &players, size.players as usize);
    }
    say(&format!(
        "{} sessions, {} players, {} events/s beside polls, {} beside the others",
        size.sessions, size.players, size.events_per_s, size.few_events_per_s
    ));
    std::thread::sleep(size.warm);
    head();
    let pids: Vec<u32> = servings.iter().map(Serving::pid).collect();
    let addresses: Vec<String> =
        servings.iter().map(|serving| serving.address().to_owned()).collect();
    let of_huntd = Servers { name: "huntd serve", pids, addresses, has_view: true };
    let mut said = of_huntd.measure(size, beside, asks, &players);
    drop(servings);
    for peer in peers {
        let Some(store) = &store else { break };
        let running: Vec<_> = (0..SERVERS).map(|_| peer.start(store)).collect();
        let addresses: Vec<String> = running.iter().map(|one| one.address.clone()).collect();
        let pids = running.iter().map(|one| one.pid()).chain([store.pid()]).collect::<Vec<_>>();
        let of_peer = Servers { name: peer.name(), pids, addresses, has_view: false };
        said.extend(of_peer.measure(size, beside, asks, &players));
    }
    said.iter().for_each(|line| say(line));
}

/// Prints the head of a table.
pub(crate) fn head() {
    say(
        "| server | requests | per second | p50 ms | p99 ms | p99.9 ms | most ms | sent late, p99 \
         ms | from sent, p99 ms | CPU us each | beyond idle | not 200 |",
    );
    say("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
}

/// Servers of one kind, which share the sessions.
struct Servers<'a> {
    name: &'a str,
    pids: Vec<u32>,
    addresses: Vec<String>,
    /// They fold what the daemon publishes, and say how long they take.
    has_view: bool,
}

impl Servers<'_> {
    fn cpu(&self) -> Duration {
        self.pids.iter().map(|pid| process::cpu(*pid)).sum()
    }

    fn resident(&self) -> u64 {
        self.pids.iter().map(|pid| process::resident_bytes(*pid)).sum()
    }

    /// Prints their rows. Gives what else there is to say.
    fn measure(
        &self,
        size: &Size,
        beside: &Beside,
        asks: &[Ask],
        players: &[String],
    ) -> Vec<String> {
        let (mut said, before) = (Vec::new(), self.resident());
        let mut generators = Generators::connect(&self.addresses, size.sessions);
        // The sessions that still wait are accepted meanwhile.
        std::thread::sleep(size.time / 4);
        let idle = self.resident();
        for ask in asks.iter().copied() {
            beside.set_rate(size.events_beside(ask));
            let (warm, per_s) = (size.time / 2, size.per_s(ask));
            std::thread::sleep(warm / 2);
            beside.wait_until_abreast();
            let (cpu_before, alone) = (self.cpu(), EventCost::begin(beside.huntd));
            std::thread::sleep(warm);
            let idle = (self.cpu() - cpu_before).as_secs_f64() / warm.as_secs_f64();
            let alone = alone.end();
            let log = Log::begin(beside.cluster, beside.topics);
            // The broker's code, the daemon's and the servers' tables have to be warm.
            let warmed = generators.run(ask, per_s, warm, players);
            let (before, events) = (self.cpu(), EventCost::begin(beside.huntd));
            let sending = generators.cpu();
            let began = self.has_view.then(|| Inside::of(&self.addresses, ask));
            let measured = generators.run(ask, per_s, size.time, players);
            let idle_cpu = size.time.mul_f64(idle);
            let events = events.end();
            let (cpu, sending) = (self.cpu() - before, generators.cpu() - sending);
            row(self.name, per_s, ask, &measured, (cpu, idle_cpu));
            if let Some(began) = began {
                let inside = Inside::of(&self.addresses, ask).since(&began, size.time);
                said.push(format!("{}, {}: {inside}", self.name, ask.name()));
            }
            said.push(format!(
                "{}, {}: {:.0} ms of CPU per second without a request; huntd run alone: {alone}; \
                 beside the requests: {events}",
                self.name,
                ask.name(),
                idle * 1e3,
            ));
            if ask == Ask::Command && self.has_view {
                let answered = [&warmed.appended[..], &measured.appended].concat();
                let others = warmed.others() + measured.others();
                said.push(log.check(&answered, others));
            }
            if ask == Ask::Poll {
                let cores =
                    ((cpu + sending).as_secs_f64() / size.time.as_secs_f64() - idle).max(0.0);
                said.push(beside_busy(size, beside, cores));
                self.measure_by_others(size.time, &players[0], idle);
            }
        }
        said.push(format!(
            "{}: {} MiB resident before, {:.0} bytes more for each of {} sessions, {} MiB after",
            self.name,
            before >> 20,
            idle.saturating_sub(before) as f64 / size.sessions as f64,
            size.sessions,
            self.resident() >> 20,
        ));
        said
    }

    fn measure_by_others(&self, time: Duration, player: &str, idle: f64) {
        for client in Client::ALL {
            let before = self.cpu();
            if let Some(foreign) = client.poll(&self.addresses[0], player, time) {
                foreign.row(self.name, time, self.cpu() - before, idle);
            }
        }
    }
}

/// Prints a row. `cpu` is the servers' processor time, and what it would be without requests.
pub(crate) fn row(
    name: &str,
    per_s: u64,
    ask: Ask,
    measured: &Measured,
    (cpu, idle): (Duration, Duration),
) {
    let Measured { latency_us, late_us, answer_us, failed, .. } = measured;
    let ms = |of: &Histogram<u64>, at: f64| of.value_at_quantile(at) as f64 / 1e3;
    let each = |cpu: f64| cpu * 1e6 / latency_us.len() as f64;
    say(&format!(
        "| {name} | {} | {} | {:.2} | {:.2} | {:.2} | {:.2} | {:.2} | {:.2} | {:.1} | {:.1} | \
         {failed} |",
        ask.name(),
        per_s,
        ms(latency_us, 0.5),
        ms(latency_us, 0.99),
        ms(latency_us, 0.999),
        latency_us.max() as f64 / 1e3,
        ms(late_us, 0.99),
        ms(answer_us, 0.99),
        each(cpu.as_secs_f64()),
        each(cpu.as_secs_f64() - idle.as_secs_f64()),
    ));
}

/// What events cost the daemon beside processes that take as much of the cores as requests do, and
/// ask for nothing.
fn beside_busy(size: &Size, beside: &Beside, cores: f64) -> String {
    let busy = Busy::start(SERVERS, cores);
    std::thread::sleep(size.time / 4);
    let (taken, events) = (busy.cpu(), EventCost::begin(beside.huntd));
    std::thread::sleep(size.time);
    let taken = (busy.cpu() - taken).as_secs_f64() / size.time.as_secs_f64();
    format!(
        "huntd run beside {SERVERS} processes that take {taken:.2} of {cores:.2} cores and ask for \
         nothing: {}",
        events.end()
    )
}

/// What events cost the daemon.
#[derive(Clone, Copy)]
struct EventCost<'h> {
    huntd: &'h Huntd,
    begun: Instant,
    cpu: Duration,
    counts: [u64; COUNTED.len()],
}

/// What is counted of the daemon: its events, and what its hot thread does for them.
const COUNTED: [&str; 3] =
    ["huntd_records_received_total", "huntd_ring_enters_total", "huntd_hot_allocations_total"];

impl EventCost<'_> {
    fn begin(huntd: &Huntd) -> EventCost<'_> {
        let counts = COUNTED.map(|name| huntd.metric(name));
        EventCost { huntd, begun: Instant::now(), cpu: process::cpu(huntd.pid()), counts }
    }

    /// What events have cost since the beginning.
    fn end(self) -> String {
        let cpu = process::cpu(self.huntd.pid()) - self.cpu;
        let now = COUNTED.map(|name| self.huntd.metric(name));
        let [events, enters, allocations] = [0, 1, 2].map(|at| now[at] - self.counts[at]);
        let us = cpu.as_secs_f64() * 1e6 / events.max(1) as f64;
        let calls = enters as f64 * 1e3 / events.max(1) as f64;
        format!(
            "{us:.2} us of CPU per event, {calls:.2} calls per 1,000 events, {allocations} \
                 allocations at {:.0} events/s",
            events as f64 / self.begun.elapsed().as_secs_f64()
        )
    }
}
