//! The same topic read by huntd's own code and by librdkafka: the same records.
//!
//! The broker is librdkafka's mock cluster; the batches are librdkafka's own, in every codec.

use std::time::{Duration, Instant};
use support::PATIENCE;

use huntd::kafka::error_code::ErrorCode;
use huntd::kafka::fetch::{self, FETCH_VERSION_MIN, FetchPartition, FetchRemedy};
use huntd::kafka::metadata::LeaderTable;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{Header, Message, OwnedHeaders};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{BaseProducer, BaseRecord, DefaultProducerContext, Producer};
use rdkafka::{Offset, TopicPartitionList};

use crate::broker_connection::{Connection, Fetched};
use huntd::testing::batch_builder::Owned;

/// The newest Fetch of the mock cluster.
const MOCK_FETCH_VERSION_MAX: i16 = 16;

const RECORDS: i64 = 4000;
const PARTITIONS: i32 = 3;

type Cluster = MockCluster<'static, DefaultProducerContext>;

fn cluster(brokers: i32, topic: &str) -> Cluster {
    let cluster = MockCluster::new(brokers).unwrap();
    cluster.create_topic(topic, PARTITIONS, brokers).unwrap();
    cluster
}

/// Produces records of all shapes to every partition: null and empty keys and values, headers.
fn produce(cluster: &Cluster, topic: &str, codec: &str) {
    let producer: BaseProducer<DefaultProducerContext> = ClientConfig::new()
        .set("bootstrap.servers", cluster.bootstrap_servers())
        .set("compression.type", codec)
        .set("linger.ms", "20")
        .set("batch.num.messages", "500")
        .create()
        .unwrap();
    for place in 0..RECORDS {
        for partition in 0..PARTITIONS {
            let key = format!("player-{}", place % 100);
            let value = format!(
                "{{\"type\":\"move\",\"player_id\":{place},\"partition\":{partition},\"x\":{}}}",
                place * 7919 % 100_000
            );
            let mut record = BaseRecord::<str, str>::to(topic)
                .partition(partition)
                .timestamp(1_767_225_600_000 + place * 13 % 1000);
            if place % 5 != 0 {
                record = record.key(&key);
            }
            if place % 7 != 0 {
                record = record.payload(if place % 11 == 0 { "" } else { &value });
            }
            if place % 4 == 0 {
                let header = Header { key: "trace", value: Some("0123456789") };
                record = record.headers(OwnedHeaders::new().insert(header));
            }
            producer.send(record).map_err(|(error, _)| error).unwrap();
        }
        producer.poll(Duration::ZERO);
    }
    producer.flush(PATIENCE).unwrap();
}

/// What librdkafka's consumer delivers of one partition.
fn consume(cluster: &Cluster, topic: &str, partition: i32) -> Vec<Owned> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", cluster.bootstrap_servers())
        .set("group.id", "oracle")
        .set("fetch.wait.max.ms", "1")
        .create()
        .unwrap();
    let mut assignment = TopicPartitionList::new();
    assignment.add_partition_offset(topic, partition, Offset::Beginning).unwrap();
    consumer.assign(&assignment).unwrap();
    let deadline = Instant::now() + PATIENCE;
    let mut all = Vec::new();
    while all.len() < RECORDS as usize {
        assert!(Instant::now() < deadline, "librdkafka delivered {} records", all.len());
        let Some(message) = consumer.poll(Duration::from_millis(100)) else {
            continue;
        };
        let message = message.unwrap();
        all.push(Owned {
            offset: message.offset(),
            timestamp_ms: message.timestamp().to_millis().unwrap(),
            key: message.key().map(<[u8]>::to_vec),
            value: message.payload().map(<[u8]>::to_vec),
        });
    }
    all
}

#[test]
fn records_are_the_same_as_librdkafkas_in_every_codec_and_version() {
    for codec in ["none", "gzip", "snappy", "lz4", "zstd"] {
        let cluster = cluster(1, "zones");
        produce(&cluster, "zones", codec);
        let (mut connection, _) = Connection::open(&cluster.bootstrap_servers());
        for partition in 0..PARTITIONS {
            let expected = consume(&cluster, "zones", partition);
            for version in FETCH_VERSION_MIN..=MOCK_FETCH_VERSION_MAX {
                let read = connection.drain(version, "zones", partition, 0, RECORDS);
                assert!(read == expected, "{codec}, Fetch {version}, partition {partition}");
            }
            let late = connection.drain(MOCK_FETCH_VERSION_MAX, "zones", partition, 1234, RECORDS);
            assert!(late == expected[1234..], "{codec}, from the middle of a batch");
        }
    }
}

#[test]
fn an_old_broker_is_asked_for_its_versions_in_the_old_form() {
    let cluster = cluster(1, "zones");
    let (connection, version) = Connection::open(&cluster.bootstrap_servers());
    // The mock cluster knows ApiVersions up to 2.
    assert_eq!((version, connection.versions.fetch), (0, MOCK_FETCH_VERSION_MAX));
}

#[test]
fn partitions_are_read_from_their_leaders_and_followers_refuse() {
    let cluster = cluster(3, "zones");
    for partition in 0..PARTITIONS {
        cluster.partition_leader("zones", partition, Some(partition + 1)).unwrap();
    }
    produce(&cluster, "zones", "lz4");
    let bootstrap = cluster.bootstrap_servers();
    let (mut first, _) = Connection::open(bootstrap.split(',').next().unwrap());
    let mut table = LeaderTable::new();
    table.fold(&first.metadata("zones")).unwrap();
    assert_eq!((table.brokers().len(), table.partition_count()), (3, PARTITIONS as usize));
    assert_eq!(table.stale().count(), 0);
    for partition in 0..PARTITIONS {
        let leader = table.leader(partition).unwrap();
        assert_eq!(leader.node_id, partition + 1);
        let address = |node_id| {
            let broker = table.broker(node_id).unwrap();
            format!("{}:{}", broker.host, broker.port)
        };
        let (mut connection, _) = Connection::open(&address(leader.node_id));
        let read = connection.drain(MOCK_FETCH_VERSION_MAX, "zones", partition, 0, RECORDS);
        assert!(read == consume(&cluster, "zones", partition));

        let (mut other, _) = Connection::open(&address((partition + 1) % 3 + 1));
        let Fetched { error, records, .. } =
            other.fetch_once(MOCK_FETCH_VERSION_MAX, "zones", at(partition, 0));
        assert_eq!(fetch::trouble(error), Some(FetchRemedy::RefreshMetadata), "{error}");
        assert!(records.is_empty());
    }
}

#[test]
fn an_offset_beyond_the_log_and_a_missing_partition_are_named() {
    let cluster = cluster(1, "zones");
    let (mut connection, _) = Connection::open(&cluster.bootstrap_servers());
    for version in FETCH_VERSION_MIN..=MOCK_FETCH_VERSION_MAX {
        let error = connection.fetch_once(version, "zones", at(0, 99)).error;
        assert_eq!(error, ErrorCode::OFFSET_OUT_OF_RANGE);
        let error = connection.fetch_once(version, "zones", at(PARTITIONS, 0)).error;
        assert_eq!(error, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    }
    let metadata = connection.metadata("zones");
    assert_eq!(metadata.partitions.len(), PARTITIONS as usize);
}

fn at(partition: i32, offset: i64) -> FetchPartition {
    FetchPartition {
        partition,
        offset,
        leader_epoch: -1,
        last_fetched_epoch: -1,
        bytes_max: 1 << 20,
    }
}
