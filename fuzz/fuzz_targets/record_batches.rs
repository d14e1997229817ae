//! Record batches with a checksum that always holds, so that the fuzzer gets beyond it.

#![no_main]

use huntd::kafka::codec::Decompressor;
use huntd::kafka::record_batch::{BATCH_HEADER_BYTES, Batch, BatchStart, OpenBatch, scan_headers};
use huntd::kafka::record_stream::Step;
use libfuzzer_sys::fuzz_target;

const BATCH_BYTES_MAX: usize = 1 << 16;

const STEPS_MAX: usize = 64;

fuzz_target!(|input: &[u8]| {
    let _ = scan_headers(input, 0, BatchStart::up_to(0), BATCH_BYTES_MAX);
    let mut bytes = input.to_vec();
    if bytes.len() >= BATCH_HEADER_BYTES {
        let length = (bytes.len() - 12) as u32;
        bytes[8..12].copy_from_slice(&length.to_be_bytes());
        bytes[16] = 2;
        let crc = crc32c::crc32c(&bytes[21..]);
        bytes[17..21].copy_from_slice(&crc.to_be_bytes());
    }
    let Ok(Some(batch)) = Batch::read(&mut bytes, BATCH_BYTES_MAX) else {
        return;
    };
    let offsets = batch.header.base_offset..=batch.header.last_offset();
    let mut decompressor = Decompressor::new(BATCH_BYTES_MAX);
    match batch.open_any(0, &mut decompressor) {
        Ok(OpenBatch::Whole(mut records)) => {
            while let Ok(Some(record)) = records.next_record() {
                assert!(offsets.contains(&record.offset));
                let length = record.value_range.clone().map(|range| range.len());
                assert_eq!(record.value().map(<[u8]>::len), length);
            }
        }
        Ok(OpenBatch::Stream(mut stream)) => {
            // Gigabytes take their time: the first megabytes will do.
            for _ in 0..STEPS_MAX {
                match stream.step() {
                    Ok(Step::Unfinished) => {}
                    Ok(Step::Record(record)) => {
                        assert!(offsets.contains(&record.offset));
                        let value = record.value.map_or((0, 0), |v| (v.head.len() as u64, v.bytes));
                        assert!(value.0 <= value.1);
                    }
                    Ok(Step::End) | Err(_) => break,
                }
            }
        }
        Err(_) => {}
    }
});
