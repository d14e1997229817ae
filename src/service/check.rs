//! The offline part of `check`: a summary in a few lines.

use super::config::Config;
use crate::output::frame::Format;
use crate::runtime::cpu::{self, CpuError, Plan};
use std::collections::BTreeSet;

/// Describes how `huntd run` would run on this host with this configuration, or returns why it
/// would not start.
pub(crate) fn offline(config: &Config, rulesets: &BTreeSet<u32>) -> Result<String, CpuError> {
    let plan = cpu::plan(&config.runtime, &cpu::allowed_cores()?, cpu::siblings)?;
    let cores = match &plan {
        Plan::Pinned { hot_core, helper_cores } => {
            format!("hot core {hot_core}, helper cores {}", cpu::list(helper_cores))
        }
        Plan::Shared { core } => format!("only core {core} is allowed: nothing is pinned"),
    };
    let format = match config.publisher.format {
        Format::Json => "json",
        Format::Binary => "binary",
    };
    let rules: Vec<String> = rulesets.iter().map(u32::to_string).collect();
    let group = &config.group;
    let publisher = &config.publisher;
    let shared_out = match &group.assignment {
        None => format!("group: {}", group.client.group),
        Some(_) => {
            let ours = group.instance_id.as_deref().unwrap_or_default();
            format!("zones: those that kafka.assignment lists for `{ours}`,")
        }
    };
    Ok(format!(
        "configuration: valid\n\
         cores: {cores}\n\
         rulesets: {}\n\
         topics: {} -> {} ({format}), dead letters to {}\n\
         {} through {}\n\
         monitoring: http://{}/metrics\n",
        rules.join(", "),
        group.input_topic,
        publisher.output_topic,
        publisher.dead_letter_topic,
        shared_out,
        group.client.brokers.join(", "),
        config.service.listen,
    ))
}
