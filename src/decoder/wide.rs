//! Reads a record of a known shape with AVX-512, like `narrow`, but the record's text is compressed
//! and compared as a whole, and so are the positions of its numbers.
//!
//! Without this file, `cargo bench --bench decode` prints 41 ns for a record instead of 34: 7 % of
//! the hot thread's time in a drain.

use super::RecordPosition;
use super::numbers::Numbers;
use super::shape::{BYTES_BEFORE, LANES, LAST_LANE, RecordWindow, Shape, ShapeList};
use super::simd::{load_8, load_64, store_8};
use crate::kit::event_list::Events;
use std::arch::x86_64::*;

/// Digits of a lane, one byte each.
const LANE_DIGITS: usize = 16;

/// Start of the last lane of four.
const LAST_LANE_AT: usize = 3 * LANE_DIGITS;

/// In the last lane, the fourth digit from its end: the player may have three before the last 16.
const FOURTH_HIGH_DIGIT: u64 = 1 << (64 - 4);

/// A vector whose bytes are computed from their positions.
macro_rules! bytes_by_place {
    ($place:ident => $number:expr) => {{
        let mut bytes = [0; 64];
        let mut $place = 0;
        while $place < 64 {
            bytes[$place] = $number as u8;
            $place += 1;
        }
        bytes
    }};
}

static PLACES: [u8; 64] = bytes_by_place!(place => place);

/// The edge at which each run of the first and the last four lanes begins; it ends at the next one.
static FRONT_STARTS: [u8; 64] = bytes_by_place!(place => 2 * (place / LANE_DIGITS));
static BACK_STARTS: [u8; 64] = bytes_by_place!(place => 2 * (place / LANE_DIGITS + 4));

/// Positions of a lane's digits, counted back from the end of its run. The last lane's digits
/// precede those of another lane, so they are one lane further back.
static FRONT_DISTANCES: [u8; 64] =
    bytes_by_place!(place => (place % LANE_DIGITS).wrapping_sub(LANE_DIGITS));
static BACK_DISTANCES: [u8; 64] = bytes_by_place!(
    place => (place % LANE_DIGITS).wrapping_sub(LANE_DIGITS * (1 + place / LAST_LANE_AT))
);

/// Position of each lane's number after packing.
static PACKED: [[i64; 4]; 2] = [[0, 2, 4, 6], [1, 3, 5, 7]];

/// Decodes a record of a known shape and adds the event. Returns the shape.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2")]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(super) fn read<'s>(
    shapes: &'s ShapeList,
    origin: RecordPosition,
    window: &RecordWindow,
    bytes: usize,
    events: &mut Events,
) -> Option<&'s Shape> {
    let record = SplitRecord::of(window, bytes)?;
    let mut number = shapes.head(record.text_bytes, record.first);
    loop {
        let shape = shapes.get(number)?;
        if record.has_texts_of(shape) {
            record.numbers(shape)?.push_event(origin, events);
            return Some(shape);
        }
        number = shape.next;
    }
}

/// A record split into its text and the positions of its runs of digits.
struct SplitRecord {
    /// The bytes' values as digits, in two halves.
    values: [__m512i; 2],
    /// The bytes of each half that are not digits, compressed.
    texts: [__m512i; 2],
    /// Number of these bytes per half; their sum; and the position of the first digit, 64 if it is
    /// not in the first half.
    text_counts: [usize; 2],
    text_bytes: usize,
    first: usize,
    /// Bit mask of the text's bytes that are followed by a run.
    before_runs: [u64; 2],
    /// Alternately the first position of each run and the position after it; then zeros.
    edges: __m512i,
}

impl SplitRecord {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2")]
    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
    fn of(window: &RecordWindow, bytes: usize) -> Option<SplitRecord> {
        let (_, record) = window.split_first_chunk::<BYTES_BEFORE>()?;
        let (low_bytes, rest) = record.split_first_chunk()?;
        let (low_bytes, high_bytes) = (load_64(low_bytes), load_64(rest.first_chunk()?));
        // The whole first half, if the record is longer.
        let in_low = _bzhi_u64(u64::MAX, bytes as u32);
        let in_high = _bzhi_u64(u64::MAX, bytes.saturating_sub(64) as u32);
        let (zero, nine) = (_mm512_set1_epi8(b'0' as i8), _mm512_set1_epi8(9));
        let values = [_mm512_xor_si512(low_bytes, zero), _mm512_xor_si512(high_bytes, zero)];
        let low = _mm512_mask_cmple_epu8_mask(in_low, values[0], nine);
        let high = _mm512_mask_cmple_epu8_mask(in_high, values[1], nine);
        let (low_text, high_text) = (in_low & !low, in_high & !high);
        let text_counts = [low_text.count_ones() as usize, high_text.count_ones() as usize];
        // Within the text only, then both halves combined.
        let low_before = _pext_u64(low_text & (low >> 1 | high << 63), low_text);
        let high_before = _pext_u64(high_text & high >> 1, high_text);
        let both = u128::from(low_before) | u128::from(high_before) << text_counts[0];
        let low_edges = low ^ low << 1;
        let high_edges = high ^ (high << 1 | low >> 63);
        let places = load_64(&PLACES);
        let low_places = _mm512_maskz_compress_epi8(low_edges, places);
        let high_places = _mm512_or_si512(places, _mm512_set1_epi8(64));
        let high_places = _mm512_maskz_compress_epi8(high_edges, high_places);
        let behind_low = u64::MAX.checked_shl(low_edges.count_ones())?;
        Some(SplitRecord {
            values,
            texts: [
                _mm512_maskz_compress_epi8(low_text, low_bytes),
                _mm512_maskz_compress_epi8(high_text, high_bytes),
            ],
            text_counts,
            text_bytes: text_counts[0] + text_counts[1],
            first: low.trailing_zeros() as usize,
            before_runs: [both as u64, (both >> 64) as u64],
            edges: _mm512_mask_expand_epi8(low_places, behind_low, high_places),
        })
    }

    /// Returns whether the text, and the positions of its runs, equal those of a shape.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2")]
    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
    fn has_texts_of(&self, shape: &Shape) -> bool {
        let [low_count, high_count] = self.text_counts;
        let (low_text, high_text) = (part(&shape.skeleton, 0), part(&shape.skeleton, low_count));
        let low = _bzhi_u64(u64::MAX, low_count as u32);
        let high = _bzhi_u64(u64::MAX, high_count as u32);
        let low_differs = _mm512_mask_cmpneq_epu8_mask(low, self.texts[0], load_64(low_text));
        let high_differs = _mm512_mask_cmpneq_epu8_mask(high, self.texts[1], load_64(high_text));
        let runs_differ = (self.before_runs[0] ^ shape.before_runs[0])
            | (self.before_runs[1] ^ shape.before_runs[1]);
        // Also compares the first run: a run at the record's start follows no text.
        low_differs | high_differs | runs_differ == 0
            && usize::from(shape.text_bytes) == self.text_bytes
            && usize::from(shape.first) == self.first
    }

    /// Returns the numbers of a record with a shape's text, if all are in range.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2")]
    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
    fn numbers<'s>(&self, shape: &'s Shape) -> Option<Numbers<'s>> {
        let player_start = 2 * shape.player_run as i8;
        let front = self.lanes(load_64(&FRONT_STARTS), load_64(&FRONT_DISTANCES));
        let back_starts = _mm512_mask_set1_epi8(load_64(&BACK_STARTS), LAST_LANE, player_start);
        let back = self.lanes(back_starts, load_64(&BACK_DISTANCES));
        let wrong_digits = front.zeros & shape.no_zeros[0]
            | back.zeros & shape.no_zeros[1]
            | front.longer & shape.no_longer[0]
            | back.longer & shape.no_longer[1]
            | back.found & FOURTH_HIGH_DIGIT;

        let fours = |digits| {
            let pairs = _mm512_maddubs_epi16(digits, _mm512_set1_epi16(0x010a));
            _mm512_madd_epi16(pairs, _mm512_set1_epi32(0x0001_0064))
        };
        let packed = _mm512_packus_epi32(fours(front.digits), fours(back.digits));
        let eights = _mm512_madd_epi16(packed, _mm512_set1_epi32(0x0001_2710));
        let upper = _mm512_mul_epu32(eights, _mm512_set1_epi64(100_000_000));
        let numbers = _mm512_add_epi64(upper, _mm512_srli_epi64::<32>(eights));
        let numbers = _mm512_permutexvar_epi64(load_8(&PACKED), numbers);
        let beyond = _mm512_cmplt_epi64_mask(numbers, load_8(&shape.least))
            | _mm512_cmpgt_epi64_mask(numbers, load_8(&shape.most));
        if wrong_digits | u64::from(beyond) != 0 {
            return None;
        }
        let sign = load_8(&shape.sign);
        let mut lanes = [0; LANES + 1];
        let signed = _mm512_sub_epi64(_mm512_xor_si512(numbers, sign), sign);
        store_8(lanes.first_chunk_mut()?, signed);
        Some(Numbers { lanes, shape })
    }

    /// Loads the digits of four lanes, given the edges where their runs begin, and the distances of
    /// their digits from the ends of the runs.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2")]
    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
    fn lanes(&self, starts: __m512i, distances: __m512i) -> FourLanes {
        let ends = _mm512_add_epi8(starts, _mm512_set1_epi8(1));
        let start = _mm512_permutexvar_epi8(starts, self.edges);
        let end = _mm512_permutexvar_epi8(ends, self.edges);
        let place = _mm512_add_epi8(end, distances);
        let found = _mm512_cmpge_epi8_mask(place, start);
        let [low, high] = self.values;
        let digits = _mm512_maskz_permutex2var_epi8(found, low, place, high);
        let first = _mm512_mask_cmpeq_epi8_mask(found, place, start);
        FourLanes {
            digits,
            found,
            zeros: _mm512_mask_testn_epi8_mask(first, digits, digits),
            longer: _mm512_cmpgt_epi8_mask(place, start),
        }
    }
}

/// The digits of four lanes, and bit masks of their properties.
struct FourLanes {
    digits: __m512i,
    /// Bytes that have a digit.
    found: u64,
    /// Bytes where a run begins with a zero.
    zeros: u64,
    /// Bytes that are preceded by digits.
    longer: u64,
}

/// A fixed-size part of a slice.
#[inline]
fn part(bytes: &[u8], at: usize) -> &[u8; 64] {
    bytes[at..].first_chunk().expect("the part lies within")
}
