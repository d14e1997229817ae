//! wrk, a client of others, for what the bench's own generators may get wrong: 100 sessions of one
//! server, each of which asks again as soon as it is answered.

use crate::say;
use std::process::Command;
use std::time::Duration;

/// Sessions of wrk.
const SESSIONS: &str = "100";

/// What wrk makes of a server.
pub(crate) struct Foreign {
    per_s: f64,
    p50_ms: f64,
    p99_ms: f64,
    most_ms: f64,
}

/// Polls a player with wrk. `None`: wrk is not installed.
pub(crate) fn poll(address: &str, player: &str, time: Duration) -> Option<Foreign> {
    let seconds = format!("{}s", time.as_secs().max(1));
    let url = format!("http://{address}/v1/players/{player}/poll");
    let asked = Command::new("wrk")
        .args(["--threads", "1", "--connections", SESSIONS, "--duration", &seconds, "--latency"])
        .arg(url)
        .output();
    let Ok(output) = asked else {
        say("wrk is left out: it cannot be started");
        return None;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let field = |name: &str, at: usize| {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(name))?;
        line.split_whitespace().nth(at)
    };
    let ms = |name, at| field(name, at).and_then(milliseconds);
    let per_s = field("Requests/sec:", 0).and_then(|rate| rate.parse().ok());
    match (per_s, ms("50%", 0), ms("99%", 0), ms("Latency", 2)) {
        (Some(per_s), Some(p50_ms), Some(p99_ms), Some(most_ms)) if !text.contains("Non-2xx") => {
            Some(Foreign { per_s, p50_ms, p99_ms, most_ms })
        }
        _ => panic!("wrk says:\n{text}"),
    }
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
        let Foreign { per_s, p50_ms, p99_ms, most_ms } = *self;
        let count = per_s * time.as_secs_f64();
        let each_us = cpu.as_secs_f64() * 1e6 / count;
        let beyond_us = (cpu.as_secs_f64() - idle * time.as_secs_f64()) * 1e6 / count;
        say(&format!(
            "| {name} | poll by wrk | {per_s:.0} | {p50_ms:.2} | {p99_ms:.2} | | {most_ms:.2} | | \
             | {each_us:.1} | {beyond_us:.1} | 0 |"
        ));
    }
}
