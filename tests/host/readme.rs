//! What README.md shows is what the program prints and what docs/BENCHMARKS.md says.

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
