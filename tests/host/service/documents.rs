//! docs/OPERATIONS.md has the tables that the code has.

use huntd::service::exit::ExitCode;
use huntd::service::exposition::FAMILIES;
use huntd::service::settings::DEFAULTS;
use huntd::telemetry::metrics::Counter;

/// The rows of the first table after a heading, without its two header rows.
fn table(heading: &str) -> Vec<String> {
    let text = std::fs::read_to_string("docs/OPERATIONS.md").expect("the repository has it");
    let section = text.split(&format!("\n## {heading}\n")).nth(1).expect("the heading is there");
    let rows = section.lines().skip_while(|line| !line.starts_with('|'));
    rows.take_while(|line| line.starts_with('|')).skip(2).map(str::to_owned).collect()
}

fn assert_table(heading: &str, expected: Vec<String>) {
    let expected_text = expected.join("\n");
    assert_eq!(table(heading), expected, "the table of {heading} must be:\n{expected_text}\n");
}

#[test]
fn every_exit_code_is_documented() {
    let rows = ExitCode::ALL.map(|code| format!("| {} | {} |", code.number(), code.meaning()));
    assert_table("Exit codes", rows.to_vec());
}

#[test]
fn every_metric_is_documented() {
    let counters = Counter::ALL.map(|counter| {
        format!("| `huntd_{}_total` | counter | {} |", counter.name(), counter.help())
    });
    let families =
        FAMILIES.map(|family| format!("| `{}` | {} | {} |", family.name, family.kind, family.help));
    assert_table("Metrics", [counters.as_slice(), families.as_slice()].concat());
}

#[test]
fn every_configuration_key_is_documented_with_its_default() {
    let mut rows = Vec::new();
    let mut section = "";
    for line in DEFAULTS.lines().filter(|line| !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']');
        } else if let Some((key, default)) = line.split_once(" = ") {
            rows.push(format!("| `{section}.{key}` | `{default}` |"));
        }
    }
    assert_table("Configuration", rows);
}
