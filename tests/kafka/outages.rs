//! Where something cannot be stored for a while, its shard waits; the others go on, nothing is
//! lost. Topics whose partitions live on one broker alone, and a broker that stops, show it.

use crate::failover::a_view_of_quiet_zones_is_of_now_again_while_a_broker_is_frozen;
use crate::operators::existing_topics_are_checked_although_a_broker_is_away;
use crate::players::{events, produce};
use crate::stalls::the_lag_is_that_of_the_log_while_the_output_takes_nothing;
use huntd::ownership::START_ERROR_MS_MAX;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};
use support::accounts::{self, Follower};
use support::daemon::{Huntd, Topics};
use support::kafka::{Cluster, Options};

/// Id of the broker that stops, and its place in the cluster.
const STOPPING: (i32, usize) = (2, 1);

/// A daemon whose output or dead letters are kept by [`STOPPING`] in part.
struct Victim {
    topics: Topics,
    huntd: Huntd,
    follower: Follower,
}

impl Victim {
    /// Starts it on three partitions with some input, and waits until that is published.
    fn start(cluster: &Cluster, topics: Topics) -> Victim {
        produce(cluster, &topics, &events(3, 30, 1..=20));
        let huntd = Huntd::start(cluster, &topics, &[("publish", "frames_per_shard = 4")]);
        let follower = Follower::new(cluster, &topics);
        let mut victim = Victim { topics, huntd, follower };
        victim.wait_until_covered(cluster);
        victim
    }

    fn wait_until_covered(&mut self, cluster: &Cluster) {
        let Victim { topics, huntd, follower } = self;
        accounts::wait_until_covered(cluster, topics, follower, huntd);
    }

    /// Waits until the partitions that need nothing of the stopped broker are published so far.
    fn wait_for_others(&mut self, held_up: usize, end: i64) {
        let others: Vec<(usize, i64)> =
            (0..3).filter(|place| *place != held_up).map(|place| (place, end)).collect();
        let follower = &mut self.follower;
        self.huntd.wait_until("the others go on", |_| follower.covers(&others));
        assert!(follower.next_offset(held_up) < end, "a broker that it needs is away");
    }

    fn finish(mut self, cluster: &Cluster) -> Topics {
        self.wait_until_covered(cluster);
        let ended = self.huntd.stop();
        assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
        accounts::assert_is_the_replay(cluster, &self.topics, self.follower);
        self.topics
    }
}

/// Three brokers start as long as some of these outages take, so they come one after the other.
#[test]
fn an_outage_of_one_broker_of_three_costs_nothing_but_time() {
    let cluster = &mut Cluster::start(3, &Options::for_tests());
    in_turn(cluster, what_cannot_be_stored_for_a_while_holds_up_its_shard_alone_and_arrives_later);
    in_turn(cluster, a_shard_that_cannot_start_without_its_replica_waits_for_the_snapshot_topic);
    in_turn(cluster, the_lag_is_that_of_the_log_while_the_output_takes_nothing);
    in_turn(cluster, a_view_of_quiet_zones_is_of_now_again_while_a_broker_is_frozen);
    // It leaves one broker stopped.
    in_turn(cluster, existing_topics_are_checked_although_a_broker_is_away);
}

/// Runs one of several parts of a test on the same cluster, and says which.
pub(crate) fn in_turn<F: Fn(&mut Cluster)>(cluster: &mut Cluster, part: F) {
    println!("{}", std::any::type_name::<F>());
    part(cluster);
}

fn what_cannot_be_stored_for_a_while_holds_up_its_shard_alone_and_arrives_later(
    cluster: &mut Cluster,
) {
    let mut topics = Topics::create(cluster, "letters-wait", 3);
    topics.dead_letters.push_str("-alone");
    cluster.client().create_topic_on(&topics.dead_letters, &[STOPPING.0], &[]);
    let mut letters = Victim::start(cluster, topics);
    let mut output = Victim::start(cluster, output_on_each("output-waits", cluster));
    let stopped = Victim::start(cluster, output_on_each("stop-waits", cluster));

    cluster.broker_mut(STOPPING.1).stop();
    let no_events = [(0, b"".as_slice(), b"no event".as_slice()); 300];
    cluster.client().produce(&letters.topics.input, no_events);
    for round in 21..=40 {
        for victim in [&letters, &output, &stopped] {
            produce(cluster, &victim.topics, &events(3, 30, round..=round));
        }
        thread::sleep(Duration::from_millis(20));
    }
    output.wait_for_others(1, 400);
    letters.wait_for_others(0, 400);
    thread::sleep(Duration::from_millis(1_500));
    let committed = cluster.client().committed(letters.topics.group(), &letters.topics.input, 3);
    assert!(committed[0] <= 200, "what no letter tells is not committed: {committed:?}");
    let stopped = a_stop_is_over_in_time(cluster, stopped);
    let more = a_shard_that_waits_is_not_called_ready(cluster, &mut letters);

    cluster.broker_mut(STOPPING.1).restart(3);
    letters.huntd.wait_until("all move again", |huntd| huntd.metric("huntd_shards_still") == 0);
    let topics = letters.finish(cluster);
    assert_eq!(cluster.client().watermarks(&topics.dead_letters, 0), (0, 300 + more));
    output.finish(cluster);
    stopped.finish(cluster);
}

/// Nothing has failed for good, so no shard is halted; but the metrics show that it waits, although
/// a record comes in each second, as ticks do. The number of these records.
fn a_shard_that_waits_is_not_called_ready(cluster: &Cluster, victim: &mut Victim) -> i64 {
    let Victim { topics, huntd, .. } = victim;
    let (begun, mut more) = (Instant::now(), 0);
    huntd.wait_until("a shard that stands still", |huntd| {
        if begun.elapsed().as_secs() >= more as u64 {
            cluster.client().produce(&topics.input, [(0, b"".as_slice(), b"no event".as_slice())]);
            more += 1;
        }
        huntd.metric("huntd_shards_still") > 0
    });
    let log = huntd.log();
    let sentence = "the partition stands still: brokers do not acknowledge what was sent";
    assert!(log.contains(sentence), "{log}");
    assert_eq!(huntd.metric("huntd_ready"), 0);
    let answer = huntd.get("/readyz");
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(answer.contains("shards that stand still: 1"), "{answer}");
    more
}

fn output_on_each(what: &str, cluster: &Cluster) -> Topics {
    let mut topics = Topics::create(cluster, what, 3);
    topics.output.push_str("-alone");
    cluster.client().create_topic_on(&topics.output, &[1, STOPPING.0, 3], &[]);
    topics
}

/// A daemon that cannot publish what it has says so when it is stopped, and the next start
/// publishes it. Nor does a start that waits for its fence hold up a stop.
fn a_stop_is_over_in_time(cluster: &Cluster, mut victim: Victim) -> Victim {
    victim.wait_for_others(1, 400);
    let ended = victim.huntd.stop();
    assert_eq!(ended.status.code(), Some(4), "{}:\n{}", ended.status, ended.log);
    let sentence = "were not acknowledged in time; the next start publishes them";
    assert!(ended.log.contains(sentence), "{}", ended.log);
    let mut huntd = Huntd::start(cluster, &victim.topics, &[]);
    huntd.wait_until("assigned", |huntd| huntd.log().contains("\"message\":\"assigned\""));
    huntd.stop();
    Victim { huntd: Huntd::start(cluster, &victim.topics, &[]), ..victim }
}

/// As long as the topic of replicas does not answer, it is not known whether there is a replica. So
/// no shard starts without one, not even with `--genesis`.
fn a_shard_that_cannot_start_without_its_replica_waits_for_the_snapshot_topic(
    cluster: &mut Cluster,
) {
    let topics = Topics::create(cluster, "replicas-wait", 1);
    let replicas = format!("{}-replicas", topics.input);
    let compacted = [("cleanup.policy", "compact")];
    cluster.client().create_topic_on(&replicas, &[STOPPING.0], &compacted);
    let settings = format!("topic = {replicas:?}\nevery_ms = 200");
    let start = |cluster: &Cluster, folder: &Path, arguments: &[&str]| {
        let snapshot = format!("directory = {folder:?}\n{settings}");
        Huntd::start_as(cluster, &topics, &[("snapshot", &snapshot)], arguments)
    };
    let (here, elsewhere) = (tempfile::tempdir(), tempfile::tempdir());
    let (here, elsewhere) = (here.expect("a folder"), elsewhere.expect("a folder"));
    produce(cluster, &topics, &events(1, 20, 1..=30));
    let mut follower = Follower::new(cluster, &topics);
    let mut huntd = start(cluster, here.path(), &[]);
    accounts::wait_until_covered(cluster, &topics, &mut follower, &mut huntd);
    huntd.wait_until("a replica", |huntd| huntd.metric("huntd_snapshot_replicas_stored_total") > 0);
    let ended = huntd.stop();
    assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
    let (replayed, _) = accounts::replay(cluster, &topics, 0);
    // Each snapshot replica holds more than this.
    cluster.client().delete_records(&topics.input, 0, 1);

    cluster.broker_mut(STOPPING.1).stop();
    let mut huntd = start(cluster, elsewhere.path(), &["--genesis"]);
    huntd.wait_until("a refusal", |huntd| huntd.log().contains("the input begins at offset 1"));
    thread::sleep(Duration::from_millis(START_ERROR_MS_MAX + 2_000));
    assert!(!huntd.log().contains("starting over"), "{}", huntd.log());
    assert!(!huntd.log().contains("has halted"), "{}", huntd.log());
    cluster.broker_mut(STOPPING.1).restart(3);
    huntd.wait_until("the shard", |huntd| huntd.log().contains("\"live\""));
    let ended = huntd.stop();
    assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
    assert!(ended.log.contains("\"from_snapshot\":true"), "{}", ended.log);
    assert!(follower.into_stories().remove(0) == replayed);
}
