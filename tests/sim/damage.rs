//! What becomes of record batches on their way from a broker.

use crate::chance::{Chance, Fault};

/// Bytes of a batch before the first one that the checksum covers or stands in.
const HEAD_BYTES: usize = 16;

/// Flips a bit of the first batch, or lets it lie about its length.
pub(crate) fn flip_bit(chance: &mut Chance, records: &mut [u8]) {
    if records.len() < 64 || !chance.strikes(Fault::BatchDamaged) {
        return;
    }
    let end = batch_bytes(records).min(records.len());
    let at = match chance.one_in(4) {
        true => chance.between(8, 11),
        false => chance.between(HEAD_BYTES as u64, end as u64 - 1),
    };
    records[at as usize] ^= 1 << chance.below(8);
}

/// Flips a bit of the offset at which a batch begins, or of its leader epoch: no checksum covers
/// them. The lowest bits of the epoch stay: they may make another one that the log has, and nothing
/// tells that.
pub(crate) fn flip_unchecked_bit(chance: &mut Chance, records: &mut [u8]) {
    if records.len() < HEAD_BYTES {
        return;
    }
    let bits = if chance.strikes(Fault::BatchMoved) {
        0..64
    } else if chance.strikes(Fault::EpochDamaged) {
        12 * 8..15 * 8
    } else {
        return;
    };
    let mut at = 0;
    while chance.one_in(2) {
        let next = at + batch_bytes(&records[at..]);
        if next + HEAD_BYTES > records.len() {
            break;
        }
        at = next;
    }
    let bit = chance.between(bits.start, bits.end - 1);
    records[at + bit as usize / 8] ^= 1 << (bit % 8);
}

/// How long the batch at the start of these bytes is, as it says itself.
fn batch_bytes(records: &[u8]) -> usize {
    let length = i32::from_be_bytes(records[8..12].try_into().expect("four bytes"));
    length as usize + 12
}
