//! The harness itself: brokers start, serve, fail on demand, and leave nothing behind.

use rdkafka::Message;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};
use support::PATIENCE;
use support::kafka::{self, Cluster, Options};

/// Set for a process that starts a broker and waits to be killed: the file to which it writes the
/// broker's process number and folder.
const VICTIM: &str = "HUNTD_TEST_VICTIM";

/// Keys and values that name their own place.
pub(crate) fn records(count: usize) -> Vec<(String, String)> {
    (0..count).map(|n| (format!("key {n}"), format!("value {n}"))).collect()
}

pub(crate) fn produce(cluster: &Cluster, topic: &str, records: &[(String, String)]) {
    let bytes = records.iter().map(|(key, value)| (0, key.as_bytes(), value.as_bytes()));
    cluster.client().produce(topic, bytes);
}

pub(crate) fn consume(cluster: &Cluster, topic: &str) -> Vec<(String, String)> {
    let text = |bytes: Option<&[u8]>| String::from_utf8(bytes.unwrap().to_vec()).unwrap();
    let records = cluster.client().consume(topic, 0);
    records.iter().map(|record| (text(record.key()), text(record.payload()))).collect()
}

/// Whether a process exists and is not just waiting for its parent to notice its end.
fn is_alive(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap().trim_start().starts_with('Z'))
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn the_shared_broker_gives_back_a_thousand_records_in_order() {
    let cluster = kafka::shared();
    let topic = kafka::unique_name("thousand");
    cluster.client().create_topic(&topic, 2, &[("max.message.bytes", "2000000")]);
    let sent = records(1_000);
    produce(cluster, &topic, &sent);
    assert_eq!(consume(cluster, &topic), sent);
    assert_eq!(cluster.client().watermarks(&topic, 0), (0, 1_000));
    assert_eq!(cluster.client().watermarks(&topic, 1), (0, 0));
}

#[test]
fn a_broker_keeps_acknowledged_records_across_stop_kill_and_freeze_and_goes_when_dropped() {
    let mut cluster = Cluster::start(1, &Options::for_tests());
    let topic = "kept";
    cluster.client().create_topic(topic, 1, &[]);
    let sent = records(300);
    let address = cluster[0].address();

    produce(&cluster, topic, &sent[..100]);
    let pid = cluster[0].pid().unwrap();
    cluster.broker_mut(0).stop();
    assert!(!is_alive(pid));
    cluster.broker_mut(0).restart(1);

    produce(&cluster, topic, &sent[100..200]);
    let pid = cluster[0].pid().unwrap();
    cluster.broker_mut(0).kill9();
    assert!(!is_alive(pid));
    cluster.broker_mut(0).restart(1);

    produce(&cluster, topic, &sent[200..]);
    cluster.broker_mut(0).freeze();
    assert!(!kafka::client::Probe::new(&address).sees_brokers(1));
    cluster.broker_mut(0).thaw();
    assert_eq!(consume(&cluster, topic), sent);
    assert_eq!(cluster[0].address(), address);

    let pid = cluster[0].pid().unwrap();
    let folder = cluster[0].folder().to_owned();
    assert!(is_alive(pid) && folder.exists());
    drop(cluster);
    assert!(!is_alive(pid) && !folder.exists());
}

#[test]
fn a_broker_goes_when_its_test_panics() {
    let (sender, receiver) = std::sync::mpsc::channel();
    let result = thread::spawn(move || {
        let cluster = Cluster::start(1, &Options::for_tests());
        sender.send((cluster[0].pid().unwrap(), cluster[0].folder().to_owned())).unwrap();
        panic!("as a failed assertion would");
    })
    .join();
    assert!(result.is_err());
    let (pid, folder) = receiver.recv().unwrap();
    assert!(!is_alive(pid) && !folder.exists());
}

/// This test is its own child: with the variable set, it starts the shared broker and waits.
#[test]
fn a_test_process_killed_with_sigkill_leaves_no_broker() {
    if let Some(report) = std::env::var_os(VICTIM) {
        be_the_victim(&report);
    }
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report");
    let mut victim = spawn_victim(&report);
    wait_until("the child has started its broker", || report.exists());
    let text = fs::read_to_string(&report).unwrap();
    let (pid, broker_folder) = text.split_once(' ').unwrap();
    let (pid, broker_folder) = (pid.parse().unwrap(), PathBuf::from(broker_folder));
    assert!(is_alive(pid) && broker_folder.exists());

    victim.kill().unwrap();
    victim.wait().unwrap();
    wait_until("the broker is gone", || !is_alive(pid) && !broker_folder.exists());
}

fn be_the_victim(report: &OsStr) -> ! {
    let broker = &kafka::shared()[0];
    let text = format!("{} {}", broker.pid().unwrap(), broker.folder().display());
    // Renamed into place, so that the parent never reads half of it.
    let draft = Path::new(report).with_extension("draft");
    fs::write(&draft, text).unwrap();
    fs::rename(&draft, report).unwrap();
    loop {
        thread::park();
    }
}

fn spawn_victim(report: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "brokers::a_test_process_killed_with_sigkill_leaves_no_broker"])
        .env(VICTIM, report)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}
