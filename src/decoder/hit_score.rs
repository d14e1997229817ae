//! A score for each tier: it rises with each record that the tier knows, and falls with each
//! that it does not. Trying a tier in vain costs as much as it can save. Records that are not shown
//! to a tier are not learnt by it either.

/// Upper limit of the score. After this many unknown records in a row, the tier is tried on only
/// one record in 64. These are not at equal intervals, because records may repeat with a period of
/// their own.
const SCORE_MAX: u32 = 64;
const TRIAL_BITS: u32 = 6;

/// Score of a known record. An unknown record costs 1.
const HIT_SCORE: u32 = 2;

/// The score of one tier.
pub(super) struct HitScore {
    score: u32,
    /// Records that came while the score was 0.
    records_at_zero: u32,
}

impl HitScore {
    /// Returns whether to try the tier on the next record.
    #[inline]
    pub(super) fn should_try(&mut self) -> bool {
        if self.score > 0 {
            return true;
        }
        self.records_at_zero = self.records_at_zero.wrapping_add(1);
        self.records_at_zero.wrapping_mul(0x9e37_79b9) >> (u32::BITS - TRIAL_BITS) == 0
    }

    /// Counts a record that the tier knew.
    #[inline]
    pub(super) fn add_hit(&mut self) {
        // The limit may be exceeded by one: an exact one costs more.
        if self.score < SCORE_MAX {
            self.score += HIT_SCORE;
        }
    }

    /// Counts a record that the tier did not know.
    #[inline]
    pub(super) fn add_miss(&mut self) {
        self.score = self.score.saturating_sub(1);
    }
}

impl Default for HitScore {
    fn default() -> HitScore {
        HitScore { score: SCORE_MAX, records_at_zero: 0 }
    }
}
