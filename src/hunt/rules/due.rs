//! Ends what is due by time: effects, and the wait for a respawn.
//!
//! Nothing happens between events. Before an event is applied, the engine ends what was due before
//! it, for a bounded number of actors: the earliest first, and among equal times the lowest player
//! id.

use crate::hunt::change::Change;
use crate::hunt::event::Action;
use crate::hunt::refusal::Effect;
use crate::hunt::{EventOutput, Shard};
use crate::kit::event::{GameAction, PlainEvent};
use crate::kit::mix;

/// Limit of the actors that one event settles. The others wait for the next event.
pub(super) const DUE_ACTORS_PER_EVENT: usize = 4;

/// Tiles that a respawn tries before the actor respawns where it lies.
pub(super) const RESPAWN_TRIES: u64 = 16;

impl Shard {
    /// Returns whether anything is due: for any actor, or the end of a hunt.
    #[inline]
    pub(crate) fn is_anything_due(&self) -> bool {
        let now_ms = self.clock.now_ms();
        self.game.actors.is_due(now_ms) || self.game.hunts.due_ms() <= now_ms
    }

    /// Ends what is due before an event.
    #[inline(never)]
    pub(crate) fn end_due(&mut self, event: &PlainEvent, out: &mut EventOutput) {
        let now_ms = self.clock.now_ms();
        for _ in 0..DUE_ACTORS_PER_EVENT {
            if let Some(row) = self.game.actors.first_due(now_ms) {
                self.settle(row, out);
            }
        }
        self.end_due_hunts(out);
        if self.game.actors.is_due(now_ms) {
            self.settle_own(event, out);
        }
    }

    /// Ends what is due for the event's own player, unless the event is old.
    fn settle_own(&mut self, event: &PlainEvent, out: &mut EventOutput) {
        let is_own = Action::subject(&event.action).is_player();
        let row = self.game.actors.find(event.player_id).filter(|_| is_own);
        if let Some(row) = row
            && event.seq > self.game.actors.body(row).seq
        {
            self.settle(row, out);
        }
    }

    /// Ends what is due for one actor.
    fn settle(&mut self, row: u32, out: &mut EventOutput) {
        let now_ms = self.clock.now_ms();
        let (mut body, mut pack) = (*self.game.actors.body(row), *self.game.actors.pack(row));
        if pack.next_due_ms().is_none_or(|at_ms| at_ms > now_ms) {
            return;
        }
        for effect in Effect::ALL {
            let until_ms = &mut pack.effects_until_ms[*effect as usize];
            if *until_ms != 0 && *until_ms <= now_ms {
                self.end_effect(&mut body, *effect, std::mem::take(until_ms));
                out.push(body.player_id, Change::EffectEnded { effect: *effect });
            }
        }
        if pack.respawn_at_ms != 0 && pack.respawn_at_ms <= now_ms {
            pack.respawn_at_ms = 0;
            body.set_health(self.rules.actors.health);
            let (tile, x, y) = self.respawn_place(row);
            let from = self.game.tiles.at(body.x(), body.y()).expect("an actor stands on the map");
            self.game.tiles.exit(from, row);
            self.game.tiles.enter(tile, row);
            body.stand_at(x, y);
            let health = body.health();
            out.push(body.player_id, Change::Respawned { health, tile, x, y });
            self.emit_hint(&mut body, out);
        }
        self.game.actors.write_body(row, body);
        self.game.actors.write_pack(row, pack);
    }

    /// Returns a random free tile; the actor's own tile if none is found soon.
    fn respawn_place(&self, row: u32) -> (u32, i32, i32) {
        let body = self.game.actors.body(row);
        let ordinal = self.clock.records();
        for attempt in 0..RESPAWN_TRIES {
            let seed = body.player_id.wrapping_add(attempt);
            let chance = mix::chance(seed, self.partition, ordinal);
            let tile = mix::below(chance, self.game.tiles.count().into()) as u32;
            if self.check_free(tile).is_ok() {
                let (x, y) = self.game.tiles.middle(tile);
                return (tile, x, y);
            }
        }
        let here = self.game.tiles.at(body.x(), body.y()).expect("an actor stands on the map");
        (here, body.x(), body.y())
    }
}
