//! A line of JSON that is assembled from short texts and numbers, without a function call for each.
//!
//! The publisher writes a million of them per second, so copies have a fixed size, and digits are
//! written eight at a time.

use crate::kit::update_json::UPDATE_JSON_BYTES_MAX;

/// Length of the longest text in a table: copies of a fixed size need no loop and no call.
const TEXT_BYTES: usize = 40;

/// Size of the longest object with its comma, and of the bytes that a copy may write beyond its
/// end.
const LINE_BYTES: usize = 1 + UPDATE_JSON_BYTES_MAX + TEXT_BYTES;

/// A text that is copied with a fixed size, whatever its length.
#[derive(Clone, Copy)]
pub(crate) struct Text {
    bytes: [u8; TEXT_BYTES],
    length: usize,
}

impl Text {
    /// Concatenates the parts; at most 40 bytes.
    pub(crate) const fn new(parts: &[&str]) -> Text {
        let mut text = Text { bytes: [0; TEXT_BYTES], length: 0 };
        let mut part = 0;
        while part < parts.len() {
            let bytes = parts[part].as_bytes();
            let mut at = 0;
            while at < bytes.len() {
                text.bytes[text.length] = bytes[at];
                text.length += 1;
                at += 1;
            }
            part += 1;
        }
        text
    }
}

/// The base of a group of eight digits.
const GROUP: u64 = 100_000_000;

/// Size of the digits of a 64-bit number before its last eight.
const HEAD_BYTES: usize = 16;

/// Cached digits of a number before its last eight, copied while they stay the same.
#[derive(Default)]
pub(crate) struct Head {
    /// The number without its last eight digits; 0 if it has no others.
    number: u64,
    digits: [u8; HEAD_BYTES],
    length: usize,
}

/// The object being written.
pub(crate) struct Line {
    bytes: [u8; LINE_BYTES],
    length: usize,
}

impl Default for Line {
    fn default() -> Line {
        Line::new()
    }
}

impl Line {
    /// Creates an empty line.
    pub(crate) fn new() -> Line {
        Line { bytes: [0; LINE_BYTES], length: 0 }
    }

    /// Starts the next object.
    pub(crate) fn clear(&mut self) {
        self.length = 0;
    }

    /// The bytes appended so far.
    pub(crate) fn written(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// Appends a decimal number that mostly shares the digits before its last eight with the
    /// previous number: a player's id, or a time.
    pub(crate) fn push_digits_after(&mut self, number: u64, head: &mut Head) {
        let (upper, lower) = (number / GROUP, number % GROUP);
        if upper == head.number && upper != 0 {
            self.copy(head.digits, head.length);
            self.push_group(lower);
            return;
        }
        let start = self.length;
        self.push_digits(number);
        head.number = upper;
        head.length = (self.length - start).saturating_sub(8);
        head.digits.copy_from_slice(&self.bytes[start..start + HEAD_BYTES]);
    }

    /// Appends a decimal number, in groups of eight digits.
    pub(crate) fn push_digits(&mut self, number: u64) {
        if number < GROUP {
            self.push_first_group(number);
        } else if number < GROUP * GROUP {
            self.push_first_group(number / GROUP);
            self.push_group(number % GROUP);
        } else {
            self.push_first_group(number / (GROUP * GROUP));
            self.push_group(number / GROUP % GROUP);
            self.push_group(number % GROUP);
        }
    }

    /// Appends up to eight digits, without leading zeros.
    fn push_first_group(&mut self, number: u64) {
        let digits = eight_digits(number);
        let zeros = (digits.trailing_zeros() / 8).min(7);
        self.copy(((digits | ASCII_ZEROS) >> (8 * zeros)).to_le_bytes(), 8 - zeros as usize);
    }

    fn push_group(&mut self, number: u64) {
        self.copy((eight_digits(number) | ASCII_ZEROS).to_le_bytes(), 8);
    }

    /// Appends a text.
    pub(crate) fn push_text(&mut self, text: &Text) {
        self.copy(text.bytes, text.length);
    }

    /// Appends the first `length` of these bytes. More may be copied; the next write overwrites
    /// them.
    fn copy<const BYTES: usize>(&mut self, bytes: [u8; BYTES], length: usize) {
        self.bytes[self.length..self.length + BYTES].copy_from_slice(&bytes);
        self.length += length;
    }

    /// Appends these bytes.
    pub(crate) fn push_bytes(&mut self, bytes: &[u8]) {
        self.bytes[self.length..self.length + bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
    }

    /// Appends one byte.
    pub(crate) fn push(&mut self, byte: u8) {
        self.bytes[self.length] = byte;
        self.length += 1;
    }
}

const ASCII_ZEROS: u64 = u64::from_le_bytes(*b"00000000");

/// Returns the eight decimal digits of a number below 10^8, the first in the lowest byte.
///
/// Each step splits every lane in two: four digits, two, one. The factors are reciprocals of 100
/// and of 10, exact for what a lane can hold.
fn eight_digits(number: u64) -> u64 {
    let fours = (number / 10_000) | ((number % 10_000) << 32);
    let hundreds = ((fours * 10_486) >> 20) & 0x7f_0000_007f;
    let twos = hundreds | (fours - 100 * hundreds) << 16;
    let tens = ((twos * 103) >> 10) & 0x000f_000f_000f_000f;
    tens | (twos - 10 * tens) << 8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_digits_are_those_of_the_number() {
        let check = |number: u64| {
            let digits = (eight_digits(number) | ASCII_ZEROS).to_le_bytes();
            assert_eq!(str::from_utf8(&digits).unwrap(), format!("{number:08}"));
        };
        // Both halves are computed alike, so every value of one half is enough.
        (0..10_000).for_each(|half| check(half * 10_000 + (9_999 - half)));
    }

    #[test]
    fn a_number_is_written_as_it_is_whatever_came_before() {
        let (mut line, mut head) = (Line::new(), Head::default());
        let upper = [0, 1, 7, 99_999_999, 100_000_000, 184_467_440_736];
        let lower = [0, 1, 9_551_615, 99_999_999];
        let all = upper.iter().flat_map(|upper| lower.map(|lower| upper * GROUP + lower));
        for number in all.clone().chain(all.rev()).chain([5, 5 * GROUP, u64::MAX, 5]) {
            line.clear();
            line.push_digits_after(number, &mut head);
            assert_eq!(str::from_utf8(line.written()).unwrap(), number.to_string());
        }
    }

    #[test]
    fn numbers_of_every_length_are_written_as_they_are() {
        let mut line = Line::new();
        let mut powers: Vec<u64> = (0..20).map(|power| 10u64.pow(power)).collect();
        powers.extend([0, u64::MAX]);
        for number in powers.iter().flat_map(|power| [power.saturating_sub(1), *power]) {
            line.clear();
            line.push_digits(number);
            assert_eq!(str::from_utf8(line.written()).unwrap(), number.to_string());
        }
    }
}
