//! An in-process Kafka for tests: librdkafka's mock cluster, and what tests ask of it.

pub mod running;

use crate::PATIENCE;
use huntd::control::dialler::DialOptions;
use huntd::fetch::dialling::Endpoint;
use huntd::kafka::client::ClientOptions;
use huntd::kafka::security::Security;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{Headers, Message, OwnedMessage};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{BaseProducer, BaseRecord, DefaultProducerContext, Producer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use std::time::{Duration, Instant};

pub type Cluster = MockCluster<'static, DefaultProducerContext>;

/// A cluster of one broker with these topics and partition counts.
pub fn cluster(topics: &[(&str, i32)]) -> Cluster {
    let cluster = MockCluster::new(1).expect("a mock cluster");
    for (topic, partitions) in topics {
        cluster.create_topic(topic, *partitions, 1).expect("a topic");
    }
    cluster
}

/// Where to connect to.
pub fn brokers(cluster: &Cluster) -> Vec<String> {
    cluster.bootstrap_servers().split(',').map(str::to_owned).collect()
}

/// How a client under test reaches the cluster.
pub fn client(cluster: &Cluster) -> ClientOptions {
    let (client_id, group) = ("test".to_owned(), "hunters".to_owned());
    ClientOptions { brokers: brokers(cluster), client_id, security: Security::default(), group }
}

/// How a dialler under test reaches the cluster, for questions about a topic.
pub fn dial_options(cluster: &Cluster, topic: &str) -> DialOptions {
    let ClientOptions { brokers, client_id, security, .. } = client(cluster);
    let bootstrap = brokers.iter().filter_map(|at| Endpoint::parse(at)).collect();
    DialOptions { bootstrap, client_id, topic: topic.to_owned(), security }
}

/// Waits until `done`, which says what it waits for.
pub fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// All records of a partition, in order.
pub fn read_partition(cluster: &Cluster, topic: &str, partition: i32) -> Vec<OwnedMessage> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", cluster.bootstrap_servers())
        .set("group.id", "test-reader")
        .set("enable.auto.commit", "false")
        .set("fetch.wait.max.ms", "1")
        .create()
        .expect("a consumer");
    let (low, high) =
        consumer.fetch_watermarks(topic, partition, PATIENCE).expect("the partition's watermarks");
    assert_eq!(low, 0, "the mock has dropped records");
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(topic, partition, Offset::Beginning).expect("an offset");
    consumer.assign(&list).expect("an assignment");
    let mut records = Vec::new();
    let start = Instant::now();
    while (records.len() as i64) < high {
        assert!(start.elapsed() < PATIENCE, "read {} of {high} records", records.len());
        if let Some(message) = consumer.poll(Duration::from_millis(100)) {
            records.push(message.expect("a record").detach());
        }
    }
    records
}

/// Appends one record as it is.
pub fn append(cluster: &Cluster, topic: &str, partition: i32, value: &[u8]) {
    append_all(cluster, topic, partition, [value]);
}

/// Appends records as they are, in order.
pub fn append_all<'a>(
    cluster: &Cluster,
    topic: &str,
    partition: i32,
    values: impl IntoIterator<Item = &'a [u8]>,
) {
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", cluster.bootstrap_servers())
        .set("linger.ms", "0")
        .set("max.in.flight", "1")
        .create()
        .expect("a producer");
    for value in values {
        let record: BaseRecord<'_, (), [u8]> =
            BaseRecord::to(topic).partition(partition).payload(value);
        producer.send(record).map_err(|(error, _)| error).expect("room for a record");
    }
    producer.flush(PATIENCE).expect("the mock takes the record");
}

/// The header's value as text.
pub fn header(record: &OwnedMessage, name: &str) -> Option<String> {
    let headers = record.headers()?;
    let found = headers.iter().find(|header| header.key == name)?;
    Some(String::from_utf8(found.value?.to_vec()).expect("headers are text"))
}
