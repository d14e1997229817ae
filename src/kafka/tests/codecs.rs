//! The decompressor's limit, its reuse, and bytes that no codec produced.

use crate::kafka::codec::{Codec, CodecError, Decompressor};
use proptest::prelude::*;

use crate::testing::batch_builder::{PACKINGS, Packing};

fn codec(packing: Packing) -> Codec {
    Codec::from_attributes(packing.attributes()).unwrap()
}

#[test]
fn a_bomb_stops_at_the_bound() {
    let bomb = vec![0; 64 * 1024 * 1024];
    for packing in PACKINGS {
        let compressed = packing.compress(&bomb);
        let mut decompressor = Decompressor::new(100_000);
        let answer = decompressor.decompress(codec(packing), &compressed);
        assert_eq!(answer.unwrap_err(), CodecError::TooLarge, "{packing:?}");
    }
}

#[test]
fn the_bound_is_exact() {
    let plain: Vec<u8> =
        (0..200_000_u32).map(|place| (place.wrapping_mul(place) >> 7) as u8).collect();
    for packing in PACKINGS {
        let compressed = packing.compress(&plain);
        let mut exact = Decompressor::new(plain.len());
        assert_eq!(exact.decompress(codec(packing), &compressed).unwrap(), plain, "{packing:?}");
        let mut short = Decompressor::new(plain.len() - 1);
        let answer = short.decompress(codec(packing), &compressed);
        assert_eq!(answer.unwrap_err(), CodecError::TooLarge, "{packing:?}");
    }
}

#[test]
fn a_failure_leaves_the_decompressor_fit_for_the_next_batch() {
    let plain = b"the quick brown fox jumps over the lazy dog, ".repeat(5000);
    let mut decompressor = Decompressor::new(plain.len());
    for packing in PACKINGS.into_iter().filter(|packing| *packing != Packing::None) {
        let compressed = packing.compress(&plain);
        for cut in [0, 1, 9, 17, compressed.len() / 2, compressed.len() - 1] {
            // Zero bytes are an empty sequence of gzip members, LZ4 and zstd frames.
            let answer = decompressor.decompress(codec(packing), &compressed[..cut]);
            assert!(answer.is_err() || cut == 0, "{packing:?} cut at {cut}");
        }
        assert_eq!(decompressor.decompress(codec(packing), &compressed).unwrap(), plain);
    }
}

#[test]
fn several_members_or_frames_follow_each_other() {
    for packing in [Packing::Gzip, Packing::Lz4Linked, Packing::Lz4Independent, Packing::Zstd] {
        let mut compressed = packing.compress(b"one ");
        compressed.extend(packing.compress(b"two"));
        let mut decompressor = Decompressor::new(100);
        let plain = decompressor.decompress(codec(packing), &compressed).unwrap();
        assert_eq!(plain, b"one two", "{packing:?}");
        let mut streamed = Vec::new();
        let mut stream = crate::kafka::codec::stream(codec(packing), &compressed).unwrap();
        std::io::Read::read_to_end(&mut stream, &mut streamed).unwrap();
        assert_eq!(streamed, b"one two", "{packing:?}");
    }
}

#[test]
fn what_follows_the_last_gzip_member_is_ignored() {
    let member = Packing::Gzip.compress(b"one");
    for padding in [&[0; 20][..], b"\0", b"no member", &[0x1f]] {
        let padded = [&member[..], &member[..], padding].concat();
        let mut decompressor = Decompressor::new(100);
        assert_eq!(
            decompressor.decompress(Codec::Gzip, &padded).unwrap(),
            b"oneone",
            "{padding:?}"
        );
        let mut streamed = Vec::new();
        let mut stream = crate::kafka::codec::stream(Codec::Gzip, &padded).unwrap();
        std::io::Read::read_to_end(&mut stream, &mut streamed).unwrap();
        assert_eq!(streamed, b"oneone", "{padding:?}");
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_refused_or_stay_within_the_bound(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        number in 0_i16..5,
    ) {
        let mut decompressor = Decompressor::new(1000);
        let _ = decompressor.decompress(Codec::from_attributes(number).unwrap(), &bytes);
    }

    #[test]
    fn damaged_compressed_bytes_never_panic(
        place in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        packing in prop::sample::select(&PACKINGS[..]),
        plain in proptest::collection::vec(0_u8..4, 1..5000),
    ) {
        let mut compressed = packing.compress(&plain);
        let place = place.index(compressed.len());
        compressed[place] = byte;
        let mut decompressor = Decompressor::new(8000);
        let _ = decompressor.decompress(codec(packing), &compressed);
    }
}
