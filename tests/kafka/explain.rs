//! `huntd explain`: what became of an event, by the zone's state of that moment.

use crate::players::{events, produce};
use crate::snapshots::{settings, start, stop, wait_for_snapshots};
use crate::verbs::huntd;
use serde_json::Value;
use std::collections::BTreeMap;
use support::accounts::{self, Follower};
use support::daemon::Topics;
use support::kafka;

/// Events of a player after its fifth round, one of each outcome, and a record that is no event.
const OUTCOMES: [(&str, &str); 5] = [
    (
        r#"{"player_id":3,"seq":60,"ts_us":1767225606000000,"type":"rotate","heading":77}"#,
        "applied",
    ),
    (
        r#"{"player_id":3,"seq":61,"ts_us":1767225606000001,"type":"move","x":9,"y":99999}"#,
        "refused",
    ),
    (r#"{"player_id":3,"seq":60,"ts_us":1767225606000000,"type":"rotate","heading":88}"#, "no_op"),
    (r#"{"player_id":3,"seq":62,"ts_us":1767225606000002,"type":"fly"}"#, "rejected"),
    (r#"{"player_id":99,"seq":1,"ts_us":1767225606000003,"type":"rotate","heading":1}"#, "refused"),
];

/// The updates that `tap` prints, by number.
fn published_updates(config: &str) -> BTreeMap<u64, Value> {
    let tapped = huntd(&["tap", "--config", config, "--from", "start", "--until-end"]);
    let updates = tapped.output.lines().map(|line| {
        let update: Value = serde_json::from_str(line).expect("a line is JSON");
        (update["number"].as_u64().expect("a number"), update)
    });
    updates.collect()
}

/// What the command prints as JSON.
fn explained(config: &str, event: &[&str]) -> Value {
    let said = huntd(&[&["explain", "--config", config, "--json"], event].concat());
    assert_eq!(said.code, 0, "{}", said.errors);
    serde_json::from_str(&said.output).expect("one object")
}

#[test]
fn an_event_is_explained_by_its_outcome_its_published_updates_and_what_it_changed() {
    let topics = Topics::create(kafka::shared(), "explain", 1);
    let folder = tempfile::tempdir().expect("a temporary folder");
    produce(kafka::shared(), &topics, &events(1, 10, 1..=5));
    let mut daemon = start(&topics, &settings(folder.path()), &[]);
    let mut follower = Follower::new(kafka::shared(), &topics);
    accounts::wait_until_covered(kafka::shared(), &topics, &mut follower, &mut daemon);
    wait_for_snapshots(&mut daemon, 1);
    stop(daemon);
    // Without ticks, so that the test knows the offsets.
    let replicas = format!("{}-replicas", topics.input);
    kafka::shared().client().create_topic(&replicas, 1, &[("cleanup.policy", "compact")]);
    let mut settings = settings(folder.path());
    settings[0].1 += &format!("\ntopic = {replicas:?}");
    settings.push(("input", "tick_every_ms = 0".to_owned()));
    let mut daemon = start(&topics, &settings, &[]);
    let first = kafka::shared().client().ends(&topics.input, 1)[0];
    let records: Vec<_> = OUTCOMES.iter().map(|(text, _)| (0, (*text).to_owned())).collect();
    produce(kafka::shared(), &topics, &records);
    accounts::wait_until_covered(kafka::shared(), &topics, &mut follower, &mut daemon);
    let config = daemon.config();
    let published = published_updates(&config);

    for (offset, (record, outcome)) in (first..).zip(OUTCOMES) {
        let found = explained(&config, &[&format!("0:{offset}")]);
        assert_eq!((&found["outcome"], &found["record"]), (&outcome.into(), &record.into()));
        let updates = found["updates"].as_array().expect("a list");
        assert_eq!(updates.is_empty(), !["applied", "refused"].contains(&outcome), "{found}");
        for update in updates {
            let number = update["number"].as_u64().expect("a number");
            assert_eq!(Some(update), published.get(&number), "{found}");
        }
    }
    let turned = explained(&config, &["--zone", "0", "--player", "3", "--seq", "60"]);
    assert_eq!(turned["offset"], first, "the first event with this seq");
    let changes = turned["changes"].as_array().expect("a list");
    let heading = changes.iter().find(|change| change["field"] == "heading").expect("it turned");
    assert_eq!((&heading["row"], &heading["after"]), (&"player 3".into(), &77.into()));
    let repeated = explained(&config, &[&format!("0:{}", first + 2)]);
    assert_eq!(repeated["reason"], "the last seq of the player is 61");
    let unknown = explained(&config, &[&format!("0:{}", first + 4)]);
    assert_eq!(unknown["reason"], "not_joined");

    let text = huntd(&["explain", "--config", &config, &format!("0:{first}")]).output;
    assert!(text.contains("outcome  applied") && text.contains("heading"), "{text}");
    // Retention has deleted the start of the input, so only a snapshot leads there.
    kafka::shared().client().delete_records(&topics.input, 0, 20);
    let late = explained(&config, &[&format!("0:{first}")]);
    assert_eq!(late["updates"], turned["updates"]);
    assert_eq!(late["state"]["source"], "a snapshot on disk");
    daemon.wait_until("a snapshot in the topic", |daemon| {
        daemon.metric("huntd_snapshot_replicas_stored_total") > 0
    });
    produce(kafka::shared(), &topics, &events(1, 10, 70..=70));
    accounts::wait_until_covered(kafka::shared(), &topics, &mut follower, &mut daemon);
    let next = first + OUTCOMES.len() as i64;
    let elsewhere = ["--set", "snapshot.directory=", &format!("0:{next}")];
    let on_another_host = explained(&config, &elsewhere);
    assert_eq!(on_another_host["state"]["source"], "a snapshot in the topic");
    assert_eq!(on_another_host["changes"], explained(&config, &elsewhere[2..])["changes"]);
    let early = huntd(&["explain", "--config", &config, "0:25"]);
    assert_eq!(early.code, 5, "{}", early.errors);
    assert!(early.errors.contains("begins at offset 20, and no snapshot"), "{}", early.errors);
    let gone = huntd(&["explain", "--config", &config, "0:3"]);
    assert!(gone.errors.contains("zone 0 has no such event from offset 20"), "{}", gone.errors);

    // The snapshots are of an input that is gone.
    kafka::shared().client().delete_topic(&topics.input);
    kafka::shared().client().create_topic(&topics.input, 1, &[]);
    produce(kafka::shared(), &topics, &events(1, 10, 1..=9));
    let later = explained(&config, &["0:80"]);
    assert_eq!(later["state"]["source"], "the start of the input");
    daemon.kill9();
}
