//! Tests that README.md, docs/GUARANTEES.md and docs/INTEGRATION.md agree with the programs and
//! with docs/BENCHMARKS.md.

use huntd::edition::load_all;
use huntd::hunt::state::TreasureHunt;
use huntd::telemetry::progress::SHARDS_MAX;
use huntd::tools::load::LOAD_EVENTS_DEFAULT;
use serde_json::Value;
use std::process::Command;
use support::daemon::program;
use support::needs;

fn text(path: &str) -> String {
    std::fs::read_to_string(path).expect("the repository has it")
}

#[test]
fn what_the_demo_prints_in_the_readme_is_what_it_prints() {
    let readme = text("README.md");
    let text = readme.split("## What the demo prints").nth(1).expect("the chapter");
    let block = text.split("```text\n").nth(1).expect("what it prints");
    let block = block.split("```").next().expect("it ends");
    // How fast it was is another number each time.
    let rows: Vec<&str> = block.lines().filter(|line| !line.ends_with(" events/s")).collect();
    assert_eq!(rows.len(), 4, "{rows:?}");
    let demo = Command::new(program()).args(["demo", "--events", "200000"]).output();
    let printed = String::from_utf8(demo.expect("the demo runs").stdout).expect("it is text");
    for row in rows {
        let words: Vec<&str> = row.split_whitespace().collect();
        let is_printed = |line: &str| line.split_whitespace().eq(words.iter().copied());
        assert!(
            printed.lines().any(is_printed),
            "the demo does not print {row:?}: put what it prints into README.md\n{printed}"
        );
    }
}

/// The texts of the plot, with their places: x and y.
fn plotted(plot: &str) -> Vec<(u32, u32, &str)> {
    let read = |part| -> Option<(u32, u32, &str)> {
        let (x, part): (&str, &str) = str::split_once(part, "\" y=\"")?;
        let (y, part) = part.split_once('"')?;
        let (words, _) = part.split_once('>')?.1.split_once("</text>")?;
        Some((x.parse().ok()?, y.parse().ok()?, words))
    };
    plot.split("<text x=\"").skip(1).map(|part| read(part).expect("a text has a place")).collect()
}

/// A cell of the first table with this title: the name of its first column.
fn cell<'a>(document: &'a str, title: &str, row: &str, column: &str) -> Option<&'a str> {
    let cells = |line: &'a str| line.split('|').skip(1).map(str::trim);
    let mut lines = document.lines().filter(|line| line.starts_with('|'));
    let header = lines.find(|line| cells(line).next() == Some(title))?;
    let at = cells(header).position(|cell| cell == column)?;
    lines.find(|line| cells(line).next() == Some(row)).and_then(|line| cells(line).nth(at))
}

#[test]
fn each_figure_of_the_plot_stands_in_its_row_of_the_benchmarks() {
    let (plot, benchmarks) =
        (text("docs/figures/drain-and-latency.svg"), text("docs/BENCHMARKS.md"));
    let texts = plotted(&plot);
    let left_of = |words: &str| {
        let title = texts.iter().find(|text| text.2.starts_with(words));
        title.unwrap_or_else(|| panic!("the plot has no {words}")).0
    };
    let (drain, latency) = (left_of("drain, M events/s:"), left_of("p99 at 250 k/s, ms:"));
    let mut figures = 0;
    for (x, y, figure) in texts.iter().filter(|text| text.2.parse::<f64>().is_ok()) {
        let name = texts.iter().find(|text| text.0 < drain && text.1 == *y).expect("a name").2;
        let (title, column) = match *x < latency {
            true => ("drain", "M events/s"),
            false => ("open loop, ms", "p99"),
        };
        assert_eq!(cell(&benchmarks, title, name, column), Some(*figure), "{title}, {name}");
        figures += 1;
    }
    assert_eq!(figures, 14);
}

#[test]
fn the_frame_in_the_readme_is_the_first_of_the_vectors() {
    let vectors: Value = serde_json::from_str(&text("docs/vectors/frames.json")).expect("JSON");
    let frame = vectors[0]["json"].as_str().expect("a frame's JSON");
    assert!(text("README.md").lines().any(|line| line == frame), "README.md lacks {frame}");
}

#[test]
fn a_load_without_a_number_makes_as_many_events_as_the_readme_says() {
    assert_eq!(LOAD_EVENTS_DEFAULT, 1_000_000);
    let sentence = "sends a million made-up events";
    assert!(text("README.md").contains(sentence), "README.md lacks {sentence:?}");
}

#[test]
fn one_core_and_the_first_test_run_take_what_the_other_documents_say() {
    let (readme, hacking) = (text("README.md"), text("docs/HACKING.md"));
    let minutes = hacking.split("| ").find_map(|cell| cell.split_once(" minutes in a fresh clone"));
    let minutes = minutes.expect("the loop has the time of all tests").0;
    let sentence = format!("`cargo test` about {minutes}.");
    assert!(readme.contains(&sentence), "README.md lacks {sentence:?}");
    let benchmarks = text("docs/BENCHMARKS.md");
    let drained = cell(&benchmarks, "drain", "huntd", "M events/s").expect("huntd drains");
    let millions: f64 = drained.parse().expect("a rate");
    let sentence = "plays some millions of events per second";
    assert_eq!(readme.contains(sentence), millions >= 2.0, "{sentence:?}, {drained} M events/s");
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
        load_all::<TreasureHunt>(&[file]).is_ok()
    };
    assert!(takes(131_071) && takes(131_072) && !takes(131_073));
}

#[test]
fn each_promise_names_its_test_and_each_of_its_figures_stands_in_the_benchmarks() {
    let (guarantees, benchmarks) = (text("docs/GUARANTEES.md"), text("docs/BENCHMARKS.md"));
    let (_, table) = guarantees.split_once("| promise |").expect("a table of promises");
    let rows: Vec<&str> = table.lines().filter(|line| line.starts_with("| ")).skip(1).collect();
    assert!(rows.len() > 8, "only {rows:?}");
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").collect();
        let [_, shown_by, figure] = cells[..] else { panic!("three cells: {row}") };
        let names: Vec<&str> = shown_by.split('`').skip(1).step_by(2).collect();
        let function = format!("fn {}(", names[1]);
        assert!(text(names[0]).contains(&function), "{} has no {function}", names[0]);
        let figures = figure.split_whitespace().map(|word| word.trim_matches([':', ',', ';']));
        for figure in figures.filter(|word| word.contains(|c: char| c.is_ascii_digit())) {
            assert!(benchmarks.contains(figure), "docs/BENCHMARKS.md has no {figure}: {row}");
        }
    }
}

#[test]
fn an_account_has_the_id_that_the_document_says() {
    if !needs::has_program("python3", "--version") {
        return;
    }
    let document = text("docs/INTEGRATION.md");
    let program = between(&document, "```python\n", "```");
    assert!(program.len() == 1 && program[0].contains("assert "), "{program:?}");
    let ended = Command::new("python3").args(["-c", program[0]]).status();
    assert!(ended.expect("python runs").success(), "{}", program[0]);
}

/// What stands between two texts.
fn between<'a>(text: &'a str, start: &str, end: &str) -> Vec<&'a str> {
    text.split(start).skip(1).map(|rest| rest.split(end).next().expect("a first part")).collect()
}

#[test]
fn the_readme_requires_what_the_build_the_ring_and_the_tests_require() {
    let readme = text("README.md").split_whitespace().collect::<Vec<_>>().join(" ");
    let ring = text("src/runtime/ring_error.rs");
    let jars = text("tests/support/src/kafka/jars.rs");
    let (newest, older) = (text("tests/support/src/kafka/mod.rs"), text("tests/kafka/versions.rs"));
    let minor = |version: &str| version.rsplit_once('.').expect("three numbers").0.to_owned();
    let newest = minor(between(&newest, "const VERSION: &str = \"", "\"")[0]);
    let older: Vec<String> =
        between(&older, "assert_plays_on(\"", "\"").into_iter().map(minor).collect();
    let [oldest, middle] = &older[..] else { panic!("two older versions: {older:?}") };
    let required = [
        format!("Rust {} (by rustup)", env!("CARGO_PKG_RUST_VERSION")),
        format!("Linux {} or newer", between(&ring, "use Linux ", " or newer")[0]),
        format!("JDK {} and Maven", between(&jars, "JAVA_VERSION_MIN: u32 = ", ";")[0]),
        between(&jars, "apt-get install ", "\"")[0].to_owned(),
        format!("Tested with Kafka {newest}, {middle} and {oldest}"),
    ];
    for words in required {
        assert!(readme.contains(&words), "README.md does not say {words:?}");
    }
}
