//! Brokers in racks, which name a near replica to clients that say where they are (KIP-392). A
//! leader that does so gives no records itself.

use crate::players::{events, produce};
use support::accounts::{self, Follower};
use support::daemon::{Huntd, Topics};
use support::kafka::{Cluster, Options};

/// Ids of the brokers with a replica of the input. The harness gives each a rack, by its id.
const LEADER: usize = 1;
const REPLICA: usize = 2;

#[test]
fn a_partition_is_fetched_from_the_replica_in_ones_rack_and_from_the_leader_once_that_is_gone() {
    let selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector";
    let properties = vec![("replica.selector.class", selector.to_owned())];
    let mut cluster = Cluster::start(3, &Options { properties, ..Options::for_tests() });
    let mut topics = Topics::create(&cluster, "racks", 1);
    topics.input.push_str("-near");
    let replicas = [LEADER as i32, REPLICA as i32];
    let kept = [("retention.ms", "-1")];
    cluster.client().create_replicated_topic(&topics.input, &[&replicas], &kept);
    let near_leader = topics.again(&cluster);

    produce(&cluster, &topics, &events(1, 20, 1..=10));
    let start = |topics: &Topics, broker: usize| {
        let rack = format!("rack = \"rack-{broker}\"");
        Huntd::start(&cluster, topics, &[("kafka", &rack)])
    };
    let mut huntd = start(&topics, REPLICA);
    let mut beside_leader = start(&near_leader, LEADER);
    let mut follower = Follower::new(&cluster, &topics);
    let mut follower_beside_leader = Follower::new(&cluster, &near_leader);
    accounts::wait_until_covered(&cluster, &topics, &mut follower, &mut huntd);
    let near = &mut follower_beside_leader;
    accounts::wait_until_covered(&cluster, &near_leader, near, &mut beside_leader);
    produce(&cluster, &topics, &events(1, 20, 11..=20));
    accounts::wait_until_covered(&cluster, &topics, &mut follower, &mut huntd);
    accounts::wait_until_covered(&cluster, &near_leader, near, &mut beside_leader);
    // The leader was asked for the one partition, and has named the other broker.
    assert_eq!(huntd.metric("huntd_connections_opened_total"), 2, "{}", huntd.log());
    assert_eq!(beside_leader.metric("huntd_connections_opened_total"), 1);
    let ended = beside_leader.stop();
    assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);

    cluster.broker_mut(REPLICA - 1).stop();
    produce(&cluster, &topics, &events(1, 20, 21..=30));
    accounts::wait_until_covered(&cluster, &topics, &mut follower, &mut huntd);
    let ended = huntd.stop();
    assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
    accounts::assert_is_the_replay(&cluster, &topics, follower);
}
