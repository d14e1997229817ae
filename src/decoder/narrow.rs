//! Reads a record of a known shape with AVX2. All its numbers are located at once, so that none
//! waits for the one before, and converted together.

use super::RecordPosition;
use super::numbers::Numbers;
use super::runs::RUNS_MAX;
use super::shape::{
    BYTES_BEFORE, LANES, RecordWindow, SHAPE_BYTES_MAX, Shape, ShapeList, ShapeText,
};
use super::simd::{load_4, load_16, load_32, store_4};
use crate::kit::event_list::Events;
use std::arch::x86_64::*;

/// Runs of most records: a player's numbers and a position. Further runs are processed only if a
/// record has more.
const RUNS_USUAL: usize = 5;

/// Ends of runs that are extracted from each half of a record without counting them first: most
/// records have no more.
const ENDS_USUAL: usize = 4;

/// Entries for the record's start and the ends of all its runs.
const ENDS_MAX: usize = 32;
const _: () = assert!(1 + 2 * RUNS_MAX < ENDS_MAX);

/// Size of one half.
const HALF: usize = SHAPE_BYTES_MAX / 2;
const _: () = assert!(HALF == u64::BITS as usize);

/// From index `n`: sixteen bytes that mask all but the last `n` digits, at most all sixteen.
static DIGIT_MASKS: [u8; 256 + 16] = {
    let mut bytes = [0x0f; 256 + 16];
    let mut at = 0;
    while at < 16 {
        bytes[at] = 0;
        at += 1;
    }
    bytes
};

/// Decodes a record of a known shape and adds the event. Returns the shape.
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(super) fn read<'s>(
    shapes: &'s ShapeList,
    origin: RecordPosition,
    window: &RecordWindow,
    bytes: usize,
    events: &mut Events,
) -> Option<&'s Shape> {
    let mut ends = NO_ENDS;
    let places = Places::find(window, bytes, &mut ends)?;
    if places.run_count <= RUNS_USUAL {
        read_runs::<RUNS_USUAL>(&places, shapes, origin, window, bytes, events)
    } else {
        read_runs::<RUNS_MAX>(&places, shapes, origin, window, bytes, events)
    }
}

/// Reads a record with at most this many runs.
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
fn read_runs<'s, const RUNS: usize>(
    places: &Places<'_>,
    shapes: &'s ShapeList,
    origin: RecordPosition,
    window: &RecordWindow,
    bytes: usize,
    events: &mut Events,
) -> Option<&'s Shape> {
    let mut number = shapes.head(places.text_bytes, places.first);
    loop {
        let shape = shapes.get(number)?;
        if places.have_texts_of::<RUNS>(shape, window, bytes) {
            let numbers = places.numbers::<RUNS>(shape, window)?;
            numbers.push_event(origin, events);
            return Some(shape);
        }
        number = shape.next;
    }
}

/// The ends of an empty record.
const NO_ENDS: [u8; ENDS_MAX] = {
    let mut ends = [SHAPE_BYTES_MAX as u8; ENDS_MAX];
    ends[0] = 0;
    ends
};

/// Where the runs of digits in a record are. The array is kept apart from the other fields, which
/// fit the processor's registers.
struct Places<'a> {
    /// The record's start, then the position after each run, then [`SHAPE_BYTES_MAX`] for absent
    /// runs.
    ends: &'a [u8; ENDS_MAX],
    run_count: usize,
    /// Number of bytes that are not digits, and position of the first digit; 64 if that is not in
    /// the first half.
    text_bytes: usize,
    first: usize,
    /// Bit masks of zeros that begin a run and are followed by a digit, and of all starts.
    zeros: [u64; 2],
    starts: [u64; 2],
}

impl<'a> Places<'a> {
    /// Finds the runs and writes their ends over those of an empty record.
    #[inline]
    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
    fn find(
        window: &RecordWindow,
        bytes: usize,
        ends: &'a mut [u8; ENDS_MAX],
    ) -> Option<Places<'a>> {
        let half = |half: usize| {
            let at = BYTES_BEFORE + half * HALF;
            let (first, second) = (values(window, at), values(window, at + 32));
            (
                are_digits(first) | are_digits(second) << 32,
                are_zeros(first) | are_zeros(second) << 32,
            )
        };
        let ((low, low_zeros), (high, high_zeros)) = (half(0), half(1));
        // The whole first half, if the record is longer.
        let low = _bzhi_u64(low, bytes as u32);
        let high = _bzhi_u64(high, bytes.saturating_sub(HALF) as u32);
        let (low_before, high_before) = (low << 1, high << 1 | low >> 63);
        let (mut low_ends, mut high_ends) = (low_before & !low, high_before & !high);
        let first = low.trailing_zeros() as usize;
        let low_count = low_ends.count_ones() as usize;
        let high_count = high_ends.count_ones() as usize;
        if low_count > RUNS_MAX || high_count > RUNS_MAX {
            return None;
        }
        let put = |ends: &mut [u8], bits: &mut u64, from: usize| {
            for end in ends {
                *end = (from + bits.trailing_zeros() as usize) as u8;
                *bits = _blsr_u64(*bits);
            }
        };
        // The second half's ends overwrite the unused entries of the first half's.
        put(&mut ends[1..1 + ENDS_USUAL], &mut low_ends, 0);
        if low_count > ENDS_USUAL {
            put(&mut ends[1 + ENDS_USUAL..1 + RUNS_MAX], &mut low_ends, 0);
        }
        let (usual, more) = ends[1 + low_count..].split_at_mut(ENDS_USUAL);
        put(usual, &mut high_ends, HALF);
        if high_count > ENDS_USUAL {
            put(&mut more[..RUNS_MAX - ENDS_USUAL], &mut high_ends, HALF);
        }
        let starts = [low & !low_before, high & !high_before];
        Some(Places {
            ends,
            run_count: low_count + high_count,
            text_bytes: bytes - (low.count_ones() + high.count_ones()) as usize,
            first,
            zeros: [
                starts[0] & low_zeros & (low >> 1 | high << 63),
                starts[1] & high_zeros & high >> 1,
            ],
            starts,
        })
    }

    /// Returns whether the texts between the runs equal those of a shape.
    ///
    /// Each text is at least as long as the shape's, which contains no digit, and together they
    /// have the length of the shape's. So each has the same length. The last one must end where the
    /// record ends; nothing else excludes bytes after the record.
    #[inline]
    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
    fn have_texts_of<const RUNS: usize>(
        &self,
        shape: &Shape,
        window: &RecordWindow,
        bytes: usize,
    ) -> bool {
        let mut differs = text_differs(&shape.texts[0], window, 0);
        for run in 0..RUNS {
            let differs_here = text_differs(&shape.texts[run + 1], window, self.end(run));
            differs = _mm256_or_si256(differs, differs_here);
        }
        for piece in shape.pieces() {
            let start = piece.after.map_or(0, |run| self.end(usize::from(run) % LANES));
            let differs_here = text_differs(&piece.text, window, start + usize::from(piece.skip));
            differs = _mm256_or_si256(differs, differs_here);
        }
        let last_text = self.ends[usize::from(shape.run_count) % ENDS_MAX];
        _mm256_testz_si256(differs, differs) == 1
            && usize::from(shape.text_bytes) == self.text_bytes
            && usize::from(shape.run_count) == self.run_count
            && usize::from(last_text) + usize::from(shape.last_text_bytes) == bytes
    }

    /// Returns the numbers of a record with a shape's texts, if all are in range. A lane without a
    /// run holds some number within its range, which nothing reads.
    #[inline]
    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
    fn numbers<'s, const RUNS: usize>(
        &self,
        shape: &'s Shape,
        window: &RecordWindow,
    ) -> Option<Numbers<'s>> {
        let digits = |run: usize| match run < RUNS {
            true => digits_before(window, self.end(run), self.length(run, shape)),
            false => _mm_setzero_si128(),
        };
        let player = usize::from(shape.player_run) % LANES;
        let high_digits = digits_before(
            window,
            self.end(player).saturating_sub(16),
            self.ends[player + 1]
                .wrapping_sub(self.ends[player])
                .saturating_sub(shape.before_high_digits),
        );
        let front = four_numbers([digits(0), digits(1), digits(2), digits(3)]);
        let back = four_numbers([digits(4), digits(5), digits(6), high_digits]);

        let (before, ends) = (self.ends.first_chunk()?, self.ends[1..].first_chunk()?);
        let since_last = _mm_sub_epi8(load_16(ends), load_16(before));
        let lengths = _mm_sub_epi8(since_last, load_16(&shape.text_lengths));
        let too_long = _mm_subs_epu8(lengths, load_16(&shape.digits_max));
        let beyond = _mm256_or_si256(
            beyond(front, load_4(&shape.least[0]), load_4(&shape.most[0])),
            beyond(back, load_4(&shape.least[1]), load_4(&shape.most[1])),
        );
        let wrong = _mm256_or_si256(beyond, _mm256_zextsi128_si256(too_long));
        if _mm256_testz_si256(wrong, wrong) == 0 {
            return None;
        }
        if self.zeros != [0; 2] && shape.forbids_zeros(wide(self.zeros), wide(self.starts)) {
            return None;
        }
        let mut lanes = [0; LANES + 1];
        let (front_lanes, other_lanes) = lanes.split_first_chunk_mut()?;
        store_4(front_lanes, with_sign(front, load_4(&shape.sign[0])));
        store_4(other_lanes.first_chunk_mut()?, with_sign(back, load_4(&shape.sign[1])));
        Some(Numbers { lanes, shape })
    }

    /// Position after a run, from the record's start. An absent run ends at 0.
    #[inline]
    fn end(&self, run: usize) -> usize {
        usize::from(self.ends[run + 1]) % SHAPE_BYTES_MAX
    }

    /// Number of digits of a run, in a record with a shape's texts: everything after the previous
    /// run except the text between them.
    #[inline]
    fn length(&self, run: usize, shape: &Shape) -> u8 {
        let before = run.checked_sub(1).map_or(0, |before| self.end(before));
        (self.end(run).wrapping_sub(before) as u8).wrapping_sub(shape.text_lengths[run])
    }
}

/// Thirty-two bytes; digits become their values.
#[inline]
#[target_feature(enable = "avx2")]
fn values(window: &RecordWindow, at: usize) -> __m256i {
    _mm256_xor_si256(load_32(part(window, at)), _mm256_set1_epi8(b'0' as i8))
}

/// A bit for each byte that is a digit.
#[inline]
#[target_feature(enable = "avx2")]
fn are_digits(values: __m256i) -> u64 {
    let at_most_nine = _mm256_min_epu8(values, _mm256_set1_epi8(9));
    u64::from(_mm256_movemask_epi8(_mm256_cmpeq_epi8(at_most_nine, values)) as u32)
}

/// A bit for each byte that is the digit zero.
#[inline]
#[target_feature(enable = "avx2")]
fn are_zeros(values: __m256i) -> u64 {
    u64::from(_mm256_movemask_epi8(_mm256_cmpeq_epi8(values, _mm256_setzero_si256())) as u32)
}

/// The bytes that differ from a text at this distance from the record's start. Beyond a record's
/// maximum length the position wraps around; some other text differs then.
#[inline]
#[target_feature(enable = "avx2")]
fn text_differs(text: &ShapeText, window: &RecordWindow, at: usize) -> __m256i {
    let found = load_32(part(window, BYTES_BEFORE + at % SHAPE_BYTES_MAX));
    _mm256_and_si256(_mm256_xor_si256(found, load_32(&text.bytes)), load_32(&text.mask))
}

/// The values of the last sixteen digits of a run of this length that ends at this distance from
/// the record's start, padded with zeros in front.
#[inline]
#[target_feature(enable = "avx2")]
fn digits_before(window: &RecordWindow, end: usize, length: u8) -> __m128i {
    let bytes = load_16(part(window, BYTES_BEFORE - 16 + end));
    _mm_and_si128(bytes, load_16(part(&DIGIT_MASKS, length.into())))
}

/// Converts four groups of sixteen digits to numbers.
#[inline]
#[target_feature(enable = "avx2")]
fn four_numbers([first, second, third, fourth]: [__m128i; 4]) -> __m256i {
    let fours = |low, high| {
        let pairs = _mm256_maddubs_epi16(_mm256_set_m128i(high, low), _mm256_set1_epi16(0x010a));
        _mm256_madd_epi16(pairs, _mm256_set1_epi32(0x0001_0064))
    };
    // Packing takes alternate halves.
    let fours = _mm256_packus_epi32(fours(first, third), fours(second, fourth));
    let eights = _mm256_madd_epi16(fours, _mm256_set1_epi32(0x0001_2710));
    let upper = _mm256_mul_epu32(eights, _mm256_set1_epi64x(100_000_000));
    _mm256_add_epi64(upper, _mm256_srli_epi64::<32>(eights))
}

/// All ones for each number that is out of range.
#[inline]
#[target_feature(enable = "avx2")]
fn beyond(numbers: __m256i, least: __m256i, most: __m256i) -> __m256i {
    _mm256_or_si256(_mm256_cmpgt_epi64(least, numbers), _mm256_cmpgt_epi64(numbers, most))
}

/// The numbers with their signs applied, in two's complement.
#[inline]
#[target_feature(enable = "avx2")]
fn with_sign(numbers: __m256i, sign: __m256i) -> __m256i {
    _mm256_sub_epi64(_mm256_xor_si256(numbers, sign), sign)
}

/// A fixed-size part of a slice.
#[inline]
fn part<const BYTES: usize>(bytes: &[u8], at: usize) -> &[u8; BYTES] {
    bytes[at..].first_chunk().expect("the part lies within")
}

/// Combines two halves.
fn wide([low, high]: [u64; 2]) -> u128 {
    u128::from(low) | u128::from(high) << 64
}
