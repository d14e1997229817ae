//! A byte changes on a broker's disk, or a log loses its records: the shard halts and says where,
//! the others go on.

use crate::outages::in_turn;
use crate::players::{Event, events, produce};
use crate::snapshots::stop;
use crate::verbs::{self, Ended};
use rdkafka::message::{Headers, Message};
use std::fs;
use std::path::{Path, PathBuf};
use support::accounts::{self, Follower, logged_digest, read};
use support::daemon::{Huntd, Topics};
use support::kafka::{Cluster, Options};
use support::scrape::Page;
use tempfile::TempDir;

/// Changes one byte of the last record of a partition, on the broker's disk.
fn damage(cluster: &mut Cluster, topic: &str, partition: i32) {
    cluster.broker_mut(0).stop();
    damage_file(cluster, topic, partition);
    cluster.broker_mut(0).restart(1);
}

fn damage_file(cluster: &Cluster, topic: &str, partition: i32) {
    let folder = cluster[0].folder().join(format!("data/{topic}-{partition}"));
    let segment: PathBuf = folder.join("00000000000000000000.log");
    let mut bytes = fs::read(&segment).expect("the partition's segment is there");
    let place = bytes.len() - 20;
    bytes[place] ^= 0x40;
    fs::write(&segment, bytes).expect("the segment can be written");
}

#[test]
fn a_log_that_is_damaged_or_lost_its_end_halts_its_shard() {
    let cluster = &mut Cluster::start(1, &Options::for_tests());
    in_turn(
        cluster,
        a_log_that_lost_what_no_snapshot_has_while_nobody_read_it_halts_the_next_start,
    );
    in_turn(cluster, a_log_that_lost_what_a_snapshot_has_while_nobody_read_it_halts_the_next_start);
    in_turn(cluster, a_damaged_batch_halts_its_partition_with_the_offset_and_the_others_go_on);
    in_turn(cluster, a_log_that_loses_its_end_while_it_is_read_halts_its_shard);
}

pub(crate) fn a_damaged_batch_halts_its_partition_with_the_offset_and_the_others_go_on(
    cluster: &mut Cluster,
) {
    let topics = Topics::create(cluster, "damage", 2);
    produce(cluster, &topics, &events(2, 10, 1..=10));
    // A later batch, so that there is something before the damage.
    produce(cluster, &topics, &events(2, 10, 11..=12));
    damage(cluster, &topics.input, 0);

    let mut huntd = Huntd::start(cluster, &topics, &[]);
    let mut follower = Follower::new(cluster, &topics);
    huntd.wait_until_halted(1);
    produce(cluster, &topics, &events(2, 10, 13..=20));
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
    let (_, remedy) = line.split_once("`huntd run --skip 0:50`").expect("the remedy");
    assert!(remedy.contains("skips the offsets 50 to 59"), "{line}");

    // The operator skips it. Later starts need no option for that.
    let mut huntd = Huntd::start_as(cluster, &topics, &[], &["--skip", "0:50"]);
    accounts::wait_until_covered(cluster, &topics, &mut follower, &mut huntd);
    let rejected = "huntd_records_rejected_total";
    let page = Page::of(&huntd.address());
    let unreadable: Vec<_> = page.samples(rejected).filter(|(_, count)| *count > 0).collect();
    assert_eq!(unreadable, [("partition=\"0\",reason=\"unreadable_batch\"", 1)]);
    let log = stop(huntd);
    assert!(log.contains("the offsets 50 to 59 are skipped: the batch at offset 50"), "{log}");
    let digest = logged_digest(&log, 0);
    let mut huntd = Huntd::start(cluster, &topics, &[]);
    huntd.wait_until("the shards", |huntd| huntd.log().matches("\"live\"").count() == 2);
    assert_eq!(logged_digest(&stop(huntd), 0), digest);
    assert_eq!(read(cluster, &topics, 0), follower.into_stories().remove(0));

    // A replay of what follows would be another game.
    let bootstrap = cluster.bootstrap();
    let replay = ["replay", "--brokers", &bootstrap, "--topic", &topics.input];
    for skip in [vec![], vec!["--skip", "0:50"]] {
        let Ended { code, errors, .. } = verbs::huntd(&[&replay[..], &skip].concat());
        assert_eq!(code, 9, "{errors}");
        assert!(errors.contains("cannot be read"), "{errors}");
    }

    let letters = cluster.client().consume(&topics.dead_letters, 0);
    let letter = letters.first().expect("a letter for each start");
    assert_eq!(letter.payload(), None);
    let header = |name: &str| {
        let headers = letter.headers().expect("letters have headers");
        let found = headers.iter().find(|header| header.key == name).and_then(|found| found.value);
        String::from_utf8_lossy(found.expect("the letter says so")).into_owned()
    };
    assert_eq!(header("huntd.reason"), "unreadable_batch");
    assert_eq!(header("huntd.offset"), "50");
    let sentence = header("huntd.sentence");
    assert!(sentence.contains("50 to 59") && sentence.contains("CRC-32C"), "{sentence}");
}

/// A copy of the files of a partition's log.
pub(crate) struct LogCopy {
    files: TempDir,
}

impl LogCopy {
    /// A copy of what the log has now.
    pub(crate) fn of(cluster: &mut Cluster, topics: &Topics) -> LogCopy {
        cluster.broker_mut(0).stop();
        let files = tempfile::tempdir().expect("a temporary folder");
        copy_files(&log_folder(cluster, topics), files.path());
        cluster.broker_mut(0).restart(1);
        LogCopy { files }
    }

    /// The log is the copy again, as after the election of a replica that lacks what came later:
    /// what was acknowledged is lost. Then it gets other records.
    pub(crate) fn put_back(&self, cluster: &mut Cluster, topics: &Topics, records: &[Event]) {
        cluster.broker_mut(0).stop();
        let folder = log_folder(cluster, topics);
        for file in fs::read_dir(&folder).expect("the partition has a folder") {
            fs::remove_file(file.expect("a name").path()).expect("the broker has ended");
        }
        copy_files(self.files.path(), &folder);
        cluster.broker_mut(0).restart(1);
        produce(cluster, topics, records);
    }
}

fn log_folder(cluster: &Cluster, topics: &Topics) -> PathBuf {
    cluster[0].folder().join(format!("data/{}-0", topics.input))
}

fn copy_files(from: &Path, to: &Path) {
    for file in fs::read_dir(from).expect("the folder is there") {
        let file = file.expect("a name");
        fs::copy(file.path(), to.join(file.file_name())).expect("the file can be copied");
    }
}

/// A daemon whose snapshots are far apart, and one in whose stop the last one is taken.
fn start_with_snapshots(
    cluster: &Cluster,
    topics: &Topics,
    folder: &Path,
    arguments: &[&str],
) -> Huntd {
    let snapshot = format!("directory = {folder:?}\nevery_ms = 600000");
    let settings = [("snapshot", snapshot.as_str()), ("kafka", "group_instance_id = \"one\"")];
    Huntd::start_as(cluster, topics, &settings, arguments)
}

pub(crate) fn assert_halts(huntd: Huntd, words: &str) {
    let ended = huntd.stop_halted();
    assert!(ended.log.contains(words), "`{words}` is not in: {}", ended.log);
}

fn a_log_that_loses_its_end_while_it_is_read_halts_its_shard(cluster: &mut Cluster) {
    let topics = Topics::create(cluster, "lost-end", 1);
    produce(cluster, &topics, &events(1, 20, 1..=30));
    let before = LogCopy::of(cluster, &topics);
    produce(cluster, &topics, &events(1, 20, 31..=40));
    let mut huntd = Huntd::start(cluster, &topics, &[]);
    let mut follower = Follower::new(cluster, &topics);
    accounts::wait_until_covered(cluster, &topics, &mut follower, &mut huntd);
    before.put_back(cluster, &topics, &[]);
    let ended = huntd.stop_halted();
    // By the second sentence, if the group has taken the partition away meanwhile.
    let says_why = [
        "was truncated to offset 600 below offset 800",
        "the input ends at offset 600, and its records up to 800 were applied before",
    ]
    .iter()
    .any(|words| ended.log.contains(words));
    assert!(says_why, "{}", ended.log);
}

fn a_log_that_lost_what_no_snapshot_has_while_nobody_read_it_halts_the_next_start(
    cluster: &mut Cluster,
) {
    let topics = Topics::create(cluster, "lost", 1);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut follower = Follower::new(cluster, &topics);
    produce(cluster, &topics, &events(1, 20, 1..=30));
    let before = LogCopy::of(cluster, &topics);
    let mut huntd = start_with_snapshots(cluster, &topics, folder.path(), &[]);
    accounts::wait_until_covered(cluster, &topics, &mut follower, &mut huntd);
    stop(huntd);
    // Published, and in no snapshot.
    let mut huntd = start_with_snapshots(cluster, &topics, folder.path(), &[]);
    produce(cluster, &topics, &events(1, 20, 31..=40));
    accounts::wait_until_covered(cluster, &topics, &mut follower, &mut huntd);
    huntd.kill9();

    before.put_back(cluster, &topics, &events(1, 10, 1..=10));
    let huntd = start_with_snapshots(cluster, &topics, folder.path(), &[]);
    assert_halts(huntd, "the input ends at offset 700");
    // The offsets exist again, and have other records than those that were published.
    produce(cluster, &topics, &events(1, 30, 11..=40));
    let huntd = start_with_snapshots(cluster, &topics, folder.path(), &[]);
    assert_halts(huntd, "the replay differs");
    assert_eq!(follower.next_offset(0), 800);
}

/// All published updates are in the snapshot, so no replay can show the difference. See decision
/// 035.
fn a_log_that_lost_what_a_snapshot_has_while_nobody_read_it_halts_the_next_start(
    cluster: &mut Cluster,
) {
    let topics = Topics::create(cluster, "lost-below", 1);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut follower = Follower::new(cluster, &topics);
    produce(cluster, &topics, &events(1, 20, 1..=30));
    let before = LogCopy::of(cluster, &topics);
    produce(cluster, &topics, &events(1, 20, 31..=40));
    let mut huntd = start_with_snapshots(cluster, &topics, folder.path(), &[]);
    accounts::wait_until_covered(cluster, &topics, &mut follower, &mut huntd);
    stop(huntd);

    before.put_back(cluster, &topics, &events(1, 30, 11..=40));
    for _ in 0..2 {
        let huntd = start_with_snapshots(cluster, &topics, folder.path(), &[]);
        assert_halts(huntd, "was truncated to offset 600 below offset 800");
    }
    assert_eq!(follower.next_offset(0), 800);

    // The operator starts over once, and no later start needs that again.
    let mut huntd = start_with_snapshots(cluster, &topics, folder.path(), &["--genesis"]);
    accounts::wait_until_covered(cluster, &topics, &mut follower, &mut huntd);
    stop(huntd);
    let mut huntd = start_with_snapshots(cluster, &topics, folder.path(), &[]);
    produce(cluster, &topics, &events(1, 30, 41..=42));
    accounts::wait_until_covered(cluster, &topics, &mut follower, &mut huntd);
    stop(huntd);
}
