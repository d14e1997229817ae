//! `huntd tap` on topics that a daemon writes at this moment.

use crate::players::{events, produce};
use crate::verbs::{bootstrap, huntd, published, unread};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use support::PATIENCE;
use support::accounts::{self, Follower};
use support::daemon::{Huntd, Topics, program};
use support::kafka::{self, unique_name};
use support::process::OwnedChild;

fn tap(arguments: &[&str]) -> Vec<Value> {
    let ended = huntd(&[&["tap", "--brokers", &bootstrap()], arguments].concat());
    assert_eq!(ended.code, 0, "{}", ended.errors);
    let lines = ended.output.lines();
    lines.map(|line| serde_json::from_str(line).expect("each line is JSON")).collect()
}

#[test]
fn a_tap_begins_at_the_last_fence_and_prints_at_once_what_was_asked_for() {
    let topics = Topics::create(kafka::shared(), "tapped", 2);
    let mut daemon = Huntd::start(kafka::shared(), &topics, &[]);
    let mut follower = Follower::new(kafka::shared(), &topics);
    produce(kafka::shared(), &topics, &events(2, 6, 1..=20));
    accounts::wait_until_covered(kafka::shared(), &topics, &mut follower, &mut daemon);
    // An owner repeats its fence every ten seconds: from then on nothing has to be waited for.
    let fences = |_: &Huntd| {
        let raw = ["--topic", &topics.output, "--from", "start", "--until-end", "--raw"];
        let placed = tap(&raw)
            .into_iter()
            .filter(|frame| frame["kind"] == "fence" && frame["next_offset"].as_i64() >= Some(0));
        let partitions: Vec<_> = placed.map(|frame| frame["partition"].clone()).collect();
        partitions.contains(&0.into()) && partitions.contains(&1.into())
    };
    daemon.wait_until("a repeated fence of both", fences);
    produce(kafka::shared(), &topics, &events(2, 6, 21..=30));
    accounts::wait_until_covered(kafka::shared(), &topics, &mut follower, &mut daemon);
    let from = ["--topic", &topics.output, "--until-end"];
    let all = tap(&from);
    assert!(!all.is_empty(), "nothing was waited for, and nothing came");
    let of = |key: &str, arguments: &[&str]| {
        let found = tap(&[&from[..], arguments].concat());
        assert!(!found.is_empty() && found.len() < all.len(), "{arguments:?}");
        found.iter().map(|update| update[key].to_string()).collect::<Vec<_>>()
    };
    assert!(of("player_id", &["--player", "3"]).iter().all(|player| player == "\"3\""));
    assert!(of("partition", &["--zone", "1"]).iter().all(|partition| partition == "1"));
    let kinds = of("kind", &["--kind", "rotated", "--kind", "refused"]);
    assert!(kinds.iter().all(|kind| kind == "\"rotated\"" || kind == "\"refused\""), "{kinds:?}");
}

#[test]
fn a_tap_says_that_nobody_owns_a_zone_once_no_fence_has_come_for_longer_than_an_owner_takes() {
    let (topics, _) = published("unowned");
    let mut tap = Command::new(program())
        .args(["tap", "--brokers", &bootstrap(), "--topic", &topics.output])
        .args(["--partition", "0", "--from", "999999"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map(OwnedChild::from)
        .expect("it is started");
    let said = BufReader::new(tap.stderr.take().expect("piped")).lines();
    let said: Vec<String> = said.take(3).map(|line| line.expect("text")).collect();
    assert!(said[0].contains("and not 999999: reading begins at "), "{said:?}");
    assert!(said[1].contains("partition 0: waiting for the next fence"), "{said:?}");
    assert!(said[2].ends_with("no fence has come for 15 s, so no huntd owns it"), "{said:?}");
}

#[test]
fn a_load_into_a_topic_that_a_daemon_writes_is_refused() {
    let topics = Topics::create(kafka::shared(), "refused", 2);
    let mut daemon = Huntd::start(kafka::shared(), &topics, &[]);
    let mut follower = Follower::new(kafka::shared(), &topics);
    produce(kafka::shared(), &topics, &events(2, 6, 1..=2));
    accounts::wait_until_covered(kafka::shared(), &topics, &mut follower, &mut daemon);
    let config = daemon.config();
    let bootstrap = bootstrap();
    let load = |arguments: &[&str]| huntd(&[&["load", "--events", "10"], arguments].concat());
    let found = load(&["--brokers", &bootstrap, "--topic", &topics.output]);
    assert_eq!(found.code, 5, "{}", found.errors);
    assert!(found.errors.contains("holds frames of a daemon"), "{}", found.errors);
    for topic in [&topics.output, &topics.dead_letters] {
        let named = load(&["--config", &config, "--topic", topic]);
        assert_eq!(named.code, 2, "{}", named.errors);
        assert!(named.errors.contains("name an input topic"), "{}", named.errors);
    }
    assert_eq!(kafka::shared().client().ends(&topics.dead_letters, 1), [0]);
    // The output is what it was: the daemon's frames alone.
    assert_eq!(load(&["--config", &config]).code, 0);
    accounts::wait_until_covered(kafka::shared(), &topics, &mut follower, &mut daemon);
    assert!(daemon.stop().status.success());
    accounts::assert_is_the_replay(kafka::shared(), &topics, follower);
}

/// A letter about a record of partition 1 of some topic, as any program that may write there can
/// make it.
fn append_letter(topics: &Topics, about: &str, value: &str) {
    let producer: BaseProducer =
        kafka::shared().client().config().create().expect("the configuration is valid");
    let mut headers = OwnedHeaders::new();
    for (key, value) in [
        ("huntd.topic", about),
        ("huntd.partition", "1"),
        ("huntd.offset", "0"),
        ("huntd.timestamp_ms", "1"),
        ("huntd.reason", "invalid_json"),
        ("huntd.sentence", "\u{9b}31m"),
    ] {
        headers = headers.insert(Header { key, value: Some(value) });
    }
    let record: BaseRecord<'_, str, str> =
        BaseRecord::to(&topics.dead_letters).payload(value).key("a key").headers(headers);
    producer.send(record).map_err(|(error, _)| error).expect("there is room");
    producer.flush(PATIENCE).expect("acknowledged");
}

#[test]
fn a_dead_letter_names_what_is_to_blame_and_can_be_sent_again() {
    let topics = Topics::create(kafka::shared(), "letters", 2);
    let bad = [
        (r#"{"type":"dance","player_id":1,"seq":1,"ts_us":1}"#, "`dance`"),
        (r#"{"type":"move","player_id":1,"ts_us":1,"x":1}"#, "`seq, y`"),
        (r#"{"type":"move","player_id":"x","seq":1,"ts_us":1,"x":1,"y":1}"#, "`player_id`"),
        (r#"{"type":"rotate","player_id":1,"seq":1,"ts_us":1,"heading":36000}"#, "`heading`"),
        ("{]", ""),
    ];
    let records: Vec<(i32, String)> = bad.map(|(record, _)| (1, record.to_owned())).to_vec();
    produce(kafka::shared(), &topics, &records);
    let mut daemon = Huntd::start(kafka::shared(), &topics, &[]);
    let mut follower = Follower::new(kafka::shared(), &topics);
    accounts::wait_until_covered(kafka::shared(), &topics, &mut follower, &mut daemon);
    let letters = ["--dead-letters", "--topic", &topics.dead_letters];
    // The letters may come after the frame that covers their records.
    let count = bad.len().to_string();
    let printed = tap(&[&letters[..], &["--count", &count]].concat());
    assert_eq!(printed.len(), bad.len());
    for ((record, culprit), letter) in bad.iter().zip(&printed) {
        assert_eq!(letter["value"], *record);
        assert_eq!(
            (&letter["topic"], &letter["partition"]),
            (&topics.input.as_str().into(), &1.into())
        );
        let sentence = letter["sentence"].as_str().expect("a sentence");
        assert!(sentence.ends_with(culprit), "{sentence}");
    }
    let of_input = ["tap", "--brokers", &bootstrap(), "--dead-letters", "--topic", &topics.input];
    let ended = huntd(&[&of_input[..], &["--until-end"]].concat());
    assert_eq!(ended.errors.matches("is no dead letter").count(), 1, "{}", ended.errors);
    // Where a letter stands says nothing of the zone that it is about.
    let of_zone = |zone| tap(&[&letters[..], &["--zone", zone, "--until-end"]].concat()).len();
    assert_eq!((of_zone("0"), of_zone("1")), (0, bad.len()));
    // One that this version accepts, one about another topic, one that a terminal would act on.
    let event = r#"{"type":"rotate","player_id":9,"seq":1,"ts_us":1,"heading":1}"#;
    let others = unique_name("others");
    kafka::shared().client().create_topic(&others, 1, &[]);
    append_letter(&topics, &topics.input, event);
    append_letter(&topics, &others, event);
    append_letter(&topics, &topics.input, "\u{9b}2J\u{1b}[2J");
    let config = daemon.config();
    let resend = ["tap", "--config", &config, "--dead-letters", "--resend"];
    for round in 1..=3 {
        let ended = huntd(&resend);
        assert_eq!(ended.code, 0, "{}", ended.errors);
        assert!(!ended.output.contains(['\u{9b}', '\u{1b}']), "{}", ended.output);
        let count = |words: &str| ended.errors.matches(words).count();
        assert_eq!(count("is still not an event: "), bad.len() + 1, "{}", ended.errors);
        assert_eq!(count(&format!("about the topic `{others}`")), 1, "{}", ended.errors);
        assert_eq!(count("1 letter was sent to its partition again"), 1, "{}", ended.errors);
        accounts::wait_until_covered(kafka::shared(), &topics, &mut follower, &mut daemon);
        assert_eq!(daemon.metric("huntd_records_rejected_total"), bad.len() as u64);
        let ends = kafka::shared().client().ends(&topics.input, 2);
        assert_eq!(ends, [0, bad.len() as i64 + round]);
    }
    assert_eq!(unread(&resend), Some(0), "nobody has to read it");
    let ends = kafka::shared().client().ends(&topics.input, 2);
    assert_eq!(ends, [0, bad.len() as i64 + 4]);
    assert_eq!(kafka::shared().client().ends(&others, 1), [0]);
    let log = daemon.stop().log;
    assert!(log.contains("\"message\":\"ready: 2 shards\""), "{log}");
    assert!(log.contains("\"message\":\"drained: "), "{log}");
}
