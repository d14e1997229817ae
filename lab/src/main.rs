//! `match-events`: prints the events of a recorded match, one per line, as `huntd load --file` and
//! `huntd replay --file` read them.

use clap::Parser;
use clap::builder::{RangedI64ValueParser, RangedU64ValueParser};
use match_events::{MatchEvents, MatchFormat, MatchOptions, base_ms_before, zones_of};
use std::io::{BufWriter, ErrorKind, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

/// The start of 2026, for events without a given time.
const BASE_MS: i64 = 1_767_225_600_000;

/// The end of the year 9999.
const TIME_MS_MAX: i64 = 253_402_300_799_999;

/// Zones of an input topic.
const ZONES_MAX: u64 = 1_024;

/// Limit of how often one recorded match may be played in a row.
const REPEATS_MAX: i64 = 1_000;

/// Prints the events of a recorded match, one `partition<TAB>time_ms<TAB>event` per line.
#[derive(Debug, Parser)]
#[command(name = "match-events", max_term_width = 100)]
struct Arguments {
    /// The recording: JSON lines or a JSON array, compressed if its name ends with `.zst`.
    file: PathBuf,
    /// Format of the recording (default: detected from the first record).
    #[arg(long, value_name = "FORMAT")]
    format: Option<MatchFormat>,
    /// Partitions to spread the match over (default: 4 for prbf2 and 16 for pubg, whose maps are
    /// larger than a zone, otherwise 1).
    #[arg(
        long,
        value_name = "K",
        value_parser = RangedU64ValueParser::<u16>::new().range(1..=ZONES_MAX),
    )]
    partitions: Option<u16>,
    /// Times to play the match, with other players and at a later time each time.
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = RangedI64ValueParser::<u32>::new().range(1..=REPEATS_MAX))]
    repeat: u32,
    /// Timestamp of the first event, in milliseconds since the Unix epoch.
    #[arg(long, value_name = "MS", default_value_t = BASE_MS)]
    #[arg(value_parser = RangedI64ValueParser::<i64>::new().range(0..=TIME_MS_MAX))]
    base_ms: i64,
    /// Choose the timestamps so that the match has just ended: brokers refuse records from the
    /// future, and delete old ones.
    #[arg(long, conflicts_with = "base_ms")]
    recent: bool,
}

fn main() -> ExitCode {
    match print(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            // There is nobody to tell that standard error is closed.
            drop(writeln!(std::io::stderr(), "match-events: {sentence}"));
            ExitCode::from(2)
        }
    }
}

fn print(arguments: Arguments) -> Result<(), String> {
    let Arguments { file, format, partitions, repeat, base_ms, recent } = arguments;
    let format = match_events::format_of(&file, format).map_err(|error| error.to_string())?;
    let base_ms = if recent { base_ms_before(now_ms(), repeat) } else { base_ms };
    let zones = partitions.unwrap_or(zones_of(format));
    let options = MatchOptions { file, format, zones, repeat, base_ms };
    let mut events = MatchEvents::open(options).map_err(|error| error.to_string())?;
    let mut out = BufWriter::new(std::io::stdout().lock());
    while let Some(record) = events.next_record().map_err(|error| error.to_string())? {
        match match_events::write_line(&mut out, &record) {
            Ok(()) => {}
            // The reader has enough.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(()),
            Err(error) => return Err(format!("the output cannot be written: {error}")),
        }
    }
    match out.flush() {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(format!("the output cannot be written: {error}"))
        }
        _ => Ok(()),
    }
}

fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.expect("the clock is past 1970").as_millis() as i64
}
