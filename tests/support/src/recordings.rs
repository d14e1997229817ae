//! Where the recorded matches are. They are not part of the project: `HUNTD_MATCH_DATA` names a
//! folder that holds them.

use crate::needs;
use match_events::{MatchEvents, MatchOptions, format_of, write_line, zones_of};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// The start of 2026: no broker takes it for the future.
pub const BASE_MS: i64 = 1_767_225_600_000;

/// A file with a recording's events, as `huntd load --file` reads it. Without a number of zones,
/// there are as many as its map needs.
pub fn events(recording: &Path, zones: Option<u16>) -> NamedTempFile {
    let format = format_of(recording, None).expect("the first record tells the game");
    let (file, zones) = (recording.to_owned(), zones.unwrap_or(zones_of(format)));
    let options = MatchOptions { file, format, zones, repeat: 1, base_ms: BASE_MS };
    let mut events = MatchEvents::open(options).expect("the recording is there");
    let file = NamedTempFile::new().expect("a temporary file can be made");
    let mut out = BufWriter::new(&file);
    while let Some(record) = events.next_record().expect("the recording is fine") {
        write_line(&mut out, &record).expect("there is room for the events");
    }
    out.flush().expect("there is room for the events");
    drop(out);
    file
}

/// Every recording, or nothing where they are absent and may be.
pub fn all() -> Option<Vec<PathBuf>> {
    let folder = folder();
    let entries = std::fs::read_dir(&folder).ok();
    needs::has("recorded matches: set HUNTD_MATCH_DATA to their folder", entries.is_some());
    let mut files: Vec<PathBuf> = entries?
        .map(|entry| entry.expect("the folder can be listed").path())
        .filter(|path| path.extension().is_some_and(|kind| kind == "zst" || kind == "json"))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{} holds recordings", folder.display());
    Some(files)
}

/// One recording, or nothing where it is absent and may be.
pub fn one(name: &str) -> Option<PathBuf> {
    let file = folder().join(name);
    let need = format!("{name}: set HUNTD_MATCH_DATA to the folder of the recorded matches");
    needs::has(&need, file.exists()).then_some(file)
}

fn folder() -> PathBuf {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data");
    std::env::var("HUNTD_MATCH_DATA").unwrap_or_else(|_| beside.to_owned()).into()
}
