//! Drain mode: a preloaded topic, and how fast and for how much CPU time each program is through.

use crate::inside::{Inside, Watch};
use crate::output::{Covered, Output};
use crate::plot::Series;
use crate::programs::{Listener, Program, Running, cpu_ns, memory_kib, thread_cpu_ns};
use crate::rounds::Rounds;
use crate::table::{Table, say};
use serde_json::json;
use std::thread;
use std::time::{Duration, Instant};
use support::batch_load::{Layout, Load, Shape};
use support::daemon::Topics;
use support::generator::{Generator, Pace, now_us};
use support::kafka::{Cluster, unique_name};
use support::scrape::Page;
use support::wire::Connection;

/// Intended time of the first event: a drain is the same whenever it runs.
const BASE_US: u64 = 1_767_225_600_000_000;

/// Time between two samples of the process and of the ends of the output.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The output has ended if it has not grown for so long; then it is read.
const QUIET: Duration = Duration::from_millis(500);

/// The part of the input that is not measured, for programs that have to warm up.
const WARM_UP: f64 = 0.25;

/// What a drain showed.
pub(crate) struct Drained {
    pub program: Program,
    /// Input records a second, from the end of the warm-up to the last.
    pub rate: f64,
    /// Input records a second, from the first output to the last.
    pub rate_cold: f64,
    /// CPU-seconds of the process per million events.
    pub cpu_s_per_million: f64,
    pub resident_kib: u64,
    pub resident_kib_max: u64,
    /// Input records that were accounted for.
    pub events: u64,
    pub updates: u64,
    /// Hash of all of these.
    pub told: u64,
    /// Bytes of all frames, before they were compressed.
    pub bytes: u64,
    /// Output records.
    pub records: u64,
    /// Whether it was stopped before it was through.
    pub is_partial: bool,
    /// Of the state at the end.
    pub digest: Option<u64>,
    /// What only huntd tells.
    pub inside: Option<Inside>,
}

/// A topic that is filled.
pub(crate) struct Preloaded {
    topics: Topics,
    events: u64,
}

/// Fills a topic with so many events, or a few more.
pub(crate) fn preload(cluster: &Cluster, shape: Shape, events: u64) -> (Preloaded, String) {
    let load = Load::new(shape);
    let topics = Topics::create(cluster, "drain", shape.partitions as i32);
    let ticks = events.div_ceil(shape.tick_events());
    let (started, ran_ns) = (Instant::now(), thread_cpu_ns());
    let mut generator = Generator::new(&load, &cluster.bootstrap(), &topics.input, Pace::Unpaced);
    generator.send_joins(BASE_US);
    generator.send_ticks(BASE_US, 0..ticks);
    let ran_ns = thread_cpu_ns() - ran_ns;
    generator.finish();
    let events = ticks * shape.tick_events() + shape.players;
    let seconds = started.elapsed().as_secs_f64();
    let told = format!(
        "{events} events of {} players in {} partitions, {:.0} bytes each, preloaded at {:.2} M \
         events/s; the generator's thread took {:.0} ns an event",
        shape.players,
        shape.partitions,
        load.value_bytes,
        events as f64 / seconds / 1e6,
        ran_ns as f64 / events as f64,
    );
    (Preloaded { topics, events }, told)
}

/// Deletes the topic.
pub(crate) fn discard(cluster: &Cluster, preloaded: Preloaded) {
    cluster.client().delete_topic(&preloaded.topics.input);
}

/// Lets one program drain the topic by way of a listener, for at most so long.
pub(crate) fn drain(
    cluster: &Cluster,
    listener: &Listener,
    preloaded: &Preloaded,
    program: Program,
    patience: Duration,
) -> Drained {
    let partitions = preloaded.topics.partitions;
    let output = unique_name("out");
    // The broker's own times tell when each batch was there, without anybody looking.
    let stamped = [("message.timestamp.type", "LogAppendTime"), ("retention.ms", "-1")];
    let dead_letters = format!("{output}-dead");
    cluster.client().create_topic(&output, partitions, &stamped);
    cluster.client().create_topic(&dead_letters, 1, &[]);
    let input = preloaded.topics.input.clone();
    let topics = Topics { input, output, dead_letters, partitions };
    let running = program.start(listener, &topics);
    let watched = watch(cluster, preloaded, &topics, program, running, patience);
    cluster.client().delete_topic(&topics.output);
    watched
}

/// The process' CPU time at one moment.
struct Sample {
    at_ms: u64,
    cpu_ns: u64,
}

fn watch(
    cluster: &Cluster,
    preloaded: &Preloaded,
    topics: &Topics,
    program: Program,
    mut running: Running,
    patience: Duration,
) -> Drained {
    let address = cluster.bootstrap();
    let mut connection = Connection::open(&address);
    let partitions = topics.partitions;
    let output = Output::new(&address, &topics.output, partitions as usize, program.output());
    let mut output = output.reading_updates();
    let (mut samples, mut steps) = (Vec::new(), Vec::new());
    let (pid, metrics) = (running.pid(), running.metrics());
    let watch = metrics.as_deref().map(Watch::start);
    let deadline = Instant::now() + patience;
    let (mut ends, mut grown) = (Vec::new(), Instant::now());
    let is_partial = loop {
        samples.push(Sample { at_ms: now_us() / 1_000, cpu_ns: cpu_ns(pid) });
        let now = connection.ends(&topics.output, partitions);
        if now != ends {
            (ends, grown) = (now, Instant::now());
        }
        let is_late = deadline < Instant::now();
        if is_late || QUIET < grown.elapsed() {
            while (0..).zip(&ends).any(|(of, end)| output.offset(of) < *end) {
                output.follow(0, |covered| steps.push(covered));
            }
            if is_late || output.covered() == preloaded.events {
                break is_late && output.covered() < preloaded.events;
            }
            grown = Instant::now();
        }
        thread::sleep(POLL_INTERVAL);
    };
    let memory = (memory_kib(pid, "VmRSS:"), memory_kib(pid, "VmHWM:"));
    let inside = metrics.zip(watch).map(|(address, watch)| {
        let peaks = watch.stop();
        Inside::of(&Page::of(&address), pid).with(peaks)
    });
    let digest = running.stop(partitions);
    steps.sort_by_key(|step| step.time_ms);
    let total: u64 = steps.iter().map(Covered::events).sum();
    assert!(total > 0, "{} has not written anything", program.name());
    let (warm_ms, warm_sum) = warm(&steps, total);
    let (first, last_ms) = (&steps[0], steps[steps.len() - 1].time_ms);
    let rate = |events: u64, from_ms: u64| events as f64 * 1e3 / (last_ms - from_ms).max(1) as f64;
    let cpu_ns = cpu_at(&samples, last_ms) - cpu_at(&samples, warm_ms);
    Drained {
        program,
        rate: rate(total - warm_sum, warm_ms),
        rate_cold: rate(total - first.events(), first.time_ms),
        cpu_s_per_million: cpu_ns / 1e9 / ((total - warm_sum) as f64 / 1e6),
        resident_kib: memory.0,
        resident_kib_max: memory.1,
        events: total,
        updates: output.updates(),
        told: output.told(),
        bytes: output.bytes(),
        records: output.records(),
        is_partial,
        digest,
        inside,
    }
}

/// When the warm-up was over, and the events up to there.
fn warm(steps: &[Covered], total: u64) -> (u64, u64) {
    let mut sum = 0;
    let warm = steps.iter().find(|step| {
        sum += step.events();
        sum as f64 >= total as f64 * WARM_UP
    });
    (warm.expect("the sum reaches the total").time_ms, sum)
}

/// CPU nanoseconds at a time, between the two samples around it.
fn cpu_at(samples: &[Sample], at_ms: u64) -> f64 {
    let after = samples.partition_point(|sample| sample.at_ms < at_ms).clamp(1, samples.len() - 1);
    let (before, after) = (&samples[after - 1], &samples[after]);
    let part = at_ms.saturating_sub(before.at_ms) as f64;
    let part = (part / (after.at_ms - before.at_ms).max(1) as f64).min(1.0);
    before.cpu_ns as f64 + part * (after.cpu_ns - before.cpu_ns) as f64
}

/// CPU time and throughput as points of a plot.
pub(crate) fn series(all: &[Rounds<Drained>]) -> Vec<Series> {
    let of_program = |Rounds { median: drained, .. }: &Rounds<Drained>| Series {
        name: drained.program.name().to_owned(),
        points: vec![(drained.cpu_s_per_million, drained.rate / 1e6)],
    };
    all.iter().map(of_program).collect()
}

/// The figures for a program.
pub(crate) fn json(mode: &str, layout: Layout, rounds: &Rounds<Drained>) -> serde_json::Value {
    let drained = &rounds.median;
    json!({
        "mode": mode,
        "layout": format!("{layout:?}"),
        "program": drained.program.name(),
        "events_per_s": drained.rate,
        "events_per_s_worst": 1e6 / rounds.worst,
        "events_per_s_best": 1e6 / rounds.best,
        "events_per_s_cold": drained.rate_cold,
        "cpu_s_per_million": drained.cpu_s_per_million,
        "resident_kib": drained.resident_kib,
        "updates": drained.updates,
        "is_partial": drained.is_partial,
        "digest": drained.digest.map(|digest| format!("{digest:016x}")),
        "inside": drained.inside.as_ref().map(Inside::json),
    })
}

/// The table of all programs.
pub(crate) fn print(title: &str, all: &[Rounds<Drained>]) {
    let medians = || all.iter().map(|rounds| &rounds.median);
    let huntd = medians().find(|drained| drained.program == Program::HuntdJson);
    let huntd = huntd.expect("huntd is always there");
    for what in [Program::is_peer, Program::is_huntd] {
        let whole = medians().filter(|drained| what(drained.program) && !drained.is_partial);
        let told = whole.map(|Drained { digest, told, .. }| (*digest, *told));
        let told: Vec<(Option<u64>, u64)> = told.collect();
        assert!(told.windows(2).all(|pair| pair[0] == pair[1]), "they differ: {told:x?}");
    }
    let mut table = Table::new(&[
        title,
        "M events/s",
        "worst",
        "best",
        "huntd is faster",
        "CPU-s/M events",
        "huntd takes less",
        "RSS MiB",
        "peak MiB",
        "updates/event",
        "bytes/event",
        "events/frame",
        "digest",
    ]);
    for Rounds { median: drained, worst, best } in all {
        table.row(vec![
            format!("{}{}", drained.program.name(), if drained.is_partial { " (cut)" } else { "" }),
            format!("{:.3}", drained.rate / 1e6),
            format!("{:.3}", 1.0 / worst),
            format!("{:.3}", 1.0 / best),
            format!("{:.2} x", huntd.rate / drained.rate),
            format!("{:.3}", drained.cpu_s_per_million),
            format!("{:.2} x", drained.cpu_s_per_million / huntd.cpu_s_per_million),
            (drained.resident_kib / 1024).to_string(),
            (drained.resident_kib_max / 1024).to_string(),
            format!("{:.2}", drained.updates as f64 / drained.events as f64),
            format!("{:.0}", drained.bytes as f64 / drained.events as f64),
            format!("{:.0}", drained.events as f64 / drained.records as f64),
            drained.digest.map_or("-".to_owned(), |digest| format!("{digest:016x}")),
        ]);
    }
    table.print();
    for Drained { program, inside, .. } in medians() {
        if let Some(inside) = inside {
            say(&format!("{}: {}", program.name(), inside.sentence()));
        }
    }
}
