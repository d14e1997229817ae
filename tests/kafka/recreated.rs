//! The input is deleted and created again under its name: offsets that fit by chance mean nothing.
//! Or the output is: readers are at places that mean nothing.
//! Or it gets more partitions: players may belong to other zones now.

use crate::players::{events, produce};
use crate::restarts::wait_until_owned;
use crate::snapshots::{assert_halts, poison, published, settings, start, start_offsets, stop};
use std::time::Duration;
use support::accounts::{self, Follower, read};
use support::daemon::{Huntd, Topics};
use support::kafka::{self, Cluster};
use support::scrape::get;
use support::serving::Serving;

/// An event without a `seq`.
const LOOT: &str = r#"{"type":"loot","player_id":1}"#;

/// Deletes the input and creates it again, with more records than it had before.
fn create_again(cluster: &Cluster, topics: &Topics) {
    let client = cluster.client();
    client.delete_topic(&topics.input);
    client.create_topic(&topics.input, topics.partitions, &[("retention.ms", "-1")]);
    produce(cluster, topics, &events(1, 20, 1..=35));
}

#[test]
fn a_snapshot_of_the_input_before_is_no_start_and_genesis_begins_with_the_new_input() {
    let (topics, folder) = published("created-again", 30);
    poison(&topics, folder.path(), 450);
    create_again(kafka::shared(), &topics);
    assert_halts(&topics, &settings(folder.path()), "its offsets mean other records now");

    let before = read(kafka::shared(), &topics, 0);
    let mut follower = Follower::new(kafka::shared(), &topics);
    let mut huntd = start(&topics, &settings(folder.path()), &["--genesis"]);
    accounts::wait_until_covered(kafka::shared(), &topics, &mut follower, &mut huntd);
    // The record that is at the offset of a poisonous one now is an event like any other.
    assert_eq!(huntd.metric("huntd_records_rejected_total"), 0);
    assert_eq!(start_offsets(&stop(huntd)), [0]);
    let after = read(kafka::shared(), &topics, 0);
    assert_eq!(after.updates[..before.updates.len()], before.updates);
    assert!(after.updates.len() > before.updates.len());

    // From then on it is a shard like any other.
    produce(kafka::shared(), &topics, &events(1, 20, 36..=37));
    let mut huntd = start(&topics, &settings(folder.path()), &[]);
    accounts::wait_until_covered(kafka::shared(), &topics, &mut follower, &mut huntd);
    assert_eq!(start_offsets(&stop(huntd)), [700]);
}

#[test]
fn a_running_daemon_halts_when_its_input_is_another_one() {
    let (topics, folder) = published("created-again-meanwhile", 30);
    let mut huntd = start(&topics, &settings(folder.path()), &[]);
    huntd.wait_until("the shard is live", |huntd| huntd.log().contains("\"live\""));
    let before = read(kafka::shared(), &topics, 0);
    create_again(kafka::shared(), &topics);
    let ended = huntd.stop_halted();
    assert!(ended.log.contains("the input topic was deleted and created again"), "{}", ended.log);
    assert!(
        read(kafka::shared(), &topics, 0) == before,
        "something of the new input was published"
    );
}

#[test]
fn a_daemon_that_slept_while_its_input_was_replaced_halts_before_it_applies_a_record() {
    let (topics, folder) = published("created-again-asleep", 30);
    let mut huntd = start(&topics, &settings(folder.path()), &[]);
    huntd.wait_until("the shard is live", |huntd| huntd.log().contains("\"live\""));
    assert_a_sleeper_halts(kafka::shared(), &topics, huntd);
}

/// A daemon sleeps while no Fetch of it is under way, so no broker can tell it by an error that the
/// topic went away. When it wakes, its offsets exist again and mean other records.
pub(crate) fn assert_a_sleeper_halts(cluster: &Cluster, topics: &Topics, huntd: Huntd) {
    let before = read(cluster, topics, 0);
    assert!(before.next_offset < 700, "the new topic has no more records");
    huntd.sleep_between_fetches();
    create_again(cluster, topics);
    huntd.signal("CONT");
    let ended = huntd.stop_halted();
    assert!(ended.log.contains("the input topic was deleted and created again"), "{}", ended.log);
    assert!(read(cluster, topics, 0) == before, "something of the new input was published");
}

/// Deletes the output and creates it again.
fn create_output_again(topics: &Topics) {
    let client = kafka::shared().client();
    client.delete_topic(&topics.output);
    client.create_topic(&topics.output, topics.partitions, &[("retention.ms", "-1")]);
}

#[test]
fn an_output_that_was_created_again_gets_no_update_before_the_operator_has_said_so() {
    let (topics, folder) = published("output-again", 30);
    let before = read(kafka::shared(), &topics, 0).updates;
    create_output_again(&topics);
    let sentence = format!("the output holds none of the {} updates", before.len());
    assert_halts(&topics, &settings(folder.path()), &sentence);
    assert!(read(kafka::shared(), &topics, 0).updates.is_empty());

    let mut follower = Follower::new(kafka::shared(), &topics);
    let mut huntd = start(&topics, &settings(folder.path()), &["--genesis"]);
    accounts::wait_until_covered(kafka::shared(), &topics, &mut follower, &mut huntd);
    assert_eq!(start_offsets(&stop(huntd)), [0]);
    assert!(read(kafka::shared(), &topics, 0).updates == before, "the input is whole");

    // From then on it is a shard like any other.
    produce(kafka::shared(), &topics, &events(1, 20, 31..=32));
    let mut huntd = start(&topics, &settings(folder.path()), &[]);
    accounts::wait_until_covered(kafka::shared(), &topics, &mut follower, &mut huntd);
    assert_eq!(start_offsets(&stop(huntd)), [600]);
}

#[test]
fn a_running_daemon_halts_when_its_output_is_another_one() {
    let topics = Topics::create(kafka::shared(), "output-again-meanwhile", 2);
    produce(kafka::shared(), &topics, &events(2, 20, 1..=30));
    let mut huntd = start(&topics, &[], &[]);
    let mut follower = Follower::new(kafka::shared(), &topics);
    accounts::wait_until_covered(kafka::shared(), &topics, &mut follower, &mut huntd);
    // The topics' ids are known once they were looked for, on a busy machine too.
    std::thread::sleep(Duration::from_secs(3));
    create_output_again(&topics);
    huntd.wait_until_halted(2);
    let ended = huntd.stop();
    assert_eq!(ended.status.code(), Some(10), "{}", ended.log);
    let sentences = [
        format!("the topic `{}` was deleted and created again", topics.output),
        "the output topic was deleted and created again, and a reader".to_owned(),
    ];
    for sentence in sentences {
        assert!(ended.log.contains(&sentence), "`{sentence}` is not in: {}", ended.log);
    }

    let mut huntd = start(&topics, &[], &["--genesis"]);
    let mut follower = Follower::new(kafka::shared(), &topics);
    accounts::wait_until_covered(kafka::shared(), &topics, &mut follower, &mut huntd);
    stop(huntd);
    accounts::assert_is_the_replay(kafka::shared(), &topics, follower);
}

#[test]
fn a_view_whose_topics_were_created_again_while_it_slept_halts_instead_of_reading_on() {
    let client = kafka::shared().client();
    let topics = Topics::create(kafka::shared(), "created-again-under-a-view", 1);
    produce(kafka::shared(), &topics, &events(1, 20, 1..=10));
    let mut huntd = start(&topics, &[], &[]);
    huntd.wait_for_address();
    let serving = Serving::start(&huntd);
    serving.body_at(&client.ends(&topics.input, 1), "/v1/zones");
    serving.freeze();
    stop(huntd);
    let before = client.ends(&topics.output, 1)[0];
    create_again(kafka::shared(), &topics);
    create_output_again(&topics);
    let mut huntd = start(&topics, &[], &["--genesis"]);
    let mut rounds = 36..;
    huntd.wait_until("an output that is longer than before", |_| {
        let round = rounds.next().expect("there are more");
        produce(kafka::shared(), &topics, &events(1, 20, round..=round));
        client.ends(&topics.output, 1)[0] > before + 10
    });
    serving.thaw();
    serving.wait_for("the output topic was deleted and created again; restart huntd serve");
    let (code, text) = get(serving.address(), "/readyz");
    assert!(code == 503 && text.contains("all zones are halted"), "{code} {text}");
    let (_, zones) = get(serving.address(), "/v1/zones");
    assert!(zones.contains("\"state\":\"halted\""), "{zones}");
    let (status, answer) = serving.post("/v1/events?zone=0", LOOT);
    assert!(status == "503" && answer.contains("restart huntd serve"), "{status} {answer}");
    // It does as it says.
    drop(serving);
    let serving = Serving::start(&huntd);
    serving.body_at(&client.ends(&topics.input, 1), "/v1/zones");
    stop(huntd);
}

#[test]
fn events_are_posted_to_no_input_that_was_created_again_before_the_zone_starts_over() {
    let client = kafka::shared().client();
    let (topics, folder) = published("created-again-under-posts", 10);
    let settings = settings(folder.path());
    let mut huntd = start(&topics, &settings, &[]);
    huntd.wait_for_address();
    let serving = Serving::start(&huntd);
    serving.body_at(&client.ends(&topics.input, 1), "/v1/zones");
    let post = || serving.post("/v1/events?zone=0", LOOT);
    assert_eq!(post().0, "200");
    create_again(kafka::shared(), &topics);
    serving.wait_for("no events are taken for the zone");
    huntd.stop_halted();
    let before = client.ends(&topics.input, 1);
    let (status, answer) = post();
    assert!(status == "503" && answer.contains("no event was appended"), "{status} {answer}");
    assert_eq!(client.ends(&topics.input, 1), before);

    let mut huntd = start(&topics, &settings, &["--genesis"]);
    huntd.wait_for_address();
    serving.wait_for("the zone is played from the present input topic");
    assert_eq!(post().0, "200");
    stop(huntd);
}

#[test]
fn a_view_that_was_stopped_while_its_output_was_created_again_takes_no_snapshot_of_the_old_one() {
    let client = kafka::shared().client();
    let (topics, folder) = published("output-again-under-no-view", 10);
    let old = client.ends(&topics.output, 1)[0];
    create_output_again(&topics);
    let other = tempfile::tempdir().expect("a temporary folder");
    let mut huntd = start(&topics, &settings(other.path()), &["--genesis"]);
    let mut rounds = 11..;
    huntd.wait_until("an output that is longer than before", |_| {
        let round = rounds.next().expect("there are more");
        produce(kafka::shared(), &topics, &events(1, 20, round..=round));
        client.ends(&topics.output, 1)[0] > old + 10
    });
    let its_snapshots = folder.path().display().to_string();
    let environment = [("HUNTD_SNAPSHOT__DIRECTORY", its_snapshots.as_str())];
    let serving = Serving::start_at(&huntd, "127.0.0.1:0", &environment);
    serving.wait_for("began with a snapshot");
    let zones = serving.body_at(&client.ends(&topics.input, 1), "/v1/zones");
    assert!(zones.contains("\"state\":\"live\"") && zones.contains("\"players\":20"), "{zones}");
    stop(huntd);
}

/// Two instances of a group of this protocol, each with a partition, and what they have published.
fn two_instances(protocol: &str) -> (Topics, [Huntd; 2]) {
    let topics = Topics::create(kafka::shared(), "more-partitions", 2);
    produce(kafka::shared(), &topics, &events(2, 20, 1..=10));
    let protocol = format!("group_protocol = \"{protocol}\"");
    let start = || Huntd::start(kafka::shared(), &topics, &[("kafka", &protocol)]);
    let mut instances = [start(), start()];
    instances.iter_mut().for_each(|huntd| wait_until_owned(huntd, 1));
    let mut follower = Follower::new(kafka::shared(), &topics);
    instances[0].wait_until("the output", |_| follower.covers(&[(0, 100), (1, 100)]));
    (topics, instances)
}

#[test]
fn partitions_that_are_added_halt_all_shards_of_every_instance() {
    let groups = ["classic", "consumer"].map(two_instances);
    for (topics, _) in &groups {
        kafka::shared().client().add_partitions(&topics.input, 3);
    }
    for huntd in groups.into_iter().flat_map(|(_, instances)| instances) {
        let ended = huntd.stop_halted();
        let sentence = "has 3 partitions instead of 2";
        assert!(ended.log.contains(sentence), "{}", ended.log);
    }
}
