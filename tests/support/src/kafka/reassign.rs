//! Moves partitions between brokers: rdkafka's admin client does not have this request.

use super::Cluster;
use crate::PATIENCE;
use crate::wire::Connection;
use huntd::kafka::wire::{WireReader, WireWriter};
use rdkafka::producer::{BaseProducer, Producer};
use std::thread;
use std::time::{Duration, Instant};

/// Kafka's AlterPartitionReassignments, in its only version that matters here.
const ALTER_PARTITION_REASSIGNMENTS: i16 = 45;
const VERSION: i16 = 0;

/// Moves a partition to one broker, by its id, and waits until that broker leads it.
pub fn move_partition(cluster: &Cluster, topic: &str, partition: i32, broker: i32) {
    let mut request = Vec::new();
    let mut writer = WireWriter::new(&mut request);
    let start = writer.begin_frame();
    writer.i16(ALTER_PARTITION_REASSIGNMENTS);
    writer.i16(VERSION);
    writer.i32(0); // correlation_id
    writer.string("test", false);
    writer.no_tagged_fields();
    writer.i32(PATIENCE.as_millis() as i32);
    writer.array(1, true);
    writer.string(topic, true);
    writer.array(1, true);
    writer.i32(partition);
    writer.array(1, true);
    writer.i32(broker);
    // Of the partition, of the topic, of the request.
    (0..3).for_each(|_| writer.no_tagged_fields());
    writer.end_frame(start);
    let mut connection = Connection::open(&cluster[0].address());
    connection.send(&request);
    let mut answer = WireReader::new(connection.receive());
    // Correlation id, no tagged fields, throttle time, error code.
    let error = answer.skip(4 + 1 + 4).and_then(|_| answer.i16());
    assert_eq!(error.expect("the broker answers what was asked"), 0, "the partition stays");
    wait_until_led(cluster, topic, partition, broker);
}

fn wait_until_led(cluster: &Cluster, topic: &str, partition: i32, broker: i32) {
    let producer: BaseProducer =
        cluster.client().config().create().expect("the configuration is valid");
    let end = Instant::now() + PATIENCE;
    let is_led = || {
        let metadata = producer.client().fetch_metadata(Some(topic), PATIENCE);
        let metadata = metadata.expect("brokers answer");
        let partitions = metadata.topics().iter().flat_map(|topic| topic.partitions());
        partitions.filter(|found| found.id() == partition).any(|found| found.leader() == broker)
    };
    while !is_led() {
        assert!(Instant::now() < end, "broker {broker} does not lead the partition");
        thread::sleep(Duration::from_millis(50));
    }
}
