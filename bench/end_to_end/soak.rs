//! A soak: huntd at a fixed rate for a long time, and whether its memory, its hot thread's
//! allocations or its latency grow meanwhile.

use crate::inside::{Inside, Peaks};
use crate::open_loop::{self, LATENCY_US_MAX, PATIENCE};
use crate::output::Output;
use crate::plot::{self, Axis, Series};
use crate::programs::{Listener, Program, memory_kib};
use crate::table::say;
use hdrhistogram::Histogram;
use serde_json::json;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use support::batch_load::Load;
use support::daemon::Topics;
use support::generator::{Generator, Pace, now_us};
use support::kafka::{Cluster, unique_name};
use support::scrape::Page;

/// Bytes of a partition that the broker keeps: without a bound a soak fills the disk.
const RETENTION_BYTES: &str = "268435456";
const SEGMENT_BYTES: &str = "67108864";

/// Time between two samples of the process, and of one latency figure.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Of the time, the part at the beginning that the slope leaves out: tables and pools fill.
const WARM_UP: f64 = 0.1;

/// Means over so many parts are what the slope is fitted to: samples a second apart are not
/// independent of each other.
const PARTS: usize = 20;

/// Student's t for 95 % and 18 degrees of freedom, that is 20 parts and two parameters.
const STUDENT_T: f64 = 2.101;

/// What was seen.
pub(crate) struct Soaked {
    rate: u64,
    events: u64,
    /// Seconds from the first event to the last.
    sent_s: f64,
    /// How long after its time the latest request left.
    late: Duration,
    /// What huntd told of itself at the end, since the first event.
    inside: Inside,
    digest: u64,
    /// All events' latencies in microseconds.
    latency: Histogram<u64>,
    /// Seconds and KiB of resident memory.
    resident: Points,
    /// Seconds and the hot thread's allocations.
    allocations: Points,
    /// Seconds and milliseconds.
    p50: Points,
    p99: Points,
}

/// Runs huntd for so long.
pub(crate) fn soak(cluster: &Cluster, load: &Load, time: Duration) -> Soaked {
    let shape = load.shape;
    let topics = create_topics(cluster, shape.partitions as i32);
    let address = cluster.bootstrap();
    let mut running = Program::HuntdJson.start(&Listener::plaintext(cluster), &topics);
    let (pid, metrics) = (running.pid(), running.metrics().expect("huntd has metrics"));
    let mut output =
        Output::new(&address, &topics.output, shape.partitions, Program::HuntdJson.output());
    let mut generator = Generator::new(load, &address, &topics.input, Pace::Intended);
    generator.send_joins(now_us());
    let joins = shape.joins() as u64 * shape.partitions as u64;
    while output.covered() < joins {
        output.follow(50, |_| {});
    }
    let ticks = (time.as_secs_f64() * shape.rate as f64 / shape.tick_events() as f64) as u64;
    let events = joins + ticks * shape.tick_events();
    let sample = || Inside::of(&Page::of(&metrics), pid);
    let (mut resident, mut allocations) = (Vec::new(), Vec::new());
    let (before, mut peaks) = (sample(), Peaks::default());
    let start_us = now_us();
    let is_sent = AtomicBool::new(false);
    let (sent_s, late, read) = thread::scope(|scope| {
        let sending = scope.spawn(|| {
            let late = generator.send_ticks(start_us, 0..ticks);
            generator.finish();
            is_sent.store(true, Ordering::Relaxed);
            (now_us().saturating_sub(start_us) as f64 / 1e6, late)
        });
        let reading =
            scope.spawn(|| Latencies::read(&mut output, load, start_us, events, &is_sent));
        let start = Instant::now();
        while !is_sent.load(Ordering::Relaxed) {
            thread::sleep(POLL_INTERVAL);
            let seconds = start.elapsed().as_secs_f64();
            let kib = memory_kib(pid, "VmRSS:") as f64;
            let page = Page::of(&metrics);
            peaks.sample(&page);
            let count = page.value("huntd_hot_allocations_total");
            resident.push((seconds, kib));
            allocations.push((seconds, count as f64));
            if resident.len().is_multiple_of(60) {
                say(&format!("soak, {seconds:.0} s: resident {:.1} MiB", kib / 1024.0));
            }
        }
        let (sent_s, late) = sending.join().expect("the broker has taken everything");
        (sent_s, late, reading.join().expect("the output can be read"))
    });
    let inside = sample().since(&before).with(peaks);
    let digest = running.stop(topics.partitions).expect("huntd tells its digest");
    let Latencies { all: latency, p50, p99 } = read;
    let soaked = Soaked {
        rate: shape.rate,
        events,
        sent_s,
        late,
        inside,
        digest,
        latency,
        resident,
        allocations,
        p50,
        p99,
    };
    soaked.print();
    soaked
}

fn create_topics(cluster: &Cluster, partitions: i32) -> Topics {
    let input = unique_name("soak");
    let topics = Topics {
        output: format!("{input}-updates"),
        dead_letters: format!("{input}-dead"),
        input,
        partitions,
    };
    let bounded = [("retention.bytes", RETENTION_BYTES), ("segment.bytes", SEGMENT_BYTES)];
    let client = cluster.client();
    client.create_topic(&topics.input, partitions, &bounded);
    client.create_topic(&topics.output, partitions, &bounded);
    client.create_topic(&topics.dead_letters, 1, &[]);
    topics
}

type Points = Vec<(f64, f64)>;

/// What a reader of the output has seen.
struct Latencies {
    all: Histogram<u64>,
    /// The median and the 99th percentile of each second, in milliseconds.
    p50: Points,
    p99: Points,
}

impl Latencies {
    /// Follows the output until it accounts for so many events: none may be missing.
    fn read(
        output: &mut Output,
        load: &Load,
        start_us: u64,
        events: u64,
        is_sent: &AtomicBool,
    ) -> Latencies {
        let bounds = Histogram::<u64>::new_with_bounds(1, LATENCY_US_MAX, 3);
        let mut second = bounds.expect("the bounds are sound");
        let mut read = Latencies { all: second.clone(), p50: Vec::new(), p99: Vec::new() };
        let start = Instant::now();
        let (mut next, mut deadline) = (POLL_INTERVAL, None);
        while output.covered() < events {
            if is_sent.load(Ordering::Relaxed) {
                let deadline = *deadline.get_or_insert_with(|| Instant::now() + PATIENCE);
                let missing = events - output.covered();
                assert!(Instant::now() < deadline, "{missing} events were lost");
            }
            output.follow(50, |step| {
                let now_us = now_us().saturating_sub(start_us);
                open_loop::count(&mut second, &load.shape, 0, now_us, &step);
            });
            if next <= start.elapsed() {
                let seconds = start.elapsed().as_secs_f64();
                let ms = |percentile| second.value_at_percentile(percentile) as f64 / 1e3;
                read.p50.push((seconds, ms(50.0)));
                read.p99.push((seconds, ms(99.0)));
                read.all.add(&second).expect("both have the same bounds");
                second.reset();
                next += POLL_INTERVAL;
            }
        }
        read.all.add(&second).expect("both have the same bounds");
        read
    }
}

/// A straight line through points: its rise per hour, and half the width of the interval in which
/// the true rise lies with 95 %.
struct Slope {
    per_hour: f64,
    error: f64,
}

impl Slope {
    /// `None`: there are too few points.
    fn of(points: &[(f64, f64)]) -> Option<Slope> {
        let settled = &points[(points.len() as f64 * WARM_UP) as usize..];
        let size = settled.len() / PARTS;
        if size == 0 {
            return None;
        }
        let mean = |values: &mut dyn Iterator<Item = f64>| values.sum::<f64>();
        let parts: Vec<(f64, f64)> = settled
            .chunks_exact(size)
            .take(PARTS)
            .map(|part| {
                let x = mean(&mut part.iter().map(|point| point.0)) / size as f64;
                let y = mean(&mut part.iter().map(|point| point.1)) / size as f64;
                (x / 3_600.0, y)
            })
            .collect();
        let count = parts.len() as f64;
        let x_mean = parts.iter().map(|part| part.0).sum::<f64>() / count;
        let y_mean = parts.iter().map(|part| part.1).sum::<f64>() / count;
        let xx: f64 = parts.iter().map(|part| (part.0 - x_mean).powi(2)).sum();
        let xy: f64 = parts.iter().map(|part| (part.0 - x_mean) * (part.1 - y_mean)).sum();
        let per_hour = xy / xx;
        let rest = |part: &(f64, f64)| part.1 - y_mean - per_hour * (part.0 - x_mean);
        let rests: f64 = parts.iter().map(|part| rest(part).powi(2)).sum();
        let error = STUDENT_T * (rests / (count - 2.0) / xx).sqrt();
        Some(Slope { per_hour, error })
    }

    fn sentence(&self, unit: &str) -> String {
        let Slope { per_hour, error } = *self;
        let verdict = if per_hour.abs() <= error { "not distinguishable from 0" } else { "not 0" };
        format!("{per_hour:+.1} +- {error:.1} {unit} an hour (95 %): {verdict}")
    }
}

impl Soaked {
    fn print(&self) {
        let mib = |kib: f64| kib / 1024.0;
        let resident = self.resident.iter().map(|point| point.1);
        let ms = |percentile| self.latency.value_at_percentile(percentile) as f64 / 1e3;
        say(&format!(
            "soak: {} events in {:.0} s, {:.0} a second, none lost; the latest request left \
             {:.1} ms after its time; digest {:016x}",
            self.events,
            self.sent_s,
            self.events as f64 / self.sent_s,
            self.late.as_secs_f64() * 1e3,
            self.digest
        ));
        say(&format!(
            "  resident {:.1} MiB at first, {:.1} at the end, {:.1} at most",
            mib(resident.clone().next().unwrap_or(0.0)),
            mib(resident.clone().next_back().unwrap_or(0.0)),
            mib(resident.fold(0.0, f64::max))
        ));
        say(&format!(
            "  latency p50 {:.2}, p99 {:.2}, p99.9 {:.2}, max {:.1} ms",
            ms(50.0),
            ms(99.0),
            ms(99.9),
            self.latency.max() as f64 / 1e3
        ));
        say(&format!("  inside: {}", self.inside.sentence()));
        for (name, unit, points) in self.figures() {
            match Slope::of(points) {
                Some(slope) => say(&format!("  {name}: {}", slope.sentence(unit))),
                None => say(&format!("  {name}: too short for a slope")),
            }
        }
    }

    fn figures(&self) -> [(&'static str, &'static str, &Points); 4] {
        [
            ("resident memory", "KiB", &self.resident),
            ("hot thread's allocations", "calls", &self.allocations),
            ("latency p50", "ms", &self.p50),
            ("latency p99", "ms", &self.p99),
        ]
    }

    /// Draws memory and latency over time.
    pub(crate) fn plot(&self, file: &Path) {
        let seconds = self.resident.last().map_or(1.0, |point| point.0);
        let minutes = |points: &Points, scale: f64| -> Points {
            points.iter().map(|point| (point.0 / 60.0, point.1 / scale)).collect()
        };
        let series = [
            Series { name: "resident MiB".to_owned(), points: minutes(&self.resident, 1024.0) },
            Series { name: "p99 ms".to_owned(), points: minutes(&self.p99, 1.0) },
            Series { name: "p50 ms".to_owned(), points: minutes(&self.p50, 1.0) },
        ];
        let x = Axis::linear("minutes", seconds / 60.0);
        let y = Axis::logarithmic("MiB, ms");
        plot::write(file, &format!("huntd at {} events/s", self.rate), &x, &y, &series);
    }

    /// The figures.
    pub(crate) fn json(&self) -> serde_json::Value {
        let slope = |points: &Points| {
            Slope::of(points).map(|slope| json!({"per_hour": slope.per_hour, "error": slope.error}))
        };
        json!({
            "mode": "soak",
            "rate": self.rate,
            "resident_kib": self.resident,
            "resident_kib_slope": slope(&self.resident),
            "allocations_slope": slope(&self.allocations),
            "p50_ms_slope": slope(&self.p50),
            "p99_ms_slope": slope(&self.p99),
            "p50_ms": self.p50,
            "p99_ms": self.p99,
            "events": self.events,
            "late_ms": self.late.as_secs_f64() * 1e3,
            "digest": format!("{:016x}", self.digest),
        })
    }
}
