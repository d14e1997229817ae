//! What the hot thread promises once it is warm: its core is its own, it does not allocate, and it
//! makes one kind of system call, seldom.

use crate::security;
use rdkafka::producer::{BaseRecord, Producer};
use std::fs::File;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};
use support::PATIENCE;
use support::daemon::{Huntd, Topics};
use support::kafka::Cluster;
use support::kafka::secure::{Kind, SecureCluster};
use support::load::{Load, producer};
use support::scrape::{Page, get, hot_task, tasks};
use support::{kafka, needs};

const PARTITIONS: i32 = 4;

const PLAYERS: u64 = 200;

/// Enough for pools and buffers to have grown as far as this load takes them.
const WARM_UP: u64 = 100_000;

/// Enough for the tables of the zones, too, which take a chunk of memory where a row is used for
/// the first time: by then every zone has had several hunts, some of them at once.
const SETTLED: u64 = 400_000;

/// Rounds of 100,000 events after which nothing may be needed for the first time any more.
const SETTLING_ROUNDS_MAX: usize = 10;

const ALLOCATIONS: &str = "huntd_hot_allocations_total";

/// A daemon that has drained its warm-up.
struct Warm<'a> {
    cluster: &'a Cluster,
    huntd: Huntd,
    address: String,
    topics: Topics,
    load: Load,
    produced: u64,
}

impl<'a> Warm<'a> {
    fn up(name: &str, settings: &[(&str, &str)]) -> Warm<'static> {
        Warm::with(PLAYERS, name, settings)
    }

    fn with(players: u64, name: &str, settings: &[(&str, &str)]) -> Warm<'static> {
        let start = |topics: &Topics| Huntd::start(kafka::shared(), topics, settings);
        Warm::started(kafka::shared(), players, name, start)
    }

    /// A daemon that reaches its broker through a listener of this kind.
    fn reached_by(secure: &'a SecureCluster, kind: Kind) -> Warm<'a> {
        let (tls, sasl) = match kind {
            Kind::Mutual => (security::mutual(secure), String::new()),
            _ => {
                let sasl = security::sasl("SCRAM-SHA-512", &secure.file("password"));
                (security::tls(&secure.file("ca.pem")), sasl)
            }
        };
        let start = |topics: &Topics| security::start(secure, topics, kind, &tls, &sasl);
        Warm::started(&secure.cluster, PLAYERS, "encrypted", start)
    }

    fn started(
        cluster: &'a Cluster,
        players: u64,
        name: &str,
        start: impl FnOnce(&Topics) -> Huntd,
    ) -> Warm<'a> {
        let topics = Topics::create(cluster, name, PARTITIONS);
        let mut huntd = start(&topics);
        huntd.wait_until("its address", |huntd| huntd.log().contains("\"address\":\""));
        let address = huntd.address();
        let load = Load::new(players, PARTITIONS);
        let mut warm = Warm { cluster, huntd, address, topics, load, produced: 0 };
        warm.drain(WARM_UP);
        warm
    }

    fn page(&self) -> Page {
        Page::of(&self.address)
    }

    /// Plays until nothing is needed for the first time any more: what a hunt needs is made when it
    /// is first needed, and the last hunts go on for a while. Whether a round of 100,000 events
    /// made no allocation.
    fn settle(&mut self) -> bool {
        self.drain(SETTLED);
        self.load.stop_hunts();
        (0..SETTLING_ROUNDS_MAX).any(|_| {
            let before = self.page().value(ALLOCATIONS);
            self.drain(100_000);
            self.page().value(ALLOCATIONS) == before
        })
    }

    /// Puts events into the topic and waits until the broker has acknowledged what became of them.
    fn drain(&mut self, events: u64) {
        self.load.produce(self.cluster, &self.topics, events);
        self.wait_for(events);
    }

    /// Lets the daemon sleep until all the events are in the topic: however slowly they come, it
    /// finds a backlog.
    fn drain_backlog(&mut self, events: u64) {
        self.huntd.signal("STOP");
        self.load.produce(self.cluster, &self.topics, events);
        self.huntd.signal("CONT");
        self.wait_for(events);
    }

    fn wait_for(&mut self, events: u64) {
        self.produced += events;
        let (address, produced) = (&self.address, self.produced);
        self.huntd.wait_until("the output covers the input", |_| {
            Page::of(address).progress("acked") == produced
        });
    }
}

#[test]
fn only_the_hot_thread_may_run_on_the_hot_core() {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if !needs::has("two cores", cores > 1) {
        return;
    }
    let warm = Warm::up("cores", &[]);
    let pid = warm.huntd.pid();
    let hot_core: u32 = hot_task(pid).cores_allowed.parse().expect("the hot thread has one core");
    let tasks = tasks(pid);
    let named = |part: &str| tasks.iter().any(|task| task.name.contains(part));
    for part in ["hot", "publisher", "control", "service", "rdk:", "async-io"] {
        assert!(named(part), "no task named {part}: {tasks:?}");
    }
    for task in &tasks {
        let allowed = huntd::runtime::cpu::parse_list(&task.cores_allowed).expect("a list");
        let on_hot_core = allowed.contains(&(hot_core as usize));
        assert_eq!(on_hot_core, task.name == "hot", "{task:?}, the hot core is {hot_core}");
    }
}

#[test]
fn the_hot_thread_alone_may_call_only_what_it_needs() {
    let warm = Warm::up("confined", &[]);
    let pid = warm.huntd.pid();
    let hot = hot_task(pid).id;
    for task in tasks(pid) {
        assert_eq!(task.is_confined, task.id == hot, "{task:?}");
    }
}

#[test]
fn the_hot_thread_does_not_allocate_while_events_pass() {
    for format in ["json", "binary"] {
        let mut warm = Warm::up("allocations", &[("publish", &format!("format = \"{format}\""))]);
        let allocations = |page: &Page| page.value(ALLOCATIONS);
        warm.settle();
        let before = warm.page();
        warm.drain(200_000);
        let after = warm.page();
        assert_eq!(after.events() - before.events(), 200_000);
        assert_eq!(allocations(&after), allocations(&before), "{format}");
        assert!(allocations(&before) > 0, "the count counts");
    }
}

/// Most of what is made at the start, such as frames for a backlog, must not be touched there.
#[test]
fn a_daemon_that_thousands_have_played_in_takes_less_than_128_mib() {
    let mut warm = Warm::with(3_000, "memory", &[]);
    warm.drain(100_000);
    let mib = warm.page().value("process_resident_memory_bytes") >> 20;
    assert!(8 < mib && mib < 128, "{mib} MiB");
}

/// A running `strace` of one thread, which counts its system calls.
struct Strace {
    child: Child,
    folder: tempfile::TempDir,
}

impl Strace {
    fn attach(task: u32) -> Strace {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let log = File::create(folder.path().join("log")).expect("the folder can be written");
        let child = Command::new("strace")
            .args(["-c", "-o"])
            .arg(folder.path().join("counts"))
            .args(["-p", &task.to_string()])
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("strace was there when it was looked for");
        let strace = Strace { child, folder };
        let end = Instant::now() + PATIENCE;
        while !strace.read("log").contains("attached") {
            assert!(Instant::now() < end, "strace may not attach: {}", strace.read("log"));
            std::thread::sleep(Duration::from_millis(10));
        }
        strace
    }

    fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(file)).expect("the file is there")
    }

    /// Detaches: the system calls that were seen, with their counts.
    fn detach(mut self) -> Vec<(String, u64)> {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it is there");
        self.child.wait().expect("the child can be waited for");
        let text = self.read("counts");
        // % time, seconds, usecs/call, calls, errors if there were any, syscall
        let row = |line: &str| {
            let columns: Vec<&str> = line.split_whitespace().collect();
            let calls = columns.get(3)?.parse().ok()?;
            columns.last().filter(|name| **name != "total").map(|name| (name.to_string(), calls))
        };
        let calls: Vec<_> = text.lines().filter_map(row).collect();
        assert!(!calls.is_empty(), "{text}");
        calls
    }
}

/// A warm daemon works a backlog off: the hot thread makes one kind of system call, and that less
/// than once in this many events.
fn assert_only_enters(warm: &mut Warm<'_>, events_per_enter_min: u64) {
    let before = warm.page();
    let strace = Strace::attach(hot_task(warm.huntd.pid()).id);
    warm.drain_backlog(200_000);
    let calls = strace.detach();
    let after = warm.page();
    let names: Vec<&str> = calls.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["io_uring_enter"], "{calls:?}");
    let counted = |name: &str| after.value(name) - before.value(name);
    let (events, enters) = (after.events() - before.events(), counted("huntd_ring_enters_total"));
    let per_1000 = enters as f64 * 1e3 / events as f64;
    println!("{enters} enters for {events} events: {per_1000:.2} per 1,000 events");
    assert!(enters >= calls[0].1, "the daemon counts what strace has seen: {enters} {calls:?}");
    assert!(enters * events_per_enter_min < events, "{enters} enters for {events} events");
}

#[test]
fn the_hot_thread_makes_no_system_call_but_io_uring_enter_and_that_seldom() {
    if !needs::has_program("strace", "-V") {
        return;
    }
    let mut warm = Warm::up("calls", &[]);
    warm.settle();
    assert_only_enters(&mut warm, 100);
}

#[test]
fn over_tls_the_hot_thread_makes_no_other_system_call_and_no_allocation_either() {
    if !needs::has_program("strace", "-V") {
        return;
    }
    let secure = security::shared();
    for kind in [Kind::Sasl, Kind::Mutual] {
        let mut warm = Warm::reached_by(&secure, kind);
        let is_settled = warm.settle();
        let log = warm.huntd.log();
        assert!(is_settled, "{kind:?}: no round of events is without an allocation:\n{log}");
        // The broker seals records more slowly than it sends a file: the thread waits more often.
        assert_only_enters(&mut warm, 20);
        let is_confined = |line: &str| line.strip_prefix("Seccomp:").map(str::trim) == Some("2");
        let (pid, hot) = (warm.huntd.pid(), hot_task(warm.huntd.pid()).id);
        let status = std::fs::read_to_string(format!("/proc/{pid}/task/{hot}/status"));
        assert!(status.expect("it runs").lines().any(is_confined), "{kind:?}");
    }
}

#[test]
fn the_running_daemon_says_that_it_lives_and_is_ready_and_how_far_it_is() {
    let mut warm = Warm::up("pages", &[]);
    assert_eq!(get(&warm.address, "/livez").0, 200);
    let version = concat!("\"version\":\"", env!("CARGO_PKG_VERSION"), " (");
    assert!(warm.huntd.log().contains(version), "its log names the version and the revision");
    let address = warm.address.clone();
    warm.huntd.wait_until("it is ready", |_| get(&address, "/readyz").0 == 200);
    assert_eq!(get(&warm.address, "/elsewhere").0, 404);
    let page = warm.page();
    let lags: Vec<u64> = page.samples("huntd_lag_records").map(|(_, lag)| lag).collect();
    assert_eq!(lags, [0; PARTITIONS as usize]);
    assert_eq!(page.value("huntd_shards_owned"), PARTITIONS as u64);
    assert_eq!(page.value("huntd_ready"), 1);
    assert_eq!(page.events(), WARM_UP);
    for stage in ["fetched", "decoded", "applied", "published", "acked"] {
        assert_eq!(page.progress(stage), WARM_UP, "{stage}");
    }
    assert!(page.value("huntd_hot_scheduled_total") > 0);

    // The load is of a fixed day, long ago. An event of now has an age.
    assert_eq!(page.value("huntd_end_to_end_seconds_count"), 0);
    assert!(page.value("huntd_frames_misdated_total") > 0);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    let join = format!(
        r#"{{"type":"join","player_id":987654321,"seq":1,"ts_us":{},"x":0,"y":0}}"#,
        now.as_micros()
    );
    let producer = producer(kafka::shared());
    let record = BaseRecord::<(), _>::to(&warm.topics.input).partition(0).payload(&join);
    producer.send(record).expect("there is room");
    producer.flush(PATIENCE).expect("acknowledged");
    warm.huntd.wait_until("a frame has an age", |huntd| {
        Page::of(&huntd.address()).value("huntd_end_to_end_seconds_count") > 0
    });
    let page = warm.page();
    let frames = page.value("huntd_end_to_end_seconds_count");
    let misdated = page.value("huntd_frames_misdated_total");
    for (part, count) in
        [("input", frames), ("inside", frames + misdated), ("output", frames + misdated)]
    {
        assert_eq!(page.value(&format!("huntd_{part}_seconds_count")), count, "{part}");
    }
}

#[test]
fn lag_is_absent_until_a_broker_has_told_the_end_of_the_log() {
    let topics = Topics::create(kafka::shared(), "lag", 1);
    let mut huntd = Huntd::start(kafka::shared(), &topics, &[]);
    huntd.wait_until("its address", |huntd| huntd.log().contains("\"address\":\""));
    let address = huntd.address();
    let lag = || Page::of(&address).samples("huntd_lag_records").map(|(_, lag)| lag).next();
    let fetched = || Page::of(&address).value("huntd_received_bytes_total") > 0;
    let early = lag();
    assert!(fetched() || early.is_none(), "nothing was fetched, and the lag is {early:?}");
    huntd.wait_until("it is ready", |_| get(&address, "/readyz").0 == 200);
    Load::new(10, 1).produce(kafka::shared(), &topics, 1_000);
    huntd.wait_until("the lag is 0", |_| {
        Page::of(&address).progress("acked") == 1_000 && lag() == Some(0)
    });
}
