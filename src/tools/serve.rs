//! `huntd serve`: the read side, with the daemons' configuration.

use super::brokers::{self, Reached};
use super::failure::ToolError;
use super::past::{PastZone, PlayedInput, skips_of};
use super::rulebook;
use crate::control::topic_id_watch;
use crate::daemon::failure::Failure;
use crate::daemon::wiring::dial_options;
use crate::edition::Edition;
use crate::kafka::client::ClientOptions;
use crate::kit::engine::{AnyRulebook, encode_state};
use crate::serve::answers::AsOf;
use crate::serve::feed::{FeedOptions, ZoneMoment};
use crate::serve::topic_reports::TopicReports;
use crate::serve::{self, ServeError};
use crate::service::cli::ServeArgs;
use crate::service::config::Config;
use crate::service::exit::ExitCode;
use crate::service::reload::{InForce, Reloading};
use crate::service::{log, shutdown};
use crate::view::game::ViewedGame;
use crate::view::zone::ZonePosition;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Serves until a signal ends it.
pub fn run(args: &ServeArgs, edition: &Edition) -> Result<(), ToolError> {
    let mut config = args.config.load()?;
    config.edition = Some(*edition);
    log::start(&config.service)
        .and_then(|()| shutdown::survive_long_files())
        .map_err(Failure::out_of_resources)?;
    let rulebook = rulebook(edition, &config.rules_files)?;
    ask_brokers(&config)?;
    let in_force = InForce::new(Reloading::Serve, &config, rulebook.rulesets());
    let in_force = in_force.expect("huntd serve has read its configuration from a file");
    let (mut options, topics) = feed(&config);
    let moment = args.at.map(|place| moment(&config, place, &args.skip, &rulebook));
    options.moment = moment.transpose()?;
    serve::run((&config, in_force), (options, topics), rulebook).map_err(failure)
}

/// Returns a zone as it was after this record.
fn moment(
    config: &Config,
    (zone, offset): (i32, i64),
    skip: &[(i32, i64)],
    rulebook: &Arc<dyn ViewedGame>,
) -> Result<ZoneMoment, ToolError> {
    let zone = zone as u16;
    let rulebook: AnyRulebook = rulebook.clone();
    let mut played = PlayedInput::open(config, "serve")?;
    let next_offset = played.after((zone, offset))?;
    let mut time_ms = 0;
    played.reader.each(zone, offset..next_offset, |record| {
        time_ms = record.time_ms;
        Ok(ControlFlow::Continue(()))
    })?;
    let skips = skips_of(zone, skip);
    let mut past = PastZone::before((zone, next_offset), &mut played, &rulebook, skips)?;
    let mut state = Vec::new();
    encode_state(&mut *past.engine, &mut state);
    let position = ZonePosition { update: past.updates_made(), next_offset };
    Ok(ZoneMoment { as_of: AsOf { zone, offset, time_ms }, state, position })
}

/// Asks the brokers before librdkafka does: see decision 031.
fn ask_brokers(config: &Config) -> Result<(), ToolError> {
    let client = &config.group.client;
    let Reached { answering, warning } = brokers::reached(client)?;
    if let Some(sentence) = warning {
        tracing::warn!("{sentence}");
    }
    let answering = ClientOptions { brokers: answering, ..client.clone() };
    brokers::ask_first(&answering, &config.publisher.output_topic)
}

/// Returns the feed's options, and a watch of its topics.
pub(super) fn feed(config: &Config) -> (FeedOptions, TopicReports) {
    let dial = dial_options(config, &config.publisher.output_topic);
    let options = feed_options(config);
    let (input, output) = (options.input_topic.clone(), options.output_topic.clone());
    (options, topic_id_watch::start(dial, input, output))
}

/// Returns the feed's options from a configuration.
pub(crate) fn feed_options(config: &Config) -> FeedOptions {
    FeedOptions {
        client: config.group.client.clone(),
        input_topic: config.group.input_topic.clone(),
        output_topic: config.publisher.output_topic.clone(),
        snapshots: config.snapshot.clone(),
        tick_every_ms: config.publisher.tick_every_ms,
        moment: None,
    }
}

/// Translates an error of the server, with its exit code.
pub(super) fn failure(error: ServeError) -> ToolError {
    match error {
        ServeError::Topic(error) => ToolError::Topic(error),
        error @ ServeError::Resources(_) => {
            ToolError::Daemon { sentence: error.to_string(), code: ExitCode::OutOfResources }
        }
        ServeError::Listen { ref source, .. } => {
            let code = ExitCode::of_listening(source);
            ToolError::Daemon { sentence: error.to_string(), code }
        }
        ServeError::Ring(error) => ToolError::from(Failure::Ring(error)),
        other => ToolError::Config(other.to_string()),
    }
}
