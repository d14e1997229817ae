//! A byte changes on a broker's disk, or a log loses its records: the shard halts and says where,
//! the others go on.

use crate::players::{Event, events, produce};
use std::fs;
use std::path::{Path, PathBuf};
use support::accounts::{self, Follower};
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

/// Puts other records in the place of all that a partition had, as an unclean election may, while
/// its topic stays the same one.
fn replace_log(cluster: &mut Cluster, topics: &Topics, records: &[Event]) {
    cluster.broker_mut(0).stop();
    let folder = cluster[0].folder().join(format!("data/{}-0", topics.input));
    for file in fs::read_dir(&folder).expect("the partition has a folder") {
        let path = file.expect("a name").path();
        // Which topic it is.
        if path.file_name().is_some_and(|name| name != "partition.metadata") {
            fs::remove_file(path).expect("the broker has ended");
        }
    }
    cluster.broker_mut(0).restart(1);
    produce(cluster, topics, records);
}

/// A daemon whose snapshots are far apart, and one in whose stop the last one is taken.
fn start_with_snapshots(cluster: &Cluster, topics: &Topics, folder: &Path) -> Huntd {
    let snapshot = format!("directory = {folder:?}\nevery_ms = 600000");
    let settings = [("snapshot", snapshot.as_str()), ("kafka", "group_instance_id = \"one\"")];
    Huntd::start_as(cluster, topics, &settings, &[])
}

fn assert_halts(mut huntd: Huntd, words: &str) {
    huntd.wait_until("a halt", |huntd| huntd.log().contains("the shard has halted"));
    let ended = huntd.stop();
    assert_eq!(ended.status.code(), Some(10), "{}", ended.log);
    assert!(ended.log.contains(words), "`{words}` is not in: {}", ended.log);
}

/// See decision 034.
#[test]
fn a_log_that_lost_what_is_applied_while_nobody_read_it_halts_the_next_start() {
    let mut cluster = Cluster::start(1, &Options::for_tests());
    let topics = Topics::create(&cluster, "lost", 1);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut follower = Follower::new(&cluster, &topics);
    produce(&cluster, &topics, &events(1, 20, 1..=30));
    let mut huntd = start_with_snapshots(&cluster, &topics, folder.path());
    accounts::wait_until_covered(&cluster, &topics, &mut follower, &mut huntd);
    let ended = huntd.stop();
    assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
    // Published, and in no snapshot.
    let mut huntd = start_with_snapshots(&cluster, &topics, folder.path());
    produce(&cluster, &topics, &events(1, 20, 31..=40));
    accounts::wait_until_covered(&cluster, &topics, &mut follower, &mut huntd);
    huntd.kill9();

    replace_log(&mut cluster, &topics, &events(1, 30, 1..=10));
    let huntd = start_with_snapshots(&cluster, &topics, folder.path());
    assert_halts(huntd, "the input ends at offset 300");
    // The offsets exist again, and have other records than those that were published.
    produce(&cluster, &topics, &events(1, 30, 11..=40));
    let huntd = start_with_snapshots(&cluster, &topics, folder.path());
    assert_halts(huntd, "the replay differs");
    assert_eq!(follower.next_offset(0), 800);
}
