//! Events in, updates out, through the real daemon and a real broker: whatever the codec of the
//! input and the limits of the daemon, the output is the same.

use crate::players::{events, produce};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use std::time::SystemTime;
use support::PATIENCE;
use support::accounts::{self, Follower, Story, logged_digest, read, replay};
use support::daemon::{Huntd, Topics, tiny_limits};
use support::kafka;

fn assert_output_is_the_replay(topics: &Topics, log: &str) {
    for partition in 0..topics.partitions {
        let (story, counts) = replay(kafka::shared(), topics, partition);
        assert!(!story.updates.is_empty());
        assert_eq!(read(kafka::shared(), topics, partition), story, "partition {partition}");
        assert_eq!(logged_digest(log, partition), counts.digest, "partition {partition}");
    }
}

#[test]
fn every_event_becomes_the_updates_of_a_replay_and_sigterm_ends_the_daemon_cleanly() {
    let topics = Topics::create(kafka::shared(), "delivery", 4);
    produce(kafka::shared(), &topics, &events(4, 40, 1..=50));
    let mut huntd = Huntd::start(kafka::shared(), &topics, &[]);
    let mut follower = Follower::new(kafka::shared(), &topics);
    accounts::wait_until_covered(kafka::shared(), &topics, &mut follower, &mut huntd);
    let ended = huntd.stop();
    assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
    assert_output_is_the_replay(&topics, &ended.log);
}

/// Produces the same records with the same times, compressed by the producer or by the topic.
fn input(codec: &str, time_ms: i64) -> Topics {
    let mut topics = Topics::create(kafka::shared(), codec, 2);
    // With one codec, it is the broker that compresses: it recompresses what it receives.
    let by_broker = codec == "zstd";
    if by_broker {
        topics.input.push_str("-by-broker");
        kafka::shared().client().create_topic(&topics.input, 2, &[("compression.type", "zstd")]);
    }
    let producer: BaseProducer = kafka::shared()
        .client()
        .config()
        .set("enable.idempotence", "true")
        .set("compression.type", if by_broker { "none" } else { codec })
        .set("linger.ms", "20")
        .create()
        .expect("the configuration is valid");
    for (n, (partition, text)) in (0..).zip(&events(2, 50, 1..=100)) {
        let record: BaseRecord<'_, (), str> = BaseRecord::to(&topics.input)
            .partition(*partition)
            .timestamp(time_ms + n / 10)
            .payload(text);
        producer.send(record).map_err(|(error, _)| error).expect("there is room");
    }
    producer.flush(PATIENCE).expect("the broker acknowledges all records");
    topics
}

/// What the output holds, and the digests, after a daemon with these settings has run.
fn run(topics: &Topics, settings: &[(&str, &str)]) -> (Vec<Story>, Vec<u64>) {
    let mut huntd = Huntd::start(kafka::shared(), topics, settings);
    let mut follower = Follower::new(kafka::shared(), topics);
    accounts::wait_until_covered(kafka::shared(), topics, &mut follower, &mut huntd);
    let ended = huntd.stop();
    assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
    let digests = (0..topics.partitions).map(|place| logged_digest(&ended.log, place)).collect();
    (follower.into_stories(), digests)
}

#[test]
fn the_output_and_the_digest_are_the_same_for_every_codec_and_every_limit() {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a time");
    let time_ms = now.as_millis() as i64 - 60_000;
    let plain = input("none", time_ms);
    let expected = run(&plain, &[("fetch", "connections_per_broker = 1")]);
    assert!(expected.0.iter().all(|story| story.updates.len() > 1_000));
    let (replayed, counts) = replay(kafka::shared(), &plain, 1);
    assert_eq!((&expected.0[1], expected.1[1]), (&replayed, counts.digest));

    let tiny = tiny_limits();
    let tiny: Vec<(&str, &str)> = tiny.iter().map(|(name, lines)| (&**name, &**lines)).collect();
    assert_eq!(tiny.len(), 2);
    let spread = [
        ("fetch", "connections_per_broker = 8"),
        ("publish", "format = \"binary\"\nframes_per_shard = 1"),
    ];
    assert!(run(&plain.again(kafka::shared()), &spread) == expected, "8 connections, 1 frame");
    assert!(
        run(&plain.again(kafka::shared()), &tiny) == expected,
        "the limits of config/test.toml"
    );
    assert!(run(&input("gzip", time_ms), &spread[2..]) == expected, "gzip");
    assert!(run(&input("snappy", time_ms), &tiny) == expected, "snappy");
    assert!(run(&input("lz4", time_ms), &[]) == expected, "lz4");
    assert!(run(&input("zstd", time_ms), &tiny) == expected, "zstd");
}
