//! A log that nobody reads: the programs go on, and end when they are asked to.

use super::started::Started;
use crate::systemd::daemon::cluster;
use rustix::process::Signal;
use std::io::{BufRead, BufReader, PipeReader, Write, pipe};
use std::process::Command;

/// Bytes that a pipe holds unless it is told otherwise (pipe(7)).
const PIPE_BYTES: usize = 65_536;

/// A program whose log is a full pipe, and the end of the pipe that nobody reads.
fn start_unread(verb: &str, brokers: &str, more: &str) -> (Started, PipeReader) {
    let (log, mut writer) = pipe().expect("a pipe");
    writer.write_all(&[b'\n'; PIPE_BYTES]).expect("it has room for that");
    let program = Command::new(env!("CARGO_BIN_EXE_huntd"));
    (Started::by(program, verb, brokers, more, writer), log)
}

#[test]
fn a_daemon_whose_log_nobody_reads_becomes_ready_and_ends_when_it_is_asked_to() {
    let cluster = cluster();
    let (mut daemon, _log) = start_unread("run", &cluster.bootstrap_servers(), "");
    daemon.wait_until_ready();
    daemon.signal(Signal::HUP);
    daemon.wait_until_ready();
    daemon.stop();
}

#[test]
fn lost_log_lines_are_counted_and_the_log_says_how_many_once_it_is_read_again() {
    let cluster = cluster();
    let brokers = cluster.bootstrap_servers();
    let (mut daemon, log) = start_unread("run", &brokers, "");
    daemon.wait_until_ready();
    // Each reload is a line.
    daemon.signal_until(Signal::HUP, "/metrics", |metrics| {
        let mut lines = metrics.lines();
        let lost = lines.find_map(|line| line.strip_prefix("huntd_log_lines_lost_total "));
        lost.expect("it is exported") != "0"
    });
    let unread = log.try_clone().expect("a descriptor");
    let mut lines = BufReader::new(log).lines().map(|line| line.expect("text"));
    assert!(lines.any(|line| line.contains("log lines are lost") && line.contains(" lost=")));
    drop(lines);
    daemon.stop();
    drop(unread);
}

#[test]
fn a_server_whose_log_nobody_reads_answers_and_ends_when_it_is_asked_to() {
    let cluster = cluster();
    let (mut server, _log) = start_unread("serve", &cluster.bootstrap_servers(), "");
    server.wait_until_ready();
    for _ in 0..2 {
        server.signal(Signal::HUP);
        server.wait_until("/v1/zones", |answer| answer.starts_with("HTTP/1.1 200 "));
    }
    server.stop();
}
