//! The programs that are compared: built on demand, started as child processes, looked at from
//! outside, ended by closing their standard input.

use crate::output::Kind;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use support::accounts;
use support::daemon::{Huntd, Topics};
use support::kafka::Cluster;
use support::kafka::secure::{self, SecureCluster};

/// Where the peers' sources are.
const PEERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/bench/peers");

/// Clock ticks of proc_pid_stat(5) a second, on every Linux that huntd runs on.
const TICKS_PER_S: u64 = 100;

/// What can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    /// Fetch, copy, produce: the machine's floor.
    Echo,
    HuntdJson,
    HuntdBinary,
    RdkafkaChannel,
    RdkafkaTokio,
    RdkafkaSmol,
    FranzGo,
    KafkaStreams,
}

/// Where programs reach the broker.
pub(crate) struct Listener {
    /// `host:port`.
    address: String,
    /// Signs the broker's certificate; `None`: the listener is a plaintext one.
    ca_file: Option<PathBuf>,
}

impl Listener {
    /// The plaintext one.
    pub(crate) fn plaintext(cluster: &Cluster) -> Listener {
        Listener { address: cluster.bootstrap(), ca_file: None }
    }

    /// The one that speaks TLS.
    pub(crate) fn tls(secure: &SecureCluster) -> Listener {
        Listener {
            address: secure.address(secure::Kind::Tls),
            ca_file: Some(secure.file("ca.pem")),
        }
    }
}

impl Program {
    pub(crate) const ALL: [Program; 8] = [
        Program::Echo,
        Program::HuntdJson,
        Program::HuntdBinary,
        Program::RdkafkaChannel,
        Program::RdkafkaTokio,
        Program::RdkafkaSmol,
        Program::FranzGo,
        Program::KafkaStreams,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Program::Echo => "echo",
            Program::HuntdJson => "huntd",
            Program::HuntdBinary => "huntd, binary",
            Program::RdkafkaChannel => "rdkafka-channel",
            Program::RdkafkaTokio => "rdkafka-tokio",
            Program::RdkafkaSmol => "rdkafka-smol",
            Program::FranzGo => "franz-go",
            Program::KafkaStreams => "kafka-streams",
        }
    }

    pub(crate) fn is_huntd(self) -> bool {
        matches!(self, Program::HuntdJson | Program::HuntdBinary)
    }

    /// Whether it does the reference job instead of huntd's.
    pub(crate) fn is_peer(self) -> bool {
        !self.is_huntd() && self != Program::Echo
    }

    /// How long it works before it is measured at a rate, if that is longer than others: a JVM
    /// compiles while it works, as the broker's does before everything else.
    pub(crate) fn warm_up(self) -> Option<Duration> {
        (self == Program::KafkaStreams).then_some(Duration::from_secs(15))
    }

    /// What its output holds.
    pub(crate) fn output(self) -> Kind {
        match self {
            Program::Echo => Kind::Copies,
            _ => Kind::Frames,
        }
    }

    /// Builds it, if it is a peer; for a smoke run without optimisation, which takes a third of the
    /// time, and without TLS. The error says what is missing.
    pub(crate) fn build(self, smoke: bool, over_tls: bool) -> Result<(), String> {
        match self {
            Program::Echo | Program::HuntdJson | Program::HuntdBinary => Ok(()),
            Program::RdkafkaChannel | Program::RdkafkaTokio | Program::RdkafkaSmol => {
                let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
                let manifest = format!("{PEERS}/rust-rdkafka/Cargo.toml");
                let (profile, built) =
                    if smoke { ("dev", "debug") } else { ("release", "release") };
                let target = folder("rust-rdkafka");
                let mut build = Command::new(cargo);
                build.args(["build", "--locked", "--profile", profile, "--bin", self.name()]);
                build.args(["--manifest-path", &manifest, "--target-dir"]);
                build.arg(&target);
                if over_tls {
                    build.args(["--features", "tls"]);
                }
                run(&mut build)?;
                let program = target.join(built).join(self.name());
                let copied = fs::copy(program, target.join(self.name()));
                copied.map(|_| ()).map_err(|error| format!("what was built is not there: {error}"))
            }
            Program::FranzGo => {
                let mut build = Command::new("go");
                let source = format!("{PEERS}/franz-go");
                run(build.args(["build", "-C", &source, "-o"]).arg(folder("franz-go")).arg("."))
            }
            Program::KafkaStreams => build_kafka_streams(),
        }
    }

    /// Whether it can do without plaintext, as it is built for a smoke run or not.
    pub(crate) fn speaks_tls(self, smoke: bool) -> bool {
        match self {
            Program::Echo | Program::KafkaStreams => false,
            Program::RdkafkaChannel | Program::RdkafkaTokio | Program::RdkafkaSmol => !smoke,
            Program::HuntdJson | Program::HuntdBinary | Program::FranzGo => true,
        }
    }

    /// Starts it on these topics.
    pub(crate) fn start(self, listener: &Listener, topics: &Topics) -> Running {
        let Listener { address, ca_file } = listener;
        let huntd = |format: &str| {
            let format = format!("format = \"{format}\"");
            let tls = ca_file.as_ref().map(|file| format!("enabled = true\nca_file = {file:?}"));
            let tls = tls.as_ref().map(|lines| ("kafka.tls", lines.as_str()));
            let settings: Vec<_> = [("publish", format.as_str())].into_iter().chain(tls).collect();
            Running::Huntd(Huntd::start_with(&[address], topics, &settings))
        };
        let mut command = match self {
            Program::HuntdJson => return huntd("json"),
            Program::HuntdBinary => return huntd("binary"),
            Program::Echo => {
                let mut echo = Command::new(std::env::current_exe().expect("this program"));
                echo.arg("echo");
                echo
            }
            Program::RdkafkaChannel | Program::RdkafkaTokio | Program::RdkafkaSmol => {
                Command::new(folder("rust-rdkafka").join(self.name()))
            }
            Program::FranzGo => Command::new(folder("franz-go").join("franz-go")),
            Program::KafkaStreams => kafka_streams(),
        };
        let child = command
            .args([address, &topics.input, &topics.output])
            .arg(topics.partitions.to_string())
            .args(ca_file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("what was built can be started");
        Running::Peer(Peer(child))
    }
}

/// A folder of the target folder for what is built of a peer.
fn folder(peer: &str) -> PathBuf {
    // Cargo gives benchmarks `<target>/tmp`, wherever the target folder is.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("the target folder");
    let folder = target.join("peers").join(peer);
    fs::create_dir_all(&folder).expect("the target folder can be written");
    folder
}

fn run(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{name} cannot be started: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].concat();
    Err(format!("{name} has failed:\n{}", String::from_utf8_lossy(&said)))
}

/// Jars by Maven, then the one source file by the compiler.
fn build_kafka_streams() -> Result<(), String> {
    let folder = folder("kafka-streams");
    let source = format!("{PEERS}/kafka-streams");
    let pom =
        fs::read_to_string(format!("{source}/pom.xml")).expect("the pom is part of the source");
    let fetched = folder.join("fetched.xml");
    // Written after the jars that it names.
    if fs::read_to_string(&fetched).ok().as_ref() != Some(&pom) {
        let mut maven = Command::new("mvn");
        maven.args(["--batch-mode", "--quiet", "--file"]).arg(format!("{source}/pom.xml"));
        let jars = folder.join("jars");
        let output = format!("-DoutputDirectory={}", jars.display());
        run(maven.args(["dependency:copy-dependencies", &output]))?;
        fs::write(&fetched, pom).expect("the target folder can be written");
    }
    let mut compiler = Command::new("javac");
    let jars = format!("{}/jars/*", folder.display());
    compiler.args(["-cp", &jars, "-d"]).arg(folder.join("classes"));
    run(compiler.arg(format!("{source}/Reference.java")))
}

fn kafka_streams() -> Command {
    let folder = folder("kafka-streams");
    let mut java = Command::new("java");
    let classes = format!("{0}/classes:{0}/jars/*", folder.display());
    java.args(["-Xms512m", "-Xmx512m", "-XX:+UseParallelGC", "-XX:-UsePerfData"]);
    java.arg(format!("-Djava.io.tmpdir={}", folder.display()));
    java.args(["-cp", &classes, "Reference"]);
    java
}

/// A program at work. Dropped, it is killed.
pub(crate) enum Running {
    Huntd(Huntd),
    Peer(Peer),
}

/// A child process that is not huntd.
pub(crate) struct Peer(Child);

impl Drop for Peer {
    fn drop(&mut self) {
        // Gone already, if it has ended in order.
        let _gone = self.0.kill();
        let _reaped = self.0.wait();
    }
}

impl Running {
    pub(crate) fn pid(&self) -> u32 {
        match self {
            Running::Huntd(huntd) => huntd.pid(),
            Running::Peer(peer) => peer.0.id(),
        }
    }

    /// The address of its metrics, if it has some.
    pub(crate) fn metrics(&mut self) -> Option<String> {
        let Running::Huntd(huntd) = self else { return None };
        huntd.wait_until("its address", |huntd| huntd.log().contains("\"address\":\""));
        Some(huntd.address())
    }

    /// Ends it in order: the digest of the state that it had, as it says it; none of the echo.
    pub(crate) fn stop(self, partitions: i32) -> Option<u64> {
        match self {
            Running::Huntd(huntd) => {
                let ended = huntd.stop();
                assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
                let digests = (0..partitions).map(|of| accounts::logged_digest(&ended.log, of));
                Some(digests.fold(0, |all: u64, digest| all.rotate_left(7) ^ digest))
            }
            Running::Peer(mut peer) => {
                drop(peer.0.stdin.take());
                let mut said = String::new();
                let mut output = peer.0.stdout.take().expect("it was piped");
                output.read_to_string(&mut said).expect("text");
                let status = peer.0.wait().expect("a child of this process");
                assert!(status.success(), "{status}: {said}");
                let digest = said.trim().rsplit_once("digest=")?.1;
                let rejects = said.split_once("rejects=").map_or("", |(_, rest)| rest);
                assert!(rejects.starts_with("0 "), "the load holds events only: {said}");
                Some(u64::from_str_radix(digest, 16).expect("a digest is hexadecimal"))
            }
        }
    }
}

/// Nanoseconds for which a process has had a core, those of its ended threads included.
pub(crate) fn cpu_ns(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    let (_, fields) = stat.rsplit_once(") ").expect("the name stands in brackets");
    // Fields are counted from 1 in the manual; the third is the first one here.
    let field = |number: usize| -> u64 {
        let text = fields.split(' ').nth(number - 3).expect("a known field");
        text.parse().expect("a number of ticks")
    };
    (field(14) + field(15)) * (1_000_000_000 / TICKS_PER_S)
}

/// Nanoseconds for which this thread has had a core.
pub(crate) fn thread_cpu_ns() -> u64 {
    let line = fs::read_to_string("/proc/thread-self/schedstat").expect("this thread runs");
    let first = line.split(' ').next().expect("a line has words");
    first.parse().expect("a number of nanoseconds")
}

/// KiB of a line of a process' memory status.
pub(crate) fn memory_kib(pid: u32, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a known line");
    line.trim().trim_end_matches(" kB").parse().expect("a number of KiB")
}
