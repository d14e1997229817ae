//! Shooting.
//!
//! A shot flies in a straight line until a wall, the map's edge or the weapon's range ends it. On
//! the first tile where an actor is close enough to the line, it hits the actor nearest along the
//! line; among equally near ones, the lowest player id. Downed actors are not hit. Shots do not
//! cross zones.

use crate::hunt::actor::Body;
use crate::hunt::change::Change;
use crate::hunt::refusal::{Effect, Refusal, ScoreCause};
use crate::hunt::rules::Weapon;
use crate::hunt::walk::{HEADINGS, Walk, along, distance_cm, square_cm};
use crate::hunt::{EventOutput, Shard};
use crate::kit::zone::NO_ROW;

/// Tiles with walls or actors that a shot processes together.
const OBSTACLES_AHEAD: usize = 8;

/// The number of no tile.
const NO_TILE: u32 = u32::MAX;

/// The end of a shot.
struct ShotEnd {
    distance_cm: u32,
    target: Option<u32>,
}

impl Shard {
    pub(crate) fn on_shoot(
        &mut self,
        row: u32,
        body: &mut Body,
        weapon: u8,
        heading: Option<u16>,
        out: &mut EventOutput,
    ) -> Result<(), Refusal> {
        let known = self.rules.weapons.get(usize::from(weapon));
        let rules = *known.ok_or(Refusal::UnknownWeapon)?;
        let heading = heading.unwrap_or(body.heading());
        if heading >= HEADINGS {
            return Err(Refusal::HeadingOutOfRange);
        }
        if body.ready_at_ms > self.clock.now_ms() {
            return Err(Refusal::Reloading);
        }
        body.ready_at_ms = self.clock.now_ms() + u64::from(rules.reload_ms);
        body.set_heading(heading);
        let ShotEnd { distance_cm, target } = self.fly(row, body, &rules, heading);
        let target_id = target.map(|target| self.game.actors.body(target).player_id);
        let shot = Change::Shot { weapon, heading, distance_cm, target: target_id };
        out.push(body.player_id, shot);
        if let Some(target) = target {
            self.hit(row, target, weapon, &rules, out);
        }
        Ok(())
    }

    fn fly(&self, row: u32, body: &Body, weapon: &Weapon, heading: u16) -> ShotEnd {
        let (way_x, way_y) = along(heading, weapon.range_cm);
        let walk = Walk::new(&self.game.tiles, body.x(), body.y(), way_x, way_y);
        let mut obstacles = walk.filter(|tile| !self.game.tiles.is_clear(*tile)).peekable();
        while obstacles.peek().is_some() {
            let mut few = [NO_TILE; OBSTACLES_AHEAD];
            few.iter_mut().zip(&mut obstacles).for_each(|(place, tile)| *place = tile);
            if let Some(flight) = self.first_hit(row, body, weapon, (way_x, way_y), &few) {
                return flight;
            }
        }
        ShotEnd { distance_cm: weapon.range_cm, target: None }
    }

    /// Returns the end of a shot that passes these tiles, if it ends on one of them.
    fn first_hit(
        &self,
        row: u32,
        body: &Body,
        weapon: &Weapon,
        (way_x, way_y): (i32, i32),
        tiles: &[u32; OBSTACLES_AHEAD],
    ) -> Option<ShotEnd> {
        let tiles = tiles.iter().copied().take_while(|tile| *tile != NO_TILE);
        // The actors on these tiles are far apart in memory: prefetching them together overlaps the
        // waits.
        let firsts = tiles.clone().filter_map(|tile| self.game.tiles.first_actor(tile));
        let mut actors = [NO_ROW; OBSTACLES_AHEAD];
        let mut count = 0;
        for (place, first) in actors.iter_mut().zip(firsts) {
            self.game.actors.prefetch(first);
            *place = first;
            count += 1;
        }
        for first in &actors[..count] {
            if let Some(second) = self.game.tiles.next_actor(*first) {
                self.game.actors.prefetch(second);
            }
        }
        for tile in tiles {
            if self.game.tiles.is_wall(tile) {
                let (x, y) = self.game.tiles.middle(tile);
                let distance_cm = distance_cm(x - body.x(), y - body.y()).min(weapon.range_cm);
                return Some(ShotEnd { distance_cm, target: None });
            }
            let hits =
                self.game.tiles.actors(tile).filter(|actor| *actor != row).filter_map(|actor| {
                    let other = self.game.actors.body(actor);
                    let way = way_along(body, other, (way_x, way_y), weapon)?;
                    Some((way, other.player_id, actor))
                });
            if let Some((_, _, target)) = hits.min() {
                let other = self.game.actors.body(target);
                let distance_cm = distance_cm(other.x() - body.x(), other.y() - body.y());
                return Some(ShotEnd { distance_cm, target: Some(target) });
            }
        }
        None
    }

    fn hit(&mut self, row: u32, target: u32, weapon: u8, rules: &Weapon, out: &mut EventOutput) {
        let mut other = *self.game.actors.body(target);
        let by = self.game.actors.body(row).player_id;
        let shielded = other.has(Effect::Shield);
        let shield = shielded.then(|| self.strength(self.game.actors.pack(target), Effect::Shield));
        let percent = shield.flatten().unwrap_or(100);
        let damage = (u32::from(rules.damage) * percent / 100).min(other.health().into()) as u16;
        other.set_health(other.health() - damage);
        let health = other.health().into();
        out.push(other.player_id, Change::Damaged { weapon, damage, health, by });
        let downed = other.downed();
        if downed {
            let respawn_ms = self.rules.actors.respawn_ms;
            let mut pack = *self.game.actors.pack(target);
            pack.respawn_at_ms = self.clock.now_ms() + u64::from(respawn_ms);
            out.push(other.player_id, Change::Downed { weapon, respawn_ms, by });
            self.game.actors.write_pack(target, pack);
        }
        self.game.actors.write_body(target, other);
        if downed {
            let mut shooter = *self.game.actors.pack(row);
            let points = self.rules.actors.downed_points.into();
            self.add_score(&mut shooter, ScoreCause::Downed, points, out);
            self.game.actors.write_pack(row, shooter);
        }
    }
}

/// Returns another actor's distance along the line, in cm times the line's length; `None` if the
/// shot misses it.
fn way_along(body: &Body, other: &Body, way: (i32, i32), weapon: &Weapon) -> Option<i64> {
    if other.downed() {
        return None;
    }
    let (x, y) = (i64::from(other.x() - body.x()), i64::from(other.y() - body.y()));
    let (way_x, way_y) = (i64::from(way.0), i64::from(way.1));
    let along = x * way_x + y * way_y;
    let beside = (x * way_y - y * way_x).abs();
    let ahead = (0..=square_cm(way.0, way.1) as i64).contains(&along);
    let close = beside <= i64::from(weapon.radius_cm) * i64::from(weapon.range_cm);
    (ahead && close).then_some(along)
}
