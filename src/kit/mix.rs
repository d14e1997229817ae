//! The engine's hash functions, used for the digest of the state, the chain over the updates, and
//! chance.

/// Multiplies 64 by 64 bits and folds the product: every input bit reaches every output bit.
#[inline]
pub(crate) fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ (product >> 64) as u64
}

/// Odd constants without a pattern: the fractional bits of square roots of primes.
pub(crate) const KEYS: [u64; 8] = [
    0x6a09_e667_f3bc_c909,
    0xbb67_ae85_84ca_a73b,
    0x3c6e_f372_fe94_f82b,
    0xa54f_f53a_5f1d_36f1,
    0x510e_527f_ade6_82d1,
    0x9b05_688c_2b3e_6c1f,
    0x1f83_d9ab_fb41_bd6b,
    0x5be0_cd19_137e_2179,
];

/// The salt of a table, distributed over all bits.
pub(crate) fn salt(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Returns `after * key - before * key`, in 128 bits.
#[inline]
pub(crate) fn difference(before: u64, after: u64, key: u64) -> u128 {
    let (more, is_less) = after.overflowing_sub(before);
    let wrapped = if is_less { u128::from(key) << 64 } else { 0 };
    (u128::from(more) * u128::from(key)).wrapping_sub(wrapped)
}

/// Hashes a few words in order. Only the last multiplication waits for the salt. docs/PROTOCOL.md
/// defines it for four words, with the chain as the salt.
#[inline(always)]
pub fn hash<const WORDS: usize>(words: &[u64; WORDS], salt: u64) -> u64 {
    let mut sum = salt;
    let mut pairs = words.chunks_exact(2);
    for (at, pair) in (&mut pairs).enumerate() {
        let key = KEYS[at % 4 * 2].wrapping_add(at as u64);
        sum = sum.wrapping_add(fold(pair[0] ^ key, pair[1] ^ KEYS[at % 4 * 2 + 1]));
    }
    if let [last] = pairs.remainder() {
        sum = sum.wrapping_add(fold(last ^ KEYS[5], KEYS[6]));
    }
    fold(sum ^ KEYS[0], KEYS[3])
}

/// Returns a number that nobody can choose but everybody can check: chance is a function of a
/// seed, the shard and the ordinal of the event.
pub(crate) fn chance(seed: u64, shard: u16, ordinal: u64) -> u64 {
    hash(&[seed, u64::from(shard), ordinal], KEYS[7])
}

/// Returns a number below `bound`, which is not 0, from a chance.
pub(crate) fn below(chance: u64, bound: u64) -> u64 {
    ((u128::from(chance) * u128::from(bound)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bit_of_each_word_changes_the_hash() {
        let words = [1, 2, 3, 4, 5, 6, 7];
        let before = hash(&words, 9);
        for at in 0..words.len() {
            for bit in 0..64 {
                let mut changed = words;
                changed[at] ^= 1 << bit;
                assert_ne!(hash(&changed, 9), before, "word {at} bit {bit}");
            }
        }
        assert_ne!(hash(&words, 8), before);
    }

    #[test]
    fn a_difference_is_what_two_products_differ_by() {
        for (before, after) in [(0, 5), (5, 0), (7, 7), (u64::MAX, 0), (0, u64::MAX), (9, 1 << 63)]
        {
            for key in [1, 3, KEYS[4], u64::MAX] {
                let product = |word: u64| u128::from(word) * u128::from(key);
                let expected = product(after).wrapping_sub(product(before));
                assert_eq!(difference(before, after, key), expected);
            }
        }
    }

    #[test]
    fn words_that_change_places_change_the_hash() {
        assert_ne!(hash(&[1, 2, 3, 4], 0), hash(&[3, 4, 1, 2], 0));
        assert_ne!(hash(&[1, 2, 3, 4], 0), hash(&[2, 1, 3, 4], 0));
    }

    #[test]
    fn a_thousand_chances_spread_over_ten_boxes() {
        let mut boxes = [0; 10];
        for ordinal in 0..1000 {
            boxes[below(chance(42, 3, ordinal), 10) as usize] += 1;
        }
        assert!(boxes.iter().all(|count| (60..=140).contains(count)), "{boxes:?}");
    }
}
