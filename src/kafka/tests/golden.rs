//! Batches that Kafka 4.3.0 stored for its Java producer, covering the codecs that librdkafka's
//! build here lacks or frames differently, and transactions with their markers. Produce requests as
//! librdkafka sent them.

use crate::kafka::aborted::{AbortedTransaction, AbortedTransactions};
use crate::kafka::batch_writer::{ProducerId, UnsealedBatch};
use crate::kafka::codec::Decompressor;
use crate::kafka::message::Envelope;
use crate::kafka::produce;
use crate::testing::batch_builder::{BATCH_BYTES_MAX, Owned, read_committed};
use std::ops::Range;

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u32> = hex.chars().filter_map(|digit| digit.to_digit(16)).collect();
    digits.chunks_exact(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
}

fn read(hex: &str, transactions: &[(i64, i64)]) -> Vec<Owned> {
    let mut aborted = AbortedTransactions::new();
    aborted.load(
        transactions
            .iter()
            .map(|&(producer_id, first_offset)| AbortedTransaction { producer_id, first_offset }),
    );
    let mut decompressor = Decompressor::new(BATCH_BYTES_MAX);
    read_committed(&mut bytes(hex), 0, &mut aborted, &mut decompressor)
}

#[test]
fn the_java_producers_records_are_read_in_every_codec() {
    let sent: Vec<Owned> = (0..40)
        .map(|place| Owned {
            offset: place,
            timestamp_ms: 1_767_225_600_000 + place % 7,
            key: (place % 3 != 0).then(|| format!("k{place}").into_bytes()),
            value: (place % 7 != 0)
                .then(|| format!("{{\"type\":\"move\",\"player_id\":{place}}}").into_bytes()),
        })
        .collect();
    for (codec, hex) in [
        ("gzip", include_str!("../../../tests/data/record_batches/gzip.hex")),
        ("snappy", include_str!("../../../tests/data/record_batches/snappy.hex")),
        ("lz4", include_str!("../../../tests/data/record_batches/lz4.hex")),
        ("zstd", include_str!("../../../tests/data/record_batches/zstd.hex")),
    ] {
        assert_eq!(read(hex, &[]), sent, "{codec}");
    }
}

#[test]
fn of_two_interleaved_transactional_producers_only_the_committed_records_are_read() {
    let hex = include_str!("../../../tests/data/record_batches/transactions.hex");
    // As listed by the broker: producer 6 aborted its first and third transaction.
    let committed = read(hex, &[(6, 0), (6, 12), (7, 13)]);
    let texts: Vec<(i64, String)> = committed
        .into_iter()
        .map(|record| (record.offset, String::from_utf8(record.value.unwrap()).unwrap()))
        .collect();
    let expected = [
        (1, "u0-0"),
        (3, "u0-1"),
        (6, "t1-0"),
        (7, "u1-0"),
        (8, "t1-1"),
        (9, "u1-1"),
        (18, "t3-0"),
        (19, "u3-0"),
        (20, "t3-1"),
        (21, "u3-1"),
    ];
    assert_eq!(texts, expected.map(|(offset, text)| (offset, text.to_owned())));
    assert_eq!(read(hex, &[]).len(), 16, "all records when nothing is listed as aborted");
}

/// A Produce request with one batch, sent by librdkafka.
struct Produced {
    hex: &'static str,
    /// The version here that has its layout; `None`: only the batch is compared.
    version: Option<i16>,
    correlation_id: i32,
    client_id: &'static str,
    topic: &'static str,
    partition: i32,
    producer_id: i64,
    sequence: i32,
    time_ms: i64,
    values: &'static [&'static [u8]],
}

const PRODUCED: [Produced; 2] = [
    Produced {
        hex: include_str!("../../../tests/data/produce_requests/version-7.hex"),
        version: None,
        correlation_id: 5,
        client_id: "huntd",
        topic: "updates",
        partition: 1,
        producer_id: 12_904_000,
        sequence: 0,
        time_ms: 1_767_225_600_000,
        values: &[b"first", b"", &[b'x'; 300]],
    },
    Produced {
        hex: include_str!("../../../tests/data/produce_requests/version-10.hex"),
        version: Some(9),
        correlation_id: 2_065,
        client_id: "huntd-demo",
        topic: "hunt-events",
        partition: 3,
        producer_id: 0x0d5c_9010,
        sequence: 109_988,
        time_ms: 1_767_225_604_387,
        values: &[
            br#"{"type":"loot","player_id":76561198000001235,"seq":143,"ts_us":1767225604387570}"#,
        ],
    },
];

/// Position of a request's version.
const VERSION: Range<usize> = 6..8;

/// Position of the leader epoch in a batch, which the checksum leaves out and the broker sets.
/// librdkafka sends 0 there, and others -1.
const LEADER_EPOCH: Range<usize> = 12..16;

#[test]
fn a_request_to_produce_has_librdkafkas_bytes() {
    for produced in &PRODUCED {
        let mut batch = UnsealedBatch::new(Vec::new());
        produced.values.iter().for_each(|value| batch.push(value));
        let producer = ProducerId { id: produced.producer_id, epoch: 0 };
        let (mut batch, _) =
            batch.seal(producer, produced.sequence, produced.time_ms, None, Vec::new());
        batch[LEADER_EPOCH].fill(0);
        let &Produced { version, correlation_id, client_id, topic, .. } = produced;
        let mut theirs = bytes(produced.hex);
        let Some(version) = version else {
            assert!(theirs.ends_with(&batch), "in older versions it is the last field");
            continue;
        };
        let envelope = Envelope { version, correlation_id, client_id };
        let batches = [(produced.partition, batch.as_slice())].into_iter();
        let mut ours = Vec::new();
        produce::request(envelope, topic, 30_000, batches, &mut ours);
        theirs[VERSION].copy_from_slice(&version.to_be_bytes());
        assert_eq!(ours, theirs, "version {version}");
    }
}
