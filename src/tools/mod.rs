//! The verbs of `huntd`, one per file, and what they share.

pub mod run;

pub mod check;

pub mod reference;

pub mod schema;

mod brokers;

mod letters;

mod newest;

mod zone_rules;

pub mod demo;

pub mod load;

pub mod replay;

pub mod explain;

mod past;

pub mod serve;

pub mod snapshot;

pub mod tap;

pub mod topics;

pub mod source;

pub mod synthetic;

pub mod rules;

pub mod resources;

pub(crate) mod accounts;

pub(crate) mod pace;

pub(crate) mod progress_bar;

pub(crate) mod kafka;

pub(crate) mod failure;

use crate::hunt::rules::rulebook::Rulebook;
use crate::service::rules as rules_files;
use crate::telemetry::printable::printable;
use failure::ToolError;
use std::io::Write;
use std::path::PathBuf;

/// The first player id of the tools: ids are as large as Steam's, which exposes readers that lose
/// digits of 64-bit numbers.
pub const PLAYER_ID_FIRST: u64 = 76_561_198_000_000_000;

/// Number of weapons of the tools' players: those of the built-in rules.
const WEAPONS: u8 = 3;

/// Prints a warning to standard error.
fn warn(sentence: &str) -> Result<(), ToolError> {
    Ok(say(&format!("huntd: {sentence}"))?)
}

/// Writes a line to standard error. Brokers and producers may have contributed to it, so it is made
/// safe for a terminal.
pub fn say(line: &str) -> std::io::Result<()> {
    writeln!(std::io::stderr(), "{}", printable(line))
}

/// Reads the rules in these files, or the built-in ones if there are none.
fn rulebook(files: &[PathBuf]) -> Result<Rulebook, ToolError> {
    rules_files::rulebook(files).map_err(ToolError::Config)
}
