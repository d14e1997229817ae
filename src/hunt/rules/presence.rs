//! Entering and leaving a zone.

use crate::hunt::actor::{Body, Pack};
use crate::hunt::change::Change;
use crate::hunt::event::{EFFECT_SLOTS, Handoff, ItemStack};
use crate::hunt::handoff::HandoffOut;
use crate::hunt::refusal::{Effect, Refusal, ScoreCause};
use crate::hunt::rules::inventory;
use crate::hunt::walk::square_cm;
use crate::hunt::{EventOutput, Outcome, Shard};
use crate::kit::tombstones::{HandoffId, Tombstone};

/// Side, in tiles, of the square in which an arrival looks for a free tile before it is sent back.
pub(super) const ARRIVAL_TILES_PER_SIDE: u32 = 8;

/// Upper limit of a player's first handoff number. The numbers start at the player's `seq` if
/// nothing else is known, so that a player who left the game and came back elsewhere does not reuse
/// a number. The limit leaves enough numbers.
const CROSSING_START_MAX: u64 = u32::MAX as u64 / 2;

impl Shard {
    pub(crate) fn on_join(
        &mut self,
        player_id: u64,
        seq: u64,
        x: i32,
        y: i32,
        out: &mut EventOutput,
    ) -> Result<(), Refusal> {
        if self.game.actors.count() == self.rules.actors.count_max {
            return Err(Refusal::ZoneFull);
        }
        let tile = self.game.tiles.at(x, y).ok_or(Refusal::OffMap)?;
        self.check_free(tile)?;
        let known = self.tombstones.take(player_id).unwrap_or_default();
        let start = seq.min(CROSSING_START_MAX) as u32;
        let known = Tombstone { seq, crossing_sent: known.crossing_sent.max(start), ..known };
        self.enter(player_id, known, (x, y), tile, out);
        out.push(player_id, Change::Joined { health: self.rules.actors.health, x, y });
        Ok(())
    }

    /// Adds an actor that carries nothing, on a tile that was checked.
    fn enter(
        &mut self,
        player_id: u64,
        known: Tombstone,
        (x, y): (i32, i32),
        tile: u32,
        out: &EventOutput,
    ) -> u32 {
        let mut body = Body::default();
        (body.player_id, body.seq) = (player_id, known.seq);
        body.stand_at(x, y);
        body.set_allowance(self.rules.world.allowance_max(100));
        body.allowance_at_ms = self.clock.now_ms();
        body.set_health(self.rules.actors.health);
        let pack = Pack {
            player_id,
            scored_ordinal: out.ordinal(),
            scored_at_ms: self.clock.now_ms(),
            crossing_sent: known.crossing_sent,
            accepted: known.accepted,
            ..Pack::default()
        };
        let row = self.game.actors.add(body, pack);
        self.game.tiles.enter(tile, row);
        row
    }

    pub(crate) fn check_free(&self, tile: u32) -> Result<(), Refusal> {
        if self.game.tiles.is_wall(tile) {
            return Err(Refusal::Wall);
        }
        if self.game.tiles.actors_on(tile) >= self.rules.actors.per_tile_max {
            return Err(Refusal::TileFull);
        }
        Ok(())
    }

    pub(crate) fn on_leave(
        &mut self,
        row: u32,
        body: Body,
        to_zone: Option<u16>,
        out: &mut EventOutput,
    ) -> Result<(), Refusal> {
        match to_zone {
            Some(zone) if zone == self.partition => return Err(Refusal::SameZone),
            // A downed player would be unhurt on the other side.
            Some(_) if body.downed() => return Err(Refusal::Downed),
            _ => {}
        }
        let pack = *self.game.actors.pack(row);
        let crossing_sent = match to_zone {
            Some(_) => pack.crossing_sent.max(pack.accepted.crossing).saturating_add(1),
            None => pack.crossing_sent,
        };
        let tile = self.game.tiles.at(body.x(), body.y()).expect("an actor stands on the map");
        self.game.tiles.exit(tile, row);
        self.game.actors.remove(row);
        self.tombstones.put(Tombstone {
            player_id: body.player_id,
            seq: body.seq,
            crossing_sent,
            accepted: pack.accepted,
        });
        out.push(body.player_id, Change::Left { to_zone, seq: body.seq });
        if let Some(to_zone) = to_zone {
            let (x, y) = self.opposite(body.x(), body.y());
            let handoff = self.handoff_of(&body, &pack, crossing_sent);
            out.handoff(body.player_id, &HandoffOut { to_zone, x, y, handoff });
        }
        Ok(())
    }

    fn handoff_of(&self, body: &Body, pack: &Pack, crossing: u32) -> Handoff {
        let now_ms = self.clock.now_ms();
        let left_ms = pack.effects_until_ms.map(|until_ms| until_ms.saturating_sub(now_ms) as u32);
        Handoff {
            from_zone: self.partition,
            crossing,
            score: pack.score,
            last_seq: body.seq,
            items: pack.items,
            effects: std::array::from_fn(|slot| if left_ms[slot] > 0 { slot as u8 + 1 } else { 0 }),
            effects_left_ms: left_ms,
        }
    }

    /// Zones are adjacent: a player who leaves over the nearest edge enters at the opposite one.
    fn opposite(&self, x: i32, y: i32) -> (i32, i32) {
        let far = self.game.tiles.side_cm() - 1;
        let nearest = x.min(y).min(far - x).min(far - y);
        if nearest == x.min(far - x) { (far - x, y) } else { (x, far - y) }
    }

    /// Lets a player arrive with what it carries. Each handoff is accepted once and never refused:
    /// its content has been removed from another zone, so it stays here or goes back.
    pub(crate) fn on_arrive(
        &mut self,
        player_id: u64,
        at: (i32, i32),
        handoff: &Handoff,
        out: &mut EventOutput,
    ) -> Result<Outcome, Refusal> {
        if player_id == 0 {
            return Err(Refusal::NoPlayer);
        }
        // A handoff that names this zone as its origin could only be sent back to this zone.
        if handoff.from_zone == self.partition {
            return Err(Refusal::SameZone);
        }
        let here = self.game.actors.find(player_id);
        let known = match here {
            Some(row) => self.known_of(row),
            None => self.tombstones.find(player_id).copied().unwrap_or_default(),
        };
        let accepted = HandoffId { seq: handoff.last_seq, crossing: handoff.crossing };
        if accepted <= known.accepted {
            return Ok(Outcome::NoOp);
        }
        let known = Tombstone {
            player_id,
            seq: known.seq.max(handoff.last_seq),
            crossing_sent: known.crossing_sent.max(handoff.crossing),
            accepted,
        };
        match (here, self.arrival_tile(at)) {
            // The player joined before the handoff arrived.
            (Some(row), _) => self.unpack(row, known, handoff, out),
            (None, Some((tile, x, y))) => {
                self.tombstones.take(player_id);
                let row = self.enter(player_id, known, (x, y), tile, out);
                let (from_zone, crossing) = (handoff.from_zone, handoff.crossing);
                out.push(player_id, Change::Arrived { from_zone, crossing, x, y });
                self.unpack(row, known, handoff, out);
            }
            (None, None) => self.send_back(known, at, handoff, out),
        }
        Ok(Outcome::Applied)
    }

    fn known_of(&self, row: u32) -> Tombstone {
        let (body, pack) = (self.game.actors.body(row), self.game.actors.pack(row));
        Tombstone {
            player_id: body.player_id,
            seq: body.seq,
            crossing_sent: pack.crossing_sent,
            accepted: pack.accepted,
        }
    }

    /// Returns the free tile at or nearest to an arrival's position, and the position on it.
    fn arrival_tile(&self, (x, y): (i32, i32)) -> Option<(u32, i32, i32)> {
        if self.game.actors.count() == self.rules.actors.count_max {
            return None;
        }
        let far = self.game.tiles.side_cm() - 1;
        let (x, y) = (x.clamp(0, far), y.clamp(0, far));
        let wanted = self.game.tiles.at(x, y).expect("clamped to the map");
        if self.check_free(wanted).is_ok() {
            return Some((wanted, x, y));
        }
        let free = self.game.tiles.square(wanted, ARRIVAL_TILES_PER_SIDE);
        let free = free.filter(|tile| self.check_free(*tile).is_ok());
        let places = free.map(|tile| (tile, self.game.tiles.middle(tile)));
        let (tile, (x, y)) = places.min_by_key(|(tile, (middle_x, middle_y))| {
            (square_cm(middle_x - x, middle_y - y), *tile)
        })?;
        Some((tile, x, y))
    }

    /// Adds the carried data to an actor.
    fn unpack(&mut self, row: u32, known: Tombstone, handoff: &Handoff, out: &mut EventOutput) {
        let (mut body, mut pack) = (*self.game.actors.body(row), *self.game.actors.pack(row));
        body.seq = known.seq;
        pack.crossing_sent = known.crossing_sent;
        pack.accepted = known.accepted;
        for stack in handoff.items.into_iter().filter(|stack| stack.count > 0) {
            self.put_items(&mut pack, stack, out);
        }
        for slot in 0..EFFECT_SLOTS {
            let left_ms = handoff.effects_left_ms[slot];
            let effect = handoff.effects[slot].checked_sub(1);
            if let Some(effect) = effect.and_then(Effect::from_code) {
                self.start_effect(&mut body, &mut pack, effect, left_ms, out);
            }
        }
        self.emit_hint(&mut body, out);
        self.game.actors.write_body(row, body);
        self.add_score(&mut pack, ScoreCause::Arrival, handoff.score, out);
        self.game.actors.write_pack(row, pack);
    }

    pub(crate) fn put_items(&self, pack: &mut Pack, stack: ItemStack, out: &mut EventOutput) {
        let stack_max = self.rules.item(stack.item).map_or(u8::MAX, |item| item.stack_max);
        let player_id = pack.player_id;
        let (held, lost) = inventory::put(&mut pack.items, stack, stack_max);
        let gained = u16::from(stack.count - lost);
        if gained > 0 {
            out.push(player_id, Change::ItemGained { item: stack.item, gained, held });
        }
        if lost > 0 {
            out.push(player_id, Change::ItemLost { item: stack.item, lost: lost.into() });
        }
    }

    /// Sends a player back to its origin with a new handoff, because there is no room.
    fn send_back(
        &mut self,
        known: Tombstone,
        at: (i32, i32),
        handoff: &Handoff,
        out: &mut EventOutput,
    ) {
        let crossing = known.crossing_sent.saturating_add(1);
        self.tombstones.put(Tombstone { crossing_sent: crossing, ..known });
        let far = self.game.tiles.side_cm() - 1;
        let (x, y) = self.opposite(at.0.clamp(0, far), at.1.clamp(0, far));
        let to_zone = handoff.from_zone;
        // It must be ordered after everything that left this zone before it.
        let (from_zone, last_seq) = (self.partition, known.seq);
        let handoff = Handoff { from_zone, crossing, last_seq, ..*handoff };
        out.handoff(known.player_id, &HandoffOut { to_zone, x, y, handoff });
    }
}
