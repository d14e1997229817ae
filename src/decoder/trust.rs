//! What a tier has earned: looking at a record in vain costs as much as it saves.

/// Most trust that a tier can have: so many records in a row that it does not know may come until
/// it is shown but one of 16, not at equal distances: records may have a period of their own.
const TRUST_MAX: u32 = 64;
const TRIAL_BITS: u32 = 4;

/// Trust for a record that the tier knew. One that it did not know costs one.
const TRUST_EARNED: u32 = 2;

/// The trust in one tier.
pub(super) struct Trust {
    left: u32,
    /// Records that came when none was left.
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
        self.left = TRUST_MAX.min(self.left + TRUST_EARNED);
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
