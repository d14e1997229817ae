//! Daemons that end, in order or not, and daemons that share a group: the output stays right.

use crate::players::{Load, Pace};
use support::accounts::{self, Follower};
use support::daemon::{Huntd, Topics};
use support::kafka;

/// A static member of the group: its restart waits for no group session to end.
const STATIC: (&str, &str) = ("kafka", "group_instance_id = \"one\"");

/// Waits until the output of every partition has moved on by some events.
pub(crate) fn wait_for_more(topics: &Topics, follower: &mut Follower, huntd: &mut Huntd) {
    let goal = |place: usize| (place, follower.next_offset(place) + 200);
    let goals: Vec<(usize, i64)> = (0..topics.partitions as usize).map(goal).collect();
    huntd.wait_until("the output goes on", |_| follower.covers(&goals));
}

/// Waits until every shard was fenced once more. If no other daemon runs, this one has fenced them.
pub(crate) fn wait_for_new_owner(epochs: &[u64], follower: &mut Follower, huntd: &mut Huntd) {
    huntd.wait_until("the shards are taken over", |_| {
        follower.follow();
        epochs.iter().zip(follower.epochs()).all(|(before, now)| *before < now)
    });
}

#[test]
fn kills_and_stops_under_load_leave_an_output_without_gaps_or_repetitions() {
    let topics = Topics::create(kafka::shared(), "restarts", 4);
    let load = Load::start_at(Pace::DENSE, kafka::shared(), &topics);
    let mut follower = Follower::new(kafka::shared(), &topics);
    let mut epochs = follower.epochs();
    for round in 0..5 {
        let mut huntd = Huntd::start(kafka::shared(), &topics, &[STATIC]);
        wait_for_new_owner(&epochs, &mut follower, &mut huntd);
        wait_for_more(&topics, &mut follower, &mut huntd);
        epochs = follower.epochs();
        if round % 2 == 0 {
            huntd.kill9();
        } else {
            // Under full load, and within five seconds.
            let ended = huntd.stop();
            assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
        }
    }
    let mut huntd = Huntd::start(kafka::shared(), &topics, &[STATIC]);
    wait_for_more(&topics, &mut follower, &mut huntd);
    load.finish();
    accounts::wait_until_covered(kafka::shared(), &topics, &mut follower, &mut huntd);
    let ended = huntd.stop();
    assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
    accounts::assert_is_the_replay(kafka::shared(), &topics, follower);
}

/// Waits until a daemon owns this many partitions.
pub(crate) fn wait_until_owned(huntd: &mut Huntd, partitions: u64) {
    huntd.wait_until(&format!("{partitions} partitions owned"), |huntd| {
        huntd.log().contains("\"address\"") && huntd.metric("huntd_shards_owned") == partitions
    });
}

#[test]
fn partitions_move_between_the_daemons_of_a_classic_group_and_the_output_stays_right() {
    partitions_move("classic");
}

#[test]
fn partitions_move_between_the_daemons_of_an_eager_group_and_the_output_stays_right() {
    partitions_move("eager");
}

#[test]
fn partitions_move_between_the_daemons_of_a_new_group_and_the_output_stays_right() {
    partitions_move("consumer");
}

/// Daemons join, stop and are killed; state and update numbers go with the partitions.
fn partitions_move(protocol: &str) {
    let topics = Topics::create(kafka::shared(), protocol, 4);
    let group = format!("group_protocol = {protocol:?}");
    let folders = [0, 1, 2].map(|_| tempfile::tempdir().expect("a temporary folder"));
    let start = |place: usize| {
        let snapshot = format!("directory = {:?}\nevery_ms = 500", folders[place].path());
        let settings = [("kafka", group.as_str()), ("snapshot", snapshot.as_str())];
        Huntd::start(kafka::shared(), &topics, &settings)
    };
    let load = Load::start(kafka::shared(), &topics);
    let mut follower = Follower::new(kafka::shared(), &topics);
    let mut first = start(0);
    wait_until_owned(&mut first, 4);
    wait_for_more(&topics, &mut follower, &mut first);

    let mut second = start(1);
    wait_until_owned(&mut second, 2);
    wait_until_owned(&mut first, 2);
    wait_for_more(&topics, &mut follower, &mut second);
    let ended = first.stop();
    assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
    wait_until_owned(&mut second, 4);
    wait_for_more(&topics, &mut follower, &mut second);

    let mut third = start(2);
    wait_until_owned(&mut third, 2);
    wait_for_more(&topics, &mut follower, &mut third);
    second.kill9();
    wait_until_owned(&mut third, 4);
    load.finish();
    accounts::wait_until_covered(kafka::shared(), &topics, &mut follower, &mut third);
    let ended = third.stop();
    assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
    accounts::assert_is_the_replay(kafka::shared(), &topics, follower);
}
