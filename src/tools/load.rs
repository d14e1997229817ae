//! `huntd load`: produces events to a topic, generated or from a file.

use super::failure::ToolError;
use super::kafka::{self, Cluster};
use super::newest::{self, Newest};
use super::pace::Pace;
use super::progress_bar::ProgressBar;
use super::source::{Source, SourceRecord};
use super::traffic::{PLAYERS_DEFAULT, RATE_UNPACED, SEED_DEFAULT};
use crate::edition::Edition;
use crate::kafka::client::{ClientOptions, FIRST_TOKEN_WAIT, client_config};
use crate::kafka::right::Right;
use crate::kafka::topic_error::TopicError;
use crate::kafka::topic_writer::{TopicWriter, Undelivered};
use crate::kit::bots::BotOptions;
use crate::service::cli::LoadArgs;
use rdkafka::config::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseRecord, Producer as _};
use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Default number of events.
pub const LOAD_EVENTS_DEFAULT: u64 = 1_000_000;

/// Upper limit of the wait for the leaders of the topic's partitions.
const METADATA_WAIT: Duration = Duration::from_secs(10);

/// Upper limit of the wait for a record's acknowledgement, librdkafka's default: a broker that was
/// killed reads its logs again before it answers, which takes minutes on a busy host.
const DELIVERY_MS_MAX: u32 = 300_000;

/// Upper limit of the wait for the last acknowledgements; librdkafka gives up on a record earlier.
const FLUSH_WAIT: Duration = Duration::from_millis(DELIVERY_MS_MAX as u64 + 10_000);

/// How long an event of a paced load may wait to be batched; this counts as latency.
const LINGER_MS_PACED: u32 = 1;

/// The longest time that an event may wait to be batched if only the rate matters.
const LINGER_MS_UNPACED: u32 = 20;

/// Pause before the first event of a paced load, in which librdkafka gets its connections and its
/// producer id, so that the first events are not late.
const CONNECT_PAUSE: Duration = Duration::from_secs(1);

/// Sends the requested events, and prints a summary.
pub fn run(args: &LoadArgs, edition: &Edition) -> Result<(), ToolError> {
    let cluster = Cluster::of(&args.cluster, "load")?;
    let topic = args.topic.as_deref().unwrap_or(&cluster.input_topic);
    refuse_output(&cluster, topic)?;
    let partitions = kafka::topic_partitions(&cluster.client, topic, Right::Write)?;
    refuse_frames(&cluster, edition, topic, partitions)?;
    let zones = args.partitions.unwrap_or(partitions);
    if zones > partitions {
        return Err(ToolError::TopicWrong(format!(
            "`{topic}` has {partitions} partitions and --partitions asks for {zones}; use a topic \
             with more, or ask for fewer"
        )));
    }
    let mut source = open_source(args, edition, zones)?;
    let linger_ms = if args.rate.is_some() { LINGER_MS_PACED } else { LINGER_MS_UNPACED };
    let mut sender = EventSender::connect(&cluster.client, topic, &args.compression, linger_ms)?;
    let bar = ProgressBar::start(source.events_expected());
    if args.rate.is_some() {
        std::thread::sleep(CONNECT_PAUSE);
    }
    bar.restart_clock();
    let pace = Pace::start(args.rate);
    while let Some(record) = source.next_record()? {
        while let Some(wait) = pace.wait(sender.sent) {
            sender.serve();
            std::thread::sleep(wait);
        }
        sender.send(&record)?;
        bar.show(sender.sent);
    }
    sender.flush()?;
    bar.finish();
    let seconds = pace.elapsed().as_secs_f64();
    let per_second = sender.sent as f64 / seconds.max(1e-9);
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "{} events in {zones} partitions of {topic} in {seconds:.1} s, {per_second:.0} events/s",
        sender.sent
    )?;
    if let Some(file) = &args.file {
        writeln!(
            out,
            "the same without a broker, or a daemon's own ticks and handoffs: huntd replay \
             --file {}",
            file.display()
        )?;
    }
    Ok(())
}

/// Refuses a topic that daemons write to.
fn refuse_output(cluster: &Cluster, topic: &str) -> Result<(), ToolError> {
    let Cluster { output_topic, dead_letter_topic, snapshot_topic, .. } = cluster;
    let written = [
        (Some(output_topic), "output topic"),
        (Some(dead_letter_topic), "dead-letter topic"),
        (snapshot_topic.as_ref(), "snapshot topic"),
    ];
    match written.iter().find(|(name, _)| name.is_some_and(|name| name == topic)) {
        Some((_, kind)) => Err(ToolError::Usage(format!(
            "`{topic}` is the {kind}, which events would damage: name an input topic"
        ))),
        None => Ok(()),
    }
}

/// A topic with another name may be the output of other daemons: its newest records tell.
fn refuse_frames(
    cluster: &Cluster,
    edition: &Edition,
    topic: &str,
    partitions: u16,
) -> Result<(), ToolError> {
    let updates = edition.schema.game.updates;
    match newest::look(&cluster.client, updates, topic, 0..partitions) {
        Ok(Newest::Frames) => Err(ToolError::TopicWrong(format!(
            "`{topic}` holds frames of a daemon, whose readers events would stop: name an input \
             topic"
        ))),
        // A user who may only write has no need to read.
        Ok(_) | Err(ToolError::Topic(TopicError::NotAuthorised { .. })) => Ok(()),
        Err(error) => Err(error),
    }
}

fn open_source(args: &LoadArgs, edition: &Edition, zones: u16) -> Result<Source, ToolError> {
    if let Some(file) = &args.file {
        return Ok(Source::open_lines(file, zones, args.events)?);
    }
    let pause_us = if args.rate.is_some() { CONNECT_PAUSE.as_micros() as i64 } else { 0 };
    let now_ms = (now_us() + pause_us) / 1000;
    let options = BotOptions {
        seed: args.seed.unwrap_or(SEED_DEFAULT),
        players: args.players.unwrap_or(PLAYERS_DEFAULT),
        zones,
        rate: args.rate.unwrap_or(RATE_UNPACED),
        base_us: args.base_ms.unwrap_or(now_ms) * 1000,
        is_watched: false,
    };
    let rules_files = args.cluster.load()?.map_or_else(Vec::new, |config| config.rules_files);
    let rulebook = super::rulebook(edition, &rules_files)?;
    Source::of_bots(edition, &*rulebook, options, args.events.unwrap_or(LOAD_EVENTS_DEFAULT))
}

/// The current time in microseconds since the Unix epoch.
pub(crate) fn now_us() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.expect("the clock is past 1970").as_micros() as i64
}

/// Sends records to one topic: idempotent, in order, acknowledged by all in-sync replicas.
pub(crate) struct EventSender {
    writer: TopicWriter,
    topic: String,
    /// Records accepted by librdkafka.
    pub sent: u64,
}

impl EventSender {
    /// Connects. An event may wait `linger_ms` to be batched.
    pub(crate) fn connect(
        client: &ClientOptions,
        topic: &str,
        compression: &str,
        linger_ms: u32,
    ) -> Result<EventSender, ToolError> {
        let config = producer_config(client, compression, linger_ms);
        let writer = TopicWriter::new(&config, client).map_err(|error| {
            ToolError::Usage(format!("librdkafka does not accept the settings: {error}"))
        })?;
        if client.authenticates_by_token() {
            writer.producer.poll(FIRST_TOKEN_WAIT);
        }
        let known = writer.producer.client().fetch_metadata(Some(topic), METADATA_WAIT);
        known.map_err(|error| ToolError::of_topic(topic, Right::Write, &error))?;
        Ok(EventSender { writer, topic: topic.to_owned(), sent: 0 })
    }

    /// Hands over one record, waiting while the buffer is full.
    pub(crate) fn send(&mut self, record: &SourceRecord<'_>) -> Result<(), ToolError> {
        loop {
            let mut message: BaseRecord<'_, (), [u8], usize> =
                BaseRecord::with_opaque_to(&self.topic, 0)
                    .partition(record.partition.into())
                    .timestamp(record.time_ms);
            message.payload = record.value;
            match self.writer.producer.send(message) {
                Ok(()) => break,
                Err((error, _)) if is_full(&error) => {
                    self.writer.producer.poll(Duration::from_millis(10));
                    self.check()?;
                }
                Err((error, _)) => {
                    return Err(ToolError::of_topic(&self.topic, Right::Write, &error));
                }
            }
        }
        self.sent += 1;
        if self.sent.is_multiple_of(1024) {
            self.serve();
            self.check()?;
        }
        Ok(())
    }

    /// Processes delivery reports.
    pub(crate) fn serve(&self) {
        self.writer.producer.poll(Duration::ZERO);
    }

    /// Waits until every record is acknowledged.
    pub(crate) fn flush(&self) -> Result<(), ToolError> {
        let flushed = self.writer.producer.flush(FLUSH_WAIT);
        self.check()?;
        flushed.map_err(|error| ToolError::of_topic(&self.topic, Right::Write, &error))
    }

    /// Fails if a record was not delivered.
    fn check(&self) -> Result<(), ToolError> {
        let reports = std::iter::from_fn(|| self.writer.next_report());
        let mut failures = reports.filter_map(|report| report.offset.err());
        let Some(Undelivered { topic, error }) = failures.next() else { return Ok(()) };
        let failed = 1 + failures.count();
        let undelivered =
            |reason: &str| format!("{failed} records were not delivered; the first: {reason}");
        Err(match ToolError::of_topic(&topic, Right::Write, &error) {
            ToolError::Topic(TopicError::Unreachable(reason)) => {
                TopicError::Unreachable(undelivered(&reason)).into()
            }
            ToolError::Topic(TopicError::NotNow(reason)) => {
                TopicError::NotNow(undelivered(&reason)).into()
            }
            other => other,
        })
    }
}

fn is_full(error: &KafkaError) -> bool {
    error.rdkafka_error_code() == Some(RDKafkaErrorCode::QueueFull)
}

fn producer_config(client: &ClientOptions, compression: &str, linger_ms: u32) -> ClientConfig {
    let mut config = client_config(client);
    config
        .set("enable.idempotence", "true")
        .set("compression.codec", compression)
        .set("linger.ms", linger_ms.to_string())
        .set("batch.num.messages", "10000")
        .set("batch.size", "1000000")
        .set("queue.buffering.max.messages", "500000")
        .set("queue.buffering.max.kbytes", "262144")
        .set("delivery.report.only.error", "true")
        .set("message.timeout.ms", DELIVERY_MS_MAX.to_string());
    config
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edition::edition;
    use crate::hunt::state::TreasureHunt;
    use crate::service::cli::{Cli, Verb};
    use clap::Parser;

    /// Why no events can be made with these arguments.
    fn refusal(arguments: &[&str]) -> String {
        let cli = Cli::try_parse_from([&["huntd", "load"], arguments].concat());
        let Ok(Cli { verb: Verb::Load(args) }) = cli else { panic!("it is a load") };
        let source = open_source(&args, &edition::<TreasureHunt>(), 2);
        source.err().expect("no events can be made").to_string()
    }

    #[test]
    fn a_load_plays_by_the_rules_of_the_configuration() {
        let set = ["--config", "config/huntd.toml", "--set", "rules.files=/nowhere/rules.toml"];
        let error = refusal(&set);
        assert!(error.contains("/nowhere/rules.toml"), "{error}");
    }

    #[test]
    fn more_players_than_the_zones_can_hold_are_refused() {
        for players in ["262145", "4294967295"] {
            let error = refusal(&["--players", players]);
            assert!(error.contains("ask for at most 262144, or use more partitions"), "{error}");
        }
    }
}
