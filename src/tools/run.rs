//! `huntd run`: the daemon itself.

use super::failure::ToolError;
use super::rulebook;
use crate::daemon;
use crate::daemon::failure::Failure;
use crate::kit::engine::AnyRulebook;
use crate::ownership::acquisition::Remedy;
use crate::service::cli::RunArgs;
use crate::service::config::Config;
use crate::service::log;

/// Runs the daemon with the treasure hunt until a signal ends it.
pub fn run(args: &RunArgs) -> Result<(), ToolError> {
    play(args, |config| Ok(rulebook(&config.rules_files)?.into()))
}

/// Runs the daemon with this game until a signal ends it.
pub fn play(
    args: &RunArgs,
    game: impl FnOnce(&Config) -> Result<AnyRulebook, ToolError>,
) -> Result<(), ToolError> {
    let mut config = args.config.load()?;
    if args.genesis {
        config.remedy = Remedy::StartOver;
    }
    config.publisher.skips.clone_from(&args.skip);
    log::start(&config.service).map_err(Failure::out_of_resources)?;
    let game = game(&config)?;
    Ok(daemon::run(config, game)?)
}
