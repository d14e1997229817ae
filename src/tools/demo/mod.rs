//! `huntd demo`: the whole pipeline in one process, with librdkafka's mock cluster as the broker,
//! and an independent verifier.
//!
//! ```text
//! generator ─► events topic ─► daemon ─► updates topic ─► verifying reader
//!     ▲                                                       │ covered input offsets
//!     └───────────────────────────────────────────────────────┘
//! ```
//!
//! The mock keeps 5 MiB per partition and silently drops the oldest records, so the generator never
//! gets further ahead than [`in_flight::UNREAD_EVENTS_MAX`].

mod daemon;
mod in_flight;
mod generator;
mod page;
mod report;
mod story;
mod verifier;
mod winners;

use super::WhileRead;
use super::accounts::OfflineShards;
use super::failure::ToolError;
use super::kafka::plaintext;
use super::load::EventSender;
use super::pace::Pace;
use super::progress_bar::ProgressBar;
use super::source::Source;
use super::traffic::{PLAYERS_DEFAULT, RATE_UNPACED, SEED_DEFAULT};
use crate::daemon::failure::Failure;
use crate::edition::Edition;
use crate::kafka::topic_error::TopicError;
use crate::kit::bots::BotOptions;
use crate::runtime::ring::{RING_KINDS, RingKind};
use crate::service::cli::DemoArgs;
use crate::service::config::{self, Config};
use crate::view::game::ViewedGame;
use daemon::DemoDaemon;
use generator::DueBy;
use in_flight::InFlightEvents;
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

/// Milliseconds that events may wait to be batched, and updates to be framed. The mock cluster
/// returns one batch per partition for each Fetch, so small batches would queue there.
const LINGER_MS: u32 = 5;

/// Timestamp of the first event; fixed, so that the same seed yields the same digest.
const BASE_MS: i64 = 1_767_225_600_000;

/// Runs the demo and prints what became of the events. `Ok` only if every event is accounted for.
pub fn run(args: &DemoArgs, edition: &Edition) -> Result<(), ToolError> {
    let mock = |error: KafkaError| TopicError::Unreachable(format!("mock cluster: {error}"));
    let cluster = MockCluster::new(1).map_err(mock)?;
    let partitions = i32::from(args.partitions);
    for topic in [INPUT_TOPIC, OUTPUT_TOPIC, DEAD_LETTER_TOPIC] {
        cluster.create_topic(topic, partitions, 1).map_err(mock)?;
    }
    let brokers = vec![cluster.bootstrap_servers()];
    let config = demo_config(&brokers)?;
    let rulebook = super::rulebook(edition, &config.rules_files)?;

    say("starting a broker, the daemon and a reader that checks it, all in this process")?;
    let begun = Instant::now();
    let page = args.page.then(|| DemoPage::start(&config, &rulebook)).transpose()?;
    let mut daemon = DemoDaemon::start(config, rulebook.clone())?;
    let mut measured = measure(args, &brokers, &daemon, (edition, &*rulebook), begun);
    // A signal or a failure has ended the daemon, so the page does not stay.
    let was_cut = daemon.has_ended();
    if let Some(page) = page {
        measured = page.end(args.stay && !was_cut).and(measured);
    }
    // If the daemon failed, that explains why nothing was measured.
    daemon.stop()?;
    if was_cut {
        super::say("a signal has ended the demo, so nothing is accounted for")?;
        return Ok(());
    }
    let measured = measured?;

    let mut source = open_source(args, edition, &*rulebook)?;
    let mut offline = OfflineShards::new(rulebook);
    let mut winners = Winners::new(edition.schema.game.updates);
    while let Some(record) = source.next_record()? {
        winners.add(record.partition, offline.apply(&record)?.updates);
    }
    winners.write(&mut WhileRead(std::io::stdout().lock()))?;
    DemoReport::new(&measured, &daemon, &offline).print(args)
}

/// Returns the ring that the kernel allows, as the configuration names it.
fn available_ring() -> Result<&'static str, ToolError> {
    let say = |sentence: String| _ = writeln!(std::io::stderr(), "{sentence}");
    let available = RingKind::IoUring.or_epoll(say).map_err(Failure::Ring)?;
    let (name, _) = RING_KINDS.iter().find(|(_, kind)| *kind == available).expect("each has one");
    Ok(name)
}

/// Prints a progress line on a terminal.
fn say(sentence: &str) -> std::io::Result<()> {
    let mut out = std::io::stderr();
    match out.is_terminal() {
        true => writeln!(out, "{sentence}"),
        false => Ok(()),
    }
}

/// The measurements of the run.
struct Measured {
    in_flight: InFlightEvents,
    verifier: Verifier,
}

fn measure(
    args: &DemoArgs,
    brokers: &[String],
    daemon: &DemoDaemon,
    (edition, rulebook): (&Edition, &dyn ViewedGame),
    begun: Instant,
) -> Result<Measured, ToolError> {
    let in_flight = InFlightEvents::new(args.partitions);
    // The sender has its connections by the time the daemon is ready, so start-up does not count as
    // latency.
    let sender = EventSender::connect(&plaintext(brokers, "demo"), INPUT_TOPIC, "none", LINGER_MS)?;
    let mut verifier = Verifier::connect(brokers, OUTPUT_TOPIC, args.partitions, edition)?;
    verifier.wait_for_owner(daemon)?;
    let source = open_source(args, edition, rulebook)?;
    let expected = source.events_expected();
    let (waited, zones) = (begun.elapsed().as_secs_f64(), args.partitions);
    say(&format!("the daemon owns its {zones} zones after {waited:.1} s; the game begins"))?;
    let bar = ProgressBar::start(expected);
    // For events at their own times, the pace counts milliseconds instead of events.
    let (rate, due_by) = match args.speed {
        Some(speed) => (Some((1000.0 * speed) as u64), DueBy::Time),
        None => (paced(args), DueBy::Count),
    };
    let pace = Pace::start(rate);
    std::thread::scope(|scope| {
        let generator = std::thread::Builder::new()
            .name("generator".to_owned())
            .spawn_scoped(scope, || generator::run(source, sender, &pace, due_by, &in_flight))
            .map_err(|error| ToolError::Usage(format!("cannot start a thread: {error}")))?;
        let verified = verifier.run(&in_flight, &pace, daemon, &bar);
        in_flight.stop();
        let generated = generator.join().expect("a panic ends the process");
        bar.finish();
        // An error of the generator is the cause if there is one.
        generated.and(verified)
    })?;
    Ok(Measured { in_flight, verifier })
}

/// Opens the events from the first one; every call yields the same events.
fn open_source(
    args: &DemoArgs,
    edition: &Edition,
    rulebook: &dyn ViewedGame,
) -> Result<Source, ToolError> {
    if let Some(file) = &args.file {
        return Ok(Source::open_lines(file, args.partitions, args.events)?);
    }
    let options = BotOptions {
        seed: args.seed.unwrap_or(SEED_DEFAULT),
        players: args.players.unwrap_or(PLAYERS_DEFAULT),
        zones: args.partitions,
        rate: paced(args).unwrap_or(RATE_UNPACED),
        base_us: BASE_MS * 1000,
        is_watched: args.page,
    };
    Source::of_bots(edition, rulebook, options, args.events.unwrap_or(EVENTS_DEFAULT))
}

fn paced(args: &DemoArgs) -> Option<u64> {
    let default = if args.page { PAGE_RATE_DEFAULT } else { RATE_DEFAULT };
    Some(args.rate.unwrap_or(default)).filter(|rate| *rate > 0)
}

/// Default events per second, and that of a demo with a page: as many as 3,000 people make.
const RATE_DEFAULT: u64 = 100_000;
const PAGE_RATE_DEFAULT: u64 = 4_000;

/// Default number of events.
const EVENTS_DEFAULT: u64 = 2_000_000;

/// The demo's configuration. It keeps huntd's own records out of the input: the demo identifies its
/// events by their offsets, and the same seed has to yield the same digest.
fn demo_config(brokers: &[String]) -> Result<Config, ToolError> {
    let text = format!(
        "[kafka]\n\
         brokers = [\"{}\"]\n\
         group = \"huntd-demo\"\n\
         input_topic = \"{INPUT_TOPIC}\"\n\
         output_topic = \"{OUTPUT_TOPIC}\"\n\
         dead_letter_topic = \"{DEAD_LETTER_TOPIC}\"\n\
         [runtime]\n\
         ring = \"{}\"\n\
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
         listen = \"127.0.0.1:0\"\n\
         origins = [\"*\"]\n",
        brokers.join("\", \""),
        available_ring()?,
        LINGER_MS * 1000
    );
    let parsed = config::parse("the demo's configuration", &text, std::iter::empty());
    parsed.map_err(|error| ToolError::Config(error.to_string()))
}
