//! `huntd run`: the daemon itself.

use super::failure::ToolError;
use super::rulebook;
use crate::daemon;
use crate::daemon::failure::Failure;
use crate::edition::Edition;
use crate::ownership::acquisition::Remedy;
use crate::service::cli::RunArgs;
use crate::service::log;

/// Runs the daemon with this edition of a game until a signal ends it.
pub fn run(args: &RunArgs, edition: &Edition) -> Result<(), ToolError> {
    let mut config = args.config.load()?;
    if args.genesis {
        config.remedy = Remedy::StartOver;
    }
    config.edition = Some(*edition);
    config.publisher.skips.clone_from(&args.skip);
    log::start(&config.service).map_err(Failure::out_of_resources)?;
    let rulebook = rulebook(edition, &config.rules_files)?;
    Ok(daemon::run(config, rulebook)?)
}
