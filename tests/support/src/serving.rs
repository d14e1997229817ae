//! `huntd serve` as a child process.

use crate::PATIENCE;
use crate::daemon::{Huntd, program};
use crate::kafka::broker::free_ports;
use crate::process::{OwnedChild, before_others};
use crate::scrape::get;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The real-time priority of servers: one above that of the clients beside them, which would
/// otherwise run on other machines and take no core from a server.
pub const SERVER_PRIORITY: &str = "2";

/// A serving process. Dropped, it is killed.
pub struct Serving {
    child: OwnedChild,
    folder: tempfile::TempDir,
    address: String,
}

impl Serving {
    /// A process at a port that is no other program's while the process is away, be it killed.
    pub fn start(huntd: &Huntd) -> Serving {
        Serving::start_with(huntd, &[])
    }

    /// A process at such a port, with further settings.
    pub fn start_with(huntd: &Huntd, environment: &[(&str, &str)]) -> Serving {
        Serving::start_at(huntd, &format!("127.0.0.1:{}", free_ports(1)[0]), environment)
    }

    /// A process whose serving thread goes before others, as its unit can let it.
    pub fn start_before_others(huntd: &Huntd) -> Serving {
        let mut command = before_others(&["--reset-on-fork", "--fifo", SERVER_PRIORITY]);
        command.arg(program());
        let started = Serving::run(command, (huntd, &[]), "127.0.0.1:0", &[]);
        started.unwrap_or_else(|log| panic!("it ended:\n{log}"))
    }

    /// A process that shows a zone as it was after a record: `ZONE:OFFSET`.
    pub fn start_showing(huntd: &Huntd, place: &str) -> Serving {
        let started = Serving::try_start(huntd, &["--at", place], "127.0.0.1:0", &[]);
        started.unwrap_or_else(|log| panic!("it ended:\n{log}"))
    }

    /// A process that listens there, with further settings.
    pub fn start_at(huntd: &Huntd, listen: &str, environment: &[(&str, &str)]) -> Serving {
        let started = Serving::try_start(huntd, &[], listen, environment);
        started.unwrap_or_else(|log| panic!("it ended:\n{log}"))
    }

    /// Starts a process, or gives the log of one that ended before it listened.
    pub fn try_start(
        huntd: &Huntd,
        arguments: &[&str],
        listen: &str,
        environment: &[(&str, &str)],
    ) -> Result<Serving, String> {
        Serving::run(Command::new(program()), (huntd, arguments), listen, environment)
    }

    fn run(
        mut command: Command,
        (huntd, arguments): (&Huntd, &[&str]),
        listen: &str,
        environment: &[(&str, &str)],
    ) -> Result<Serving, String> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let log = File::create(folder.path().join("log")).expect("the log is created");
        let child = command
            .args(["serve", "--config", &huntd.config()])
            .args(arguments)
            .env("HUNTD_SERVE__LISTEN", listen)
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("huntd serve is started");
        let mut serving = Serving { child: child.into(), folder, address: String::new() };
        let end = Instant::now() + PATIENCE;
        while serving.address.is_empty() {
            let has_ended = serving.child.try_wait().expect("the child can be asked").is_some();
            let log = serving.log();
            if has_ended {
                return Err(log);
            }
            assert!(Instant::now() < end, "no address:\n{log}");
            if let Some((_, rest)) = log.split_once("\"address\":\"") {
                serving.address = rest.split('"').next().unwrap_or_default().to_owned();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(serving)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The first players of the world's board, by their ids.
    pub fn players(&self, count: usize) -> Vec<String> {
        let (_, body) = get(&self.address, &format!("/v1/boards/world?count={count}"));
        let board: serde_json::Value = serde_json::from_str(&body).expect("it is JSON");
        let places = board["places"].as_array().expect("a board has places");
        let id = |place: &serde_json::Value| place["player_id"].as_str().map(str::to_owned);
        places.iter().map(|place| id(place).expect("a place has a player")).collect()
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    /// The status and body that a post is answered with.
    pub fn post(&self, path: &str, body: &str) -> (String, String) {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\n\
            Content-Type: application/json\r\nConnection: close\r\n"
        );
        write!(stream, "{head}Content-Length: {}\r\n\r\n{body}", body.len()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        let (head, body) = answer.split_once("\r\n\r\n").expect("an answer has a head");
        (head["HTTP/1.1 ".len()..][..3].to_owned(), body.to_owned())
    }

    /// Asks it to read its files again.
    pub fn reload(&self) {
        self.signal(Signal::HUP);
    }

    /// It does nothing until it is thawed.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    /// It goes on.
    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let process = Pid::from_raw(self.pid().cast_signed());
        kill_process(process.expect("a process has a number"), signal).expect("it runs");
    }

    /// Waits until the log has this.
    pub fn wait_for(&self, words: &str) {
        let end = Instant::now() + PATIENCE;
        while !self.log().contains(words) {
            assert!(Instant::now() < end, "{words}: {}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).expect("the log is there")
    }

    /// The answer to a path once all zones have come to these offsets.
    pub fn body_at(&self, ends: &[i64], path: &str) -> String {
        for (zone, end) in ends.iter().enumerate() {
            let until = Instant::now() + PATIENCE;
            while get(&self.address, &format!("/v1/zones?at={zone}:{end}&wait_ms=1000")).0 != 200 {
                assert!(
                    Instant::now() < until,
                    "zone {zone} does not come to {end}:\n{}",
                    self.log()
                );
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        let (code, body) = get(&self.address, path);
        assert_eq!(code, 200, "{path}: {body}");
        body
    }
}
