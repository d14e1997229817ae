//! The sources of the tools' events: a game's bots, or a file of events.
//!
//! Each source returns records as Kafka will store them, so that `load`, which sends them, and
//! `replay`, which applies them, cannot disagree about an event.

use super::failure::ToolError;
use super::traffic::Traffic;
use crate::edition::Edition;
use crate::kit::PLAYERS_MAX;
use crate::kit::bots::BotOptions;
use crate::view::game::ViewedGame;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

/// A record as in the input topic, after it is loaded into an empty topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceRecord<'a> {
    /// The partition, which is the zone.
    pub partition: u16,
    /// The offset in the partition, from 0.
    pub offset: i64,
    /// The record's timestamp, in milliseconds since the Unix epoch.
    pub time_ms: i64,
    /// The event's JSON; `None` is Kafka's null value.
    pub value: Option<&'a [u8]>,
}

/// A source of a limited number of records.
pub struct Source {
    kind: SourceKind,
    left: u64,
    events_expected: Option<u64>,
}

enum SourceKind {
    Bots(Box<Traffic>),
    Lines(Box<EventLines>),
}

impl Source {
    /// The first `events` events of the game's bots.
    pub fn of_bots(
        edition: &Edition,
        rulebook: &dyn ViewedGame,
        options: BotOptions,
        events: u64,
    ) -> Result<Source, ToolError> {
        let players_max = u64::from(options.zones) * PLAYERS_MAX as u64;
        if u64::from(options.players) > players_max {
            return Err(ToolError::Usage(format!(
                "--players {} are too many: {PLAYERS_MAX} can be in a zone, so ask for at most \
                 {players_max}, or use more partitions",
                options.players
            )));
        }
        let traffic = Traffic::new(edition, rulebook, options).ok_or_else(|| {
            let name = edition.name;
            ToolError::Usage(format!("the game {name} has no bots: name a file of events, --file"))
        })?;
        let kind = SourceKind::Bots(Box::new(traffic));
        Ok(Source { kind, left: events, events_expected: Some(events) })
    }

    /// Opens a file of events for partitions below `zones`, limited to `events_max` events.
    pub(crate) fn open_lines(
        file: &Path,
        zones: u16,
        events_max: Option<u64>,
    ) -> Result<Source, SourceError> {
        let kind = SourceKind::Lines(Box::new(EventLines::open(file, zones)?));
        Ok(Source { kind, left: events_max.unwrap_or(u64::MAX), events_expected: events_max })
    }

    /// The number of records, if known.
    pub(crate) fn events_expected(&self) -> Option<u64> {
        self.events_expected
    }

    /// Returns the next record, or `None` after the last.
    pub fn next_record(&mut self) -> Result<Option<SourceRecord<'_>>, SourceError> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        match &mut self.kind {
            SourceKind::Bots(traffic) => Ok(Some(traffic.next_record())),
            SourceKind::Lines(lines) => lines.next_record(),
        }
    }
}

/// Why a source cannot be read further.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The file cannot be opened or read.
    #[error("cannot read {}: {source}; check the path and its permissions", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The file is empty.
    #[error("{} is empty; write events to it first", .0.display())]
    Empty(PathBuf),
    /// A line of a file of events has no partition or timestamp.
    #[error(
        "line {line} of {} is neither a JSON object nor `partition<TAB>time_ms<TAB>value`",
        file.display()
    )]
    Tabs {
        /// The file.
        file: PathBuf,
        /// Line number, from 1.
        line: u64,
    },
    /// A line of a file of events is for a partition that does not exist.
    #[error(
        "line {line} of {} is for partition {partition}, but there are only {zones}; spread the \
         events over fewer partitions",
        file.display()
    )]
    Partition {
        /// The file.
        file: PathBuf,
        /// Line number, from 1.
        line: u64,
        /// The partition that the line names.
        partition: u16,
        /// The number of partitions.
        zones: u16,
    },
}

/// A file with one event per line: either the event's JSON, which goes to partition 0 with `ts_us`
/// as its timestamp, or `partition<TAB>time_ms<TAB>value`, which `kcat -f '%p\t%T\t%s
/// '` writes.
pub(crate) struct EventLines {
    file: PathBuf,
    lines: BufReader<File>,
    line: Vec<u8>,
    line_number: u64,
    offset_next: Vec<i64>,
    time_ms: i64,
}

impl EventLines {
    /// Opens a file of events for partitions below `zones`.
    pub(crate) fn open(file: &Path, zones: u16) -> Result<EventLines, SourceError> {
        let file = file.to_owned();
        let opened = File::open(&file).map(BufReader::new).and_then(|mut lines| {
            let is_empty = lines.fill_buf()?.is_empty();
            Ok((lines, is_empty))
        });
        let lines = match opened {
            Ok((_, true)) => return Err(SourceError::Empty(file)),
            Ok((lines, false)) => lines,
            Err(source) => return Err(SourceError::Read { file, source }),
        };
        let offset_next = vec![0; usize::from(zones)];
        Ok(EventLines { file, lines, line: Vec::new(), line_number: 0, offset_next, time_ms: 0 })
    }

    fn next_record(&mut self) -> Result<Option<SourceRecord<'_>>, SourceError> {
        self.line.clear();
        self.line_number += 1;
        match self.lines.read_until(b'\n', &mut self.line) {
            Ok(0) => return Ok(None),
            Ok(_) => {}
            Err(source) => return Err(SourceError::Read { file: self.file.clone(), source }),
        }
        if self.line.last() == Some(&b'\n') {
            self.line.pop();
        }
        let (partition, time_ms, value) = if self.line.first() == Some(&b'{') {
            (0, time_of(&self.line).unwrap_or(self.time_ms), &self.line[..])
        } else if let Some(parts) = split_tabs(&self.line) {
            parts
        } else if std::str::from_utf8(&self.line).is_err() {
            // Not an event, whatever its origin: a reject, as in a topic.
            (0, self.time_ms, &self.line[..])
        } else {
            let (file, line) = (self.file.clone(), self.line_number);
            return Err(SourceError::Tabs { file, line });
        };
        self.time_ms = time_ms;
        let zones = self.offset_next.len() as u16;
        let Some(offset_next) = self.offset_next.get_mut(usize::from(partition)) else {
            let (file, line) = (self.file.clone(), self.line_number);
            return Err(SourceError::Partition { file, line, partition, zones });
        };
        let offset = *offset_next;
        *offset_next += 1;
        Ok(Some(SourceRecord { partition, offset, time_ms, value: Some(value) }))
    }
}

fn time_of(event: &[u8]) -> Option<i64> {
    #[derive(serde::Deserialize)]
    struct EventTime {
        ts_us: i64,
    }
    let time: EventTime = serde_json::from_slice(event).ok()?;
    Some(time.ts_us / 1000)
}

fn split_tabs(line: &[u8]) -> Option<(u16, i64, &[u8])> {
    let mut parts = line.splitn(3, |byte| *byte == b'\t');
    let partition = std::str::from_utf8(parts.next()?).ok()?.parse().ok()?;
    let time_ms = std::str::from_utf8(parts.next()?).ok()?.parse().ok()?;
    Some((partition, time_ms, parts.next()?))
}

#[cfg(test)]
mod tests {
    use super::{EventLines, SourceError, split_tabs};

    #[test]
    fn a_file_of_events_gives_each_partition_its_own_offsets() {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let file = folder.path().join("events.jsonl");
        let text = "{\"ts_us\":5000}\n3\t7\t{\"a\":1}\n3\t8\tx\ty\n{}\n";
        std::fs::write(&file, text).expect("the file can be written");
        let mut lines = EventLines::open(&file, 4).expect("the file is there");
        let mut seen = Vec::new();
        while let Some(record) = lines.next_record().expect("all lines are fine") {
            let value = record.value.expect("a line is a value").to_vec();
            seen.push((record.partition, record.offset, record.time_ms, value));
        }
        let expected = [
            (0, 0, 5, b"{\"ts_us\":5000}".to_vec()),
            (3, 0, 7, b"{\"a\":1}".to_vec()),
            (3, 1, 8, b"x\ty".to_vec()),
            (0, 1, 8, b"{}".to_vec()),
        ];
        assert_eq!(seen, expected);
    }

    #[test]
    fn a_line_that_is_no_event_is_named() {
        assert!(split_tabs(b"1\tx\t{}").is_none());
        assert!(split_tabs(b"65536\t1\t{}").is_none());
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let file = folder.path().join("events.jsonl");
        std::fs::write(&file, "nonsense\n").expect("the file can be written");
        let mut lines = EventLines::open(&file, 4).expect("the file is there");
        assert!(matches!(lines.next_record(), Err(SourceError::Tabs { line: 1, .. })));
        std::fs::write(&file, "4\t1\t{}\n").expect("the file can be written");
        let mut lines = EventLines::open(&file, 4).expect("the file is there");
        let beyond = lines.next_record();
        assert!(matches!(beyond, Err(SourceError::Partition { line: 1, partition: 4, .. })));
    }
}
