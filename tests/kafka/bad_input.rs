//! Records that are no events: each becomes a dead letter, and the stream goes on.

use crate::players::{events, produce};
use crate::verbs::huntd;
use rdkafka::message::{Headers, Message, OwnedMessage};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use std::collections::BTreeMap;
use support::PATIENCE;
use support::accounts::{self, Follower};
use support::daemon::{Huntd, Topics};
use support::kafka;

/// Values that are no events, each with the reason that its dead letter names.
fn bad_values() -> Vec<(Option<Vec<u8>>, &'static str)> {
    let text = |text: &str| Some(text.as_bytes().to_vec());
    let padded = |bytes: usize| {
        let head = br#"{"type":"loot","player_id":1,"seq":9,"ts_us":1,"pad":""#.to_vec();
        let pad = bytes - head.len() - 2;
        Some([head, vec![b'x'; pad], br#""}"#.to_vec()].concat())
    };
    let deep = format!(
        r#"{{"type":"loot","player_id":1,"seq":9,"ts_us":1,"deep":{}1{}}}"#,
        "[".repeat(12),
        "]".repeat(12)
    );
    vec![
        (text(r#"{"type":"move","#), "invalid_json"),
        (text("\u{0}\u{1}\u{2}"), "invalid_json"),
        (padded(16 * 1024 + 1), "too_long"),
        (padded(900_000), "too_long"),
        (padded(1_040_000), "too_long"),
        (None, "null_value"),
        (Some(Vec::new()), "empty_value"),
        (Some(b"{\"type\":\"\xff\xfe\"}".to_vec()), "not_utf8"),
        (Some(deep.into_bytes()), "too_deep"),
        (text(r#"{"type":"fly","player_id":1,"seq":9,"ts_us":1}"#), "unknown_type"),
    ]
}

/// Appends one record to partition 0 of the input.
fn send(producer: &BaseProducer, topics: &Topics, key: Option<&[u8]>, value: Option<&[u8]>) {
    let mut record: BaseRecord<'_, [u8], [u8]> = BaseRecord::to(&topics.input).partition(0);
    record.key = key;
    record.payload = value;
    producer.send(record).map_err(|(error, _)| error).expect("there is room");
}

fn producer() -> BaseProducer {
    kafka::shared()
        .client()
        .config()
        .set("message.max.bytes", "1048000")
        .create()
        .expect("the configuration is valid")
}

fn header<'a>(letter: &'a OwnedMessage, name: &str) -> Option<&'a [u8]> {
    letter.headers()?.iter().find(|header| header.key == name)?.value
}

#[test]
fn every_record_that_is_no_event_becomes_a_dead_letter_and_the_accounts_close() {
    let topics = Topics::create(kafka::shared(), "bad", 2);
    produce(kafka::shared(), &topics, &events(2, 10, 1..=5));
    let (bad, producer) = (bad_values(), producer());
    for (value, _) in &bad {
        send(&producer, &topics, Some(b"where it came from"), value.as_deref());
    }
    producer.flush(PATIENCE).expect("acknowledged");
    produce(kafka::shared(), &topics, &events(2, 10, 6..=20));

    let mut huntd = Huntd::start(kafka::shared(), &topics, &[]);
    let mut follower = Follower::new(kafka::shared(), &topics);
    accounts::wait_until_covered(kafka::shared(), &topics, &mut follower, &mut huntd);
    let counted = |name: &str| huntd.metric(&format!("huntd_{name}_total"));
    let records = 200 + bad.len() as u64;
    assert_eq!(counted("records_received"), records);
    assert_eq!(counted("records_rejected"), bad.len() as u64);
    let events =
        ["events_applied", "events_refused", "events_no_op"].map(counted).iter().sum::<u64>();
    assert_eq!(events, 200);
    let ended = huntd.stop();
    assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
    accounts::assert_is_the_replay(kafka::shared(), &topics, follower);

    let letters = kafka::shared().client().consume(&topics.dead_letters, 0);
    assert_eq!(letters.len(), bad.len());
    let by_key: BTreeMap<&[u8], &OwnedMessage> =
        letters.iter().map(|letter| (letter.key().expect("a letter has a key"), letter)).collect();
    let sent = kafka::shared().client().consume(&topics.input, 0);
    let first_bad = sent.len() - bad.len() - 75;
    for (record, (value, reason)) in sent[first_bad..].iter().zip(&bad) {
        let offset = record.offset();
        let letter = by_key[format!("{}/0/{offset}", topics.input).as_bytes()];
        assert_eq!(letter.payload(), value.as_deref(), "{reason} at {offset}");
        let text = |name: &str| {
            header(letter, name).map(|bytes| String::from_utf8_lossy(bytes).into_owned())
        };
        assert_eq!(text("huntd.reason").as_deref(), Some(*reason), "offset {offset}");
        assert_eq!(text("huntd.topic"), Some(topics.input.clone()));
        assert_eq!(text("huntd.partition").as_deref(), Some("0"));
        assert_eq!(text("huntd.offset"), Some(offset.to_string()));
        let time_ms = record.timestamp().to_millis().map(|time_ms| time_ms.to_string());
        assert_eq!(text("huntd.timestamp_ms"), time_ms);
        assert_eq!(text("huntd.key").as_deref(), Some("where it came from"));
    }
}

/// Records that share one small batch, and would have letters of 200 times its bytes.
const TINY_RECORDS: u64 = 150_000;

#[test]
fn tiny_junk_in_a_small_batch_does_not_hold_its_zone_up_and_every_record_is_accounted_for() {
    let topics = Topics::create(kafka::shared(), "tiny", 2);
    produce(kafka::shared(), &topics, &events(2, 10, 1..=5));
    let before = kafka::shared().client().ends(&topics.input, 2)[0];
    let producer: BaseProducer = kafka::shared()
        .client()
        .config()
        .set("compression.type", "zstd")
        .set("queue.buffering.max.messages", "200000")
        .set("batch.num.messages", "200000")
        .set("batch.size", "100000000")
        .set("message.max.bytes", "100000000")
        .set("linger.ms", "3000")
        .create()
        .expect("the configuration is valid");
    for _ in 0..TINY_RECORDS {
        send(&producer, &topics, None, None);
    }
    producer.flush(PATIENCE).expect("acknowledged");
    produce(kafka::shared(), &topics, &events(2, 10, 6..=20));

    let mut huntd = Huntd::start(kafka::shared(), &topics, &[]);
    let mut follower = Follower::new(kafka::shared(), &topics);
    accounts::wait_until_covered(kafka::shared(), &topics, &mut follower, &mut huntd);
    assert_eq!(huntd.metric("huntd_records_rejected_total"), TINY_RECORDS);
    let ended = huntd.stop();
    assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
    accounts::assert_is_the_replay(kafka::shared(), &topics, follower);

    let letters = kafka::shared().client().consume(&topics.dead_letters, 0);
    let number = |letter: &OwnedMessage, name: &str| {
        let text = header(letter, name).map(|bytes| str::from_utf8(bytes).expect("text"));
        text.map(|text| text.parse::<i64>().expect("a number"))
    };
    assert!(letters.len() < TINY_RECORDS as usize / 10, "{} letters", letters.len());
    let mut spans: Vec<(i64, i64)> = letters
        .iter()
        .map(|letter| {
            let first = number(letter, "huntd.offset").expect("it is there");
            let records = number(letter, "huntd.records").unwrap_or(1);
            let last = number(letter, "huntd.last_offset").unwrap_or(first);
            assert_eq!(last - first + 1, records, "nothing was between them");
            (first, last)
        })
        .collect();
    spans.sort_unstable();
    let mut next = before;
    for (first, last) in spans {
        assert_eq!(first, next, "each offset is in one letter");
        next = last + 1;
    }
    assert_eq!(next, before + TINY_RECORDS as i64);
}

/// The value of a batch that is small on its way and huge once it is there.
fn letters_of_one_kind() -> Vec<u8> {
    vec![b'a'; 20_000_000]
}

#[test]
fn records_that_decompress_to_more_than_a_batch_may_have_become_letters_and_the_zone_goes_on() {
    let topics = Topics::create(kafka::shared(), "inflated", 2);
    produce(kafka::shared(), &topics, &events(2, 10, 1..=5));
    let (long, key) = (letters_of_one_kind(), vec![b'k'; 5_000_000]);
    let event = br#"{"type":"loot","player_id":7000,"seq":1,"ts_us":1}"#;
    for codec in ["gzip", "snappy", "lz4", "zstd"] {
        let producer: BaseProducer = kafka::shared()
            .client()
            .config()
            .set("message.max.bytes", "1000000000")
            .set("compression.type", codec)
            .set("linger.ms", "500")
            .create()
            .expect("the configuration is valid");
        let long = if codec == "snappy" { &long[..9_000_000] } else { &long[..] };
        send(&producer, &topics, Some(b"long"), Some(long));
        // A record is an event whatever its batch and its key are.
        send(&producer, &topics, Some(&key), Some(event));
        send(&producer, &topics, None, Some(b"short"));
        producer.flush(PATIENCE).expect("acknowledged");
    }
    produce(kafka::shared(), &topics, &events(2, 10, 6..=20));

    let settings = [("fetch", "batch_bytes_max = 1179648")];
    let mut huntd = Huntd::start(kafka::shared(), &topics, &settings);
    let mut follower = Follower::new(kafka::shared(), &topics);
    accounts::wait_until_covered(kafka::shared(), &topics, &mut follower, &mut huntd);
    assert_eq!(huntd.metric("huntd_records_rejected_total"), 8);
    let ended = huntd.stop();
    assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
    accounts::assert_is_the_replay(kafka::shared(), &topics, follower);

    let letters = kafka::shared().client().consume(&topics.dead_letters, 0);
    assert_eq!(letters.len(), 8);
    let (cut, whole): (Vec<_>, Vec<_>) =
        letters.iter().partition(|letter| header(letter, "huntd.reason") == Some(b"too_long"));
    for letter in cut {
        let bytes = header(letter, "huntd.value_bytes").expect("only its start is here");
        assert!(matches!(bytes, b"20000000" | b"9000000"), "{}", bytes.escape_ascii());
        let value = vec![b'a'; String::from_utf8_lossy(bytes).parse().expect("a number")];
        let crc = format!("{:08x}", crc32c::crc32c(&value));
        assert_eq!(header(letter, "huntd.value_crc32c"), Some(crc.as_bytes()));
        let head = letter.payload().expect("it has the first bytes");
        assert!(head.len() > 1_000_000 && value.starts_with(head), "{} bytes", head.len());
    }
    assert_eq!(whole.len(), 4);
    for letter in whole {
        assert_eq!(letter.payload(), Some(&b"short"[..]));
        assert_eq!(header(letter, "huntd.value_bytes"), None);
    }
}

#[test]
fn a_large_record_that_an_operator_skips_gets_a_letter_that_its_topic_takes() {
    let mut topics = Topics::create(kafka::shared(), "skipped-large", 1);
    topics.dead_letters.push_str("-small");
    let small = [("max.message.bytes", "100000")];
    kafka::shared().client().create_topic(&topics.dead_letters, 1, &small);
    let producer = producer();
    send(&producer, &topics, None, Some(&incompressible(900_000)));
    producer.flush(PATIENCE).expect("acknowledged");
    produce(kafka::shared(), &topics, &events(1, 10, 1..=5));

    let mut daemon = Huntd::start_as(kafka::shared(), &topics, &[], &["--skip", "0:0"]);
    let mut follower = Follower::new(kafka::shared(), &topics);
    accounts::wait_until_covered(kafka::shared(), &topics, &mut follower, &mut daemon);
    // The topic refuses the whole letter first.
    let letters = || kafka::shared().client().consume(&topics.dead_letters, 0);
    daemon.wait_until("the letter", |_| !letters().is_empty());
    let letters = letters();
    assert_eq!(header(&letters[0], "huntd.reason"), Some(&b"skipped"[..]));
    assert_eq!(header(&letters[0], "huntd.value_bytes"), Some(&b"900000"[..]));

    // The letter has only the start of the record, so it is not sent.
    let config = daemon.config();
    let sent = huntd(&["tap", "--config", &config, "--dead-letters", "--resend"]);
    assert_eq!(sent.code, 0, "{}", sent.errors);
    assert!(sent.output.contains(r#""value_bytes":900000"#), "{}", sent.output);
    assert!(sent.errors.contains("not sent: of the 900000 bytes at offset 0"), "{}", sent.errors);
    let records = kafka::shared().client().consume(&topics.input, 0).len();
    assert_eq!(records, 1 + 50);
    let ended = daemon.stop();
    assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
}

/// Topics with a record that is no event at offset 50, between events.
fn with_a_bad_record(what: &str) -> Topics {
    let topics = Topics::create(kafka::shared(), what, 1);
    produce(kafka::shared(), &topics, &events(1, 10, 1..=5));
    produce(kafka::shared(), &topics, &[(0, "no event".to_owned())]);
    produce(kafka::shared(), &topics, &events(1, 10, 6..=20));
    topics
}

/// No letter is as small as this limit: its headers alone take more.
const NO_LETTER_FITS: (&str, &str) = ("max.message.bytes", "100");

#[test]
fn a_shard_goes_on_without_the_letter_of_a_skipped_record_that_its_topic_never_takes() {
    let client = kafka::shared().client();
    let [unpublished, published] = ["refused", "refused-later"].map(with_a_bad_record);
    // A group commits that the record is settled, so only one that has not begun meets it again.
    let covered = |topics: &Topics, group: &str, arguments: &[&str]| {
        let group = format!("kafka.group={}-{group}", topics.group());
        let arguments = [&["--set", &group], arguments].concat();
        let mut daemon = Huntd::start_as(kafka::shared(), topics, &[], &arguments);
        let mut follower = Follower::new(kafka::shared(), topics);
        accounts::wait_until_covered(kafka::shared(), topics, &mut follower, &mut daemon);
        daemon.wait_until("the shard", |daemon| daemon.log().contains("\"live\""));
        let ended = daemon.stop();
        assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
        ended.log
    };
    let words = "the record is passed over, and its topic refuses its dead letter";

    // Every replay passes over it, even if the option is not given again.
    let (name, value) = NO_LETTER_FITS;
    client.set_topic(&unpublished.dead_letters, name, value);
    for (group, arguments) in [("skips", &["--skip", "0:50"][..]), ("replays", &[])] {
        let log = covered(&unpublished, group, arguments);
        assert!(log.contains(words), "{log}");
    }

    // What follows the record is published, so it cannot be passed over: a replay has to meet it.
    covered(&published, "publishes", &[]);
    client.set_topic(&published.dead_letters, name, value);
    let group = format!("kafka.group={}-halts", published.group());
    let arguments = ["--set", &group];
    let daemon = Huntd::start_as(kafka::shared(), &published, &[], &arguments);
    let ended = daemon.stop_halted();
    let line = ended.log.lines().find(|line| line.contains("the shard has halted"));
    let line = line.expect("it was waited for");
    let remedies = ["the dead letter of offset 50", "raise max.message.bytes", "--skip 0:50`"];
    assert!(remedies.iter().all(|remedy| line.contains(remedy)), "{line}");
    let log = covered(&published, "halts", &["--skip", "0:50"]);
    assert!(log.contains(words), "{log}");
}

#[test]
fn a_skip_that_does_nothing_is_named_with_the_reason() {
    let topics = Topics::create(kafka::shared(), "skipped-late", 1);
    produce(kafka::shared(), &topics, &events(1, 10, 1..=5));
    let mut daemon = Huntd::start(kafka::shared(), &topics, &[]);
    let mut follower = Follower::new(kafka::shared(), &topics);
    accounts::wait_until_covered(kafka::shared(), &topics, &mut follower, &mut daemon);
    daemon.kill9();
    let skips = ["--skip", "0:3", "--skip", "0:1000000", "--skip", "9:0"];
    let mut daemon = Huntd::start_as(kafka::shared(), &topics, &[], &skips);
    let reasons = ["are published", "is not there yet", "the input has no such partition"];
    let all_said = |huntd: &Huntd| reasons.iter().all(|reason| huntd.log().contains(reason));
    daemon.wait_until("line about each skip", all_said);
    daemon.stop();
}

/// Bytes without a pattern, the same each time.
fn incompressible(bytes: usize) -> Vec<u8> {
    let mut state = 1u64;
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    std::iter::repeat_with(next).take(bytes).collect()
}

#[test]
fn a_dead_letter_that_its_topic_does_not_take_halts_its_shard_alone_until_the_topic_takes_it() {
    let mut topics = Topics::create(kafka::shared(), "too-large", 2);
    topics.dead_letters.push_str("-small");
    let small = [("max.message.bytes", "100000")];
    kafka::shared().client().create_topic(&topics.dead_letters, 1, &small);
    produce(kafka::shared(), &topics, &events(2, 10, 1..=5));
    let producer = producer();
    // Dead letters travel compressed, and the topic's limit counts what arrives.
    send(&producer, &topics, None, Some(&incompressible(900_000)));
    producer.flush(PATIENCE).expect("acknowledged");
    produce(kafka::shared(), &topics, &events(2, 10, 6..=20));

    let mut huntd = Huntd::start(kafka::shared(), &topics, &[]);
    huntd.wait_until_halted(1);
    let mut follower = Follower::new(kafka::shared(), &topics);
    huntd.wait_until("the other shard goes on", |_| follower.covers(&[(1, 100)]));
    let ended = huntd.stop();
    assert_eq!(ended.status.code(), Some(10), "{}", ended.log);
    assert!(ended.log.contains("raise max.message.bytes"), "{}", ended.log);
    // Frames behind the letter may be published before its topic has refused it, but its offset is
    // not acknowledged.
    let committed = kafka::shared().client().committed(topics.group(), &topics.input, 2);
    assert!(committed[0] <= 25 && committed[1] == 100, "{committed:?}");
    assert_eq!(kafka::shared().client().watermarks(&topics.dead_letters, 0), (0, 0));

    kafka::shared().client().set_topic(&topics.dead_letters, small[0].0, "1000000");
    let mut huntd = Huntd::start(kafka::shared(), &topics, &[]);
    huntd.wait_until("the replay sends the letter again", |_| {
        kafka::shared().client().watermarks(&topics.dead_letters, 0) == (0, 1)
    });
    accounts::wait_until_covered(kafka::shared(), &topics, &mut follower, &mut huntd);
    let ended = huntd.stop();
    assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
    accounts::assert_is_the_replay(kafka::shared(), &topics, follower);
}
