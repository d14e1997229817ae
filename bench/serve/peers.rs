//! The published way to do the same: an HTTP server in front of Redis, in Go and in Rust.

use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use support::kafka::broker::free_ports;
use support::process::before_others;
use support::scrape::get;
use support::serving::SERVER_PRIORITY;

/// Where the peers' sources are.
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/bench/peers");

/// Places of a board that one answer has at most.
const PLACES_MAX: usize = 100;

/// How long a program may take to start.
const START_WAIT: Duration = Duration::from_secs(10);

/// An HTTP server in front of Redis.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Peer {
    Fasthttp,
    Hyper,
}

impl Peer {
    pub(crate) const ALL: [Peer; 2] = [Peer::Fasthttp, Peer::Hyper];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Peer::Fasthttp => "fasthttp, Redis",
            Peer::Hyper => "hyper, Redis",
        }
    }

    fn folder(self) -> (String, PathBuf) {
        let name = match self {
            Peer::Fasthttp => "serve-fasthttp",
            Peer::Hyper => "serve-hyper",
        };
        // Cargo gives benchmarks `<target>/tmp`, wherever the target folder is.
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("the target folder");
        let built = target.join("peers").join(name);
        fs::create_dir_all(&built).expect("the target folder can be written");
        (format!("{SOURCES}/{name}"), built)
    }

    /// Builds it. The error says what is missing.
    pub(crate) fn build(self) -> Result<(), String> {
        let (source, built) = self.folder();
        let mut build = match self {
            Peer::Fasthttp => {
                let mut build = Command::new("go");
                build.args(["build", "-C", &source, "-o"]).arg(built).arg(".");
                build
            }
            Peer::Hyper => {
                let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
                let mut build = Command::new(cargo);
                let manifest = format!("{source}/Cargo.toml");
                build.args(["build", "--release", "--locked", "--manifest-path", &manifest]);
                build.arg("--target-dir").arg(built);
                build
            }
        };
        let output = build.stdin(Stdio::null()).output();
        let output = output.map_err(|error| format!("{build:?} cannot be started: {error}"))?;
        let said = String::from_utf8_lossy(&output.stderr);
        if output.status.success() { Ok(()) } else { Err(format!("it is not built:\n{said}")) }
    }

    /// Starts a process of it.
    pub(crate) fn start(self, store: &Redis) -> RunningPeer {
        let (_, built) = self.folder();
        let program = match self {
            Peer::Fasthttp => built.join("serve-fasthttp"),
            Peer::Hyper => built.join("release/serve-hyper"),
        };
        let mut child = before_others(&["--fifo", SERVER_PRIORITY])
            .arg(program)
            .arg(&store.address)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("what was built can be started");
        let mut address = String::new();
        let mut output = BufReader::new(child.stdout.take().expect("it was piped"));
        output.read_line(&mut address).expect("it writes");
        RunningPeer { child, address: address.trim_end().to_owned() }
    }
}

/// A process of a peer. Dropped, it is killed.
pub(crate) struct RunningPeer {
    child: Child,
    pub(crate) address: String,
}

impl RunningPeer {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for RunningPeer {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A Redis with the cards and the board of a world, which it keeps in memory alone. Dropped, it is
/// killed.
pub(crate) struct Redis {
    child: Child,
    address: String,
    _folder: tempfile::TempDir,
}

impl Redis {
    /// Starts one. The error says what is missing.
    pub(crate) fn start() -> Result<Redis, String> {
        let port = free_ports(1)[0];
        let folder = tempfile::tempdir().expect("a temporary folder");
        let child = before_others(&["--fifo", SERVER_PRIORITY])
            .arg("redis-server")
            .args(["--bind", "127.0.0.1", "--port", &port.to_string()])
            .args(["--save", "", "--appendonly", "no", "--dir"])
            .arg(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| format!("redis-server cannot be started: {error}"))?;
        let redis = Redis { child, address: format!("127.0.0.1:{port}"), _folder: folder };
        let begun = Instant::now();
        while TcpStream::connect(&redis.address).is_err() {
            if begun.elapsed() > START_WAIT {
                return Err("redis-server does not listen".to_owned());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(redis)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Takes over what a server of huntd's answers: cards and polls of these players, and the
    /// first places of the world's board.
    pub(crate) fn fill(&self, huntd: &str, players: &[String], places: usize) {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        let body = |path: &str| {
            let (code, body) = get(huntd, path);
            assert_eq!(code, 200, "{path}: {body}");
            body
        };
        for id in players {
            let card = body(&format!("/v1/players/{id}"));
            command(&mut stream, &["SET", &format!("card:{id}"), &card]);
            let poll = body(&format!("/v1/players/{id}/poll"));
            command(&mut stream, &["SET", &format!("poll:{id}"), &poll]);
        }
        for from in (1..=places).step_by(PLACES_MAX) {
            let page = body(&format!("/v1/boards/world?from={from}&count={PLACES_MAX}"));
            let page: Value = serde_json::from_str(&page).expect("it is JSON");
            for place in page["places"].as_array().expect("a board has places") {
                let id = place["player_id"].as_str().expect("a place has a player");
                let score = place["score"].to_string();
                command(&mut stream, &["ZADD", "world", score.trim_matches('"'), id]);
            }
        }
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One command, whose answer is a short line.
fn command(stream: &mut TcpStream, words: &[&str]) {
    let mut request = format!("*{}\r\n", words.len());
    for word in words {
        request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = [0; 64];
    let count = stream.read(&mut answer).expect("it answers");
    assert!(matches!(answer[0], b'+' | b':'), "{}", answer[..count].escape_ascii());
}
