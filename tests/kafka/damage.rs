//! A byte changes on a broker's disk: the shard halts and says where, the others go on.

use crate::players::{events, produce};
use std::fs;
use std::path::PathBuf;
use support::accounts::Follower;
use support::daemon::{Huntd, Topics};
use support::kafka::{Cluster, Options};

/// Changes one byte of the last record of a partition.
fn damage(cluster: &Cluster, topic: &str, partition: i32) {
    let folder = cluster[0].folder().join(format!("data/{topic}-{partition}"));
    let segment: PathBuf = folder.join("00000000000000000000.log");
    let mut bytes = fs::read(&segment).expect("the partition's segment is there");
    let place = bytes.len() - 20;
    bytes[place] ^= 0x40;
    fs::write(&segment, bytes).expect("the segment can be written");
}

#[test]
fn a_damaged_batch_halts_its_partition_with_the_offset_and_the_others_go_on() {
    let mut cluster = Cluster::start(1, &Options::for_tests());
    let topics = Topics::create(&cluster, "damage", 2);
    produce(&cluster, &topics, &events(2, 10, 1..=10));
    cluster.broker_mut(0).stop();
    cluster.broker_mut(0).restart(1);
    // A later batch, so that there is something before the damage.
    produce(&cluster, &topics, &events(2, 10, 11..=12));
    cluster.broker_mut(0).stop();
    damage(&cluster, &topics.input, 0);
    cluster.broker_mut(0).restart(1);

    let mut huntd = Huntd::start(&cluster, &topics, &[]);
    let mut follower = Follower::new(&cluster, &topics);
    huntd.wait_until("the shard halts", |huntd| huntd.log().contains("the shard has halted"));
    produce(&cluster, &topics, &events(2, 10, 13..=20));
    huntd.wait_until("the other shard goes on", |_| follower.covers(&[(1, 100)]));
    huntd.wait_until("what is before the damage is applied", |_| follower.covers(&[(0, 50)]));
    assert_eq!(follower.next_offset(0), 50, "nothing was skipped");
    assert!(huntd.get("/readyz").starts_with("HTTP/1.1 503"), "{}", huntd.get("/readyz"));
    assert_eq!(huntd.metric("huntd_shards_halted"), 1);
    let ended = huntd.stop();
    assert_eq!(ended.status.code(), Some(10), "{}", ended.log);
    let line = ended.log.lines().find(|line| line.contains("the shard has halted"));
    let line = line.expect("it was waited for");
    assert!(line.contains("offset 50") && line.contains("CRC-32C"), "{line}");
}
