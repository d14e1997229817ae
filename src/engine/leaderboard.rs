//! Who has how many points: the board of a shard.
//!
//! The highest score is first; of equal ones, the one that was reached first.

use crate::engine::Shard;

/// A player's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rank {
    /// 1 is first.
    pub rank: u32,
    /// The player.
    pub player_id: u64,
    /// Its points.
    pub score: u64,
    /// When the score became what it is, by the shard's clock: milliseconds since the Unix epoch.
    pub scored_at_ms: i64,
    /// The zone it is in.
    pub zone: u16,
}

impl Shard {
    /// Players on the board: all who are in the zone.
    pub(crate) fn players(&self) -> u32 {
        self.actors.board().count()
    }

    /// A player's place.
    pub(crate) fn standing(&self, player_id: u64) -> Option<Rank> {
        let row = self.actors.find(player_id)?;
        Some(self.standing_of(row, self.actors.rank(row) + 1))
    }

    /// The places from `rank` on, `count` of them or what there is. Each costs O(log n).
    pub(crate) fn standings(&self, rank: u32, count: u32) -> impl Iterator<Item = Rank> + '_ {
        let first = rank.max(1);
        (first..first.saturating_add(count)).map_while(|rank| {
            let row = self.actors.board().at(rank - 1)?;
            Some(self.standing_of(row, rank))
        })
    }

    fn standing_of(&self, row: u32, rank: u32) -> Rank {
        let pack = self.actors.pack(row);
        Rank {
            rank,
            player_id: pack.player_id,
            score: pack.score,
            scored_at_ms: self.clock.unix_ms(pack.scored_at_ms),
            zone: self.partition,
        }
    }
}
