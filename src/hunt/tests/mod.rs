//! The engine tested by scripts, one file per rule, and by random games.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "tests are not pure")]

mod changing_rules;
mod checkpoints;
mod clock;
mod documents;
mod handoffs;
mod hostile;
mod hunting;
mod items;
mod moving;
mod presence;
mod properties;
mod random_games;
mod script;
mod shooting;
mod update_json;
mod versions;

/// The concatenated texts of all files in a folder.
fn texts(folder: &str) -> String {
    let files = std::fs::read_dir(folder).expect("the folder is there");
    let files = files.map(|file| file.expect("a file").path()).filter(|path| path.is_file());
    files.map(|file| std::fs::read_to_string(file).expect("a file of text")).collect()
}
