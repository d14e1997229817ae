//! `huntd tap` on topics that a daemon writes at this moment.

use crate::players::{events, produce};
use crate::verbs::{bootstrap, huntd};
use serde_json::Value;
use support::accounts::{self, Follower};
use support::daemon::{Huntd, Topics};
use support::kafka;

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
    let printed = tap(&[&letters[..], &["--until-end"]].concat());
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
    // Where a letter stands says nothing of the zone that it is about.
    let of_zone = |zone, arguments: &[&str]| {
        tap(&[&letters[..], &["--zone", zone], arguments].concat()).len()
    };
    assert_eq!((of_zone("0", &["--until-end"]), of_zone("0", &["--resend"])), (0, 0));
    assert_eq!(of_zone("1", &["--resend"]), bad.len());
    assert_eq!(kafka::shared().client().ends(&topics.input, 2), [0, 2 * bad.len() as i64]);
    accounts::wait_until_covered(kafka::shared(), &topics, &mut follower, &mut daemon);
    assert_eq!(daemon.metric("huntd_records_rejected_total"), 2 * bad.len() as u64);
    let log = daemon.stop().log;
    assert!(log.contains("\"message\":\"ready: 2 shards\""), "{log}");
    assert!(log.contains("\"message\":\"drained: "), "{log}");
}
