//! The metrics of `huntd run`.
//!
//! Names follow Prometheus' conventions: prefix, base unit, `_total` for counters. No label names a
//! player.

use super::Observed;
use super::process::Process;
use super::{log, reload};
use crate::runtime::wall_clock::unix_ms;
use crate::telemetry::metrics::{Counter, Gauge};
use crate::telemetry::metrics_page::{COUNTER, GAUGE, MetricsPage, Seconds};
use crate::telemetry::progress::{Progress, ShardProgress};
use crate::telemetry::tally::Tally;

/// Renders the whole page.
pub fn render(observed: &Observed) -> String {
    let mut page = MetricsPage::new();
    for counter in Counter::ALL {
        let name = format!("huntd_{}_total", counter.name());
        page.family(&name, COUNTER, counter.help()).value(observed.metrics.get(counter));
    }
    write_game(&mut page, observed);
    write_pipeline(&mut page, observed);
    write_latencies(&mut page, observed);
    write_shards(&mut page, &observed.progress);
    write_process(&mut page, observed);
    page.into_text()
}

/// The outcomes of events, and the counts of the zones.
fn write_game(page: &mut MetricsPage, Observed { metrics, progress, .. }: &Observed) {
    page.family(
        "huntd_events_applied_total",
        COUNTER,
        "Events that the engine applied, by partition and type.",
    )
    .counted("type", shown(&metrics.applied, progress));
    page.family(
        "huntd_events_refused_total",
        COUNTER,
        "Events that the rules refused, by partition and reason.",
    )
    .counted("reason", above_0(&metrics.refusals));
    page.family(
        "huntd_events_no_op_total",
        COUNTER,
        "Events that changed nothing, by partition: a repeated or older seq.",
    );
    for (partition, _, count) in shown(&metrics.no_ops, progress) {
        page.of_partition(partition, count);
    }
    page.family(
        "huntd_records_rejected_total",
        COUNTER,
        "Records that are not valid events, by partition and reason.",
    )
    .counted("reason", shown(&metrics.rejects, progress));
    for (number, (name, help)) in metrics.zone_counts.iter().enumerate() {
        page.family(&format!("huntd_{name}"), GAUGE, help)
            .by_partition(progress, |shard| Some(shard.counts[number].get()));
    }
}

/// From the brokers to the engine.
fn write_pipeline(page: &mut MetricsPage, Observed { metrics, progress, status }: &Observed) {
    page.family(
        "huntd_fetch_errors_total",
        COUNTER,
        "Partitions that a broker did not serve in a Fetch, by partition and error.",
    )
    .counted("error", above_0(&metrics.fetch_errors));
    page.family("huntd_queue_blocks", GAUGE, "Blocks that wait between decoder and engine.")
        .value(metrics.gauge(Gauge::QueueBlocks));
    page.family("huntd_queue_blocks_max", GAUGE, "Blocks that the queue can hold.")
        .value(metrics.gauge(Gauge::QueueBlocksMax));
    page.family("huntd_connections", GAUGE, "Connections to brokers that are open.")
        .value(metrics.gauge(Gauge::Connections));
    let partitions = metrics.gauge(Gauge::Partitions);
    page.family("huntd_partitions", GAUGE, "Partitions of the input topic; absent while unknown.")
        .value_if((partitions > 0).then_some(partitions));
    page.family("huntd_shards_owned", GAUGE, "Shards owned now.").value(progress.played());
    page.family(
        "huntd_shard_owned",
        GAUGE,
        "1 for a shard that this instance owns, 0 for one that follows another owner, by \
         partition.",
    )
    .by_partition(progress, |shard| Some(shard.is_played().into()));
    page.family(
        "huntd_copies",
        GAUGE,
        "Copies of zones that other instances own, also those that begin again after a failure.",
    )
    .value(metrics.gauge(Gauge::Copies));
    page.family("huntd_copies_warm", GAUGE, "Copies that could take their zone over now.")
        .value(metrics.gauge(Gauge::WarmCopies));
    page.family("huntd_shards_halted", GAUGE, "Shards that need an operator to continue.")
        .value(status.trouble().halted);
    page.family(
        "huntd_shards_still",
        GAUGE,
        "1 for a shard that has not moved, or whose frames were not acknowledged, for ten seconds \
         although its log has grown, or may have, by partition; 0 for others.",
    )
    .by_partition(progress, |shard| Some(shard.still.get()));
    page.family(
        "huntd_throttled_seconds_total",
        COUNTER,
        "Time for which brokers have throttled this client because of a Kafka quota, by partition \
         and by what it holds up: fetch or frames.",
    );
    for (partition, shard) in progress.all() {
        let times = [("fetch", &shard.fetch_throttled_ms), ("frames", &shard.frames_throttled_ms)];
        for (what, ms) in times.map(|(what, ms)| (what, ms.get())) {
            if is_shown(shard, ms) {
                let labels = format_args!("partition=\"{partition}\",what=\"{what}\"");
                page.labelled(labels, Seconds { us: ms * 1_000 });
            }
        }
    }
}

/// How long events take, and what the hot thread takes for them.
fn write_latencies(page: &mut MetricsPage, Observed { metrics, .. }: &Observed) {
    page.histogram(
        "huntd_end_to_end_seconds",
        "Time from the ts_us of a frame's newest event to the frame's acknowledgement.",
        &metrics.end_to_end,
    );
    page.histogram(
        "huntd_input_seconds",
        "Time from the ts_us of a frame's newest event to the first byte of the frame's input.",
        &metrics.input,
    );
    page.histogram(
        "huntd_inside_seconds",
        "Time from the first byte of a frame's input to the frame in the producer's hands.",
        &metrics.inside,
    );
    page.histogram(
        "huntd_output_seconds",
        "Time from the frame in the producer's hands to its acknowledgement.",
        &metrics.output,
    );
    page.family(
        "huntd_in_flight_bytes",
        GAUGE,
        "Bytes of encoded frames that wait for their acknowledgement.",
    )
    .value(metrics.gauge(Gauge::InFlightBytes));
    let [ran, waited, times] = schedule_of("hot").map_or([None; 3], |all| all.map(Some));
    page.family("huntd_hot_cpu_seconds_total", COUNTER, "Time that the hot thread had a core.")
        .value_if(ran.map(|ns| Seconds { us: ns / 1_000 }));
    page.family(
        "huntd_hot_waiting_seconds_total",
        COUNTER,
        "Time that the hot thread waited for one.",
    )
    .value_if(waited.map(|ns| Seconds { us: ns / 1_000 }));
    page.family("huntd_hot_scheduled_total", COUNTER, "How often the hot thread was given a core.")
        .value_if(times);
}

/// How far each shard is.
fn write_shards(page: &mut MetricsPage, progress: &Progress) {
    page.family(
        "huntd_progress_offset",
        GAUGE,
        "Next input offset that a stage has not seen, by partition and stage.",
    );
    for (partition, shard) in progress.owned() {
        for (stage, offset) in [
            ("fetched", &shard.fetched),
            ("decoded", &shard.decoded),
            ("applied", &shard.applied),
            ("published", &shard.published),
            ("acked", &shard.acked),
        ] {
            let labels = format_args!("partition=\"{partition}\",stage=\"{stage}\"");
            page.labelled(labels, offset.get().max(0));
        }
    }
    page.family("huntd_updates_next", GAUGE, "Number of a partition's next update.")
        .by_partition(progress, |shard| Some(shard.next_update.get()));
    page.family("huntd_ruleset", GAUGE, "The current ruleset of a zone, by partition.")
        .by_partition(progress, |shard| Some(shard.ruleset.get()));
    page.family(
        "huntd_ruleset_known",
        GAUGE,
        "1 for each ruleset that the zones can change to, by ruleset.",
    );
    for ruleset in progress.rulesets() {
        page.labelled(format_args!("ruleset=\"{ruleset}\""), 1);
    }
    page.family(
        "huntd_lag_records",
        GAUGE,
        "Records in the input and in no acknowledged frame, by partition; absent while unknown.",
    )
    .by_partition(progress, |shard| shard.lag().map(i64::cast_unsigned));
    page.family(
        "huntd_group_lag_records",
        GAUGE,
        "Records that the group has not committed, by partition, of every partition; absent while \
         unknown.",
    );
    for partition in 0..progress.group_lag_partitions.get() as i32 {
        if let Ok(lag) = u64::try_from(progress.shard(partition).group_lag.get()) {
            page.of_partition(partition, lag);
        }
    }
    page.family(
        "huntd_partitions_unread",
        GAUGE,
        "Partitions not owned here with records, but without a group commit for ten seconds, or \
         without a record in the output for thirty.",
    )
    .value(progress.unread_partitions.get());
    let now_ms = unix_ms();
    page.family(
        "huntd_lag_seconds",
        GAUGE,
        "Age of the newest record that was applied or rejected, or 0 without lag, by partition.",
    )
    .by_partition(progress, |shard| lag_seconds(shard, now_ms));
    page.family(
        "huntd_snapshot_timestamp_seconds",
        GAUGE,
        "When the newest snapshot of a zone since this instance owns it was stored, by partition; \
         absent before the first.",
    )
    .by_partition(progress, |shard| {
        let at_ms = shard.snapshot_at_ms.get();
        (shard.is_played() && at_ms > 0).then(|| at_ms.cast_unsigned() / 1000)
    });
}

/// The process as a whole.
fn write_process(page: &mut MetricsPage, Observed { status, .. }: &Observed) {
    page.family("huntd_ready", GAUGE, "1 while the daemon should get work.")
        .value(u64::from(status.unready().is_empty()));
    page.family("huntd_reload_refused", GAUGE, reload::REFUSED_HELP)
        .value(u64::from(reload::is_refused()));
    page.family("huntd_log_lines_lost_total", COUNTER, log::LOST_HELP).value(log::lost_lines());
    page.family("huntd_build_info", GAUGE, "1, with version and revision as labels.");
    let (version, revision) = (env!("CARGO_PKG_VERSION"), env!("HUNTD_REVISION"));
    page.labelled(format_args!("version=\"{version}\",revision=\"{revision}\""), 1);
    let process = Process::this();
    let of = |value: fn(&Process) -> Option<u64>| process.as_ref().and_then(value);
    page.family("process_cpu_seconds_total", COUNTER, "Time that all threads had a core.")
        .value_if(of(|process| Some(process.cpu_ms)).map(|ms| Seconds { us: ms * 1_000 }));
    page.family("process_resident_memory_bytes", GAUGE, "Memory that is in RAM.")
        .value_if(of(|process| Some(process.resident_bytes)));
    page.family("process_virtual_memory_bytes", GAUGE, "Addresses in use.")
        .value_if(of(|process| Some(process.virtual_bytes)));
    page.family("process_start_time_seconds", GAUGE, "When the process began.")
        .value_if(of(|process| Some(process.start_time_s)));
    page.family("process_open_fds", GAUGE, "Open file descriptors.")
        .value_if(of(|process| process.open_fds));
    page.family("process_max_fds", GAUGE, "File descriptors that may be open.")
        .value_if(of(|process| process.max_fds));
}

impl MetricsPage {
    fn of_partition(&mut self, partition: i32, value: u64) {
        self.labelled(format_args!("partition=\"{partition}\""), value);
    }

    /// Writes a sample for each owned shard that has a value.
    fn by_partition(&mut self, progress: &Progress, value: impl Fn(&ShardProgress) -> Option<u64>) {
        for (partition, shard) in progress.owned() {
            value(shard).into_iter().for_each(|value| self.of_partition(partition, value));
        }
    }

    fn counted(&mut self, label: &str, counts: impl Iterator<Item = (i32, &'static str, u64)>) {
        for (partition, of, count) in counts {
            self.labelled(format_args!("partition=\"{partition}\",{label}=\"{of}\""), count);
        }
    }
}

/// Returns whether the page shows a count since the process began, also if the shard is no longer
/// owned: a counter that came and went would lose counts. Counters of owned partitions start at 0,
/// because `rate` and `increase`, which alerts use, ignore the first value of a series.
fn is_shown(shard: &ShardProgress, count: u64) -> bool {
    count > 0 || shard.is_owned()
}

/// The counts that are shown.
fn shown<'a>(
    tally: &'a Tally,
    progress: &'a Progress,
) -> impl Iterator<Item = (i32, &'static str, u64)> + 'a {
    let is_shown = |partition: i32, count| is_shown(progress.shard(partition), count);
    tally.counts().filter(move |(partition, _, count)| is_shown(*partition, *count))
}

/// Non-zero counts since the process began, for long lists of names that no alert uses.
fn above_0(tally: &Tally) -> impl Iterator<Item = (i32, &'static str, u64)> {
    tally.counts().filter(|(.., count)| *count > 0)
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

/// A thread's line in `/proc/self/task/*/schedstat`, while it runs: nanoseconds on a core,
/// nanoseconds waiting for one, and the number of times that it was scheduled.
fn schedule_of(thread: &str) -> Option<[u64; 3]> {
    let mut tasks = std::fs::read_dir("/proc/self/task").ok()?.filter_map(Result::ok);
    let is_named = |name: String| name.trim_end() == thread;
    let task =
        tasks.find(|task| std::fs::read_to_string(task.path().join("comm")).is_ok_and(is_named))?;
    let line = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
    let mut numbers = line.split_whitespace().map_while(|number| number.parse().ok());
    Some([numbers.next()?, numbers.next()?, numbers.next()?])
}
