//! The verbs of `huntd`, one per file, and what they share.

pub mod run;

pub mod check;

pub mod reference;

pub mod schema;

mod brokers;

mod letters;

mod newest;

pub mod demo;

pub mod load;

pub mod replay;

pub mod explain;

pub mod rehearse;

mod past;

pub mod serve;

pub mod snapshot;

pub mod tap;

pub mod topics;
pub mod zones;

pub mod source;

pub mod traffic;

pub mod rules;

pub mod resources;

pub(crate) mod accounts;

mod applier;

pub(crate) mod pace;

pub(crate) mod progress_bar;
mod published;

pub(crate) mod kafka;

pub(crate) mod failure;

use crate::edition::Edition;
use crate::telemetry::printable::printable;
use crate::view::game::ViewedGame;
use failure::ToolError;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

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
fn rulebook(edition: &Edition, files: &[PathBuf]) -> Result<Arc<dyn ViewedGame>, ToolError> {
    edition.rulebook(files).map_err(ToolError::Config)
}
