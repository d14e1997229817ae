//! Moving.
//!
//! Speed is an allowance: it grows with the shard's time up to a burst, and a move uses it up. So a
//! late record, or two at the same millisecond, cost a player nothing, and nobody is faster than
//! the rules for longer than a burst.

use crate::engine::actor::Body;
use crate::engine::change::Change;
use crate::engine::refusal::{Effect, Refusal};
use crate::engine::walk::{Walk, distance_cm};
use crate::engine::{Shard, Tell};

impl Shard {
    pub(crate) fn on_move(
        &mut self,
        row: u32,
        body: &mut Body,
        x: i32,
        y: i32,
        tell: &mut Tell,
    ) -> Result<(), Refusal> {
        let tile = self.tiles.at(x, y).ok_or(Refusal::OffMap)?;
        self.grow_allowance(body);
        let (way_x, way_y) = (x - body.x, y - body.y);
        let cost = u64::from(distance_cm(way_x, way_y)) * 1000;
        if cost > u64::from(body.allowance) {
            return Err(Refusal::TooFast);
        }
        let from = self.tiles.at(body.x, body.y).expect("an actor stands on the map");
        if tile != from {
            self.check_way(body, way_x, way_y)?;
            self.check_free(tile)?;
            self.tiles.exit(from, row);
            self.tiles.enter(tile, row);
        }
        body.allowance -= cost as u32;
        (body.x, body.y) = (x, y);
        tell.push(body.player_id, Change::Moved { tile, x, y });
        if tile != from && body.has(Effect::Compass) {
            let told = (body.hint_slot, body.hint, body.hint_distance);
            let hint = self.read_compass(body, tile);
            if told != (body.hint_slot, body.hint, body.hint_distance) {
                hint.into_iter().for_each(|hint| tell.push(body.player_id, hint));
            }
        }
        Ok(())
    }

    /// Where the compass of an actor on this tile points; the actor keeps it in mind.
    pub(crate) fn read_compass(&self, body: &mut Body, tile: u32) -> Option<Change> {
        let (slot, hint, distance) = self.hint(tile)?;
        (body.hint_slot, body.hint, body.hint_distance) = (slot as u8, hint as u8, distance);
        let hunt = self.hunts.hunt(slot).hunt;
        Some(Change::PathHint { hint, hunt, distance_tiles: distance.into() })
    }

    fn grow_allowance(&self, body: &mut Body) {
        let world = &self.rules.world;
        let percent = match body.has(Effect::Haste) {
            true => self.rules.effects[Effect::Haste as usize].percent,
            false => 100,
        };
        let elapsed_ms = self.clock.now_ms() - body.allowance_at_ms;
        let per_ms = u64::from(world.speed_cm_per_s_max) * u64::from(percent) / 100;
        let grown = elapsed_ms.saturating_mul(per_ms).saturating_add(body.allowance.into());
        body.allowance = grown.min(world.allowance_max(percent).into()) as u32;
        body.allowance_at_ms = self.clock.now_ms();
    }

    fn check_way(&self, body: &Body, way_x: i32, way_y: i32) -> Result<(), Refusal> {
        if self.rules.world.walls.is_empty() {
            return Ok(());
        }
        let mut way = Walk::new(&self.tiles, body.x, body.y, way_x, way_y).skip(1);
        if way.any(|tile| self.tiles.is_wall(tile)) { Err(Refusal::Wall) } else { Ok(()) }
    }
}
