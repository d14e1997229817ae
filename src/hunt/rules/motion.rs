//! Moving and turning.
//!
//! Speed is an allowance: it grows with the shard's time up to a burst, and moves use it up. So a
//! late record, or two in the same millisecond, cost a player nothing, and nobody exceeds the speed
//! for longer than a burst.

use crate::hunt::actor::{Body, Compass};
use crate::hunt::change::Change;
use crate::hunt::refusal::{Effect, Refusal};
use crate::hunt::rules::Rules;
use crate::hunt::walk::{HEADINGS, Walk, distance_cm, square_cm};
use crate::hunt::{EventOutput, Shard};

/// The growth of an actor's allowance.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowance {
    /// Thousandths of a cm per millisecond.
    per_ms: u64,
    allowance_max: u32,
}

impl Allowance {
    /// Returns the growth without and with haste.
    pub(crate) fn both(rules: &Rules) -> [Allowance; 2] {
        [100, rules.effects[Effect::Haste as usize].percent].map(|percent| Allowance {
            per_ms: u64::from(rules.world.speed_cm_per_s_max) * u64::from(percent) / 100,
            allowance_max: rules.world.allowance_max(percent),
        })
    }
}

impl Shard {
    #[inline]
    pub(crate) fn on_move(
        &mut self,
        row: u32,
        body: &mut Body,
        x: i32,
        y: i32,
        out: &mut EventOutput,
    ) -> Result<(), Refusal> {
        let tile = self.game.tiles.at(x, y).ok_or(Refusal::OffMap)?;
        self.grow_allowance(body, self.clock.now_ms());
        let (way_x, way_y) = (x - body.x(), y - body.y());
        // A move that is far too fast is detected without a square root.
        let reach_cm = u64::from(body.allowance() / 1000);
        if square_cm(way_x, way_y) > reach_cm * reach_cm {
            return Err(Refusal::TooFast);
        }
        let cost = distance_cm(way_x, way_y) * 1000;
        let from = self.game.tiles.under(body.x(), body.y());
        if tile != from {
            self.change_tile(row, (from, tile), (body.x(), body.y()), (way_x, way_y))?;
        }
        body.set_allowance(body.allowance() - cost);
        body.stand_at(x, y);
        out.push(body.player_id, Change::Moved { tile, x, y });
        self.emit_hint(body, out);
        Ok(())
    }

    #[inline(never)]
    fn change_tile(
        &mut self,
        row: u32,
        (from, to): (u32, u32),
        at: (i32, i32),
        way: (i32, i32),
    ) -> Result<(), Refusal> {
        self.check_way(at, way)?;
        self.check_free(to)?;
        self.game.tiles.exit(from, row);
        self.game.tiles.enter(to, row);
        Ok(())
    }

    /// Publishes the path hint of an actor with a compass, if it differs from the last one.
    #[inline]
    pub(crate) fn emit_hint(&self, body: &mut Body, out: &mut EventOutput) {
        if body.has(Effect::Compass) {
            *body = self.emit_hint_unless(body.compass(), *body, out);
        }
    }

    /// Publishes the path hint for an actor's tile, unless it equals the last one. Returns the
    /// resulting body: it has its own copy, so that a step keeps its body in registers.
    #[inline(never)]
    pub(crate) fn emit_hint_unless(
        &self,
        last: Compass,
        mut body: Body,
        out: &mut EventOutput,
    ) -> Body {
        let tile = self.game.tiles.under(body.x(), body.y());
        let Some((slot, hint, distance)) = self.hint(tile) else { return body };
        let hunt = self.game.hunts.hunt(slot).hunt;
        let compass = Compass { hunt, hint: hint as u8, distance };
        if compass != last {
            body.set_compass(compass);
            let distance_tiles = distance.into();
            out.push(body.player_id, Change::PathHint { hint, hunt, distance_tiles });
        }
        body
    }

    /// Lets the allowance grow up to this time, at the actor's pace until then. Must be called
    /// before the pace changes.
    pub(crate) fn grow_allowance(&self, body: &mut Body, at_ms: u64) {
        let pace = &self.game.paces[usize::from(body.has(Effect::Haste))];
        let elapsed_ms = at_ms.saturating_sub(body.allowance_at_ms);
        let grown = elapsed_ms.saturating_mul(pace.per_ms).saturating_add(body.allowance().into());
        body.set_allowance(grown.min(pace.allowance_max.into()) as u32);
        body.allowance_at_ms = body.allowance_at_ms.max(at_ms);
    }

    fn check_way(&self, at: (i32, i32), way: (i32, i32)) -> Result<(), Refusal> {
        if self.rules.world.walls.is_empty() {
            return Ok(());
        }
        let mut way = Walk::new(&self.game.tiles, at.0, at.1, way.0, way.1).skip(1);
        if way.any(|tile| self.game.tiles.is_wall(tile)) { Err(Refusal::Wall) } else { Ok(()) }
    }
}

#[inline]
pub(crate) fn on_rotate(
    body: &mut Body,
    heading: u16,
    out: &mut EventOutput,
) -> Result<(), Refusal> {
    if heading >= HEADINGS {
        return Err(Refusal::HeadingOutOfRange);
    }
    body.set_heading(heading);
    out.push(body.player_id, Change::Rotated { heading });
    Ok(())
}
