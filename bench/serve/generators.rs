//! Processes that send requests: one alone has too few descriptors for all sessions.

use crate::open_loop::{Measured, OpenLoop};
use crate::streams::{EVERY_MS, SIGHT_CM};
use hdrhistogram::Histogram;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::Duration;
use support::process::{self, before_others};

/// Their real-time priority: below the servers', above everything else.
const PRIORITY: &str = "1";

/// First argument of a process that sends requests.
pub(crate) const GENERATE: &str = "generate";

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    Poll,
    Card,
    Board,
    Command,
    /// A stream of a player's card.
    Stream,
    /// The same over a WebSocket.
    Socket,
    /// A stream of the players in sight.
    Sight,
}

impl Ask {
    /// What is asked again and again.
    pub(crate) const REQUESTS: [Ask; 4] = [Ask::Poll, Ask::Card, Ask::Board, Ask::Command];

    /// What is asked for once, and comes again and again.
    pub(crate) const STREAMS: [Ask; 3] = [Ask::Stream, Ask::Socket, Ask::Sight];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Ask::Poll => "poll",
            Ask::Card => "card",
            Ask::Board => "board",
            Ask::Command => "command",
            Ask::Stream => "stream",
            Ask::Socket => "socket",
            Ask::Sight => "sight",
        }
    }

    /// The part of the bench that asks for it.
    pub(crate) fn part(self) -> &'static str {
        match self {
            Ask::Poll => "polls",
            Ask::Card => "cards",
            Ask::Board => "boards",
            Ask::Command => "commands",
            Ask::Stream => "streams",
            Ask::Socket => "sockets",
            Ask::Sight => "sights",
        }
    }

    /// What every event of a stream begins with.
    pub(crate) fn event(self) -> &'static [u8] {
        match self {
            Ask::Socket => br#"[{"event":"card""#,
            Ask::Sight => b"event: sight\n",
            _ => b"event: card\n",
        }
    }

    /// The request with this number, for one of these players.
    fn request(self, number: u64, players: &[String]) -> String {
        let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let player = &players[number as usize % players.len()];
        match self {
            Ask::Poll => get(&format!("/v1/players/{player}/poll")),
            Ask::Card => get(&format!("/v1/players/{player}")),
            Ask::Stream => get(&format!("/v1/stream?player={player}&every_ms={EVERY_MS}")),
            Ask::Socket => {
                let stream = Ask::Stream.request(number, players);
                let asked = "Connection: Upgrade\r\nUpgrade: websocket\r\n\
                    Sec-WebSocket-Version: 13\r\n\
                    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
                stream.replace("\r\n\r\n", &format!("\r\n{asked}"))
            }
            Ask::Sight => {
                get(&format!("/v1/stream?around={player}&radius={SIGHT_CM}&every_ms={EVERY_MS}"))
            }
            Ask::Board => get(&format!("/v1/boards/world?from={}&count=20", 1 + number % 1_000)),
            Ask::Command => {
                let body = format!(r#"{{"type":"loot","player_id":"{player}"}}"#);
                let head = "POST /v1/events?wait_ms=10000 HTTP/1.1\r\nHost: localhost\r\n\
                    Content-Type: application/json\r\nContent-Length:";
                format!("{head} {}\r\n\r\n{body}", body.len())
            }
        }
    }
}

/// The processes, one for each server.
pub(crate) struct Generators(Vec<Generator>);

struct Generator {
    child: Child,
    jobs: ChildStdin,
    results: BufReader<ChildStdout>,
}

impl Generators {
    /// Opens so many sessions in all, evenly at these addresses.
    pub(crate) fn connect(addresses: &[String], sessions: usize) -> Generators {
        let start = |address: &String| {
            let program = std::env::current_exe().expect("this program");
            let sessions = (sessions / addresses.len()).to_string();
            let mut child = before_others(&["--fifo", PRIORITY])
                .arg(program)
                .args([GENERATE, address, &sessions])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .expect("this program can be started");
            let jobs = child.stdin.take().expect("it was piped");
            let results = BufReader::new(child.stdout.take().expect("it was piped"));
            Generator { child, jobs, results }
        };
        let mut generators = Generators(addresses.iter().map(start).collect());
        for generator in &mut generators.0 {
            assert_eq!(generator.line(), "ready");
        }
        generators
    }

    /// Processor time that they have taken.
    pub(crate) fn cpu(&self) -> Duration {
        self.0.iter().map(|generator| process::cpu(generator.child.id())).sum()
    }

    /// Sends requests at this rate in all. Each process asks for players of its own, as a player's
    /// commands are numbered.
    pub(crate) fn run(
        &mut self,
        ask: Ask,
        per_s: u64,
        time: Duration,
        players: &[String],
    ) -> Measured {
        let count = self.0.len();
        for (at, generator) in self.0.iter_mut().enumerate() {
            let players: Vec<&String> = players.iter().skip(at).step_by(count).collect();
            let job = json!({
                "ask": ask.name(), "per_s": per_s / count as u64,
                "seconds": time.as_secs(), "players": players,
            });
            writeln!(generator.jobs, "{job}").expect("it reads");
        }
        let mut all = Measured::new();
        for generator in &mut self.0 {
            let line = generator.line();
            let result: Value = serde_json::from_str(&line).expect("a result is JSON");
            all.failed += result["failed"].as_u64().expect("a number");
            let appended = serde_json::from_value::<Vec<(u16, i64)>>(result["appended"].clone());
            all.appended.extend(appended.expect("zones and offsets"));
            for (name, histogram) in all.histograms() {
                for entry in result[name].as_array().expect("a list") {
                    let number = |at: usize| entry[at].as_u64().expect("a number");
                    histogram.record_n(number(0), number(1)).expect("within the bounds");
                }
            }
        }
        all
    }
}

impl Generator {
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.results.read_line(&mut line).expect("it writes");
        line.trim_end().to_owned()
    }
}

impl Drop for Generator {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Does what the parent's lines say, with so many sessions at this address.
pub(crate) fn generate(address: &str, sessions: usize) {
    let mut open_loop = OpenLoop::connect(&[address], sessions);
    crate::say("ready");
    for line in std::io::stdin().lines() {
        let job: Value = serde_json::from_str(&line.expect("text")).expect("a job is JSON");
        let mut asks = Ask::REQUESTS.into_iter().chain(Ask::STREAMS);
        let ask = asks.find(|ask| job["ask"] == ask.name()).expect("a known one");
        let number = |name: &str| job[name].as_u64().expect("a number");
        let players: Vec<String> = job["players"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|id| id.as_str().expect("an id is text").to_owned())
            .collect();
        let time = Duration::from_secs(number("seconds"));
        let request = |number| ask.request(number, &players);
        let mut measured = match ask {
            Ask::Stream | Ask::Socket | Ask::Sight => {
                let every = Duration::from_millis(EVERY_MS);
                open_loop.listen(ask.event(), every, time, &request)
            }
            _ => open_loop.run(number("per_s"), time, &request),
        };
        let pairs = |histogram: &Histogram<u64>| -> Vec<[u64; 2]> {
            let recorded = histogram.iter_recorded();
            recorded.map(|v| [v.value_iterated_to(), v.count_since_last_iteration()]).collect()
        };
        let mut result = json!({"failed": measured.failed, "appended": measured.appended});
        for (name, histogram) in measured.histograms() {
            result[name] = json!(pairs(histogram));
        }
        crate::say(&result.to_string());
    }
}
