//! What is said while shards catch up with their input.

use crate::players::events;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use support::PATIENCE;
use support::accounts::{self, Follower};
use support::daemon::{Huntd, Topics};
use support::kafka::{Cluster, Options};
use support::notified::Systemd;
use support::scrape::Page;

/// Appends events in batches so small, and fetched so few at once, that reading them takes a while.
fn produce_in_small_batches(cluster: &Cluster, topics: &Topics, events: &[(i32, String)]) {
    let mut config = cluster.client().config();
    config.set("batch.num.messages", "10").set("queue.buffering.max.messages", "0");
    let producer: BaseProducer = config.create().expect("the configuration is valid");
    for (partition, text) in events {
        let record: BaseRecord<'_, (), str> =
            BaseRecord::to(&topics.input).partition(*partition).payload(text);
        producer.send(record).map_err(|(error, _)| error).expect("there is room");
    }
    producer.flush(PATIENCE).expect("acknowledged");
}

const FEW_AT_ONCE: [(&str, &str); 1] =
    [("fetch", "bytes_max = 1024\npartition_bytes_max = 1024\nconnections_per_broker = 1")];

/// The numbers of `restoring 2 of 2 shards, 7000 records to go at 9000/s, about 1 s`, except how
/// many shards there are: a shard may begin before the next one.
fn told(line: &str) -> Option<[u64; 4]> {
    let (_, rest) = line.split_once("restoring ")?;
    let (shards, rest) = rest.split_once(" of ")?;
    let (_, rest) = rest.split_once(" shards, ")?;
    let (to_go, rest) = rest.split_once(" records to go at ")?;
    let (per_second, rest) = rest.split_once("/s, about ")?;
    let (seconds, _) = rest.split_once(" s")?;
    let numbers = [shards, to_go, per_second, seconds].map(str::parse);
    numbers.iter().all(Result::is_ok).then(|| numbers.map(|number| number.expect("a number")))
}

#[test]
fn a_start_that_takes_long_says_how_much_is_left_and_asks_for_the_time() {
    let mut cluster = Cluster::start(1, &Options::for_tests());
    let topics = Topics::create(&cluster, "restoring", 2);
    let events = events(2, 20, 1..=3_000);
    produce_in_small_batches(&cluster, &topics, &events);

    let systemd = Systemd::listen();
    let mut huntd = Huntd::start_under(&systemd.path, &cluster, &topics, &FEW_AT_ONCE);
    // Not before: a broker that is silent here leaves the shards to nobody, and none is restored.
    huntd.wait_until("both shards", |huntd| huntd.log().matches("\"acquired\"").count() == 2);
    // Without a rate and the ends of the logs there is no estimate.
    huntd.wait_until("records of both shards", |huntd| {
        let page = Page::of(&huntd.address());
        page.samples("huntd_lag_records").count() == 2
            && page.value("huntd_records_received_total") > 100
    });
    // The broker is silent for less than a group session lasts, so that the rest has to wait.
    cluster.broker_mut(0).freeze();
    let mut heard = Vec::new();
    let [shards, to_go, per_second, seconds] = loop {
        heard.extend(systemd.hear());
        assert!(heard.len() < 1_000, "no estimate: {heard:?}");
        if let Some(numbers) = heard.iter().find_map(|line| told(line)) {
            break numbers;
        }
    };
    cluster.broker_mut(0).thaw();
    assert!(heard.iter().any(|line| line.starts_with("EXTEND_TIMEOUT_USEC=")), "{heard:?}");
    assert!(!heard.iter().any(|line| line == "READY=1"), "{heard:?}");
    assert!((1..=2).contains(&shards), "{shards} shards");
    assert!(0 < to_go && to_go < events.len() as u64, "{to_go} records to go");
    assert_eq!(seconds, to_go.div_ceil(per_second));

    let mut follower = Follower::new(&cluster, &topics);
    systemd.hear_until("READY=1");
    accounts::wait_until_covered(&cluster, &topics, &mut follower, &mut huntd);
    let ended = huntd.stop();
    assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
    assert!(ended.log.lines().any(|line| told(line).is_some()), "{}", ended.log);
    accounts::assert_is_the_replay(&cluster, &topics, follower);
}
