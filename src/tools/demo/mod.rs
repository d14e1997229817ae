//! `huntd demo`: the whole pipeline in one process, with librdkafka's mock cluster as the broker,
//! and an independent verifier.
//!
//! ```text
//! generator ─► events topic ─► daemon ─► updates topic ─► verifying reader
//!     ▲                                                       │ covered input offsets
//!     └───────────────────────────────────────────────────────┘
//! ```
//!
//! The mock keeps 5 MiB a partition and drops the oldest records silently, so the generator never
//! runs further ahead than [`flight::UNREAD_EVENTS_MAX`].

mod daemon;
mod flight;
mod generator;
mod page;
mod report;
mod story;
mod verifier;
mod winners;

use super::accounts::OfflineShards;
use super::failure::ToolError;
use super::kafka::plaintext;
use super::load::EventSender;
use super::matches::{MatchOptions, format_of};
use super::pace::Pace;
use super::progress_bar::ProgressBar;
use super::source::Source;
use super::synthetic::{RATE_UNPACED, SyntheticOptions};
use crate::service::cli::{DemoArgs, LoadCodec};
use crate::service::config::{self, Config};
use daemon::DemoDaemon;
use flight::Flight;
use generator::DueBy;
use page::DemoPage;
use rdkafka::error::KafkaError;
use rdkafka::mocking::MockCluster;
use report::DemoReport;
use std::io::{IsTerminal, Write};
use std::time::Instant;
use verifier::Verifier;
use winners::Winners;

const INPUT_TOPIC: &str = "hunt-events";
const OUTPUT_TOPIC: &str = "hunt-updates";
const DEAD_LETTER_TOPIC: &str = "hunt-dead-letters";

/// Milliseconds that events may wait for others to share their batch, and updates for others to
/// share their frame. The mock cluster gives one batch a partition for each Fetch, so that small
/// batches make a queue there.
const LINGER_MS: u32 = 5;

/// Timestamp of the first event. A fixed one, so that the same seed gives the same digest.
const BASE_MS: i64 = 1_767_225_600_000;

/// Runs the demo and prints its table. `Ok` only if every event is accounted for.
pub fn run(args: &DemoArgs) -> Result<(), ToolError> {
    let mock = |error: KafkaError| ToolError::Unreachable(format!("mock cluster: {error}"));
    let cluster = MockCluster::new(1).map_err(mock)?;
    let partitions = i32::from(args.partitions);
    for topic in [INPUT_TOPIC, OUTPUT_TOPIC, DEAD_LETTER_TOPIC] {
        cluster.create_topic(topic, partitions, 1).map_err(mock)?;
    }
    let brokers = vec![cluster.bootstrap_servers()];
    let config = demo_config(&brokers)?;
    let rulebook = super::rulebook(&config.rules_files)?;

    say("starting a broker, the daemon and a reader that checks it, all in this process")?;
    let begun = Instant::now();
    let page = args.page.then(|| DemoPage::start(&config, &rulebook)).transpose()?;
    let mut daemon = DemoDaemon::start(config, rulebook.clone())?;
    let mut measured = measure(args, &brokers, &daemon, begun);
    // A signal has ended it, or it has failed: there is nothing to stay for.
    let was_cut = daemon.has_ended();
    if let Some(page) = page {
        measured = page.end(args.stay && !was_cut).and(measured);
    }
    // If the daemon failed, that is why nothing was measured.
    daemon.stop()?;
    if was_cut {
        writeln!(std::io::stderr(), "a signal has ended the demo, so nothing is accounted for")?;
        return Ok(());
    }
    let measured = measured?;

    let mut offline = OfflineShards::new(rulebook);

    let mut winners = Winners::default();
    let mut source = open_source(args)?;
    while let Some(record) = source.next_record()? {
        winners.add(record.partition, offline.apply(&record)?.updates);
    }
    winners.write(&mut std::io::stdout().lock())?;
    DemoReport::new(&measured, &daemon, &offline).print(args.json)
}

/// Shows what goes on.
fn say(sentence: &str) -> std::io::Result<()> {
    let mut out = std::io::stderr();
    match out.is_terminal() {
        true => writeln!(out, "{sentence}"),
        false => Ok(()),
    }
}

/// What the run itself showed.
struct Measured {
    flight: Flight,
    verifier: Verifier,
}

fn measure(
    args: &DemoArgs,
    brokers: &[String],
    daemon: &DemoDaemon,
    begun: Instant,
) -> Result<Measured, ToolError> {
    let flight = Flight::new(args.partitions);
    // The sender has its connections by the time the daemon is ready: start-up is no latency.
    let sender =
        EventSender::connect(&plaintext(brokers, "demo"), INPUT_TOPIC, LoadCodec::None, LINGER_MS)?;
    let mut verifier = Verifier::connect(brokers, OUTPUT_TOPIC, args.partitions)?;
    verifier.wait_for_owner(daemon)?;
    let source = open_source(args)?;
    let expected = source.events_expected();
    let (waited, zones) = (begun.elapsed().as_secs_f64(), args.partitions);
    say(&format!("the daemon owns its {zones} zones after {waited:.1} s; the game begins"))?;
    let bar = ProgressBar::start(expected);
    // A match that plays in its own time counts milliseconds instead of events.
    let (rate, due_by) = match args.speed {
        Some(speed) => (Some((1000.0 * speed) as u64), DueBy::Time(BASE_MS)),
        None => (paced(args), DueBy::Count),
    };
    let pace = Pace::start(rate);
    std::thread::scope(|scope| {
        let generator = std::thread::Builder::new()
            .name("generator".to_owned())
            .spawn_scoped(scope, || generator::run(source, sender, &pace, due_by, &flight))
            .map_err(|error| ToolError::Usage(format!("cannot start a thread: {error}")))?;
        let verified = verifier.run(&flight, &pace, daemon, &bar);
        flight.stop();
        let generated = generator.join().expect("a panic ends the process");
        bar.finish();
        // The generator's trouble is the cause if there is any.
        generated.and(verified)
    })?;
    Ok(Measured { flight, verifier })
}

/// The events, from their first one: the same whenever it is called.
fn open_source(args: &DemoArgs) -> Result<Source, ToolError> {
    if let Some(file) = &args.match_file {
        let options = MatchOptions {
            format: format_of(file, args.format)?,
            file: file.clone(),
            zones: args.partitions,
            repeat: 1,
            base_ms: BASE_MS,
        };
        return Ok(Source::open_match(options, args.events)?);
    }
    let options = SyntheticOptions {
        seed: args.seed,
        players: args.players,
        zones: args.partitions,
        rate: paced(args).unwrap_or(RATE_UNPACED),
        base_us: BASE_MS * 1000,
    };
    Ok(Source::synthetic(options, args.events.unwrap_or(EVENTS_DEFAULT)))
}

fn paced(args: &DemoArgs) -> Option<u64> {
    (args.rate > 0).then_some(args.rate)
}

/// Events to make if no number is given.
const EVENTS_DEFAULT: u64 = 2_000_000;

/// No records of huntd's own in the input: the demo tells its events apart by their offsets, and
/// the same seed has to give the same digest.
fn demo_config(brokers: &[String]) -> Result<Config, ToolError> {
    let text = format!(
        "[kafka]\n\
         brokers = [\"{}\"]\n\
         group = \"huntd-demo\"\n\
         input_topic = \"{INPUT_TOPIC}\"\n\
         output_topic = \"{OUTPUT_TOPIC}\"\n\
         dead_letter_topic = \"{DEAD_LETTER_TOPIC}\"\n\
         [fetch]\n\
         wait_ms_max = 1\n\
         [input]\n\
         tick_every_ms = 0\n\
         carry_players = false\n\
         [publish]\n\
         linger_us_max = {}\n\
         [service]\n\
         listen = \"127.0.0.1:0\"\n\
         log_level = \"warn\"\n\
         [serve]\n\
         listen = \"127.0.0.1:0\"\n",
        brokers.join("\", \""),
        LINGER_MS * 1000
    );
    let parsed = config::parse("the demo's configuration", &text, std::iter::empty());
    parsed.map_err(|error| ToolError::Config(error.to_string()))
}
