//! Events to updates: the game, a pure and deterministic state machine.
//!
//! No I/O, clock, randomness, float, lock or thread; no order that a memory layout decides. The
//! same events make the same updates and the same digest, whatever was batched or restarted.
#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods, clippy::disallowed_types, clippy::float_arithmetic)]

pub mod event;

pub mod update;

pub mod change;

pub mod refusal;

pub mod rules;

pub mod clock;

pub mod actor;

pub mod actors;

pub mod crossing;

pub mod leaderboard;

pub mod hunt;

pub mod path;

pub mod tiles;

pub mod walk;

pub mod capture;

pub mod state;

pub mod table;

pub mod chunks;

pub mod index;

pub mod order;

pub mod mix;

#[cfg(test)]
mod tests;

use actors::Actors;
use capture::Capture;
use change::Change;
use clock::Clock;
use crossing::{Crossing, Tombstones};
use event::{Action, Event};
use hunt::{Hunt, Hunts};
use refusal::{ActionKind, Refusal};
use rules::Rules;
use rules::inventory::Inventory;
use std::sync::Arc;
use tiles::Tiles;
use update::{Update, Updates};

/// What became of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It changed the state as it asked to.
    Applied,
    /// The rules turned it down; an update says so.
    Refused(Refusal),
    /// It came before: a repeated or older `seq`, id or crossing. Nothing is told.
    NoOp,
}

/// The state of one zone: one input partition.
#[derive(Clone, Debug)]
pub struct Shard {
    partition: u16,
    rules: Arc<Rules>,
    clock: Clock,
    last_tick: u64,
    actors: Actors,
    tombstones: Tombstones,
    tiles: Tiles,
    hunts: Hunts,
    capture: Capture,
}

/// Events that [`Shard::look_ahead`] takes: as many reads as a core has in flight.
pub const EVENTS_AHEAD: usize = 8;

/// Where a player's actor was found a little earlier.
#[derive(Clone, Copy, Debug)]
pub struct Place(u32);

/// Where an event's updates go, with the time that they carry.
pub(crate) struct Tell<'a> {
    updates: &'a mut Updates,
    ts_us: i64,
}

impl Tell<'_> {
    /// Tells one change of a player, or of the world where that is 0.
    pub(crate) fn push(&mut self, player_id: u64, change: Change) {
        self.updates.push(Update::new(player_id, self.ts_us, change));
    }

    /// Tells all parts of a crossing.
    pub(crate) fn crossing(&mut self, player_id: u64, crossing: &Crossing) {
        crossing.parts().into_iter().for_each(|part| self.push(player_id, part));
    }
}

impl Shard {
    /// The state before the first event. Panics if [`Rules::check`] finds fault with the rules.
    pub fn new(partition: u16, rules: Arc<Rules>) -> Shard {
        if let Err(error) = rules.check() {
            panic!("{error}");
        }
        let actors_max = rules.actors.count_max as usize;
        Shard {
            partition,
            clock: Clock::default(),
            last_tick: 0,
            actors: Actors::new(actors_max),
            tombstones: Tombstones::none(),
            tiles: Tiles::new(&rules.world, actors_max),
            hunts: Hunts::new(rules.world.tiles()),
            capture: Capture::default(),
            rules,
        }
    }

    /// The input partition that it is the state of.
    pub fn partition(&self) -> u16 {
        self.partition
    }

    /// The rules that it plays by.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// What a player holds; `None`: it is not here.
    pub fn inventory(&self, player_id: u64) -> Option<&Inventory> {
        self.actors.find(player_id).map(|row| &self.actors.pack(row).items)
    }

    /// Hash of the whole state: equal digests mean equal state.
    pub fn digest(&self) -> u64 {
        let clock = mix::hash(&self.clock.to_words(), self.last_tick);
        let hunts = self.hunts.digest();
        let parts = [clock, self.actors.digest(), self.tombstones.digest(), hunts];
        mix::hash(&parts, u64::from(self.partition))
    }

    /// Looks up where the players of the next events stand, for [`Shard::apply_at`]: the reads of
    /// several events wait for memory together, and applying the events then finds all in the
    /// cache.
    pub fn look_ahead(&self, events: &[Event]) -> [Place; EVENTS_AHEAD] {
        let mut places = [Place(u32::MAX); EVENTS_AHEAD];
        // First what needs no decision: a core that guessed a decision wrong reads nothing ahead.
        for (Place(row), event) in places.iter_mut().zip(events) {
            *row = self.actors.likely_row(event.player_id);
        }
        for (Place(row), event) in places.iter_mut().zip(events) {
            *row = self.actors.find_from(*row, event.player_id).unwrap_or(u32::MAX);
        }
        places
    }

    /// Applies one event like [`Shard::apply_at`], without having looked ahead.
    pub fn apply(&mut self, event: &Event, updates: &mut Updates) -> Outcome {
        self.apply_at(Place(u32::MAX), event, updates)
    }

    /// Applies one event, in bounded work, and tells what follows from it. The caller has made sure
    /// that the updates have room. The place is a hint: a wrong one changes nothing but the time.
    pub fn apply_at(&mut self, place: Place, event: &Event, updates: &mut Updates) -> Outcome {
        self.clock.observe(event.time_ms);
        let mut tell = Tell { updates, ts_us: event.ts_us };
        self.settle_due(&mut tell);
        self.end_due_hunts(&mut tell);
        let decided = match event.action {
            Action::Tick => self.on_tick(event.seq),
            Action::Arrive { x, y, handoff } => {
                self.on_arrive(event.player_id, (x, y), &handoff, &mut tell)
            }
            Action::HuntStart { hunt, seed, treasures, duration_ms } => {
                let start = Hunt { hunt, seed, treasures, ..Hunt::default() };
                self.on_hunt_start(start, duration_ms, &mut tell)
            }
            Action::HuntEnd { hunt } => self.on_hunt_end(hunt, &mut tell),
            _ => self.on_player_event(place, event, &mut tell),
        };
        let outcome = decided.unwrap_or_else(|refusal| {
            let (action, seq) = (kind_of(&event.action), event.seq);
            tell.push(event.player_id, Change::Refused { refusal, action, seq });
            Outcome::Refused(refusal)
        });
        self.work_on_hunts(event.action == Action::Tick, &mut tell);
        outcome
    }

    fn on_tick(&mut self, id: u64) -> Result<Outcome, Refusal> {
        if id <= self.last_tick {
            return Ok(Outcome::NoOp);
        }
        self.last_tick = id;
        Ok(Outcome::Applied)
    }

    fn on_player_event(
        &mut self,
        Place(hint): Place,
        event: &Event,
        tell: &mut Tell,
    ) -> Result<Outcome, Refusal> {
        if event.player_id == 0 {
            return Err(Refusal::NoPlayer);
        }
        let Some(row) = self.actors.find_from(hint, event.player_id) else {
            return self.on_absent_player_event(event, tell);
        };
        let mut body = *self.actors.body(row);
        if event.seq <= body.seq {
            return Ok(Outcome::NoOp);
        }
        if body.effects != 0 || body.downed() {
            self.settle(row, tell);
            body = *self.actors.body(row);
        }
        body.seq = event.seq;
        let decided = match event.action {
            Action::Leave { to_zone } => return self.on_leave(row, body, to_zone, tell),
            Action::Join { .. } => Err(Refusal::AlreadyJoined),
            _ if body.downed() => Err(Refusal::Downed),
            Action::Move { x, y } => self.on_move(row, &mut body, x, y, tell),
            Action::Rotate { heading } => on_rotate(&mut body, heading, tell),
            Action::Shoot { weapon, heading } => {
                self.on_shoot(row, &mut body, weapon, heading, tell)
            }
            Action::Use { item } => self.on_use(row, &mut body, item, tell),
            Action::Loot { hunt } => self.on_loot(row, &body, hunt, tell),
            Action::Arrive { .. }
            | Action::Tick
            | Action::HuntStart { .. }
            | Action::HuntEnd { .. } => unreachable!("handled before players are looked up"),
        };
        // A refused event has used up its `seq` too: sent again, it must not be decided again.
        self.actors.write_body(row, body);
        decided.map(|()| Outcome::Applied)
    }

    /// Events of players that are not here leave no trace, so that a hand-off under way to this
    /// zone is never taken for an old one.
    fn on_absent_player_event(
        &mut self,
        event: &Event,
        tell: &mut Tell,
    ) -> Result<Outcome, Refusal> {
        let known = self.tombstones.find(event.player_id);
        if event.seq <= known.map_or(0, |tombstone| tombstone.seq) {
            return Ok(Outcome::NoOp);
        }
        match event.action {
            Action::Join { x, y } => self.on_join(event.player_id, event.seq, x, y, tell),
            _ => Err(Refusal::NotJoined),
        }
        .map(|()| Outcome::Applied)
    }
}

fn on_rotate(body: &mut actor::Body, heading: u16, tell: &mut Tell) -> Result<(), Refusal> {
    if heading >= walk::HEADINGS {
        return Err(Refusal::HeadingOutOfRange);
    }
    body.heading = heading;
    tell.push(body.player_id, Change::Rotated { heading });
    Ok(())
}

fn kind_of(action: &Action) -> ActionKind {
    match action {
        Action::Join { .. } => ActionKind::Join,
        Action::Arrive { .. } => ActionKind::Arrive,
        Action::Leave { .. } => ActionKind::Leave,
        Action::Move { .. } => ActionKind::Move,
        Action::Rotate { .. } => ActionKind::Rotate,
        Action::Shoot { .. } => ActionKind::Shoot,
        Action::Loot { .. } => ActionKind::Loot,
        Action::Use { .. } => ActionKind::Use,
        Action::Tick => ActionKind::Tick,
        Action::HuntStart { .. } => ActionKind::HuntStart,
        Action::HuntEnd { .. } => ActionKind::HuntEnd,
    }
}
