//! Events to updates: the game, a pure and deterministic state machine.
//!
//! The engine has no I/O, clock, randomness, float, lock or thread, and no order that depends on
//! where something lies in memory. The same events make the same updates and the same digest,
//! however they are batched and however often the shard is restarted.
#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods, clippy::disallowed_types, clippy::float_arithmetic)]

pub(crate) mod field;

pub mod event;

pub mod events;

pub mod change;

pub mod refusal;

pub mod rules;

pub(crate) mod actor;

pub(crate) mod actors;

mod ahead;

pub(crate) mod handoff;

pub(crate) mod outline;

pub(crate) mod hunts;

pub(crate) mod path;

pub(crate) mod tiles;

pub(crate) mod walk;

pub mod checkpoint;

pub(crate) mod state;

#[cfg(test)]
mod tests;

use crate::kit::clock::Clock;
use crate::kit::kinds::Kinds;
use crate::kit::mix;
use crate::kit::tombstones::Tombstones;
use crate::kit::update::{EVENT_UPDATES_MAX, Update, Updates};
use actors::Actors;
use ahead::{Ahead, EVENTS_AHEAD};
use change::Change;
use checkpoint::Checkpoint;
use event::{Action, Event, Handoff, Subject};
use events::{Events, ListedEvent};
use handoff::HandoffOut;
use hunts::{HUNTS_MAX, Hunt, Hunts};
use refusal::Refusal;
use rules::Rules;
use rules::inventory::Inventory;
use rules::motion::{Allowance, on_rotate};
use rules::rulebook::{Edition, Rulebook};
use std::sync::Arc;
use tiles::Tiles;

/// What became of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It changed the state as it asked to.
    Applied,
    /// The rules turned it down; an update says so.
    Refused(Refusal),
    /// It came before, with a repeated or older `seq`, id or handoff; or the zone plays by these
    /// rules already. No update is made.
    NoOp,
    /// It asks for rules that the shard does not have. Nothing after it may be applied: a shard
    /// that has these rules would go on differently.
    RulesMissing {
        /// Hash of those rules.
        ruleset: u32,
    },
}

impl From<Result<(), Refusal>> for Outcome {
    #[inline]
    fn from(decided: Result<(), Refusal>) -> Outcome {
        match decided {
            Ok(()) => Outcome::Applied,
            Err(refusal) => Outcome::Refused(refusal),
        }
    }
}

/// How much is going on in a zone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Population {
    /// Players that have joined and not left.
    pub players: u32,
    /// Hunts that run.
    pub hunts: u32,
    /// Treasures of these that were laid and not opened.
    pub treasures: u32,
}

/// The state of one zone: one input partition.
#[derive(Clone, Debug)]
pub struct Shard {
    partition: u16,
    rulebook: Rulebook,
    rules: Arc<Rules>,
    /// Their hash.
    ruleset: u32,
    paces: [Allowance; 2],
    clock: Clock,
    last_tick: u64,
    actors: Actors,
    tombstones: Tombstones,
    tiles: Tiles,
    hunts: Hunts,
    checkpoint: Checkpoint,
}

/// No row: the hint for a player without one.
const NO_ROW: u32 = u32::MAX;

/// Where an event's updates go, with the time that they carry.
pub(crate) struct EventOutput<'a> {
    updates: &'a mut Updates,
    ts_us: i64,
    /// The zone's clock, if it has to be published before a timed update.
    clock_ms: Option<u64>,
    /// Updates before the event's first, and its ordinal.
    before: usize,
    ordinal: u64,
}

impl EventOutput<'_> {
    /// Makes the update of one change of a player, or of the world where the player is 0. It is
    /// inlined: the caller knows the kind, so the compiler knows how the change is packed.
    #[inline(always)]
    pub(crate) fn push(&mut self, player_id: u64, change: Change) {
        if change.is_timed() {
            self.push_clock();
        }
        self.updates.push(Update::new(player_id, self.ts_us, change));
    }

    /// Publishes the zone's clock, unless that was done since it moved.
    #[inline(never)]
    fn push_clock(&mut self) {
        if let Some(unix_ms) = self.clock_ms.take() {
            self.updates.push(Update::new(0, self.ts_us, Change::Clock { unix_ms }));
        }
    }

    /// Orders the updates of all events: what is published earlier has a lower one.
    pub(crate) fn ordinal(&self) -> u64 {
        self.ordinal * EVENT_UPDATES_MAX as u64 + (self.updates.len() - self.before) as u64
    }

    /// Publishes all parts of a handoff.
    pub(crate) fn handoff(&mut self, player_id: u64, handoff: &HandoffOut) {
        handoff.parts().into_iter().for_each(|part| self.push(player_id, part));
    }
}

impl Shard {
    /// The state before the first event, by the first rules of the book.
    pub fn new(partition: u16, rulebook: &Rulebook) -> Shard {
        let Edition { ruleset, rules } = rulebook.first().clone();
        let actors_max = rules.actors.count_max as usize;
        Shard {
            partition,
            rulebook: rulebook.clone(),
            ruleset,
            paces: Allowance::both(&rules),
            clock: Clock::default(),
            last_tick: 0,
            actors: Actors::new(actors_max),
            tombstones: Tombstones::none(),
            tiles: Tiles::new(&rules.world, actors_max),
            hunts: Hunts::new(rules.world.tiles()),
            checkpoint: Checkpoint::default(),
            rules,
        }
    }

    /// The input partition that it is the state of.
    pub fn partition(&self) -> u16 {
        self.partition
    }

    /// Knows the rules of this book from now on: an event can change to them.
    pub fn know(&mut self, rulebook: &Rulebook) {
        assert_eq!(self.rulebook.missing_in(rulebook), None, "a book only grows");
        self.rulebook = rulebook.clone();
    }

    /// The rules that it plays by.
    pub(crate) fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Their hash.
    pub fn ruleset(&self) -> u32 {
        self.ruleset
    }

    /// The last `seq` of a player that counted; 0: none is remembered.
    pub(crate) fn last_seq(&self, player_id: u64) -> u64 {
        let here = self.actors.find(player_id).map(|row| self.actors.body(row).seq);
        let left = || self.tombstones.find(player_id).map(|tombstone| tombstone.seq);
        here.or_else(left).unwrap_or(0)
    }

    /// How much is going on in the zone.
    pub(crate) fn population(&self) -> Population {
        let hunts = (0..HUNTS_MAX).map(|slot| self.hunts.hunt(slot)).filter(|hunt| hunt.running());
        let mut population = Population { players: self.actors.count(), ..Population::default() };
        for hunt in hunts {
            population.hunts += 1;
            population.treasures += u32::from(hunt.laid.saturating_sub(hunt.opened));
        }
        population
    }

    /// What a player holds; `None`: it is not here.
    pub(crate) fn inventory(&self, player_id: u64) -> Option<&Inventory> {
        self.actors.find(player_id).map(|row| &self.actors.pack(row).items)
    }

    /// Hash of the whole state: equal digests mean equal state.
    pub fn digest(&self) -> u64 {
        let Shard {
            partition,
            ruleset,
            clock,
            last_tick,
            actors,
            tombstones,
            hunts,
            // Follow from those and the ruleset.
            rulebook: _,
            rules: _,
            paces: _,
            tiles: _,
            checkpoint: _,
        } = self;
        let clock = mix::hash(&clock.to_words(), *last_tick);
        let ruleset = (*ruleset).into();
        let parts = [clock, ruleset, actors.digest(), tombstones.digest(), hunts.digest()];
        mix::hash(&parts, u64::from(*partition))
    }

    /// Applies events from `first` on, as long as the updates have room for one more and the rules
    /// are loaded. Passes each event to `on_outcome`, with what became of it and its updates.
    /// Returns the number of these events.
    pub fn apply_all(
        &mut self,
        events: &Events,
        first: usize,
        updates: &mut Updates,
        mut on_outcome: impl FnMut(&ListedEvent, Outcome, &[Update]),
    ) -> usize {
        let (events, handoffs) = (&events.listed()[first..], events.handoffs());
        let mut ahead = Ahead::default();
        for at in 0..EVENTS_AHEAD {
            ahead.begin_lookup(&self.actors, events, at);
        }
        for at in 0..EVENTS_AHEAD {
            ahead.find(&self.actors, at);
            ahead.begin_lookup(&self.actors, events, at + EVENTS_AHEAD);
        }
        for (at, event) in events.iter().enumerate() {
            if !updates.has_room() {
                return at;
            }
            let row = ahead.row(at);
            ahead.find(&self.actors, at + EVENTS_AHEAD);
            ahead.begin_lookup(&self.actors, events, at + 2 * EVENTS_AHEAD);
            let before = updates.len();
            let outcome = self.apply_at(row, event, handoffs, updates);
            on_outcome(event, outcome, &updates.as_slice()[before..]);
            if let Outcome::RulesMissing { .. } = outcome {
                return at + 1;
            }
        }
        events.len()
    }

    /// Applies one event, in bounded work, and returns what became of it. The caller has made sure
    /// that the updates have room.
    pub fn apply(&mut self, event: &Event, updates: &mut Updates) -> Outcome {
        let (event, handoff) = event.apart(0);
        self.apply_at(NO_ROW, &event, handoff.as_slice(), updates)
    }

    /// The row is a hint: a wrong one changes nothing but the time.
    fn apply_at(
        &mut self,
        hint: u32,
        event: &ListedEvent,
        handoffs: &[Handoff],
        updates: &mut Updates,
    ) -> Outcome {
        self.clock.observe(event.time_ms);
        let mut out = EventOutput {
            before: updates.len(),
            updates,
            ts_us: event.ts_us,
            clock_ms: self.clock.unpublished(),
            ordinal: self.clock.records(),
        };
        if self.clock.has_just_started() {
            out.clock_ms = Some(self.clock.published());
            out.push_clock();
        }
        if self.is_behind() {
            self.settle_due(&mut out);
        }
        if self.hunts.due_ms() <= self.clock.now_ms() {
            self.end_due_hunts(&mut out);
        }
        let outcome = match event.action.kind().subject() {
            Subject::Player => self.on_player_event(hint, event, &mut out),
            Subject::Arrival | Subject::World | Subject::WorldCounted => {
                let decided = self.on_arrival_or_world_event(event, handoffs, &mut out);
                decided.unwrap_or_else(Outcome::Refused)
            }
        };
        if let Outcome::Refused(refusal) = outcome {
            let (action, seq) = (event.action.kind(), event.seq);
            out.push(event.player_id, Change::Refused { refusal, action, seq });
        }
        self.work_on_hunts(event.action == Action::Tick, &mut out);
        if out.clock_ms.is_none() {
            self.clock.publish();
        }
        outcome
    }

    #[inline(never)]
    fn on_arrival_or_world_event(
        &mut self,
        event: &ListedEvent,
        handoffs: &[Handoff],
        out: &mut EventOutput,
    ) -> Result<Outcome, Refusal> {
        match event.action {
            Action::Tick => self.on_tick(event.seq, out),
            Action::RulesChange { ruleset } => Ok(self.on_rules_change(ruleset, out)),
            Action::Arrive { x, y, handoff } => {
                self.on_arrive(event.player_id, (x, y), &handoffs[handoff as usize], out)
            }
            Action::HuntStart { hunt, seed, treasures, duration_ms } => {
                let start = Hunt { hunt, seed, treasures, ..Hunt::default() };
                self.on_hunt_start(start, duration_ms, out)
            }
            Action::HuntEnd { hunt } => self.on_hunt_end(hunt, out),
            Action::Join { .. }
            | Action::Leave { .. }
            | Action::Move { .. }
            | Action::Rotate { .. }
            | Action::Shoot { .. }
            | Action::Loot { .. }
            | Action::Use { .. } => unreachable!("its subject is a player"),
        }
    }

    fn on_tick(&mut self, id: u64, out: &mut EventOutput) -> Result<Outcome, Refusal> {
        if id <= self.last_tick {
            return Ok(Outcome::NoOp);
        }
        self.last_tick = id;
        out.push_clock();
        Ok(Outcome::Applied)
    }

    #[inline]
    fn on_player_event(
        &mut self,
        hint: u32,
        event: &ListedEvent,
        out: &mut EventOutput,
    ) -> Outcome {
        if event.player_id == 0 {
            return Outcome::Refused(Refusal::NoPlayer);
        }
        let Some((row, body)) = self.actors.find_from(hint, event.player_id) else {
            return self.on_absent_player_event(event, out);
        };
        let mut body = *body;
        if event.seq <= body.seq {
            return Outcome::NoOp;
        }
        // More may be due than was settled before the event; of its own player nothing is left.
        if (body.has_effects() || body.downed()) && self.is_behind() {
            self.settle(row, out);
            body = *self.actors.body(row);
        }
        body.seq = event.seq;
        let decided = match event.action {
            Action::Move { x, y } if !body.downed() => self.on_move(row, &mut body, x, y, out),
            Action::Rotate { heading } if !body.downed() => on_rotate(&mut body, heading, out),
            _ => return self.on_rarer_action(row, event, out),
        };
        // A refused event has used up its `seq` too: sent again, it must not be decided again.
        self.actors.write_body(row, body);
        decided.into()
    }

    /// Actions other than a plain step or turn. They have a function and a copy of the body of
    /// their own, so that steps and turns keep theirs in registers.
    #[inline(never)]
    fn on_rarer_action(&mut self, row: u32, event: &ListedEvent, out: &mut EventOutput) -> Outcome {
        let mut body = *self.actors.body(row);
        body.seq = event.seq;
        let decided = match event.action {
            Action::Leave { to_zone } => {
                let decided = self.on_leave(row, body, to_zone, out);
                return decided.unwrap_or_else(Outcome::Refused);
            }
            Action::Join { .. } => Err(Refusal::AlreadyJoined),
            _ if body.downed() => Err(Refusal::Downed),
            Action::Shoot { weapon, heading } => {
                self.on_shoot(row, &mut body, weapon, heading, out)
            }
            Action::Use { item } => self.on_use(row, &mut body, item, out),
            Action::Loot { hunt } => self.on_loot(row, &body, hunt, out),
            Action::Move { .. }
            | Action::Rotate { .. }
            | Action::Arrive { .. }
            | Action::Tick
            | Action::RulesChange { .. }
            | Action::HuntStart { .. }
            | Action::HuntEnd { .. } => unreachable!("handled before"),
        };
        self.actors.write_body(row, body);
        decided.into()
    }

    /// Events of players that are not here leave no trace. Otherwise a handoff under way to this
    /// zone could be taken for an old one.
    #[inline(never)]
    fn on_absent_player_event(&mut self, event: &ListedEvent, out: &mut EventOutput) -> Outcome {
        let known = self.tombstones.find(event.player_id);
        if event.seq <= known.map_or(0, |tombstone| tombstone.seq) {
            return Outcome::NoOp;
        }
        let decided = match event.action {
            Action::Join { x, y } => self.on_join(event.player_id, event.seq, x, y, out),
            _ => Err(Refusal::NotJoined),
        };
        decided.into()
    }
}
