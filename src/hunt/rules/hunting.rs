//! Hunts: their start, their end, and the work in between, which is spread over events.

use crate::hunt::change::Change;
use crate::hunt::hunts::{HUNTS_MAX, Hunt, HuntPhase, Treasure};
use crate::hunt::refusal::{Hint, HuntEndCause, Refusal, ScoreCause};
use crate::hunt::tiles::TreasureKey;
use crate::hunt::{EventOutput, Outcome, Shard};
use crate::kit::mix;

/// Tiles that laying a treasure tries before the treasure is omitted.
pub(super) const LAYING_TRIES: u64 = 32;

/// Limit of one event's updates about hunts: treasures laid, finishers.
pub(super) const HUNT_UPDATES_PER_EVENT: usize = 12;

/// Milliseconds of the zone's clock between two pieces of the path search. On a map of 65,536 tiles
/// the paths to two thousand treasures are found in some 4 s, those to a single one in up to 40 s.
pub(super) const PATH_PIECE_MS: u64 = 4;

/// Limit of the pieces of one event, if much time has passed since the previous event. A tick does
/// more, some 20 us: it comes once a second, and finds the paths of a quiet zone.
pub(super) const PATH_PIECES_PER_EVENT: u64 = 4;

/// Pieces of a tick; see [`PATH_PIECES_PER_EVENT`].
pub(super) const PATH_PIECES_PER_TICK: u64 = 64;

impl Shard {
    /// Starts a hunt. Hunt numbers only rise, so an event whose number is not above the highest is
    /// a repetition.
    pub(crate) fn on_hunt_start(
        &mut self,
        start: Hunt,
        duration_ms: u32,
        out: &mut EventOutput,
    ) -> Result<Outcome, Refusal> {
        if start.hunt <= self.game.hunts.last_hunt {
            return Ok(Outcome::NoOp);
        }
        self.game.hunts.last_hunt = start.hunt;
        if !(1..=self.rules.hunts.treasures_max).contains(&start.treasures) {
            return Err(Refusal::TreasuresOutOfRange);
        }
        if !(1..=self.rules.hunts.duration_ms_max).contains(&duration_ms) {
            return Err(Refusal::DurationOutOfRange);
        }
        let free = (0..HUNTS_MAX).find(|slot| self.game.hunts.hunt(*slot).phase == HuntPhase::Free);
        let slot = free.ok_or(Refusal::HuntsFull)?;
        let started_ms = self.clock.now_ms();
        let ends_ms = started_ms + u64::from(duration_ms);
        let begun = Hunt { phase: HuntPhase::Laying, started_ms, ends_ms, ..start };
        self.game.hunts.write(slot, begun);
        let Hunt { hunt, treasures, .. } = begun;
        out.push(0, Change::HuntStarted { hunt, treasures, duration_ms });
        Ok(Outcome::Applied)
    }

    pub(crate) fn on_hunt_end(
        &mut self,
        hunt: u32,
        out: &mut EventOutput,
    ) -> Result<Outcome, Refusal> {
        match self.game.hunts.find(hunt) {
            Some(slot) => {
                self.close(slot, HuntEndCause::CalledOff, out);
                Ok(Outcome::Applied)
            }
            None if hunt <= self.game.hunts.last_hunt => Ok(Outcome::NoOp),
            None => Err(Refusal::UnknownHunt),
        }
    }

    /// Ends the hunts whose time is over, if there are any.
    pub(crate) fn end_due_hunts(&mut self, out: &mut EventOutput) {
        for slot in 0..HUNTS_MAX {
            let hunt = self.game.hunts.hunt(slot);
            if hunt.running() && hunt.ends_ms <= self.clock.now_ms() {
                self.close(slot, HuntEndCause::TimeUp, out);
            }
        }
    }

    pub(crate) fn close(&mut self, slot: usize, cause: HuntEndCause, out: &mut EventOutput) {
        let hunt = *self.game.hunts.hunt(slot);
        let elapsed_ms = self.elapsed_ms(&hunt);
        let Hunt { hunt: number, opened, finishers, .. } = hunt;
        let finishers = finishers.into();
        out.push(0, Change::HuntEnded { cause, opened, hunt: number, finishers, elapsed_ms });
        self.game.hunts.stop(slot);
        self.game
            .hunts
            .write(slot, Hunt { phase: HuntPhase::Closing, swept: 0, announced: 0, ..hunt });
    }

    pub(crate) fn elapsed_ms(&self, hunt: &Hunt) -> u32 {
        u32::try_from(self.clock.now_ms() - hunt.started_ms).unwrap_or(u32::MAX)
    }

    /// Does a bounded piece of the hunts' remaining work. Slots take turns at being first, so that
    /// none waits for the end of another.
    #[inline]
    pub(crate) fn work_on_hunts(&mut self, tick: bool, out: &mut EventOutput) {
        if self.game.hunts.any_busy() {
            self.work_on_busy_hunts(out);
        }
        if self.game.hunts.any_searching() {
            self.search_paths(tick);
        }
    }

    #[inline(never)]
    fn work_on_busy_hunts(&mut self, out: &mut EventOutput) {
        let mut updates_left = HUNT_UPDATES_PER_EVENT;
        for slot in self.game.hunts.busy_from(self.clock.records() as usize % HUNTS_MAX) {
            match self.game.hunts.hunt(slot).phase {
                HuntPhase::Free | HuntPhase::Open => unreachable!("such a slot is not busy"),
                HuntPhase::Laying => self.lay(slot, &mut updates_left, out),
                HuntPhase::Closing => {
                    self.emit_finishers(slot, &mut updates_left, out);
                    self.sweep(slot);
                }
            }
        }
    }

    /// Searches paths as time passes, independently of the number of events.
    #[inline]
    fn search_paths(&mut self, tick: bool) {
        let now_ms = self.clock.now_ms();
        let due =
            ((now_ms - self.game.hunts.searched_ms) / PATH_PIECE_MS).min(PATH_PIECES_PER_EVENT);
        let pieces = if tick { PATH_PIECES_PER_TICK } else { due };
        if pieces == 0 {
            return;
        }
        self.search_pieces(now_ms, pieces);
    }

    #[inline(never)]
    fn search_pieces(&mut self, now_ms: u64, pieces: u64) {
        self.game.hunts.searched_ms = now_ms;
        // Not based on the number of records, which may grow by the number of slots from piece to
        // piece.
        let first = now_ms / PATH_PIECE_MS;
        for piece in first..first + pieces {
            match self.game.hunts.searching_from(piece as usize % HUNTS_MAX).next() {
                Some(slot) => self.game.hunts.search(slot, &self.game.tiles),
                None => return,
            }
        }
    }

    /// Lays treasures according to the hunt's seed. A treasure without a free tile after some tries
    /// is omitted.
    fn lay(&mut self, slot: usize, updates_left: &mut usize, out: &mut EventOutput) {
        let mut hunt = *self.game.hunts.hunt(slot);
        while hunt.tried < hunt.treasures && *updates_left > 0 {
            *updates_left -= 1;
            let treasure = hunt.tried;
            hunt.tried += 1;
            let Some(tile) = self.free_tile(&hunt, treasure) else {
                self.game.hunts.write_treasure(slot, treasure, Treasure::Nowhere);
                continue;
            };
            hunt.laid += 1;
            self.game.hunts.write_treasure(slot, treasure, Treasure::Lies(tile));
            self.game.tiles.lay(tile, Some(TreasureKey { slot: slot as u8, number: treasure }));
            let (x, y) = self.game.tiles.middle(tile);
            out.push(0, Change::TreasureLaid { treasure, hunt: hunt.hunt, x, y });
        }
        if hunt.tried == hunt.treasures {
            hunt.phase = HuntPhase::Open;
            self.game.hunts.seek(slot);
        }
        self.game.hunts.write(slot, hunt);
        if hunt.all_found() {
            self.close(slot, HuntEndCause::AllFound, out);
        }
    }

    fn free_tile(&self, hunt: &Hunt, treasure: u16) -> Option<u32> {
        (0..LAYING_TRIES).find_map(|attempt| {
            let ordinal = u64::from(treasure) << 32 | attempt;
            let chance = mix::chance(hunt.seed, self.partition, ordinal);
            let tile = mix::below(chance, self.game.tiles.count().into()) as u32;
            let free = !self.game.tiles.is_wall(tile) && self.game.tiles.treasure(tile).is_none();
            free.then_some(tile)
        })
    }

    /// Returns the hint for a tile, about the running hunt with the lowest number.
    pub(crate) fn hint(&self, tile: u32) -> Option<(usize, Hint, u16)> {
        let running = (0..HUNTS_MAX).filter(|slot| self.game.hunts.hunt(*slot).running());
        let slot = running.min_by_key(|slot| self.game.hunts.hunt(*slot).hunt)?;
        if self.game.hunts.hunt(slot).phase == HuntPhase::Laying {
            return Some((slot, Hint::Stale, 0));
        }
        let lies =
            |tile| self.game.tiles.treasure(tile).is_some_and(|key| usize::from(key.slot) == slot);
        let (hint, distance) = self.game.hunts.paths[slot].hint(&self.game.tiles, tile, lies);
        Some((slot, hint, distance))
    }

    /// Publishes finishers in the order of their ranks and pays the prizes to those who are
    /// present.
    fn emit_finishers(&mut self, slot: usize, updates_left: &mut usize, out: &mut EventOutput) {
        let mut hunt = *self.game.hunts.hunt(slot);
        if hunt.announced == hunt.finishers {
            return;
        }
        while hunt.announced < hunt.finishers && *updates_left >= 2 {
            let finisher = self.game.hunts.finisher(slot, hunt.announced);
            let prize =
                self.rules.hunts.prizes.get(usize::from(hunt.announced)).copied().unwrap_or(0);
            self.game.hunts.remove_finisher(slot, hunt.announced);
            hunt.announced += 1;
            *updates_left -= 1;
            out.push(
                finisher.player_id,
                Change::Finished {
                    found: finisher.found,
                    hunt: hunt.hunt,
                    rank: hunt.announced.into(),
                    elapsed_ms: finisher.elapsed_ms,
                },
            );
            let here = self.game.actors.find(finisher.player_id).filter(|_| prize > 0);
            if let Some(row) = here {
                *updates_left -= 1;
                let mut pack = *self.game.actors.pack(row);
                self.add_score(&mut pack, ScoreCause::Prize, prize.into(), out);
                self.game.actors.write_pack(row, pack);
            }
        }
        self.game.hunts.write(slot, hunt);
    }

    /// Removes unopened treasures; the slot is free once everything is published and removed.
    fn sweep(&mut self, slot: usize) {
        let mut hunt = *self.game.hunts.hunt(slot);
        for _ in 0..HUNT_UPDATES_PER_EVENT {
            if hunt.swept == hunt.tried {
                break;
            }
            if let Treasure::Lies(tile) = self.game.hunts.treasure(slot, hunt.swept) {
                self.game.tiles.lay(tile, None);
            }
            self.game.hunts.write_treasure(slot, hunt.swept, Treasure::Nowhere);
            hunt.swept += 1;
        }
        let done = hunt.swept == hunt.tried && hunt.announced == hunt.finishers;
        let after = if done { Hunt::default() } else { hunt };
        self.game.hunts.write(slot, after);
    }
}
