//! `huntd rules`: lists the rules in a configuration, and switches a game's rules.

use super::failure::ToolError;
use super::kafka::{self, Cluster};
use super::load::{EventSender, now_us};
use super::published::{LastFrame, published};
use super::source::SourceRecord;
use super::{WhileRead, brokers, rulebook};
use crate::edition::Edition;
use crate::kafka::right::Right;
use crate::output::event_json::write_rules_change;
use crate::service::cli::RulesArgs;
use crate::service::config::Config;
use std::io::Write;
use std::path::PathBuf;

/// Lists the rules and those of the zones, or switches the running game to some of them.
pub fn run(args: &RulesArgs, edition: &Edition) -> Result<(), ToolError> {
    let config = args.config.load()?;
    let rulesets = rulebook(edition, &config.rules_files)?.rulesets();
    let Some(wanted) = &args.switch_to else {
        list(&config, &rulesets)?;
        return if args.zones { list_zones(&config, edition, &rulesets) } else { Ok(()) };
    };
    let ruleset = match wanted.parse() {
        Ok(ruleset) => ruleset,
        Err(_) => ruleset_of(edition, wanted)?,
    };
    if !rulesets.contains(&ruleset) {
        return Err(ToolError::Usage(format!(
            "no file of rules.files has ruleset {ruleset}: add it there, on every host, and \
             reload the daemons first"
        )));
    }
    switch(&config, edition, ruleset)
}

/// Returns the ruleset of the rules in a file.
fn ruleset_of(edition: &Edition, file: &str) -> Result<u32, ToolError> {
    Ok(rulebook(edition, &[PathBuf::from(file)])?.first_ruleset())
}

fn list(config: &Config, rulesets: &[u32]) -> Result<(), ToolError> {
    let mut out = std::io::stdout().lock();
    for ruleset in rulesets {
        writeln!(out, "{ruleset:<10}  {}", place(config, rulesets, *ruleset))?;
    }
    Ok(())
}

/// Returns where the rules of a ruleset are.
fn place(config: &Config, rulesets: &[u32], ruleset: u32) -> String {
    match rulesets.iter().position(|known| *known == ruleset) {
        None => "in no file of rules.files: its zones halt".to_owned(),
        Some(_) if config.rules_files.is_empty() => "built in".to_owned(),
        Some(place) => config.rules_files[place].display().to_string(),
    }
}

/// Lists the current rules of each zone, as far as it has published anything.
fn list_zones(config: &Config, edition: &Edition, rulesets: &[u32]) -> Result<(), ToolError> {
    let mut config = config.clone();
    config.group.client.brokers = brokers::reach(&config.group.client)?;
    let config = &config;
    let published = published(&Cluster::of_config(config, "rules")?, edition)?;
    published.warnings().iter().try_for_each(|sentence| super::warn(sentence))?;
    let mut out = std::io::stdout().lock();
    for (zone, last) in published.zones.into_iter().enumerate() {
        match last {
            Some(LastFrame { ruleset, .. }) => {
                let place = place(config, rulesets, ruleset);
                writeln!(out, "zone {zone}: {ruleset:<10}  {place}")?;
            }
            None => writeln!(out, "zone {zone}: nothing is published")?,
        }
    }
    Ok(())
}

/// Appends the event to each partition. If a zone already uses these rules, the event is a no-op,
/// so the command can be repeated after a failure.
fn switch(config: &Config, edition: &Edition, ruleset: u32) -> Result<(), ToolError> {
    let Cluster { client, input_topic: topic, .. } = Cluster::of_config(config, "rules")?;
    let partitions = kafka::topic_partitions(&client, &topic, Right::Write)?;
    let ts_us = now_us();
    let time_ms = ts_us / 1000;
    let mut value = Vec::new();
    write_rules_change(&mut value, edition.schema.game.events, ruleset, ts_us).ok_or_else(
        || {
            let name = edition.name;
            ToolError::Usage(format!("the game {name} has no event that changes its rules"))
        },
    )?;
    let mut sender = EventSender::connect(&client, &topic, "none", 0)?;
    for partition in 0..partitions {
        let value = Some(value.as_slice());
        sender.send(&SourceRecord { partition, offset: 0, time_ms, value })?;
    }
    sender.flush()?;
    let mut out = WhileRead(std::io::stdout().lock());
    for partition in 0..partitions {
        writeln!(out, "{topic} partition {partition}: asked to switch to ruleset {ruleset}")?;
    }
    Ok(())
}
