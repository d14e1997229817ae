//! Converts recorded matches of four games to events.
//!
//! A match is a file of JSON lines, one record per line, or a JSON array of records, plain or
//! compressed with zstd. It is streamed, because it may be longer than memory, and may be played
//! many times over.

mod csgo;
mod grid;
mod prbf2;
mod pubg;
mod records;
mod rocket_league;
mod scene;

use clap::ValueEnum;
use grid::Grid;
use huntd::hunt::event::Action;
use huntd::tools::source::SourceRecord;
use records::MatchRecords;
use scene::{REPETITION_MS, Scene};
use serde::Deserialize;
use std::io::{Error, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Number of weapons of the built-in rules.
const WEAPONS: u32 = 3;

/// Format of a recorded match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MatchFormat {
    /// Project Reality: BF2, as recorded by its tracker.
    Prbf2,
    /// Counter-Strike: Global Offensive, as logged by a server.
    Csgo,
    /// Rocket League, from a replay.
    RocketLeague,
    /// PUBG: Battlegrounds, from its telemetry.
    Pubg,
}

/// Why a recording cannot be read further.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The file cannot be opened or read.
    #[error("cannot read {}: {source}; check the path and its permissions", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// The system's reason.
        source: Error,
    },
    /// The file's content ends early or is not what its name says.
    #[error("{} is cut short or damaged: {source}; copy it again", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// The decompressor's reason.
        source: Error,
    },
    /// The file is empty.
    #[error("{} is empty; write a recording to it first", .0.display())]
    Empty(PathBuf),
    /// The first record belongs to another game than the named one.
    #[error("{} is a recording of `{found}`; leave --format out", file.display())]
    OtherFormat {
        /// The file.
        file: PathBuf,
        /// The game, as `--format` names it.
        found: String,
    },
    /// A record does not belong to the recording's game.
    #[error(
        "record {record} of {} does not belong to the game: {source}; check --format",
        file.display()
    )]
    Record {
        /// The file.
        file: PathBuf,
        /// Record number from 1, which is also the line number in a file of JSON lines.
        record: u64,
        /// The parser's reason.
        source: serde_json::Error,
    },
    /// The game is not given and cannot be detected from the first record.
    #[error("cannot detect the game of the recording {}; name it with --format", .0.display())]
    UnknownFormat(PathBuf),
}

impl RecordingError {
    /// Returns the error for a file that cannot be opened or read.
    fn read(file: &Path, source: Error) -> RecordingError {
        let file = file.to_owned();
        match source.kind() {
            // System errors have kinds of their own: these are about the content.
            ErrorKind::UnexpectedEof | ErrorKind::InvalidData | ErrorKind::Other => {
                RecordingError::Damaged { file, source }
            }
            _ => RecordingError::Read { file, source },
        }
    }
}

/// Writes an event as `huntd load --file` reads it.
pub fn write_line(out: &mut impl Write, record: &SourceRecord<'_>) -> std::io::Result<()> {
    write!(out, "{}\t{}\t", record.partition, record.time_ms)?;
    out.write_all(record.value.unwrap_or_default())?;
    out.write_all(b"\n")
}

/// Returns the named game, or the one detected from the recording's first record. Fails if they
/// differ, because the adapter would find nothing.
pub fn format_of(file: &Path, named: Option<MatchFormat>) -> Result<MatchFormat, RecordingError> {
    let mut first = Vec::new();
    let read = MatchRecords::open_start(file, FIRST_RECORD_BYTES_MAX)?.next(&mut first);
    read.map_err(|source| RecordingError::read(file, source))?;
    if first.is_empty() {
        return Err(RecordingError::Empty(file.to_owned()));
    }
    match (named, format_of_record(&first)) {
        (Some(named), Some(found)) if named != found => {
            let found = found.to_possible_value().expect("no format is hidden");
            let found = found.get_name().to_owned();
            Err(RecordingError::OtherFormat { file: file.to_owned(), found })
        }
        (Some(format), _) | (None, Some(format)) => Ok(format),
        (None, None) => Err(RecordingError::UnknownFormat(file.to_owned())),
    }
}

/// The smallest number of zones that hold a map of the game, under the built-in rules.
pub fn zones_of(format: MatchFormat) -> u16 {
    match format {
        MatchFormat::Pubg => 16,
        MatchFormat::Prbf2 => 4,
        MatchFormat::Csgo | MatchFormat::RocketLeague => 1,
    }
}

fn format_of_record(record: &[u8]) -> Option<MatchFormat> {
    #[derive(Deserialize)]
    struct First {
        #[serde(rename = "_T")]
        kind: Option<String>,
        sec_per_tick: Option<f64>,
        fps: Option<f64>,
        time: Option<String>,
    }
    let first: First = serde_json::from_slice(record).ok()?;
    match first {
        First { kind: Some(_), .. } => Some(MatchFormat::Pubg),
        First { sec_per_tick: Some(_), .. } => Some(MatchFormat::Prbf2),
        First { fps: Some(_), .. } => Some(MatchFormat::RocketLeague),
        First { time: Some(_), .. } => Some(MatchFormat::Csgo),
        _ => None,
    }
}

/// Bytes of a recording's start in which its first record must be.
const FIRST_RECORD_BYTES_MAX: u64 = 1024 * 1024;

/// The options of a match: equal options yield equal events, byte for byte.
#[derive(Clone, Debug)]
pub struct MatchOptions {
    /// The recording: JSON lines or a JSON array, compressed if its name ends with `.zst`.
    pub file: PathBuf,
    /// The game.
    pub format: MatchFormat,
    /// Number of zones that the map is divided into, one partition each.
    pub zones: u16,
    /// Number of times that the match is played, with other players each time.
    pub repeat: u32,
    /// Timestamp of the recording's start, in milliseconds since the Unix epoch.
    pub base_ms: i64,
}

/// Returns a start time early enough that the last repetition ends by `now_ms`: brokers refuse
/// records from the future.
pub fn base_ms_before(now_ms: i64, repeat: u32) -> i64 {
    (now_ms - i64::from(repeat) * REPETITION_MS) / 1000 * 1000
}

/// The events of a match, one at a time.
pub struct MatchEvents {
    options: MatchOptions,
    adapter: Adapter,
    scene: Scene,
    records: MatchRecords,
    record: Vec<u8>,
    record_number: u64,
    repetitions_left: u32,
}

enum Adapter {
    Prbf2(prbf2::Prbf2Adapter),
    Csgo(csgo::CsgoAdapter),
    RocketLeague(rocket_league::RocketLeagueAdapter),
    Pubg(pubg::PubgAdapter),
}

impl MatchEvents {
    /// Opens a recording.
    pub fn open(options: MatchOptions) -> Result<MatchEvents, RecordingError> {
        let half_cm = match options.format {
            MatchFormat::Prbf2 => prbf2::PRBF2_MAP_HALF_CM,
            MatchFormat::Csgo => csgo::CSGO_MAP_HALF_CM,
            MatchFormat::RocketLeague => rocket_league::ROCKET_LEAGUE_MAP_HALF_CM,
            MatchFormat::Pubg => pubg::PUBG_MAP_HALF_CM,
        };
        let grid = Grid::new(half_cm, options.zones);
        Ok(MatchEvents {
            adapter: Adapter::new(options.format),
            scene: Scene::new(grid, options.base_ms),
            records: MatchRecords::open(&options.file)?,
            record: Vec::new(),
            record_number: 0,
            repetitions_left: options.repeat,
            options,
        })
    }

    /// Returns the next event, or `None` after the last.
    pub fn next_record(&mut self) -> Result<Option<SourceRecord<'_>>, RecordingError> {
        while !self.scene.has_waiting() && self.repetitions_left > 0 {
            self.scene.forget_taken();
            self.read_record()?;
        }
        Ok(self.scene.take())
    }

    fn read_record(&mut self) -> Result<(), RecordingError> {
        self.record.clear();
        self.record_number += 1;
        let read = self.records.next(&mut self.record);
        read.map_err(|source| RecordingError::read(&self.options.file, source))?;
        if self.record.is_empty() {
            return self.end_repetition();
        }
        let text = std::str::from_utf8(&self.record).map_err(|source| {
            RecordingError::read(&self.options.file, Error::new(ErrorKind::InvalidData, source))
        })?;
        self.adapter.read(text, &mut self.scene).map_err(|source| RecordingError::Record {
            file: self.options.file.clone(),
            record: self.record_number,
            source,
        })
    }

    fn end_repetition(&mut self) -> Result<(), RecordingError> {
        self.scene.end_match();
        self.repetitions_left -= 1;
        if self.repetitions_left > 0 {
            self.adapter = Adapter::new(self.options.format);
            self.records = MatchRecords::open(&self.options.file)?;
            self.record_number = 0;
        }
        Ok(())
    }
}

impl Adapter {
    fn new(format: MatchFormat) -> Adapter {
        match format {
            MatchFormat::Prbf2 => Adapter::Prbf2(prbf2::Prbf2Adapter::default()),
            MatchFormat::Csgo => Adapter::Csgo(csgo::CsgoAdapter::default()),
            MatchFormat::RocketLeague => {
                Adapter::RocketLeague(rocket_league::RocketLeagueAdapter::default())
            }
            MatchFormat::Pubg => Adapter::Pubg(pubg::PubgAdapter::default()),
        }
    }

    fn read(&mut self, record: &str, scene: &mut Scene) -> Result<(), serde_json::Error> {
        match self {
            Adapter::Prbf2(adapter) => adapter.read(record, scene),
            Adapter::Csgo(adapter) => adapter.read(record, scene),
            Adapter::RocketLeague(adapter) => adapter.read(record, scene),
            Adapter::Pubg(adapter) => adapter.read(record, scene),
        }
    }
}

/// The number of a pseudonym such as `p036` or `bot13`: people and bots have separate numbers.
fn player_number(name: &str) -> Option<u64> {
    const BOTS_FIRST: u64 = 100_000;
    let (first, digits) = match name.strip_prefix("bot") {
        Some(digits) => (BOTS_FIRST, digits),
        None => (0, name.strip_prefix('p')?),
    };
    let number: u64 = digits.parse().ok()?;
    (number < BOTS_FIRST).then_some(first + number)
}

/// Maps a weapon's name in the recording to a number. Games have hundreds of weapons and the rules
/// a few, so names are distributed by a hash (FNV-1a).
fn weapon_number(name: &str) -> u8 {
    let hash = name
        .bytes()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    (hash % WEAPONS) as u8
}

/// Converts degrees of any size and sign to a heading in centidegrees.
fn heading(degrees: f64) -> u16 {
    ((degrees * 100.0).round() as i64).rem_euclid(36_000) as u16
}

/// The heading from one position to another: 0 along x, growing towards y.
fn heading_between(from: (f64, f64), to: (f64, f64)) -> Option<u16> {
    let (dx, dy) = (to.0 - from.0, to.1 - from.1);
    (dx != 0.0 || dy != 0.0).then(|| heading(dy.atan2(dx).to_degrees()))
}

/// A shot with a weapon that the recording names.
fn shot(weapon: &str, heading: Option<u16>) -> Action {
    Action::Shoot { weapon: weapon_number(weapon), heading }
}

#[cfg(test)]
mod tests;
