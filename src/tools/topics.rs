//! `huntd topics`: creates the topics, or checks their settings.

use super::failure::ToolError;
use super::{WhileRead, brokers};
use crate::control::control_error::ControlError;
use crate::control::dialler;
use crate::control::topic_client::{FoundTopic, TopicClient};
use crate::control::topic_rules::{TopicSetting, WantedTopic};
use crate::daemon::failure::Failure;
use crate::daemon::wiring::{dial_options, topic_names};
use crate::kafka::error_code::ErrorCode;
use crate::kafka::right::Right;
use crate::kafka::topic_error::TopicError;
use crate::kafka::topic_requests::NewTopic;
use crate::service::cli::TopicsArgs;
use crate::service::config::Config;
use std::io::Write;
use std::time::{Duration, Instant};

/// Default number of partitions of new topics.
const PARTITIONS: u16 = 4;

/// Default number of replicas of each partition.
const REPLICAS: u16 = 1;

/// Milliseconds within which a broker must know a topic that the controller has created.
const KNOWN_AFTER_MS_MAX: u64 = 10_000;

/// Milliseconds between two requests for such a topic.
const ASK_AGAIN_MS: u64 = 10;

/// Creates missing topics, checks existing ones, and prints a table. All problems with topics form
/// one sentence, and each unusable broker has one.
pub fn run(args: &TopicsArgs) -> Result<(), ToolError> {
    let mut config = args.config.load()?;
    config.group.client.brokers = brokers::reach(&config.group.client)?;
    let mut client = connect(&config)?;
    let dialled = client.dial_brokers().map_err(of_control)?;
    let mut errors: Vec<ToolError> = dialled.faults.into_iter().map(of_control).collect();
    errors.extend(prepare(args, &config, &mut client, Right::Describe).err());
    ToolError::unless_empty(errors)
}

/// Connects to brokers that are reachable.
pub(super) fn connect(config: &Config) -> Result<TopicClient, ToolError> {
    dialler::check_files(&config.group.client.security).map_err(Failure::File)?;
    TopicClient::connect(&dial_options(config, &config.fetch.input_topic), 0).map_err(of_control)
}

/// Returns the input topic as it is now.
pub(super) fn input(config: &Config) -> Result<FoundTopic, ToolError> {
    let found = connect(config)?.find(&config.fetch.input_topic, Right::Read);
    let missing = || TopicError::Missing(config.fetch.input_topic.clone());
    Ok(found.map_err(of_control)?.ok_or_else(missing)?)
}

/// Creates or checks topics. `output_right` is what the verb needs later on the output topic.
pub(super) fn prepare(
    args: &TopicsArgs,
    config: &Config,
    client: &mut TopicClient,
    output_right: Right,
) -> Result<(), ToolError> {
    let names = topic_names(config);
    let file = args.config.file.display();
    let input = client.find(&names.input, Right::Describe).map_err(of_control)?;
    let output = client.find(&names.output, output_right).map_err(of_control)?;
    // If the input is missing, it may have another name, so the existing topics count as correct.
    let there = input.or(output).map(|found| found.partitions as u16);
    let partitions = match input {
        Some(_) => there,
        None => args.partitions.or(there),
    };
    let partitions = partitions.unwrap_or(PARTITIONS);
    // A new topic must not be less safe than the existing ones.
    let there = output.or(input).map(|found| found.replicas as u16);
    let replicas = args.replicas.or(there).unwrap_or(REPLICAS);
    let is_unsafe = args.replicas.or(there).is_none() && !args.check;
    let existing = [input, output].map(|found| found.map_or(replicas, |it| it.replicas as u16));
    let mut out = WhileRead(std::io::stdout().lock());
    let (mut missing, mut problems) = (Vec::new(), Vec::new());
    let wanted = names.wanted(partitions, existing);
    let found = wanted.iter().map(|wanted| client.find(&wanted.name, Right::Describe));
    let found = found.collect::<Result<Vec<_>, _>>().map_err(of_control)?;
    if !args.check && found.iter().any(Option::is_none) {
        has_room_for(client, &names.input, (replicas, args.replicas.is_some()))?;
    }
    for (wanted, found) in wanted.iter().zip(found) {
        let name = &wanted.name;
        let (topic, is_new) = if let Some(topic) = found {
            (topic, false)
        } else if !args.check {
            (create(client, wanted, args, replicas)?, true)
        } else {
            missing.push(format!("`{name}`"));
            writeln!(out, "{name:<32} missing")?;
            continue;
        };
        check(client, wanted, topic, is_new, &mut problems)?;
        let (partitions, replicas) = (topic.partitions, topic.replicas);
        let state = if is_new { "created" } else { "checked" };
        writeln!(out, "{name:<32} {state}  {partitions} partitions  {replicas} replicas")?;
        if !is_new {
            report_unmet(name, "--partitions", args.partitions, partitions)?;
            report_unmet(name, "--replicas", args.replicas, replicas)?;
        }
    }
    if is_unsafe {
        super::say(
            "the new topics have one replica: acknowledged records are lost with a broker's disk; \
             in production, create them with `--replicas 3`",
        )?;
    }
    if !missing.is_empty() {
        let missing = missing.join(", ");
        problems.push(match input {
            Some(_) => format!("create {missing} with `huntd topics --config {file}`"),
            None if output.is_some() => format!(
                "correct kafka.input_topic, or create {missing} with `huntd topics --config {file}`"
            ),
            // No existing topic shows the numbers.
            None => format!(
                "create {missing} with `huntd topics --config {file} --partitions K --replicas N`: \
                 K = zones (permanent), N = replicas of each"
            ),
        });
    }
    if problems.is_empty() { Ok(()) } else { Err(ToolError::TopicWrong(problems.join("; "))) }
}

/// Converts an error of a request about topics.
pub(super) fn of_control(error: impl Into<ControlError>) -> ToolError {
    Failure::Control(error.into()).into()
}

/// Reports an argument that has no effect, because it is only for new topics.
fn report_unmet(
    name: &str,
    argument: &str,
    wish: Option<u16>,
    there: usize,
) -> std::io::Result<()> {
    match wish {
        Some(wish) if usize::from(wish) != there => super::say(&format!(
            "`{name}` already exists and is not changed: {argument} {wish} is for new topics"
        )),
        _ => Ok(()),
    }
}

/// Checks that the cluster has a broker for each replica of a partition.
fn has_room_for(
    client: &mut TopicClient,
    topic: &str,
    (replicas, is_argument): (u16, bool),
) -> Result<(), ToolError> {
    let brokers = client.broker_count(topic).map_err(of_control)?;
    if usize::from(replicas) <= brokers {
        return Ok(());
    }
    Err(ToolError::Usage(match is_argument {
        true => format!(
            "--replicas {replicas} needs as many brokers, and the cluster has {brokers}: ask \
             for {brokers} at most, or start the others"
        ),
        false => format!(
            "the missing topics would have {replicas} replicas, as the existing ones have, and \
             the cluster has {brokers} brokers: start the others, or ask for fewer with --replicas"
        ),
    }))
}

fn create(
    client: &mut TopicClient,
    wanted: &WantedTopic,
    args: &TopicsArgs,
    replicas: u16,
) -> Result<FoundTopic, ToolError> {
    let partitions = wanted.partitions.or(args.partitions).unwrap_or(PARTITIONS);
    let name = &wanted.name;
    let mut create = |is_meant: fn(&&TopicSetting) -> bool| {
        let meant = wanted.settings.iter().filter(is_meant);
        let settings = meant.map(|setting| (setting.name, setting.value.as_str())).collect();
        client.create(&NewTopic { name, partitions, replicas, settings })
    };
    let newer = wanted.settings.iter().filter(|setting| !setting.is_known_everywhere);
    let newer: Vec<&str> = newer.map(|setting| setting.name).collect();
    match create(|_| true) {
        Err(error) if !newer.is_empty() && is_invalid_setting(&error) => {
            create(|setting| setting.is_known_everywhere).map_err(of_control)?;
            super::say(&format!(
                "`{name}` is created without {}, which this broker does not know: update it, and \
                 set that",
                newer.join(", ")
            ))?;
        }
        created => created.map_err(of_control)?,
    }
    known(client, name)
}

/// Waits for a topic that was just created. Brokers learn of it after the controller, and the
/// user's next command must find it.
fn known(client: &mut TopicClient, name: &str) -> Result<FoundTopic, ToolError> {
    let end = Instant::now() + Duration::from_millis(KNOWN_AFTER_MS_MAX);
    loop {
        if let Some(topic) = client.find(name, Right::Describe).map_err(of_control)? {
            return Ok(topic);
        }
        if Instant::now() >= end {
            return Err(ToolError::TopicWrong(format!(
                "`{name}` was created, but the broker does not know it yet: look at its log"
            )));
        }
        std::thread::sleep(Duration::from_millis(ASK_AGAIN_MS));
    }
}

/// Returns whether the broker does not know a setting, or does not accept its value.
fn is_invalid_setting(error: &ControlError) -> bool {
    let ControlError::Topic(TopicError::NotCreated { code, .. }) = error else { return false };
    ErrorCode(*code) == ErrorCode::INVALID_CONFIG
}

fn check(
    client: &mut TopicClient,
    wanted: &WantedTopic,
    found: FoundTopic,
    is_new: bool,
    problems: &mut Vec<String>,
) -> Result<(), ToolError> {
    let name = &wanted.name;
    if let Some(partitions) = wanted.partitions
        && usize::from(partitions) != found.partitions
    {
        problems.push(format!(
            "`{name}` has {} partitions and must have {partitions}, as the input topic has",
            found.partitions
        ));
    }
    // A topic created a moment ago may not be known on every broker yet.
    if !is_new {
        let settings = client.settings(name).map_err(of_control)?;
        problems.extend(wanted.problems(&settings).into_iter().map(|problem| problem.sentence));
    }
    Ok(())
}
