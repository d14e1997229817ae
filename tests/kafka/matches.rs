//! A recorded match through real Kafka and the daemon: what comes out is what a replay gives.

use crate::verbs::huntd;
use huntd::output::frame::Chain;
use serde_json::Value;
use support::accounts::{logged_digest, read};
use support::daemon::{Huntd, Topics};
use support::scrape::Page;
use support::{kafka, recordings};

/// The recording that this test plays.
const RECORDING: &str = "prbf2-black_gold-20180405.jsonl.zst";

/// Zones that hold its map: one for each connection where there are most.
const PARTITIONS: i32 = 8;

/// Events of the match that are stored compressed.
const EVENTS_COMPRESSED: &str = "150000";

/// The JSON report of `huntd replay` with these arguments.
fn replayed(arguments: &[&str]) -> Value {
    let ended = huntd(&[&["replay", "--json"], arguments].concat());
    assert_eq!(ended.code, 0, "{}", ended.errors);
    serde_json::from_str(&ended.output).expect("a report is one JSON object")
}

fn number(report: &Value, partition: i32, key: &str) -> u64 {
    report["partitions"][partition.to_string()][key].as_u64().expect("reports have counts")
}

fn hash(report: &Value, partition: i32, key: &str) -> u64 {
    let text = report["partitions"][partition.to_string()][key].as_str();
    u64::from_str_radix(text.expect("reports have hashes"), 16).expect("hashes are hexadecimal")
}

/// Runs the input through a daemon and compares everything that can be seen of it.
fn run_and_compare(input: &Topics, report: &Value, fetch: &str, publish: &str) {
    // The input is read once more; what comes out goes to new topics.
    let mut topics = Topics::create(kafka::shared(), "match-run", PARTITIONS);
    topics.input.clone_from(&input.input);
    // A recorded match has both sides of each handoff.
    let own = "tick_every_ms = 0\ncarry_players = false";
    let settings = [("fetch", fetch), ("publish", publish), ("input", own)];
    let mut daemon = Huntd::start(kafka::shared(), &topics, &settings);
    let events = report["total"]["events"].as_u64().expect("reports have counts");
    daemon.wait_until("the whole match is published", |daemon| {
        daemon.log().contains("\"address\"")
            && Page::of(&daemon.address()).progress("acked") == events
    });
    let page = Page::of(&daemon.address());
    for (family, key) in [
        ("huntd_events_applied_total", "applied"),
        ("huntd_events_refused_total", "refusals"),
        ("huntd_events_no_op_total", "no_ops"),
        ("huntd_records_rejected_total", "rejects"),
    ] {
        assert_eq!(Some(page.value(family)), report["total"][key].as_u64(), "{key}");
    }
    assert_eq!(page.events(), events, "the accounts close");
    let ended = daemon.stop();
    assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
    for partition in 0..PARTITIONS {
        // Every frame is read; updates must be dense by number.
        let story = read(kafka::shared(), &topics, partition);
        assert_eq!(story.updates.len() as u64, number(report, partition, "updates"));
        assert_eq!(story.next_offset as u64, number(report, partition, "events"));
        assert_eq!(story.chain, hash(report, partition, "chain"), "partition {partition}");
        let folded = story.updates.iter().fold(Chain::default(), |chain, u| chain.with(u));
        assert_eq!(story.chain, folded.0, "partition {partition}");
        let digest = logged_digest(&ended.log, partition);
        assert_eq!(digest, hash(report, partition, "digest"), "partition {partition}");
    }
}

#[test]
fn a_recorded_match_gives_the_digests_of_a_replay_however_it_is_stored_fetched_and_published() {
    let Some(file) = recordings::one(RECORDING) else {
        return;
    };
    let events = recordings::events(&file, Some(PARTITIONS as u16));
    let file = events.path().to_str().expect("the path is text");
    let report = replayed(&["--file", file]);
    let events = report["total"]["events"].as_u64().expect("reports have counts");
    assert!(events >= 600_000, "{events} events");

    let brokers = kafka::shared().bootstrap();
    let mut begun = None;
    for (codec, fetch, publish) in [
        ("none", "connections_per_broker = 1", "frames_per_shard = 1"),
        ("zstd", "connections_per_broker = 8", "frames_per_shard = 5"),
        ("lz4", "connections_per_broker = 8", "frames_per_shard = 1"),
        ("snappy", "connections_per_broker = 1", "frames_per_shard = 100"),
        ("gzip", "connections_per_broker = 2", "frames_per_shard = 5"),
    ] {
        let input = Topics::create(kafka::shared(), "match", PARTITIONS);
        let to = ["load", "--brokers", &brokers, "--topic", &input.input];
        let how = ["--file", file, "--compression", codec];
        let is_whole = codec == "none";
        let events: &[&str] = if is_whole { &[] } else { &["--events", EVENTS_COMPRESSED] };
        let loaded = huntd(&[&to[..], &how, events].concat());
        assert_eq!(loaded.code, 0, "{}", loaded.errors);
        let stored = replayed(&["--brokers", &brokers, "--topic", &input.input]);
        let expected = if is_whole { &report } else { begun.get_or_insert(stored.clone()) };
        assert_eq!(stored, *expected, "{codec}");
        run_and_compare(&input, expected, fetch, publish);
    }
}
