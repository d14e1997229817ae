//! Trust in a tier: it rises with each record that the tier knows, and falls with each that it does
//! not. Trying a tier in vain costs as much as it can save. What a tier is not shown, it does not
//! learn from either.

/// The most trust that a tier can have. After this many records in a row that it does not know, it
/// is shown only one record of 64. These are not at equal distances, because records may repeat
/// with a period of their own.
const TRUST_MAX: u32 = 64;
const TRIAL_BITS: u32 = 6;

/// Trust that a known record adds. An unknown record takes 1 away.
const TRUST_EARNED: u32 = 2;

/// The trust in one tier.
pub(super) struct Trust {
    left: u32,
    /// Records that came when no trust was left.
    distrusted: u32,
}

impl Trust {
    /// Whether to show a record to the tier.
    #[inline]
    pub(super) fn is_left(&mut self) -> bool {
        if self.left > 0 {
            return true;
        }
        self.distrusted = self.distrusted.wrapping_add(1);
        self.distrusted.wrapping_mul(0x9e37_79b9) >> (u32::BITS - TRIAL_BITS) == 0
    }

    /// The tier knew the record.
    #[inline]
    pub(super) fn earn(&mut self) {
        // It may pass the most by one: an exact bound costs more.
        if self.left < TRUST_MAX {
            self.left += TRUST_EARNED;
        }
    }

    /// It did not.
    #[inline]
    pub(super) fn lose(&mut self) {
        self.left = self.left.saturating_sub(1);
    }
}

impl Default for Trust {
    fn default() -> Trust {
        Trust { left: TRUST_MAX, distrusted: 0 }
    }
}
