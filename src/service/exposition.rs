//! Everything that is measured, in Prometheus' text format 0.0.4.
//!
//! Names follow its conventions: prefix, base unit, `_total` for counters. No label names a player.

use super::Observed;
use crate::telemetry::metrics::{Counter, Gauge, Histogram, Reasons};
use crate::telemetry::progress::{Progress, ShardProgress};
use std::fmt::Write;
use std::time::SystemTime;

/// One metric family beside the plain counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Family {
    /// The whole name.
    pub name: &'static str,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    /// What its value means.
    pub help: &'static str,
}

/// All families but the plain counters, in the order of the page.
pub const FAMILIES: [Family; 22] = [
    family("huntd_refusals_total", "counter", "Events that the rules refused, by reason."),
    family("huntd_rejects_total", "counter", "Records that are no valid event, by reason."),
    family(
        "huntd_fetch_errors_total",
        "counter",
        "Partitions that a broker did not serve in a Fetch, by its error.",
    ),
    family("huntd_queue_blocks", "gauge", "Blocks that wait between decoder and engine."),
    family("huntd_queue_blocks_max", "gauge", "Blocks that the queue can hold."),
    family("huntd_connections", "gauge", "Connections to brokers that are open."),
    family("huntd_shards_owned", "gauge", "Shards owned now."),
    family("huntd_shards_halted", "gauge", "Shards that cannot go on without an operator."),
    family(
        "huntd_end_to_end_seconds",
        "histogram",
        "Time from the ts_us of a frame's newest event to the frame's acknowledgement.",
    ),
    family(
        "huntd_inside_seconds",
        "histogram",
        "Time from the first byte of a frame's input to the frame in librdkafka's hands.",
    ),
    family(
        "huntd_in_flight_bytes",
        "gauge",
        "Bytes of encoded frames that wait for their acknowledgement.",
    ),
    family("huntd_hot_cpu_seconds_total", "counter", "Time that the hot thread had a core."),
    family(
        "huntd_hot_waiting_seconds_total",
        "counter",
        "Time that the hot thread waited for one.",
    ),
    family("huntd_hot_scheduled_total", "counter", "How often the hot thread was given a core."),
    family(
        "huntd_progress_offset",
        "gauge",
        "Next input offset that a stage has not seen, by partition and stage.",
    ),
    family("huntd_updates_next", "gauge", "Number of a partition's next update."),
    family("huntd_ruleset", "gauge", "The rules that a zone goes by, by partition: their ruleset."),
    family(
        "huntd_lag_records",
        "gauge",
        "Records in the input and in no acknowledged frame, by partition; absent while unknown.",
    ),
    family(
        "huntd_snapshot_age_seconds",
        "gauge",
        "Age of the newest snapshot of this process, by partition; absent before the first.",
    ),
    family("huntd_ready", "gauge", "1 while the daemon should get work."),
    family("huntd_resident_memory_bytes", "gauge", "Memory of the process that is in RAM."),
    family("huntd_build_info", "gauge", "1, with the version as a label."),
];

const fn family(name: &'static str, kind: &'static str, help: &'static str) -> Family {
    Family { name, kind, help }
}

/// Renders the whole page.
pub fn render(observed: &Observed) -> String {
    let mut page = String::with_capacity(16 * 1024);
    for counter in Counter::ALL {
        let name = format!("huntd_{}_total", counter.name());
        head(&mut page, &name, "counter", counter.help());
        line(&mut page, &name, "", observed.metrics.get(counter));
    }
    for family in FAMILIES {
        head(&mut page, family.name, family.kind, family.help);
        values(&mut page, family.name, observed);
    }
    page
}

fn values(page: &mut String, name: &str, observed: &Observed) {
    let Observed { metrics, progress, status } = observed;
    match name {
        "huntd_refusals_total" => reasons(page, name, &metrics.refusals),
        "huntd_rejects_total" => reasons(page, name, &metrics.rejects),
        "huntd_fetch_errors_total" => reasons(page, name, &metrics.fetch_errors),
        "huntd_queue_blocks" => line(page, name, "", metrics.gauge(Gauge::QueueBlocks)),
        "huntd_queue_blocks_max" => line(page, name, "", metrics.gauge(Gauge::QueueBlocksMax)),
        "huntd_connections" => line(page, name, "", metrics.gauge(Gauge::Connections)),
        "huntd_shards_owned" => line(page, name, "", progress.owned().count() as u64),
        "huntd_shards_halted" => line(page, name, "", u64::from(status.halted_shards())),
        "huntd_end_to_end_seconds" => histogram(page, name, &metrics.end_to_end),
        "huntd_inside_seconds" => histogram(page, name, &metrics.inside),
        "huntd_in_flight_bytes" => line(page, name, "", metrics.gauge(Gauge::InFlightBytes)),
        "huntd_hot_cpu_seconds_total" => hot(page, name, Schedule::ran),
        "huntd_hot_waiting_seconds_total" => hot(page, name, Schedule::waited),
        "huntd_hot_scheduled_total" => hot(page, name, Schedule::times),
        "huntd_progress_offset" => stages(page, name, progress),
        "huntd_updates_next" => {
            by_partition(page, name, progress, |shard| Some(shard.next_update.get()));
        }
        "huntd_ruleset" => {
            by_partition(page, name, progress, |shard| Some(shard.ruleset.get()));
        }
        "huntd_lag_records" => {
            by_partition(page, name, progress, |shard| shard.lag().map(i64::cast_unsigned));
        }
        "huntd_snapshot_age_seconds" => {
            let now_ms = unix_ms();
            by_partition(page, name, progress, |shard| {
                let at_ms = shard.snapshot_at_ms.get();
                (at_ms > 0).then(|| (now_ms - at_ms).max(0).cast_unsigned() / 1000)
            });
        }
        "huntd_ready" => line(page, name, "", u64::from(status.unready().is_none())),
        "huntd_resident_memory_bytes" => {
            if let Some(bytes) = resident_bytes() {
                line(page, name, "", bytes);
            }
        }
        "huntd_build_info" => {
            line(page, name, concat!("{version=\"", env!("CARGO_PKG_VERSION"), "\"}"), 1);
        }
        _ => unreachable!("the list of families is closed"),
    }
}

fn head(page: &mut String, name: &str, kind: &str, help: &str) {
    writeln!(page, "# HELP {name} {help}\n# TYPE {name} {kind}").expect("a string takes it");
}

fn line(page: &mut String, name: &str, labels: &str, value: u64) {
    writeln!(page, "{name}{labels} {value}").expect("a string takes it");
}

fn reasons(page: &mut String, name: &str, reasons: &Reasons) {
    for (reason, count) in reasons.iter() {
        line(page, name, &format!("{{reason=\"{reason}\"}}"), count);
    }
}

fn by_partition(
    page: &mut String,
    name: &str,
    progress: &Progress,
    value: impl Fn(&ShardProgress) -> Option<u64>,
) {
    for (partition, shard) in progress.owned() {
        if let Some(value) = value(shard) {
            line(page, name, &format!("{{partition=\"{partition}\"}}"), value);
        }
    }
}

fn stages(page: &mut String, name: &str, progress: &Progress) {
    for (partition, shard) in progress.owned() {
        let stages = [
            ("fetched", &shard.fetched),
            ("decoded", &shard.decoded),
            ("applied", &shard.applied),
            ("published", &shard.published),
            ("acked", &shard.acked),
        ];
        for (stage, offset) in stages {
            let labels = format!("{{partition=\"{partition}\",stage=\"{stage}\"}}");
            line(page, name, &labels, offset.get().max(0).cast_unsigned());
        }
    }
}

/// Cumulative buckets in seconds, the base unit. The count is the sum of the buckets that were
/// read, so that a page agrees with itself while the writer goes on.
fn histogram(page: &mut String, name: &str, histogram: &Histogram) {
    let mut count = 0;
    for (bucket, events) in histogram.counts().into_iter().enumerate() {
        count += events;
        let bound = match Histogram::upper_us(bucket) {
            Some(us) => seconds(us),
            None => "+Inf".to_owned(),
        };
        line(page, &format!("{name}_bucket"), &format!("{{le=\"{bound}\"}}"), count);
    }
    let sum = seconds(histogram.sum_us());
    writeln!(page, "{name}_sum {sum}").expect("a string takes it");
    line(page, &format!("{name}_count"), "", count);
}

/// Microseconds as seconds, exactly.
fn seconds(us: u64) -> String {
    format!("{}.{:06}", us / 1_000_000, us % 1_000_000)
}

/// What the kernel's scheduler tells of the hot thread, while there is one.
fn hot(page: &mut String, name: &str, value: impl Fn(&Schedule) -> String) {
    if let Some(schedule) = Schedule::of("hot") {
        writeln!(page, "{name} {}", value(&schedule)).expect("a string takes it");
    }
}

/// A thread's line in `/proc/self/task/*/schedstat`: nanoseconds with a core, nanoseconds of
/// waiting for one, and how often it was given one.
struct Schedule([u64; 3]);

impl Schedule {
    fn of(thread: &str) -> Option<Schedule> {
        let mut tasks = std::fs::read_dir("/proc/self/task").ok()?.filter_map(Result::ok);
        let is_named = |name: String| name.trim_end() == thread;
        let task = tasks
            .find(|task| std::fs::read_to_string(task.path().join("comm")).is_ok_and(is_named))?;
        let line = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        let mut numbers = line.split_whitespace().map_while(|number| number.parse().ok());
        Some(Schedule([numbers.next()?, numbers.next()?, numbers.next()?]))
    }

    fn ran(&self) -> String {
        seconds(self.0[0] / 1_000)
    }

    fn waited(&self) -> String {
        seconds(self.0[1] / 1_000)
    }

    fn times(&self) -> String {
        self.0[2].to_string()
    }
}

/// Milliseconds since the Unix epoch.
fn unix_ms() -> i64 {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since_epoch.map_or(0, |elapsed| elapsed.as_millis() as i64)
}

/// `VmRSS` of proc_pid_status(5).
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kbytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kbytes * 1024)
}
