//! librdkafka as the tests' own client, to prepare topics and to check what brokers hold.

use crate::PATIENCE;
use futures_lite::future::block_on;
use rdkafka::admin::{
    AdminClient, AdminOptions, AlterConfig, NewPartitions, NewTopic, ResourceSpecifier,
    TopicReplication,
};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, OwnedMessage};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::types::RDKafkaErrorCode;
use rdkafka::{Offset, TopicPartitionList};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Between two questions for what will be so soon.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// After this time a question is asked again: the broker that was asked may be frozen or gone.
const ANSWER_WAIT: Duration = Duration::from_secs(10);

/// A client of one cluster.
pub struct Client {
    bootstrap: String,
    /// Asks for topics and ends of partitions. To connect costs more than an answer.
    inquirer: OnceLock<BaseConsumer>,
}

impl Client {
    /// A client of the cluster at `host:port,host:port`. It connects when it is used.
    pub fn new(bootstrap: &str) -> Client {
        Client { bootstrap: bootstrap.to_owned(), inquirer: OnceLock::new() }
    }

    /// Where the cluster is.
    pub(super) fn bootstrap(&self) -> &str {
        &self.bootstrap
    }

    fn inquirer(&self) -> &BaseConsumer {
        self.inquirer.get_or_init(|| {
            let mut config = self.config();
            // Brokers are restarted meanwhile.
            config.set("reconnect.backoff.max.ms", "500");
            config.create().expect("the configuration is valid")
        })
    }

    /// A librdkafka configuration that names the cluster and creates no topic.
    pub fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config
            .set("bootstrap.servers", &self.bootstrap)
            // A topic that a test misses is created by the program under test, or not at all.
            .set("allow.auto.create.topics", "false");
        config
    }

    /// The configuration of a client that goes to the next leader soon after its broker was frozen.
    pub fn impatient_config(&self) -> ClientConfig {
        let mut config = self.config();
        config.set("socket.timeout.ms", "2000").set("topic.metadata.refresh.interval.ms", "1000");
        config
    }

    /// Creates a topic with the cluster's default number of replicas, and waits for its leaders.
    pub fn create_topic(&self, name: &str, partitions: i32, configs: &[(&str, &str)]) {
        self.create_topics(&[(name, partitions)], configs);
    }

    /// Like [`Client::create_topic`], several with these numbers of partitions.
    pub fn create_topics(&self, topics: &[(&str, i32)], configs: &[(&str, &str)]) {
        let new = |(name, partitions)| NewTopic::new(name, partitions, TopicReplication::Fixed(-1));
        self.create(topics.iter().copied().map(new).collect(), configs);
    }

    /// Creates a topic whose partitions live each on one broker alone, named by its id.
    pub fn create_topic_on(&self, name: &str, brokers: &[i32], configs: &[(&str, &str)]) {
        let replicas: Vec<&[i32]> = brokers.iter().map(std::slice::from_ref).collect();
        self.create_replicated_topic(name, &replicas, configs);
    }

    /// Creates a topic with these replicas of each partition, by the ids of their brokers. The
    /// first one leads.
    pub fn create_replicated_topic(
        &self,
        name: &str,
        replicas: &[&[i32]],
        configs: &[(&str, &str)],
    ) {
        let partitions = i32::try_from(replicas.len()).expect("a count");
        let replication = TopicReplication::Variable(replicas);
        self.create(vec![NewTopic::new(name, partitions, replication)], configs);
    }

    fn create<'a>(&self, mut topics: Vec<NewTopic<'a>>, configs: &[(&'a str, &'a str)]) {
        let admin: AdminClient<DefaultClientContext> =
            self.config().create().expect("the configuration is valid");
        for topic in &mut topics {
            topic.config.extend(configs);
        }
        let options = AdminOptions::new().operation_timeout(Some(PATIENCE));
        let results = block_on(admin.create_topics(&topics, &options)).expect("brokers answer");
        for result in results {
            match result {
                // Names are never used twice, but librdkafka asks again if an answer is lost.
                Ok(_) | Err((_, RDKafkaErrorCode::TopicAlreadyExists)) => {}
                Err((topic, error)) => panic!("topic {topic} not created: {error}"),
            }
        }
        let deadline = Instant::now() + PATIENCE;
        for NewTopic { name, num_partitions, .. } in &topics {
            let led = || {
                let metadata = admin.inner().fetch_metadata(Some(name), PATIENCE);
                let metadata = metadata.expect("brokers answer");
                let partitions = metadata.topics().iter().flat_map(|topic| topic.partitions());
                partitions.filter(|partition| partition.leader() >= 0).count()
            };
            while led() < usize::try_from(*num_partitions).expect("a count") {
                assert!(Instant::now() < deadline, "the partitions of {name} get no leaders");
                std::thread::sleep(POLL_INTERVAL);
            }
        }
    }

    /// Deletes a topic and waits until brokers do not know it; they remove its files soon after.
    pub fn delete_topic(&self, name: &str) {
        let admin: AdminClient<DefaultClientContext> =
            self.config().create().expect("the configuration is valid");
        let deleted = block_on(admin.delete_topics(&[name], &AdminOptions::new()));
        for result in deleted.expect("brokers answer") {
            result.unwrap_or_else(|(topic, error)| panic!("topic {topic} not deleted: {error}"));
        }
        let deadline = Instant::now() + PATIENCE;
        while self.has_topic(name) {
            assert!(Instant::now() < deadline, "the topic {name} does not go");
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Whether a broker knows a topic.
    pub fn has_topic(&self, name: &str) -> bool {
        let metadata = self.inquirer().fetch_metadata(Some(name), PATIENCE);
        let metadata = metadata.expect("brokers answer");
        metadata.topics().iter().any(|topic| topic.name() == name && topic.error().is_none())
    }

    /// Waits until all replicas of all topics, also of Kafka's own, have what their leaders have.
    /// While a replica has not, it cannot become a leader. A broker that was away believes for a
    /// moment what was true before, so each must say it thrice.
    pub fn wait_until_in_sync(&self) {
        let deadline = Instant::now() + PATIENCE;
        let mut in_a_row = 0;
        while in_a_row < 3 {
            assert!(Instant::now() < deadline, "replicas stay behind their leaders");
            std::thread::sleep(Duration::from_millis(200));
            let are_in_sync =
                self.bootstrap.split(',').all(|broker| Client::new(broker).says_in_sync());
            in_a_row = if are_in_sync { in_a_row + 1 } else { 0 };
        }
    }

    /// Whether the one broker that this client knows says that all replicas are in sync.
    fn says_in_sync(&self) -> bool {
        let client: BaseConsumer = self.config().create().expect("the configuration is valid");
        let metadata = client.fetch_metadata(None, PATIENCE).expect("brokers answer");
        metadata.topics().iter().all(|topic| {
            let mut partitions = topic.partitions().iter();
            topic.error().is_none() && partitions.all(|it| it.isr().len() == it.replicas().len())
        })
    }

    /// Adds partitions to a topic until it has this many.
    pub fn add_partitions(&self, name: &str, partitions: usize) {
        let admin: AdminClient<DefaultClientContext> =
            self.config().create().expect("the configuration is valid");
        let wanted = NewPartitions::new(name, partitions);
        let added = block_on(admin.create_partitions([&wanted], &AdminOptions::new()));
        for result in added.expect("brokers answer") {
            result.unwrap_or_else(|(topic, error)| panic!("topic {topic} not enlarged: {error}"));
        }
    }

    /// Replaces all settings of a topic by one.
    pub fn set_topic(&self, name: &str, key: &str, value: &str) {
        let admin: AdminClient<DefaultClientContext> =
            self.config().create().expect("the configuration is valid");
        let config = AlterConfig::new(ResourceSpecifier::Topic(name)).set(key, value);
        let altered = block_on(admin.alter_configs([&config], &AdminOptions::new()));
        for result in altered.expect("brokers answer") {
            result.unwrap_or_else(|(topic, error)| panic!("topic {topic:?} not altered: {error}"));
        }
    }

    /// Deletes the records of a partition before an offset, as retention would.
    pub fn delete_records(&self, topic: &str, partition: i32, before: i64) {
        let admin: AdminClient<DefaultClientContext> =
            self.config().create().expect("the configuration is valid");
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(topic, partition, Offset::Offset(before))
            .expect("the offset is valid");
        let deleted = block_on(admin.delete_records(&list, &AdminOptions::new()));
        for element in deleted.expect("brokers answer").elements() {
            element.error().expect("the records are deleted");
        }
    }

    /// The offsets that a group has committed, -1 where it has none.
    pub fn committed(&self, group: &str, topic: &str, partitions: i32) -> Vec<i64> {
        let consumer: BaseConsumer =
            self.config().set("group.id", group).create().expect("the configuration is valid");
        let mut list = TopicPartitionList::new();
        list.add_partition_range(topic, 0, partitions - 1);
        let committed = consumer.committed_offsets(list, PATIENCE).expect("the group answers");
        committed.elements().iter().map(|place| place.offset().to_raw().unwrap_or(-1)).collect()
    }

    /// The end of each partition.
    pub fn ends(&self, topic: &str, partitions: i32) -> Vec<i64> {
        (0..partitions).map(|partition| self.watermarks(topic, partition).1).collect()
    }

    /// Appends records `(partition, key, value)` with acks=all, in order, and waits for the acks.
    pub fn produce<'a>(
        &self,
        topic: &str,
        records: impl IntoIterator<Item = (i32, &'a [u8], &'a [u8])>,
    ) {
        let producer: BaseProducer = self
            .config()
            .set("enable.idempotence", "true")
            .set("message.max.bytes", "10000000")
            // Records that fit into one batch leave as one batch, when they are flushed.
            .set("linger.ms", "10000")
            .create()
            .expect("the configuration is valid");
        for (partition, key, value) in records {
            let mut record = BaseRecord::to(topic).partition(partition).key(key).payload(value);
            while let Err((error, unsent)) = producer.send(record) {
                assert_eq!(
                    error,
                    KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull),
                    "the record cannot be sent"
                );
                producer.poll(Duration::from_millis(10));
                record = unsent;
            }
        }
        producer.flush(PATIENCE).expect("brokers acknowledge all records");
        assert_eq!(producer.in_flight_count(), 0);
    }

    /// All records of a partition now, from its start to its end, also those of aborted
    /// transactions.
    pub fn consume(&self, topic: &str, partition: i32) -> Vec<OwnedMessage> {
        let mut records = Vec::new();
        let from = Offset::Beginning;
        self.read(topic, partition, from, |record| records.push(record.detach()));
        records
    }

    /// Gives each record of a partition now, from an offset to its end.
    pub fn read(
        &self,
        topic: &str,
        partition: i32,
        from: Offset,
        mut give: impl FnMut(&BorrowedMessage),
    ) {
        let consumer: BaseConsumer = self
            .config()
            .set("group.id", "huntd-tests-read")
            .set("enable.auto.commit", "false")
            .set("enable.partition.eof", "true")
            // Only a Fetch that waits in vain shows the end of a partition.
            .set("fetch.wait.max.ms", "10")
            .set("isolation.level", "read_uncommitted")
            .create()
            .expect("the configuration is valid");
        let mut assignment = TopicPartitionList::new();
        let added = assignment.add_partition_offset(topic, partition, from);
        added.expect("the offset is valid");
        consumer.assign(&assignment).expect("the assignment is valid");
        loop {
            match consumer.poll(PATIENCE) {
                Some(Ok(record)) => give(&record),
                Some(Err(KafkaError::PartitionEOF(_))) => return,
                // These errors come while a leader moves or a broker restarts; the client goes on
                // by itself.
                Some(Err(KafkaError::MessageConsumption(code))) if is_passing(code) => {}
                Some(Err(error)) => panic!("partition {partition} of {topic}: {error}"),
                None => panic!("partition {partition} of {topic} gives nothing for {PATIENCE:?}"),
            }
        }
    }

    /// The offsets of a partition's first record and of its end. The leader is asked until it knows
    /// that it is the leader: not at once after a start.
    pub fn watermarks(&self, topic: &str, partition: i32) -> (i64, i64) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let error = match self.inquirer().fetch_watermarks(topic, partition, ANSWER_WAIT) {
                Ok(watermarks) => return watermarks,
                Err(error) => error,
            };
            assert!(Instant::now() < deadline, "{partition} of {topic}: {error}");
            std::thread::sleep(Duration::from_millis(100));
            // Another broker may lead now. If no broker answers, the next question says so.
            let _ = self.inquirer().fetch_metadata(Some(topic), ANSWER_WAIT);
        }
    }
}

fn is_passing(code: RDKafkaErrorCode) -> bool {
    matches!(code, RDKafkaErrorCode::BrokerTransportFailure | RDKafkaErrorCode::AllBrokersDown)
}

/// Asks one broker whether it serves clients.
pub struct Probe {
    producer: BaseProducer,
}

impl Probe {
    /// A probe of the broker at `host:port`.
    pub fn new(address: &str) -> Probe {
        let producer = Client::new(address)
            .config()
            .set("reconnect.backoff.ms", "20")
            .set("reconnect.backoff.max.ms", "100")
            .create()
            .expect("the configuration is valid");
        Probe { producer }
    }

    /// Whether the broker answers ApiVersions and Metadata, and lists this many live brokers:
    /// before the controller has admitted a broker, no topic can be created on it.
    pub fn sees_brokers(&self, broker_count: usize) -> bool {
        self.producer
            .client()
            .fetch_metadata(None, Duration::from_millis(500))
            .is_ok_and(|metadata| metadata.brokers().len() >= broker_count)
    }
}
