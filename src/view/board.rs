//! Boards: their order, and places on them.
//!
//! The highest score is first; of equal ones, the one that was reached first. Over several zones,
//! equal scores are ordered by time, then zone, then player.

use crate::kit::rank_tree::Key;
use crate::view::card::Card;

/// A place on a board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// 1 is first.
    pub rank: u32,
    /// The player.
    pub player_id: u64,
    /// Its points.
    pub score: u64,
    /// When the score was set: milliseconds since the Unix epoch, by the zone's clock.
    pub scored_at_ms: i64,
    /// The zone it is in.
    pub zone: u16,
}

/// Returns the ranks around a player's, this many on each side: the first, and how many.
pub(crate) fn ranks_around(rank: u32, each_side: u32) -> (u32, u32) {
    let first = rank.saturating_sub(each_side).max(1);
    (first, (rank - first).saturating_add(each_side).saturating_add(1))
}

/// Returns the key that orders a zone's board.
pub(super) fn zone_key(card: &Card) -> Key {
    [u64::MAX - card.score, card.scored_update, card.player_id]
}

/// Times up to which the world's board orders exactly: the year 6429.
pub(crate) const SCORED_AT_MS_MAX: i64 = (1 << 47) - 1;

/// Returns the key that orders the world's board.
pub(super) fn world_key(zone: u16, card: &Card) -> Key {
    let at_ms = card.scored_at_ms.clamp(0, SCORED_AT_MS_MAX) as u64;
    [u64::MAX - card.score, at_ms << 16 | u64::from(zone), card.player_id]
}
