//! Points.

use crate::hunt::actor::Pack;
use crate::hunt::change::Change;
use crate::hunt::refusal::ScoreCause;
use crate::hunt::{EventOutput, Shard};

impl Shard {
    /// Adds points. Among equal scores the one published first ranks first, so the update's ordinal
    /// is stored. The caller writes the pack.
    pub(crate) fn add_score(
        &self,
        pack: &mut Pack,
        cause: ScoreCause,
        points: u64,
        out: &mut EventOutput,
    ) {
        if points == 0 {
            return;
        }
        pack.score = pack.score.saturating_add(points);
        pack.scored_at_ms = self.clock.now_ms();
        pack.scored_ordinal = out.ordinal();
        let points = u32::try_from(points).unwrap_or(u32::MAX);
        out.push(pack.player_id, Change::Scored { cause, points, score: pack.score });
    }
}
