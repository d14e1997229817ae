//! `huntd rules`: the rules that a configuration names, and the event that a game changes them by.

use super::failure::ToolError;
use super::load::{EventSender, now_us};
use super::source::SourceRecord;
use super::{kafka, rulebook};
use crate::engine::event::Action;
use crate::output::event_json::write_event;
use crate::service::cli::{LoadCodec, RulesArgs};
use crate::service::config::{self, Config};
use std::io::Write;

/// Lists the rules, and tells the running game to go on by some of them.
pub fn run(args: &RulesArgs) -> Result<(), ToolError> {
    let config = config::load(&args.config.file, &args.config.set)?;
    let rulesets: Vec<u32> = rulebook(&config.rules_files)?.rulesets().collect();
    let Some(ruleset) = args.switch_to else {
        return list(&config, &rulesets);
    };
    if !rulesets.contains(&ruleset) {
        return Err(ToolError::Usage(format!(
            "no file of rules.files has ruleset {ruleset}: add it there, on every host, and \
             restart the daemons first"
        )));
    }
    switch(&config, ruleset)
}

fn list(config: &Config, rulesets: &[u32]) -> Result<(), ToolError> {
    let mut out = std::io::stdout().lock();
    if config.rules_files.is_empty() {
        writeln!(out, "{:<10}  built in", rulesets[0])?;
    }
    for (ruleset, file) in rulesets.iter().zip(&config.rules_files) {
        writeln!(out, "{ruleset:<10}  {}", file.display())?;
    }
    Ok(())
}

/// Appends the event to each partition. Where the game goes by these rules already it is a no-op,
/// so that after a failure it can be tried again.
fn switch(config: &Config, ruleset: u32) -> Result<(), ToolError> {
    let (brokers, topic) = (&config.group.client.brokers, &config.fetch.input_topic);
    let partitions = kafka::topic_partitions(brokers, topic)?;
    let ts_us = now_us();
    let time_ms = ts_us / 1000;
    let mut value = Vec::new();
    write_event(&mut value, 0, 0, ts_us, &Action::RulesChange { ruleset });
    let mut out = std::io::stdout().lock();
    let mut sender = EventSender::connect(brokers, topic, LoadCodec::None, 0)?;
    for partition in 0..partitions {
        let value = Some(value.as_slice());
        sender.send(&SourceRecord { partition, offset: 0, time_ms, value })?;
        sender.flush()?;
        writeln!(out, "{topic} partition {partition}: told to go on by ruleset {ruleset}")?;
    }
    Ok(())
}
