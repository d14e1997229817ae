//! What is ready-made for Prometheus and Grafana fits what the daemon shows.

use std::collections::BTreeSet;
use std::process::Command;
use support::needs;
use support::scrape::families;

const ALERTS: &str = "config/prometheus-alerts.yml";
const ALERTS_TEST: &str = "tests/data/prometheus-alerts.test.yml";
const DASHBOARD: &str = "config/grafana-dashboard.json";

fn read(file: &str) -> String {
    std::fs::read_to_string(file).expect("the repository has it")
}

/// Every name that a sample of `/metrics` can have.
fn sample_names() -> BTreeSet<String> {
    let names = families().into_iter().flat_map(|family| {
        let suffixes: &[&str] = match family.kind.as_str() {
            "histogram" => &["_bucket", "_sum", "_count"],
            _ => &[""],
        };
        suffixes.iter().map(move |suffix| format!("{}{suffix}", family.name))
    });
    names.chain(serving_names()).collect()
}

/// What `huntd serve` has of its own, as its page lists it.
fn serving_names() -> Vec<String> {
    let page = read("docs/QUERIES.md");
    let names = page.lines().filter_map(|line| Some(line.strip_prefix("| `")?.split_once('`')?.0));
    let names = names.filter(|name| name.starts_with("huntd_"));
    // Its histograms by their buckets, too.
    let names: Vec<String> =
        names.flat_map(|name| [name.to_owned(), format!("{name}_bucket")]).collect();
    assert!(names.len() > 5, "only {names:?}");
    names
}

/// Words of an expression that look like metrics of huntd and are none.
fn unknown_names(expression: &str) -> Vec<&str> {
    let known = sample_names();
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let looks_like = |word: &&str| word.starts_with("huntd_") || word.starts_with("process_");
    words.filter(looks_like).filter(|word| !known.contains(*word)).collect()
}

#[test]
fn alerts_and_dashboard_ask_only_for_metrics_that_there_are() {
    assert_eq!(
        unknown_names("rate(huntd_nonsense_total[1m]) > huntd_ready"),
        ["huntd_nonsense_total"]
    );
    let alerts = read(ALERTS);
    let action = |line: &&str| !line.trim_start().starts_with("action:");
    for line in alerts.lines().filter(action) {
        assert!(unknown_names(line).is_empty(), "{line}");
    }
    let dashboard: serde_json::Value = serde_json::from_str(&read(DASHBOARD)).expect("JSON");
    let mut expressions = 0;
    for panel in dashboard["panels"].as_array().expect("panels") {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let expression = target["expr"].as_str().expect("an expression");
            assert!(unknown_names(expression).is_empty(), "{expression}");
            // Grafana makes it long enough for the interval of the scrapes, whatever that is.
            let ranges: Vec<&str> = expression.split('[').skip(1).collect();
            let fits = |range: &&str| range.starts_with("$__rate_interval]");
            assert!(ranges.iter().all(fits), "{expression}");
            expressions += 1;
        }
    }
    assert!(expressions > 20, "only {expressions} expressions were looked at");
}

#[test]
fn the_dashboard_counts_a_zone_once_that_copies_follow() {
    let dashboard: serde_json::Value = serde_json::from_str(&read(DASHBOARD)).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array()).flatten();
    let expressions: Vec<&str> = targets.filter_map(|target| target["expr"].as_str()).collect();
    // Engines count on each instance that has the zone: its owner, and those that copy it.
    for name in [
        "huntd_players",
        "huntd_hunts",
        "huntd_treasures",
        "huntd_events_applied_total",
        "huntd_events_refused_total",
        "huntd_events_no_op_total",
        "huntd_records_rejected_total",
    ] {
        let asked: Vec<_> = expressions.iter().filter(|it| it.contains(name)).collect();
        assert!(!asked.is_empty(), "nothing asks for {name}");
        assert!(asked.iter().all(|it| it.contains("max by (partition")), "{asked:?}");
    }
}

fn promtool(arguments: &[&str]) -> Option<(bool, String)> {
    if !needs::has_program("promtool", "--version") {
        return None;
    }
    let output = Command::new("promtool").args(arguments).output().expect("it runs");
    let printed = [output.stdout, output.stderr].concat();
    Some((output.status.success(), String::from_utf8_lossy(&printed).into_owned()))
}

#[test]
fn every_alert_fires_when_it_should_and_not_before() {
    let Some((is_right, printed)) = promtool(&["test", "rules", ALERTS_TEST]) else { return };
    assert!(is_right, "{printed}");
    let (alerts, tests) = (read(ALERTS), read(ALERTS_TEST));
    for alert in alerts.lines().filter_map(|line| line.split_once("- alert: ")) {
        assert!(tests.contains(&format!("alertname: {}", alert.1)), "{} is not tested", alert.1);
    }
}

#[test]
fn the_documented_configuration_of_prometheus_is_valid() {
    let page = read("docs/OPERATIONS.md");
    let (_, from) = page.split_once("    # prometheus.yml\n").expect("the page has it");
    let lines = from.lines().map_while(|line| line.strip_prefix("    "));
    let alerts = std::path::absolute(ALERTS).expect("a path").display().to_string();
    let config = lines.collect::<Vec<_>>().join("\n");
    let config = config.replace("/etc/prometheus/prometheus-alerts.yml", &alerts);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("prometheus.yml");
    std::fs::write(&file, config).expect("a file");
    let path = file.to_str().expect("text");
    let Some((is_right, printed)) = promtool(&["check", "config", path]) else { return };
    let rules = read(ALERTS).matches("- alert: ").count();
    assert!(is_right && printed.contains(&format!("{rules} rules found")), "{printed}");
}

#[test]
fn every_expression_of_the_dashboard_can_be_parsed() {
    let dashboard: serde_json::Value = serde_json::from_str(&read(DASHBOARD)).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array()).flatten();
    let mut rules = "groups:\n  - name: dashboard\n    rules:\n".to_owned();
    for (number, target) in targets.enumerate() {
        let expression = target["expr"].to_string().replace("$__rate_interval", "1m");
        rules += &format!("      - record: panel:{number}\n        expr: {expression}\n");
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("rules.yml");
    std::fs::write(&file, rules).expect("a file");
    let path = file.to_str().expect("text");
    let Some((is_right, printed)) = promtool(&["check", "rules", path]) else { return };
    assert!(is_right, "{printed}");
}
