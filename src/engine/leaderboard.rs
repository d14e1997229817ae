//! Who has how many points: the board of a shard, and of all shards together.
//!
//! The highest score is first; of equal ones, the one that was reached first.

use crate::engine::Shard;

/// A player's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rank {
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
    pub fn players(&self) -> u32 {
        self.actors.board().count()
    }

    /// A player's place.
    pub fn standing(&self, player_id: u64) -> Option<Rank> {
        let row = self.actors.find(player_id)?;
        Some(self.standing_of(row, self.actors.rank(row) + 1))
    }

    /// The places from `rank` on, `count` of them or what there is. Each costs O(log n).
    pub fn standings(&self, rank: u32, count: u32) -> impl Iterator<Item = Rank> + '_ {
        let first = rank.max(1);
        (first..first.saturating_add(count)).map_while(|rank| {
            let row = self.actors.board().at(rank - 1)?;
            Some(self.standing_of(row, rank))
        })
    }

    /// The places around a player's, `each_side` above and below it.
    pub fn standings_around(&self, player_id: u64, each_side: u32) -> Option<Vec<Rank>> {
        let rank = self.standing(player_id)?.rank;
        let first = rank.saturating_sub(each_side).max(1);
        let count = (rank - first).saturating_add(each_side).saturating_add(1);
        Some(self.standings(first, count).collect())
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

/// The first `count` places over several shards, from the first `count` places of each. Equal
/// scores are ordered by time, then zone, then player; a player who is on several boards counts
/// once, at its best place.
pub fn merged(boards: &[Vec<Rank>], count: usize) -> Vec<Rank> {
    let mut all: Vec<Rank> = boards.iter().flatten().copied().collect();
    all.sort_by_key(|standing| {
        let Rank { score, scored_at_ms, zone, player_id, .. } = *standing;
        (u64::MAX - score, scored_at_ms, zone, player_id)
    });
    let mut seen = std::collections::BTreeSet::new();
    all.retain(|standing| seen.insert(standing.player_id));
    all.truncate(count);
    for (standing, rank) in all.iter_mut().zip(1..) {
        standing.rank = rank;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(player_id: u64, score: u64, scored_at_ms: i64, zone: u16) -> Rank {
        Rank { rank: 0, player_id, score, scored_at_ms, zone }
    }

    #[test]
    fn a_merged_board_orders_by_score_time_zone_and_player_and_counts_a_player_once() {
        let zone_1 = vec![standing(5, 90, 7, 1), standing(4, 80, 9, 1), standing(6, 80, 9, 1)];
        let zone_2 = vec![standing(3, 80, 8, 2), standing(2, 80, 9, 2), standing(5, 10, 1, 2)];
        let places = merged(&[zone_1, zone_2], 10);
        let order: Vec<_> = places.iter().map(|place| (place.rank, place.player_id)).collect();
        assert_eq!(order, [(1, 5), (2, 3), (3, 4), (4, 6), (5, 2)]);
    }

    #[test]
    fn no_boards_make_no_places() {
        assert_eq!(merged(&[], 3), []);
    }
}
