//! `huntd check`: everything that would keep `huntd run` from starting, or its shards from running.

use super::brokers::{self, Reached};
use super::failure::ToolError;
use super::kafka::Cluster;
use super::published::{LastFrame, published};
use super::{WhileRead, rulebook, topics};
use crate::control::advertised::DialledBrokers;
use crate::control::control_error::ControlError;
use crate::control::dialler;
use crate::control::topic_client::TopicClient;
use crate::daemon::failure::Failure;
use crate::daemon::wiring::topic_names;
use crate::edition::Edition;
use crate::kafka::right::Right;
use crate::kafka::security::{self, Mechanism, Security};
use crate::runtime::operations::Operations;
use crate::runtime::ring::{RING_ENTRIES, Ring};
use crate::serve;
use crate::service::check;
use crate::service::cli::{CheckArgs, TopicsArgs};
use crate::service::config::Config;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Milliseconds in which a cluster creates its coordinators' topic, of 50 partitions.
const COORDINATOR_MS_MAX: u64 = 5_000;

/// Milliseconds between two requests for the coordinator.
const ASK_COORDINATOR_EVERY_MS: u64 = 100;

/// Prints how `run` would start, and every problem.
pub fn run(args: &CheckArgs, edition: &Edition) -> Result<(), ToolError> {
    let config = args.config.load()?;
    let mut errors = Vec::new();
    let rulesets = match rulebook(edition, &config.rules_files) {
        Ok(rulebook) => rulebook.rulesets().into_iter().collect(),
        Err(error) => {
            errors.push(error);
            BTreeSet::new()
        }
    };
    let files = dialler::check_files(&config.group.client.security);
    // Without these files no broker can be asked.
    let is_online = !args.offline && files.is_ok();
    errors.extend(files.err().map(|error| Failure::File(error).into()));
    if let Err(sentence) = serve::check_keys(&config.serve) {
        errors.push(ToolError::Config(sentence));
    }
    match check::offline(&config, &rulesets) {
        Ok(summary) if errors.is_empty() => {
            WhileRead(io::stdout()).write_all(summary.as_bytes())?;
        }
        Ok(_) => {}
        Err(error) => errors.push(Failure::Cpu(error).into()),
    }
    errors.extend(config.group.listed().err().map(topics::of_control));
    if let Err(error) = Ring::new(config.runtime.ring, Operations::new(), RING_ENTRIES) {
        errors.push(Failure::Ring(error).into());
    }
    let security = &config.group.client.security;
    let mut warnings = Vec::from_iter(readable_secret(security));
    warnings.extend(security::readable_by_all(security).into_iter().map(|file| {
        let file = file.display();
        format!("every user of this host can read {file}: take that right away, `chmod o= {file}`")
    }));
    for (key, listen, is_shared) in [
        ("service.listen", config.service.listen, false),
        ("serve.listen", config.serve.listen, config.serve.share_address),
    ] {
        let refusal = serve::check_address(listen, is_shared).err();
        warnings.extend(refusal.map(|error| unusable_address(key, listen, &error)));
    }
    if is_online {
        let (found, uncertain) = online(args, edition, &config, &rulesets);
        errors.extend(found);
        warnings.extend(uncertain);
    }
    match args.deny_warnings {
        true => errors.extend(warnings.into_iter().map(ToolError::Config)),
        false => warnings.iter().try_for_each(|sentence| super::warn(sentence))?,
    }
    ToolError::unless_empty(errors)
}

/// Returns a sentence if anybody on the network can read the secret that authenticates huntd.
fn readable_secret(security: &Security) -> Option<String> {
    let sasl = security.sasl.as_ref().filter(|_| security.tls.is_none())?;
    let secret = match sasl.mechanism {
        Mechanism::Plain => "password",
        Mechanism::OauthBearer => "token",
        Mechanism::ScramSha256 | Mechanism::ScramSha512 => return None,
    };
    Some(format!(
        "kafka.sasl.mechanism = \"{}\" without TLS sends the {secret} in clear text: set \
         kafka.tls.enabled = true",
        sasl.mechanism.name()
    ))
}

/// Only a warning: a daemon about to be restarted may be listening there.
fn unusable_address(key: &str, listen: SocketAddr, error: &io::Error) -> String {
    let remedy = serve::remedy(
        error,
        "unless this is a huntd that this one replaces, choose another address, or stop the \
         program that listens there (`ss -ltnp`)",
    );
    format!("{key}: nothing more can listen on {listen} ({error}): {remedy}")
}

/// Returns errors and warnings about brokers, topics and rules. Without brokers nothing else can be
/// checked.
fn online(
    args: &CheckArgs,
    edition: &Edition,
    config: &Config,
    rulesets: &BTreeSet<u32>,
) -> (Vec<ToolError>, Vec<String>) {
    let Reached { answering, warning } = match brokers::reached(&config.group.client) {
        Ok(reached) => reached,
        Err(error) => return (vec![error], Vec::new()),
    };
    let mut warnings = Vec::from_iter(warning);
    // Avoids waiting again for brokers that do not answer.
    let mut config = config.clone();
    config.group.client.brokers = answering;
    let config = &config;
    let only_check =
        TopicsArgs { config: args.config.clone(), partitions: None, replicas: None, check: true };
    let connected = topics::connect(config)
        .and_then(|client| Ok((client.dial_brokers().map_err(topics::of_control)?, client)));
    let (DialledBrokers { faults, usable }, mut client) = match connected {
        Ok(connected) => connected,
        Err(error) => return (vec![error], warnings),
    };
    let mut errors = Vec::new();
    for fault in faults {
        match usable == 0 || fault.error.is_final() {
            true => errors.push(topics::of_control(fault)),
            // A start does not wait for it.
            false => warnings.push(fault.to_string()),
        }
    }
    errors.extend(topics::prepare(&only_check, config, &mut client, Right::Read).err());
    if errors.is_empty() {
        match unreplicated(config, &mut client) {
            Ok(warning) => warnings.extend(warning),
            Err(error) => errors.push(topics::of_control(error)),
        }
    }
    let coordinator = missing_coordinator(&mut client, &config.group.client.group);
    match &config.group.assignment {
        None => errors.extend(coordinator),
        Some(_) => {
            warnings.extend(coordinator.map(|error| format!("offsets are not committed: {error}")));
            errors.extend(wrong_assignment(config, &mut client).err());
        }
    }
    // A user that is refused repeatedly may be locked out.
    if errors.iter().any(ToolError::is_refusal) {
        return (errors, warnings);
    }
    match Cluster::of_config(config, "check").and_then(|cluster| published(&cluster, edition)) {
        Ok(published) => {
            if !rulesets.is_empty() {
                errors.extend(unknown_rules(config, edition, rulesets, &published.zones));
            }
            warnings.extend(published.warnings());
        }
        // A missing topic was named above.
        Err(_) if !errors.is_empty() => {}
        Err(error) => errors.push(error),
    }
    (errors, warnings)
}

/// Returns a sentence that names the topics whose partitions have a single replica.
fn unreplicated(config: &Config, client: &mut TopicClient) -> Result<Option<String>, ControlError> {
    let mut single = Vec::new();
    for (topic, _) in topic_names(config).all() {
        let found = client.find(topic, Right::Describe)?;
        if found.is_some_and(|found| found.replicas == 1) {
            single.push(format!("`{topic}`"));
        }
    }
    Ok((!single.is_empty()).then(|| {
        format!(
            "these topics have one replica: {}: acknowledged records are lost with a broker's \
             disk; give them three replicas (`kafka-reassign-partitions.sh`), unless this is a \
             test",
            single.join(", ")
        )
    }))
}

/// Returns an error if the operator's list of zones does not fit the input topic.
fn wrong_assignment(config: &Config, client: &mut TopicClient) -> Result<(), ToolError> {
    let found =
        client.find(&config.group.input_topic, Right::Describe).map_err(topics::of_control)?;
    // A missing topic is named elsewhere.
    let Some(found) = found else { return Ok(()) };
    config.group.check_zones(found.partitions as i32).map_err(topics::of_control)
}

/// Returns why no broker coordinates the group, if none does. The first request lets the cluster
/// create the topic for it.
fn missing_coordinator(client: &mut TopicClient, group: &str) -> Option<ToolError> {
    let end = Instant::now() + Duration::from_millis(COORDINATOR_MS_MAX);
    loop {
        match client.coordinator(group) {
            Ok(_) => return None,
            Err(error) if error.may_pass() && Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(ASK_COORDINATOR_EVERY_MS));
            }
            Err(error) => return Some(topics::of_control(error)),
        }
    }
}

/// Returns one sentence about zones whose rules are missing from rules.files.
fn unknown_rules(
    config: &Config,
    edition: &Edition,
    rulesets: &BTreeSet<u32>,
    published: &[Option<LastFrame>],
) -> Option<ToolError> {
    let mut zones: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    for (partition, last) in published.iter().enumerate() {
        let ruleset = last.map(|last| last.ruleset);
        if let Some(ruleset) = ruleset.filter(|ruleset| !rulesets.contains(ruleset)) {
            zones.entry(ruleset).or_default().push(partition.to_string());
        }
    }
    if zones.is_empty() {
        return None;
    }
    let zones: Vec<String> = zones
        .iter()
        .map(|(ruleset, partitions)| format!("{} by ruleset {ruleset}", partitions.join(", ")))
        .collect();
    let ours: Vec<String> = rulesets.iter().map(u32::to_string).collect();
    Some(ToolError::Config(format!(
        "the zones of `{}` use rulesets missing from rules.files: partitions {}; rules.files have \
         {} by engine version {}, this huntd's: add the rules that published; if \
         another version of the game has published, stop it in order, and this one takes its zones \
         over; otherwise they halt",
        config.publisher.output_topic,
        zones.join(", "),
        ours.join(", "),
        edition.version
    )))
}
