//! How long a daemon takes to be live again after `kill -9`: 16 zones full of players, a snapshot
//! of each, and millions of events since then, all of which were published.
//!
//! Goal: the time from the start of the process until every shard has restored its snapshot,
//! replayed what follows, and is live. Not a goal: the time until a group gives the partitions to
//! another host, which is the timeout of a group session (see `handover`). The digests after the
//! restart are those of before, or the bench fails. `--smoke` takes a few players and events.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};
use support::daemon::{Huntd, Topics};
use support::kafka::Cluster;
use support::load::Load;
use support::scrape::Page;
use support::{accounts, kafka, scrape};

const PARTITIONS: i32 = 16;

/// Time between two samples of the daemon.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

struct Size {
    players: u64,
    /// Time from one snapshot of a shard to its next, while they are taken.
    snapshot_ms: u32,
    /// Events between the last snapshot and the kill.
    replayed: u64,
    restarts: u32,
}

fn main() {
    // `cargo test` runs it too, and asks for the small one by not asking for a bench.
    let smoke = std::env::args().any(|argument| argument == "--smoke")
        || !std::env::args().any(|argument| argument == "--bench");
    let (size, options) = if smoke {
        let size = Size { players: 1_600, snapshot_ms: 100, replayed: 20_000, restarts: 1 };
        (size, kafka::Options::for_tests())
    } else {
        let size =
            Size { players: 1_000_000, snapshot_ms: 1_000, replayed: 5_000_000, restarts: 5 };
        (size, kafka::Options::for_drains())
    };
    let cluster = Cluster::start(1, &options);
    let topics = Topics::create(&cluster, "restart", PARTITIONS);
    let state = tempfile::tempdir().expect("a temporary folder");
    let mut load = Load::new(size.players, PARTITIONS);
    load.produce(&cluster, &topics, size.players);
    take_snapshots(&cluster, &topics, state.path(), size.snapshot_ms);
    load.produce(&cluster, &topics, size.replayed);
    publish_the_rest(&cluster, &topics, state.path());
    let restart = |_| restart(&cluster, &topics, state.path());
    let mut times: Vec<Duration> = (0..size.restarts).map(restart).collect();
    times.sort();
    let shown: Vec<String> =
        times.iter().map(|time| format!("{:.2}", time.as_secs_f64())).collect();
    report(&format!(
        "{} players in {PARTITIONS} zones, {} events since their snapshots: live after {} s; \
         digest {:016x}",
        size.players,
        size.replayed,
        shown.join(", "),
        verify(&cluster, &topics, state.path())
    ));
}

/// A daemon whose snapshots come so often.
fn start(cluster: &Cluster, topics: &Topics, state: &Path, every_ms: u32) -> Huntd {
    let snapshot = format!("directory = \"{}\"\nevery_ms = {every_ms}", state.display());
    let settings = [
        ("kafka", "group_instance_id = \"one\""),
        ("publish", "format = \"binary\""),
        ("snapshot", &snapshot),
        ("input", "tick_every_ms = 0"),
    ];
    Huntd::start(cluster, topics, &settings)
}

/// Applies what is there, and goes on until each shard has a snapshot of all of it: then there is
/// nothing new to store.
fn take_snapshots(cluster: &Cluster, topics: &Topics, state: &Path, every_ms: u32) {
    let mut huntd = start(cluster, topics, state, every_ms);
    wait_until_acknowledged(cluster, topics, &mut huntd);
    let mut stored_before = 0;
    loop {
        let stored = huntd.metric("huntd_snapshots_stored_total");
        if stored >= PARTITIONS as u64 && stored == stored_before {
            break;
        }
        stored_before = stored;
        std::thread::sleep(3 * Duration::from_millis(every_ms.into()));
    }
    huntd.stop();
}

/// Publishes all that is there without another snapshot, and dies.
fn publish_the_rest(cluster: &Cluster, topics: &Topics, state: &Path) {
    let mut huntd = start(cluster, topics, state, 3_600_000);
    wait_until_acknowledged(cluster, topics, &mut huntd);
    huntd.kill9();
}

/// Waits until the updates of the whole input are acknowledged.
fn wait_until_acknowledged(cluster: &Cluster, topics: &Topics, huntd: &mut Huntd) {
    wait_until(cluster, topics, huntd, |address, end| Page::of(address).progress("acked") == end);
}

/// Waits until the daemon owns every shard and has applied the whole input. The stage alone does
/// not tell: a shard that follows its output applies it, too.
fn wait_until_live(cluster: &Cluster, topics: &Topics, huntd: &mut Huntd) {
    wait_until(cluster, topics, huntd, |address, end| {
        std::thread::sleep(POLL_INTERVAL);
        scrape::get(address, "/readyz").0 == 200 && Page::of(address).progress("applied") == end
    });
}

/// Waits until the daemon at an address has come to the end of the input in this sense.
fn wait_until(
    cluster: &Cluster,
    topics: &Topics,
    huntd: &mut Huntd,
    has_come_to: impl Fn(&str, u64) -> bool,
) {
    let end: i64 = cluster.client().ends(&topics.input, PARTITIONS).iter().sum();
    huntd.wait_for_address();
    let address = huntd.address();
    huntd.wait_until("the end of the input", |_| has_come_to(&address, end as u64));
}

/// Starts the daemon until it is live, and ends it as it ended before.
fn restart(cluster: &Cluster, topics: &Topics, state: &Path) -> Duration {
    let began = Instant::now();
    let mut huntd = start(cluster, topics, state, 3_600_000);
    wait_until_live(cluster, topics, &mut huntd);
    let took = began.elapsed();
    // Updates that differ from the published ones would have halted their shard.
    assert_eq!(huntd.metric("huntd_shards_owned"), PARTITIONS as u64, "{}", huntd.log());
    huntd.kill9();
    took
}

/// Ends a daemon in order, whose shards must be what an uninterrupted run makes.
fn verify(cluster: &Cluster, topics: &Topics, state: &Path) -> u64 {
    let mut huntd = start(cluster, topics, state, 3_600_000);
    wait_until_live(cluster, topics, &mut huntd);
    let ended = huntd.stop();
    (0..PARTITIONS).fold(0, |all: u64, partition| {
        let digest = accounts::logged_digest(&ended.log, partition);
        let (_, counts) = accounts::replay(cluster, topics, partition);
        assert_eq!(digest, counts.digest, "partition {partition} differs from its replay");
        all.rotate_left(7) ^ digest
    })
}

fn report(line: &str) {
    writeln!(std::io::stdout(), "{line}").expect("standard output is open");
}
