//! What must neither stop a shard for good nor let it stand still without a word.

use crate::players::{events, produce};
use crate::snapshots::{published, settings, start};
use std::time::Duration;
use support::accounts::{self, Follower};
use support::daemon::{Huntd, Topics};
use support::kafka::acl::{self, Resource};
use support::kafka::broker::free_ports;
use support::kafka::proxy::Proxy;
use support::kafka::reassign::move_partition;
use support::kafka::{self, Cluster, Listener, Options};
use support::notified::Systemd;
use support::scrape::Page;

#[test]
fn retention_that_passes_a_sleeping_daemon_halts_it_with_its_own_sentence() {
    let (topics, folder) = published("passed", 30);
    let mut huntd = start(&topics, &settings(folder.path()), &[]);
    huntd.wait_until("the shard is live", |huntd| huntd.log().contains("\"live\""));
    huntd.sleep_between_fetches();
    produce(kafka::shared(), &topics, &events(1, 20, 31..=40));
    kafka::shared().client().delete_records(&topics.input, 0, 700);
    huntd.signal("CONT");
    let ended = huntd.stop_halted();
    assert!(ended.log.contains("retention has passed offset 600"), "{}", ended.log);
    assert!(ended.log.contains("begins at 700 now"), "{}", ended.log);
}

/// And it is not silent: after ten seconds, the log, the metrics and `/readyz` say so.
#[test]
fn a_right_to_read_that_is_taken_and_given_back_costs_nothing_but_time() {
    let options = Options { properties: acl::properties(), ..Options::for_tests() };
    let cluster = Cluster::start(1, &options);
    let topics = Topics::create(&cluster, "forbidden", 1);
    produce(&cluster, &topics, &events(1, 20, 1..=10));
    let systemd = Systemd::listen();
    let mut huntd = Huntd::start_under(&systemd.path, &cluster, &topics, &[]);
    let mut follower = Follower::new(&cluster, &topics);
    accounts::wait_until_covered(&cluster, &topics, &mut follower, &mut huntd);
    acl::deny_reading(&cluster[0].address(), Resource::Topic, &topics.input);
    produce(&cluster, &topics, &events(1, 20, 11..=20));
    let words = "cannot be fetched now: TOPIC_AUTHORIZATION_FAILED";
    huntd.wait_until("a line about it", |huntd| huntd.log().contains(words));
    assert!(huntd.metric("huntd_fetch_errors_total") > 0);
    systemd.hear_until(
        "STATUS=huntd is not ready: shards that stand still: 1; read the log; partition 0: no \
         broker reports the end of its log",
    );
    assert_says_that_it_stands_still(&mut huntd, 0);

    acl::give_back(&cluster[0].address(), Resource::Topic, &topics.input);
    accounts::wait_until_covered(&cluster, &topics, &mut follower, &mut huntd);
    systemd.hear_until("STATUS=huntd is ready");
    let still: Vec<_> = still(&huntd);
    assert_eq!(still, [("partition=\"0\"".to_owned(), 0)]);
    assert!(huntd.get("/readyz").starts_with("HTTP/1.1 200 "), "{}", huntd.get("/readyz"));
    let ended = huntd.stop();
    assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
}

/// The connection to the leader before stays open, and its broker says truly that another one leads
/// now. So nothing fails but the way to that one, and no answer tells where the log ends any more.
#[test]
fn a_partition_whose_new_leader_cannot_be_reached_stands_still_until_it_can() {
    let [near, far, told] = free_ports(3)[..] else { panic!("three were asked for") };
    let listener = |port| Listener::local("HUNTD", "PLAINTEXT", port);
    let [here, there] = [listener(near), listener(far).told_at(told)]
        .map(|listener| Options { listeners: vec![listener], ..Options::for_tests() });
    let cluster = Cluster::start_each(&[&here, &there]);
    // The second broker has nothing that huntd needs until a partition moves to it.
    let topics = Topics::led_by(&cluster, "unreachable", 2, 1);
    produce(&cluster, &topics, &events(2, 20, 1..=10));
    let mut huntd = Huntd::start_with(&[&format!("localhost:{near}")], &topics, &[]);
    let mut follower = Follower::new(&cluster, &topics);
    accounts::wait_until_covered(&cluster, &topics, &mut follower, &mut huntd);

    move_partition(&cluster, &topics.input, 1, 2);
    produce(&cluster, &topics, &events(2, 20, 11..=20));
    let still_shards = |huntd: &Huntd| huntd.metric("huntd_shards_still");
    huntd.wait_until("a shard that stands still", |huntd| still_shards(huntd) == 1);
    assert_says_that_it_stands_still(&mut huntd, 1);
    let refusal = format!("broker localhost:{told}: Connection refused");
    assert!(huntd.log().contains(&refusal), "{}", huntd.log());
    assert!(follower.covers(&[(0, 200)]), "the other shard goes on");
    let page = Page::of(&huntd.address());
    let lags: Vec<_> = page.samples("huntd_lag_records").collect();
    assert_eq!(lags, [("partition=\"0\"", 0)], "the lag of the other one is unknown");

    let _proxy = Proxy::start(told, far);
    accounts::wait_until_covered(&cluster, &topics, &mut follower, &mut huntd);
    huntd.wait_until("both move", |huntd| still_shards(huntd) == 0);
    huntd.wait_until("readiness", |huntd| huntd.get("/readyz").starts_with("HTTP/1.1 200 "));
    let ended = huntd.stop();
    assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
    accounts::assert_is_the_replay(&cluster, &topics, follower);
}

/// Which shards stand still, as the page of metrics has it.
fn still(huntd: &Huntd) -> Vec<(String, u64)> {
    let page = Page::of(&huntd.address());
    let samples = page.samples("huntd_shards_still");
    samples.map(|(labels, value)| (labels.to_owned(), value)).collect()
}

const STANDS_STILL: &str = "the partition stands still: ";

fn assert_says_that_it_stands_still(huntd: &mut Huntd, partition: i32) {
    let label = format!("partition=\"{partition}\"");
    let still: Vec<_> = still(huntd).into_iter().filter(|(_, still)| *still > 0).collect();
    assert_eq!(still, [(label, 1)]);
    // The thread that writes the log may come later than the metric.
    huntd.wait_until("it is in the log", |huntd| huntd.log().contains(STANDS_STILL));
    let log = huntd.log();
    let line = log.lines().find(|line| line.contains(STANDS_STILL)).expect("it is in the log");
    assert!(line.contains(&format!("\"partition\":{partition}}}")), "{line}");
    assert!(line.contains("no broker reports the end of its log"), "{line}");
    let answer = huntd.get("/readyz");
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(answer.contains("shards that stand still: 1"), "{answer}");
    let why = format!("\npartition {partition}: no broker reports the end of its log");
    assert!(answer.contains(&why), "{answer}");
}

/// On three brokers.
pub(crate) fn the_lag_is_that_of_the_log_while_the_output_takes_nothing(cluster: &mut Cluster) {
    const RECORDS: u64 = 40_000;
    let mut topics = Topics::create(cluster, "lag", 1);
    topics.output.push_str("-alone");
    cluster.client().create_topic_on(&topics.output, &[2], &[]);
    let mut huntd = Huntd::start(cluster, &topics, &[("publish", "frames_per_shard = 1")]);
    huntd.wait_until("the shard is live", |huntd| huntd.log().contains("\"live\""));
    cluster.broker_mut(1).stop();
    produce(cluster, &topics, &events(1, 200, 1..=RECORDS / 200));
    huntd.wait_until("the whole lag", |huntd| huntd.metric("huntd_lag_records") == RECORDS);
    // The shard takes no more, so no Fetch tells of these.
    produce(cluster, &topics, &events(1, 200, RECORDS / 200 + 1..=RECORDS / 200 + 1));
    huntd.wait_until("the new lag", |huntd| huntd.metric("huntd_lag_records") == RECORDS + 200);
    cluster.broker_mut(1).restart(3);
    huntd.wait_until("no lag", |huntd| huntd.metric("huntd_lag_records") == 0);
    let ended = huntd.stop();
    assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
}

#[test]
fn a_dead_letter_topic_that_is_deleted_is_named_until_it_exists_again() {
    let topics = Topics::create(kafka::shared(), "letters-deleted", 1);
    produce(kafka::shared(), &topics, &events(1, 20, 1..=10));
    let mut huntd = Huntd::start(kafka::shared(), &topics, &[]);
    let mut follower = Follower::new(kafka::shared(), &topics);
    accounts::wait_until_covered(kafka::shared(), &topics, &mut follower, &mut huntd);
    let client = kafka::shared().client();
    client.delete_topic(&topics.dead_letters);
    produce(kafka::shared(), &topics, &[(0, "no event".to_owned())]);
    produce(kafka::shared(), &topics, &events(1, 20, 11..=20));

    let name = format!("`{}`", topics.dead_letters);
    let sentence = format!("the topic {name} does not exist any more");
    huntd.wait_until("a line about it", |huntd| huntd.log().contains(&sentence));
    let answer = huntd.get("/readyz");
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains(&name), "{answer}");
    assert_eq!(huntd.metric("huntd_ready"), 0);

    client.create_topic(&topics.dead_letters, 1, &[]);
    accounts::wait_until_covered(kafka::shared(), &topics, &mut follower, &mut huntd);
    huntd.wait_until("readiness", |huntd| huntd.get("/readyz").starts_with("HTTP/1.1 200 "));
    let ended = huntd.stop();
    assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
    assert_eq!(client.watermarks(&topics.dead_letters, 0), (0, 1));
    accounts::assert_is_the_replay(kafka::shared(), &topics, follower);
}

/// By default a broker creates a topic that a client asks for, with one partition and its own
/// settings.
#[test]
fn topics_that_are_deleted_under_a_running_daemon_stay_away_until_the_operator_creates_them() {
    let topics = Topics::create(kafka::shared(), "all-deleted", 1);
    let snapshots = format!("{}-snapshots", topics.output);
    let client = kafka::shared().client();
    client.create_topic(&snapshots, 1, &[("cleanup.policy", "compact")]);
    produce(kafka::shared(), &topics, &events(1, 20, 1..=10));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let directory = folder.path();
    let lines = format!("directory = {directory:?}\nevery_ms = 200\ntopic = {snapshots:?}");
    let mut huntd = start(&topics, &[("snapshot", lines)], &[]);
    huntd.wait_until("the shard is live", |huntd| huntd.log().contains("\"live\""));
    let names = [&topics.output, &topics.dead_letters, &snapshots, &topics.input];
    // Records wait for the topics that go first.
    produce(kafka::shared(), &topics, &[(0, "no event".to_owned())]);
    produce(kafka::shared(), &topics, &events(1, 20, 11..=20));
    names.iter().for_each(|name| client.delete_topic(name));
    for name in names {
        let sentence = format!("the topic `{name}` does not exist any more");
        huntd.wait_until("a line about each", |huntd| huntd.log().contains(&sentence));
    }
    // librdkafka's clients ask for their topics every second or two.
    std::thread::sleep(Duration::from_secs(5));
    for name in names {
        assert!(!client.has_topic(name), "{name} was created:\n{}", huntd.log());
    }
}

/// The group gives the partitions to nobody, as it is frozen too. librdkafka's member of a classic
/// group that hears nothing until its group session times out has lost them; one of a new group
/// keeps them.
#[test]
fn an_instance_whose_brokers_are_frozen_is_not_ready_and_knows_no_lag_until_they_answer() {
    let mut cluster = Cluster::start(1, &Options::for_tests());
    let mut victims = ["classic", "consumer"].map(|protocol| {
        let topics = Topics::create(&cluster, protocol, 2);
        produce(&cluster, &topics, &events(2, 20, 1..=10));
        let group = format!("group_protocol = {protocol:?}");
        let mut huntd = Huntd::start(&cluster, &topics, &[("kafka", &group)]);
        let mut follower = Follower::new(&cluster, &topics);
        accounts::wait_until_covered(&cluster, &topics, &mut follower, &mut huntd);
        huntd.wait_until("readiness", |huntd| huntd.metric("huntd_ready") == 1);
        (topics, huntd, follower)
    });

    cluster.broker_mut(0).freeze();
    for (_, huntd, _) in &mut victims {
        huntd.wait_until("no readiness", |huntd| huntd.metric("huntd_ready") == 0);
    }
    for (_, huntd, _) in &mut victims {
        huntd.wait_until("no lag", |huntd| {
            let page = Page::of(&huntd.address());
            assert_eq!(page.value("huntd_ready"), 0, "{}", huntd.log());
            let lags = ["huntd_lag_records", "huntd_group_lag_records"];
            lags.iter().all(|name| page.samples(name).count() == 0)
        });
        let answer = huntd.get("/readyz");
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    }
    let [(_, classic, _), (_, consumer, _)] = &mut victims;
    classic.wait_until("the loss", |huntd| huntd.log().contains("the group has taken them away"));
    consumer.wait_until("shards that stand still", |huntd| huntd.metric("huntd_shards_still") == 2);
    for (_, huntd, _) in &victims {
        assert_eq!(huntd.metric("huntd_ready"), 0, "{}", huntd.log());
    }

    cluster.broker_mut(0).thaw();
    for (topics, mut huntd, mut follower) in victims {
        produce(&cluster, &topics, &events(2, 20, 11..=20));
        accounts::wait_until_covered(&cluster, &topics, &mut follower, &mut huntd);
        huntd.wait_until("readiness", |huntd| huntd.metric("huntd_ready") == 1);
        let ended = huntd.stop();
        assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
        accounts::assert_is_the_replay(&cluster, &topics, follower);
    }
}

/// A static member that is gone keeps its partitions until its group session ends, and the group
/// lets no other member in before. A daemon that waits to be let in names the partitions that
/// nobody reads.
#[test]
fn partitions_whose_owner_is_gone_are_named_by_an_instance_that_does_not_own_them() {
    let topics = Topics::create(kafka::shared(), "ownerless", 2);
    produce(kafka::shared(), &topics, &events(2, 20, 1..=10));
    let named = |id: &str| format!("group_instance_id = {id:?}\nsession_timeout_ms = 120000");
    let start = |id: &str| Huntd::start(kafka::shared(), &topics, &[("kafka", &named(id))]);
    let mut gone = start("gone");
    let mut follower = Follower::new(kafka::shared(), &topics);
    accounts::wait_until_covered(kafka::shared(), &topics, &mut follower, &mut gone);
    let client = kafka::shared().client();
    let committed = |_: &Huntd| client.committed(topics.group(), &topics.input, 2) == [100; 2];
    gone.wait_until("commits", committed);
    gone.kill9();
    // The other partition has nothing that could be read.
    let only_one = events(1, 20, 11..=20).into_iter().map(|(_, text)| (1, text));
    produce(kafka::shared(), &topics, &only_one.collect::<Vec<_>>());
    let systemd = Systemd::listen();
    let settings = [("kafka", &*named("waiting"))];
    let mut waiting = Huntd::start_under(&systemd.path, kafka::shared(), &topics, &settings);
    // A socket that is not read blocks the daemon's service thread after ten messages.
    let says_so = |line: &String| line.contains("NOBODY READS 1 other partitions");
    let heard = (0..100).any(|_| systemd.hear().iter().any(says_so));
    assert!(heard, "the status line does not say so");
    let words = "nobody reads these partitions: they have records";
    waiting.wait_until("a line about it", |huntd| huntd.log().contains(words));
    assert!(waiting.log().contains("\"partitions\":\"[1]\""), "{}", waiting.log());
    assert_eq!(waiting.metric("huntd_partitions_unread"), 1);
    waiting.kill9();
}
