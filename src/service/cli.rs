//! The command line: one struct of arguments for each verb.

use super::config_args::{ClusterArgs, ConfigArgs};
use super::help;
use crate::edition::Edition;
use crate::kafka::client::BOOTSTRAP_BROKERS_MAX;
use crate::telemetry::progress::SHARDS_MAX;
use clap::builder::{PossibleValuesParser, RangedI64ValueParser, RangedU64ValueParser};
use clap::{Arg, ArgGroup, Args, Command, CommandFactory, FromArgMatches, Parser, Subcommand};
use std::path::PathBuf;

/// The version, and the revision that the program was built from.
pub const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("HUNTD_REVISION"), ")");

/// The end of the year 9999.
const TIME_MS_MAX: i64 = 253_402_300_799_999;

/// Partitions that the demo's mock cluster can serve well; each has a shard to acquire before the
/// demo begins.
const DEMO_PARTITIONS_MAX: u64 = 32;

/// Codecs of record batches, as Kafka names them.
const CODECS: [&str; 5] = ["none", "gzip", "snappy", "lz4", "zstd"];

/// The argument that names an edition.
const EDITION: &str = "edition";

/// The whole command line.
#[derive(Debug, Parser)]
#[command(
    name = "huntd",
    version = VERSION,
    about = "A single-core Kafka state engine for real-time games, on io_uring",
    long_about = "huntd reads player events from a Kafka topic on one pinned core, applies them \
                  to a deterministic game state, and publishes the updates to a second topic.\n\n\
                  Try `huntd demo` first: it needs no Kafka.",
    after_long_help = help::exit_codes(),
    max_term_width = 100
)]
pub struct Cli {
    /// The verb.
    #[command(subcommand)]
    pub verb: Verb,
}

/// The verbs of huntd.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Run the daemon.
    #[command(long_about = help::RUN)]
    Run(RunArgs),
    /// Check a configuration and the topics that it names.
    #[command(long_about = help::CHECK)]
    Check(CheckArgs),
    /// Show the whole pipeline with a broker in this process, and verify its output.
    #[command(long_about = help::DEMO)]
    Demo(DemoArgs),
    /// Produce player events to a topic.
    #[command(long_about = help::LOAD)]
    Load(LoadArgs),
    /// Apply events offline, and print updates and digest of each shard.
    #[command(long_about = help::REPLAY)]
    Replay(ReplayArgs),
    /// Explain what became of an event, and the state that it changed.
    #[command(long_about = help::EXPLAIN)]
    Explain(ExplainArgs),
    /// Try another version of the game beside the running one, and publish nothing.
    #[command(long_about = help::REHEARSE)]
    Rehearse(RehearseArgs),
    /// List the rules in a configuration, or change the rules of a running game.
    #[command(long_about = help::RULES)]
    Rules(RulesArgs),
    /// Answer clients over HTTP from the published updates.
    #[command(long_about = help::SERVE)]
    Serve(ServeArgs),
    /// List, verify or drop the snapshots in a state directory.
    #[command(long_about = help::SNAPSHOT)]
    Snapshot(SnapshotArgs),
    /// Print the updates of an output topic by the reader rule.
    #[command(long_about = help::TAP)]
    Tap(TapArgs),
    /// Create the topics of a configuration, or check their settings.
    #[command(long_about = help::TOPICS)]
    Topics(TopicsArgs),
    /// Print who owns each zone, who keeps copies of it, and how far its output is.
    #[command(long_about = help::LIST_ZONES)]
    Zones(ZonesArgs),
    /// Print a configuration with every key and its default, or its JSON Schema.
    #[command(long_about = help::CONFIG)]
    Config(DefaultsArgs),
    /// Print the tables of events and updates as JSON.
    #[command(long_about = help::SCHEMA)]
    Schema,
    /// Print a shell completion script for huntd's command line.
    #[command(long_about = help::COMPLETIONS)]
    Completions(CompletionsArgs),
    /// Write the manual pages.
    #[command(long_about = help::MAN)]
    Man(ManArgs),
}

impl Cli {
    /// Returns the command line of a program that has these editions of a game.
    pub fn of_program(editions: &[Edition]) -> Command {
        let versions: Vec<u32> = editions.iter().map(|edition| edition.version).collect();
        let game = format!("{} of version {}", editions[0].name, listed(&versions));
        let kinds = editions[0].schema.game.updates.kinds.iter().map(|kind| kind.name);
        let kinds = PossibleValuesParser::new(kinds);
        let command = Cli::command().mut_subcommands(|verb| match verb.get_name() {
            "tap" => verb.mut_arg("kind", |kind| kind.value_parser(kinds.clone())),
            _ => verb,
        });
        // The parser wants it for the life of the program.
        let version: &str = format!("{VERSION}, {game}").leak();
        let command = command.version(version).before_help(format!("This program plays: {game}."));
        let help = format!("Version of the game: {} (default: the first)", listed(&versions));
        // Where nothing can be chosen, the only version may be named.
        let is_hidden = versions.len() == 1;
        let version = move |text: &str| {
            let known = versions.iter().find(|version| version.to_string() == text).copied();
            known.ok_or_else(|| format!("this program has version {}", listed(&versions)))
        };
        let edition = Arg::new(EDITION).long(EDITION).global(true).value_name("VERSION");
        command.arg(edition.value_parser(version).help(help).hide(is_hidden))
    }

    /// Reads the command line of such a program: what it is asked, and by which edition. Ends the
    /// process if the line is invalid or asks for help.
    pub fn read(editions: &[Edition]) -> (Cli, &Edition) {
        let command = Cli::of_program(editions);
        let matches = command.get_matches();
        let version = matches.get_one::<u32>(EDITION);
        let is_chosen = |edition: &&Edition| version == Some(&edition.version);
        let chosen = editions.iter().find(is_chosen).unwrap_or(&editions[0]);
        (Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit()), chosen)
    }
}

/// Returns versions of a game in words.
fn listed(versions: &[u32]) -> String {
    versions.iter().map(u32::to_string).collect::<Vec<_>>().join(" or ")
}

/// Arguments of `config`.
#[derive(Clone, Debug, Args)]
pub struct DefaultsArgs {
    /// Print a JSON Schema instead, for editors and checks.
    #[arg(long)]
    pub schema: bool,
}

/// Arguments of `completions`.
#[derive(Clone, Debug, Args)]
pub struct CompletionsArgs {
    /// The shell.
    pub shell: clap_complete::Shell,
}

/// Arguments of `man`.
#[derive(Clone, Debug, Args)]
pub struct ManArgs {
    /// Write one page per verb into this folder (default: print the first page).
    #[arg(long, value_name = "FOLDER")]
    pub directory: Option<PathBuf>,
}

/// Arguments of `run`.
#[derive(Clone, Debug, Args)]
pub struct RunArgs {
    /// The configuration.
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Start each shard that cannot be started otherwise over with an empty zone.
    #[arg(long)]
    pub genesis: bool,
    /// Skip a record, or a batch that cannot be read; permanent and repeatable.
    #[arg(long, value_name = "PARTITION:OFFSET", value_parser = place)]
    pub skip: Vec<(i32, i64)>,
}

/// Arguments of `check`.
#[derive(Clone, Debug, Args)]
pub struct CheckArgs {
    /// The configuration.
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Do not contact any broker.
    #[arg(long)]
    pub offline: bool,
    /// Treat warnings as errors, such as one of several brokers not answering.
    #[arg(long)]
    pub deny_warnings: bool,
}

/// Arguments of `demo`.
#[derive(Clone, Debug, Args)]
pub struct DemoArgs {
    /// Events to generate (default: 2000000), or limit of those taken from the file.
    #[arg(long, value_name = "N", value_parser = at_least_one())]
    pub events: Option<u64>,
    /// Events per second (default: 100000, or 4000 with `--page`); 0 for the maximum, at which
    /// latencies are not meaningful.
    #[arg(long, value_name = "R")]
    pub rate: Option<u64>,
    /// Players in the world (default: 3000).
    #[arg(long, value_name = "P", value_parser = players(), conflicts_with = "file")]
    pub players: Option<u32>,
    /// Partitions of the topics: zones of the world.
    #[arg(long, value_name = "K", default_value_t = 4, value_parser = demo_partitions())]
    pub partitions: u16,
    /// Random seed: the same seed generates the same events (default: 1).
    #[arg(long, value_name = "S", conflicts_with = "file")]
    pub seed: Option<u64>,
    /// A file of events to play instead of generated ones: one per line, as in `replay`.
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Play the file's events at their own times, at this speed; 1 plays them as recorded.
    #[arg(long, value_name = "X", requires = "file", conflicts_with = "rate")]
    #[arg(value_parser = speed)]
    pub speed: Option<f64>,
    /// Serve the page, and print its address. The generated players do what is worth watching.
    #[arg(long)]
    pub page: bool,
    /// Keep serving the page after the last event, until Ctrl-C.
    #[arg(long, requires = "page")]
    pub stay: bool,
    /// Print all counts and latencies, too.
    #[arg(long)]
    pub verbose: bool,
    /// Print one JSON object as the last line.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `load`.
#[derive(Clone, Debug, Args)]
pub struct LoadArgs {
    /// The cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Topic to produce to (default: hunt-events). It must exist: see `huntd topics`.
    #[arg(long, value_name = "TOPIC")]
    pub topic: Option<String>,
    /// Events to generate (default: 1000000), or limit of those taken from the file.
    #[arg(long, value_name = "N")]
    pub events: Option<u64>,
    /// Events per second (default: as fast as the broker accepts them).
    #[arg(long, value_name = "R", value_parser = at_least_one())]
    pub rate: Option<u64>,
    /// Players in the generated world (default: 3000).
    #[arg(long, value_name = "P", value_parser = players(), conflicts_with = "file")]
    pub players: Option<u32>,
    /// Partitions to use (default: all).
    #[arg(long, value_name = "K", value_parser = partitions())]
    pub partitions: Option<u16>,
    /// Random seed: the same seed generates the same events (default: 1).
    #[arg(long, value_name = "S", conflicts_with = "file")]
    pub seed: Option<u64>,
    /// A file of events to produce instead of generated ones: one per line, as in `replay`.
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Timestamp of the first generated event, in milliseconds since the Unix epoch (default: now).
    #[arg(long, value_name = "MS", value_parser = since_epoch(), conflicts_with = "file")]
    pub base_ms: Option<i64>,
    /// Compression of the record batches.
    #[arg(long, value_name = "CODEC", default_value = "none", value_parser = CODECS)]
    pub compression: String,
}

/// Arguments of `replay`.
#[derive(Clone, Debug, Args)]
#[command(group(ArgGroup::new("source").args(["file", "topic", "until"]).required(true)))]
pub struct ReplayArgs {
    /// A file with one event per line: its JSON, or `partition<TAB>time_ms<TAB>JSON`.
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Hand players that leave for another zone over to it, as a daemon does. Do not use this with
    /// records of a daemon's input, which already contains these handoffs.
    #[arg(long, requires = "file")]
    pub carry_players: bool,
    /// A topic of events.
    #[arg(long, value_name = "TOPIC")]
    pub topic: Option<String>,
    /// One zone of the configuration's input, up to this record, from the newest snapshot before.
    #[arg(long, value_name = "ZONE:OFFSET", value_parser = place, requires = "config_file")]
    pub until: Option<(i32, i64)>,
    /// The cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Rules file, repeatable if events change the rules (default: the configuration's).
    #[arg(long, value_name = "FILE")]
    pub rules: Vec<PathBuf>,
    /// Skip a record, like a daemon with a `skip` for it; repeatable.
    #[arg(long, value_name = "PARTITION:OFFSET", value_parser = place)]
    pub skip: Vec<(i32, i64)>,
    /// Print every update in addition to the digests.
    #[arg(long)]
    pub updates: bool,
    /// Print one JSON object as the last line.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `explain`.
#[derive(Clone, Debug, Args)]
pub struct ExplainArgs {
    /// The zone and the offset of the event in the input topic.
    #[arg(value_name = "ZONE:OFFSET", value_parser = place, required_unless_present = "player")]
    pub place: Option<(i32, i64)>,
    /// The zone of a player's event.
    #[arg(long, value_name = "ZONE", requires = "player", conflicts_with = "place")]
    pub zone: Option<u16>,
    /// The player.
    #[arg(long, value_name = "ID", requires_all = ["zone", "seq"])]
    pub player: Option<u64>,
    /// The event's `seq`; the first event with it is explained.
    #[arg(long, value_name = "SEQ", requires = "player")]
    pub seq: Option<u64>,
    /// The configuration.
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Skip a record, like a daemon with a `skip` for it; repeatable.
    #[arg(long, value_name = "PARTITION:OFFSET", value_parser = place)]
    pub skip: Vec<(i32, i64)>,
    /// Print one JSON object instead.
    #[arg(long)]
    pub json: bool,
}

impl ExplainArgs {
    /// Returns the zone.
    pub(crate) fn zone(&self) -> u16 {
        let place = self.place.and_then(|(zone, _)| u16::try_from(zone).ok());
        place.or(self.zone).expect("one of them is required")
    }

    /// Returns the offset, if it is given.
    pub(crate) fn offset(&self) -> Option<i64> {
        self.place.map(|(_, offset)| offset)
    }

    /// Returns the player and the `seq`, if they are given.
    pub(crate) fn event(&self) -> Option<(u64, u64)> {
        self.player.zip(self.seq)
    }
}

/// Arguments of `rules`.
#[derive(Clone, Debug, Args)]
pub struct RulesArgs {
    /// The configuration.
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Switch the game to these rules: one of the files in rules.files, or its ruleset.
    #[arg(long, value_name = "FILE|RULESET")]
    pub switch_to: Option<String>,
    /// Also print the current rules of each zone.
    #[arg(long, conflicts_with = "switch_to")]
    pub zones: bool,
}

/// Arguments of `serve`.
#[derive(Clone, Debug, Args)]
pub struct ServeArgs {
    /// The daemons' configuration.
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Show one zone as it was after this record of the input, and nothing that came later.
    #[arg(long, value_name = "ZONE:OFFSET", value_parser = place)]
    pub at: Option<(i32, i64)>,
    /// Skip a record, like a daemon with a `skip` for it; repeatable.
    #[arg(long, value_name = "PARTITION:OFFSET", value_parser = place, requires = "at")]
    pub skip: Vec<(i32, i64)>,
}

/// Arguments of `rehearse`.
#[derive(Clone, Debug, Args)]
pub struct RehearseArgs {
    /// The configuration.
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Rules file of the version that is rehearsed; repeatable (default: the configuration's).
    #[arg(long, value_name = "FILE")]
    pub rules: Vec<PathBuf>,
    /// Skip a record, like a daemon with a `skip` for it; repeatable.
    #[arg(long, value_name = "PARTITION:OFFSET", value_parser = place)]
    pub skip: Vec<(i32, i64)>,
    /// Exit at the current end of the input instead of waiting for more.
    #[arg(long)]
    pub once: bool,
    /// Print JSON objects instead, one per line.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `zones`.
#[derive(Clone, Debug, Args)]
pub struct ZonesArgs {
    /// The configuration.
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Print a JSON object for each zone.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `snapshot`.
#[derive(Clone, Debug, Args)]
pub struct SnapshotArgs {
    /// The operation.
    #[command(subcommand)]
    pub verb: SnapshotVerb,
}

/// Operations on snapshots.
#[derive(Clone, Debug, Subcommand)]
pub enum SnapshotVerb {
    /// Print the header of each snapshot, newest first.
    List(SnapshotChoice),
    /// Read each snapshot in full and restore it.
    Verify(SnapshotChoice),
    /// Remove snapshots. The daemon must not run.
    Drop(SnapshotChoice),
}

/// Selects snapshots.
#[derive(Clone, Debug, Args)]
pub struct SnapshotChoice {
    /// The configuration.
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Only snapshots of this partition.
    #[arg(long, value_name = "P")]
    pub partition: Option<u16>,
}

/// Arguments of `tap`.
#[derive(Clone, Debug, Args)]
pub struct TapArgs {
    /// The cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Topic to read (default: hunt-updates, or hunt-dead-letters with --dead-letters).
    #[arg(long, value_name = "TOPIC")]
    pub topic: Option<String>,
    /// Where to start: `start`; `fence`, the last fence (for dead letters, the start); or an
    /// offset, from which `tap` waits for the next fence.
    #[arg(long, value_name = "PLACE", default_value = "fence", value_parser = parse_tap_from)]
    pub from: TapFrom,
    /// Only this partition of the topic.
    #[arg(long, value_name = "K")]
    pub partition: Option<u16>,
    /// Only this zone: its updates are in the partition with its number, its dead letters in any.
    #[arg(long, value_name = "K", conflicts_with = "partition")]
    pub zone: Option<u16>,
    /// Only updates of this player.
    #[arg(long, value_name = "ID", conflicts_with = "raw")]
    pub player: Option<u64>,
    /// Only updates of this kind, such as moved or refused; more than once if need be. Without it
    /// all kinds but clock.
    #[arg(long, value_name = "KIND", conflicts_with = "raw")]
    pub kind: Vec<String>,
    /// Print dead letters with their reasons instead of updates, from the dead-letter topic.
    #[arg(long, conflicts_with_all = ["raw", "player", "kind"])]
    pub dead_letters: bool,
    /// Re-send the records of the selected dead letters to their input.
    #[arg(long, requires = "dead_letters")]
    pub resend: bool,
    /// Print every frame's header instead of the updates, whether a reader accepts it or not.
    #[arg(long)]
    pub raw: bool,
    /// Exit after this many lines.
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,
    /// Exit at the current end of the topic instead of waiting for more.
    #[arg(long)]
    pub until_end: bool,
}

/// Arguments of `topics`.
#[derive(Clone, Debug, Args)]
pub struct TopicsArgs {
    /// The configuration.
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Partitions of a new input topic, one per zone (default: 4).
    #[arg(long, value_name = "K", value_parser = partitions())]
    pub partitions: Option<u16>,
    /// Replicas of each partition of new topics (default: as many as existing topics have, or 1).
    #[arg(long, value_name = "N", value_parser = replicas())]
    pub replicas: Option<u16>,
    /// Only check; create nothing.
    #[arg(long)]
    pub check: bool,
}

fn partitions() -> RangedU64ValueParser<u16> {
    RangedU64ValueParser::new().range(1..=SHARDS_MAX as u64)
}

fn demo_partitions() -> RangedU64ValueParser<u16> {
    RangedU64ValueParser::new().range(1..=DEMO_PARTITIONS_MAX)
}

fn replicas() -> RangedU64ValueParser<u16> {
    RangedU64ValueParser::new().range(1..=BOOTSTRAP_BROKERS_MAX as u64)
}

fn players() -> RangedU64ValueParser<u32> {
    RangedU64ValueParser::new().range(1..)
}

fn since_epoch() -> RangedI64ValueParser<i64> {
    RangedI64ValueParser::new().range(0..=TIME_MS_MAX)
}

fn at_least_one() -> RangedU64ValueParser<u64> {
    RangedU64ValueParser::new().range(1..)
}

/// Where `tap` starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TapFrom {
    /// At the start of the log.
    Start,
    /// At the last fence, the latest place to join a running log.
    Fence,
    /// At the first fence from this offset on.
    Offset(i64),
}

fn parse_tap_from(text: &str) -> Result<TapFrom, String> {
    match text {
        "start" | "beginning" => Ok(TapFrom::Start),
        "fence" => Ok(TapFrom::Fence),
        _ => match text.parse() {
            Ok(offset) if offset >= 0 => Ok(TapFrom::Offset(offset)),
            _ => Err("write `start`, `fence` or an offset from 0".to_owned()),
        },
    }
}

/// Parses the playing speed, relative to the events' own times.
fn speed(text: &str) -> Result<f64, String> {
    let speed = text.parse().ok().filter(|speed| (0.01..=1000.0).contains(speed));
    speed.ok_or_else(|| "write a number from 0.01 to 1000".to_owned())
}

/// Parses a record's partition and offset.
fn place(text: &str) -> Result<(i32, i64), String> {
    let numbers = text.split_once(':').and_then(|(partition, offset)| {
        let (partition, offset) = (partition.parse::<u16>().ok()?, offset.parse().ok()?);
        (offset >= 0).then_some((i32::from(partition), offset))
    });
    numbers.ok_or_else(|| "write a partition and an offset, as in 3:4711".to_owned())
}
