//! Older brokers that docs/OPERATIONS.md names: the whole path on each of them, and what the data
//! plane has to cope with.

use crate::damage::a_damaged_batch_halts_its_partition_with_the_offset_and_the_others_go_on;
use crate::data_plane::{assert_aborted_records_are_left_out, assert_every_codec_is_read};
use crate::players::{events, produce};
use crate::recreated::assert_a_sleeper_halts;
use crate::verbs::huntd;
use crate::wire_faults::Proxied;
use std::time::Instant;
use support::PATIENCE;
use support::accounts::{self, Follower};
use support::daemon::{Huntd, Topics};
use support::kafka::{Cluster, Options};
use support::needs;

/// Plays, is killed, and goes on, on a broker of this version.
fn assert_plays_on(version: &'static str) {
    if !needs::has_minutes() {
        return;
    }
    let document = include_str!("../../docs/OPERATIONS.md");
    let (major_and_minor, _) = version.rsplit_once('.').expect("three numbers");
    assert!(document.contains(&format!("Kafka {major_and_minor}")), "{version} is not documented");
    let options = Options { version, ..Options::for_tests() };
    let (mut cluster, places) = Proxied::cluster(options, &["PROXIED"]);
    assert_creates_topics(&cluster);
    assert_goes_on_after_a_kill(&cluster);
    assert_every_codec_is_read(&cluster);
    assert_aborted_records_are_left_out(&cluster);
    Proxied::of(&cluster, places[0]).assert_flips_cost_nothing();
    assert_a_replaced_topic_is_noticed(&cluster);
    a_damaged_batch_halts_its_partition_with_the_offset_and_the_others_go_on(&mut cluster);
}

fn assert_goes_on_after_a_kill(cluster: &Cluster) {
    let topics = Topics::create(cluster, "versions", 2);
    let mut follower = Follower::new(cluster, &topics);
    produce(cluster, &topics, &events(2, 20, 1..=30));
    produce(cluster, &topics, &[(1, "no event".to_owned())]);
    let mut huntd = Huntd::start(cluster, &topics, &[]);
    accounts::wait_until_covered(cluster, &topics, &mut follower, &mut huntd);
    huntd.kill9();
    produce(cluster, &topics, &events(2, 20, 31..=60));
    let mut huntd = Huntd::start(cluster, &topics, &[("publish", "format = \"binary\"")]);
    accounts::wait_until_covered(cluster, &topics, &mut follower, &mut huntd);
    let ended = huntd.stop();
    assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
    assert!(!cluster.client().consume(&topics.dead_letters, 0).is_empty());
    accounts::assert_is_the_replay(cluster, &topics, follower);
}

fn assert_a_replaced_topic_is_noticed(cluster: &Cluster) {
    let topics = Topics::create(cluster, "replaced", 1);
    produce(cluster, &topics, &events(1, 20, 1..=30));
    let mut huntd = Huntd::start(cluster, &topics, &[]);
    let mut follower = Follower::new(cluster, &topics);
    accounts::wait_until_covered(cluster, &topics, &mut follower, &mut huntd);
    assert_a_sleeper_halts(cluster, &topics, huntd);
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
fn brokers_of_3_3_are_read_and_written_like_new_ones() {
    assert_plays_on("3.3.2");
}

#[test]
fn brokers_of_3_9_are_read_and_written_like_new_ones() {
    assert_plays_on("3.9.1");
}
