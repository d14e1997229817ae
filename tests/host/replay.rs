//! Every recorded match, replayed: docs/MATCHES.md has what came out, and it must come out again.

use serde_json::Value;
use std::path::Path;
use std::process::Command;
use support::{generated, recordings};

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/MATCHES.md");

const CONFIG: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/config/huntd.toml");
const RULES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/config/rules.toml");

/// The line below the table's heads.
const RULE: &str = "| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- | --- | --- |\n";

/// One row of the table.
fn row(file: &Path) -> String {
    let events = recordings::events(file, None);
    let replay = Command::new(env!("CARGO_BIN_EXE_huntd"))
        .args(["replay", "--json", "--file"])
        .arg(events.path())
        .output()
        .expect("the binary runs");
    assert!(replay.status.success(), "{}", String::from_utf8_lossy(&replay.stderr));
    let report: Value = serde_json::from_slice(&replay.stdout).expect("the report is JSON");
    let total = &report["total"];
    let number = |key: &str| total[key].as_u64().expect("the key is there");
    let made = |kind: &str| total["updates_by_kind"][kind].as_u64().unwrap_or(0);
    assert_eq!(number("events"), number("applied") + number("refusals"), "{total}");
    assert_eq!((number("no_ops"), number("rejects")), (0, 0), "{total}");
    let refusals = total["refusals_by_reason"].as_object().expect("reasons have counts");
    let refusals: Vec<String> =
        refusals.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    let name = file.file_name().expect("a file has a name").to_string_lossy();
    format!(
        "| {} | {} | {} | {} | {} | {} | {} | {} | `{}` | `{}` |\n",
        name.split('.').next().expect("a name has a first part"),
        number("events"),
        number("updates"),
        made("hunt_ended"),
        made("looted"),
        made("damaged"),
        made("downed"),
        refusals.join(", "),
        total["chain"].as_str().expect("a chain is text"),
        total["digest"].as_str().expect("a digest is text"),
    )
}

#[test]
fn every_recorded_match_comes_out_as_the_document_says() {
    let Some(files) = recordings::all() else {
        return;
    };
    let rows: String = files.iter().map(|file| row(file)).collect();
    generated::check(DOCUMENT, "replay", |document| {
        let rule = document.find(RULE).expect("the document has the table");
        vec![(generated::rows(document, rule), rows)]
    });
}

#[test]
fn a_replay_with_a_configuration_plays_by_its_rules() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let at = |name: &str| folder.path().join(name).display().to_string();
    let write = |name: &str, text: &str| std::fs::write(at(name), text).expect("it is writable");
    let read = |file: &str| std::fs::read_to_string(file).expect("it is part of the source");
    write("rules.toml", &read(RULES).replacen("health = 100", "health = 60", 1));
    let files = format!("files = [{:?}]", at("rules.toml"));
    write("huntd.toml", &read(CONFIG).replacen("files = []", &files, 1));
    write("events", r#"{"type":"join","player_id":1,"seq":1,"ts_us":1,"x":500,"y":500}"#);
    let replay = |more: &[&str]| {
        let replay = Command::new(env!("CARGO_BIN_EXE_huntd"))
            .args(["replay", "--updates", "--file", &at("events")])
            .args(more)
            .output()
            .expect("the binary runs");
        assert!(replay.status.success(), "{}", String::from_utf8_lossy(&replay.stderr));
        String::from_utf8(replay.stdout).expect("it prints text")
    };
    let by_config = replay(&["--config", &at("huntd.toml")]);
    assert!(by_config.contains(r#""health":60"#), "{by_config}");
    assert_eq!(by_config, replay(&["--rules", &at("rules.toml")]));
    assert!(replay(&[]).contains(r#""health":100"#), "those are the built-in rules");
}
