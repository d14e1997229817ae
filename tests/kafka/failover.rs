//! Three brokers, of which one at a time freezes, stops or is killed.

use crate::brokers;
use crate::players::Load;
use crate::security;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::{Message, Offset, TopicPartitionList};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use support::accounts::{self, Follower};
use support::daemon::{Huntd, Topics};
use support::kafka::{Cluster, secure};
use support::scrape::get;
use support::serving::Serving;

/// Replicas of each partition, by the ids of their brokers. Those of all topics are the same: what
/// a change of leaders costs a partition, it costs those of the same number in other topics.
const REPLICAS: [&[i32]; 3] = [&[1, 2, 3], &[2, 3, 1], &[3, 1, 2]];

/// Milliseconds for which an output partition may stand still longer than plain clients of the same
/// brokers do: huntd tries a broker that has failed again after at most one second
/// (`RECONNECT_MS_MAX`), for the input, and then for the output. A busy machine takes some more,
/// and a wait that nothing but a timeout ends takes 30 s.
const BEYOND_PLAIN_CLIENTS_MS: i64 = 10 * 1_000;

/// Topics with these replicas, which keep all records.
fn create(cluster: &Cluster, what: &str) -> Topics {
    let topics = Topics::named(what, 3);
    let kept = [("retention.ms", "-1")];
    for topic in [&topics.input, &topics.output, &topics.dead_letters] {
        cluster.client().create_replicated_topic(topic, &REPLICAS, &kept);
    }
    topics
}

/// Where the partitions of a topic end.
fn ends(cluster: &Cluster, topic: &str) -> Vec<i64> {
    cluster.client().ends(topic, 3)
}

/// The longest time between two records of each partition within a range of offsets, in
/// milliseconds by the clocks of the brokers that have appended them.
fn stalls(cluster: &Cluster, topic: &str, from: &[i64], to: &[i64]) -> Vec<i64> {
    let ranges = from.iter().zip(to).map(|(from, to)| *from..*to);
    (0..).zip(ranges).map(|(partition, range)| stall(cluster, topic, partition, range)).collect()
}

fn stall(cluster: &Cluster, topic: &str, partition: i32, range: Range<i64>) -> i64 {
    let records = cluster.client().consume(topic, partition);
    let times: Vec<i64> = records
        .iter()
        .filter(|record| range.contains(&record.offset()))
        .map(|record| record.timestamp().to_millis().expect("the broker has stamped it"))
        .collect();
    times.windows(2).map(|pair| pair[1] - pair[0]).max().expect("there are records")
}

/// What elections cost plain clients, librdkafka's: a producer that appends to a topic of its own
/// all the time, and a consumer of huntd's input.
struct Observer {
    load: Load,
    topics: Topics,
    from: Vec<i64>,
    stop: Arc<AtomicBool>,
    consumer: JoinHandle<Vec<i64>>,
}

impl Observer {
    fn start(cluster: &Cluster, topics: Topics, input: &str) -> Observer {
        stamp_by_broker(cluster, &topics.input);
        let load = Load::start(cluster, &topics);
        while ends(cluster, &topics.input).contains(&0) {
            thread::sleep(Duration::from_millis(50));
        }
        let from = ends(cluster, &topics.input);
        let consumer = consumer_at_end(cluster, input);
        let stop = Arc::new(AtomicBool::new(false));
        let asked = stop.clone();
        let consumer = thread::spawn(move || longest_waits(&consumer, &asked));
        Observer { load, topics, from, stop, consumer }
    }

    /// The longest time for which each partition of its own topic stood still, and the input's for
    /// the consumer, in milliseconds.
    fn finish(self, cluster: &Cluster) -> (Vec<i64>, Vec<i64>) {
        self.stop.store(true, Ordering::Relaxed);
        let consumed = self.consumer.join().expect("it ends by itself");
        let to = ends(cluster, &self.topics.input);
        self.load.finish();
        (stalls(cluster, &self.topics.input, &self.from, &to), consumed)
    }
}

fn consumer_at_end(cluster: &Cluster, topic: &str) -> BaseConsumer {
    let mut config = cluster.client().config();
    config.set("group.id", "huntd-tests-observe").set("enable.auto.commit", "false");
    let consumer: BaseConsumer = config.create().expect("the configuration is valid");
    let mut list = TopicPartitionList::new();
    for partition in 0..3 {
        list.add_partition_offset(topic, partition, Offset::End).expect("the offset is valid");
    }
    consumer.assign(&list).expect("the assignment is valid");
    consumer
}

/// The longest wait for the next record of each partition, in milliseconds.
fn longest_waits(consumer: &BaseConsumer, stop: &AtomicBool) -> Vec<i64> {
    let (mut last, mut longest) = ([None; 3], vec![0; 3]);
    while !stop.load(Ordering::Relaxed) {
        // Errors while a leader moves go away.
        let Some(Ok(record)) = consumer.poll(Duration::from_millis(50)) else { continue };
        let (partition, now) = (record.partition() as usize, Instant::now());
        let since: Instant = last[partition].replace(now).unwrap_or(now);
        longest[partition] = longest[partition].max((now - since).as_millis() as i64);
    }
    longest
}

fn stamp_by_broker(cluster: &Cluster, topic: &str) {
    cluster.client().set_topic(topic, "message.timestamp.type", "LogAppendTime");
}

/// Where each partition will be some events later.
fn goals(follower: &Follower) -> Vec<(usize, i64)> {
    (0..3).map(|place| (place, follower.next_offset(place) + 300)).collect()
}

/// Waits until all partitions have moved on by some events.
fn wait_for_more(follower: &mut Follower, huntd: &mut Huntd) {
    let goals = goals(follower);
    huntd.wait_until("the output goes on", |_| follower.covers(&goals));
}

/// Three brokers take long to start, so the faults come one after the other.
#[test]
fn whatever_happens_to_one_broker_of_three_under_load_costs_nothing_but_time() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (options, logins): (Vec<_>, Vec<_>) =
        secure::brokers_with_login(folder.path(), 3).into_iter().unzip();
    let mut cluster = Cluster::start_each(&options.iter().collect::<Vec<_>>());
    println!("a broker is frozen");
    a_broker_that_is_frozen_under_load_costs_nothing_but_time_with_and_without_tls(
        &mut cluster,
        folder.path(),
        &logins,
    );
    println!("brokers stop or are killed");
    brokers_that_stop_or_are_killed_under_load_cost_nothing_but_time(cluster);
}

fn brokers_that_stop_or_are_killed_under_load_cost_nothing_but_time(mut cluster: Cluster) {
    let [topics, observed] = ["failover", "observer"].map(|what| create(&cluster, what));
    stamp_by_broker(&cluster, &topics.output);
    let load = Load::start(&cluster, &topics);
    let mut huntd = Huntd::start(&cluster, &topics, &[]);
    let mut follower = Follower::new(&cluster, &topics);
    wait_for_more(&mut follower, &mut huntd);

    let survives = "survives";
    cluster.client().create_topic(survives, 1, &[("min.insync.replicas", "2")]);
    let sent = brokers::records(200);
    brokers::produce(&cluster, survives, &sent[..100]);
    cluster.broker_mut(0).kill9();
    brokers::produce(&cluster, survives, &sent[100..]);
    assert_eq!(brokers::consume(&cluster, survives), sent);
    wait_for_more(&mut follower, &mut huntd);
    cluster.broker_mut(0).restart(3);
    assert_eq!(brokers::consume(&cluster, survives), sent);
    wait_for_more(&mut follower, &mut huntd);
    // A rolling restart: each of them is gone for a while, and the others lead its partitions.
    let observer = Observer::start(&cluster, observed, &topics.input);
    let from = ends(&cluster, &topics.output);
    for number in [1, 2, 0] {
        cluster.broker_mut(number).stop();
        wait_for_more(&mut follower, &mut huntd);
        cluster.broker_mut(number).restart(3);
        wait_for_more(&mut follower, &mut huntd);
    }

    let to = ends(&cluster, &topics.output);
    let (elections, input_waits) = observer.finish(&cluster);
    let stalls = stalls(&cluster, &topics.output, &from, &to);
    println!(
        "stalls of huntd's output {stalls:?} ms; for a plain producer {elections:?} ms, for a \
         plain consumer of the input {input_waits:?} ms"
    );
    for ((stall, election), input_wait) in stalls.iter().zip(&elections).zip(&input_waits) {
        let bound = election.max(input_wait) + BEYOND_PLAIN_CLIENTS_MS;
        assert!(*stall <= bound, "{stalls:?} ms, {elections:?} ms, {input_waits:?} ms");
    }

    load.finish();
    accounts::wait_until_covered(&cluster, &topics, &mut follower, &mut huntd);
    let ended = huntd.stop();
    assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
    accounts::assert_is_the_replay(&cluster, &topics, follower);

    let topics = a_later_start_reads_the_log_of_several_leaders(&cluster, &topics);
    a_stop_without_any_broker_is_over_in_time(cluster, &topics);
}

/// Each change of leaders has begun an epoch in the log. To a reader that names the wrong one the
/// log looks truncated (KIP-320).
fn a_later_start_reads_the_log_of_several_leaders(cluster: &Cluster, topics: &Topics) -> Topics {
    let topics = topics.again(cluster);
    let few = "bytes_max = 16384\npartition_bytes_max = 8192";
    let mut huntd = Huntd::start(cluster, &topics, &[("fetch", few)]);
    let mut follower = Follower::new(cluster, &topics);
    accounts::wait_until_covered(cluster, &topics, &mut follower, &mut huntd);
    let ended = huntd.stop();
    assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
    accounts::assert_is_the_replay(cluster, &topics, follower);
    topics
}

/// All its frames are acknowledged, so it has to wait for no broker.
fn a_stop_without_any_broker_is_over_in_time(cluster: Cluster, topics: &Topics) {
    let mut huntd = Huntd::start(&cluster, topics, &[]);
    huntd.wait_until("it is ready", |huntd| {
        huntd.log().contains("\"address\"") && huntd.metric("huntd_ready") == 1
    });
    drop(cluster);
    huntd.stop();
}

/// Its connections stay open, so nobody hears that it is away. While it is frozen, others lead its
/// partitions, and a daemon that starts acquires all of them. Daemons in plaintext and over TLS
/// take turns, so each kind meets a frozen broker while it runs and when it starts.
fn a_broker_that_is_frozen_under_load_costs_nothing_but_time_with_and_without_tls(
    cluster: &mut Cluster,
    folder: &Path,
    logins: &[String],
) {
    let plain: Vec<String> = (0..3).map(|number| cluster[number].address()).collect();
    let tls = security::tls(&folder.join("ca.pem"));
    let sasl = security::sasl("PLAIN", &folder.join("password"));
    let topics = create(cluster, "frozen");
    let start = |number: usize| {
        let (brokers, settings) = match number.is_multiple_of(2) {
            true => (&*plain, &[][..]),
            false => (logins, &[("kafka.tls", tls.as_str()), ("kafka.sasl", &sasl)][..]),
        };
        let brokers: Vec<&str> = brokers.iter().map(String::as_str).collect();
        Huntd::start_with(&brokers, &topics, settings)
    };
    let load = Load::start(cluster, &topics);
    let mut huntd = start(0);
    let mut follower = Follower::new(cluster, &topics);
    wait_for_more(&mut follower, &mut huntd);
    for number in 0..3 {
        cluster.broker_mut(number).freeze();
        wait_for_more(&mut follower, &mut huntd);
        huntd.kill9();
        huntd = start(number + 1);
        wait_for_more(&mut follower, &mut huntd);
        cluster.broker_mut(number).thaw();
        wait_for_more(&mut follower, &mut huntd);
        // Nobody could lead what only the next one to freeze has.
        cluster.client().wait_until_in_sync();
    }
    load.finish();
    accounts::wait_until_covered(cluster, &topics, &mut follower, &mut huntd);
    let ended = huntd.stop();
    assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
    accounts::assert_is_the_replay(cluster, &topics, follower);
}

/// How old each zone is, in milliseconds, as a serving process has it.
fn lags_ms(serving: &Serving) -> Vec<u64> {
    let (_, body) = get(serving.address(), "/v1/zones");
    let zones: serde_json::Value = serde_json::from_str(&body).expect("it is JSON");
    let zones = zones["zones"].as_array().expect("there are zones").iter();
    zones.map(|zone| zone["lag_ms"].as_u64().expect("it is live")).collect()
}

/// Nothing is published, so only a leader can say that a zone is of now.
pub(crate) fn a_view_of_quiet_zones_is_of_now_again_while_a_broker_is_frozen(
    cluster: &mut Cluster,
) {
    let topics = create(cluster, "frozen-view");
    let mut huntd = Huntd::start(cluster, &topics, &[]);
    huntd.wait_for_address();
    let serving = Serving::start(&huntd);
    serving.wait_for("loaded: 3 of 3");
    cluster.broker_mut(1).freeze();
    // Long enough to be old if nobody says more.
    thread::sleep(Duration::from_secs(10));
    huntd.wait_until("zones of now", |_| lags_ms(&serving).iter().all(|lag_ms| *lag_ms < 3_000));
    cluster.broker_mut(1).thaw();
    // The controller has given it up meanwhile.
    cluster.client().wait_until_in_sync();
}
