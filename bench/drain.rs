//! A preloaded topic of a real Kafka broker, drained by the daemon until its output covers it all.
//!
//! Goal: events per second and CPU per event of the whole daemon, from the socket to the
//! acknowledged frame, with JSON and binary frames, from records of a layout that the decoder's
//! first tier learns and from records that only its last tier reads; and what snapshots cost of
//! it. Not a goal: latency, and what other programs would need. The broker runs on the same
//! machine and takes its share of it, and so does whatever else runs there: the hot thread's
//! waiting time tells. The digest is the one of all shards, so no change can make the daemon
//! faster by making it do something else. `--smoke` drains a few events.

use std::io::Write;
use std::time::{Duration, Instant};
use support::daemon::{Huntd, Topics};
use support::kafka::Cluster;
use support::load::Load;
use support::scrape::{Page, Task};
use support::{accounts, kafka, scrape};

const PLAYERS: u64 = 3_000;

const PARTITIONS: i32 = 8;

/// Drains with and without snapshots, in turns, and how often a shard's state is taken then: ten
/// times as often as by default, because a drain does not last ten seconds.
const PAIRS: usize = 5;
const SNAPSHOT_MS: u32 = 1_000;

/// Time between two samples of the daemon: its pages cost it some microseconds each.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

fn main() {
    // Without `--bench`, `cargo test` runs it.
    let given = |name: &str| std::env::args().any(|argument| argument == name);
    let smoke = given("--smoke") || !given("--bench");
    let (events, options) = match smoke {
        true => (20_000, kafka::Options::for_tests()),
        false => (4_000_000, kafka::Options::for_drains()),
    };
    let cluster = &Cluster::start(1, &options);
    let preload = |name: &str, load: fn() -> Load| {
        let topics = Topics::create(cluster, name, PARTITIONS);
        let started = Instant::now();
        load().produce(cluster, &topics, events);
        report(&format!(
            "{name}: {events} events of {PLAYERS} players in {PARTITIONS} partitions, {} bytes \
             each; preloaded in {:.1} s",
            value_bytes(load(), events),
            started.elapsed().as_secs_f64()
        ));
        topics
    };
    let plain = preload("plain", || Load::new(PLAYERS, PARTITIONS));
    let noted = preload("noted", || Load::new(PLAYERS, PARTITIONS).with_notes());
    // The first reading of the log comes from the page cache, as all further ones.
    let mut digests = Vec::new();
    for (input, tier) in [(&plain, "first tier"), (&noted, "last tier")] {
        for format in ["json", "binary"] {
            let frames = format!("format = \"{format}\"");
            let name = format!("{format}-{}", digests.len());
            let outputs = Topics::create(cluster, &name, PARTITIONS);
            let topics = Topics { input: input.input.clone(), ..outputs };
            let drained = drain(cluster, &topics, &[("publish", &frames)], events);
            report(&format!("{tier}, {format}: {}", drained.sentences));
            digests.push(drained.digest);
        }
    }
    assert!(digests.iter().all(|digest| *digest == digests[0]), "the same events, another state");
    compare_snapshots(cluster, &plain, events, smoke);
}

/// Both write binary frames.
const BINARY: (&str, &str) = ("publish", "format = \"binary\"");

/// One input is drained with and without snapshots, in turns, so that what else the machine does
/// meets both. Prints the mean ratio of their rates.
fn compare_snapshots(cluster: &Cluster, input: &Topics, events: u64, smoke: bool) {
    let drain_as = |name: &str, settings: &[(&str, &str)]| {
        let outputs = Topics::create(cluster, name, PARTITIONS);
        let topics = Topics { input: input.input.clone(), ..outputs };
        drain(cluster, &topics, settings, events)
    };
    let pairs = if smoke { 1 } else { PAIRS };
    let ratio_of = |pair| {
        let without = drain_as(&format!("without-{pair}"), &[BINARY]);
        let state = tempfile::tempdir().expect("a temporary folder");
        let snapshot =
            format!("directory = \"{}\"\nevery_ms = {SNAPSHOT_MS}", state.path().display());
        let with = drain_as(&format!("with-{pair}"), &[BINARY, ("snapshot", snapshot.as_str())]);
        assert_eq!(with.digest, without.digest, "snapshots change what is computed");
        assert!(smoke || with.snapshots > 0, "it was over before a snapshot");
        report(&format!(
            "{} snapshots, one of each shard every {SNAPSHOT_MS} ms: {:.2} M events/s, {:.2} \
             without",
            with.snapshots, with.rate, without.rate
        ));
        with.rate / without.rate
    };
    let ratio = (0..pairs).map(ratio_of).sum::<f64>() / pairs as f64;
    report(&format!("with snapshots {:.1} % of the rate without, on average", 100.0 * ratio));
}

/// What one drain was.
struct Drained {
    /// Millions of events a second, until the last acknowledgement.
    rate: f64,
    snapshots: u64,
    digest: u64,
    sentences: String,
}

/// Mean bytes of an event's JSON.
fn value_bytes(mut load: Load, events: u64) -> u64 {
    let looked_at = events.min(100_000);
    (0..looked_at).map(|_| load.next_record().value.len() as u64).sum::<u64>() / looked_at
}

/// What the process had used at one moment.
struct Usage {
    at: Instant,
    process_ns: u64,
    hot: Task,
}

impl Usage {
    /// Nothing, as long as there is no hot thread.
    fn of(pid: u32) -> Option<Usage> {
        let tasks = scrape::tasks(pid);
        let process_ns = tasks.iter().map(|task| task.ran_ns).sum();
        let hot = tasks.into_iter().find(|task| task.name == "hot")?;
        Some(Usage { at: Instant::now(), process_ns, hot })
    }
}

fn drain(cluster: &Cluster, topics: &Topics, settings: &[(&str, &str)], events: u64) -> Drained {
    let mut huntd = Huntd::start(cluster, topics, settings);
    huntd.wait_until("its address", |huntd| huntd.log().contains("\"address\":\""));
    let (pid, address) = (huntd.pid(), huntd.address());
    let start = loop {
        let usage = Usage::of(pid);
        if let Some(usage) = usage
            && Page::of(&address).value("huntd_received_bytes_total") > 0
        {
            break usage;
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    let mut published = None;
    huntd.wait_until("the output covers the input", |_| {
        std::thread::sleep(POLL_INTERVAL);
        let page = Page::of(&address);
        if page.progress("published") == events {
            published.get_or_insert_with(Instant::now);
        }
        page.progress("acked") == events
    });
    let end = Usage::of(pid).expect("the hot thread");
    let page = Page::of(&address);
    let memory = (memory_kib(pid, "VmRSS:"), memory_kib(pid, "VmHWM:"));
    let ended = huntd.stop();
    assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
    let digests = (0..PARTITIONS).map(|partition| accounts::logged_digest(&ended.log, partition));
    let digest = digests.fold(0, |all: u64, digest| all.rotate_left(7) ^ digest);

    let millions = events as f64 / 1e6;
    let rate = |at: Instant| events as f64 / (at - start.at).as_secs_f64() / 1e6;
    let cpu = |from: u64, to: u64| (to - from) as f64 / 1e9 / millions;
    let value = |name: &str| page.value(&format!("huntd_{name}_total"));
    let sentences = format!(
        "{:.2} M events/s to the last frame, {:.2} M events/s to the last ack\n  \
         CPU-seconds per million events: {:.3} the process, {:.3} the hot thread, which waited \
         {:.3} for its core\n  \
         enters per 1,000 events {:.2}, turns {:.2}; frames {}, updates {}, refused {}; hot \
         allocations {}\n  \
         read by the last tier {:.1} %; resident {} MiB, at most {} MiB; digest {digest:016x}",
        rate(published.expect("acked means published")),
        rate(end.at),
        cpu(start.process_ns, end.process_ns),
        cpu(start.hot.ran_ns, end.hot.ran_ns),
        cpu(start.hot.waited_ns, end.hot.waited_ns),
        value("ring_enters") as f64 * 1e3 / events as f64,
        value("turns") as f64 * 1e3 / events as f64,
        value("frames_sent"),
        value("updates_made"),
        value("events_refused"),
        value("hot_allocations"),
        100.0 - 100.0 * value("records_of_known_layout") as f64 / events as f64,
        memory.0 / 1024,
        memory.1 / 1024,
    );
    let snapshots = value("snapshots_stored");
    Drained { rate: rate(end.at), snapshots, digest, sentences }
}

/// A line of the process' memory status.
fn memory_kib(pid: u32, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a known line");
    line.trim().trim_end_matches(" kB").parse().expect("a number of KiB")
}

fn report(line: &str) {
    writeln!(std::io::stdout(), "{line}").expect("standard output is open");
}
