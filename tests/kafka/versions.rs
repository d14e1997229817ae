//! Older brokers that docs/OPERATIONS.md names: the whole path on each of them.

use crate::players::{events, produce};
use crate::verbs::huntd;
use std::time::Instant;
use support::accounts::{self, Follower};
use support::daemon::{Huntd, PATIENCE, Topics};
use support::kafka::{Cluster, Options};

/// Plays, is killed, and goes on, on a broker of this version.
fn assert_plays_on(version: &'static str) {
    let document = include_str!("../../docs/OPERATIONS.md");
    let (major_and_minor, _) = version.rsplit_once('.').expect("three numbers");
    assert!(document.contains(&format!("Kafka {major_and_minor}")), "{version} is not documented");
    let cluster = Cluster::start(1, &Options { version, ..Options::for_tests() });
    assert_creates_topics(&cluster);
    let topics = Topics::create(&cluster, "versions", 2);
    let mut follower = Follower::new(&cluster, &topics);
    produce(&cluster, &topics, &events(2, 20, 1..=30));
    produce(&cluster, &topics, &[(1, "no event".to_owned())]);
    let mut huntd = Huntd::start(&cluster, &topics, &[]);
    accounts::wait_until_covered(&cluster, &topics, &mut follower, &mut huntd);
    huntd.kill9();
    produce(&cluster, &topics, &events(2, 20, 31..=60));
    let mut huntd = Huntd::start(&cluster, &topics, &[("publish", "format = \"binary\"")]);
    accounts::wait_until_covered(&cluster, &topics, &mut follower, &mut huntd);
    let ended = huntd.stop();
    assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
    assert!(!cluster.client().consume(&topics.dead_letters, 0).is_empty());
    accounts::assert_is_the_replay(&cluster, &topics, follower);
}

/// With all settings that the broker knows.
fn assert_creates_topics(cluster: &Cluster) {
    let brokers = format!("kafka.brokers={}", cluster.bootstrap());
    let arguments = ["topics", "--config", "config/huntd.toml", "--set", &brokers];
    let created = huntd(&arguments);
    assert_eq!(created.code, 0, "{}", created.errors);
    // Not every broker knows a new topic at once.
    let begun = Instant::now();
    while huntd(&[&arguments[..], &["--check"]].concat()).code != 0 {
        assert!(begun.elapsed() < PATIENCE, "the topics are not as they were created");
    }
}

#[test]
fn the_game_is_played_and_taken_up_again_on_brokers_of_3_3() {
    assert_plays_on("3.3.2");
}

#[test]
fn the_game_is_played_and_taken_up_again_on_brokers_of_3_9() {
    assert_plays_on("3.9.1");
}
