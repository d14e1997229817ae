//! Daemons that start from their snapshots, and shards that cannot be started: told apart, and
//! helped as the sentence says.

use crate::players::{Load, events, produce};
use crate::restarts::{wait_for_more, wait_for_new_owner};
use huntd::snapshot::format::Header;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::path::{Path, PathBuf};
use support::accounts::{self, Follower, logged_digest, read, replay, replay_without};
use support::daemon::{Huntd, Topics};
use support::kafka;

/// Settings for a daemon that keeps snapshots in a folder, many of them.
pub(crate) fn settings(folder: &Path) -> Vec<(&'static str, String)> {
    vec![
        ("snapshot", format!("directory = {folder:?}\nevery_ms = 200")),
        ("kafka", "group_instance_id = \"one\"".to_owned()),
    ]
}

pub(crate) fn start(topics: &Topics, settings: &[(&str, String)], arguments: &[&str]) -> Huntd {
    let settings: Vec<(&str, &str)> =
        settings.iter().map(|(section, lines)| (*section, lines.as_str())).collect();
    Huntd::start_as(kafka::shared(), topics, &settings, arguments)
}

pub(crate) fn stop(huntd: Huntd) -> String {
    let ended = huntd.stop();
    assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
    ended.log
}

/// The offsets at which each acquired shard began, as the log has them.
pub(crate) fn start_offsets(log: &str) -> Vec<i64> {
    let acquired = log.lines().filter(|line| line.contains("\"message\":\"acquired\""));
    let offset = |line: &str| {
        let (_, rest) = line.split_once("\"start_offset\":").expect("it says where");
        rest.split([',', '}']).next().expect("a number ends").parse().expect("a number")
    };
    acquired.map(offset).collect()
}

/// Waits until a snapshot of this many shards was stored by this daemon.
pub(crate) fn wait_for_snapshots(huntd: &mut Huntd, shards: usize) {
    huntd.wait_until("a snapshot of each shard", |huntd| {
        let page = huntd.get("/metrics");
        let stored = "huntd_snapshot_timestamp_seconds{";
        page.lines().filter(|line| line.starts_with(stored)).count() == shards
    });
}

#[test]
fn a_restart_goes_on_from_the_newest_snapshot_whatever_killed_the_daemon() {
    let topics = Topics::create(kafka::shared(), "snapshots", 3);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let load = Load::start(kafka::shared(), &topics);
    let mut follower = Follower::new(kafka::shared(), &topics);
    for round in 0..5 {
        let epochs = follower.epochs();
        let mut huntd = start(&topics, &settings(folder.path()), &[]);
        wait_for_new_owner(&epochs, &mut follower, &mut huntd);
        wait_for_more(&topics, &mut follower, &mut huntd);
        wait_for_snapshots(&mut huntd, 3);
        wait_for_more(&topics, &mut follower, &mut huntd);
        let log = if round % 2 == 0 { huntd.kill9().log } else { stop(huntd) };
        let starts = start_offsets(&log);
        assert_eq!(starts.len(), 3, "{log}");
        assert!(starts.iter().all(|start| (*start > 0) == (round > 0)), "{starts:?}");
    }
    load.finish();
    let epochs = follower.epochs();
    let mut huntd = start(&topics, &settings(folder.path()), &[]);
    // The output may cover the input already.
    wait_for_new_owner(&epochs, &mut follower, &mut huntd);
    accounts::wait_until_covered(kafka::shared(), &topics, &mut follower, &mut huntd);
    let log = stop(huntd);
    for partition in 0..3 {
        let (_, counts) = replay(kafka::shared(), &topics, partition);
        assert_eq!(logged_digest(&log, partition), counts.digest, "partition {partition}");
    }
    accounts::assert_is_the_replay(kafka::shared(), &topics, follower);
}

/// A daemon that has published some rounds, with its folder.
pub(crate) fn published(what: &str, rounds: u64) -> (Topics, tempfile::TempDir) {
    let topics = Topics::create(kafka::shared(), what, 1);
    let folder = tempfile::tempdir().expect("a temporary folder");
    produce(kafka::shared(), &topics, &events(1, 20, 1..=rounds));
    let mut huntd = start(&topics, &settings(folder.path()), &[]);
    let mut follower = Follower::new(kafka::shared(), &topics);
    accounts::wait_until_covered(kafka::shared(), &topics, &mut follower, &mut huntd);
    stop(huntd);
    (topics, folder)
}

/// Every shard of these topics halts with a sentence that has these words.
pub(crate) fn assert_halts(topics: &Topics, settings: &[(&str, String)], words: &str) {
    let mut huntd = start(topics, settings, &[]);
    huntd.wait_until_halted(topics.partitions as u64);
    let ended = huntd.stop();
    assert_eq!(ended.status.code(), Some(10), "{}", ended.log);
    assert!(ended.log.contains(words), "`{words}` is not in: {}", ended.log);
}

#[test]
fn other_rules_halt_the_shard_and_genesis_starts_it_over() {
    let (topics, folder) = published("other-rules", 30);
    let rules = folder.path().join("rules.toml");
    let text = huntd::hunt::rules_file::BUILT_IN.replace("health = 100", "health = 90");
    std::fs::write(&rules, text).expect("the folder is writable");
    let mut changed = settings(folder.path());
    changed.push(("rules", format!("files = [{rules:?}]")));
    assert_halts(&topics, &changed, "was made by ruleset");

    let before = read(kafka::shared(), &topics, 0);
    let mut huntd = start(&topics, &changed, &["--genesis"]);
    let mut follower = Follower::new(kafka::shared(), &topics);
    // The zone is empty: it does not know players who joined before, and knows those who join now.
    produce(kafka::shared(), &topics, &events(1, 20, 31..=32));
    produce(kafka::shared(), &topics, &events(1, 20, 1..=5));
    accounts::wait_until_covered(kafka::shared(), &topics, &mut follower, &mut huntd);
    let log = stop(huntd);
    assert_eq!(start_offsets(&log), [before.next_offset]);
    let after = read(kafka::shared(), &topics, 0);
    assert_eq!(after.updates[..before.updates.len()], before.updates);
    let joined = after.updates[before.updates.len()..].iter().filter(|update| {
        matches!(update.change(), huntd::hunt::change::Change::Joined { health: 90, .. })
    });
    assert_eq!(joined.count(), 20);

    // From then on it is a shard like any other, with and without its snapshots.
    produce(kafka::shared(), &topics, &events(1, 20, 33..=34));
    let mut huntd = start(&topics, &changed, &[]);
    accounts::wait_until_covered(kafka::shared(), &topics, &mut follower, &mut huntd);
    assert!(start_offsets(&stop(huntd))[0] > before.next_offset);
    let elsewhere = tempfile::tempdir().expect("a temporary folder");
    changed[0] = settings(elsewhere.path()).remove(0);
    produce(kafka::shared(), &topics, &events(1, 20, 35..=36));
    let mut huntd = start(&topics, &changed, &[]);
    accounts::wait_until_covered(kafka::shared(), &topics, &mut follower, &mut huntd);
    assert_eq!(start_offsets(&stop(huntd)), [before.next_offset]);
    read(kafka::shared(), &topics, 0);
}

#[test]
fn an_input_whose_start_is_gone_needs_a_snapshot_or_genesis() {
    let (topics, folder) = published("retention", 30);
    kafka::shared().client().delete_records(&topics.input, 0, 400);
    produce(kafka::shared(), &topics, &events(1, 20, 31..=32));
    let elsewhere = tempfile::tempdir().expect("a temporary folder");
    assert_halts(&topics, &settings(elsewhere.path()), "the input begins at offset 400");

    let mut follower = Follower::new(kafka::shared(), &topics);
    let mut huntd = start(&topics, &settings(folder.path()), &[]);
    accounts::wait_until_covered(kafka::shared(), &topics, &mut follower, &mut huntd);
    assert_eq!(start_offsets(&stop(huntd)), [600]);
    produce(kafka::shared(), &topics, &events(1, 20, 33..=34));
    let mut huntd = start(&topics, &settings(elsewhere.path()), &["--genesis"]);
    accounts::wait_until_covered(kafka::shared(), &topics, &mut follower, &mut huntd);
    assert_eq!(start_offsets(&stop(huntd)), [640]);
}

/// The files of all snapshots in a folder.
fn snapshots_in(folder: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder).expect("the folder is there");
    let paths = files.map(|file| file.expect("a name").path());
    let is_snapshot = |path: &PathBuf| path.extension().is_some_and(|end| end == "snapshot");
    let snapshots: Vec<PathBuf> = paths.filter(is_snapshot).collect();
    assert!(!snapshots.is_empty(), "a snapshot was stored");
    snapshots
}

/// Flips a bit in each snapshot.
fn damage_snapshots(folder: &Path, place: impl Fn(&[u8]) -> usize) {
    for path in snapshots_in(folder) {
        let mut bytes = std::fs::read(&path).expect("the snapshot can be read");
        let place = place(&bytes);
        bytes[place] ^= 1;
        std::fs::write(&path, bytes).expect("the snapshot can be written");
    }
}

/// A process that opened it as a file would wait for ever for a writer.
#[test]
fn a_pipe_in_the_place_of_a_snapshot_does_not_hold_up_a_start() {
    let (topics, folder) = published("pipe", 30);
    let newest = snapshots_in(folder.path()).into_iter().max().expect("there is one");
    std::fs::remove_file(&newest).expect("the folder is writable");
    mknodat(CWD, &newest, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe can be made");
    produce(kafka::shared(), &topics, &events(1, 20, 31..=32));
    let mut huntd = start(&topics, &settings(folder.path()), &[]);
    let mut follower = Follower::new(kafka::shared(), &topics);
    accounts::wait_until_covered(kafka::shared(), &topics, &mut follower, &mut huntd);
    stop(huntd);
    accounts::assert_is_the_replay(kafka::shared(), &topics, follower);
}

#[test]
fn a_host_without_files_goes_on_from_the_replica_in_the_snapshot_topic() {
    let topics = Topics::create(kafka::shared(), "replicated", 1);
    let replicas = format!("{}-replicas", topics.input);
    kafka::shared().client().create_topic(&replicas, 1, &[("cleanup.policy", "compact")]);
    let with_replicas = |folder: &Path| {
        let mut settings = settings(folder);
        settings[0].1.push_str(&format!("\ntopic = {replicas:?}"));
        settings
    };
    let folder = tempfile::tempdir().expect("a temporary folder");
    produce(kafka::shared(), &topics, &events(1, 20, 1..=30));
    let mut follower = Follower::new(kafka::shared(), &topics);
    let mut huntd = start(&topics, &with_replicas(folder.path()), &[]);
    accounts::wait_until_covered(kafka::shared(), &topics, &mut follower, &mut huntd);
    let is_replicated = |huntd: &Huntd| huntd.metric("huntd_snapshot_replicas_stored_total") > 0;
    huntd.wait_until("a replica", is_replicated);
    produce(kafka::shared(), &topics, &events(1, 20, 31..=32));
    accounts::wait_until_covered(kafka::shared(), &topics, &mut follower, &mut huntd);
    stop(huntd);
    let (replayed, counts) = replay(kafka::shared(), &topics, 0);
    kafka::shared().client().delete_records(&topics.input, 0, 600);

    // Only the replica says what came before offset 600.
    let log_from_replica = |folder: &Path| {
        let mut huntd = start(&topics, &with_replicas(folder), &[]);
        huntd.wait_until("the shard", |huntd| huntd.log().contains("\"live\""));
        let log = stop(huntd);
        assert!(start_offsets(&log)[0] >= 600, "{log}");
        assert_eq!(logged_digest(&log, 0), counts.digest);
        log
    };
    let elsewhere = tempfile::tempdir().expect("a temporary folder");
    log_from_replica(elsewhere.path());

    // All snapshots are damaged. Their replica serves like one of another host's snapshot.
    let in_the_state = |bytes: &[u8]| bytes.len() - 64;
    damage_snapshots(folder.path(), in_the_state);
    log_from_replica(folder.path());

    // As if a later huntd had written them.
    let in_the_version = |_: &[u8]| 9;
    damage_snapshots(folder.path(), in_the_version);
    let log = log_from_replica(folder.path());
    assert!(log.contains("the snapshot has format version"), "{log}");
    assert!(follower.into_stories().remove(0) == replayed);
}

#[test]
fn a_new_output_is_filled_from_the_start_of_the_input() {
    let (mut topics, folder) = published("new-output", 30);
    let gone = topics.again(kafka::shared());
    // The snapshots are about another output.
    topics.output.clone_from(&gone.output);
    let mut huntd = start(&topics, &settings(folder.path()), &[]);
    let mut follower = Follower::new(kafka::shared(), &topics);
    accounts::wait_until_covered(kafka::shared(), &topics, &mut follower, &mut huntd);
    assert_eq!(start_offsets(&stop(huntd)), [0]);
    accounts::assert_is_the_replay(kafka::shared(), &topics, follower);
}

/// As the panics of three starts with the record at this offset would have left it.
pub(crate) fn poison(topics: &Topics, folder: &Path, offset: i64) {
    let snapshot = &snapshots_in(folder)[0];
    let header = Header::decode(&std::fs::read(snapshot).expect("it is there")).expect("whole");
    let id = u128::from_be_bytes(header.origin.input_id());
    assert_ne!(id, 0, "a snapshot says which topic it is about");
    let line = format!("{}/{id:032x} 0 {offset} 3\n", topics.input);
    std::fs::write(folder.join("poison"), line).expect("the folder is writable");
}

#[test]
fn a_record_that_failed_too_often_is_passed_over_by_every_owner_and_becomes_a_dead_letter() {
    let (topics, folder) = published("poison", 20);
    produce(kafka::shared(), &topics, &events(1, 20, 21..=30));
    poison(&topics, folder.path(), 450);
    let mut follower = Follower::new(kafka::shared(), &topics);
    let mut huntd = start(&topics, &settings(folder.path()), &[]);
    accounts::wait_until_covered(kafka::shared(), &topics, &mut follower, &mut huntd);
    assert_eq!(huntd.metric("huntd_records_rejected_total"), 1);
    stop(huntd);
    // Another host knows it from the output alone.
    let elsewhere = tempfile::tempdir().expect("a temporary folder");
    let mut huntd = start(&topics, &settings(elsewhere.path()), &[]);
    produce(kafka::shared(), &topics, &events(1, 20, 31..=32));
    accounts::wait_until_covered(kafka::shared(), &topics, &mut follower, &mut huntd);
    let log = stop(huntd);
    let (story, counts) = replay_without(kafka::shared(), &topics, 0, &[450]);
    assert!(follower.into_stories().remove(0) == story);
    assert_eq!(logged_digest(&log, 0), counts.digest);
    let letters = kafka::shared().client().consume(&topics.dead_letters, 0);
    let key = format!("{}/0/450", topics.input);
    assert!(
        !letters.is_empty(),
        "it is sent, and not again once the group has committed beyond it"
    );
    for letter in letters {
        use rdkafka::message::Message;
        assert_eq!(letter.key(), Some(key.as_bytes()));
        assert!(letter.payload().is_some_and(|value| value.starts_with(b"{\"player_id\"")));
    }
}
