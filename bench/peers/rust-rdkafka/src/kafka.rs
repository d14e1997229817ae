//! How both programs talk to Kafka, and how they are started and ended.

use crate::zone::Zone;
use rdkafka::config::ClientConfig;
use rdkafka::error::KafkaError;
use rdkafka::producer::{BaseRecord, DefaultProducerContext, Producer, ThreadedProducer};
use rdkafka::types::RDKafkaErrorCode;
use rdkafka::{Offset, TopicPartitionList};
use std::io::Read;
use std::time::Duration;

/// The command line: brokers, input topic, output topic, partitions; for TLS the authority's file.
pub struct Arguments {
    pub brokers: String,
    pub input: String,
    pub output: String,
    pub partitions: i32,
    pub ca_file: Option<String>,
}

impl Arguments {
    /// Reads the command line.
    pub fn read() -> Arguments {
        let mut given = std::env::args().skip(1);
        let mut next = || given.next().expect("BROKERS INPUT OUTPUT PARTITIONS [CA_FILE]");
        let (brokers, input, output) = (next(), next(), next());
        let partitions = next().parse().expect("a number of partitions");
        Arguments { brokers, input, output, partitions, ca_file: given.next() }
    }

    /// What both clients need to reach the brokers.
    fn client(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.brokers);
        if let Some(file) = &self.ca_file {
            config.set("security.protocol", "ssl").set("ssl.ca.location", file);
        }
        config
    }

    /// Settings of the consumer. Its partitions are assigned by hand: no group has to be joined.
    pub fn consumer(&self) -> ClientConfig {
        let mut config = self.client();
        config
            .set("group.id", format!("{}-reference", self.output))
            .set("enable.auto.commit", "false")
            // Answers at once when there is anything, as huntd asks for.
            .set("fetch.min.bytes", "1")
            .set("fetch.wait.max.ms", "100")
            .set("fetch.message.max.bytes", "1048576")
            // Prefetches so much that the application never waits, within 64 MiB.
            .set("queued.min.messages", "100000")
            .set("queued.max.messages.kbytes", "65536")
            // Its default of a second shows as a stall whenever the queue was full.
            .set("fetch.queue.backoff.ms", "2");
        config
    }

    /// Every partition of the input, from its start.
    pub fn assignment(&self) -> TopicPartitionList {
        let mut list = TopicPartitionList::new();
        for partition in 0..self.partitions {
            list.add_partition_offset(&self.input, partition, Offset::Beginning)
                .expect("the offset is valid");
        }
        list
    }

    /// The producer. Frames are batches already, so it does not wait for more; they travel as LZ4,
    /// as huntd's do.
    pub fn publisher(&self) -> Publisher {
        let producer = self
            .client()
            .set("acks", "all")
            .set("linger.ms", "0")
            .set("compression.type", "lz4")
            .set("batch.size", "1048576")
            .set("message.max.bytes", "1048576")
            .set("max.in.flight.requests.per.connection", "5")
            .set("enable.idempotence", "true")
            .set("queue.buffering.max.kbytes", "524288")
            .create()
            .expect("the settings are valid");
        Publisher { producer, topic: self.output.clone() }
    }
}

/// The way to the output topic; the producer has its own thread.
pub struct Publisher {
    producer: ThreadedProducer<DefaultProducerContext>,
    topic: String,
}

impl Publisher {
    /// Sends one frame, waiting while the buffer is full.
    pub fn send(&self, partition: i32, frame: &[u8]) {
        let mut record: BaseRecord<'_, (), [u8]> =
            BaseRecord::to(&self.topic).partition(partition).payload(frame);
        while let Err((error, unsent)) = self.producer.send(record) {
            let full = KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull);
            assert_eq!(error, full, "the frame cannot be sent");
            std::thread::sleep(Duration::from_millis(1));
            record = unsent;
        }
    }

    /// Waits for the last acknowledgement.
    pub fn finish(self) {
        self.producer.flush(Duration::from_secs(30)).expect("the broker has all frames");
    }
}

/// Waits until standard input is closed: its parent wants it to end.
pub fn wait_for_the_end() {
    let mut scrap = [0; 64];
    while std::io::stdin().read(&mut scrap).is_ok_and(|read| read > 0) {}
}

/// Says what was done, in the line that all programs end with.
pub fn report(zones: &[Zone]) {
    let events: u64 = zones.iter().map(|zone| zone.events).sum();
    let rejects: u64 = zones.iter().map(|zone| zone.rejects).sum();
    let digest = zones.iter().map(Zone::digest).fold(0, u64::wrapping_add);
    println!("events={events} rejects={rejects} digest={digest:016x}");
}
