//! Tests that the tables of docs/REFERENCE.md match the code.

use huntd::service::exit::ExitCode;
use huntd::service::settings::DEFAULTS;
use std::process::Command;
use support::generated;
use support::scrape::{Family, families};

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
    let row = |family: Family| format!("| `{}` | {} | {} |", family.name, family.kind, family.help);
    families().into_iter().map(row).collect()
}

#[test]
fn the_tables_of_the_reference_are_those_of_the_code() {
    generated::check(PAGE, "service::documents", |page| {
        let part = |(heading, rows): (&str, Vec<String>)| {
            let heading = format!("\n## {heading}\n");
            let section = page.find(&heading).unwrap_or_else(|| panic!("no section {heading:?}"));
            let rule = page[section..].find("| --- |").expect("a table has a line below its head");
            (
                generated::rows(page, section + rule),
                rows.iter().map(|row| format!("{row}\n")).collect(),
            )
        };
        tables().map(part).to_vec()
    });
}
