//! Daemons that are stopped for longer than their group session and wake up: nothing that they
//! still publish counts, and they let go of what is not theirs.

use crate::players::Load;
use crate::restarts::{wait_for_more, wait_for_new_owner, wait_until_owned};
use std::time::Duration;
use support::accounts::{self, Follower};
use support::daemon::{Huntd, Topics};
use support::kafka::{self, Cluster, Options};

#[test]
fn a_daemon_that_slept_through_its_group_session_publishes_nothing_that_counts() {
    let topics = Topics::create(kafka::shared(), "zombie", 2);
    let load = Load::start(kafka::shared(), &topics);
    let mut follower = Follower::new(kafka::shared(), &topics);
    let mut zombie = Huntd::start(kafka::shared(), &topics, &[]);
    wait_until_owned(&mut zombie, 2);
    wait_for_more(&topics, &mut follower, &mut zombie);
    for _ in 0..2 {
        let before = follower.epochs();
        zombie.signal("STOP");
        let mut heir = Huntd::start(kafka::shared(), &topics, &[]);
        wait_for_new_owner(&before, &mut follower, &mut heir);
        wait_for_more(&topics, &mut follower, &mut heir);
        let owned = follower.epochs();
        zombie.signal("CONT");
        // It is in the group again, so the partitions are shared; what it had decoded, applied and
        // handed over before is dropped by every reader, which the follower checks.
        wait_until_owned(&mut zombie, 1);
        wait_until_owned(&mut heir, 1);
        wait_for_more(&topics, &mut follower, &mut zombie);
        zombie.wait_until("a shard is its own again", |_| {
            follower.follow();
            owned.iter().zip(follower.epochs()).any(|(before, now)| *before < now)
        });
        let ended = heir.stop();
        assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
        wait_until_owned(&mut zombie, 2);
        wait_for_more(&topics, &mut follower, &mut zombie);
    }
    load.finish();
    accounts::wait_until_covered(kafka::shared(), &topics, &mut follower, &mut zombie);
    let ended = zombie.stop();
    assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
    accounts::assert_is_the_replay(kafka::shared(), &topics, follower);
}

/// Its own new membership has the id; no other process has taken it.
#[test]
fn a_daemon_with_a_fixed_id_that_slept_says_so_and_blames_nobody() {
    let topics = Topics::create(kafka::shared(), "slept", 1);
    let kafka = "group_instance_id = \"one\"\nsession_timeout_ms = 6000";
    let mut huntd = Huntd::start(kafka::shared(), &topics, &[("kafka", kafka)]);
    wait_until_owned(&mut huntd, 1);
    huntd.signal("STOP");
    std::thread::sleep(Duration::from_secs(10));
    huntd.signal("CONT");
    huntd.wait_until("it has slept", |huntd| huntd.log().contains("stood still for "));
    wait_until_owned(&mut huntd, 1);
    let ended = huntd.stop();
    assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
    for blame in ["another", "do not acknowledge"] {
        assert!(!ended.log.contains(blame), "{}", ended.log);
    }
}

/// The protocol `consumer` keeps a static member until its session ends (KIP-848): a broker cannot
/// know that the process with its id is the next one.
#[test]
fn a_killed_daemon_with_a_fixed_id_joins_a_new_group_again_once_its_session_has_ended() {
    let mut options = Options::for_tests();
    for (key, value) in [
        ("group.consumer.min.session.timeout.ms", "6000"),
        ("group.consumer.session.timeout.ms", "6000"),
        ("group.consumer.heartbeat.interval.ms", "5000"),
    ] {
        options.properties.push((key, value.to_owned()));
    }
    let cluster = Cluster::start(1, &options);
    let topics = Topics::create(&cluster, "held", 1);
    let kafka = "group_instance_id = \"one\"\ngroup_protocol = \"consumer\"";
    let mut first = Huntd::start(&cluster, &topics, &[("kafka", kafka)]);
    wait_until_owned(&mut first, 1);
    first.kill9();
    let mut second = Huntd::start(&cluster, &topics, &[("kafka", kafka)]);
    second.wait_until("the reason of its waiting", |huntd| {
        huntd.log().contains("an earlier member with the instance id `one`")
    });
    let answer = second.get("/readyz");
    assert!(answer.contains("an earlier member"), "{answer}");
    wait_until_owned(&mut second, 1);
    let ended = second.stop();
    assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
    assert!(!ended.log.contains("waiting to join the group"), "{}", ended.log);
}
