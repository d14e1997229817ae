//! Native mode: the input comes from memory and the output goes nowhere, so that the broker takes
//! no part of the cores. All else is a real broker's: [`Feeder`] stands between.

use crate::feed::{Delivery, Feed};
use crate::feeder::{Feeder, Topics};
use crate::inside::Inside;
use crate::programs::{Running, cpu_ns};
use crate::rounds::{Rounds, take_turns};
use crate::table::{Table, say};
use serde_json::json;
use std::process;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use support::batch_load::Load;
use support::daemon::{self, Huntd};
use support::kafka::broker::free_ports;
use support::kafka::{Cluster, Listener, Options};
use support::scrape::Page;
use support::wire::Connection;

/// Between two samples of the processes.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(5);

/// The part of the input that is not measured: tables grow, and records' shapes are learnt.
const WARM_UP: f64 = 0.25;

/// What is compared.
const DELIVERIES: [Delivery; 2] = [Delivery::Sendfile, Delivery::Write];

/// A broker that clients reach by way of the feeder.
pub(crate) struct FedCluster {
    cluster: Cluster,
    feeder: Feeder,
    feeder_port: u16,
}

impl FedCluster {
    pub(crate) fn start(mut options: Options) -> FedCluster {
        let ports = free_ports(2);
        let (feeder_port, broker_port) = (ports[0], ports[1]);
        let fed = Listener::local("FED", "PLAINTEXT", broker_port).told_at(feeder_port);
        options.listeners.push(fed);
        let cluster = Cluster::start(1, &options);
        FedCluster { cluster, feeder: Feeder::start(feeder_port, broker_port), feeder_port }
    }
}

/// What huntd showed.
pub(crate) struct Fed {
    delivery: Delivery,
    events: u64,
    /// Input records a second, from the end of the warm-up to the last.
    rate: f64,
    /// CPU-seconds of huntd, and of the process that feeds it, per million events.
    cpu_s_per_million: f64,
    feeder_s_per_million: f64,
    digest: u64,
    inside: Inside,
}

/// Feeds all events of a load, by each delivery in turns.
pub(crate) fn measure(
    fed: &FedCluster,
    load: &Load,
    events: u64,
    rounds: usize,
    patience: Duration,
) -> Vec<Rounds<Fed>> {
    let ticks = events.div_ceil(load.shape.tick_events());
    let feeds = DELIVERIES.map(|delivery| Arc::new(Feed::new(load, ticks, delivery)));
    let expected = feeds[Delivery::Write as usize].replay();
    let run = |delivery| run(fed, &feeds[delivery as usize], delivery, expected, patience);
    take_turns(&DELIVERIES, rounds, run, |fed| 1e6 / fed.rate)
}

/// CPU time of huntd and of the feeder at one moment.
struct Sample {
    at: Instant,
    cpu_ns: [u64; 2],
}

fn run(
    fed: &FedCluster,
    feed: &Arc<Feed>,
    delivery: Delivery,
    expected: (u64, u64),
    patience: Duration,
) -> Fed {
    let partitions = feed.partitions() as i32;
    let topics = daemon::Topics::create(&fed.cluster, "native", partitions);
    let input_id = Connection::open(&fed.cluster.bootstrap()).topic_id(&topics.input);
    let (input, output) = (topics.input.clone(), topics.output.clone());
    let job = fed.feeder.begin(Topics { input, input_id, output }, feed.clone());
    let brokers = format!("127.0.0.1:{}", fed.feeder_port);
    let binary = ("publish", "format = \"binary\"");
    let mut running = Running::Huntd(Huntd::start_with(&[&brokers], &topics, &[binary]));
    let pid = running.pid();
    let sample = || {
        let cpu_ns = [cpu_ns(pid), cpu_ns(process::id())];
        Sample { at: Instant::now(), cpu_ns }
    };
    let events: u64 = (0..partitions).map(|partition| feed.end(partition) as u64).sum();
    let (deadline, mut samples) = (Instant::now() + patience, vec![sample()]);
    while job.sink().covered() < events {
        assert!(Instant::now() < deadline, "{} of {events} events", job.sink().covered());
        thread::sleep(SAMPLE_INTERVAL);
        samples.push(sample());
    }
    let metrics = running.metrics().expect("huntd has metrics");
    let inside = Inside::of(&Page::of(&metrics), pid);
    let digest = running.stop(partitions).expect("huntd tells its digest");
    let sink = job.sink();
    let told = (digest, sink.updates());
    assert_eq!(told, expected, "another state or other updates than a replay's");
    let warm = sink.steps.iter().find(|(_, covered)| *covered as f64 >= events as f64 * WARM_UP);
    let (warm, last) = (warm.expect("all were covered"), sink.steps.last().expect("likewise"));
    let millions = (last.1 - warm.1) as f64 / 1e6;
    let cpu_s = |of: usize| (cpu_at(&samples, last.0, of) - cpu_at(&samples, warm.0, of)) / 1e9;
    Fed {
        delivery,
        events,
        rate: millions * 1e6 / (last.0 - warm.0).as_secs_f64(),
        cpu_s_per_million: cpu_s(0) / millions,
        feeder_s_per_million: cpu_s(1) / millions,
        digest,
        inside,
    }
}

/// CPU nanoseconds at a time, between the two samples around it.
fn cpu_at(samples: &[Sample], at: Instant, of: usize) -> f64 {
    let after = samples.partition_point(|sample| sample.at < at).clamp(1, samples.len() - 1);
    let (before, after) = (&samples[after - 1], &samples[after]);
    let part = at.saturating_duration_since(before.at).as_secs_f64();
    let part = (part / (after.at - before.at).as_secs_f64()).min(1.0);
    before.cpu_ns[of] as f64 + part * (after.cpu_ns[of] - before.cpu_ns[of]) as f64
}

/// The table of both deliveries.
pub(crate) fn print(all: &[Rounds<Fed>]) {
    let mut table = Table::new(&[
        "native",
        "M events/s",
        "worst",
        "best",
        "CPU-s/M events",
        "hot thread ns/event",
        "feeder's CPU-s/M",
        "digest",
    ]);
    for Rounds { median: fed, worst, best } in all {
        table.row(vec![
            fed.delivery.name().to_owned(),
            format!("{:.3}", fed.rate / 1e6),
            format!("{:.3}", 1.0 / worst),
            format!("{:.3}", 1.0 / best),
            format!("{:.3}", fed.cpu_s_per_million),
            format!("{:.0}", fed.inside.hot_ns()),
            format!("{:.3}", fed.feeder_s_per_million),
            format!("{:016x}", fed.digest),
        ]);
    }
    table.print();
    for Rounds { median: fed, .. } in all {
        say(&format!("{}, {} events: {}", fed.delivery.name(), fed.events, fed.inside.sentence()));
    }
}

/// The figures for a program.
pub(crate) fn json(rounds: &Rounds<Fed>) -> serde_json::Value {
    let fed = &rounds.median;
    json!({
        "mode": "native",
        "delivery": fed.delivery.name(),
        "events": fed.events,
        "events_per_s": fed.rate,
        "events_per_s_worst": 1e6 / rounds.worst,
        "events_per_s_best": 1e6 / rounds.best,
        "cpu_s_per_million": fed.cpu_s_per_million,
        "feeder_cpu_s_per_million": fed.feeder_s_per_million,
        "digest": format!("{:016x}", fed.digest),
        "inside": fed.inside.json(),
    })
}
