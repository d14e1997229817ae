//! A client in another language writes events to a real topic, and reads what a daemon makes of it.

use std::process::{Command, Output};
use support::accounts::{self, Follower};
use support::daemon::{Huntd, Topics};
use support::kafka;

/// Runs the Java client, whose Kafka client the tests' broker has brought along.
fn java(arguments: &[&str]) -> Output {
    Command::new("java")
        .args(["-cp", &kafka::class_path(), "docs/clients/Huntd.java"])
        .args(arguments)
        .output()
        .expect("java is there: the broker runs on it")
}

fn assert_ok(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8(output.stdout.clone()).expect("text")
}

#[test]
fn the_java_client_writes_events_that_count_also_after_a_restart_and_reads_each_update_once() {
    let topics = Topics::create(kafka::shared(), "java-client", 2);
    let brokers = kafka::shared().bootstrap();
    let write = || assert_ok(&java(&["write", &brokers, &topics.input, "1"]));
    write();
    let settings = &[("publish", "format = \"binary\"")];
    let mut huntd = Huntd::start(kafka::shared(), &topics, settings);
    let mut follower = Follower::new(kafka::shared(), &topics);
    accounts::wait_until_covered(kafka::shared(), &topics, &mut follower, &mut huntd);
    // The client starts again, and its seq goes on: a second join is refused, not ignored.
    write();
    accounts::wait_until_covered(kafka::shared(), &topics, &mut follower, &mut huntd);
    assert_eq!(huntd.metric("huntd_events_no_op_total"), 0);
    let ended = huntd.stop();
    assert!(ended.status.success(), "{}", ended.log);

    let read = assert_ok(&java(&["read", &brokers, &topics.output]));
    let stories = follower.into_stories();
    let updates: Vec<String> = (0..)
        .zip(&stories)
        .flat_map(|(partition, story)| {
            let numbered = (0..).zip(&story.updates);
            numbered.map(move |(number, update): (u64, _)| {
                let (kind, player) = (update.words()[2] & 0xff, update.player_id());
                format!("{partition} {number} kind {kind} player {player}")
            })
        })
        .collect();
    assert!(updates.len() >= 6, "{updates:?}");
    let mut lines: Vec<&str> = read.lines().collect();
    lines.sort_unstable();
    let mut expected: Vec<&str> = updates.iter().map(String::as_str).collect();
    expected.sort_unstable();
    assert_eq!(lines, expected);
}
