//! Points.

use crate::engine::actor::Pack;
use crate::engine::change::Change;
use crate::engine::refusal::ScoreCause;
use crate::engine::{Shard, Tell};

impl Shard {
    /// Adds points. Equal scores are ordered by who reached theirs first, so the event's ordinal is
    /// kept. The caller writes the pack.
    pub(crate) fn add_score(
        &self,
        pack: &mut Pack,
        cause: ScoreCause,
        points: u64,
        tell: &mut Tell,
    ) {
        if points == 0 {
            return;
        }
        pack.score = pack.score.saturating_add(points);
        pack.scored_ordinal = self.clock.records();
        pack.scored_at_ms = self.clock.now_ms();
        let points = u32::try_from(points).unwrap_or(u32::MAX);
        tell.push(pack.player_id, Change::Scored { cause, points, score: pack.score });
    }
}
