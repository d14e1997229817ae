//! huntd as a systemd service: start, status, watchdog, clean stop.

use super::session::{Session, is_possible};
use rdkafka::config::ClientConfig;
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{BaseProducer, BaseRecord, DefaultProducerContext, Producer};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use support::PATIENCE;
use support::kafka::broker::free_ports;

/// Settings of the shipped unit that a user session cannot have, that hide this test's files, or
/// that need mounts which containers forbid. Capabilities and system calls stay as restricted as
/// they are shipped.
const LEFT_OUT: &[&str] = &[
    "DynamicUser=",
    "User=",
    "StateDirectory=",
    "StateDirectoryMode=",
    "Private",
    "Protect",
    "WantedBy=",
];

const DAEMON: &str = "systemd/huntd.service";

const SERVER: &str = "systemd/huntd-serve@.service";

const PARTITIONS: i32 = 2;

/// A shipped unit, with its program and the folder of its configuration at other places.
pub(crate) fn unit_at(file: &Path, program: &Path, folder: &Path) -> String {
    let shipped = std::fs::read_to_string(file).expect("it is there");
    let kept = shipped.lines().filter(|line| !LEFT_OUT.iter().any(|key| line.starts_with(key)));
    let unit = kept.collect::<Vec<_>>().join("\n");
    let start = format!("={} ", program.display());
    let unit = unit.replace("=/usr/local/bin/huntd ", &start);
    let unit = unit.replace("=/usr/bin/huntd ", &start);
    unit.replace("/etc/huntd/", &format!("{}/", folder.display()))
}

/// A shipped unit, with this build's program and a configuration of this test's.
fn unit(file: &str, config: &Path) -> String {
    let folder = config.parent().expect("a file is in a folder");
    let unit = unit_at(Path::new(file), Path::new(env!("CARGO_BIN_EXE_huntd")), folder);
    let ends = ends_file(config);
    // systemd forgets an inactive unit, so the ends of its processes are written down.
    let added = format!(
        "[Service]\nExecStopPost=/bin/sh -c \
         'echo $SERVICE_RESULT $EXIT_CODE $EXIT_STATUS >> {}'\n",
        ends.display()
    );
    unit.replace("[Service]\n", &added)
}

/// Where each end of the service is written down, a line each.
fn ends_file(config: &Path) -> PathBuf {
    config.with_file_name("ends")
}

/// A port that no connection of another test is given meanwhile.
pub(crate) fn free_port() -> u16 {
    free_ports(1)[0]
}

pub(crate) fn get(port: u16, path: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("huntd serves HTTP");
    let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    answer
}

/// A broker in this process, which the namespaces of the session can reach: they share the network.
pub(crate) fn cluster() -> MockCluster<'static, DefaultProducerContext> {
    let cluster = MockCluster::new(1).expect("a mock cluster");
    for topic in ["hunt-events", "hunt-updates", "hunt-dead-letters"] {
        cluster.create_topic(topic, PARTITIONS, 1).expect("a topic");
    }
    cluster
}

/// One player joins in each partition.
pub(crate) fn produce_joins(brokers: &str) {
    let mut config = ClientConfig::new();
    let producer: BaseProducer =
        config.set("bootstrap.servers", brokers).create().expect("a producer");
    for partition in 0..PARTITIONS {
        let event = format!(
            r#"{{"type":"join","player_id":{},"seq":1,"ts_us":1767225600000000,"x":100,"y":100}}"#,
            partition + 1
        );
        let record = BaseRecord::<(), _>::to("hunt-events").partition(partition).payload(&event);
        producer.send(record).expect("there is room");
    }
    producer.flush(PATIENCE).expect("the mock takes them");
}

/// Makes the folder of a session's units, and a configuration beside it.
fn units_and_config(folder: &Path, brokers: &str, port: u16) -> (PathBuf, PathBuf) {
    let units = folder.join("config/systemd/user");
    std::fs::create_dir_all(&units).expect("a folder");
    let config = folder.join("huntd.toml");
    let text = format!(
        "[kafka]\nbrokers = [\"{brokers}\"]\n[input]\ntick_every_ms = 0\n[service]\n\
         listen = \"127.0.0.1:{port}\"\n"
    );
    std::fs::write(&config, text).expect("a file");
    (units, config)
}

#[test]
fn what_a_restart_does_not_cure_is_not_restarted() {
    if !is_possible() {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (units, config) = units_and_config(folder.path(), "127.0.0.1:1", 0);
    let wrong = folder.path().join("wrong.toml");
    std::fs::write(&wrong, "[kafka]\ntypo = 1\n").expect("a file");
    let (daemon, server) = (unit(DAEMON, &config), unit(SERVER, &config));
    let no_core = "[Service]\nEnvironment=HUNTD_CPU__HOT_CORE=1023\n";
    let bad = [
        ("huntd-usage", "2", daemon.replace("huntd run --config", "huntd run --confg")),
        ("huntd-configuration", "3", daemon.replace("huntd.toml", "wrong.toml")),
        ("huntd-core", "8", daemon.replacen("[Service]\n", no_core, 1)),
        ("serve-usage", "2", server.replace("huntd serve --config", "huntd serve --confg")),
        ("serve-configuration", "3", server.replace("huntd.toml", "wrong.toml")),
    ];
    for (name, _, text) in &bad {
        std::fs::write(units.join(format!("{name}.service")), text).expect("a file");
    }
    let mut session = Session::start(folder.path());
    for (name, code, _) in bad {
        let (start, printed) = session.run(&format!("systemctl --user start {name}"));
        // systemd waits for the daemon to be ready; of the server it waits for its exec.
        assert!(start != 0 || name.starts_with("serve"), "{printed}");
        // A restart that waits for its time is `activating`.
        session.property_until(name, "ActiveState", |state| state == "failed");
        assert_eq!(session.property(name, "ExecMainStatus"), code);
        assert_eq!(session.property(name, "NRestarts"), "0");
    }
}

#[test]
fn systemd_starts_reloads_and_stops_huntd_serve() {
    if !is_possible() {
        return;
    }
    let (cluster, port) = (cluster(), free_port());
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (units, config) = units_and_config(folder.path(), &cluster.bootstrap_servers(), 0);
    let text = std::fs::read_to_string(&config).expect("it is there");
    std::fs::write(&config, format!("{text}[serve]\nlisten = \"127.0.0.1:{port}\"\n"))
        .expect("a file");
    let unit = unit(SERVER, &config);
    std::fs::write(units.join("huntd-serve@.service"), unit).expect("a file");
    let mut session = Session::start(folder.path());
    let (code, printed) = session.run("systemctl --user start huntd-serve@1");
    assert_eq!(code, 0, "{printed}");
    session.until("true", |_| TcpStream::connect(("127.0.0.1", port)).is_ok());
    session.until("true", |_| get(port, "/readyz").starts_with("HTTP/1.1 200 "));
    let main = session.property("huntd-serve@1", "MainPID");
    let (code, printed) = session.run("systemctl --user reload huntd-serve@1");
    assert_eq!(code, 0, "{printed}");
    assert!(get(port, "/v1/zones").starts_with("HTTP/1.1 200 "));
    assert_eq!(session.property("huntd-serve@1", "MainPID"), main);
    let (code, printed) = session.run("systemctl --user stop huntd-serve@1");
    assert_eq!(code, 0, "{printed}");
    let ends = std::fs::read_to_string(ends_file(&config)).expect("the service has ended");
    assert_eq!(ends, "success exited 0\n");
}

#[test]
fn a_start_whose_shards_have_all_halted_fails_and_is_not_restarted() {
    if !is_possible() {
        return;
    }
    let cluster = cluster();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let brokers = cluster.bootstrap_servers();
    produce_joins(&brokers);
    let (units, config) = units_and_config(folder.path(), &brokers, free_port());
    std::fs::write(units.join("huntd.service"), unit(DAEMON, &config)).expect("a file");
    let mut session = Session::start(folder.path());
    let (code, printed) = session.run("systemctl --user start huntd");
    assert_eq!(code, 0, "{printed}\n{}", session.run("systemctl --user status huntd").1);
    let (code, printed) = session.run("systemctl --user stop huntd");
    assert_eq!(code, 0, "{printed}");

    // What is published was made by rules that are not there any more.
    let rules = folder.path().join("rules.toml");
    let built_in = std::fs::read_to_string("config/rules.toml").expect("the repository has it");
    std::fs::write(&rules, built_in.replace("health = 100", "health = 90")).expect("a file");
    let text = std::fs::read_to_string(&config).expect("it is there");
    std::fs::write(&config, format!("{text}[rules]\nfiles = [{rules:?}]\n")).expect("a file");
    assert_eq!(session.run("systemctl --user start --no-block huntd").0, 0);
    session.property_until("huntd", "StatusText", |text| text.contains("halted shards: 2"));
    // It is not systemd that ends it.
    let main = session.property("huntd", "MainPID");
    assert_eq!(session.run(&format!("kill -TERM {main}")).0, 0);
    session.property_until("huntd", "ActiveState", |state| state == "failed");

    // Who waits for the start hears that it has failed, and is shown why.
    let (code, printed) = session.run("systemctl --user start huntd");
    assert_ne!(code, 0, "{printed}");
    let (_, shown) = session.run("systemctl --user status huntd");
    for wanted in ["Active: failed (Result: timeout)", "status=10", "FAILED: halted on a fault: 2"]
    {
        assert!(shown.contains(wanted), "no {wanted} in {shown}");
    }
    assert_eq!(session.property("huntd", "NRestarts"), "0");
    let ends = std::fs::read_to_string(ends_file(&config)).expect("the service has ended");
    let expected = ["success exited 0", "exit-code exited 10", "timeout exited 10"];
    assert_eq!(ends.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn systemd_starts_reloads_watches_and_stops_huntd() {
    if !is_possible() {
        return;
    }
    let cluster = cluster();
    let port = free_port();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let brokers = cluster.bootstrap_servers();
    produce_joins(&brokers);
    let (units, config) = units_and_config(folder.path(), &brokers, port);
    std::fs::write(units.join("huntd.service"), unit(DAEMON, &config)).expect("a file");

    let mut session = Session::start(folder.path());
    // Type=notify: start returns once READY was said.
    let (code, printed) = session.run("systemctl --user start huntd");
    assert_eq!(code, 0, "{printed}\n{}", session.run("systemctl --user status huntd").1);
    assert_eq!(session.property("huntd", "ActiveState"), "active");
    session.property_until("huntd", "StatusText", |text| {
        text.starts_with("huntd is ready: 2 shards") && text.ends_with(", 0 records behind")
    });
    assert!(get(port, "/readyz").starts_with("HTTP/1.1 200 "));
    let metrics = get(port, "/metrics");
    assert!(metrics.contains("\nhuntd_ready 1\n"), "{metrics}");
    assert!(metrics.contains("\nhuntd_records_received_total 2\n"), "{metrics}");

    // What can be read again is, and what cannot be is refused: huntd runs on.
    let reload = |session: &mut Session, text: &str| {
        std::fs::write(&config, text).expect("it is writable");
        let (code, _) = session.run("systemctl --user reload huntd");
        session.property_until("huntd", "ActiveState", |state| state == "active");
        code
    };
    let refused = || get(port, "/metrics").contains("\nhuntd_reload_refused 1\n");
    let text = std::fs::read_to_string(&config).expect("it is there");
    let first = std::env::current_dir().expect("the repository").join("config/rules.toml");
    let second = folder.path().join("rules.toml");
    let with_both = format!("{text}[rules]\nfiles = {:?}\n", [&first, &second]);
    let known = || get(port, "/metrics").matches("\nhuntd_ruleset_known{").count();
    assert_ne!(reload(&mut session, &with_both), 0, "there is no second file yet");
    assert_eq!(known(), 1);
    session.property_until("huntd", "StatusText", |text| text.contains("RELOAD REFUSED"));
    session.until("true", |_| refused());
    assert_eq!(reload(&mut session, &text), 0);
    session.until("true", |_| !refused());
    // Only the daemon knows what takes a restart.
    assert_eq!(reload(&mut session, &format!("{text}[publish]\nlinger_us_max = 7\n")), 0);
    session.property_until("huntd", "StatusText", |text| text.contains("RELOAD REFUSED"));
    assert!(refused());
    let built_in = std::fs::read_to_string(&first).expect("the repository has it");
    std::fs::write(&second, built_in.replace("health = 100", "health = 90")).expect("a file");
    assert_eq!(reload(&mut session, &with_both), 0);
    session.until("true", |_| known() == 2 && !refused());

    // A process that is stopped feeds no watchdog: systemd replaces it.
    let first = session.property("huntd", "MainPID");
    assert_eq!(session.run(&format!("kill -STOP {first}")).0, 0);
    session.property_until("huntd", "NRestarts", |count| count == "1");
    session.property_until("huntd", "ActiveState", |state| state == "active");
    let second = session.property("huntd", "MainPID");
    assert_ne!(first, second);

    // What a malformed Metadata answer does to librdkafka: see decision 031. Rust's own handler
    // expects that a fault comes again, and lets one that is only sent pass.
    let restarts = "systemctl --user show huntd --value --property NRestarts";
    session.until(&format!("kill -SEGV {second} 2>/dev/null; {restarts}"), |count| count == "2");
    session.property_until("huntd", "ActiveState", |state| state == "active");

    let (code, printed) = session.run("systemctl --user stop huntd");
    assert_eq!(code, 0, "{printed}");
    assert_eq!(session.property("huntd", "ActiveState"), "inactive");
    let ends = std::fs::read_to_string(ends_file(&config)).expect("the service has ended");
    let ends: Vec<_> = ends.lines().collect();
    assert_eq!(ends, ["watchdog killed ABRT", "signal killed SEGV", "success exited 0"]);
}
