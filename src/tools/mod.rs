//! The other verbs: demo, load, replay, snapshot, tap, topics.

pub mod run;

pub mod demo;

pub mod load;

pub mod replay;

pub mod snapshot;

pub mod tap;

pub mod topics;

pub mod source;

pub mod synthetic;

pub mod matches;

pub mod accounts;

pub mod pace;

pub mod progress_bar;

pub mod kafka;

pub mod failure;

use crate::engine::rules::Rules;
use crate::service::rules::{self, RulesFileError};
use failure::ToolError;
use std::path::Path;
use std::sync::Arc;

/// The first player id that the tools give out: ids are as large as Steam's, so that a reader which
/// loses digits of 64-bit numbers is found out.
pub const PLAYER_ID_FIRST: u64 = 76_561_198_000_000_000;

/// Weapons that the tools' players carry, numbered from 0: those of the built-in rules.
const WEAPONS: u8 = 3;

/// The rules in a file, or the built-in ones.
fn rules(file: Option<&Path>) -> Result<Arc<Rules>, ToolError> {
    let Some(file) = file else {
        return Ok(Arc::new(rules::built_in()));
    };
    let rules = rules::load(file).map_err(|error| {
        ToolError::Config(match error {
            RulesFileError::Read { .. } | RulesFileError::Map { .. } => error.to_string(),
            _ => format!("{}: {error}", file.display()),
        })
    })?;
    Ok(Arc::new(rules))
}
