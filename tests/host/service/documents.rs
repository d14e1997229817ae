//! The tables of docs/REFERENCE.md are those of the code.

use huntd::service::exit::ExitCode;
use huntd::service::exposition::FAMILIES;
use huntd::service::settings::DEFAULTS;
use huntd::telemetry::metrics::Counter;
use std::process::Command;

const PAGE: &str = "docs/REFERENCE.md";

/// The rows of the table under each heading of the page.
fn tables() -> [(&'static str, Vec<String>); 4] {
    [("Verbs", verbs()), ("Keys", keys()), ("Exit codes", exit_codes()), ("Metrics", metrics())]
}

fn verbs() -> Vec<String> {
    let help = Command::new(env!("CARGO_BIN_EXE_huntd")).arg("--help").output();
    let help = String::from_utf8(help.expect("the program runs").stdout).expect("it prints text");
    let (_, verbs) = help.split_once("\nCommands:\n").expect("a list of the verbs");
    let verbs = verbs.lines().map_while(|line| line.trim().split_once("  "));
    verbs.map(|(verb, what)| format!("| `huntd {verb}` | {} |", what.trim())).collect()
}

/// Each key, with its default and the comment before it.
fn keys() -> Vec<String> {
    let (mut rows, mut section, mut comment) = (Vec::new(), "", Vec::new());
    for line in DEFAULTS.lines() {
        if let Some(words) = line.strip_prefix("# ") {
            comment.push(words);
            continue;
        }
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']');
        } else if let Some((key, default)) = line.split_once(" = ") {
            assert!(!comment.is_empty(), "{section}.{key} has no comment");
            rows.push(format!("| `{section}.{key}` | `{default}` | {} |", comment.join(" ")));
        }
        comment.clear();
    }
    rows
}

fn exit_codes() -> Vec<String> {
    ExitCode::ALL.map(|code| format!("| {} | {} |", code.number(), code.meaning())).to_vec()
}

fn metrics() -> Vec<String> {
    let counters = Counter::ALL.map(|counter| {
        format!("| `huntd_{}_total` | counter | {} |", counter.name(), counter.help())
    });
    let families =
        FAMILIES.map(|family| format!("| `{}` | {} | {} |", family.name, family.kind, family.help));
    [counters.as_slice(), families.as_slice()].concat()
}

#[test]
fn the_tables_of_the_reference_are_those_of_the_code() {
    let mut page = std::fs::read_to_string(PAGE).expect("the repository has it");
    let regenerates = std::env::var("HUNTD_REGENERATE").as_deref() == Ok("true");
    for (heading, rows) in tables() {
        let heading = format!("\n## {heading}\n");
        let section = page.find(&heading).unwrap_or_else(|| panic!("no section {heading:?}"));
        let rule = page[section..].find("| --- |").expect("a table has a line below its head");
        let rule = section + rule;
        let start = rule + page[rule..].find('\n').expect("the line ends") + 1;
        let found: String =
            page[start..].split_inclusive('\n').take_while(|line| line.starts_with('|')).collect();
        let wanted: String = rows.iter().map(|row| format!("{row}\n")).collect();
        if regenerates {
            page.replace_range(start..start + found.len(), &wanted);
        } else {
            let how = "HUNTD_REGENERATE=true cargo test --test host service::documents writes it";
            assert_eq!(found, wanted, "{PAGE}, {heading:?} is stale: {how}");
        }
    }
    if regenerates {
        std::fs::write(PAGE, page).expect("it is writable");
    }
}
