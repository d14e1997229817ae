//! Where the recorded matches are. They are not part of the project: `HUNTD_MATCH_DATA` names a
//! folder that holds them.

use crate::needs;
use std::path::PathBuf;

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
    std::env::var("HUNTD_MATCH_DATA").unwrap_or_else(|_| "../shared/data".to_owned()).into()
}
