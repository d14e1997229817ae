//! The daemon's snapshots, from the events of a mock cluster to files, and back into a shard.

use huntd::daemon::{Daemon, snapshots};
use huntd::decoder::{Decoder, RecordPosition as At};
use huntd::edition::edition;
use huntd::hunt::Shard;
use huntd::hunt::event::{Action, EVENTS};
use huntd::hunt::frames::decode_frame;
use huntd::hunt::rules::rulebook::Rulebook;
use huntd::hunt::rules_file::built_in;
use huntd::hunt::state::TreasureHunt;
use huntd::kit::update::Updates;
use huntd::output::reader::{Position, Reader};
use huntd::service::cli::LoadArgs;
use huntd::service::config::{self, Config};
use huntd::service::config_args::ClusterArgs;
use huntd::snapshot::disk::Files;
use huntd::snapshot::format::Header;
use huntd::snapshot::replicas::Replicas;
use huntd::snapshot::slots::Store;
use huntd::telemetry::metrics::Counter;
use huntd::telemetry::progress::TopicId;
use huntd::tools::load;
use rdkafka::message::{Message, Timestamp};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;
use support::mock::{self, Cluster, read_partition, wait_for};

const PARTITIONS: i32 = 2;
const BASE_MS: i64 = 1_767_225_600_000;

fn cluster() -> Cluster {
    mock::cluster(&[("events", PARTITIONS), ("updates", PARTITIONS), ("dead", 1)])
}

fn config(cluster: &Cluster, directory: &Path) -> Config {
    config::parse("huntd.toml", &config_text(cluster, directory, ""), std::iter::empty())
        .expect("the configuration is valid")
}

fn config_text(cluster: &Cluster, directory: &Path, topic: &str) -> String {
    format!(
        "[kafka]\nbrokers = [\"{}\"]\ninput_topic = \"events\"\noutput_topic = \"updates\"\n\
         dead_letter_topic = \"dead\"\n[fetch]\nwait_ms_max = 1\n[input]\ntick_every_ms = 0\n\
         [snapshot]\nevery_ms = 100\n\
         directory = \"{}\"\ntopic = \"{topic}\"\n[service]\nlisten = \"127.0.0.1:0\"\n",
        cluster.bootstrap_servers(),
        directory.display()
    )
}

fn rulebook() -> Rulebook {
    Rulebook::of(built_in())
}

fn produce(cluster: &Cluster, events: u64, seed: u64) {
    let args = LoadArgs {
        cluster: ClusterArgs {
            brokers: vec![cluster.bootstrap_servers()],
            config_file: None,
            set: vec![],
        },
        topic: Some("events".to_owned()),
        events: Some(events),
        rate: None,
        players: Some(500),
        partitions: None,
        seed: Some(seed),
        file: None,
        base_ms: Some(BASE_MS),
        compression: "none".to_owned(),
    };
    load::run(&args, &edition::<TreasureHunt>()).expect("the events arrive");
}

fn store(config: &Config, directory: &Path) -> Store<Files> {
    Store::new(
        Files::of(directory),
        snapshots::origin(config, &TopicId::default()),
        config.snapshot.keep,
    )
}

/// Applies a partition's input from an offset to its end.
fn replay(cluster: &Cluster, shard: &mut Shard, partition: i32, from: i64) {
    let (mut decoder, mut updates) = (Decoder::new(&EVENTS), Updates::new());
    for record in read_partition(cluster, "events", partition) {
        let Timestamp::CreateTime(time_ms) = record.timestamp() else {
            panic!("the records have times")
        };
        if record.offset() >= from {
            let at = At { offset: record.offset(), time_ms };
            let event = decoder.decode::<Action>(at, record.payload()).expect("a valid event");
            updates.clear();
            shard.apply(&event, &mut updates);
        }
    }
}

/// What a reader makes of the output up to an offset.
fn fold(cluster: &Cluster, partition: i32, end: i64) -> Position {
    let mut reader = Reader::new();
    for record in read_partition(cluster, "updates", partition) {
        if record.offset() < end {
            let payload = record.payload().expect("a frame has bytes");
            let (header, updates) = decode_frame(payload).expect("a frame");
            reader.fold(&header, &updates);
        }
    }
    reader.position()
}

fn check(cluster: &Cluster, store: &mut Store<Files>, header: &Header) {
    let Header { partition, mark, next_update, .. } = header;
    let position = fold(cluster, *partition, mark.output_offset);
    assert_eq!(position.owner_epoch, mark.owner_epoch);
    assert_eq!(position.next_update, mark.next_update);
    assert_eq!(position.next_offset, mark.next_offset);
    assert_eq!(position.chain, mark.chain);
    assert!(*next_update <= mark.next_update, "a snapshot is not ahead of its mark");
    let mut restored = store.load(header, &rulebook()).expect("a whole snapshot");
    assert_eq!(restored.digest(), header.digest);
    replay(cluster, &mut restored, *partition, header.next_offset);
    let mut whole = Shard::new(*partition as u16, &rulebook());
    replay(cluster, &mut whole, *partition, 0);
    assert_eq!(restored.digest(), whole.digest(), "partition {partition}");
}

#[test]
fn a_daemon_leaves_snapshots_that_a_replay_goes_on_from_and_the_last_one_is_its_end() {
    let (cluster, directory) = (cluster(), tempfile::tempdir().expect("a folder"));
    let config = config(&cluster, directory.path());
    let daemon = Daemon::start(config.clone(), rulebook()).expect("the daemon starts");
    let progress = daemon.observed.progress.clone();
    // New events between snapshots, until more were taken than are kept.
    let mut seed = 0;
    let stored = |daemon: &Daemon| daemon.observed.metrics.get(Counter::SnapshotsStored);
    wait_for("snapshots", || {
        seed += 1;
        produce(&cluster, 500, seed);
        stored(&daemon) >= 5 * PARTITIONS as u64
    });
    let ends: Vec<i64> = (0..PARTITIONS)
        .map(|partition| read_partition(&cluster, "events", partition).len() as i64)
        .collect();
    wait_for("the end of the input", || {
        (0..PARTITIONS)
            .all(|partition| progress.shard(partition).acked.get() == ends[partition as usize])
    });
    daemon.stop();
    daemon.wait().expect("the daemon ends well");
    let mut store = store(&config, directory.path());
    for partition in 0..PARTITIONS {
        let headers = store.candidates(partition).expect("the disk is fine");
        assert_eq!(headers.len(), config.snapshot.keep);
        assert_eq!(headers[0].next_offset, ends[partition as usize]);
        assert_eq!(headers[0].digest, progress.shard(partition).digest.get());
        headers.iter().for_each(|header| check(&cluster, &mut store, header));
    }
}

#[test]
fn a_directory_that_another_daemon_uses_is_refused() {
    let (cluster, directory) = (cluster(), tempfile::tempdir().expect("a folder"));
    let config = config(&cluster, directory.path());
    let daemon = Daemon::start(config.clone(), rulebook()).expect("the daemon starts");
    let Err(error) = Daemon::start(config, rulebook()) else { panic!("the directory is in use") };
    assert!(error.to_string().contains("is in use by another huntd"), "{error}");
    daemon.stop();
    daemon.wait().expect("the daemon ends well");
}

#[test]
fn replicas_in_the_topic_are_the_snapshots_and_a_new_one_takes_the_place_of_the_old() {
    let cluster = mock::cluster(&[
        ("events", PARTITIONS),
        ("updates", PARTITIONS),
        ("dead", 1),
        ("replicas", PARTITIONS),
    ]);
    let directory = tempfile::tempdir().expect("a folder");
    let text = config_text(&cluster, directory.path(), "replicas");
    let config = config::parse("huntd.toml", &text, std::iter::empty()).expect("valid");
    let daemon = Daemon::start(config.clone(), rulebook()).expect("the daemon starts");
    let metrics = daemon.observed.metrics.clone();
    for seed in 1..4 {
        let before = metrics.get(Counter::SnapshotReplicasStored);
        produce(&cluster, 2_000, seed);
        wait_for("replicas", || metrics.get(Counter::SnapshotReplicasStored) > before);
    }
    daemon.stop();
    daemon.wait().expect("the daemon ends well");
    assert_eq!(metrics.get(Counter::SnapshotReplicasFailed), 0);
    let origin = snapshots::origin(&config, &TopicId::default());
    let options = snapshots::replica_options(&config, &origin).expect("there is a topic");
    let replicas = Replicas::connect(options).expect("clients");
    let go_on = &mut || ControlFlow::Continue(());
    let mut store = store(&config, directory.path());
    for partition in 0..PARTITIONS {
        let replica =
            replicas.newest(partition, &|_| true, go_on).expect("a broker").expect("a replica");
        assert_eq!(
            replica.header,
            store.candidates(partition).expect("the disk is fine")[0],
            "the last one is replicated too"
        );
        let shard = replicas.load(&replica, &rulebook(), go_on).expect("a whole replica");
        assert_eq!(shard.digest(), replica.header.digest);
        // Earlier replicas are deleted.
        let records = read_partition(&cluster, "replicas", partition);
        let mut last = std::collections::BTreeMap::new();
        for record in &records {
            last.insert(record.key().expect("a key").to_vec(), record.payload().is_some());
        }
        let kept = last.values().filter(|there| **there).count();
        assert_eq!(kept, 2, "a manifest and one record of state");
        assert!(last.len() > 2);
    }
}

#[test]
fn a_topic_that_is_missing_costs_the_replicas_and_nothing_else() {
    let (cluster, directory) = (cluster(), tempfile::tempdir().expect("a folder"));
    let mut config = config(&cluster, directory.path());
    // librdkafka's mock cluster creates every topic that is asked for, unless its name is invalid.
    config.snapshot.topic = Some("no topic".to_owned());
    let daemon = Daemon::start(config, rulebook()).expect("the daemon starts");
    let metrics = daemon.observed.metrics.clone();
    produce(&cluster, 500, 1);
    wait_for("a replica that fails", || metrics.get(Counter::SnapshotReplicasFailed) > 0);
    let stored = metrics.get(Counter::SnapshotsStored);
    produce(&cluster, 500, 2);
    wait_for("more snapshots", || metrics.get(Counter::SnapshotsStored) > stored);
    daemon.stop();
    daemon.wait().expect("the daemon ends well");
}

/// A file system of one MiB, or nothing where none can be made and none must be.
struct Small(tempfile::TempDir);

impl Small {
    fn mount() -> Option<Small> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().to_owned();
        let done = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"])
            .arg(&path)
            .output();
        let is_mounted = done.is_ok_and(|output| output.status.success());
        support::needs::has("root, to mount a small file system", is_mounted).then(|| Small(folder))
    }

    fn path(&self) -> PathBuf {
        self.0.path().to_owned()
    }

    fn remount(&self, how: &str) {
        let options = format!("remount,{how}");
        let output = Command::new("mount").args(["-o", &options]).arg(self.0.path()).output();
        assert!(output.is_ok_and(|output| output.status.success()), "{options}");
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        // Without it the folder stays, which the next start of the machine clears.
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).output();
    }
}

/// The daemon goes through what is produced, whatever its directory does.
fn goes_on(cluster: &Cluster, daemon: &Daemon, seed: u64) {
    produce(cluster, 1_000, seed);
    let progress = daemon.observed.progress.clone();
    for partition in 0..PARTITIONS {
        let end = read_partition(cluster, "events", partition).len() as i64;
        wait_for("all events", || progress.shard(partition).acked.get() == end);
    }
}

#[test]
fn a_full_disk_costs_snapshots_until_there_is_room_and_nothing_else() {
    let Some(small) = Small::mount() else { return };
    let filler = small.path().join("filler");
    let cluster = cluster();
    let config = config(&cluster, &small.path());
    let daemon = Daemon::start(config.clone(), rulebook()).expect("the daemon starts");
    // The lock is there; then all the rest is taken.
    std::fs::write(&filler, vec![1; 980 * 1024]).expect("there was room for it");
    let metrics = daemon.observed.metrics.clone();
    goes_on(&cluster, &daemon, 1);
    wait_for("a snapshot that fails", || metrics.get(Counter::SnapshotsFailed) > 0);
    goes_on(&cluster, &daemon, 2);
    assert_eq!(metrics.get(Counter::SnapshotsStored), 0);
    std::fs::remove_file(&filler).expect("it is there");
    goes_on(&cluster, &daemon, 3);
    wait_for("a snapshot", || metrics.get(Counter::SnapshotsStored) > 0);
    daemon.stop();
    daemon.wait().expect("the daemon ends well");
    let mut store = store(&config, &small.path());
    let headers = (0..PARTITIONS).map(|partition| store.candidates(partition));
    assert!(headers.flatten().flatten().count() > 0);
}

#[test]
fn a_daemon_whose_directory_is_read_only_goes_on_without_snapshots() {
    let Some(small) = Small::mount() else { return };
    let cluster = cluster();
    small.remount("ro");
    let daemon = Daemon::start(config(&cluster, &small.path()), rulebook()).expect("it starts");
    goes_on(&cluster, &daemon, 1);
    daemon.stop();
    let metrics = daemon.observed.metrics.clone();
    daemon.wait().expect("the daemon ends well");
    assert_eq!(metrics.get(Counter::SnapshotsStored) + metrics.get(Counter::SnapshotsFailed), 0);
}

/// What `huntd snapshot` prints, and whether it ends well.
fn verb(arguments: &[&str], config: &Path) -> (String, bool) {
    let output = Command::new(env!("CARGO_BIN_EXE_huntd"))
        .arg("snapshot")
        .args(arguments)
        .arg("--config")
        .arg(config)
        .output()
        .expect("it runs");
    let text = [output.stdout, output.stderr].concat();
    (String::from_utf8(text).expect("it is text"), output.status.success())
}

#[test]
fn snapshots_can_be_listed_verified_and_dropped() {
    let (cluster, directory) = (cluster(), tempfile::tempdir().expect("a folder"));
    let config = config(&cluster, directory.path());
    let file = directory.path().join("huntd.toml");
    std::fs::write(&file, config_text(&cluster, directory.path(), "")).expect("it is written");
    let daemon = Daemon::start(config.clone(), rulebook()).expect("the daemon starts");
    goes_on(&cluster, &daemon, 1);
    let (text, done) = verb(&["drop"], &file);
    assert!(!done && text.contains("is in use by another huntd"), "{text}");
    daemon.stop();
    daemon.wait().expect("the daemon ends well");
    let mut store = store(&config, directory.path());
    let newest = store.candidates(0).expect("the disk is fine")[0].clone();
    let name = format!("shard-0000-{:010}.snapshot", newest.sequence);
    let (text, done) = verb(&["list"], &file);
    assert!(done && text.contains(&format!("next_offset={}", newest.next_offset)), "{text}");
    let taken_at = jiff::Timestamp::from_millisecond(newest.taken_at_ms).expect("this century");
    assert!(text.contains(&format!(" taken_at={taken_at}\n")), "{text}");
    let (text, done) = verb(&["verify"], &file);
    assert!(done && text.contains(&format!("digest={:016x}", newest.digest)), "{text}");
    // A damaged one is named, and the others are whole.
    let path = directory.path().join(&name);
    let mut bytes = std::fs::read(&path).expect("it is there");
    bytes[70_000] ^= 1;
    std::fs::write(&path, bytes).expect("it is writable");
    let (text, done) = verb(&["verify", "--partition", "0"], &file);
    assert!(!done && text.contains(&format!("{name}  block 0")), "{text}");
    let (text, done) = verb(&["drop", "--partition", "0"], &file);
    assert!(done && text.starts_with("partition 0: "), "{text}");
    let mut stored = |partition| store.candidates(partition).expect("the disk is fine").len();
    assert!(stored(0) == 0 && stored(1) > 0);
}
