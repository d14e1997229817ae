//! What README.md shows is what the program prints and takes, and what docs/BENCHMARKS.md says.

use huntd::service::rules::load_all;
use huntd::telemetry::progress::SHARDS_MAX;
use serde_json::Value;
use std::process::Command;
use support::daemon::program;

fn text(path: &str) -> String {
    std::fs::read_to_string(path).expect("the repository has it")
}

#[test]
fn the_table_of_the_demo_in_the_readme_is_what_the_demo_prints() {
    let readme = text("README.md");
    let block = readme.split("```text\nevents ").nth(1).expect("the table");
    let block = block.split("```").next().expect("the table ends");
    let rows: Vec<String> = format!("events {block}").lines().map(str::to_owned).collect();
    assert!(rows.len() >= 8, "{rows:?}");
    let demo = Command::new(program()).args(["demo", "--events", "200000"]).output();
    let printed = String::from_utf8(demo.expect("the demo runs").stdout).expect("it is text");
    for row in rows {
        let words: Vec<&str> = row.split_whitespace().collect();
        let is_printed = |line: &str| line.split_whitespace().eq(words.iter().copied());
        assert!(printed.lines().any(is_printed), "the demo does not print {row:?}:\n{printed}");
    }
}

#[test]
fn each_figure_of_the_plot_stands_in_the_benchmarks() {
    let (plot, benchmarks) =
        (text("docs/figures/drain-and-latency.svg"), text("docs/BENCHMARKS.md"));
    let labels = plot.split("</text>").filter_map(|part| part.rsplit_once('>'));
    let figures: Vec<&str> =
        labels.map(|(_, label)| label).filter(|label| label.parse::<f64>().is_ok()).collect();
    assert_eq!(figures.len(), 14);
    for figure in figures {
        let found = benchmarks
            .lines()
            .any(|line| line.starts_with('|') && line.split('|').any(|cell| cell.trim() == figure));
        assert!(found, "docs/BENCHMARKS.md has no {figure}");
    }
}

#[test]
fn the_frame_in_the_readme_is_the_first_of_the_vectors() {
    let vectors: Value = serde_json::from_str(&text("docs/vectors/frames.json")).expect("JSON");
    let frame = vectors[0]["json"].as_str().expect("a frame's JSON");
    assert!(text("README.md").lines().any(|line| line == frame), "README.md lacks {frame}");
}

#[test]
fn a_zone_takes_as_many_players_and_an_input_as_many_zones_as_the_readme_says() {
    let readme = text("README.md");
    let zones = format!("{},{:03}", SHARDS_MAX / 1_000, SHARDS_MAX % 1_000);
    let sentence = format!("A zone holds at most 131,072 players, an input topic {zones} zones.");
    assert!(readme.contains(&sentence), "README.md lacks {sentence:?}");
    let built_in = text("config/rules.toml");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let takes = |players: u32| {
        let file = folder.path().join("rules.toml");
        let players = format!("count_max = {players}\n");
        std::fs::write(&file, built_in.replace("count_max = 131072\n", &players)).expect("a file");
        load_all(&[file]).is_ok()
    };
    assert!(takes(131_071) && takes(131_072) && !takes(131_073));
}
