//! Converts quantities with a unit from JSON numbers to the integers that the engine uses.
//!
//! The only place that touches floating-point numbers: from here on everything is in whole
//! centimetres, so no two machines can disagree.

/// A JSON number without fraction or exponent: its magnitude and its sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Integer {
    pub(super) magnitude: u64,
    pub(super) negative: bool,
}

impl Integer {
    /// Returns the value, if it is not negative. `-0` is zero.
    pub(super) fn to_u64(self) -> Option<u64> {
        (!self.negative || self.magnitude == 0).then_some(self.magnitude)
    }
}

impl From<u64> for Integer {
    fn from(value: u64) -> Integer {
        Integer { magnitude: value, negative: false }
    }
}

impl From<i64> for Integer {
    fn from(value: i64) -> Integer {
        Integer { magnitude: value.unsigned_abs(), negative: value < 0 }
    }
}

/// Rounds `value` to centimetres, halves away from zero; `None` beyond the range of i32.
pub(super) fn centimetres(value: f64) -> Option<i32> {
    let rounded = value.round();
    let fits = f64::from(i32::MIN) <= rounded && rounded <= f64::from(i32::MAX);
    fits.then_some(rounded as i32)
}

#[cfg(test)]
mod tests {
    use super::{Integer, centimetres};

    #[test]
    fn centimetres_round_halves_away_from_zero() {
        for (value, expected) in [
            (0.5, 1),
            (-0.5, -1),
            (0.499_999_999_999_999_94, 0),
            (-0.499_999_999_999_999_94, 0),
            (2.5, 3),
            (-2.5, -3),
            (120_350.499_999, 120_350),
            (-0.0, 0),
        ] {
            assert_eq!(centimetres(value), Some(expected), "{value}");
        }
    }

    #[test]
    fn centimetres_beyond_i32_are_none() {
        assert_eq!(centimetres(2_147_483_647.499), Some(i32::MAX));
        assert_eq!(centimetres(2_147_483_647.5), None);
        assert_eq!(centimetres(-2_147_483_648.499), Some(i32::MIN));
        assert_eq!(centimetres(-2_147_483_648.5), None);
        assert_eq!(centimetres(f64::MAX), None);
        assert_eq!(centimetres(f64::NAN), None);
    }

    #[test]
    fn integers_keep_their_value_or_are_refused() {
        let minus = |magnitude| Integer { magnitude, negative: true };
        assert_eq!(Integer::from(u64::MAX).to_u64(), Some(u64::MAX));
        assert_eq!(Integer::from(-1i64).to_u64(), None);
        assert_eq!(minus(0).to_u64(), Some(0));
        assert_eq!(Integer::from(i64::MIN), minus(1 << 63));
    }
}
