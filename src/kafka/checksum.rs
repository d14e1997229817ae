//! CRC-32C, the checksum of Kafka's record batches and of snapshots.

use crc_fast::{CrcAlgorithm, Digest, crc32_iscsi};

/// The CRC-32C of `bytes`, also known as the CRC of iSCSI (RFC 3720).
#[inline]
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    crc32_iscsi(bytes)
}

/// The CRC-32C of two parts, one after the other.
pub(crate) fn crc32c_of_parts(parts: [&[u8]; 2]) -> u32 {
    let mut sum = RunningCrc32c::default();
    parts.iter().for_each(|part| sum.update(part));
    sum.finish()
}

/// The CRC-32C of bytes that arrive in parts.
pub(crate) struct RunningCrc32c(Digest);

impl Default for RunningCrc32c {
    fn default() -> RunningCrc32c {
        RunningCrc32c(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }
}

impl RunningCrc32c {
    pub(crate) fn update(&mut self, part: &[u8]) {
        self.0.update(part);
    }

    /// The checksum of the parts so far.
    pub(crate) fn finish(&self) -> u32 {
        self.0.finalize() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::{crc32c, crc32c_of_parts};
    use proptest::collection::vec;
    use proptest::prelude::*;

    #[test]
    fn the_checksum_of_the_digits_is_the_published_one() {
        // RFC 3720, appendix B.4, and the catalogue of Greg Cook.
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc32c(b""), 0);
    }

    #[test]
    fn another_implementation_gives_the_same_for_every_short_length() {
        let bytes: Vec<u8> =
            (0..3_000_u32).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 13) as u8).collect();
        for length in 0..bytes.len() {
            // Starts at different addresses, because batches begin anywhere.
            let bytes = &bytes[length % 7..length.max(length % 7)];
            assert_eq!(crc32c(bytes), ::crc32c::crc32c(bytes), "{length}");
        }
    }

    proptest! {
        #[test]
        fn another_implementation_gives_the_same_for_any_bytes(
            bytes in vec(any::<u8>(), 0..100_000),
            cut: prop::sample::Index,
        ) {
            let expected = ::crc32c::crc32c(&bytes);
            prop_assert_eq!(crc32c(&bytes), expected);
            let (first, second) = bytes.split_at(cut.index(bytes.len() + 1));
            prop_assert_eq!(crc32c_of_parts([first, second]), expected);
        }
    }
}
