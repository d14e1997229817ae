//! The daemon's own fetch path delivers what librdkafka delivers, byte for byte. Records that are
//! no events show it: their dead letters carry all of a record.

use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{Headers, Message, OwnedMessage};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::{Offset, TopicPartitionList};
use std::collections::BTreeMap;
use std::time::SystemTime;
use support::PATIENCE;
use support::accounts::{self, Follower};
use support::daemon::{Huntd, Topics, tiny_limits};
use support::kafka::{self, Cluster};

/// All that a consumer can see of a record.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    time_ms: i64,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
}

/// A record that is no event, different for each number.
fn record(n: usize, time_ms: i64) -> Seen {
    let key = match n % 3 {
        0 => None,
        1 => Some(Vec::new()),
        _ => Some(format!("key \u{1F511} {n}").into_bytes()),
    };
    let value = match n % 5 {
        0 => None,
        1 => Some(Vec::new()),
        2 => Some(vec![n as u8; n * 37 % 5_000]),
        _ => Some(format!("no event: {n}").into_bytes()),
    };
    Seen { time_ms: time_ms - (n as i64 * 7_919) % 50_000, key, value }
}

fn producer(cluster: &Cluster, settings: &[(&str, &str)]) -> BaseProducer {
    let mut config: ClientConfig = cluster.client().config();
    config.set("linger.ms", "5");
    for (key, value) in settings {
        config.set(*key, *value);
    }
    config.create().expect("the configuration is valid")
}

fn send(producer: &BaseProducer, topics: &Topics, numbers: std::ops::Range<usize>, time_ms: i64) {
    for n in numbers {
        let Seen { time_ms, key, value } = record(n, time_ms);
        let mut sent: BaseRecord<'_, [u8], [u8]> =
            BaseRecord::to(&topics.input).partition(0).timestamp(time_ms);
        sent.key = key.as_deref();
        sent.payload = value.as_deref();
        producer.send(sent).map_err(|(error, _)| error).expect("there is room");
    }
}

fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a time");
    now.as_millis() as i64
}

/// The committed records by offset, as librdkafka has them.
fn by_librdkafka(cluster: &Cluster, topics: &Topics) -> BTreeMap<i64, Seen> {
    let consumer: BaseConsumer = cluster
        .client()
        .config()
        .set("group.id", "huntd-tests-committed")
        .set("isolation.level", "read_committed")
        .set("enable.auto.commit", "false")
        .set("enable.partition.eof", "true")
        .set("fetch.wait.max.ms", "10")
        .create()
        .expect("the configuration is valid");
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(&topics.input, 0, Offset::Beginning).expect("a valid offset");
    consumer.assign(&list).expect("a valid assignment");
    let mut all = BTreeMap::new();
    loop {
        match consumer.poll(PATIENCE).expect("the broker answers") {
            Ok(record) => {
                let time_ms = record.timestamp().to_millis().expect("a time");
                let key = record.key().map(<[u8]>::to_vec);
                let value = record.payload().map(<[u8]>::to_vec);
                all.insert(record.offset(), Seen { time_ms, key, value });
            }
            Err(KafkaError::PartitionEOF(_)) => return all,
            Err(error) => panic!("{error}"),
        }
    }
}

/// The committed records by offset, from the daemon's dead letters.
fn by_the_daemon(cluster: &Cluster, topics: &Topics) -> BTreeMap<i64, Seen> {
    let number = |letter: &OwnedMessage, name: &str| -> i64 {
        let bytes = header(letter, name).expect("the letter says so");
        String::from_utf8_lossy(&bytes).parse().expect("a number")
    };
    let letters = cluster.client().consume(&topics.dead_letters, 0);
    let seen = letters.iter().map(|letter| {
        let time_ms = number(letter, "huntd.timestamp_ms");
        let (key, value) = (header(letter, "huntd.key"), letter.payload().map(<[u8]>::to_vec));
        (number(letter, "huntd.offset"), Seen { time_ms, key, value })
    });
    let all: BTreeMap<i64, Seen> = seen.collect();
    assert_eq!(all.len(), letters.len(), "no letter comes twice");
    all
}

fn header(letter: &OwnedMessage, name: &str) -> Option<Vec<u8>> {
    let found = letter.headers()?.iter().find(|header| header.key == name)?;
    found.value.map(<[u8]>::to_vec)
}

fn assert_both_deliver_the_same(
    cluster: &Cluster,
    topics: &Topics,
    records: usize,
    settings: &[(&str, &str)],
) {
    let mut huntd = Huntd::start(cluster, topics, settings);
    let mut follower = Follower::new(cluster, topics);
    accounts::wait_until_covered(cluster, topics, &mut follower, &mut huntd);
    let ended = huntd.stop();
    assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
    let (ours, theirs) = (by_the_daemon(cluster, topics), by_librdkafka(cluster, topics));
    assert_eq!(theirs.len(), records);
    assert!(ours.keys().eq(theirs.keys()), "other offsets: {:?}", ours.keys());
    for (offset, record) in theirs {
        assert_eq!(ours[&offset], record, "offset {offset}");
    }
}

#[test]
fn the_data_plane_delivers_the_records_that_librdkafka_delivers() {
    let cluster = kafka::shared();
    let topics = assert_every_codec_is_read(cluster);
    let tiny = tiny_limits();
    let tiny: Vec<(&str, &str)> = tiny.iter().map(|(name, lines)| (&**name, &**lines)).collect();
    assert_both_deliver_the_same(cluster, &topics.again(cluster), 1_500, &tiny);
}

/// Records of every codec are read as librdkafka reads them.
pub(crate) fn assert_every_codec_is_read(cluster: &Cluster) -> Topics {
    let topics = Topics::create(cluster, "bytes", 1);
    let time_ms = now_ms();
    let codecs = [("none", 0), ("gzip", 300), ("snappy", 600), ("lz4", 900), ("zstd", 1_200)];
    for (codec, first) in codecs {
        let producer = producer(cluster, &[("compression.type", codec)]);
        send(&producer, &topics, first..first + 300, time_ms);
        producer.flush(PATIENCE).expect("acknowledged");
    }
    assert_both_deliver_the_same(cluster, &topics, 1_500, &[]);
    topics
}

#[test]
fn the_data_plane_leaves_out_what_librdkafka_leaves_out_of_a_transactional_topic() {
    let cluster = kafka::shared();
    let (topics, committed) = assert_aborted_records_are_left_out(cluster);
    let tiny = tiny_limits();
    let tiny: Vec<(&str, &str)> = tiny.iter().map(|(name, lines)| (&**name, &**lines)).collect();
    assert_both_deliver_the_same(cluster, &topics.again(cluster), committed, &tiny);
}

/// Of two producers' transactions, the committed records are read: how many there are.
pub(crate) fn assert_aborted_records_are_left_out(cluster: &Cluster) -> (Topics, usize) {
    let topics = Topics::create(cluster, "transactions", 1);
    let time_ms = now_ms();
    let writers = [1, 2].map(|n| {
        let id = format!("{}-{n}", topics.input);
        let producer = producer(cluster, &[("transactional.id", &id)]);
        producer.init_transactions(PATIENCE).expect("transactions are possible");
        producer
    });
    let mut committed = 0;
    for round in 0..12 {
        let first = round * 100;
        for writer in &writers {
            writer.begin_transaction().expect("a transaction begins");
        }
        // Both are open at once, and batches of both lie side by side.
        for part in 0..2 {
            send(&writers[0], &topics, first + part * 20..first + part * 20 + 20, time_ms);
            writers[0].flush(PATIENCE).expect("acknowledged");
            send(&writers[1], &topics, first + 50 + part * 20..first + 70 + part * 20, time_ms);
            writers[1].flush(PATIENCE).expect("acknowledged");
        }
        for (n, writer) in writers.iter().enumerate() {
            if (round + n) % 3 == 0 {
                writer.abort_transaction(PATIENCE).expect("aborted");
            } else {
                writer.commit_transaction(PATIENCE).expect("committed");
                committed += 40;
            }
        }
    }
    assert_both_deliver_the_same(cluster, &topics, committed, &[]);
    (topics, committed)
}
