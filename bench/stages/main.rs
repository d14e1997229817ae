//! Nanoseconds, instructions and cache misses per event of each stage of an event's path, and their
//! sum: the same bytes go through all of them, a Fetch response at a time, as in the daemon.
//!
//! Goal: where the time of one event goes, on one core, without a broker. Not a goal: threads,
//! waiting, system calls other than the receiving one. Instructions and misses are counted by
//! valgrind, where it is installed: they are the same on a busy machine. The digest is of all
//! updates and of the state, and frames are read back, so no change can make a stage faster by
//! making it do something else. `--counts` prints what valgrind counts alone; `--smoke` runs
//! everything once over little input.

mod counted;

mod path;

use huntd::runtime::allocator;
use path::{Path, STAGES};
use std::io::Write;
use support::batch_load::{Layout, Load, Shape};

const PLAYERS: u64 = 3_000;

/// Intended events a second: each player does three things a second.
const RATE: u64 = 10_000;

/// Records in a batch, and batches in a response.
const BATCH_EVENTS: usize = 500;
const RESPONSE_BATCHES: u64 = 16;

/// Responses that are measured, and those under valgrind, which is some fifty times slower.
const RESPONSES: u64 = 300;
const RESPONSES_COUNTED: u64 = 8;
const RESPONSES_SMOKE: u64 = 3;

/// Responses before the measured ones: every player joins, tables grow, layouts are learnt.
const RESPONSES_WARM: u64 = 8;

fn main() {
    // As the daemon does.
    allocator::refuse_huge_pages();
    let given = |name: &str| std::env::args().any(|argument| argument == name);
    if given(counted::ARGUMENT) {
        // Under valgrind: the stages are counted from outside.
        let path = run(Layout::Mixed, RESPONSES_COUNTED);
        say(&counted::told(&path));
        return;
    }
    // Without `--bench`, `cargo test` runs it.
    let smoke = given("--smoke") || !given("--bench");
    if given("--counts") {
        print_counts();
        return;
    }
    let responses = if smoke { RESPONSES_SMOKE } else { RESPONSES };
    for (title, layout) in [
        ("three layouts, 5 % with an unknown object", Layout::Mixed),
        ("keys shuffled in every record", Layout::Shuffled),
    ] {
        let path = run(layout, responses);
        print(title, &path);
    }
    if smoke {
        say("instructions and cache misses are not counted in a smoke run");
        return;
    }
    print_counts();
}

fn print_counts() {
    match counted::count() {
        Ok(costs) => counted::print(&costs),
        Err(sentence) => say(&format!("instructions and cache misses are not known: {sentence}")),
    }
}

/// Sends so many responses through all stages.
fn run(layout: Layout, responses: u64) -> Path {
    let shape =
        Shape { partitions: 1, players: PLAYERS, rate: RATE, batch_events: BATCH_EVENTS, layout };
    let load = Load::new(shape);
    let mut path = Path::new();
    path.join(&load);
    for number in 0..RESPONSES_WARM {
        path.respond(&load, number * RESPONSE_BATCHES, RESPONSE_BATCHES);
    }
    path.forget_times();
    for number in RESPONSES_WARM..RESPONSES_WARM + responses {
        path.respond(&load, number * RESPONSE_BATCHES, RESPONSE_BATCHES);
    }
    path
}

fn print(title: &str, path: &Path) {
    let events = path.events();
    say(&format!(
        "{title}: {events} events, {:.2} updates an event, {:.1} % read by the first tier",
        path.updates() as f64 / events as f64,
        path.first_tier() * 100.0,
    ));
    let mut sum = 0.0;
    for (stage, is_in_path) in STAGES {
        let ns = path.ns(stage);
        sum += if is_in_path { ns } else { 0.0 };
        let note = if is_in_path { "" } else { "   (not in the sum)" };
        say(&format!("  {:<28} {ns:>8.1} ns/event{note}", stage.name()));
    }
    say(&format!("  {:<28} {sum:>8.1} ns/event", "sum, binary frames"));
    say(&format!("  digest {:016x}", path.digest()));
}

fn say(line: &str) {
    writeln!(std::io::stdout(), "{line}").expect("standard output is open");
}
