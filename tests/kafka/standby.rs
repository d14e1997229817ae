//! Copies of zones: what happens to a zone whose owner is killed, frozen, stopped or idle, while
//! the group would give it to nobody else for a minute.

use crate::players::{Load, events, produce};
use crate::restarts::{wait_for_more, wait_until_owned};
use crate::verbs;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Instant;
use support::PATIENCE;
use support::accounts::{self, Follower};
use support::daemon::{Huntd, Topics};
use support::kafka;

/// The group gives nothing of a silent member to others for a minute.
const PATIENT: &str = "session_timeout_ms = 60000";

/// The broker gives nothing of a silent member to others for 45 s.
const NEW_GROUP: &str = "group_protocol = \"consumer\"";

/// Starts two daemons that share four zones, each with a warm copy of the other's.
fn start_both(topics: &Topics, kafka: [&str; 2]) -> [Huntd; 2] {
    start_with_copies(1, topics, kafka)
}

/// Starts two daemons that share four zones, each with so many warm copies of the other's.
fn start_with_copies(copies: u64, topics: &Topics, kafka: [&str; 2]) -> [Huntd; 2] {
    let standby = format!("copies = {copies}");
    let start = |kafka| {
        Huntd::start(kafka::shared(), topics, &[("kafka", kafka), ("standby", standby.as_str())])
    };
    let mut both = kafka.map(start);
    for huntd in &mut both {
        wait_until_owned(huntd, 2);
    }
    for huntd in &mut both {
        huntd.wait_until("warm copies", |huntd| huntd.metric("huntd_copies_warm") == 2 * copies);
    }
    both
}

/// The daemon plays all zones until its copies have nothing more to do, and the output is right.
pub(crate) fn finish(load: Load, topics: &Topics, mut follower: Follower, mut huntd: Huntd) {
    load.finish();
    accounts::wait_until_covered(kafka::shared(), topics, &mut follower, &mut huntd);
    let ended = huntd.stop();
    assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
    accounts::assert_is_the_replay(kafka::shared(), topics, follower);
}

#[test]
fn a_killed_owners_zones_are_played_by_their_copies_before_the_group_notices() {
    kill_an_owner(1, PATIENT);
}

#[test]
fn without_copies_a_killed_owners_zones_are_taken_over_before_the_group_notices() {
    kill_an_owner(0, PATIENT);
}

#[test]
fn in_a_new_group_a_killed_owners_zones_are_played_by_their_copies() {
    kill_an_owner(1, NEW_GROUP);
}

#[test]
fn in_a_new_group_without_copies_a_killed_owners_zones_are_taken_over() {
    kill_an_owner(0, NEW_GROUP);
}

fn kill_an_owner(copies: u64, kafka: &str) {
    let topics = Topics::create(kafka::shared(), "killed", 4);
    let load = Load::start(kafka::shared(), &topics);
    let follower = Follower::new(kafka::shared(), &topics);
    let [first, second] = start_with_copies(copies, &topics, [kafka; 2]);
    take_over(2, second, first, (load, &topics, follower));
}

/// The owner of so many zones is killed, and the other instance takes them over by silence.
fn take_over(
    zones: u64,
    owner: Huntd,
    mut other: Huntd,
    (load, topics, mut follower): (Load, &Topics, Follower),
) {
    // An instance makes copies only of zones that it has seen grow, and it looks every 300 ms.
    for _ in 0..20 {
        wait_for_more(topics, &mut follower, &mut other);
    }
    owner.kill9();
    wait_until_owned(&mut other, 4);
    wait_for_more(topics, &mut follower, &mut other);
    assert_eq!(other.metric("huntd_takeovers_by_silence_total"), zones, "{}", other.log());
    finish(load, topics, follower, other);
}

/// The group waits for the dead until their sessions time out, and names nobody's zones meanwhile.
#[test]
fn an_instance_that_joined_after_others_had_died_takes_over_a_killed_owners_zones() {
    let topics = Topics::create(kafka::shared(), "joiners", 4);
    let load = Load::start(kafka::shared(), &topics);
    let follower = Follower::new(kafka::shared(), &topics);
    let start = || Huntd::start(kafka::shared(), &topics, &[("kafka", PATIENT)]);
    let join = || {
        let mut joiner = start();
        joiner.wait_for_address();
        joiner.wait_until("it joins", |joiner| joiner.metric("huntd_control_turns_total") > 200);
        joiner
    };
    let mut owner = start();
    wait_until_owned(&mut owner, 4);
    for _ in 0..2 {
        join().kill9();
    }
    take_over(4, owner, join(), (load, &topics, follower));
}

#[test]
fn a_frozen_owner_is_replaced_and_once_it_goes_on_it_is_fenced_and_loses_nothing() {
    let topics = Topics::create(kafka::shared(), "frozen", 4);
    let load = Load::start(kafka::shared(), &topics);
    let mut follower = Follower::new(kafka::shared(), &topics);
    let [mut first, mut second] = start_both(&topics, [PATIENT; 2]);
    second.signal("STOP");
    wait_until_owned(&mut first, 4);
    wait_for_more(&topics, &mut follower, &mut first);
    second.signal("CONT");
    second.wait_until("it is fenced", |second| {
        second.log().matches("another instance has fenced the shard").count() >= 2
    });
    // The group has never taken its zones away, so it takes them back.
    wait_until_owned(&mut second, 2);
    wait_until_owned(&mut first, 2);
    wait_for_more(&topics, &mut follower, &mut second);
    let ended = second.stop();
    assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
    wait_until_owned(&mut first, 4);
    finish(load, &topics, follower, first);
}

/// Nobody but a copy takes the place of a static member before its session times out.
#[test]
fn a_stopped_owners_copies_take_over_when_it_resigns() {
    stop_an_owner(PATIENT);
}

#[test]
fn in_a_new_group_a_stopped_owners_copies_take_over_when_it_resigns() {
    stop_an_owner(NEW_GROUP);
}

fn stop_an_owner(kafka: &str) {
    let topics = Topics::create(kafka::shared(), "resigned", 4);
    let load = Load::start(kafka::shared(), &topics);
    let mut follower = Follower::new(kafka::shared(), &topics);
    let named = ["one", "two"].map(|id| format!("group_instance_id = \"{id}\"\n{kafka}"));
    let [mut first, second] = start_both(&topics, [&named[0], &named[1]]);
    let ended = second.stop();
    assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
    wait_until_owned(&mut first, 4);
    wait_for_more(&topics, &mut follower, &mut first);
    assert_eq!(first.metric("huntd_takeovers_at_resignation_total"), 2, "{}", first.log());
    finish(load, &topics, follower, first);
}

/// What `huntd zones` prints of each zone while the group is not being rebalanced.
pub(crate) fn list_zones(huntd: &Huntd) -> Vec<Value> {
    let begun = Instant::now();
    loop {
        let (zones, warnings) = list_zones_once(huntd);
        if warnings.is_empty() {
            return zones;
        }
        assert!(warnings.contains("is being rebalanced"), "{warnings}");
        assert!(begun.elapsed() < PATIENCE, "the group is rebalanced again and again");
    }
}

/// What `huntd zones` prints of each zone, and its warnings.
fn list_zones_once(huntd: &Huntd) -> (Vec<Value>, String) {
    let ended = verbs::huntd(&["zones", "--config", &huntd.config(), "--json"]);
    assert_eq!(ended.code, 0, "{}", ended.errors);
    let parse = |line: &str| serde_json::from_str(line).expect("a line is JSON");
    (ended.output.lines().map(parse).collect(), ended.errors)
}

#[test]
fn zones_are_listed_with_their_owners_and_copies_and_with_what_is_not_published() {
    for kafka in [PATIENT, NEW_GROUP] {
        let topics = Topics::create(kafka::shared(), "listed", 4);
        let [mut first, second] = start_both(&topics, [kafka; 2]);
        let mut follower = Follower::new(kafka::shared(), &topics);
        produce(kafka::shared(), &topics, &events(4, 20, 1..=10));
        accounts::wait_until_covered(kafka::shared(), &topics, &mut follower, &mut first);
        // Ticks come, and are covered a moment later.
        first.wait_until("a list in which nothing is behind", |first| {
            list_zones(first).iter().all(|zone| zone["behind"] == 0)
        });
        let listed = list_zones(&first);
        assert_eq!(listed.len(), 4);
        let owners: BTreeSet<String> =
            listed.iter().map(|zone| zone["owner"]["member_id"].to_string()).collect();
        assert_eq!(owners.len(), 2, "{listed:?}");
        for (number, zone) in listed.iter().enumerate() {
            assert_eq!(zone["zone"], number);
            assert!(zone["owner_epoch"].as_u64() >= Some(1), "{zone}");
            let copies = zone["copies"].as_array().expect("a list");
            assert_eq!(copies.len(), 1, "{zone}");
            assert!(copies[0] != zone["owner"] && copies[0]["host"] == "127.0.0.1", "{zone}");
            assert!(zone["published_ms_ago"].as_u64().is_some(), "{zone}");
        }
        let ended = second.stop();
        assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
        wait_until_owned(&mut first, 4);
        first.wait_until("one owner, and nobody who could keep a copy", |first| {
            let listed = list_zones(first);
            listed.iter().all(|it| it["owner"] == listed[0]["owner"] && it["copies"] == json!([]))
        });
        first.sleep_between_fetches();
        produce(kafka::shared(), &topics, &events(4, 20, 11..=20));
        // The group may have removed the sleeping member by now.
        let (zones, _) = list_zones_once(&first);
        let behind: i64 = zones.iter().filter_map(|zone| zone["behind"].as_i64()).sum();
        assert!(behind >= 200, "{behind}");
        first.signal("CONT");
        accounts::wait_until_covered(kafka::shared(), &topics, &mut follower, &mut first);
        let ended = first.stop();
        assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
        accounts::assert_is_the_replay(kafka::shared(), &topics, follower);
    }
}

#[test]
fn zones_of_another_group_or_output_are_not_listed_as_if_they_were_these() {
    let topics = Topics::create(kafka::shared(), "listed", 4);
    let others = Topics::create(kafka::shared(), "unlisted", 1);
    let mut huntd = Huntd::start(kafka::shared(), &topics, &[]);
    wait_until_owned(&mut huntd, 4);
    let config = std::fs::read_to_string(huntd.config()).expect("the file is there");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let list_with = |key: &str, name: &str, other: &str| {
        let path = folder.path().join("huntd.toml");
        let [line, changed] = [name, other].map(|value| format!("{key} = \"{value}\""));
        assert!(config.contains(&line), "{config}");
        std::fs::write(&path, config.replace(&line, &changed)).expect("the file is written");
        verbs::huntd(&["zones", "--config", path.to_str().expect("the path is text")])
    };
    let listed = list_with("group", topics.group(), others.group());
    assert_eq!(listed.code, 0, "{}", listed.errors);
    assert!(listed.errors.contains("has no members"), "{}", listed.errors);
    let refused = list_with("output_topic", &topics.output, &others.output);
    assert_ne!(refused.code, 0, "{}", refused.output);
    assert!(refused.errors.contains("they must be equal"), "{}", refused.errors);
    huntd.stop();
}

/// An owner repeats its fence every ten seconds, and says nothing else without input.
#[test]
fn an_idle_zone_is_not_taken() {
    let topics = Topics::create(kafka::shared(), "idle", 4);
    produce(kafka::shared(), &topics, &events(4, 20, 1..=10));
    let mut follower = Follower::new(kafka::shared(), &topics);
    let [mut first, mut second] = start_both(&topics, [PATIENT; 2]);
    accounts::wait_until_covered(kafka::shared(), &topics, &mut follower, &mut first);
    let probes = |huntd: &Huntd| huntd.metric("huntd_probes_total");
    let before = [probes(&first), probes(&second)];
    for huntd in [&mut first, &mut second] {
        let sent = huntd.metric("huntd_frames_sent_total");
        huntd.wait_until("repeated fences", |huntd| {
            huntd.metric("huntd_frames_sent_total") >= sent + 4
        });
    }
    assert_eq!([probes(&first), probes(&second)], before);
    produce(kafka::shared(), &topics, &events(4, 20, 11..=20));
    accounts::wait_until_covered(kafka::shared(), &topics, &mut follower, &mut first);
    for huntd in [&first, &second] {
        assert_eq!(huntd.metric("huntd_shards_owned"), 2, "{}", huntd.log());
    }
    for huntd in [first, second] {
        let ended = huntd.stop();
        assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
    }
    accounts::assert_is_the_replay(kafka::shared(), &topics, follower);
}
