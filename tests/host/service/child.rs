//! Signals and systemd's notifications, which belong to a process: the service thread runs in a
//! child, which is this test program with one test selected.

use huntd::service::status::{Phase, Status};
use huntd::service::{Observed, Service, ServiceOptions, log};
use huntd::telemetry::metrics::{Counter, Metrics};
use huntd::telemetry::progress::Progress;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, ErrorKind, Lines, Read, Write};
use std::net::TcpStream;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::os::unix::process::ExitStatusExt;
use std::process::{ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support::PATIENCE;
use support::notified::Systemd;
use support::process::OwnedChild;

/// Set in the child only.
const ROLE: &str = "HUNTD_TEST_SERVICE_CHILD";

/// A service thread without a daemon behind it: standard input sets the turns and phases it shows.
struct Daemon {
    process: OwnedChild,
    commands: Option<ChildStdin>,
    answers: Lines<BufReader<ChildStdout>>,
    /// Where it answers HTTP.
    address: String,
}

impl Daemon {
    fn start(variables: &[(&str, &str)]) -> Daemon {
        let mut process = Command::new(std::env::current_exe().expect("a test has a program"))
            .args(["--exact", "service::child::the_child_obeys_its_commands", "--nocapture"])
            .env(ROLE, "1")
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the test program runs");
        let commands = process.stdin.take();
        let answers = BufReader::new(process.stdout.take().expect("piped")).lines();
        let address = String::new();
        let mut daemon = Daemon { process: process.into(), commands, answers, address };
        daemon.address = daemon.wait_for("child: serving at ");
        daemon
    }

    fn command(&mut self, word: &str) {
        let commands = self.commands.as_mut().expect("open until the end");
        writeln!(commands, "{word}").expect("the child reads");
        self.wait_for(&format!("child: {word} done"));
    }

    /// What the child says behind these words.
    fn wait_for(&mut self, words: &str) -> String {
        let mut behind = self.answers.by_ref().filter_map(|answer| {
            answer.ok()?.split_once(words).map(|(_, behind)| behind.to_owned())
        });
        behind.next().unwrap_or_else(|| panic!("the child ended without saying {words:?}"))
    }

    /// The first line of the answer to a GET of this path.
    fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).expect("the child listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        write!(stream, "GET {path} HTTP/1.1\r\nhost: huntd\r\nconnection: close\r\n\r\n")
            .expect("the child reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("the child answers");
        answer.lines().next().expect("an answer has a line").to_owned()
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.process);
        kill_process(pid, signal).expect("the child runs");
    }

    fn finish(mut self) -> ExitStatus {
        self.commands = None;
        self.process.wait().expect("the child can be waited for")
    }
}

#[test]
fn the_child_obeys_its_commands() {
    if std::env::var_os(ROLE).is_none() {
        // Run by hand or with all other tests: prove that a parent is obeyed at all.
        let mut daemon = Daemon::start(&[]);
        daemon.command("turn");
        daemon.command("stick");
        assert!(daemon.finish().success());
        return;
    }
    let observed = Observed {
        metrics: Arc::new(Metrics::new()),
        progress: Arc::new(Progress::new()),
        status: Arc::new(Status::new()),
    };
    let options = ServiceOptions {
        listen: "127.0.0.1:0".parse().expect("an address"),
        log_format: log::LogFormat::Text,
        log_level: tracing::Level::ERROR,
    };
    let status = observed.status.clone();
    let service = Service::start(&options, observed.clone(), None, move || {
        status.enter(Phase::Draining);
        println!("child: stop asked for");
    })
    .expect("a free port");
    println!("child: serving at {}", service.address());
    let turning = Arc::new(AtomicBool::new(false));
    let mut hot = None;
    for command in std::io::stdin().lock().lines() {
        let command = command.expect("the parent writes text");
        match command.as_str() {
            "ready" => observed.status.enter(Phase::Ready),
            "turn" => {
                turning.store(true, Ordering::Release);
                let (turning, metrics) = (turning.clone(), observed.metrics.clone());
                hot = Some(std::thread::spawn(move || {
                    while turning.load(Ordering::Acquire) {
                        metrics.add(Counter::Turns, 1);
                        std::thread::sleep(Duration::from_millis(5));
                    }
                }));
            }
            "stick" => {
                turning.store(false, Ordering::Release);
                hot.take().map(std::thread::JoinHandle::join);
            }
            other => panic!("no such command: {other}"),
        }
        println!("child: {command} done");
    }
    turning.store(false, Ordering::Release);
    service.finish(Ok(()));
}

fn has(messages: &[Vec<String>], line: &str) -> bool {
    messages.iter().flatten().any(|heard| heard == line)
}

#[test]
fn systemd_gets_ready_status_watchdog_and_stopping() {
    let systemd = Systemd::listen();
    let mut daemon =
        Daemon::start(&[("NOTIFY_SOCKET", &systemd.path), ("WATCHDOG_USEC", "300000")]);
    let before = systemd.hear_until("STATUS=huntd is starting");
    assert!(!has(&before, "READY=1") && !has(&before, "WATCHDOG=1"));
    daemon.command("turn");
    systemd.hear_until("WATCHDOG=1");
    systemd.hear_until("EXTEND_TIMEOUT_USEC=");
    daemon.command("ready");
    systemd.hear_until("READY=1");
    systemd.hear_until("WATCHDOG=1");

    // Stuck: what was under way may feed the watchdog once more, and nothing after that. Two
    // status lines are further apart than many samples.
    daemon.command("stick");
    systemd.hear_until("STATUS=");
    let stuck = systemd.hear_until("STATUS=");
    assert!(!has(&stuck[1..], "WATCHDOG=1"), "{stuck:?}");
    daemon.command("turn");
    systemd.hear_until("WATCHDOG=1");

    daemon.signal(Signal::TERM);
    daemon.wait_for("child: stop asked for");
    let stopping = systemd.hear_until("STOPPING=1");
    assert!(!has(&stopping, "READY=1"), "ready is said once: {stopping:?}");
    assert!(daemon.finish().success());
    systemd.hear_until("STATUS=huntd has drained");
}

/// A socket with no room left for a message.
fn full_socket(address: &SocketAddr) -> UnixDatagram {
    let socket = UnixDatagram::bind_addr(address).expect("a socket");
    let filler = UnixDatagram::unbound().expect("a socket");
    filler.set_nonblocking(true).expect("a flag");
    while let Ok(sent) = filler.send_to_addr(b"FILLER=1", address) {
        assert_eq!(sent, 8);
    }
    socket
}

/// What was said and not read yet, except what filled the socket.
fn unread(socket: &UnixDatagram) -> Vec<String> {
    socket.set_nonblocking(true).expect("a flag");
    let mut lines = Vec::new();
    let mut message = [0; 1024];
    loop {
        match socket.recv(&mut message) {
            Ok(length) => {
                let text = std::str::from_utf8(&message[..length]).expect("text");
                lines.extend(text.lines().filter(|line| *line != "FILLER=1").map(str::to_owned));
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return lines,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Reads the socket until all of these lines came.
fn read_until(socket: &UnixDatagram, wanted: &[&str]) {
    let end = Instant::now() + PATIENCE;
    let mut read = Vec::new();
    while !wanted.iter().all(|line| read.iter().any(|one| one == line)) {
        assert!(Instant::now() < end, "{wanted:?} are not in {read:?}");
        std::thread::sleep(Duration::from_millis(10));
        read.extend(unread(socket));
    }
}

#[test]
fn a_service_manager_that_reads_nothing_delays_neither_answers_nor_a_drain() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("notify").display().to_string();
    let socket = full_socket(&SocketAddr::from_pathname(&path).expect("it is short"));
    let mut daemon = Daemon::start(&[("NOTIFY_SOCKET", &path), ("WATCHDOG_USEC", "300000")]);
    daemon.command("turn");
    daemon.command("ready");
    for path in ["/livez", "/readyz", "/metrics"] {
        assert_eq!(daemon.get(path), "HTTP/1.1 200 OK", "{path}");
    }
    daemon.signal(Signal::TERM);
    daemon.wait_for("child: stop asked for");
    assert!(daemon.finish().success());
    assert_eq!(unread(&socket), [""; 0], "nothing had room");
}

#[test]
fn what_a_service_manager_has_to_hear_is_said_once_it_reads() {
    let name = format!("huntd-test-{}", std::process::id());
    let socket = full_socket(&SocketAddr::from_abstract_name(&name).expect("it is short"));
    let named = format!("@{name}");
    let mut daemon = Daemon::start(&[("NOTIFY_SOCKET", &named), ("WATCHDOG_USEC", "300000")]);
    daemon.command("turn");
    daemon.command("ready");
    // More than a sample later, the sentence that said it first is gone.
    std::thread::sleep(Duration::from_millis(500));
    read_until(&socket, &["READY=1"]);
    read_until(&socket, &["WATCHDOG=1"]);
    daemon.signal(Signal::TERM);
    daemon.wait_for("child: stop asked for");
    read_until(&socket, &["STOPPING=1"]);
    assert!(daemon.finish().success());
}

#[test]
fn the_first_signal_asks_to_stop_and_the_second_ends_the_process() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut daemon = Daemon::start(&[]);
        daemon.signal(signal);
        daemon.wait_for("child: stop asked for");
        assert!(daemon.process.try_wait().expect("waits").is_none(), "it drains");
        daemon.signal(signal);
        let status = daemon.process.wait().expect("waits");
        assert_eq!((status.code(), status.signal()), (Some(130), None));
    }
}
