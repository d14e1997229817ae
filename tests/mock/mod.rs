//! An in-process Kafka for tests: librdkafka's mock cluster, and what tests ask of it.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

pub mod running;

use huntd::engine::change::Change;
use huntd::engine::update::{Update, Updates};
use huntd::kafka::client::ClientOptions;
use huntd::output::frame::{Chain, Frame, FrameHeader, FrameKind};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{Headers, Message, OwnedMessage};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{BaseProducer, BaseRecord, DefaultProducerContext, Producer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use std::time::{Duration, Instant};

/// Longest time that anything here may take before the test fails.
pub const PATIENCE: Duration = Duration::from_secs(30);

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
    ClientOptions { brokers: brokers(cluster), client_id, group }
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

/// Makes the frames of one shard as its owner does.
pub struct Shard {
    pub partition: i32,
    pub ownership_id: u32,
    pub epoch: u64,
    pub next_update: u64,
    pub next_offset: i64,
    pub chain: Chain,
}

impl Shard {
    pub fn new(partition: i32) -> Shard {
        Shard {
            partition,
            ownership_id: 1,
            epoch: 1,
            next_update: 0,
            next_offset: 0,
            chain: Chain::default(),
        }
    }

    /// The next frame, with `count` updates, one an event.
    pub fn frame(&mut self, count: u32) -> Box<Frame> {
        let mut updates = Updates::new();
        for _ in 0..count {
            let number = self.next_update;
            let update = Update::new(
                number % 7 + 1,
                1_000 + number as i64,
                Change::Moved { tile: 9, x: number as i32, y: -3 },
            );
            self.chain = self.chain.with(&update);
            self.next_update += 1;
            updates.push(update);
        }
        self.next_offset += i64::from(count.max(1));
        let header = FrameHeader {
            kind: FrameKind::Updates,
            owner_epoch: self.epoch,
            first_update: self.next_update - u64::from(count),
            count,
            next_offset: self.next_offset,
            ruleset: 7,
            chain: self.chain,
            fence_id: 0,
        };
        let Shard { partition, ownership_id, .. } = *self;
        let received_at = Some(Instant::now());
        Box::new(Frame { partition, ownership_id, header, received_at, updates })
    }

    /// A fence of this epoch, as an owner repeats it.
    pub fn fence(&self, fence_id: u128) -> FrameHeader {
        FrameHeader {
            kind: FrameKind::Fence,
            owner_epoch: self.epoch,
            first_update: self.next_update,
            count: 0,
            next_offset: self.next_offset,
            ruleset: 7,
            chain: self.chain,
            fence_id,
        }
    }
}
