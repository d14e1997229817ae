//! Zones that the operator assigns to instances, without a consumer group.

use crate::exits;
use crate::players::Load;
use crate::restarts::{wait_for_more, wait_until_owned};
use crate::standby::{finish, list_zones};
use support::accounts::Follower;
use support::daemon::{Huntd, Topics};
use support::kafka;

/// An instance and its zones are listed for all three.
const ASSIGNMENT: &str = "assignment = [\"one: 0-1\", \"two: 2 3\", \"spare:\"]\n";

/// Starts one of the instances.
fn start(topics: &Topics, name: &str, copies: u32) -> Huntd {
    let kafka = format!("{ASSIGNMENT}group_instance_id = \"{name}\"");
    let standby = format!("copies = {copies}");
    Huntd::start(kafka::shared(), topics, &[("kafka", &kafka), ("standby", &standby)])
}

/// Starts all three. Each zone has a warm copy.
fn start_all(topics: &Topics) -> [Huntd; 3] {
    let mut all = ["one", "two", "spare"].map(|name| start(topics, name, 1));
    for (huntd, zones) in all.iter_mut().zip([2, 2, 0]) {
        wait_until_owned(huntd, zones);
    }
    let [one, two, spare] = &mut all;
    spare.wait_until("warm copies", |spare| {
        let warm = |huntd: &Huntd| huntd.metric("huntd_copies_warm");
        [&*one, &*two, spare].map(warm).iter().sum::<u64>() == 4
    });
    all
}

#[test]
fn instances_play_the_zones_that_the_operator_assigns_to_them_and_copies_take_the_rest_over() {
    let topics = Topics::create(kafka::shared(), "assigned", 4);
    let load = Load::start(kafka::shared(), &topics);
    let mut follower = Follower::new(kafka::shared(), &topics);
    let [one, two, mut spare] = start_all(&topics);
    let owners: Vec<_> =
        list_zones(&spare).iter().map(|zone| zone["owner"]["member_id"].clone()).collect();
    assert_eq!(owners, ["one", "one", "two", "two"]);
    // A copy that is warm takes over at the resignation.
    let ended = two.stop();
    assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
    wait_for_more(&topics, &mut follower, &mut spare);
    // Who has just begun takes back what is its own.
    let mut two = start(&topics, "two", 1);
    wait_until_owned(&mut two, 2);
    wait_until_owned(&mut spare, 0);
    wait_for_more(&topics, &mut follower, &mut two);
    // The one that is left takes over even what it has no copy of.
    one.kill9();
    two.kill9();
    wait_until_owned(&mut spare, 4);
    wait_for_more(&topics, &mut follower, &mut spare);
    let client = kafka::shared().client();
    let ends = client.ends(&topics.input, topics.partitions);
    spare.wait_until("commits for lag tools", |_| {
        let committed = client.committed(topics.group(), &topics.input, topics.partitions);
        committed.iter().zip(&ends).all(|(committed, end)| committed >= end)
    });
    finish(load, &topics, follower, spare);
}

#[test]
fn without_copies_an_instance_takes_over_the_zones_of_one_that_is_killed() {
    let topics = Topics::create(kafka::shared(), "unassigned", 4);
    let load = Load::start(kafka::shared(), &topics);
    let mut follower = Follower::new(kafka::shared(), &topics);
    let [mut one, mut two] = ["one", "two"].map(|name| start(&topics, name, 0));
    for huntd in [&mut one, &mut two] {
        wait_until_owned(huntd, 2);
    }
    two.kill9();
    wait_until_owned(&mut one, 4);
    wait_for_more(&topics, &mut follower, &mut one);
    finish(load, &topics, follower, one);
}

#[test]
fn a_zone_that_is_assigned_and_does_not_exist_ends_the_daemon_with_code_5() {
    let topics = Topics::create(kafka::shared(), "unzoned", 2);
    let words = "kafka.assignment names zone 3, and the topic";
    exits::assert_ends(start(&topics, "one", 0), 5, words);
}

#[test]
fn an_instance_that_is_not_in_the_list_ends_with_code_3() {
    let topics = Topics::create(kafka::shared(), "unlisted", 4);
    let words = "kafka.assignment has no line for this instance, kafka.group_instance_id `four`";
    exits::assert_ends(start(&topics, "four", 0), 3, words);
}
