//! Aborted transactions: which batches are skipped, and when a transaction ends.

use crate::kafka::aborted::{AbortedTransaction, AbortedTransactions, Marker};
use crate::kafka::codec::Decompressor;
use crate::kafka::record_batch::{Batch, BatchHeader};

use crate::testing::batch_builder::{BATCH_BYTES_MAX, BatchPlan, Owned, records};

const TRANSACTIONAL: i16 = 1 << 4;
const CONTROL: i16 = 1 << 5;

fn header(producer_id: i64, offset: i64, attributes: i16) -> BatchHeader {
    let plan = BatchPlan { producer_id, attributes, ..BatchPlan::new(&records(offset, 2)) };
    BatchHeader::read(&plan.build(), BATCH_BYTES_MAX).unwrap().unwrap()
}

fn aborted(list: &[(i64, i64)]) -> AbortedTransactions {
    let mut aborted = AbortedTransactions::new();
    aborted.load(
        list.iter()
            .map(|&(producer_id, first_offset)| AbortedTransaction { producer_id, first_offset }),
    );
    aborted
}

#[test]
fn only_the_batches_between_first_offset_and_marker_are_covered() {
    // Unsorted, as some brokers send it; producer 1 aborts twice, producer 2 once.
    let mut aborted = aborted(&[(1, 50), (2, 12), (1, 10)]);
    let data = |producer_id, offset| header(producer_id, offset, TRANSACTIONAL);
    let marker = |producer_id, offset| header(producer_id, offset, TRANSACTIONAL | CONTROL);
    assert!(!aborted.covers(&data(1, 8)), "before the transaction began");
    assert!(aborted.covers(&data(1, 10)));
    assert!(!aborted.covers(&data(3, 12)), "another producer");
    assert!(!aborted.covers(&header(1, 12, 0)), "not transactional");
    assert!(aborted.covers(&data(2, 14)));
    aborted.pass(&marker(1, 20), Marker::Abort);
    assert!(!aborted.covers(&data(1, 22)), "a committed transaction between two aborted ones");
    aborted.pass(&marker(1, 24), Marker::Commit);
    aborted.pass(&marker(1, 26), Marker::Abort);
    assert!(aborted.covers(&data(1, 50)), "a marker of an empty transaction changes nothing");
    assert!(aborted.covers(&data(2, 52)), "still without its marker");
    aborted.pass(&marker(1, 60), Marker::Abort);
    aborted.pass(&marker(1, 62), Marker::Abort);
    aborted.pass(&marker(9, 64), Marker::Abort);
    assert!(!aborted.covers(&data(1, 66)));
}

#[test]
fn loading_forgets_the_previous_response() {
    let mut aborted = aborted(&[(1, 0)]);
    aborted.load(std::iter::empty());
    assert!(!aborted.covers(&header(1, 5, TRANSACTIONAL)));
}

#[test]
fn a_marker_is_read_from_the_key_of_a_control_record() {
    let control = Owned {
        offset: 4,
        timestamp_ms: 1,
        key: Some(vec![0, 0, 0, 0]),
        value: Some(vec![0, 0, 0, 0, 0, 3]),
    };
    let attributes = TRANSACTIONAL | CONTROL;
    let mut bytes = BatchPlan { attributes, ..BatchPlan::new(&[control]) }.build();
    let batch = Batch::read(&mut bytes, BATCH_BYTES_MAX).unwrap().unwrap();
    assert!(batch.header.is_control() && batch.header.is_transactional());
    let mut decompressor = Decompressor::new(0);
    let mut records = batch.open(0, &mut decompressor).unwrap();
    let key = records.next_record().unwrap().unwrap().key.unwrap();
    assert_eq!(Marker::from_key(key), Some(Marker::Abort));
    assert_eq!(Marker::from_key(&[0, 0, 0, 1]), Some(Marker::Commit));
    assert_eq!(Marker::from_key(&[0, 0, 0, 2]), None);
    assert_eq!(Marker::from_key(&[0, 0, 0]), None);
}
