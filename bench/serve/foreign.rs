//! Clients of others, for what the bench's own generators may get wrong: 100 sessions of one
//! server, each of which asks again as soon as it is answered.

use crate::say;
use serde_json::Value;
use std::process::Command;
use std::time::Duration;

/// Sessions of a client.
const SESSIONS: &str = "100";

/// A client that others wrote.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Client {
    Wrk,
    Oha,
}

/// What a client makes of a server.
pub(crate) struct Foreign {
    client: Client,
    per_s: f64,
    p50_ms: f64,
    p99_ms: f64,
    most_ms: f64,
}

impl Client {
    pub(crate) const ALL: [Client; 2] = [Client::Wrk, Client::Oha];

    fn program(self) -> &'static str {
        match self {
            Client::Wrk => "wrk",
            Client::Oha => "oha",
        }
    }

    /// Polls a player. `None`: the client is not installed.
    pub(crate) fn poll(self, address: &str, player: &str, time: Duration) -> Option<Foreign> {
        let seconds = format!("{}s", time.as_secs().max(1));
        let url = format!("http://{address}/v1/players/{player}/poll");
        let mut command = Command::new(self.program());
        match self {
            Client::Wrk => command
                .args(["--threads", "1", "--connections", SESSIONS, "--latency"])
                .args(["--duration", &seconds]),
            Client::Oha => command
                .args(["-c", SESSIONS, "-z", &seconds, "-w", "--no-tui"])
                .args(["--output-format", "json"]),
        };
        let Ok(output) = command.arg(url).output() else {
            say(&format!("{} is left out: it cannot be started", self.program()));
            return None;
        };
        let text = String::from_utf8_lossy(&output.stdout);
        let read = match self {
            Client::Wrk => read_wrk(&text),
            Client::Oha => read_oha(&text),
        };
        Some(read.unwrap_or_else(|| panic!("{} says:\n{text}", self.program())))
    }
}

/// `None`: it was answered otherwise than with 200.
fn read_wrk(text: &str) -> Option<Foreign> {
    let field = |name: &str, at: usize| {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(name))?;
        line.split_whitespace().nth(at)
    };
    let ms = |name, at| field(name, at).and_then(milliseconds);
    let per_s = field("Requests/sec:", 0)?.parse().ok()?;
    let (p50_ms, p99_ms, most_ms) = (ms("50%", 0)?, ms("99%", 0)?, ms("Latency", 2)?);
    let is_fine = !text.contains("Non-2xx");
    is_fine.then_some(Foreign { client: Client::Wrk, per_s, p50_ms, p99_ms, most_ms })
}

/// `None`: it was answered otherwise than with 200.
fn read_oha(text: &str) -> Option<Foreign> {
    let told: Value = serde_json::from_str(text).ok()?;
    let ms = |value: &Value| value.as_f64().map(|seconds| seconds * 1e3);
    let (summary, percentiles) = (&told["summary"], &told["latencyPercentiles"]);
    let is_fine = told["statusCodeDistribution"].as_object()?.keys().eq(["200"]);
    is_fine.then_some(Foreign {
        client: Client::Oha,
        per_s: summary["requestsPerSec"].as_f64()?,
        p50_ms: ms(&percentiles["p50"])?,
        p99_ms: ms(&percentiles["p99"])?,
        most_ms: ms(&summary["slowest"])?,
    })
}

/// A time as wrk writes it.
fn milliseconds(text: &str) -> Option<f64> {
    let at = text.find(|sign: char| sign.is_ascii_alphabetic())?;
    let unit = match &text[at..] {
        "us" => 1e-3,
        "ms" => 1.0,
        "s" => 1e3,
        _ => return None,
    };
    Some(text[..at].parse::<f64>().ok()? * unit)
}

impl Foreign {
    /// Prints its row.
    pub(crate) fn row(&self, name: &str, time: Duration, cpu: Duration, idle: f64) {
        let Foreign { client, per_s, p50_ms, p99_ms, most_ms } = *self;
        let count = per_s * time.as_secs_f64();
        let each_us = cpu.as_secs_f64() * 1e6 / count;
        let beyond_us = (cpu.as_secs_f64() - idle * time.as_secs_f64()) * 1e6 / count;
        say(&format!(
            "| {name} | poll by {} | {per_s:.0} | {p50_ms:.2} | {p99_ms:.2} | | {most_ms:.2} | | \
             | {each_us:.1} | {beyond_us:.1} | 0 |",
            client.program()
        ));
    }
}
