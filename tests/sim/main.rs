//! The whole daemon in one thread, driven by one seed: the fetch path, decoder, queue, shards,
//! engine, frames, publisher and recovery as they are, in a world of simulated brokers, disks and
//! clocks where everything goes wrong that can go wrong.
//!
//! With `CI=true`, `cargo test --test sim` runs 10,000 seeds, on all cores, and shows that the
//! checks notice broken daemons; without, it runs 1,000. `HUNTD_SEEDS=1000000` runs as many,
//! `HUNTD_SEED=7` one, and `HUNTD_TRACE=1` prints what happens in it.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "this is a program")]

mod actions;
mod answers;
mod appends;
mod asked_fetch;
mod broker;
mod chance;
mod check;
mod commits;
mod control;
mod copies;
mod cut_off;
mod damage;
mod dialler;
mod disk;
mod editions;
mod game;
mod group;
mod line;
mod mutation;
mod network;
mod node;
mod operator;
mod other_engine;
mod output;
mod producer;
mod publishing;
mod reader;
mod readiness;
mod recreation;
mod silence;
mod sim;
mod snapshot_thread;
mod stranger;
mod surroundings;
mod survey;
mod threads;
mod topics;
mod viewer;

use chance::{Counts, Fault, Sight};
use huntd::hunt::rules::rulebook::Rulebook;
use huntd::kit::engine::AnyRulebook;
use huntd::queue::bell::Bell;
use mutation::Mutation;
use node::Common;
use sim::Sim;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Seeds of one run under CI, unless the environment says otherwise.
const SEEDS: u64 = 10_000;

/// Seeds of one run elsewhere: they find what is often wrong, and take seconds.
const SEEDS_FEW: u64 = 1_000;

/// What all simulations share.
struct Fixture {
    rulebook: Rulebook,
    later: AnyRulebook,
    bell: Arc<Bell>,
    nothing: Rc<File>,
    is_traced: bool,
}

impl Fixture {
    fn new() -> Fixture {
        Fixture {
            rulebook: game::rulebook(),
            later: editions::later(Rulebook::of(game::later_rules()).into()),
            bell: Arc::new(Bell::new().expect("a descriptor is left")),
            nothing: Rc::new(File::open("/dev/null").expect("every Linux has it")),
            is_traced: std::env::var_os("HUNTD_TRACE").is_some(),
        }
    }

    /// Runs one seed: what has happened, and what was wrong.
    fn run(&self, seed: u64, mutation: Mutation) -> (Counts, Result<(), String>) {
        let base = Instant::now();
        let Fixture { rulebook, later, bell, nothing, is_traced } = self;
        let common = Common {
            rulebook: rulebook.clone(),
            later: later.clone(),
            other_host: None,
            bell: bell.clone(),
            nothing: nothing.clone(),
            base,
            is_traced: *is_traced,
        };
        let mut sim = Sim::new(seed, common, mutation);
        let ran = catch_unwind(AssertUnwindSafe(|| sim.run()));
        let result = ran.unwrap_or_else(|_| Err("an assertion failed, see above".to_owned()));
        (sim.counts(), result)
    }
}

fn main() -> ExitCode {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse().expect(name));
    let fixture = Fixture::new();
    if !fixture.is_traced {
        quiet_expected_panics();
    }
    match number("HUNTD_SEED") {
        Some(seed) => run_one(&fixture, seed),
        None => {
            let is_ci = std::env::var_os("CI").is_some();
            let seeds = number("HUNTD_SEEDS");
            let right = run_many(seeds.unwrap_or(if is_ci { SEEDS } else { SEEDS_FEW }));
            let mut passed = repeats(&fixture) & right;
            match is_ci || seeds.is_some() {
                true => passed &= catch_mutations(),
                false => println!("skipped: {SEEDS} seeds and broken daemons; set CI=true"),
            }
            if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
    }
}

/// An engine that fails is part of the game; its message is not.
fn quiet_expected_panics() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !huntd::shards::is_engine_at_work() {
            usual(panic);
        }
    }));
}

fn run_one(fixture: &Fixture, seed: u64) -> ExitCode {
    match fixture.run(seed, Mutation::None).1 {
        Ok(()) => {
            println!("seed {seed}: nothing is wrong");
            ExitCode::SUCCESS
        }
        Err(what) => {
            println!("seed {seed}: {what}");
            ExitCode::FAILURE
        }
    }
}

/// Runs seeds on every core, each of them on one thread, until some are wrong.
fn run_many(seeds: u64) -> bool {
    const WRONG_MAX: u64 = 10;
    let start = Instant::now();
    let (next, wrong) = (AtomicU64::new(0), AtomicU64::new(0));
    let work = || {
        let (fixture, mut counts) = (Fixture::new(), Counts::new());
        while wrong.load(Ordering::Relaxed) < WRONG_MAX {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds {
                break;
            }
            let (counted, result) = fixture.run(seed, Mutation::None);
            counts.add(&counted);
            if let Err(what) = result {
                println!(
                    "seed {seed}: {what}\n  again with its trace: HUNTD_SEED={seed} HUNTD_TRACE=1"
                );
                wrong.fetch_add(1, Ordering::Relaxed);
            }
        }
        counts
    };
    let mut counts = Counts::new();
    on_all_cores(work).iter().for_each(|counted| counts.add(counted));
    let wrong = wrong.into_inner();
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{seeds} seeds in {seconds:.1} s, {:.0} seeds/s, {wrong} wrong",
        seeds as f64 / seconds
    );
    show(&counts);
    let never = counts.never();
    let all_seen = never.is_empty() || seeds < SEEDS;
    if !all_seen {
        println!("never happened: {}", never.join(", "));
    }
    wrong == 0 && all_seen
}

/// A seed is all that a simulation depends on.
fn repeats(fixture: &Fixture) -> bool {
    let differs = (0..20).find(|seed| {
        let [first, second] = [(); 2].map(|()| fixture.run(*seed, Mutation::None).0);
        first != second
    });
    if let Some(seed) = differs {
        println!("seed {seed}: the second run is another one");
    }
    differs.is_none()
}

/// The checks must notice every broken daemon. Each core tries one of them at a time.
fn catch_mutations() -> bool {
    let broken: Vec<_> = Mutation::ALL.iter().filter(|wrong| **wrong != Mutation::None).collect();
    let (next, missed) = (AtomicU64::new(0), AtomicU64::new(0));
    let work = || {
        let fixture = Fixture::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed) as usize;
            let Some(mutation) = broken.get(number) else { break };
            if !is_caught(&fixture, **mutation) {
                missed.fetch_add(1, Ordering::Relaxed);
            }
        }
    };
    on_all_cores(work);
    missed.into_inner() == 0
}

fn is_caught(fixture: &Fixture, mutation: Mutation) -> bool {
    let start = Instant::now();
    let caught = (0..SEEDS).find_map(|seed| {
        let what = fixture.run(seed, mutation).1.err()?;
        // Without the gate, the checks must notice that the snapshot is early.
        let is_its_own = mutation != Mutation::Ungated || what.contains("a snapshot ");
        is_its_own.then_some((seed, what))
    });
    let seconds = start.elapsed().as_secs_f64();
    match &caught {
        Some((seed, what)) => {
            println!("{mutation:?}: caught by seed {seed}, {seconds:.1} s: {what}");
        }
        None => println!("{mutation:?}: not caught by {SEEDS} seeds"),
    }
    caught.is_some()
}

/// Runs the same function on each core, and returns the results.
fn on_all_cores<T: Send>(work: impl Fn() -> T + Sync) -> Vec<T> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(&work)).collect();
        let end = |thread: std::thread::ScopedJoinHandle<'_, T>| {
            thread.join().expect("what a simulation fails at is a result")
        };
        threads.into_iter().map(end).collect()
    })
}

fn show(counts: &Counts) {
    let faults =
        Fault::ALL.iter().map(|fault| (format!("{fault:?}"), counts.faults[*fault as usize]));
    let sights =
        Sight::ALL.iter().map(|sight| (format!("{sight:?}"), counts.sights[*sight as usize]));
    let all: Vec<String> =
        faults.chain(sights).map(|(name, count)| format!("{name} {count}")).collect();
    all.chunks(6).for_each(|line| println!("  {}", line.join(", ")));
}
