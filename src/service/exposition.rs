//! All metrics in Prometheus' text format 0.0.4.
//!
//! Names follow Prometheus' conventions: prefix, base unit, `_total` for counters. No label names a
//! player.

use super::Observed;
use super::process::Process;
use super::{log, reload};
use crate::runtime::wall_clock::unix_ms;
use crate::telemetry::metrics::{Counter, Gauge, Histogram};
use crate::telemetry::progress::{Progress, ShardProgress};
use crate::telemetry::tally::Tally;
use std::fmt::Write;

/// A metric family other than a plain counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Family {
    /// The whole name.
    pub name: &'static str,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    /// The help text.
    pub help: &'static str,
}

/// All families except the plain counters, in the order of the page.
pub const FAMILIES: [Family; 43] = [
    family(
        "huntd_events_applied_total",
        "counter",
        "Events that the engine applied, by partition and type.",
    ),
    family(
        "huntd_events_refused_total",
        "counter",
        "Events that the rules refused, by partition and reason.",
    ),
    family(
        "huntd_events_no_op_total",
        "counter",
        "Events that changed nothing, by partition: a repeated or older seq.",
    ),
    family(
        "huntd_records_rejected_total",
        "counter",
        "Records that are not valid events, by partition and reason.",
    ),
    family("huntd_players", "gauge", "Players in a zone, by partition."),
    family("huntd_hunts", "gauge", "Hunts that run in a zone, by partition."),
    family("huntd_treasures", "gauge", "Treasures in a zone that nobody opened, by partition."),
    family(
        "huntd_fetch_errors_total",
        "counter",
        "Partitions that a broker did not serve in a Fetch, by partition and error.",
    ),
    family("huntd_queue_blocks", "gauge", "Blocks that wait between decoder and engine."),
    family("huntd_queue_blocks_max", "gauge", "Blocks that the queue can hold."),
    family("huntd_connections", "gauge", "Connections to brokers that are open."),
    family("huntd_partitions", "gauge", "Partitions of the input topic; absent while unknown."),
    family("huntd_shards_owned", "gauge", "Shards owned now."),
    family("huntd_shards_halted", "gauge", "Shards that need an operator to continue."),
    family(
        "huntd_shards_still",
        "gauge",
        "1 for a shard that has not moved, or whose frames were not acknowledged, for ten seconds \
         although its log has grown, or may have, by partition; 0 for others.",
    ),
    family(
        "huntd_throttled_seconds_total",
        "counter",
        "Time for which brokers have throttled this client because of a Kafka quota, by partition \
         and by what it holds up: fetch or frames.",
    ),
    family(
        "huntd_end_to_end_seconds",
        "histogram",
        "Time from the ts_us of a frame's newest event to the frame's acknowledgement.",
    ),
    family(
        "huntd_input_seconds",
        "histogram",
        "Time from the ts_us of a frame's newest event to the first byte of the frame's input.",
    ),
    family(
        "huntd_inside_seconds",
        "histogram",
        "Time from the first byte of a frame's input to the frame in the producer's hands.",
    ),
    family(
        "huntd_output_seconds",
        "histogram",
        "Time from the frame in the producer's hands to its acknowledgement.",
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
    family("huntd_ruleset", "gauge", "The current ruleset of a zone, by partition."),
    family(
        "huntd_ruleset_known",
        "gauge",
        "1 for each ruleset that the zones can change to, by ruleset.",
    ),
    family(
        "huntd_lag_records",
        "gauge",
        "Records in the input and in no acknowledged frame, by partition; absent while unknown.",
    ),
    family(
        "huntd_group_lag_records",
        "gauge",
        "Records that the group has not committed, by partition, of every partition; absent while \
         unknown.",
    ),
    family(
        "huntd_partitions_unread",
        "gauge",
        "Partitions not owned here with records, but without a group commit for ten seconds, or \
         without a record in the output for thirty.",
    ),
    family(
        "huntd_lag_seconds",
        "gauge",
        "Age of the newest record that was applied or rejected, or 0 without lag, by partition.",
    ),
    family(
        "huntd_snapshot_timestamp_seconds",
        "gauge",
        "When this process stored its newest snapshot, by partition; absent before the first.",
    ),
    family("huntd_ready", "gauge", "1 while the daemon should get work."),
    family("huntd_reload_refused", "gauge", reload::REFUSED_HELP),
    family("huntd_log_lines_lost_total", "counter", log::LOST_HELP),
    family("huntd_build_info", "gauge", "1, with version and revision as labels."),
    family("process_cpu_seconds_total", "counter", "Time that all threads had a core."),
    family("process_resident_memory_bytes", "gauge", "Memory that is in RAM."),
    family("process_virtual_memory_bytes", "gauge", "Addresses in use."),
    family("process_start_time_seconds", "gauge", "When the process began."),
    family("process_open_fds", "gauge", "Open file descriptors."),
    family("process_max_fds", "gauge", "File descriptors that may be open."),
];

const fn family(name: &'static str, kind: &'static str, help: &'static str) -> Family {
    Family { name, kind, help }
}

const BUILD_LABELS: &str = concat!(
    "{version=\"",
    env!("CARGO_PKG_VERSION"),
    "\",revision=\"",
    env!("HUNTD_REVISION"),
    "\"}"
);

/// Renders the whole page.
pub fn render(observed: &Observed) -> String {
    let mut page = String::with_capacity(16 * 1024);
    for counter in Counter::ALL {
        let name = format!("huntd_{}_total", counter.name());
        head(&mut page, &name, "counter", counter.help());
        line(&mut page, &name, "", observed.metrics.get(counter));
    }
    // Read once per page: querying the kernel takes longer than everything else.
    let (process, hot) = (Process::this(), Schedule::of("hot"));
    for family in FAMILIES {
        let name = family.name;
        head(&mut page, name, family.kind, family.help);
        if name.starts_with("process_") {
            process.iter().for_each(|process| process_value(&mut page, name, process));
        } else if name.starts_with("huntd_hot_") {
            hot.iter().for_each(|schedule| hot_value(&mut page, name, schedule));
        } else {
            values(&mut page, name, observed);
        }
    }
    page
}

fn group_lags(page: &mut String, name: &str, progress: &Progress) {
    for partition in 0..progress.group_lag_partitions.get() as i32 {
        if let Ok(lag) = u64::try_from(progress.shard(partition).group_lag.get()) {
            line(page, name, &format!("{{partition=\"{partition}\"}}"), lag);
        }
    }
}

fn values(page: &mut String, name: &str, observed: &Observed) {
    let Observed { metrics, progress, status } = observed;
    match name {
        "huntd_events_applied_total" => {
            counted(page, name, shown(&metrics.applied, progress), "type");
        }
        "huntd_events_refused_total" => counted(page, name, above_0(&metrics.refusals), "reason"),
        "huntd_events_no_op_total" => {
            for (partition, _, count) in shown(&metrics.no_ops, progress) {
                line(page, name, &format!("{{partition=\"{partition}\"}}"), count);
            }
        }
        "huntd_records_rejected_total" => {
            counted(page, name, shown(&metrics.rejects, progress), "reason");
        }
        "huntd_players" => by_partition(page, name, progress, |shard| Some(shard.players.get())),
        "huntd_hunts" => by_partition(page, name, progress, |shard| Some(shard.hunts.get())),
        "huntd_treasures" => {
            by_partition(page, name, progress, |shard| Some(shard.treasures.get()));
        }
        "huntd_fetch_errors_total" => counted(page, name, above_0(&metrics.fetch_errors), "error"),
        "huntd_queue_blocks" => line(page, name, "", metrics.gauge(Gauge::QueueBlocks)),
        "huntd_queue_blocks_max" => line(page, name, "", metrics.gauge(Gauge::QueueBlocksMax)),
        "huntd_connections" => line(page, name, "", metrics.gauge(Gauge::Connections)),
        "huntd_partitions" => {
            let known = Some(metrics.gauge(Gauge::Partitions)).filter(|count| *count > 0);
            known.into_iter().for_each(|count| line(page, name, "", count));
        }
        "huntd_shards_owned" => line(page, name, "", progress.played()),
        "huntd_shards_halted" => line(page, name, "", u64::from(status.trouble().halted)),
        "huntd_shards_still" => {
            by_partition(page, name, progress, |shard| Some(shard.still.get()));
        }
        "huntd_throttled_seconds_total" => throttled(page, name, progress),
        "huntd_end_to_end_seconds" => histogram(page, name, &metrics.end_to_end),
        "huntd_input_seconds" => histogram(page, name, &metrics.input),
        "huntd_inside_seconds" => histogram(page, name, &metrics.inside),
        "huntd_output_seconds" => histogram(page, name, &metrics.output),
        "huntd_in_flight_bytes" => line(page, name, "", metrics.gauge(Gauge::InFlightBytes)),
        "huntd_progress_offset" => stages(page, name, progress),
        "huntd_updates_next" => {
            by_partition(page, name, progress, |shard| Some(shard.next_update.get()));
        }
        "huntd_ruleset" => {
            by_partition(page, name, progress, |shard| Some(shard.ruleset.get()));
        }
        "huntd_ruleset_known" => {
            for ruleset in progress.rulesets() {
                line(page, name, &format!("{{ruleset=\"{ruleset}\"}}"), 1);
            }
        }
        "huntd_lag_records" => {
            by_partition(page, name, progress, |shard| shard.lag().map(i64::cast_unsigned));
        }
        "huntd_group_lag_records" => group_lags(page, name, progress),
        "huntd_partitions_unread" => line(page, name, "", progress.unread_partitions.get()),
        "huntd_lag_seconds" => {
            let now_ms = unix_ms();
            by_partition(page, name, progress, |shard| lag_seconds(shard, now_ms));
        }
        "huntd_snapshot_timestamp_seconds" => by_partition(page, name, progress, |shard| {
            let at_ms = shard.snapshot_at_ms.get();
            (at_ms > 0).then(|| at_ms.cast_unsigned() / 1000)
        }),
        "huntd_ready" => line(page, name, "", u64::from(status.unready().is_empty())),
        "huntd_reload_refused" | "huntd_log_lines_lost_total" => process_wide(page, name),
        "huntd_build_info" => line(page, name, BUILD_LABELS, 1),
        _ => unreachable!("the list of families is closed"),
    }
}

/// Metrics of the process, daemon or server.
fn process_wide(page: &mut String, name: &str) {
    let value = match name {
        "huntd_reload_refused" => u64::from(reload::is_refused()),
        _ => log::lost_lines(),
    };
    line(page, name, "", value);
}

fn head(page: &mut String, name: &str, kind: &str, help: &str) {
    writeln!(page, "# HELP {name} {help}\n# TYPE {name} {kind}").expect("a string takes it");
}

fn line(page: &mut String, name: &str, labels: &str, value: u64) {
    writeln!(page, "{name}{labels} {value}").expect("a string takes it");
}

/// Counts since the process began, including partitions that are no longer owned: a counter that
/// came and went would lose counts. Counters of owned partitions start at 0, because `rate` and
/// `increase`, which alerts use, ignore the first value of a series.
fn shown<'a>(
    tally: &'a Tally,
    progress: &'a Progress,
) -> impl Iterator<Item = (i32, &'static str, u64)> + 'a {
    let is_shown = |partition: i32, count| count > 0 || progress.shard(partition).is_owned();
    tally.counts().filter(move |(partition, _, count)| is_shown(*partition, *count))
}

/// Non-zero counts since the process began, for long lists of names that no alert uses.
fn above_0(tally: &Tally) -> impl Iterator<Item = (i32, &'static str, u64)> {
    tally.counts().filter(|(.., count)| *count > 0)
}

fn counted(
    page: &mut String,
    name: &str,
    counts: impl Iterator<Item = (i32, &'static str, u64)>,
    label: &str,
) {
    for (partition, of, count) in counts {
        line(page, name, &format!("{{partition=\"{partition}\",{label}=\"{of}\"}}"), count);
    }
}

/// The age of the newest record that was applied or rejected; 0 without lag.
fn lag_seconds(shard: &ShardProgress, now_ms: i64) -> Option<u64> {
    let applied_ms = shard.applied_time_ms.get();
    match shard.lag()? {
        0 => Some(0),
        _ if applied_ms == 0 => None,
        _ => Some(now_ms.saturating_sub(applied_ms).max(0).cast_unsigned() / 1000),
    }
}

fn process_value(page: &mut String, name: &str, process: &Process) {
    let value = match name {
        "process_cpu_seconds_total" => {
            return writeln!(page, "{name} {}", seconds(process.cpu_ms * 1000))
                .expect("a string takes it");
        }
        "process_resident_memory_bytes" => Some(process.resident_bytes),
        "process_virtual_memory_bytes" => Some(process.virtual_bytes),
        "process_start_time_seconds" => Some(process.start_time_s),
        "process_open_fds" => process.open_fds,
        "process_max_fds" => process.max_fds,
        _ => unreachable!("the list of families is closed"),
    };
    value.into_iter().for_each(|value| line(page, name, "", value));
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

fn throttled(page: &mut String, name: &str, progress: &Progress) {
    for (partition, shard) in progress.owned() {
        let held_up =
            [("fetch", &shard.fetch_throttled_ms), ("frames", &shard.frames_throttled_ms)];
        for (what, ms) in held_up {
            let time = seconds(ms.get() * 1_000);
            writeln!(page, "{name}{{partition=\"{partition}\",what=\"{what}\"}} {time}")
                .expect("a string takes it");
        }
    }
}

/// Cumulative buckets in seconds, the base unit. The count is the sum of the buckets read, so that
/// a page is consistent while the writer continues.
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

/// Formats microseconds as seconds, exactly.
fn seconds(us: u64) -> String {
    format!("{}.{:06}", us / 1_000_000, us % 1_000_000)
}

/// The kernel scheduler's counters of the hot thread, while it runs.
fn hot_value(page: &mut String, name: &str, schedule: &Schedule) {
    let Schedule([ran_ns, waited_ns, times]) = schedule;
    let value = match name {
        "huntd_hot_cpu_seconds_total" => seconds(ran_ns / 1_000),
        "huntd_hot_waiting_seconds_total" => seconds(waited_ns / 1_000),
        "huntd_hot_scheduled_total" => times.to_string(),
        _ => unreachable!("the list of families is closed"),
    };
    writeln!(page, "{name} {value}").expect("a string takes it");
}

/// A thread's line in `/proc/self/task/*/schedstat`: nanoseconds on a core, nanoseconds waiting for
/// one, and the number of times that it was scheduled.
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
}
