//! How long zones are without an owner when an instance joins, stops, is killed, or freezes: eight
//! zones full of players, two instances that share snapshots through a topic, and events all the
//! time, at a low and at a high rate; first without copies of the zones, and then with one copy of
//! each.
//!
//! Measured: for each zone that moves, the time from the last updates of one owner to the first of
//! the next one, by the broker's clock. Goals: without copies, 100 ms at most when an instance
//! joins or is stopped, and 4 s when one is killed or freezes; with copies, 50 ms, and 700 ms.
//! Not measured: a restart on the same host (`restart`), and a broker that fails
//! (`tests/kafka/campaign`). What was published must be the replay of the input, or the bench
//! fails.
//!
//! Then what copies cost: the hot thread of an owner of all zones beside an instance that keeps a
//! copy of each, and the hot thread of that instance. Both are compared with a rival that plays the
//! same input into an output of its own on the same core: it takes as much of the machine, and
//! nobody follows anybody. Goals: 1 % more for the owner, and 60 % of the rival for the copies.
//! `--smoke` takes a few players and one round. `--rate N` measures at this rate only, and
//! `--costs` only what copies cost.

use huntd::hunt::frames::decode_frame;
use rdkafka::Message;
use rdkafka::producer::Producer;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use support::accounts::{self, Follower};
use support::daemon::{Huntd, Topics};
use support::kafka::{Cluster, Options, unique_name};
use support::load::{self, Load};
use support::scrape::{self, Page};

const PARTITIONS: i32 = 8;

/// Time between two batches of events.
const SEND_EVERY: Duration = Duration::from_millis(10);

/// How long all instances play on before the next change.
const CALM: Duration = Duration::from_secs(2);

struct Size {
    players: u64,
    /// Events a second over all zones, sent every [`SEND_EVERY`].
    rates: &'static [u64],
    /// Rounds at each rate.
    rounds: u32,
    session_timeout_ms: u32,
    /// Time from one snapshot of a shard to its next.
    snapshot_ms: u32,
    /// How long a cost is measured.
    measured: Duration,
}

/// What happens to the second instance.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    Join,
    Stop,
    Kill,
    /// It is killed once its zones are played elsewhere.
    Freeze,
}

impl Change {
    fn name(self) -> &'static str {
        match self {
            Change::Join => "joins",
            Change::Stop => "is stopped",
            Change::Kill => "is killed",
            Change::Freeze => "freezes",
        }
    }

    /// Milliseconds that 99 of 100 zones may stand still at most.
    fn still_ms_max(self, copies: u32) -> u64 {
        match (self, copies) {
            (Change::Join | Change::Stop, 0) => 100,
            (Change::Join | Change::Stop, _) => 50,
            (Change::Kill | Change::Freeze, 0) => 4_000,
            (Change::Kill | Change::Freeze, _) => 700,
        }
    }

    /// What happens to the second instance in each round.
    const ENDS: [Change; 3] = [Change::Stop, Change::Kill, Change::Freeze];
}

/// A zone that went from one owner to the next.
struct Move {
    /// The first updates of the next owner, in milliseconds since the Unix epoch.
    at_ms: u64,
    took_ms: u64,
}

fn main() {
    // `cargo test` runs it too, and asks for the small one by not asking for a bench.
    let given: Vec<String> = std::env::args().collect();
    let is_given = |option: &str| given.iter().any(|argument| argument == option);
    let rate = given.iter().skip_while(|argument| *argument != "--rate").nth(1);
    let rate = rate.map(|rate| rate.parse::<u64>().expect("--rate takes events a second"));
    let smoke = is_given("--smoke") || !is_given("--bench");
    let size = if smoke {
        Size {
            players: 800,
            rates: &[8_000],
            rounds: 1,
            session_timeout_ms: 6_000,
            snapshot_ms: 500,
            measured: Duration::from_millis(200),
        }
    } else {
        Size {
            players: 100_000,
            rates: &[8_000, 200_000],
            rounds: 3,
            session_timeout_ms: 10_000,
            snapshot_ms: 10_000,
            measured: Duration::from_secs(10),
        }
    };
    let cluster = Cluster::start(1, &Options::for_rates());
    for rate in rate.map_or(size.rates.to_vec(), |rate| vec![rate]) {
        for copies in [0, 1].into_iter().filter(|_| !is_given("--costs")) {
            measure(&cluster, &size, rate, copies);
        }
        measure_copies(&cluster, &size, rate);
    }
}

/// Measures at this rate with this many copies of each zone.
fn measure(cluster: &Cluster, size: &Size, rate: u64, copies: u32) {
    let topics = Topics::create(cluster, "handover", PARTITIONS);
    cluster.client().set_topic(&topics.output, "message.timestamp.type", "LogAppendTime");
    let mut load = Load::new(size.players, PARTITIONS);
    load.produce(cluster, &topics, size.players);
    let mut instances = Instances::new(cluster, &topics, size, copies);
    let mut first = instances.start();
    first.wait_until("a replica of each snapshot", |first| {
        first.metric("huntd_snapshot_replicas_stored_total") >= PARTITIONS as u64
    });
    let (is_over, mut changes) = (AtomicBool::new(false), Vec::new());
    thread::scope(|scope| {
        scope.spawn(|| send_until(&is_over, &mut load, rate, cluster, &topics));
        for _ in 0..size.rounds {
            round(&mut instances, &mut first, &mut changes);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let mut follower = Follower::new(cluster, &topics);
    accounts::wait_until_covered(cluster, &topics, &mut follower, &mut first);
    first.stop();
    accounts::assert_is_the_replay(cluster, &topics, follower);
    report(size, rate, copies, &changes, &moves(cluster, &topics));
}

/// Daemons of one group, each as if on a host of its own: only the brokers have what another wrote.
struct Instances<'a> {
    cluster: &'a Cluster,
    topics: &'a Topics,
    hosts: tempfile::TempDir,
    started: u32,
    session: String,
    snapshot: String,
    copies: u32,
}

impl<'a> Instances<'a> {
    fn new(cluster: &'a Cluster, topics: &'a Topics, size: &Size, copies: u32) -> Instances<'a> {
        let snapshots = unique_name("handover-snapshots");
        let compacted = [("cleanup.policy", "compact")];
        cluster.client().create_topic(&snapshots, PARTITIONS, &compacted);
        Instances {
            cluster,
            topics,
            hosts: tempfile::tempdir().expect("a temporary folder"),
            started: 0,
            session: format!("session_timeout_ms = {}", size.session_timeout_ms),
            snapshot: format!("every_ms = {}\ntopic = \"{snapshots}\"", size.snapshot_ms),
            copies,
        }
    }

    fn start(&mut self) -> Huntd {
        self.started += 1;
        let directory = self.hosts.path().join(self.started.to_string());
        let snapshot = format!("directory = \"{}\"\n{}", directory.display(), self.snapshot);
        let copies = format!("copies = {}", self.copies);
        let settings = [
            ("standby", copies.as_str()),
            ("kafka", self.session.as_str()),
            ("publish", "format = \"binary\""),
            ("snapshot", &snapshot),
        ];
        let mut huntd = Huntd::start(self.cluster, self.topics, &settings);
        huntd.wait_for_address();
        huntd
    }
}

/// A second instance joins and ends in each way.
fn round(instances: &mut Instances<'_>, first: &mut Huntd, changes: &mut Vec<(u64, Change)>) {
    for end in Change::ENDS {
        changes.push((now_ms(), Change::Join));
        let mut second = instances.start();
        wait_for_zones(&mut second, PARTITIONS / 2);
        wait_for_zones(first, PARTITIONS / 2);
        wait_for_copies(first, instances.copies);
        thread::sleep(CALM);
        changes.push((now_ms(), end));
        match end {
            Change::Freeze => {
                second.signal("STOP");
                wait_for_zones(first, PARTITIONS);
                second.kill9();
            }
            Change::Kill => drop(second.kill9()),
            _ => drop(second.stop()),
        }
        wait_for_zones(first, PARTITIONS);
        thread::sleep(CALM);
    }
}

/// Measures what copies cost at this rate: an owner has all zones, and other instances come and go
/// on another core.
fn measure_copies(cluster: &Cluster, size: &Size, rate: u64) {
    let topics = Topics::create(cluster, "copied", PARTITIONS);
    let mut load = Load::new(size.players, PARTITIONS);
    load.produce(cluster, &topics, size.players);
    let start = |topics: &Topics, name: &str, core: u32| {
        let zones = PARTITIONS - 1;
        let kafka = format!(
            "group_instance_id = \"{name}\"\nassignment = [\"owner: 0-{zones}\", \"standby:\"]"
        );
        // On a single core nothing is pinned.
        let has_cores = thread::available_parallelism().is_ok_and(|cores| cores.get() > 1);
        let core = match has_cores {
            true => format!("hot_core = \"{core}\""),
            false => "hot_core = \"auto\"".to_owned(),
        };
        let settings = [
            ("kafka", kafka.as_str()),
            ("standby", "copies = 1"),
            ("publish", "format = \"binary\""),
            ("cpu", &core),
        ];
        let mut huntd = Huntd::start(cluster, topics, &settings);
        huntd.wait_for_address();
        huntd
    };
    let mut owner = start(&topics, "owner", 1);
    wait_for_zones(&mut owner, PARTITIONS);
    let is_over = AtomicBool::new(false);
    let mut costs = Vec::new();
    thread::scope(|scope| {
        scope.spawn(|| send_until(&is_over, &mut load, rate, cluster, &topics));
        for _ in 0..size.rounds {
            let mut rival = start(&topics.again(cluster), "owner", 0);
            wait_for_zones(&mut rival, PARTITIONS);
            thread::sleep(CALM);
            let beside_rival = hot_costs([&owner, &rival], size.measured);
            rival.stop();
            let mut standby = start(&topics, "standby", 0);
            standby.wait_until("its copies", |standby| {
                standby.metric("huntd_copies_warm") == PARTITIONS as u64
            });
            thread::sleep(CALM);
            let beside_standby = hot_costs([&owner, &standby], size.measured);
            costs.push(Cost { beside_rival, beside_standby });
            standby.stop();
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let mut follower = Follower::new(cluster, &topics);
    accounts::wait_until_covered(cluster, &topics, &mut follower, &mut owner);
    owner.stop();
    accounts::assert_is_the_replay(cluster, &topics, follower);
    report_costs(rate, &costs);
}

/// What an event costs two hot threads: the owner's, and the other instance's.
struct Cost {
    beside_rival: [HotCost; 2],
    beside_standby: [HotCost; 2],
}

/// What an event costs a hot thread.
#[derive(Clone, Copy)]
struct HotCost {
    ns: f64,
    /// How many times it was given a core, which is how often it was woken up.
    wakeups: f64,
}

/// The cost of each daemon's hot thread for an event that the first one plays.
fn hot_costs(daemons: [&Huntd; 2], time: Duration) -> [HotCost; 2] {
    let sample = || {
        let tasks = daemons.map(|huntd| scrape::hot_task(huntd.pid()));
        (Page::of(&daemons[0].address()).events(), tasks.map(|task| [task.ran_ns, task.times]))
    };
    let (events_before, before) = sample();
    thread::sleep(time);
    let (events, after) = sample();
    let events = (events - events_before).max(1) as f64;
    [0, 1].map(|at| {
        let [ns, wakeups] = [0, 1].map(|of| (after[at][of] - before[at][of]) as f64 / events);
        HotCost { ns, wakeups }
    })
}

fn report_costs(rate: u64, costs: &[Cost]) {
    let median = |of: &dyn Fn(&Cost) -> f64| {
        let mut all: Vec<f64> = costs.iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    let of = |part: fn(&Cost) -> HotCost| {
        let ns = median(&|cost| part(cost).ns);
        (ns, median(&|cost| part(cost).wakeups * rate as f64))
    };
    let rows = [
        ("an owner beside a rival", of(|cost| cost.beside_rival[0])),
        ("the rival", of(|cost| cost.beside_rival[1])),
        ("the owner beside its copies", of(|cost| cost.beside_standby[0])),
        ("the copies", of(|cost| cost.beside_standby[1])),
    ];
    let mut lines = format!("{rate} events/s, hot threads\n");
    for (name, (ns, wakeups)) in rows {
        lines.push_str(&format!("{name}: {ns:.0} ns per event, {wakeups:.0} wakeups/s\n"));
    }
    let [owner, rival, followed, copies] = rows.map(|(_, (ns, _))| ns);
    let (more, share) = (followed / owner * 100.0 - 100.0, copies / rival * 100.0);
    lines.push_str(&format!(
        "beside copies, an owner pays {more:+.1} % (goal: 1 %); copies cost {share:.0} % of a \
         rival (goal: 60 %)\n"
    ));
    std::io::stdout().write_all(lines.as_bytes()).expect("standard output is open");
}

fn wait_for_zones(huntd: &mut Huntd, count: i32) {
    huntd.wait_until("its zones", |huntd| {
        huntd.metric("huntd_shards_owned") == count as u64 && huntd.metric("huntd_ready") == 1
    });
}

/// The first instance has a warm copy of each zone of the second one.
fn wait_for_copies(huntd: &mut Huntd, copies: u32) {
    huntd.wait_until("its copies", |huntd| {
        huntd.metric("huntd_copies_warm") == u64::from(copies) * PARTITIONS as u64 / 2
    });
}

fn send_until(
    is_over: &AtomicBool,
    load: &mut Load,
    rate: u64,
    cluster: &Cluster,
    topics: &Topics,
) {
    let producer = load::producer(cluster);
    let (began, mut sent) = (Instant::now(), 0);
    while !is_over.load(Ordering::Relaxed) {
        let due = (began.elapsed().as_secs_f64() * rate as f64) as u64;
        load.send(&producer, topics, due - sent);
        sent = due;
        thread::sleep(SEND_EVERY);
    }
    producer.flush(Duration::from_secs(60)).expect("the broker acknowledges all records");
}

/// Every change of owner that the output shows.
fn moves(cluster: &Cluster, topics: &Topics) -> Vec<Move> {
    let mut moves = Vec::new();
    for partition in 0..PARTITIONS {
        let mut last: Option<(u64, u64)> = None;
        for record in cluster.client().consume(&topics.output, partition) {
            let frame = record.payload().expect("frames have a value");
            let (header, updates) = decode_frame(frame).expect("frames can be read");
            let (epoch, time) = (header.owner_epoch, record.timestamp().to_millis());
            let at_ms = time.expect("the broker has stamped it").cast_unsigned();
            let (last_epoch, last_ms) = *last.get_or_insert((epoch, at_ms));
            // Of a former owner, whose frames no longer count.
            if updates.is_empty() || epoch < last_epoch {
                continue;
            }
            if epoch > last_epoch {
                moves.push(Move { at_ms, took_ms: at_ms - last_ms });
            }
            last = Some((epoch, at_ms));
        }
    }
    moves
}

fn report(size: &Size, rate: u64, copies: u32, changes: &[(u64, Change)], moves: &[Move]) {
    let mut lines = format!(
        "{} players in {PARTITIONS} zones, {rate} events/s, two instances, one broker, session \
         timeout {} ms, copies {copies}\n",
        size.players, size.session_timeout_ms
    );
    for kind in [&[Change::Join], &Change::ENDS[..]].concat() {
        // A move belongs to the last change before it.
        let is_of = |moved: &&Move| {
            let before = changes.iter().rev().find(|(began_ms, _)| *began_ms <= moved.at_ms);
            before.is_some_and(|(_, change)| *change == kind)
        };
        let mut took: Vec<u64> = moves.iter().filter(is_of).map(|moved| moved.took_ms).collect();
        took.sort_unstable();
        let what = kind.name();
        assert!(!took.is_empty(), "no zone moves when an instance {what}");
        let [p50, p99] = [50, 99].map(|percent| took[(took.len() - 1) * percent / 100]);
        let goal = kind.still_ms_max(copies);
        let verdict = if p99 <= goal { "reached" } else { "missed" };
        lines.push_str(&format!(
            "an instance {what}: {} zones moved, still for {} to {} ms, p50 {p50} ms, p99 {p99} \
             ms; the goal of {goal} ms is {verdict}\n",
            took.len(),
            took[0],
            took[took.len() - 1],
        ));
    }
    std::io::stdout().write_all(lines.as_bytes()).expect("standard output is open");
}

fn now_ms() -> u64 {
    support::generator::now_us() / 1_000
}
