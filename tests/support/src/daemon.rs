//! The daemon as a child process, with a configuration of its own.

use crate::PATIENCE;
use crate::kafka::{Cluster, unique_name};
use crate::process::{OwnedChild, limited};
use crate::scrape::try_get;
use std::fs::{File, Permissions};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The built daemon: Cargo names it to the tests and benches that it runs, and puts it one folder
/// above them.
pub fn program() -> PathBuf {
    let named = std::env::var_os("CARGO_BIN_EXE_huntd").map(PathBuf::from);
    named.unwrap_or_else(|| {
        let running = std::env::current_exe().expect("a program knows its file");
        running.ancestors().nth(2).expect("it is in deps/").join("huntd")
    })
}

/// Events carry times of their own, and some are long past.
const KEPT: [(&str, &str); 1] = [("retention.ms", "-1")];

/// One input topic with what belongs to it.
pub struct Topics {
    pub input: String,
    pub output: String,
    pub dead_letters: String,
    pub partitions: i32,
}

impl Topics {
    /// Names of topics that are not there.
    pub fn named(what: &str, partitions: i32) -> Topics {
        let name = unique_name(what);
        Topics {
            input: name.clone(),
            output: format!("{name}-updates"),
            dead_letters: format!("{name}-dead"),
            partitions,
        }
    }

    /// New topics, which keep all records.
    pub fn create(cluster: &Cluster, what: &str, partitions: i32) -> Topics {
        let topics = Topics::named(what, partitions);
        topics.create_on(cluster);
        topics
    }

    /// Creates those that were only named.
    pub fn create_on(&self, cluster: &Cluster) {
        let Topics { input, output, dead_letters, partitions } = self;
        let all: [(&str, i32); 3] =
            [(input, *partitions), (output, *partitions), (dead_letters, 1)];
        cluster.client().create_topics(&all, &KEPT);
    }

    /// Like [`Topics::create`], on one broker of a new cluster, which also coordinates all groups.
    pub fn led_by(cluster: &Cluster, what: &str, partitions: usize, broker: i32) -> Topics {
        let topics = Topics::named(what, i32::try_from(partitions).expect("a count"));
        let client = cluster.client();
        client.create_topic_on("__consumer_offsets", &[broker], &[("cleanup.policy", "compact")]);
        // `huntd topics --check` wants this, too.
        let of_input = [KEPT[0], ("message.timestamp.after.max.ms", "60000")];
        client.create_topic_on(&topics.input, &vec![broker; partitions], &of_input);
        client.create_topic_on(&topics.output, &vec![broker; partitions], &KEPT);
        client.create_topic_on(&topics.dead_letters, &[broker], &KEPT);
        topics
    }

    /// Another output of the same input.
    pub fn again(&self, cluster: &Cluster) -> Topics {
        let output = unique_name(&self.input);
        let topics = Topics {
            input: self.input.clone(),
            dead_letters: format!("{output}-dead"),
            output,
            partitions: self.partitions,
        };
        let both: [(&str, i32); 2] = [(&topics.output, self.partitions), (&topics.dead_letters, 1)];
        cluster.client().create_topics(&both, &[]);
        topics
    }

    /// The consumer group.
    pub fn group(&self) -> &str {
        &self.output
    }
}

/// The stages' limits of config/test.toml, as settings for [`Huntd::start`].
pub fn tiny_limits() -> Vec<(String, String)> {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../config/test.toml");
    let text = std::fs::read_to_string(file).expect("the file is there");
    let sections = text.split("\n[").filter_map(|section| section.split_once("]\n"));
    let stages = sections.filter(|(name, _)| ["fetch", "publish"].contains(name));
    stages.map(|(name, lines)| (name.to_owned(), lines.to_owned())).collect()
}

/// A running daemon. Dropped, it is killed.
pub struct Huntd {
    child: OwnedChild,
    folder: tempfile::TempDir,
}

/// What a daemon left behind.
pub struct Ended {
    pub status: ExitStatus,
    /// Its log, a JSON object a line.
    pub log: String,
}

impl Huntd {
    /// Starts a daemon on `topics`; `settings` are further lines of the configuration, by section.
    pub fn start(cluster: &Cluster, topics: &Topics, settings: &[(&str, &str)]) -> Huntd {
        Huntd::spawn(&cluster.bootstrap(), topics, settings, &[], &[])
    }

    /// Like [`Huntd::start`], with further arguments.
    pub fn start_as(
        cluster: &Cluster,
        topics: &Topics,
        settings: &[(&str, &str)],
        arguments: &[&str],
    ) -> Huntd {
        Huntd::spawn(&cluster.bootstrap(), topics, settings, arguments, &[])
    }

    /// Like [`Huntd::start`], with a socket for the messages to systemd.
    pub fn start_under(
        notify_socket: &str,
        cluster: &Cluster,
        topics: &Topics,
        settings: &[(&str, &str)],
    ) -> Huntd {
        Huntd::spawn(
            &cluster.bootstrap(),
            topics,
            settings,
            &[],
            &[("NOTIFY_SOCKET", notify_socket)],
        )
    }

    /// Like [`Huntd::start`], with these brokers.
    pub fn start_with(brokers: &[&str], topics: &Topics, settings: &[(&str, &str)]) -> Huntd {
        Huntd::spawn(&brokers.join(","), topics, settings, &[], &[])
    }

    /// A daemon with at most this many file descriptors.
    pub fn start_with_descriptors(cluster: &Cluster, topics: &Topics, descriptors: u32) -> Huntd {
        // Descriptors that the tests' process lets its children inherit would count, too.
        let close = "for open in /proc/self/fd/*; do open=${open##*/}; \
                     [ $open -gt 2 ] && eval \"exec $open>&-\"; done";
        let limited = format!("{close}; ulimit -n {descriptors} && exec \"$0\" \"$@\"");
        let mut shell = Command::new("bash");
        shell.arg("-c").arg(limited).arg(program());
        Huntd::spawn_by(shell, &cluster.bootstrap(), topics, &[], &[], &[])
    }

    /// Starts a daemon with these brokers and with this file in the place of `/etc/hosts`. Later
    /// changes of the file count, too.
    pub fn start_with_hosts(hosts: &Path, brokers: &[&str], topics: &Topics) -> Huntd {
        let mounted = "mount --bind \"$0\" /etc/hosts && exec \"$@\"";
        let mut unshare = Command::new("unshare");
        unshare.args(["--mount", "sh", "-c", mounted]).arg(hosts).arg(program());
        Huntd::spawn_by(unshare, &brokers.join(","), topics, &[], &[], &[])
    }

    /// A daemon of a user without rights who may have at most this many threads.
    pub fn start_with_threads(cluster: &Cluster, topics: &Topics, threads: u32) -> Huntd {
        let limited = limited(&format!("--nproc={threads}"), program());
        Huntd::spawn_by(limited, &cluster.bootstrap(), topics, &[], &[], &[])
    }

    fn spawn(
        brokers: &str,
        topics: &Topics,
        settings: &[(&str, &str)],
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> Huntd {
        Huntd::spawn_by(Command::new(program()), brokers, topics, settings, arguments, environment)
    }

    /// Like [`Huntd::start`], with the program that a command begins with.
    pub fn start_by(
        program: Command,
        cluster: &Cluster,
        topics: &Topics,
        settings: &[(&str, &str)],
    ) -> Huntd {
        Huntd::spawn_by(program, &cluster.bootstrap(), topics, settings, &[], &[])
    }

    /// Starts the program that a command begins with.
    fn spawn_by(
        mut program: Command,
        brokers: &str,
        topics: &Topics,
        settings: &[(&str, &str)],
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> Huntd {
        let brokers: Vec<&str> = brokers.split(',').collect();
        let folder = tempfile::tempdir().expect("a temporary folder");
        // A daemon of another user reads its configuration there.
        let readable = Permissions::from_mode(0o755);
        std::fs::set_permissions(folder.path(), readable).expect("the folder is ours");
        let config = folder.path().join("huntd.toml");
        let mut text = format!(
            "[kafka]\nbrokers = {:?}\ngroup = \"{}\"\ninput_topic = \"{}\"\noutput_topic = \"{}\"\n\
             dead_letter_topic = \"{}\"\n[service]\n\
             listen = \"127.0.0.1:0\"\nlog_format = \"json\"\n",
            brokers,
            topics.group(),
            topics.input,
            topics.output,
            topics.dead_letters,
        );
        // Most tests compare with a replay of the events that they have produced, and no others.
        let ticks = ("input", "tick_every_ms = 0");
        let has_own = settings.iter().any(|(section, _)| *section == ticks.0);
        let is_timeout =
            |(section, lines): &(&str, &str)| *section == "kafka" && lines.contains("session_");
        let timeout = ("kafka", "session_timeout_ms = 6000");
        let timeout = (!settings.iter().any(is_timeout)).then_some(timeout);
        let settings = settings.iter().copied().chain((!has_own).then_some(ticks)).chain(timeout);
        for (section, lines) in settings {
            let header = format!("[{section}]\n");
            match text.find(&header) {
                Some(place) => text.insert_str(place + header.len(), &format!("{lines}\n")),
                None => text.push_str(&format!("{header}{lines}\n")),
            }
        }
        File::create(&config)
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .expect("the configuration is written");
        let log = File::create(folder.path().join("log")).expect("the log is created");
        let child = program
            .args(["run", "--config"])
            .arg(&config)
            .args(arguments)
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("the daemon is started");
        Huntd { child: child.into(), folder }
    }

    /// The configuration that it was started with.
    pub fn config(&self) -> String {
        let path = self.folder.path().join("huntd.toml");
        path.to_str().expect("the path is text").to_owned()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal, by its name without `SIG`.
    pub fn signal(&self, name: &str) {
        use rustix::process::{Pid, Signal, kill_process};
        let signal = match name {
            "STOP" => Signal::STOP,
            "CONT" => Signal::CONT,
            "HUP" => Signal::HUP,
            other => panic!("no test sends {other}"),
        };
        kill_process(Pid::from_child(&self.child), signal).expect("it is there");
    }

    /// Stops the daemon, and returns once the Fetch under way is answered with nothing: after
    /// `fetch.wait_ms_max`, 100 ms, and the time that a busy broker takes.
    pub fn sleep_between_fetches(&self) {
        self.signal("STOP");
        std::thread::sleep(Duration::from_secs(3));
    }

    /// What an HTTP GET of this path answers, head and body.
    pub fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(self.address()).expect("the daemon serves HTTP");
        // Only a guard against waiting for ever.
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        write!(stream, "GET {path} HTTP/1.1\r\nhost: huntd\r\nconnection: close\r\n\r\n")
            .expect("the daemon reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("the daemon answers");
        answer
    }

    /// The sum of a metric over its labels.
    pub fn metric(&self, name: &str) -> u64 {
        let page = self.get("/metrics");
        assert!(page.contains(&format!("# TYPE {name} ")), "there is no metric {name}");
        let values = page.lines().filter_map(|line| {
            let rest = line.strip_prefix(name)?;
            let is_whole = rest.starts_with('{') || rest.starts_with(' ');
            is_whole.then(|| rest.rsplit(' ').next()?.parse::<u64>().ok())?
        });
        values.sum()
    }

    fn log_file(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    /// What the daemon has logged so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log_file()).expect("the log is there")
    }

    /// Waits until the condition holds; a daemon that ends before has failed.
    pub fn wait_until(&mut self, what: &str, mut condition: impl FnMut(&Huntd) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !condition(self) {
            let ended = self.child.try_wait().expect("the child can be asked");
            assert!(ended.is_none(), "the daemon ended before {what}:\n{}", self.log());
            assert!(Instant::now() < end, "no {what}:\n{}\n{}", self.log(), self.readiness());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// `/readyz` and the metrics of the shards, as far as the daemon answers.
    fn readiness(&self) -> String {
        if !self.log().contains("\"address\"") {
            return String::new();
        }
        let page = |path| match try_get(&self.address(), path) {
            Ok((_, body)) => body,
            Err(error) => format!("{path}: {error}"),
        };
        let metrics = page("/metrics");
        let of_shards = |line: &&str| line.contains("{partition=") || line.contains("_shards_");
        let shards: Vec<&str> = metrics.lines().filter(of_shards).collect();
        format!("{}\n{}", page("/readyz"), shards.join("\n"))
    }

    /// Waits until the log has the address of `/metrics`: before, no request can be sent.
    pub fn wait_for_address(&mut self) {
        self.wait_until("the address", |huntd| huntd.log().contains("\"address\""));
    }

    /// Whether the daemon has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("the child can be asked").is_some()
    }

    /// Waits until at least so many shards are halted. The log does not say it, because a shard is
    /// no longer halted once the group has taken its partition away.
    pub fn wait_until_halted(&mut self, shards_min: u64) {
        self.wait_for_address();
        let is_halted = |huntd: &Huntd| huntd.metric("huntd_shards_halted") >= shards_min;
        self.wait_until("halted shards", is_halted);
    }

    /// Waits until a shard is halted, stops the daemon, and checks its exit code.
    pub fn stop_halted(mut self) -> Ended {
        self.wait_until_halted(1);
        let ended = self.stop();
        assert_eq!(ended.status.code(), Some(10), "{}", ended.log);
        ended
    }

    /// Sends SIGTERM and waits for the end.
    pub fn stop(self) -> Ended {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it is there");
        self.wait()
    }

    /// Waits until the daemon ends by itself.
    pub fn wait(mut self) -> Ended {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("the child can be asked") {
                return Ended { status, log: self.log() };
            }
            assert!(Instant::now() < end, "the daemon does not end:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Kills the daemon with SIGKILL.
    pub fn kill9(mut self) -> Ended {
        self.child.kill().expect("the child is there");
        let status = self.child.wait().expect("the child can be waited for");
        Ended { status, log: self.log() }
    }

    /// The port of `/metrics`, as the log tells it.
    pub fn address(&self) -> String {
        let log = self.log();
        let (_, rest) = log.split_once("\"address\":\"").expect("the log names the address");
        rest.split('"').next().expect("a string ends").to_owned()
    }
}
