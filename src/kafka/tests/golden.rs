//! Batches as Kafka 4.3.0 stored them for its Java producer: the codecs that librdkafka's build
//! here lacks or frames differently, and transactions with their markers.

use crate::kafka::aborted::{AbortedTransaction, AbortedTransactions};
use crate::kafka::codec::Decompressor;

use crate::testing::batch_builder::{BATCH_BYTES_MAX, Owned, read_committed};

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
    // As the broker listed them: producer 6 aborted its first and third transaction.
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
