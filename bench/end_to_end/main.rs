//! huntd and its peers on a real broker, end to end: one topic, one machine, the same job.
//!
//! Goal: what a stranger can repeat with one command. *Drain*: a preloaded topic, events a second
//! and CPU time of the whole process; *TLS*: the same through a plaintext listener and one that
//! speaks TLS, by turns. *Rate*: an open loop at a fixed rate, latency from when an
//! event was due until its update was read back. *Native*: huntd alone, fed from memory, which
//! shows what a broker on the same cores hides. Not a goal: what a broker on another machine, or
//! several brokers, would give. `--smoke` runs everything once for some seconds.

mod arguments;

mod drain;

mod echo;

mod feed;

mod feeder;

mod inside;

mod native;

mod open_loop;

mod output;

mod plot;

mod programs;

mod requests;

mod rounds;

mod search;

mod sink;

mod soak;

mod table;

use arguments::{Arguments, Mode};
use drain::Drained;
use native::FedCluster;
use open_loop::{Measured, Span};
use plot::{Axis, Scale};
use programs::{Listener, Program};
use rounds::take_turns;
use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::time::Duration;
use support::batch_load::{Layout, Load, Shape};
use support::kafka;
use support::kafka::Cluster;
use support::kafka::secure::SecureCluster;
use table::say;

/// A drain's events.
const DRAIN_EVENTS: u64 = 4_000_000;
const DRAIN_EVENTS_SMOKE: u64 = 40_000;

/// What a player of a drain does in three seconds. A zone's clock, and with it the work on its
/// hunts, follows from that.
const EVENTS_IN_3_S: u64 = 10;

/// Records in a batch of a drain: what a producer gathers while the broker is busy.
const DRAIN_BATCH_EVENTS: usize = 500;

/// Events that are fed from memory.
const NATIVE_EVENTS: u64 = 8_000_000;
const NATIVE_EVENTS_SMOKE: u64 = 40_000;

/// How long one program may drain, if the command line says nothing.
const DRAIN_PATIENCE: Duration = Duration::from_secs(60);

/// Drains over TLS before anything counts: the first takes four times as long as the third.
const TLS_WARM_DRAINS: usize = 4;

/// How long a rate is measured, if the command line says nothing.
const RATE_SPAN: Span = Span { warm_up: Duration::from_secs(4), measured: Duration::from_secs(10) };
const RATE_SPAN_SMOKE: Span =
    Span { warm_up: Duration::from_millis(500), measured: Duration::from_secs(1) };

/// What the broker gets to do before anything is measured.
const WARM_RATE: u64 = 200_000;
const WARM_SPAN: Span = Span { warm_up: Duration::from_secs(13), measured: Duration::from_secs(2) };

/// How long a soak lasts, if the command line says nothing.
const SOAK_TIME: Duration = Duration::from_secs(20 * 60);
const SOAK_TIME_SMOKE: Duration = Duration::from_secs(3);

/// The highest rate that the search tries.
const SEARCH_RATE_MAX: u64 = 4_096_000;
const SEARCH_RATE_MAX_SMOKE: u64 = 2_000;

/// How long a rate is tried by the search, if the command line says nothing.
const SEARCH_SPAN: Span =
    Span { warm_up: Duration::from_secs(3), measured: Duration::from_secs(7) };

fn main() {
    let words: Vec<String> = std::env::args().collect();
    if let [_, role, address, input, output, partitions] = words.as_slice()
        && role == "echo"
    {
        echo::run(address, input, output, partitions.parse().expect("a number of partitions"));
    }
    let arguments = Arguments::read();
    let programs = buildable(&arguments);
    let (zones, players) = (arguments.zones, arguments.players);
    let mut results = Vec::new();
    // Each mode has a broker of its own, as it needs it; with little input one serves for all.
    let shared = arguments.smoke.then(|| start(&arguments, &Mode::Drain));
    for mode in &arguments.modes {
        let own = OnceCell::new();
        let cluster =
            || shared.as_ref().unwrap_or_else(|| own.get_or_init(|| start(&arguments, mode)));
        match *mode {
            Mode::Drain => drains(cluster(), &arguments, &programs, &mut results),
            Mode::Tls => over_tls(&arguments, &programs, &mut results),
            Mode::Native => natively(&arguments, &mut results),
            Mode::Rate(rate) => at_rate(cluster(), &arguments, &programs, rate, &mut results),
            Mode::Search => {
                let (otherwise, rate_max) = match arguments.smoke {
                    true => (RATE_SPAN_SMOKE, SEARCH_RATE_MAX_SMOKE),
                    false => (SEARCH_SPAN, SEARCH_RATE_MAX),
                };
                let span = span(&arguments, otherwise);
                search::search(cluster(), zones, players, rate_max, span);
            }
            Mode::Soak(rate) => {
                let otherwise = if arguments.smoke { SOAK_TIME_SMOKE } else { SOAK_TIME };
                let time = arguments.seconds.unwrap_or(otherwise);
                let load = Load::new(open_loop::shape(zones, players, rate));
                let soaked = soak::soak(cluster(), &load, time);
                soaked.plot(&plot_file("soak"));
                results.push(soaked.json());
            }
            Mode::Generator(rate) => {
                let otherwise = if arguments.smoke { RATE_SPAN_SMOKE } else { RATE_SPAN };
                let load = Load::new(open_loop::shape(zones, players, rate));
                sink::measure(&load, span(&arguments, otherwise).measured);
            }
        }
    }
    if let Some(file) = &arguments.json {
        let text = serde_json::to_string_pretty(&results).expect("figures are JSON");
        std::fs::write(file, text + "\n").expect("the file can be written");
    }
}

/// How a broker for drains is started.
fn drain_options(smoke: bool) -> kafka::Options {
    match smoke {
        true => kafka::Options::for_tests(),
        false => kafka::Options::for_drains(),
    }
}

/// A broker as a mode needs it.
fn start(arguments: &Arguments, mode: &Mode) -> Cluster {
    let smoke = arguments.smoke;
    let mut options = match (smoke, mode) {
        (_, Mode::Drain) | (true, _) => drain_options(smoke),
        _ => kafka::Options::for_rates(),
    };
    // What a soak leaves behind is deleted while it runs.
    options.properties.push(("log.retention.check.interval.ms", "5000".to_owned()));
    options.properties.push(("log.segment.delete.delay.ms", "1000".to_owned()));
    let cluster = Cluster::start(1, &options);
    if options.optimized {
        warm(&cluster, arguments);
    }
    cluster
}

/// Lets the broker's JVM compile what it will need, so that the first program is not at a
/// disadvantage.
fn warm(cluster: &Cluster, arguments: &Arguments) {
    let load = Load::new(open_loop::shape(arguments.zones, arguments.players, WARM_RATE));
    open_loop::run(cluster, Program::Echo, &load, WARM_SPAN);
}

/// Builds the peers; one that cannot be built is left out, and that is said.
fn buildable(arguments: &Arguments) -> Vec<Program> {
    let Arguments { programs, modes, smoke, .. } = arguments;
    let over_tls = !smoke && modes.contains(&Mode::Tls);
    let can_be_built = |program: &Program| match program.build(*smoke, over_tls) {
        Ok(()) => true,
        Err(sentence) => {
            say(&format!("{} is left out: {sentence}", program.name()));
            false
        }
    };
    programs.iter().copied().filter(can_be_built).collect()
}

/// The times of a run: the command line's, if it names one.
fn span(arguments: &Arguments, otherwise: Span) -> Span {
    Span { measured: arguments.seconds.unwrap_or(otherwise.measured), ..otherwise }
}

/// The load of a drain.
fn drain_shape(arguments: &Arguments, layout: Layout) -> Shape {
    Shape {
        partitions: arguments.zones,
        players: arguments.players,
        rate: arguments.players * EVENTS_IN_3_S / 3,
        batch_events: DRAIN_BATCH_EVENTS,
        layout,
    }
}

fn drains(
    cluster: &Cluster,
    arguments: &Arguments,
    programs: &[Program],
    results: &mut Vec<serde_json::Value>,
) {
    let events = if arguments.smoke { DRAIN_EVENTS_SMOKE } else { DRAIN_EVENTS };
    let patience = arguments.seconds.unwrap_or(DRAIN_PATIENCE);
    for layout in [Layout::Mixed, Layout::Shuffled] {
        let (preloaded, told) = drain::preload(cluster, drain_shape(arguments, layout), events);
        say(&told);
        // The worst case is huntd's own: the order of keys makes no difference to the others.
        let is_run = |program: &Program| layout == Layout::Mixed || program.is_huntd();
        let programs: Vec<_> = programs.iter().copied().filter(is_run).collect();
        let listener = Listener::plaintext(cluster);
        let drain = |program| drain::drain(cluster, &listener, &preloaded, program, patience);
        let us_per_event = |drained: &Drained| 1e6 / drained.rate;
        let drained = take_turns(&programs, arguments.rounds, drain, us_per_event);
        let is_whole = drained.iter().all(|rounds| !rounds.median.is_partial);
        assert!(is_whole || !arguments.smoke, "so few events need no minute");
        match layout {
            Layout::Mixed => {
                drain::print("drain", &drained);
                let file = plot_file("throughput");
                let cpu = Axis::logarithmic("CPU-seconds per million events");
                let rate = Axis::logarithmic("million events a second");
                plot::write(&file, "Draining a topic", &cpu, &rate, &drain::series(&drained));
            }
            Layout::Shuffled => drain::print("shuffled keys", &drained),
        }
        results.extend(drained.iter().map(|rounds| drain::json("drain", layout, rounds)));
        drain::discard(cluster, preloaded);
    }
}

/// One topic is drained in plaintext and over TLS, through two listeners of one broker. Only the
/// JVM's best code uses the processor's instructions for AES, and it is there after some drains.
fn over_tls(arguments: &Arguments, programs: &[Program], results: &mut Vec<serde_json::Value>) {
    let events = if arguments.smoke { DRAIN_EVENTS_SMOKE } else { DRAIN_EVENTS };
    let patience = arguments.seconds.unwrap_or(DRAIN_PATIENCE);
    let (options, warm_drains) = match arguments.smoke {
        true => (drain_options(true), 0),
        false => (kafka::Options::for_rates(), TLS_WARM_DRAINS),
    };
    let secure = SecureCluster::start_as(options, &[], &[]);
    let cluster = &secure.cluster;
    let (preloaded, told) = drain::preload(cluster, drain_shape(arguments, Layout::Mixed), events);
    say(&told);
    let ways = [("plaintext", Listener::plaintext(cluster)), ("tls", Listener::tls(&secure))];
    let speaks_tls = programs.iter().copied().filter(|program| program.speaks_tls(arguments.smoke));
    let runs: Vec<(Program, usize)> =
        speaks_tls.flat_map(|program| [(program, 0), (program, 1)]).collect();
    let drain = |(program, way): (Program, usize)| {
        drain::drain(cluster, &ways[way].1, &preloaded, program, patience)
    };
    for run in runs.iter().filter(|(_, way)| ways[*way].0 == "tls").cycle().take(warm_drains) {
        drain(*run);
    }
    let drained = take_turns(&runs, arguments.rounds, drain, |drained| 1e6 / drained.rate);
    let is_whole = drained.iter().all(|rounds| !rounds.median.is_partial);
    assert!(is_whole || !arguments.smoke, "so few events need no minute");
    let (mut of_plaintext, mut of_tls) = (Vec::new(), Vec::new());
    for ((_, way), rounds) in runs.iter().zip(drained) {
        let mode = format!("drain, {}", ways[*way].0);
        results.push(drain::json(&mode, Layout::Mixed, &rounds));
        [&mut of_plaintext, &mut of_tls][*way].push(rounds);
    }
    drain::print("plaintext", &of_plaintext);
    drain::print("TLS", &of_tls);
}

fn natively(arguments: &Arguments, results: &mut Vec<serde_json::Value>) {
    let events = if arguments.smoke { NATIVE_EVENTS_SMOKE } else { NATIVE_EVENTS };
    let options = drain_options(arguments.smoke);
    let load = Load::new(drain_shape(arguments, Layout::Mixed));
    let patience = arguments.seconds.unwrap_or(DRAIN_PATIENCE);
    let fed = FedCluster::start(options);
    let measured = native::measure(&fed, &load, events, arguments.rounds, patience);
    native::print(&measured);
    results.extend(measured.iter().map(native::json));
}

fn at_rate(
    cluster: &Cluster,
    arguments: &Arguments,
    programs: &[Program],
    rate: u64,
    results: &mut Vec<serde_json::Value>,
) {
    let otherwise = if arguments.smoke { RATE_SPAN_SMOKE } else { RATE_SPAN };
    let span = span(arguments, otherwise);
    let load = Load::new(open_loop::shape(arguments.zones, arguments.players, rate));
    let run = |program: Program| {
        let warm_up = program.warm_up().filter(|_| !arguments.smoke).unwrap_or(span.warm_up);
        open_loop::run(cluster, program, &load, Span { warm_up, ..span })
    };
    let p99 = |measured: &Measured| measured.ms(99.0);
    let measured = take_turns(programs, arguments.rounds, run, p99);
    open_loop::print(&measured);
    let names = open_loop::PERCENTILES.iter().map(|percentile| format!("p{percentile}")).collect();
    let x = Axis { title: "percentile".to_owned(), scale: Scale::Named(names) };
    let y = Axis::logarithmic("milliseconds");
    let title = format!("Latency at {rate} events/s, from due to read back");
    let file = plot_file(&format!("latency-{rate}"));
    plot::write(&file, &title, &x, &y, &open_loop::series(&measured));
    results.extend(measured.iter().map(open_loop::json));
}

/// A plot in the target folder.
fn plot_file(name: &str) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("the target folder");
    let folder = target.join("bench");
    std::fs::create_dir_all(&folder).expect("the target folder can be written");
    let file = folder.join(format!("{name}.svg"));
    let shown = file.strip_prefix(env!("CARGO_MANIFEST_DIR")).unwrap_or(&file);
    say(&format!("plot: {}", shown.display()));
    file
}
