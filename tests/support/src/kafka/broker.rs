//! One broker process: format, launch, wait, signal, restart.

use super::jars::Jars;
use super::storage::{self, CLUSTER_ID};
use super::{Listener, Options, client};
use crate::PATIENCE;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The script that kills the broker once this process is gone.
const WATCH: &str = include_str!("watch.sh");

const LOG4J: &str = include_str!("log4j2.xml");

const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Ports that the system never gives to an outgoing connection. A client that keeps reconnecting to
/// a stopped broker's port could otherwise be given that same port and connect to itself.
const PORTS: std::ops::Range<u16> = 10_000..32_000;

/// Where a broker of a cluster listens.
#[derive(Clone, Copy)]
pub struct Place {
    /// Its `node.id`, from 1.
    id: usize,
    /// For clients.
    pub port: u16,
    /// For controllers and brokers.
    pub controller_port: u16,
}

impl Place {
    /// Free ports for a cluster of this many brokers.
    pub fn reserve(broker_count: usize) -> Vec<Place> {
        (1..)
            .zip(free_ports(2 * broker_count).chunks_exact(2))
            .map(|(id, pair)| Place { id, port: pair[0], controller_port: pair[1] })
            .collect()
    }
}

/// This many ports that are free now.
pub fn free_ports(count: usize) -> Vec<u16> {
    // All are held until all are found, so they differ.
    let listeners: Vec<TcpListener> = (0..count).map(|_| free_port()).collect();
    let port = |listener: &TcpListener| listener.local_addr().expect("it is bound").port();
    listeners.iter().map(port).collect()
}

fn free_port() -> TcpListener {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Processes that run side by side begin far apart.
    let start = std::process::id().wrapping_mul(131) % u32::from(PORTS.end - PORTS.start);
    for _ in PORTS {
        let step = u32::from(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = (start + step) % u32::from(PORTS.end - PORTS.start) + u32::from(PORTS.start);
        let port = u16::try_from(port).expect("a port within the range");
        if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            return listener;
        }
    }
    panic!("no port between {} and {} is free on 127.0.0.1", PORTS.start, PORTS.end);
}

/// A broker with its data, running or not.
pub struct Broker {
    place: Place,
    java: Vec<String>,
    // Declared before the folder, so that it ends before its data goes.
    process: Option<Process>,
    folder: TempDir,
}

impl Broker {
    /// Writes the configuration and formats the storage of a new broker.
    pub fn format(place: Place, places: &[Place], jars: &Jars, options: &Options) -> Broker {
        let folder = tempfile::Builder::new()
            .prefix("huntd-kafka-")
            .tempdir()
            .expect("the temporary folder can be written");
        let properties = server_properties(place, places, folder.path(), options);
        let file = |name: &str| folder.path().join(name).display().to_string();
        write(&folder.path().join("server.properties"), &properties);
        write(&folder.path().join("log4j2.xml"), LOG4J);

        let log4j = format!("-Dlog4j2.configurationFile={}", file("log4j2.xml"));
        let heap = format!("-Xmx{}m", options.heap_mib);
        // Codecs unpack libraries of their own there, and a broker that is killed leaves them.
        let temporary = format!("-Djava.io.tmpdir={}", folder.path().display());
        let class_path = jars.class_path();
        let mut java: Vec<String> =
            ["java", &heap, &log4j, &temporary, "-XX:-UsePerfData", "-cp", &class_path]
                .map(str::to_owned)
                .to_vec();
        let quick_start = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"].map(str::to_owned);
        if !options.optimized {
            java.splice(1..1, quick_start);
        }
        let kind = (options.version, options.scram.clone());
        storage::format(kind, &folder.path().join("data"), place.id, || {
            run_storage_tool(&java, &file("server.properties"), &options.scram);
        });
        java.extend(jars.archive.iter().chain(&options.java).cloned());
        java.extend(["kafka.Kafka".to_owned(), file("server.properties")]);
        Broker { place, java, process: None, folder }
    }

    /// Starts the process and does not wait for it.
    pub fn launch(&mut self) {
        assert!(self.process.is_none(), "broker {} runs already", self.place.id);
        self.process = Some(Process::launch(&self.java, self.folder.path()));
    }

    /// Waits until the broker serves clients and knows this many live brokers.
    pub fn wait_until_ready(&mut self, broker_count: usize) {
        let deadline = Instant::now() + PATIENCE;
        let probe = client::Probe::new(&self.address());
        while !probe.sees_brokers(broker_count) {
            let process = self.process.as_mut().expect("only a launched broker becomes ready");
            let ended = process.has_ended();
            assert!(
                !ended && Instant::now() < deadline,
                "broker {} {}; its log:\n{}",
                self.place.id,
                if ended { "ended while it started" } else { "does not become ready" },
                self.log()
            );
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Asks the broker to end in order and waits until it has.
    pub fn stop(&mut self) {
        self.end("TERM");
    }

    /// Ends the broker as a power cut would, and waits until it is gone.
    pub fn kill9(&mut self) {
        self.end("KILL");
    }

    /// Stops the broker's clock: connections stay open and nothing is answered.
    pub fn freeze(&mut self) {
        self.running().send("STOP");
        let stat = format!("/proc/{}/stat", self.pid().expect("it runs"));
        let is_stopped = || {
            let text = std::fs::read_to_string(&stat).expect("the process is there");
            text.rsplit(')').next().is_some_and(|rest| rest.starts_with(" T"))
        };
        while !is_stopped() {
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Undoes [`Broker::freeze`].
    pub fn thaw(&mut self) {
        self.running().send("CONT");
    }

    /// Starts a stopped broker again, on the same ports with the same data, and waits until it
    /// serves clients and knows this many live brokers.
    pub fn restart(&mut self, broker_count: usize) {
        self.launch();
        self.wait_until_ready(broker_count);
    }

    /// Where the broker listens, as `host:port`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.place.port)
    }

    /// Process number of the broker's JVM, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(|process| process.pid)
    }

    /// The folder that holds all that the broker writes.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// What the broker has logged: warnings and errors.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    fn running(&mut self) -> &mut Process {
        self.process.as_mut().expect("the broker runs")
    }

    fn end(&mut self, signal: &str) {
        let mut process = self.process.take().expect("the broker runs");
        process.send(signal);
        let deadline = Instant::now() + PATIENCE;
        while !process.has_ended() {
            assert!(Instant::now() < deadline, "the broker ignores {signal}:\n{}", self.log());
            thread::sleep(POLL_INTERVAL);
        }
    }
}

/// Formats storage as this configuration says, with these users.
fn run_storage_tool(java: &[String], config: &str, scram: &[String]) {
    let output = Command::new(&java[0])
        .args(&java[1..])
        .args(["kafka.tools.StorageTool", "format", "--cluster-id", CLUSTER_ID])
        .args(["--config", config])
        .args(scram.iter().flat_map(|user| ["--add-scram", user]))
        .stdin(Stdio::null())
        .output()
        .expect("java was there when the jars were looked for");
    assert!(
        output.status.success(),
        "the broker's storage could not be formatted:\n{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// A broker has Kafka's defaults, except where a line here says why not: what huntd meets in the
/// field, a test must not hide.
fn server_properties(place: Place, places: &[Place], folder: &Path, options: &Options) -> String {
    let voters: Vec<String> = places
        .iter()
        .map(|place| format!("{}@127.0.0.1:{}", place.id, place.controller_port))
        .collect();
    let replicas = places.len().min(3);
    let in_sync = places.len().min(2);
    let Place { id, port, controller_port } = place;
    let [mut further, mut advertised, mut protocols] = [const { String::new() }; 3];
    for Listener { name, protocol, address, told, .. } in &options.listeners {
        further = format!("{further},{name}://{address}");
        advertised = format!("{advertised},{name}://{told}");
        protocols = format!("{protocols},{name}:{protocol}");
    }
    let mut text = format!(
        "process.roles=broker,controller
node.id={id}
controller.quorum.voters={voters}
listeners=CLIENTS://127.0.0.1:{port},CONTROLLERS://127.0.0.1:{controller_port}{further}
advertised.listeners=CLIENTS://127.0.0.1:{port}{advertised}
listener.security.protocol.map=CLIENTS:PLAINTEXT,CONTROLLERS:PLAINTEXT{protocols}
inter.broker.listener.name=CLIENTS
controller.listener.names=CONTROLLERS
log.dirs={folder}/data
# The topics of a test have a copy on each broker, or on three.
default.replication.factor={replicas}
# Kafka's own topics want three brokers, and many a cluster here has one.
offsets.topic.replication.factor={replicas}
transaction.state.log.replication.factor={replicas}
transaction.state.log.min.isr={in_sync}
# Fifty logs take seconds to create.
offsets.topic.num.partitions=1
transaction.state.log.num.partitions=1
# Three seconds for each group; a test's group has one member, or waits for the second one itself.
group.initial.rebalance.delay.ms=0
# Members of a group of the new protocol that are killed are gone as soon as those of a classic one.
group.consumer.min.session.timeout.ms=6000
group.consumer.session.timeout.ms=6000
group.consumer.min.heartbeat.interval.ms=1000
group.consumer.heartbeat.interval.ms=2000
# A killed broker may come back once this has passed; one that the machine starves must not lose it.
broker.session.timeout.ms=4000
broker.heartbeat.interval.ms=500
# The default of 128 MiB is half the heap.
log.cleaner.dedupe.buffer.size=4194304
# Several brokers share two cores.
num.network.threads=2
num.io.threads=4
background.threads=2
",
        voters = voters.join(","),
        folder = folder.display(),
    );
    for Listener { name, settings, .. } in &options.listeners {
        for (key, value) in settings {
            let name = name.to_lowercase();
            writeln!(text, "listener.name.{name}.{key}={value}").expect("it cannot fail");
        }
    }
    for (key, value) in &options.properties {
        writeln!(text, "{key}={value}").expect("writing to a string cannot fail");
    }
    text
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).expect("the temporary folder can be written");
}

/// A running broker under its watching shell.
struct Process {
    watch: Child,
    /// Only this process holds it. When it closes, the broker is killed.
    signals: Option<ChildStdin>,
    pid: u32,
}

impl Process {
    fn launch(java: &[String], folder: &Path) -> Process {
        let log = File::options()
            .create(true)
            .append(true)
            .open(folder.join("log"))
            .expect("the temporary folder can be written");
        let pid_file = folder.join("pid");
        // A restarted broker has an old one.
        if pid_file.exists() {
            fs::remove_file(&pid_file).expect("the temporary folder can be written");
        }
        let mut watch = Command::new("sh")
            .args(["-c", WATCH, "huntd-kafka"])
            .arg(folder)
            .args(java)
            .stdin(Stdio::piped())
            .stdout(log.try_clone().expect("an open file can be duplicated"))
            .stderr(log)
            // An interrupt at the terminal reaches only this process, and the shell when this
            // process ends.
            .process_group(0)
            .spawn()
            .expect("every Unix has sh");
        let signals = watch.stdin.take();
        let pid = read_pid(&pid_file);
        Process { watch, signals, pid }
    }

    /// Sends a signal to the broker, by its name without `SIG`.
    fn send(&mut self, signal: &str) {
        let signals = self.signals.as_mut().expect("open until the process is dropped");
        writeln!(signals, "{signal}").expect("the shell reads until the broker has ended");
    }

    fn has_ended(&mut self) -> bool {
        self.watch.try_wait().expect("the shell is a child of this process").is_some()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.signals = None;
        if let Err(error) = self.watch.wait() {
            assert!(thread::panicking(), "the shell is a child of this process: {error}");
        }
    }
}

/// The shell writes the number at once; it is complete with its line end.
fn read_pid(path: &PathBuf) -> u32 {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let text = fs::read_to_string(path).unwrap_or_default();
        if let Some(pid) = text.strip_suffix('\n') {
            return pid.parse().expect("the shell writes a process number");
        }
        assert!(Instant::now() < deadline, "the broker's shell did not start");
        thread::sleep(POLL_INTERVAL);
    }
}
