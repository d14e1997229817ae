//! `huntd load` puts events into a broker.

use huntd::edition::edition;
use huntd::hunt::rules_file::built_in;
use huntd::hunt::state::TreasureHunt;
use huntd::kit::bots::BotOptions;
use huntd::kit::rulebook::Rulebook;
use huntd::service::cli::LoadArgs;
use huntd::service::config_args::ClusterArgs;
use huntd::tools::load;
use huntd::tools::source::Source;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::Message;
use rdkafka::mocking::MockCluster;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use support::PATIENCE;

const BASE_MS: i64 = 1_767_225_600_000;

#[test]
fn a_load_is_in_the_topic_byte_for_byte() {
    let cluster = MockCluster::new(1).expect("the mock cluster starts");
    cluster.create_topic("events", 3, 1).expect("the topic can be created");
    let args = LoadArgs {
        cluster: ClusterArgs {
            brokers: vec![cluster.bootstrap_servers()],
            config_file: None,
            set: vec![],
        },
        topic: Some("events".to_owned()),
        events: Some(3_000),
        rate: None,
        players: Some(100),
        partitions: None,
        seed: Some(9),
        file: None,
        base_ms: Some(BASE_MS),
        compression: "lz4".to_owned(),
    };
    load::run(&args, &edition::<TreasureHunt>()).expect("the load arrives");
    let options = BotOptions {
        seed: 9,
        players: 100,
        zones: 3,
        rate: huntd::tools::traffic::RATE_UNPACED,
        base_us: BASE_MS * 1000,
        is_watched: false,
    };
    let rulebook = Rulebook::of(built_in());
    let source = Source::of_bots(&edition::<TreasureHunt>(), &rulebook, options, 3_000);
    let mut source = source.expect("the hunt has bots");
    let mut expected: BTreeMap<(u16, i64), (i64, Vec<u8>)> = BTreeMap::new();
    while let Some(record) = source.next_record().expect("the generator never fails") {
        let value = record.value.expect("an event has a value").to_vec();
        expected.insert((record.partition, record.offset), (record.time_ms, value));
    }
    let stored = stored_records(&cluster.bootstrap_servers(), 3, expected.len());
    assert!(stored == expected, "the topic holds what the generator made");
}

fn stored_records(
    brokers: &str,
    partitions: i32,
    count: usize,
) -> BTreeMap<(u16, i64), (i64, Vec<u8>)> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .set("group.id", "reader")
        .create()
        .expect("the consumer starts");
    let mut list = TopicPartitionList::new();
    for partition in 0..partitions {
        list.add_partition_offset("events", partition, Offset::Beginning).expect("it is new");
    }
    consumer.assign(&list).expect("the partitions exist");
    let deadline = Instant::now() + PATIENCE;
    let mut stored = BTreeMap::new();
    while stored.len() < count && Instant::now() < deadline {
        if let Some(Ok(message)) = consumer.poll(Duration::from_millis(100)) {
            let place = (message.partition() as u16, message.offset());
            let time_ms = message.timestamp().to_millis().expect("records have timestamps");
            stored.insert(place, (time_ms, message.payload().unwrap_or_default().to_vec()));
        }
    }
    stored
}

#[test]
fn a_load_into_a_topic_that_is_not_there_says_what_to_do() {
    let cluster = MockCluster::new(1).expect("the mock cluster starts");
    cluster.create_topic("events", 2, 1).expect("the topic can be created");
    let mut args = LoadArgs {
        cluster: ClusterArgs {
            brokers: vec![cluster.bootstrap_servers()],
            config_file: None,
            set: vec![],
        },
        topic: Some("events".to_owned()),
        events: Some(10),
        rate: None,
        players: Some(1),
        partitions: Some(3),
        seed: Some(1),
        file: None,
        base_ms: None,
        compression: "none".to_owned(),
    };
    let error = load::run(&args, &edition::<TreasureHunt>()).expect_err("the topic is too small");
    assert_eq!(error.exit_code().number(), 5);
    assert!(error.to_string().contains("2 partitions"), "{error}");
    args.cluster.brokers = vec!["127.0.0.1:1".to_owned()];
    let error = load::run(&args, &edition::<TreasureHunt>()).expect_err("nobody listens there");
    assert_eq!(error.exit_code().number(), 4, "{error}");
}
