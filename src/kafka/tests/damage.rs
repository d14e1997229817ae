//! Damaged batches yield an error or the same records, never others, and never a panic.

use crate::kafka::codec::Decompressor;
use crate::kafka::record_batch::{BatchStart, scan_headers};
use proptest::prelude::*;

use crate::testing::batch_builder::{
    BATCH_BYTES_MAX, BatchPlan, Owned, PACKINGS, Packing, read_batch, read_batches, records, seal,
};

/// Fields that the checksum leaves out because brokers write them: base offset, length, epoch.
const BASE_OFFSET: std::ops::Range<usize> = 0..8;

#[test]
fn every_damaged_byte_yields_an_error_or_the_same_records() {
    let written = records(70, 12);
    for packing in PACKINGS {
        let plan = BatchPlan { packing, ..BatchPlan::new(&written) };
        let valid = plan.build();
        for place in 0..valid.len() {
            for flip in [0x01, 0x80, 0xff] {
                let mut damaged = valid.clone();
                damaged[place] ^= flip;
                let Ok(read) = read_batch(&mut damaged, 0) else {
                    continue;
                };
                // A longer length makes the batch look cut off: nothing is delivered.
                let nothing = read.is_empty() && (8..12).contains(&place);
                let moved = BASE_OFFSET.contains(&place) && same_but_offset(&read, &written);
                assert!(nothing || moved || read == written, "{packing:?} byte {place} ^ {flip}");
                let scanned = scan_headers(&damaged, 70, BatchStart::at(70), BATCH_BYTES_MAX);
                assert_eq!(scanned.is_err(), moved, "{packing:?} byte {place} ^ {flip}");
            }
        }
    }
}

/// Returns whether only the offsets differ: the checksum leaves the base offset out, but the end of
/// the previous batch determines it.
fn same_but_offset(read: &[Owned], written: &[Owned]) -> bool {
    let shift = read[0].offset - written[0].offset;
    read.len() == written.len()
        && read.iter().zip(written).all(|(read, written)| {
            *read == Owned { offset: written.offset + shift, ..written.clone() }
        })
}

#[test]
fn every_truncation_yields_nothing() {
    for packing in PACKINGS {
        let valid = BatchPlan { packing, ..BatchPlan::new(&records(0, 5)) }.build();
        for cut in 0..valid.len() {
            assert_eq!(read_batch(&mut valid[..cut].to_vec(), 0), Ok(Vec::new()));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn arbitrary_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let mut decompressor = Decompressor::new(BATCH_BYTES_MAX);
        let _ = scan_headers(&bytes, 0, BatchStart::up_to(0), BATCH_BYTES_MAX);
        let _ = read_batches(&mut bytes, 0, &mut decompressor);
    }

    #[test]
    fn damage_under_a_valid_checksum_never_panics_and_offsets_still_rise(
        packing in prop::sample::select(&[Packing::None, Packing::Zstd][..]),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        count in 1_i64..40,
    ) {
        let plan = BatchPlan { packing, ..BatchPlan::new(&records(500, count)) };
        let mut bytes = plan.build();
        for (place, byte) in damage {
            // Not the length, so that the checksum covers the whole batch.
            let place = 12 + place.index(bytes.len() - 12);
            bytes[place] = byte;
        }
        bytes[16] = 2;
        seal(&mut bytes);
        let scanned = scan_headers(&bytes, 0, BatchStart::up_to(i64::MAX), BATCH_BYTES_MAX);
        if let Ok(read) = read_batch(&mut bytes, 0) {
            prop_assert!(read.windows(2).all(|pair| pair[0].offset < pair[1].offset));
            let next_offset = scanned.unwrap().next_offset;
            prop_assert!(read.iter().all(|record| (500..next_offset).contains(&record.offset)));
        }
    }

    #[test]
    fn a_damaged_plain_body_never_panics(
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        packing in prop::sample::select(&PACKINGS[..]),
        headers in 0_i32..3,
    ) {
        let written = records(0, 20);
        let mut plan = BatchPlan { packing, ..BatchPlan::new(&written) };
        plan.body.clear();
        for record in &written {
            let base = plan.base_timestamp_ms;
            crate::testing::batch_builder::append_record(record, 0, base, headers, &mut plan.body);
        }
        for (place, byte) in damage {
            let place = place.index(plan.body.len());
            plan.body[place] = byte;
        }
        let _ = read_batch(&mut plan.build(), 0);
    }

    #[test]
    fn any_records_come_back_as_they_were_written(
        packing in prop::sample::select(&PACKINGS[..]),
        base_offset in 0_i64..1 << 60,
        fields in proptest::collection::vec(
            (
                1_i64..10_000,
                -(1_i64 << 40)..1 << 40,
                proptest::option::of(proptest::collection::vec(any::<u8>(), 0..40)),
                proptest::option::of(proptest::collection::vec(any::<u8>(), 0..300)),
            ),
            1..40,
        ),
    ) {
        let mut offset = base_offset;
        let written: Vec<Owned> = fields
            .into_iter()
            .map(|(step, timestamp_ms, key, value)| {
                offset += step;
                Owned { offset, timestamp_ms, key, value }
            })
            .collect();
        let mut bytes = BatchPlan { packing, ..BatchPlan::new(&written) }.build();
        prop_assert_eq!(read_batch(&mut bytes, 0).unwrap(), written);
    }
}
