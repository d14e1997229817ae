//! Batches that are read record by record yield the same records as those read as a whole.

use crate::kafka::checksum::crc32c;
use crate::kafka::codec::Decompressor;
use crate::kafka::record_batch::{Batch, BatchError, BatchReason, OpenBatch};
use crate::kafka::record_stream::{Excerpt, RecordStream, Step};
use proptest::prelude::*;

use crate::testing::batch_builder::{
    BATCH_BYTES_MAX, BatchPlan, Owned, PACKINGS, Packing, read_batch, records, seal,
};

/// Reads a batch with a decompressor that has no buffer.
fn streamed(bytes: &mut [u8], offset_min: i64) -> Result<Vec<Owned>, BatchError> {
    let mut none = Decompressor::new(0);
    let Some(batch) = Batch::read(bytes, BATCH_BYTES_MAX)? else { return Ok(Vec::new()) };
    match batch.open_any(offset_min, &mut none)? {
        OpenBatch::Stream(mut stream) => read(&mut stream),
        OpenBatch::Whole(_) => panic!("a buffer of no bytes holds records"),
    }
}

fn read(stream: &mut RecordStream<'_>) -> Result<Vec<Owned>, BatchError> {
    let bytes = |part: Option<&Excerpt>| part.map(|part| part.head.clone());
    let mut all = Vec::new();
    loop {
        match stream.step()? {
            Step::Unfinished => {}
            Step::Record(record) => all.push(Owned {
                offset: record.offset,
                timestamp_ms: record.timestamp_ms,
                key: bytes(record.key),
                value: bytes(record.value),
            }),
            Step::End => return Ok(all),
        }
    }
}

fn compressed() -> impl Iterator<Item = Packing> {
    PACKINGS.into_iter().filter(|packing| *packing != Packing::None)
}

#[test]
fn a_stream_has_the_records_of_the_whole_batch_from_any_offset_on() {
    let written = records(1000, 3000);
    for packing in compressed() {
        let bytes = BatchPlan { packing, ..BatchPlan::new(&written) }.build();
        for offset_min in [0, 1000, 1001, 2500, 3999, 4000] {
            let whole = read_batch(&mut bytes.clone(), offset_min).unwrap();
            assert_eq!(streamed(&mut bytes.clone(), offset_min).unwrap(), whole, "{packing:?}");
        }
    }
}

#[test]
fn of_a_very_long_record_a_stream_keeps_the_start_and_knows_the_rest() {
    let letters = vec![b'a'; 20_000_000];
    let long = |offset, key: &[u8], value: &[u8]| {
        let (key, value) = (Some(key.to_vec()), Some(value.to_vec()));
        Owned { offset, timestamp_ms: 5, key, value }
    };
    let written = [long(7, b"k", &letters), long(8, &letters, b"v"), long(9, b"k", b"v")];
    for packing in compressed() {
        let mut bytes = BatchPlan { packing, ..BatchPlan::new(&written) }.build();
        let mut small = Decompressor::new(100_000);
        // Snappy compresses it to a twentieth at best.
        let batch = Batch::read(&mut bytes, 100_000_000).unwrap().unwrap();
        let Ok(OpenBatch::Stream(mut stream)) = batch.open_any(0, &mut small) else {
            panic!("{packing:?} is held as a whole");
        };
        let (mut seen, mut steps) = (Vec::new(), 0);
        loop {
            steps += 1;
            match stream.step().unwrap() {
                Step::Unfinished => {}
                Step::End => break,
                Step::Record(record) => {
                    let (key, value) = (record.key.unwrap(), record.value.unwrap());
                    let written = &written[seen.len()];
                    assert_eq!(value.crc32c(), crc32c(written.value.as_ref().unwrap()));
                    assert!(written.value.as_ref().unwrap().starts_with(&value.head));
                    assert!(value.head.len() <= 2_000_000 && key.head.len() <= 2_000_000);
                    seen.push((record.offset, key.bytes, value.bytes));
                }
            }
        }
        assert_eq!(seen, [(7, 1, 20_000_000), (8, 20_000_000, 1), (9, 1, 1)], "{packing:?}");
        assert!(steps > 200, "{steps} steps have done it all");
    }
}

#[test]
fn records_that_are_passed_over_take_several_steps_however_short_they_are() {
    let null = |offset| Owned { offset, timestamp_ms: 5, key: None, value: None };
    let written: Vec<Owned> = (0..20_000).map(null).collect();
    let mut bytes = BatchPlan { packing: Packing::Zstd, ..BatchPlan::new(&written) }.build();
    let batch = Batch::read(&mut bytes, BATCH_BYTES_MAX).unwrap().unwrap();
    let mut none = Decompressor::new(0);
    let Ok(OpenBatch::Stream(mut stream)) = batch.open_any(19_999, &mut none) else {
        panic!("it is held as a whole");
    };
    let mut steps = 1;
    while matches!(stream.step().unwrap(), Step::Unfinished) {
        steps += 1;
    }
    assert!(steps > 5, "{steps} steps have done it all");
}

#[test]
fn what_lies_about_its_records_is_refused_in_a_stream_too() {
    let plan = BatchPlan { packing: Packing::Zstd, ..BatchPlan::new(&records(70, 12)) };
    let refusal = |plan: &BatchPlan| streamed(&mut plan.build(), 0).unwrap_err().reason;
    let mut longer = plan.clone();
    longer.body.push(0);
    assert_eq!(refusal(&longer), BatchReason::Trailing(1));
    let mut shorter = plan.clone();
    shorter.body.pop();
    assert_eq!(refusal(&shorter), BatchReason::RecordLength(11));
    let first = BatchPlan { last_offset_delta: 10, record_count: 11, ..plan.clone() };
    assert!(matches!(refusal(&first), BatchReason::Trailing(_)));
    let fewer = BatchPlan { last_offset_delta: 10, record_count: 11, ..longer };
    assert!(matches!(refusal(&fewer), BatchReason::Trailing(_)));
    let late = BatchPlan { base_timestamp_ms: i64::MAX, ..plan };
    assert_eq!(refusal(&late), BatchReason::RecordTime(1));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn damaged_records_are_an_error_in_a_stream_where_they_are_one_as_a_whole(
        place in 0_usize..400,
        byte: u8,
        packing in 1_usize..PACKINGS.len(),
    ) {
        let mut plan = BatchPlan { packing: PACKINGS[packing], ..BatchPlan::new(&records(70, 12)) };
        let place = place % plan.body.len();
        plan.body[place] = byte;
        let whole = read_batch(&mut plan.build(), 0);
        let stream = streamed(&mut plan.build(), 0);
        // A stream reads only the length of headers, which huntd ignores.
        if let Ok(whole) = whole {
            prop_assert_eq!(stream, Ok(whole));
        }
    }

    #[test]
    fn damaged_compressed_bytes_never_panic(
        place in 61_usize..2000,
        byte: u8,
        packing in 1_usize..PACKINGS.len(),
    ) {
        let packing = PACKINGS[packing];
        let mut bytes = BatchPlan { packing, ..BatchPlan::new(&records(70, 100)) }.build();
        let place = 61 + place % (bytes.len() - 61);
        bytes[place] = byte;
        seal(&mut bytes);
        let _ = streamed(&mut bytes, 0);
    }
}
