//! Opening treasures.

use crate::hunt::actor::{Body, HuntProgress, Pack};
use crate::hunt::change::Change;
use crate::hunt::event::ItemStack;
use crate::hunt::hunts::{Finisher, Hunt, HuntPhase, Treasure};
use crate::hunt::refusal::{Effect, HuntEndCause, Refusal, ScoreCause};
use crate::hunt::tiles::TreasureKey;
use crate::hunt::walk::square_cm;
use crate::hunt::{EventOutput, Shard};
use crate::kit::mix;

impl Shard {
    /// Opens the nearest treasure in reach; among equally near ones, the one on the lowest tile.
    pub(crate) fn on_loot(
        &mut self,
        row: u32,
        body: &Body,
        hunt: Option<u32>,
        out: &mut EventOutput,
    ) -> Result<(), Refusal> {
        let wanted = match hunt {
            Some(hunt) => Some(self.game.hunts.find(hunt).ok_or(Refusal::UnknownHunt)?),
            None => None,
        };
        let (tile, key) = self.treasure_in_reach(body, wanted).ok_or(Refusal::NothingInReach)?;
        let slot = usize::from(key.slot);
        self.game.tiles.lay(tile, None);
        self.game.hunts.write_treasure(slot, key.number, Treasure::Opened(tile));
        let mut hunt = *self.game.hunts.hunt(slot);
        if hunt.phase == HuntPhase::Open {
            self.game.hunts.seek(slot);
        }
        hunt.opened += 1;
        let mut pack = *self.game.actors.pack(row);
        self.take_loot(&mut pack, &hunt, key.number, out);
        self.count_find(slot, &mut hunt, &mut pack);
        self.game.actors.write_pack(row, pack);
        self.game.hunts.write(slot, hunt);
        if hunt.all_found() {
            self.close(slot, HuntEndCause::AllFound, out);
        }
        Ok(())
    }

    fn treasure_in_reach(&self, body: &Body, wanted: Option<usize>) -> Option<(u32, TreasureKey)> {
        let reach = self.rules.hunts.reach_cm as i32;
        let treasures =
            self.game.tiles.treasures_around(body.x(), body.y(), reach).filter_map(|tile| {
                let key = self.game.tiles.treasure(tile)?;
                let slot = usize::from(key.slot);
                let running =
                    self.game.hunts.hunt(slot).running() && wanted.is_none_or(|only| only == slot);
                let (x, y) = self.game.tiles.middle(tile);
                let square = square_cm(x - body.x(), y - body.y());
                (running && square <= square_cm(reach, 0)).then_some((square, tile, key))
            });
        let nearest = treasures.min_by_key(|(square, tile, _)| (*square, *tile));
        nearest.map(|(_, tile, key)| (tile, key))
    }

    /// The content of a treasure is a function of the hunt's seed, the shard and the event's
    /// ordinal.
    fn take_loot(&self, pack: &mut Pack, hunt: &Hunt, treasure: u16, out: &mut EventOutput) {
        let chance = mix::chance(hunt.seed, self.partition, self.clock.records());
        let weights = self.rules.points.iter().map(|row| row.weight);
        let worth = self.rules.points[roll(chance, weights)].points;
        let raised = self.strength(pack, Effect::DoubleLoot);
        let points = u64::from(worth) * u64::from(raised.unwrap_or(100)) / 100;
        let points = u32::try_from(points).unwrap_or(u32::MAX);
        out.push(
            pack.player_id,
            Change::Looted {
                doubled: raised.is_some(),
                treasure,
                hunt: hunt.hunt,
                points,
                elapsed_ms: self.elapsed_ms(hunt),
            },
        );
        self.add_score(pack, ScoreCause::Loot, points.into(), out);
        let weights = self.rules.finds.iter().map(|find| find.weight);
        let item = self.rules.finds[roll(mix::chance(chance, 0, 0), weights)].item;
        if item != 0 {
            self.put_items(pack, ItemStack { item, count: 1 }, out);
        }
    }

    fn count_find(&mut self, slot: usize, hunt: &mut Hunt, pack: &mut Pack) {
        let progress = &mut pack.progress[slot];
        if progress.hunt != hunt.hunt {
            *progress = HuntProgress { hunt: hunt.hunt, found: 0 };
        }
        progress.found += 1;
        let found = progress.found;
        match self.game.hunts.rank_of(slot, pack.player_id) {
            Some(rank) => self.game.hunts.count_found(slot, rank),
            None if found < self.rules.hunts.finish_treasures => {}
            None => {
                let elapsed_ms = self.elapsed_ms(hunt);
                let finisher = Finisher { player_id: pack.player_id, elapsed_ms, found };
                self.game.hunts.add_finisher(slot, hunt.finishers, finisher);
                hunt.finishers += 1;
            }
        }
    }
}

/// Returns the row of a weighted table that a chance selects.
fn roll(chance: u64, weights: impl Iterator<Item = u32> + Clone) -> usize {
    let sum = weights.clone().map(u64::from).sum();
    let mut left = mix::below(chance, sum);
    for (row, weight) in weights.map(u64::from).enumerate() {
        if left < weight {
            return row;
        }
        left -= weight;
    }
    unreachable!("a chance falls below the sum of the weights")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chance_falls_on_rows_as_their_weights_say() {
        let weights = [50_u32, 30, 0, 15, 5];
        // The chances are evenly spaced: one in the middle of each hundredth.
        let row = |hundredth: u64| {
            roll(u64::MAX / 100 * hundredth + u64::MAX / 200, weights.iter().copied())
        };
        let rows: Vec<usize> = (0..100).map(row).collect();
        let expected = [0].repeat(50).into_iter().chain([1].repeat(30));
        let expected = expected.chain([3].repeat(15)).chain([4].repeat(5));
        assert_eq!(rows, expected.collect::<Vec<_>>());
        assert_eq!(roll(0, weights.iter().copied()), 0);
        assert_eq!(roll(u64::MAX, weights.iter().copied()), 4);
    }
}
