//! Open loop: events come at a fixed rate whether or not anybody keeps up, and each is timed from
//! when it was due until its update was read back from the output topic.

use crate::inside::{Inside, Peaks, Watch};
use crate::output::{Covered, Output};
use crate::plot::Series;
use crate::programs::{Listener, Program, cpu_ns, memory_kib};
use crate::rounds::Rounds;
use crate::table::{Table, say};
use hdrhistogram::Histogram;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use support::batch_load::{Layout, Load, Shape};
use support::daemon::Topics;
use support::generator::{Generator, Pace, now_us};
use support::kafka::Cluster;
use support::scrape::Page;

/// Microseconds between two requests of the generator: how long a producer gathers.
const TICK_US: u64 = 1_000;

/// Milliseconds that the broker may hold an empty answer to the reader back.
const READ_WAIT_MS: i32 = 50;

/// How long a program may take to start, or to catch up at the end.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Longer latencies count as this one.
pub(crate) const LATENCY_US_MAX: u64 = 600_000_000;

/// The percentiles of the tables and the plots.
pub(crate) const PERCENTILES: [f64; 6] = [50.0, 90.0, 95.0, 99.0, 99.9, 99.99];

/// How long a run lasts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    /// Not measured: compilers that work while a program runs, caches, connections.
    pub warm_up: Duration,
    pub measured: Duration,
}

/// What one program did at one rate.
pub(crate) struct Measured {
    pub program: Program,
    pub rate: u64,
    /// Microseconds from when an event was due until its update was read back.
    pub latency: Histogram<u64>,
    /// Events whose updates were still missing when the last event was sent.
    pub behind: u64,
    /// Events whose updates had not come when the run was over.
    pub missing: u64,
    /// Per million events whose updates came in the measured time, however many were due.
    pub cpu_s_per_million: f64,
    /// Cores that the program, the broker and all of the machine had busy, on average.
    pub cores: Cores,
    pub resident_kib: u64,
    /// The latest request of the generator.
    pub late: Duration,
    pub digest: Option<u64>,
    pub inside: Option<Inside>,
}

/// Cores that were busy, on average over the measured time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cores {
    pub program: f64,
    pub broker: f64,
    /// This process: generator and reader.
    pub bench: f64,
}

impl Measured {
    /// A percentile of the latency in milliseconds.
    pub(crate) fn ms(&self, percentile: f64) -> f64 {
        self.latency.value_at_percentile(percentile) as f64 / 1e3
    }

    /// Whether it kept up: when the last event was sent, less than a second's worth was missing.
    pub(crate) fn keeps_up(&self) -> bool {
        self.behind < self.rate
    }
}

/// The shape of a load at a rate: a request every millisecond, each with a batch for every
/// partition.
pub(crate) fn shape(partitions: usize, players: u64, rate: u64) -> Shape {
    let events = rate * TICK_US / 1_000_000;
    let batch_events = (events as usize / partitions).max(1);
    Shape { partitions, players, rate, batch_events, layout: Layout::Mixed }
}

/// Runs one program at one rate.
pub(crate) fn run(cluster: &Cluster, program: Program, load: &Load, span: Span) -> Measured {
    let topics = Topics::create(cluster, "open-loop", load.shape.partitions as i32);
    let measured = run_on(cluster, program, load, span, &topics);
    cluster.client().delete_topic(&topics.input);
    cluster.client().delete_topic(&topics.output);
    measured
}

/// The times between which events are measured, and the end of everything.
#[derive(Clone, Copy)]
struct Plan {
    ticks_warm: u64,
    ticks: u64,
    events: u64,
}

impl Plan {
    fn new(shape: &Shape, span: Span) -> Plan {
        let ticks = |time: Duration| {
            (time.as_secs_f64() * shape.rate as f64 / shape.tick_events() as f64) as u64
        };
        let (ticks_warm, ticks) = (ticks(span.warm_up), ticks(span.warm_up + span.measured));
        let joins = shape.joins() as u64 * shape.partitions as u64;
        Plan { ticks_warm, ticks, events: ticks * shape.tick_events() + joins }
    }
}

fn run_on(
    cluster: &Cluster,
    program: Program,
    load: &Load,
    span: Span,
    topics: &Topics,
) -> Measured {
    let shape = load.shape;
    let plan = Plan::new(&shape, span);
    let address = cluster.bootstrap();
    let mut running = program.start(&Listener::plaintext(cluster), topics);
    let (pid, metrics) = (running.pid(), running.metrics());
    let mut generator = Generator::new(load, &address, &topics.input, Pace::Intended);
    let mut reader = Reader {
        output: Output::new(&address, &topics.output, shape.partitions, program.output()),
        latency: Histogram::new_with_bounds(1, LATENCY_US_MAX, 3).expect("the bounds are sound"),
        shape,
        warm_us: shape.tick_us(plan.ticks_warm),
        start_us: u64::MAX,
    };
    generator.send_joins(now_us());
    reader.wait_for_joins(program);
    let start_us = now_us() + 10 * TICK_US;
    reader.start_us = start_us;
    let (covered, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let (mut reader, measured) = thread::scope(|scope| {
        let following = scope.spawn(|| {
            reader.follow_until(plan.events, &covered, &is_over);
            reader
        });
        let mut late = generator.send_ticks(start_us, 0..plan.ticks_warm);
        let sample = || metrics.as_ref().map(|address| Inside::of(&Page::of(address), pid));
        let told = || covered.load(Ordering::Relaxed);
        let (from, before) = (Usage::of(pid, cluster, told()), sample());
        let watch = metrics.as_deref().map(Watch::start);
        late = late.max(generator.send_ticks(start_us, plan.ticks_warm..plan.ticks));
        let behind = plan.events - told();
        let (usage, after) = (Usage::of(pid, cluster, told()).since(&from), sample());
        let peaks = watch.map_or_else(Peaks::default, Watch::stop);
        generator.finish();
        let deadline = Instant::now() + patience(program, behind, shape.rate);
        while told() < plan.events && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(20));
        }
        is_over.store(true, Ordering::Relaxed);
        let reader = following.join().expect("the output can be read");
        let inside = after.zip(before).map(|(after, before)| after.since(&before).with(peaks));
        (reader, (late, behind, usage, inside))
    });
    let (late, behind, usage, inside) = measured;
    let missing = plan.events - reader.output.covered();
    assert!(missing == 0 || !program.is_huntd(), "{missing} events were lost");
    reader.count_missing((plan.events / shape.partitions as u64) as i64);
    let resident_kib = memory_kib(pid, "VmRSS:");
    let digest = running.stop(topics.partitions);
    Measured {
        program,
        rate: shape.rate,
        latency: reader.latency,
        behind,
        missing,
        cpu_s_per_million: usage.program_s / (usage.events.max(1) as f64 / 1e6),
        cores: usage.cores(),
        resident_kib,
        late,
        digest,
        inside,
    }
}

/// How long to wait for what is behind: a peer that is far behind will not come to the end in any
/// useful time.
fn patience(program: Program, behind: u64, rate: u64) -> Duration {
    let is_worth_waiting = behind < rate || program.is_huntd();
    if is_worth_waiting { PATIENCE } else { Duration::ZERO }
}

/// CPU seconds so far, or of a time, and what was done by then or in it.
struct Usage {
    at: Instant,
    /// Events whose updates had come.
    events: u64,
    seconds: f64,
    program_s: f64,
    broker_s: f64,
    bench_s: f64,
}

impl Usage {
    fn of(pid: u32, cluster: &Cluster, events: u64) -> Usage {
        let cpu_s = |pid| cpu_ns(pid) as f64 / 1e9;
        Usage {
            at: Instant::now(),
            events,
            seconds: 0.0,
            program_s: cpu_s(pid),
            broker_s: cpu_s(cluster[0].pid().expect("the broker runs")),
            bench_s: cpu_s(std::process::id()),
        }
    }

    fn since(&self, earlier: &Usage) -> Usage {
        Usage {
            at: self.at,
            events: self.events - earlier.events,
            seconds: (self.at - earlier.at).as_secs_f64(),
            program_s: self.program_s - earlier.program_s,
            broker_s: self.broker_s - earlier.broker_s,
            bench_s: self.bench_s - earlier.bench_s,
        }
    }

    fn cores(&self) -> Cores {
        Cores {
            program: self.program_s / self.seconds,
            broker: self.broker_s / self.seconds,
            bench: self.bench_s / self.seconds,
        }
    }
}

/// Reads updates back and times them.
struct Reader {
    output: Output,
    latency: Histogram<u64>,
    shape: Shape,
    /// Events that were due before are not measured.
    warm_us: u64,
    /// When the load begins; its times count from there.
    start_us: u64,
}

impl Reader {
    fn wait_for_joins(&mut self, program: Program) {
        let joins = self.shape.joins() as u64 * self.shape.partitions as u64;
        let deadline = Instant::now() + PATIENCE;
        while self.output.covered() < joins {
            assert!(Instant::now() < deadline, "{} does not begin", program.name());
            self.output.follow(READ_WAIT_MS, |_| {});
        }
    }

    fn follow_until(&mut self, events: u64, covered: &AtomicU64, is_over: &AtomicBool) {
        while self.output.covered() < events && !is_over.load(Ordering::Relaxed) {
            let Reader { output, latency, shape, warm_us, start_us } = self;
            output.follow(READ_WAIT_MS, |step| {
                count(latency, shape, *warm_us, now_us().saturating_sub(*start_us), &step);
            });
            covered.store(output.covered(), Ordering::Relaxed);
        }
    }

    /// What never came is counted as coming now: it took at least so long.
    fn count_missing(&mut self, events_per_partition: i64) {
        let now_us = now_us().saturating_sub(self.start_us);
        for partition in 0..self.shape.partitions {
            let offsets = self.output.covered_of(partition)..events_per_partition;
            let step = Covered { offsets, time_ms: 0 };
            count(&mut self.latency, &self.shape, self.warm_us, now_us, &step);
        }
    }
}

/// Counts the events that one step accounts for, read back at `now_us` of the load.
pub(crate) fn count(
    latency: &mut Histogram<u64>,
    shape: &Shape,
    warm_us: u64,
    now_us: u64,
    step: &Covered,
) {
    for offset in step.offsets.clone() {
        if let Some(due_us) = shape.due_us(offset).filter(|due_us| *due_us >= warm_us) {
            latency.saturating_record(now_us.saturating_sub(due_us));
        }
    }
}

/// The percentiles as points of a plot: place of the percentile, milliseconds.
pub(crate) fn series(all: &[Rounds<Measured>]) -> Vec<Series> {
    let of_program = |Rounds { median: measured, .. }: &Rounds<Measured>| {
        let at = |(place, percentile): (usize, &f64)| (place as f64, measured.ms(*percentile));
        let points = PERCENTILES.iter().enumerate().map(at).collect();
        Series { name: measured.program.name().to_owned(), points }
    };
    all.iter().map(of_program).collect()
}

/// The figures for a program.
pub(crate) fn json(rounds: &Rounds<Measured>) -> serde_json::Value {
    let measured = &rounds.median;
    let percentile = |percentile: &f64| (format!("p{percentile}_ms"), measured.ms(*percentile));
    let percentiles: BTreeMap<String, f64> = PERCENTILES.iter().map(percentile).collect();
    json!({
        "mode": "rate",
        "program": measured.program.name(),
        "rate": measured.rate,
        "latency": percentiles,
        "p99_ms_worst": rounds.worst,
        "p99_ms_best": rounds.best,
        "behind": measured.behind,
        "missing": measured.missing,
        "cpu_s_per_million": measured.cpu_s_per_million,
        "resident_kib": measured.resident_kib,
        "inside": measured.inside.as_ref().map(Inside::json),
    })
}

/// The table of all programs at one rate.
pub(crate) fn print(all: &[Rounds<Measured>]) {
    let medians = || all.iter().map(|rounds| &rounds.median);
    let huntd = medians().find(|measured| measured.program == Program::HuntdJson);
    let huntd = huntd.expect("huntd is always there");
    let rate = format!("{} k events/s", huntd.rate / 1_000);
    let percentiles = PERCENTILES.map(|percentile| format!("p{percentile} ms"));
    let mut headings = vec![rate.as_str()];
    headings.extend(percentiles.iter().map(String::as_str));
    headings.extend(["max ms", "best p99", "worst p99", "x huntd's p50", "p99"]);
    headings.extend(["CPU-s/M events", "x", "RSS MiB", "behind"]);
    let mut table = Table::new(&headings);
    for Rounds { median: measured, worst, best } in all {
        // What had not come when the run was cut counts as coming then: it took at least so long.
        let cut = if measured.missing > 0 { " (cut)" } else { "" };
        let mut row = vec![format!("{}{cut}", measured.program.name())];
        row.extend(PERCENTILES.map(|percentile| format!("{:.2}", measured.ms(percentile))));
        let ratio = |percentile| format!("{:.2}", measured.ms(percentile) / huntd.ms(percentile));
        row.extend([
            format!("{:.1}", measured.latency.max() as f64 / 1e3),
            format!("{best:.2}"),
            format!("{worst:.2}"),
            ratio(50.0),
            ratio(99.0),
            format!("{:.3}", measured.cpu_s_per_million),
            format!("{:.2}", measured.cpu_s_per_million / huntd.cpu_s_per_million),
            (measured.resident_kib / 1024).to_string(),
            format!("{:.2} s", measured.behind as f64 / measured.rate as f64),
        ]);
        table.row(row);
    }
    table.print();
    for measured in medians() {
        let Cores { program, broker, bench } = measured.cores;
        say(&format!(
            "{}: {program:.2} cores, the broker {broker:.2}, generator and reader {bench:.2}; the \
             generator's latest request left {:.1} ms after its time; digest {}",
            measured.program.name(),
            measured.late.as_secs_f64() * 1e3,
            measured.digest.map_or("-".to_owned(), |digest| format!("{digest:016x}")),
        ));
        if let Some(inside) = &measured.inside {
            say(&format!("  inside: {}", inside.sentence()));
        }
    }
}
