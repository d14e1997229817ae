//! huntd and its peers on a real broker, end to end: one topic, one machine, the same job.
//!
//! Goal: what a stranger can repeat with one command. *Drain*: a preloaded topic, events a second
//! and CPU time of the whole process. *Rate*: an open loop at a fixed rate, latency from the time at
//! which an event was due until its update was read back. Not a goal: what a broker on another
//! machine, or several brokers, would give. `--smoke` runs everything once for some seconds.

#![allow(dead_code, reason = "parts of the tests' broker and daemon are for tests alone")]
#![allow(unreachable_pub, reason = "the modules of one program")]

#[path = "../../tests/kafka/mod.rs"]
mod kafka;

#[path = "../../tests/real_kafka/accounts.rs"]
mod accounts;

#[path = "../../tests/real_kafka/daemon.rs"]
mod daemon;

#[path = "../../tests/real_kafka/scrape.rs"]
mod scrape;

mod arguments;

mod drain;

mod echo;

mod generator;

mod inside;

mod load;

mod output;

mod programs;

mod table;

mod wire;

use arguments::{Arguments, Mode};
use kafka::Cluster;
use load::{Layout, Shape};
use programs::Program;
use std::time::Duration;
use table::say;

/// Zones, one partition each, and the players in all of them.
const PARTITIONS: usize = 8;
const PLAYERS: u64 = 3_000;

/// A drain's events, and the worst case's.
const DRAIN_EVENTS: u64 = 4_000_000;
const DRAIN_EVENTS_SMOKE: u64 = 40_000;

/// Intended events a second of a drain: each player does three things a second.
const DRAIN_RATE: u64 = 10_000;

/// Records in a batch of a drain: what a producer gathers while the broker is busy.
const DRAIN_BATCH_EVENTS: usize = 500;

/// How long one program may drain, if the command line says nothing.
const DRAIN_PATIENCE: Duration = Duration::from_secs(60);

fn main() {
    let words: Vec<String> = std::env::args().collect();
    if let [_, role, address, input, output, partitions] = words.as_slice()
        && role == "echo"
    {
        echo::run(address, input, output, partitions.parse().expect("a number of partitions"));
    }
    let arguments = Arguments::read();
    let programs = buildable(&arguments.programs);
    let options = match arguments.smoke {
        true => kafka::Options::for_tests(),
        false => kafka::Options::for_benchmarks(),
    };
    let cluster = Cluster::start(1, &options);
    for mode in &arguments.modes {
        match mode {
            Mode::Drain => drains(&cluster, &arguments, &programs),
            Mode::Rate(_) | Mode::Search => {}
        }
    }
}

/// Builds the peers; one that cannot be built is left out, and that is said.
fn buildable(programs: &[Program]) -> Vec<Program> {
    let can_be_built = |program: &Program| match program.build() {
        Ok(()) => true,
        Err(sentence) => {
            say(&format!("{} is left out: {sentence}", program.name()));
            false
        }
    };
    programs.iter().copied().filter(can_be_built).collect()
}

fn drains(cluster: &Cluster, arguments: &Arguments, programs: &[Program]) {
    let events = if arguments.smoke { DRAIN_EVENTS_SMOKE } else { DRAIN_EVENTS };
    let patience = arguments.seconds.unwrap_or(DRAIN_PATIENCE);
    let shape = |layout| Shape {
        partitions: PARTITIONS,
        players: PLAYERS,
        rate: DRAIN_RATE,
        batch_events: DRAIN_BATCH_EVENTS,
        layout,
    };
    let (preloaded, told) = drain::preload(cluster, shape(Layout::Mixed), events);
    say(&told);
    let drained: Vec<_> = programs
        .iter()
        .map(|program| drain::drain(cluster, &preloaded, *program, patience))
        .collect();
    drain::print(&drained);
}
