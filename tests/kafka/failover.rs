//! Three brokers, of which one at a time stops or is killed.

use crate::players::Load;
use support::accounts::{self, Follower};
use support::daemon::{Huntd, Topics};
use support::kafka::{Cluster, Options};

/// Waits until all partitions have moved on by some events.
fn wait_for_more(follower: &mut Follower, huntd: &mut Huntd) {
    let goals: Vec<(usize, i64)> =
        (0..3).map(|place| (place, follower.next_offset(place) + 300)).collect();
    huntd.wait_until("the output goes on", |_| follower.covers(&goals));
}

#[test]
fn brokers_that_stop_or_are_killed_under_load_cost_nothing_but_time() {
    let mut cluster = Cluster::start(3, &Options::for_tests());
    let topics = Topics::create(&cluster, "failover", 3);
    let load = Load::start(&cluster, &topics);
    let mut huntd = Huntd::start(&cluster, &topics, &[]);
    let mut follower = Follower::new(&cluster, &topics);
    wait_for_more(&mut follower, &mut huntd);

    cluster.broker_mut(0).kill9();
    wait_for_more(&mut follower, &mut huntd);
    cluster.broker_mut(0).restart(3);
    wait_for_more(&mut follower, &mut huntd);
    // A rolling restart: each of them is gone for a while, and the others lead its partitions.
    for number in [1, 2, 0] {
        cluster.broker_mut(number).stop();
        wait_for_more(&mut follower, &mut huntd);
        cluster.broker_mut(number).restart(3);
        wait_for_more(&mut follower, &mut huntd);
    }

    load.finish();
    accounts::wait_until_covered(&cluster, &topics, &mut follower, &mut huntd);
    let ended = huntd.stop();
    assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
    accounts::assert_is_the_replay(&cluster, &topics, follower);

    let topics = a_later_start_reads_the_log_of_several_leaders(&cluster, &topics);
    a_stop_without_any_broker_is_over_in_time(cluster, &topics);
}

/// Each change of leaders has begun an epoch in the log. To a reader that names the wrong one the
/// log looks truncated (KIP-320).
fn a_later_start_reads_the_log_of_several_leaders(cluster: &Cluster, topics: &Topics) -> Topics {
    let topics = topics.again(cluster);
    let few = "bytes_max = 16384\npartition_bytes_max = 8192";
    let mut huntd = Huntd::start(cluster, &topics, &[("fetch", few)]);
    let mut follower = Follower::new(cluster, &topics);
    accounts::wait_until_covered(cluster, &topics, &mut follower, &mut huntd);
    let ended = huntd.stop();
    assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
    accounts::assert_is_the_replay(cluster, &topics, follower);
    topics
}

/// All that it had is acknowledged, so there is nobody whom it has to wait for.
fn a_stop_without_any_broker_is_over_in_time(cluster: Cluster, topics: &Topics) {
    let mut huntd = Huntd::start(&cluster, topics, &[]);
    huntd.wait_until("it is ready", |huntd| {
        huntd.log().contains("\"address\"") && huntd.metric("huntd_ready") == 1
    });
    drop(cluster);
    huntd.stop();
}
