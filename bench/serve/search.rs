//! The highest rate of commands whose answers come in time.

use crate::appended::Log;
use crate::beside::Beside;
use crate::generators::{Ask, Generators};
use crate::{Size, say, servers};
use std::time::Duration;

/// The slowest hundredth of the published system's answers, in microseconds.
const P99_US: u64 = 46_200;

/// Rates between which the highest one lies, and how often the distance is halved.
const RATES: [u64; 6] = [1_000, 2_000, 4_000, 8_000, 16_000, 32_000];
const HALVINGS: u32 = 3;

/// Searches, from the lowest rate on.
pub(crate) fn search(size: &Size, beside: &Beside) {
    let servings = servers(beside.huntd, beside.ends);
    let players = servings[0].players(size.sessions.min(100));
    let addresses: Vec<String> = servings.iter().map(|of| of.address().to_owned()).collect();
    let mut generators = Generators::connect(&addresses, size.sessions);
    let log = Log::begin(beside.cluster, beside.topics);
    let (mut answered, mut others) = (Vec::new(), 0);
    let mut holds = |per_s: u64| {
        let time = size.time.min(Duration::from_secs(5));
        let measured = generators.run(Ask::Command, per_s, time, &players);
        answered.extend_from_slice(&measured.appended);
        others += measured.others();
        let p99_us = measured.latency_us.value_at_quantile(0.99);
        say(&format!(
            "commands at {per_s}/s: p99 {:.1} ms, {} not 200",
            p99_us as f64 / 1e3,
            measured.failed
        ));
        p99_us <= P99_US && measured.failed == 0
    };
    let (mut low, mut high) = (0, 0);
    for per_s in RATES.into_iter().filter(|rate| *rate <= size.commands_per_s_max) {
        high = per_s;
        if !holds(per_s) {
            break;
        }
        low = per_s;
    }
    for _ in 0..HALVINGS {
        if high - low > RATES[0] / 2 && low > 0 {
            let middle = (low + high) / 2;
            if holds(middle) {
                low = middle;
            } else {
                high = middle;
            }
        }
    }
    say(&log.check(&answered, others));
    say(&format!("the highest rate of commands whose p99 is {P99_US} us at most: {low}/s"));
}
