//! Where the recorded matches are. They are not part of the project: `HUNTD_MATCH_DATA` names a
//! folder that holds them.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]
#![allow(clippy::print_stderr, reason = "a test says that it was skipped")]

use std::path::PathBuf;

/// Every recording, or nothing where they are absent and may be.
pub fn all(test: &str) -> Option<Vec<PathBuf>> {
    let folder = folder();
    let Ok(entries) = std::fs::read_dir(&folder) else {
        skip(test, "recorded matches");
        return None;
    };
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.expect("the folder can be listed").path())
        .filter(|path| path.to_string_lossy().ends_with(".jsonl.zst"))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{} holds recordings", folder.display());
    Some(files)
}

/// One recording, or nothing where it is absent and may be.
pub fn one(test: &str, name: &str) -> Option<PathBuf> {
    let file = folder().join(name);
    if !file.exists() {
        skip(test, name);
        return None;
    }
    Some(file)
}

fn folder() -> PathBuf {
    std::env::var("HUNTD_MATCH_DATA").unwrap_or_else(|_| "../shared/data".to_owned()).into()
}

fn skip(test: &str, what: &str) {
    let is_ci = std::env::var("CI").as_deref() == Ok("true");
    assert!(!is_ci, "{test} wants {what}: set HUNTD_MATCH_DATA to their folder");
    let folder = folder();
    eprintln!("skipped: {test}: no {what} in {}: set HUNTD_MATCH_DATA", folder.display());
}
