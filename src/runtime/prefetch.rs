//! Prefetches memory before it is read, so that many cache misses overlap. Also looks up a position
//! without a branch, because no processor could predict it.

// Processor instructions that std offers only as unsafe.
#![allow(unsafe_code)]

/// Size of a cache line.
#[cfg(target_arch = "x86_64")]
const LINE_BYTES: usize = 64;

/// Prefetches a value without waiting. A hint: it affects only the time.
#[inline(always)]
pub(crate) fn prefetch<T>(value: &T) {
    prefetch_lines(value);
}

/// Prefetches an element of a slice. The index is not checked: beyond the slice, the hint is
/// wasted.
#[inline(always)]
pub(crate) fn prefetch_at<T>(values: &[T], at: usize) {
    prefetch_lines(values.as_ptr().wrapping_add(at));
}

#[inline(always)]
fn prefetch_lines<T>(value: *const T) {
    #[cfg(target_arch = "x86_64")]
    for at in (0..size_of::<T>()).step_by(LINE_BYTES) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let line = value.cast::<i8>().wrapping_add(at);
        // SAFETY: every x86-64 has SSE, and no address makes a prefetch fail.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _unused = value;
}

/// Number of words compared at once.
pub(crate) const WORDS: usize = 16;

/// Returns the words that equal `wanted` in the bits of `mask`; bit n represents word n.
#[inline(always)]
pub(crate) fn places_of(wanted: u32, mask: u32, words: &[u32; WORDS]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 has SSE2.
    unsafe {
        places_at_once(wanted, mask, words)
    }
    #[cfg(not(target_arch = "x86_64"))]
    (0..)
        .zip(words)
        .fold(0, |places, (place, word)| places | u32::from(word & mask == wanted) << place)
}

#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "sse2")]
fn places_at_once(wanted: u32, mask: u32, words: &[u32; WORDS]) -> u32 {
    use std::arch::x86_64::*;
    let (wanted, mask) = (_mm_set1_epi32(wanted as i32), _mm_set1_epi32(mask as i32));
    let are_wanted = |four: &[u32; 4]| {
        // SAFETY: the array is as long as the read, which needs no alignment.
        let four = unsafe { _mm_loadu_si128(four.as_ptr().cast()) };
        _mm_cmpeq_epi32(_mm_and_si128(four, mask), wanted)
    };
    let (fours, []) = words.as_chunks() else { unreachable!("sixteen are four times four") };
    let low = _mm_packs_epi32(are_wanted(&fours[0]), are_wanted(&fours[1]));
    let high = _mm_packs_epi32(are_wanted(&fours[2]), are_wanted(&fours[3]));
    _mm_movemask_epi8(_mm_packs_epi16(low, high)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_word_is_found_in_all_its_places(
            words: [u32; WORDS],
            mask: u32,
            wanted: u32,
            places in prop::collection::vec(0..WORDS, 0..4),
        ) {
            let mut words = words;
            for place in &places {
                words[*place] = words[*place] & !mask | wanted & mask;
            }
            let found = places_of(wanted & mask, mask, &words);
            for (place, word) in words.iter().enumerate() {
                prop_assert_eq!(found >> place & 1 == 1, word & mask == wanted & mask);
            }
            prop_assert_eq!(found >> WORDS, 0);
        }
    }
}
