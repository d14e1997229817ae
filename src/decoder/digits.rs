//! Converts decimal digits to numbers, eight bytes at a time in one 64-bit word.
//!
//! Each function reads the start of its bytes and returns the bytes after what it has read. `None`
//! means that they do not start with the plain form that it reads; they may still be valid JSON.

/// Returns the first eight bytes, the first one lowest, padded with zeros.
#[inline(always)]
pub(super) fn word(bytes: &[u8]) -> u64 {
    match bytes.first_chunk() {
        Some(chunk) => u64::from_le_bytes(*chunk),
        None => last_word(bytes),
    }
}

/// Returns fewer than eight bytes as a word.
#[inline(never)]
fn last_word(bytes: &[u8]) -> u64 {
    match (bytes.first_chunk(), bytes.last_chunk()) {
        (Some(first), Some(last)) => {
            // Where the two overlap they are equal.
            let last = u64::from(u32::from_le_bytes(*last)) << (8 * (bytes.len() - 4));
            u64::from(u32::from_le_bytes(*first)) | last
        }
        _ => bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
    }
}

/// A word in which every byte is `byte`.
const fn repeat(byte: u8) -> u64 {
    u64::from_le_bytes([byte; 8])
}

/// Returns how many of a word's first bytes are digits, given the word with `'0'` removed from each
/// byte.
#[inline]
fn leading_digits(values: u64) -> usize {
    // A byte's top bit gets set unless the byte is 0..=9. A carry corrupts only the bytes above a
    // non-digit.
    let others = (values.wrapping_add(repeat(0x76)) | values) & repeat(0x80);
    others.trailing_zeros() as usize / 8
}

/// Converts eight digits to a number; the first byte is the highest digit.
#[inline]
fn eight_digits(values: u64) -> u64 {
    let pairs = values.wrapping_mul(1 + (10 << 8)) >> 8 & 0x00ff_00ff_00ff_00ff;
    let fours = pairs.wrapping_mul(1 + (100 << 16)) >> 16 & 0x0000_ffff_0000_ffff;
    fours.wrapping_mul(1 + (10_000 << 32)) >> 32
}

const POWERS_OF_TEN: [u64; 8] = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000];

/// Reads an unsigned integer of digits alone: no sign, no leading zero, no more than 64 bits.
#[inline(always)]
pub(super) fn unsigned(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let values = word(bytes) ^ repeat(b'0');
    let digits = leading_digits(values);
    let leading_zero = values & 0xff == 0 && digits > 1;
    if leading_zero || digits == 0 {
        None
    } else if digits < 8 {
        Some((few_digits(values, digits), bytes.get(digits..)?))
    } else {
        unsigned_after(eight_digits(values), bytes.get(8..)?)
    }
}

/// Reads the rest of an integer whose first eight digits are known.
#[inline]
fn unsigned_after(first: u64, mut bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut number = first;
    let mut values = word(bytes) ^ repeat(b'0');
    let mut digits = leading_digits(values);
    // A full word advances by a constant, so the processor can continue before it knows the digits.
    if digits == 8 {
        number = number * 100_000_000 + eight_digits(values);
        bytes = bytes.get(8..)?;
        values = word(bytes) ^ repeat(b'0');
        digits = leading_digits(values);
    }
    if digits > 0 {
        number = number.checked_mul(*POWERS_OF_TEN.get(digits)?)?;
        number = number.checked_add(few_digits(values, digits))?;
        bytes = bytes.get(digits..)?;
    }
    Some((number, bytes))
}

/// Converts the first digits, fewer than eight, to a number.
#[inline(always)]
fn few_digits(values: u64, digits: usize) -> u64 {
    eight_digits(values << (8 * (7 - digits)) << 8)
}

/// Reads a number of centimetres, with or without a minus and a fraction, rounded as
/// [`super::quantity::centimetres`] rounds the nearest double.
#[inline(always)]
pub(super) fn position(bytes: &[u8]) -> Option<(i32, &[u8])> {
    let (negative, bytes) = match bytes {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, bytes),
    };
    let (magnitude, mut rest) = unsigned(bytes)?;
    let mut centimetres = i64::try_from(magnitude).ok()?;
    if let [b'.', fraction @ ..] = rest {
        let (rounds_up, after) = rounds_up(fraction)?;
        centimetres = centimetres.checked_add(i64::from(rounds_up))?;
        rest = after;
    }
    let centimetres = if negative { -centimetres } else { centimetres };
    Some((i32::try_from(centimetres).ok()?, rest))
}

/// Returns whether the fraction is a half or more.
///
/// Up to 2^31 every half is a double, so the double nearest to a number is on the same side of the
/// half as the number itself, or is the half. The latter requires a number closer to it than 2^-22,
/// which is less than 0.000_001; those few are left to the JSON tier.
#[inline(never)]
fn rounds_up(fraction: &[u8]) -> Option<(bool, &[u8])> {
    const HALF: u64 = 50_000_000;
    let values = word(fraction) ^ repeat(b'0');
    let digits = leading_digits(values);
    if digits == 0 {
        return None;
    }
    let first = eight_digits(values & (u64::MAX >> (64 - 8 * digits)));
    if (HALF - 100..HALF).contains(&first) {
        return None;
    }
    let rest = fraction.get(digits..)?;
    Some((first >= HALF, if digits == 8 { after_digits(rest) } else { rest }))
}

fn after_digits(bytes: &[u8]) -> &[u8] {
    let digits = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
    &bytes[digits..]
}

/// Returns the bytes after a number that certainly fits a 64-bit integer or a finite double: at
/// most 18 digits, with an optional fraction.
pub(super) fn after_plain_number(bytes: &[u8]) -> Option<&[u8]> {
    let bytes = bytes.strip_prefix(b"-").unwrap_or(bytes);
    let rest = after_digits(bytes);
    let digits = bytes.len() - rest.len();
    let leading_zero = digits > 1 && bytes.starts_with(b"0");
    if digits == 0 || digits > 18 || leading_zero {
        return None;
    }
    match rest {
        [b'.', fraction @ ..] => {
            let rest = after_digits(fraction);
            (rest.len() < fraction.len()).then_some(rest)
        }
        _ => Some(rest),
    }
}

#[cfg(test)]
mod tests {
    use super::{after_plain_number, position, unsigned};
    use crate::decoder::quantity::centimetres;
    use proptest::prelude::*;

    #[test]
    fn numbers_are_read_up_to_the_first_byte_that_is_no_digit() {
        for (text, expected) in [
            ("0", Some((0, ""))),
            ("7,", Some((7, ","))),
            ("12345678", Some((12_345_678, ""))),
            ("123456789}", Some((123_456_789, "}"))),
            ("1234567890123456,", Some((1_234_567_890_123_456, ","))),
            ("18446744073709551615 ", Some((u64::MAX, " "))),
            ("18446744073709551616", None),
            ("99999999999999999999", None),
            ("100000000000000000000", None),
            ("100000000000000000000000000", None),
            ("00", None),
            ("01", None),
            ("0123456789", None),
            ("", None),
            ("x1", None),
            ("-1", None),
            ("+1", None),
            ("1:", Some((1, ":"))),
            ("1/", Some((1, "/"))),
            ("1\u{b2}", Some((1, "\u{b2}"))),
            ("12\u{661}3", Some((12, "\u{661}3"))),
        ] {
            let expected = expected.map(|(value, rest)| (value, rest.as_bytes()));
            assert_eq!(unsigned(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn a_position_may_have_one_minus_and_a_fraction_that_is_not_next_to_a_half() {
        for (text, expected) in [
            ("7", Some(7)),
            ("-0", Some(0)),
            ("-0.4", Some(0)),
            ("2.5", Some(3)),
            ("-2.5", Some(-3)),
            ("2.4999", Some(2)),
            ("2.499999", None),
            ("2.4999999999999999", None),
            ("2.", None),
            ("-", None),
            ("--1", None),
            ("-01", None),
            ("-.5", None),
            ("2147483647.4", Some(i32::MAX)),
            ("2147483647.5", None),
            ("-2147483648.4", Some(i32::MIN)),
            ("-2147483649", None),
            ("9223372036854775808", None),
        ] {
            let read = position(text.as_bytes());
            assert_eq!(read, expected.map(|value| (value, &b""[..])), "{text}");
        }
    }

    #[test]
    fn a_plain_number_has_no_exponent_and_at_most_18_digits_before_the_point() {
        let after = |text: &'static str| after_plain_number(text.as_bytes());
        assert_eq!(after("123456789012345678,"), Some(&b","[..]));
        assert_eq!(after("1234567890123456789,"), None);
        assert_eq!(after("-0.000}"), Some(&b"}"[..]));
        assert_eq!(after("-.5"), None);
        assert_eq!(after("1."), None);
        assert_eq!(after("01"), None);
        assert_eq!(after("1e5"), Some(&b"e5"[..]));
    }

    proptest! {
        #[test]
        fn numbers_are_what_the_standard_library_reads(value: u64, tail in "[,} \"a/:]{0,9}") {
            let text = format!("{value}{tail}");
            prop_assert_eq!(unsigned(text.as_bytes()), Some((value, tail.as_bytes())));
        }

        #[test]
        fn positions_are_rounded_as_the_nearest_double_is(
            whole in prop_oneof![-3i64..3, -2_147_483_650i64..2_147_483_650],
            fraction in prop_oneof!["[0-9]{1,30}", "4999[0-9]{0,20}", "50{0,20}[0-9]"],
        ) {
            let text = format!("{whole}.{fraction}");
            let double: f64 = text.parse().expect("a decimal number");
            if let Some((read, rest)) = position(text.as_bytes()) {
                prop_assert!(rest.is_empty());
                prop_assert_eq!(Some(read), centimetres(double));
            }
        }
    }
}
