//! Records, one a line: both tiers of the decoder give the same event or the same reject, whatever
//! was decoded before.

#![no_main]

use huntd::decoder::json::JsonDecoder;
use huntd::decoder::{Decoder, RecordPosition};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let mut decoder = Decoder::new();
    let mut json = JsonDecoder::new();
    // Twice: the second time the first tier knows the layouts.
    for _ in 0..2 {
        for (offset, record) in (0..).zip(input.split(|byte| *byte == b'\n')) {
            let origin = RecordPosition { offset, time_ms: 0 };
            let expected = json.decode(origin, record);
            assert_eq!(decoder.decode(origin, Some(record)), expected);
        }
    }
});
