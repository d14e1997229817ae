//! The shipped alerts in a real Prometheus that watches real daemons.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::PATIENCE;
use support::daemon::{Huntd, Topics};
use support::kafka;
use support::kafka::broker::free_ports;
use support::needs;
use support::process::OwnedChild;
use support::scrape::get;

/// A running Prometheus. Dropped, it is killed.
struct Prometheus {
    _child: OwnedChild,
    address: String,
    _folder: tempfile::TempDir,
}

impl Prometheus {
    /// Scrapes these daemons every second, with the shipped alerts, which wait a second instead of
    /// half a minute or more.
    fn start(daemons: &[String]) -> Prometheus {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let shipped = Path::new("config/prometheus-alerts.yml");
        let alerts = std::fs::read_to_string(shipped).expect("the repository has it");
        let is_wait = |line: &str| line.trim_start().starts_with("for: ");
        let quick: Vec<String> = alerts
            .lines()
            .map(|line| if is_wait(line) { "        for: 1s".to_owned() } else { line.to_owned() })
            .collect();
        let file = |name: &str, text: String| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).expect("the folder is writable");
            path
        };
        let alerts = file("alerts.yml", quick.join("\n"));
        let config = file(
            "prometheus.yml",
            format!(
                "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\n\
                 rule_files: [{alerts:?}]\nscrape_configs:\n  - job_name: huntd\n    \
                 static_configs:\n      - targets: {daemons:?}\n"
            ),
        );
        let address = format!("127.0.0.1:{}", free_ports(1)[0]);
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("Prometheus starts");
        Prometheus { _child: child.into(), address, _folder: folder }
    }

    /// The names of all alerts that fire; `None`: it does not answer yet.
    fn firing(&self) -> Option<Vec<String>> {
        std::net::TcpStream::connect(&self.address).ok()?;
        let (code, body) = get(&self.address, "/api/v1/alerts");
        let answer: serde_json::Value = serde_json::from_str(&body).ok().filter(|_| code == 200)?;
        let alerts = answer["data"]["alerts"].as_array()?;
        let firing = alerts.iter().filter(|alert| alert["state"] == "firing");
        let name =
            |alert: &serde_json::Value| Some(alert["labels"]["alertname"].as_str()?.to_owned());
        firing.map(name).collect()
    }

    fn wait_until(&self, what: &str, condition: impl Fn(&[String]) -> bool) {
        let end = Instant::now() + PATIENCE;
        loop {
            let firing = self.firing();
            if firing.as_deref().is_some_and(&condition) {
                return;
            }
            assert!(Instant::now() < end, "no {what}: {firing:?}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// How many daemons were scraped.
    fn up(&self) -> usize {
        let (_, body) = get(&self.address, "/api/v1/query?query=huntd_ready==1");
        body.matches("\"metric\"").count()
    }
}

#[test]
fn the_alerts_fire_when_a_daemon_is_killed_and_when_none_is_left() {
    if !needs::has_program("prometheus", "--version") {
        return;
    }
    let topics = Topics::create(kafka::shared(), "watched", 4);
    // Nobody takes over while the test looks.
    let settings = &[("kafka", "session_timeout_ms = 120000")];
    let mut daemons: Vec<Huntd> = Vec::new();
    for _ in 0..2 {
        let mut huntd = Huntd::start(kafka::shared(), &topics, settings);
        huntd.wait_until("its address", |huntd| huntd.log().contains("\"address\":\""));
        huntd.wait_until("its partitions", |huntd| huntd.metric("huntd_shards_owned") > 0);
        daemons.push(huntd);
    }
    for huntd in &mut daemons {
        huntd.wait_until("half", |huntd| huntd.metric("huntd_shards_owned") == 2);
    }
    let addresses: Vec<String> = daemons.iter().map(Huntd::address).collect();
    let prometheus = Prometheus::start(&addresses);
    prometheus.wait_until("peace", |firing| firing.is_empty());
    prometheus.wait_until("scrapes of both, in peace", |firing| {
        firing.is_empty() && prometheus.up() == 2
    });

    daemons.pop().expect("there are two").kill9();
    let has = |firing: &[String], name: &str| firing.iter().any(|alert| alert == name);
    prometheus.wait_until("alert about the zones", |firing| {
        has(firing, "HuntdInstanceDown") && has(firing, "HuntdZonesWithoutOwner")
    });
    daemons.pop().expect("there is one").kill9();
    prometheus.wait_until("alert about all", |firing| has(firing, "HuntdAllDown"));
}
