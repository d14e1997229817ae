//! `run` and `check`: the daemon itself, and whether it would start.

use super::failure::ToolError;
use super::{rulebook, topics};
use crate::daemon;
use crate::daemon::failure::Failure;
use crate::ownership::acquisition::Remedy;
use crate::service::cli::{CheckArgs, RunArgs, TopicsArgs};
use crate::service::{check, config, log};
use std::io::Write;

/// Runs the daemon until a signal ends it.
pub fn run(args: &RunArgs) -> Result<(), ToolError> {
    let mut config = config::load(&args.config)?;
    if args.genesis {
        config.remedy = Remedy::BeginAnew;
    }
    config.skips.clone_from(&args.skip);
    log::start(&config.service);
    let rulebook = rulebook(&config.rules_files)?;
    Ok(daemon::run(config, rulebook)?)
}

/// Says what `run` would do, or why it would not start.
pub fn check(args: &CheckArgs) -> Result<(), ToolError> {
    let config = config::load(&args.config)?;
    rulebook(&config.rules_files)?;
    let summary = check::offline(&config).map_err(Failure::Cpu)?;
    std::io::stdout().write_all(summary.as_bytes())?;
    if args.offline {
        return Ok(());
    }
    let config = args.config.clone();
    topics::run(&TopicsArgs { config, partitions: None, replicas: None, check: true })
}
