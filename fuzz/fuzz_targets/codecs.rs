//! Compressed bytes: refused, or decompressed within the bound.

#![no_main]

use huntd::kafka::codec::{Codec, Decompressor};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((&first, compressed)) = input.split_first() else {
        return;
    };
    let Some(codec) = Codec::from_attributes(i16::from(first)) else {
        return;
    };
    let mut decompressor = Decompressor::new(1 << 16);
    // Twice: what a failure leaves behind must not change the next answer.
    let first = decompressor.decompress(codec, compressed).map(|plain| plain.to_vec());
    let second = decompressor.decompress(codec, compressed).map(|plain| plain.to_vec());
    assert_eq!(first, second);
});
