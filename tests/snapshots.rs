//! The daemon's snapshots, from the events of a mock cluster to files, and back into a shard.

mod mock;

use huntd::decoder::{Decoder, Origin as At};
use huntd::engine::Shard;
use huntd::engine::rules::Rules;
use huntd::engine::update::Updates;
use huntd::keeping;
use huntd::metrics::Counter;
use huntd::pipeline::Daemon;
use huntd::publisher::encode::decode_frame;
use huntd::recovery::disk::Files;
use huntd::recovery::reader::{Position, Reader};
use huntd::recovery::slots::Store;
use huntd::recovery::snapshot::Header;
use huntd::service::cli::{Compression, LoadArgs};
use huntd::service::config::{self, Config};
use huntd::service::rules::built_in;
use huntd::tools::load;
use mock::{Cluster, read_partition, wait_for};
use rdkafka::message::{Message, Timestamp};
use std::path::Path;
use std::sync::Arc;

const PARTITIONS: i32 = 2;
const BASE_MS: i64 = 1_767_225_600_000;

fn cluster() -> Cluster {
    mock::cluster(&[("events", PARTITIONS), ("updates", PARTITIONS), ("dead", 1)])
}

fn config(cluster: &Cluster, directory: &Path) -> Config {
    let text = format!(
        "[kafka]\nbrokers = [\"{}\"]\ninput_topic = \"events\"\noutput_topic = \"updates\"\n\
         dead_letter_topic = \"dead\"\n[fetch]\nwait_ms_max = 1\n[snapshot]\nevery_ms = 100\n\
         directory = \"{}\"\n[service]\nlisten = \"127.0.0.1:0\"\n",
        cluster.bootstrap_servers(),
        directory.display()
    );
    config::parse("huntd.toml", &text, std::iter::empty()).expect("the configuration is valid")
}

fn rules() -> Arc<Rules> {
    Arc::new(built_in())
}

fn produce(cluster: &Cluster, events: u64, seed: u64) {
    let args = LoadArgs {
        brokers: vec![cluster.bootstrap_servers()],
        topic: "events".to_owned(),
        events: Some(events),
        rate: None,
        players: 500,
        partitions: None,
        seed,
        match_file: None,
        format: None,
        repeat: 1,
        base_ms: Some(BASE_MS),
        compression: Compression::None,
    };
    load::run(&args).expect("the events arrive");
}

fn store(config: &Config, directory: &Path) -> Store<Files> {
    Store::new(Files::of(directory), keeping::origin(config), config.snapshot.keep)
}

/// Applies a partition's input from an offset to its end.
fn replay(cluster: &Cluster, shard: &mut Shard, partition: i32, from: i64) {
    let (mut decoder, mut updates) = (Decoder::new(), Updates::new());
    for record in read_partition(cluster, "events", partition) {
        let Timestamp::CreateTime(time_ms) = record.timestamp() else {
            panic!("the records have times")
        };
        if record.offset() >= from {
            let at = At { offset: record.offset(), time_ms };
            let event = decoder.decode(at, record.payload()).expect("a valid event");
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
    assert_eq!(position.epoch, mark.epoch);
    assert_eq!(position.next_update, mark.next_update);
    assert_eq!(position.next_offset, mark.next_offset);
    assert_eq!(position.chain, mark.chain);
    assert!(*next_update <= mark.next_update, "a snapshot is not ahead of its mark");
    let mut restored = store.load(header, rules()).expect("a whole snapshot");
    assert_eq!(restored.digest(), header.digest);
    replay(cluster, &mut restored, *partition, header.next_offset);
    let mut whole = Shard::new(*partition as u16, rules());
    replay(cluster, &mut whole, *partition, 0);
    assert_eq!(restored.digest(), whole.digest(), "partition {partition}");
}

#[test]
fn a_daemon_leaves_snapshots_that_a_replay_goes_on_from_and_the_last_one_is_its_end() {
    let (cluster, directory) = (cluster(), tempfile::tempdir().expect("a folder"));
    let config = config(&cluster, directory.path());
    let daemon = Daemon::start(config.clone(), rules()).expect("the daemon starts");
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
        let headers = store.candidates(partition);
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
    let daemon = Daemon::start(config.clone(), rules()).expect("the daemon starts");
    let Err(error) = Daemon::start(config, rules()) else { panic!("the directory is in use") };
    assert!(error.to_string().contains("is in use by another huntd"), "{error}");
    daemon.stop();
    daemon.wait().expect("the daemon ends well");
}
