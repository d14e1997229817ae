//! What an operator is shown when something goes wrong without an error.

use crate::players::{events, produce};
use crate::snapshots::{published, settings};
use crate::verbs::{bootstrap, huntd};
use support::accounts::{self, Follower};
use support::daemon::{Huntd, Topics};
use support::kafka::{self, Cluster};
use support::notified::Systemd;

#[test]
fn a_producer_whose_seq_begins_again_is_counted_by_zone_and_named_in_the_log() {
    let topics = Topics::create(kafka::shared(), "counts-again", 2);
    produce(kafka::shared(), &topics, &events(2, 4, 1..=9));
    // Player 3 of zone 1 counts its `seq` from 1 again, and the output says nothing of its events.
    produce(kafka::shared(), &topics, &[(1, events(2, 4, 1..=1)[2].1.clone())]);
    let mut huntd = Huntd::start(kafka::shared(), &topics, &[]);
    let mut follower = Follower::new(kafka::shared(), &topics);
    accounts::wait_until_covered(kafka::shared(), &topics, &mut follower, &mut huntd);
    let page = huntd.get("/metrics");
    assert!(page.contains("\nhuntd_events_no_op_total{partition=\"1\"} 1\n"), "{page}");
    // A series that began above 0 would hide its beginning from the alerts.
    assert!(page.contains("\nhuntd_events_no_op_total{partition=\"0\"} 0\n"), "{page}");
    let rejects = "\nhuntd_records_rejected_total{partition=\"0\",reason=\"missing_field\"} 0\n";
    assert!(page.contains(rejects), "{page}");
    huntd.wait_until("a line about it", |huntd| {
        huntd.log().contains(
            "partition 1: 1 events changed nothing, the last of player 3 with seq 1, of which 9 \
             has counted before",
        )
    });
}

#[test]
fn a_start_whose_shards_have_all_halted_is_ready_nowhere() {
    let (topics, folder) = published("halted-start", 5);
    let rules = folder.path().join("rules.toml");
    let text = huntd::hunt::rules_file::BUILT_IN.replace("health = 100", "health = 90");
    std::fs::write(&rules, text).expect("the folder is writable");
    let mut changed = settings(folder.path());
    changed.push(("rules", format!("files = [{rules:?}]")));
    let changed: Vec<(&str, &str)> =
        changed.iter().map(|(section, lines)| (*section, lines.as_str())).collect();
    let systemd = Systemd::listen();
    let huntd = Huntd::start_under(&systemd.path, kafka::shared(), &topics, &changed);
    let heard = systemd.hear_until("STATUS=huntd is not ready: halted shards: 1; read the log");
    let is_ready = |line: &String| line == "READY=1" || line.starts_with("STATUS=huntd is ready");
    assert!(!heard.iter().flatten().any(is_ready), "{heard:?}");
    assert!(huntd.get("/readyz").contains("halted shards: 1"));
    assert_eq!(huntd.metric("huntd_ready"), 0);
    let ended = huntd.stop();
    assert_eq!(ended.status.code(), Some(10), "{}", ended.log);
    assert!(!ended.log.contains("drained"), "{}", ended.log);
    let heard = systemd.hear_until("STATUS=huntd has FAILED: halted on a fault: 1 of the shards");
    assert!(!heard.iter().flatten().any(|line| line == "STATUS=huntd has drained"), "{heard:?}");
}

#[test]
fn partitions_that_nobody_owns_are_seen_by_the_instances_that_are_left() {
    let topics = Topics::create(kafka::shared(), "no-owner", 3);
    // Long enough to look around after a kill.
    let settings = &[("kafka", "session_timeout_ms = 60000")];
    let mut left = Huntd::start(kafka::shared(), &topics, settings);
    let serves = |huntd: &Huntd| huntd.log().contains("\"address\":\"");
    left.wait_until("its address", serves);
    left.wait_until("all partitions", |huntd| huntd.metric("huntd_shards_owned") == 3);
    let mut gone = Huntd::start(kafka::shared(), &topics, settings);
    gone.wait_until("its address", serves);
    gone.wait_until("some partitions", |huntd| huntd.metric("huntd_shards_owned") > 0);
    gone.kill9();
    produce(kafka::shared(), &topics, &events(3, 6, 1..=10));
    // Until the group session of the killed instance is over, its partitions have no owner. Still
    // the instance that is left shows how far behind they are.
    left.wait_until("the lag of a partition without an owner", |huntd| {
        let page = huntd.get("/metrics");
        let is_unowned = |partition: &i32| {
            let sample = format!("huntd_lag_records{{partition=\"{partition}\"}}");
            !page.contains(&sample)
        };
        let lag = |partition: i32| {
            let sample = format!("\nhuntd_group_lag_records{{partition=\"{partition}\"}} ");
            page.split_once(&sample).and_then(|(_, rest)| rest.lines().next()?.parse().ok())
        };
        (0..3).filter(is_unowned).any(|partition| lag(partition).is_some_and(|lag: u64| lag > 0))
    });
    assert_eq!(left.metric("huntd_partitions"), 3);
    assert!(left.metric("huntd_shards_owned") < 3, "the alert by numbers sees it too");
}

#[test]
fn check_finds_what_would_halt_the_shards_and_says_all_of_it() {
    let (topics, folder) = published("checked", 5);
    let rules = folder.path().join("rules.toml");
    let text = huntd::hunt::rules_file::BUILT_IN.replace("health = 100", "health = 90");
    std::fs::write(&rules, text).expect("the folder is writable");
    let config = folder.path().join("huntd.toml");
    let text = format!(
        "[kafka]\nbrokers = [\"{}\"]\ninput_topic = \"{}\"\noutput_topic = \"{}\"\n\
         dead_letter_topic = \"{}\"\n[rules]\nfiles = [\"{}\"]\n",
        bootstrap(),
        topics.input,
        topics.output,
        topics.dead_letters,
        rules.display()
    );
    std::fs::write(&config, text).expect("the folder is writable");
    let check = |sets: &[&str]| {
        let sets = sets.iter().flat_map(|set| ["--set", set]);
        let arguments = ["check", "--config", config.to_str().expect("text")];
        huntd(&arguments.into_iter().chain(sets).collect::<Vec<_>>())
    };
    let ended = check(&[]);
    // The topics of a test are not as `huntd topics` makes them, and the rules are others.
    assert_eq!((ended.code, ended.errors.lines().count()), (5, 2), "{}", ended.errors);
    assert!(ended.errors.contains("message.timestamp"), "{}", ended.errors);
    assert!(ended.errors.contains("partitions 0 by ruleset "), "{}", ended.errors);
    let ended = check(&["rules.files="]);
    assert_eq!((ended.code, ended.errors.lines().count()), (5, 1), "{}", ended.errors);
    let ended = check(&["kafka.brokers=no-such-host.invalid:9092,127.0.0.1:1"]);
    assert_eq!(ended.code, 4, "{}", ended.errors);
    assert!(ended.errors.contains("no-such-host.invalid:9092 "), "{}", ended.errors);
    assert!(ended.errors.contains("127.0.0.1:1 cannot be reached"), "{}", ended.errors);
}

#[test]
fn more_replicas_than_brokers_are_refused_before_anything_is_created() {
    let topics = Topics::create(kafka::shared(), "many-replicas", 1);
    let arguments = ["topics", "--config", "config/huntd.toml", "--replicas", "3"];
    let brokers = format!("kafka.brokers={}", bootstrap());
    let input = format!("kafka.input_topic={}-new", topics.input);
    let ended = huntd(&[&arguments[..], &["--set", &brokers, "--set", &input]].concat());
    assert_eq!(ended.code, 2, "{}", ended.errors);
    assert!(ended.errors.contains("--replicas 3 needs as many brokers, and the cluster has 1"));
}

/// On three brokers, of which one is stopped then.
pub(crate) fn existing_topics_are_checked_although_a_broker_is_away(cluster: &mut Cluster) {
    let of = ["--config", "config/huntd.toml", "--set"];
    let brokers = format!("kafka.brokers={}", cluster[0].address());
    let topics = [&["topics"], &of[..], &[&brokers]].concat();
    let created = huntd(&[&topics[..], &["--replicas", "3"]].concat());
    assert_eq!(created.code, 0, "{}", created.errors);
    cluster.broker_mut(2).stop();
    for verb in [&["topics", "--check"][..], &["topics"]] {
        let ended = huntd(&[verb, &of[..], &[&brokers]].concat());
        assert_eq!(ended.code, 0, "{}", ended.errors);
        assert_eq!(ended.output.matches("checked ").count(), 3, "{}", ended.output);
    }
    let ended = huntd(&[&topics[..], &["--set", "kafka.dead_letter_topic=away"]].concat());
    assert_eq!(ended.code, 2, "{}", ended.errors);
    let sentence = "would have 3 replicas, as the existing ones have, and the cluster has 2";
    assert!(ended.errors.contains(sentence), "{}", ended.errors);
}
