//! A host that does not do what a daemon needs: its name server hangs, its limits are low.

use super::started::Started;
use crate::systemd::daemon::{cluster, produce_joins};
use std::fs::File;
use std::io::{BufRead, BufReader, PipeReader, pipe};
use std::net::{TcpListener, UdpSocket};
use std::process::{Command, Stdio};
use support::needs;

const PROGRAM: &str = env!("CARGO_BIN_EXE_huntd");

/// Reads a log until a line has these words.
fn read_until(log: PipeReader, words: &str) {
    let mut lines = BufReader::new(log).lines().map(|line| line.expect("text"));
    assert!(lines.any(|line| line.contains(words)), "the log has no {words:?}");
}

#[test]
fn a_name_server_that_hangs_keeps_no_daemon_from_answering_saying_why_and_ending() {
    // Nobody answers there: the resolver waits.
    let Ok(_silent) = UdpSocket::bind("127.0.0.153:53") else {
        needs::has("the port of name servers", false);
        return;
    };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let resolver = folder.path().join("resolv.conf");
    std::fs::write(&resolver, "nameserver 127.0.0.153\n").expect("a file");
    let mounted = "mount --bind \"$0\" /etc/resolv.conf && exec \"$@\"";
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "sh", "-c", mounted]).arg(resolver).arg(PROGRAM);
    let (log, writer) = pipe().expect("a pipe");
    let mut daemon = Started::by(unshare, "run", "broker.example.test:9092", "", writer);
    daemon.wait_until("/livez", |answer| answer.starts_with("HTTP/1.1 200 "));
    read_until(log.try_clone().expect("a descriptor"), "the name server does not answer");
    daemon.stop();
}

#[test]
fn a_start_whose_broker_says_nothing_ends_within_the_bound_of_a_drain() {
    // The kernel accepts for it.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let broker = silent.local_addr().expect("it is bound").to_string();
    let (_log, writer) = pipe().expect("a pipe");
    let mut daemon = Started::by(Command::new(PROGRAM), "run", &broker, "", writer);
    daemon.wait_until("/readyz", |answer| answer.contains("waits for a broker that answers"));
    // The broker never says anything: only the bound ends the drain.
    daemon.stop();
}

#[test]
fn a_snapshot_that_is_longer_than_files_may_be_is_an_error_in_the_log() {
    let cluster = cluster();
    let brokers = cluster.bootstrap_servers();
    produce_joins(&brokers);
    let state = tempfile::tempdir().expect("a temporary folder");
    let more = format!("[snapshot]\ndirectory = {:?}\nevery_ms = 1000\n", state.path());
    let (log, writer) = pipe().expect("a pipe");
    let mut limited = Command::new("prlimit");
    limited.args(["--fsize=4096", PROGRAM]);
    let mut daemon = Started::by(limited, "run", &brokers, &more, writer);
    daemon.wait_until_ready();
    read_until(log.try_clone().expect("a descriptor"), "was not stored: File too large");
    daemon.stop();
}

#[test]
fn output_for_which_there_is_no_room_is_no_error_of_the_command_line() {
    let full = File::options().write(true).open("/dev/full").expect("Linux has it");
    let ended = Command::new(PROGRAM)
        .args(["config"])
        .stdout(Stdio::from(full))
        .output()
        .expect("it was built");
    let error = String::from_utf8(ended.stderr).expect("text");
    assert_eq!(ended.status.code(), Some(11), "{error}");
    assert!(error.contains("No space left on device") && error.contains("make room"), "{error}");
}
