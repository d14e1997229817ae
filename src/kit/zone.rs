//! One zone of a game: clock, rules, players who left, and the game's state; and the loop that
//! applies events.

use crate::kit::checkpoint::Checkpoint;
use crate::kit::clock::Clock;
use crate::kit::event::{Event, GameAction, PlainEvent, Subject};
use crate::kit::event_list::Events;
use crate::kit::game::{Game, KitRefusal, OutcomeOf};
use crate::kit::index::Lookup;
use crate::kit::kinds::Kinds;
use crate::kit::mix;
use crate::kit::players::Player;
use crate::kit::rulebook::{HashedRules, Rulebook};
use crate::kit::stored_names::names_words;
use crate::kit::tombstones::Tombstones;
use crate::kit::update::{EVENT_UPDATES_MAX, Update, Updates};
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

/// The outcome of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome<R> {
    /// The event changed the state.
    Applied,
    /// The rules refused the event; an update says so.
    Refused(R),
    /// The event is a repetition, with a repeated or older `seq`, id or handoff; or the zone
    /// already uses these rules. It makes no update.
    NoOp,
    /// The event requires rules that the zone does not have. Nothing after it may be applied,
    /// because a zone with these rules would continue differently.
    RulesMissing {
        /// Hash of those rules.
        ruleset: u32,
    },
}

impl<R> From<Result<(), R>> for Outcome<R> {
    #[inline]
    fn from(decided: Result<(), R>) -> Outcome<R> {
        match decided {
            Ok(()) => Outcome::Applied,
            Err(refusal) => Outcome::Refused(refusal),
        }
    }
}

/// The state of one zone, which is one input partition.
#[derive(Clone, Debug)]
pub struct Zone<G: Game> {
    pub(crate) partition: u16,
    pub(crate) rulebook: Rulebook<G::Rules>,
    /// The current rules.
    pub rules: Arc<G::Rules>,
    /// The hash of `rules`.
    pub(super) ruleset: u32,
    /// The clock of the zone.
    pub clock: Clock,
    pub(super) last_tick: u64,
    /// The players who have left.
    pub tombstones: Tombstones,
    /// The state of the game.
    pub game: G,
    /// The names of the tables, as a checkpoint stores them.
    pub(crate) names: Arc<[u64]>,
    pub(crate) checkpoint: Checkpoint,
}

/// The hint for a player without a known row.
pub(crate) const NO_ROW: u32 = u32::MAX;

/// Prefetch distance in events, from the index to the row and from the row to its use: not much
/// more than the number of reads that a core has in flight.
const EVENTS_AHEAD: usize = 16;

/// The destination of an event's updates, and the time that they carry.
pub struct EventOutput<'a, G> {
    updates: &'a mut Updates,
    ts_us: i64,
    /// The zone's clock, if it has to be published before a timed update.
    clock_ms: Option<u64>,
    /// The number of updates before the event's first, and its ordinal.
    before: usize,
    ordinal: u64,
    game: PhantomData<G>,
}

impl<G: Game> EventOutput<'_, G> {
    /// Makes the update for a change of a player, or of the world if the player is 0. Panics if the
    /// event has made 64 of them. It is inlined: the caller knows the kind, so the compiler knows
    /// how the change is packed.
    #[inline(always)]
    pub fn push(&mut self, player_id: u64, change: G::Update) {
        if change.is_timed() {
            self.push_clock();
        }
        self.append(Update::new(player_id, self.ts_us, change));
    }

    #[inline(always)]
    fn append(&mut self, update: Update) {
        let made = self.updates.len() - self.before;
        assert!(made < EVENT_UPDATES_MAX, "an event makes {EVENT_UPDATES_MAX} updates at most");
        self.updates.push(update);
    }

    /// Publishes the zone's clock, unless that was done since it moved.
    #[inline(never)]
    fn push_clock(&mut self) {
        if let Some(unix_ms) = self.clock_ms.take() {
            self.append(Update::new(0, self.ts_us, G::clock(unix_ms)));
        }
    }

    /// Returns a number that orders the updates of all events by publication.
    pub(crate) fn ordinal(&self) -> u64 {
        self.ordinal * EVENT_UPDATES_MAX as u64 + (self.updates.len() - self.before) as u64
    }
}

impl<G: Game> Zone<G> {
    /// Returns the state before the first event, with the first rules of the book.
    pub fn new(partition: u16, rulebook: &Rulebook<G::Rules>) -> Zone<G> {
        let HashedRules { ruleset, rules } = rulebook.first().clone();
        Zone {
            partition,
            rulebook: rulebook.clone(),
            ruleset,
            clock: Clock::default(),
            last_tick: 0,
            tombstones: Tombstones::none(),
            game: G::new(&rules),
            names: names_words(G::VERSION, G::TABLES).into(),
            checkpoint: Checkpoint::default(),
            rules,
        }
    }

    /// Returns the input partition of the zone.
    pub fn partition(&self) -> u16 {
        self.partition
    }

    /// Adopts a larger book: from now on an event can switch to its rules.
    pub fn know(&mut self, rulebook: &Rulebook<G::Rules>) {
        assert_eq!(self.rulebook.missing_in(rulebook), None, "a book only grows");
        self.rulebook = rulebook.clone();
    }

    /// Returns the current rules.
    pub(crate) fn rules(&self) -> &G::Rules {
        &self.rules
    }

    /// Returns the hash of these rules.
    pub fn ruleset(&self) -> u32 {
        self.ruleset
    }

    /// Returns the last accepted `seq` of a player; 0 if none is remembered.
    pub(crate) fn last_seq(&self, player_id: u64) -> u64 {
        let here = self.game.players().find_from(NO_ROW, player_id).map(|(_, player)| player.seq());
        let left = || self.tombstones.find(player_id).map(|tombstone| tombstone.seq);
        here.or_else(left).unwrap_or(0)
    }

    /// Returns the last published time of the zone's clock, in milliseconds since the Unix epoch; 0
    /// until it starts.
    pub(crate) fn published_unix_ms(&self) -> i64 {
        self.clock.published_unix_ms()
    }

    /// Returns the hash of the whole state: equal digests mean equal state.
    pub fn digest(&self) -> u64 {
        let Zone {
            partition,
            ruleset,
            clock,
            last_tick,
            tombstones,
            game,
            // Derived from the above and the ruleset.
            rulebook: _,
            rules: _,
            names: _,
            checkpoint: _,
        } = self;
        let clock = mix::hash(&clock.to_words(), *last_tick);
        let [players, rest] = game.digests();
        let parts = [clock, (*ruleset).into(), players, tombstones.digest(), rest];
        mix::hash(&parts, u64::from(*partition))
    }

    /// Applies a part of these events, as long as the updates have room for one more and the rules
    /// are loaded. Passes each event to `on_outcome`, with its outcome and its updates. Returns the
    /// number of these events.
    pub fn apply_all(
        &mut self,
        events: &Events,
        part: Range<usize>,
        updates: &mut Updates,
        on_outcome: impl FnMut(&PlainEvent, OutcomeOf<G>, &[Update]),
    ) -> usize {
        self.apply_each(&events.plain()[part], events.carried(), updates, on_outcome)
    }

    /// Applies one event, in bounded work, and returns its outcome. The caller has made sure that
    /// the updates have room.
    pub fn apply<A: GameAction>(
        &mut self,
        event: &Event<A>,
        updates: &mut Updates,
    ) -> OutcomeOf<G> {
        let mut carried = Vec::new();
        let event = event.pack(&mut carried);
        self.apply_at(NO_ROW, &event, &carried, updates)
    }

    /// Applies events, as long as the updates have room for one more and the rules are loaded.
    /// Passes each event to `on_outcome`, with its outcome and its updates. Returns the number of
    /// these events.
    fn apply_each(
        &mut self,
        events: &[PlainEvent],
        carried: &[u64],
        updates: &mut Updates,
        mut on_outcome: impl FnMut(&PlainEvent, OutcomeOf<G>, &[Update]),
    ) -> usize {
        let mut ahead = Ahead::default();
        for at in 0..EVENTS_AHEAD {
            ahead.begin_lookup(&self.game, events, at);
        }
        for at in 0..EVENTS_AHEAD {
            ahead.find(&self.game, at);
            ahead.begin_lookup(&self.game, events, at + EVENTS_AHEAD);
        }
        for (at, event) in events.iter().enumerate() {
            if !updates.has_room() {
                return at;
            }
            let row = ahead.row(at);
            ahead.find(&self.game, at + EVENTS_AHEAD);
            ahead.begin_lookup(&self.game, events, at + 2 * EVENTS_AHEAD);
            let before = updates.len();
            let outcome = self.apply_at(row, event, carried, updates);
            on_outcome(event, outcome, &updates.as_slice()[before..]);
            if let Outcome::RulesMissing { .. } = outcome {
                return at + 1;
            }
        }
        events.len()
    }

    /// Applies one event, in bounded work, and returns its outcome. The caller has made sure that
    /// the updates have room. The row is a hint: a wrong one affects only the time.
    #[inline(always)]
    fn apply_at(
        &mut self,
        hint: u32,
        event: &PlainEvent,
        carried: &[u64],
        updates: &mut Updates,
    ) -> OutcomeOf<G> {
        self.clock.observe(event.time_ms);
        let mut out = EventOutput {
            before: updates.len(),
            updates,
            ts_us: event.ts_us,
            clock_ms: self.clock.unpublished(),
            ordinal: self.clock.records(),
            game: PhantomData,
        };
        if self.clock.has_just_started() {
            out.clock_ms = Some(self.clock.published());
            out.push_clock();
        }
        G::on_time(self, event, &mut out);
        let (subject, outcome) = if G::Action::is_of_player(&event.action) {
            (Subject::Player, self.on_player(hint, event, &mut out))
        } else {
            let subject = G::Action::subject(&event.action);
            (subject, self.on_rarer_subject(subject, event, carried, &mut out))
        };
        if let Outcome::Refused(refusal) = outcome {
            out.push(event.player_id, G::refused(refusal, event));
        }
        G::on_end(self, subject == Subject::Tick, &mut out);
        if out.clock_ms.is_none() {
            self.clock.publish();
        }
        outcome
    }

    #[inline]
    fn on_player(
        &mut self,
        hint: u32,
        event: &PlainEvent,
        out: &mut EventOutput<G>,
    ) -> OutcomeOf<G> {
        if event.player_id == 0 {
            return Outcome::Refused(KitRefusal::NoPlayer.into());
        }
        let Some((row, player)) = self.game.players().find_from(hint, event.player_id) else {
            return self.on_absent_player(event);
        };
        if event.seq <= player.seq() {
            return Outcome::NoOp;
        }
        let mut player = *player;
        player.set_seq(event.seq);
        let decided = G::on_player(self, row, &mut player, event, out);
        // A refused event has used up its `seq` too: sent again, it must not be decided again.
        self.write_back(row, player);
        decided.into()
    }

    /// Writes the player of an event, unless the event has removed it: its row is then free, or
    /// another player's.
    #[inline(always)]
    fn write_back(&mut self, row: u32, player: G::Player) {
        let players = self.game.players_mut();
        if players.row(row).player_id() == player.player_id() {
            players.write(row, player);
        }
    }

    /// Processes an event of an absent player, which leaves no trace. Otherwise a handoff in
    /// transit to this zone could be mistaken for an old one.
    #[inline(never)]
    fn on_absent_player(&mut self, event: &PlainEvent) -> OutcomeOf<G> {
        if self.has_seen(event) {
            return Outcome::NoOp;
        }
        Outcome::Refused(KitRefusal::NotJoined.into())
    }

    /// Returns whether the player of this event left with a `seq` that is not below the event's.
    fn has_seen(&self, event: &PlainEvent) -> bool {
        let known = self.tombstones.find(event.player_id);
        event.seq <= known.map_or(0, |tombstone| tombstone.seq)
    }

    #[inline(never)]
    fn on_rarer_subject(
        &mut self,
        subject: Subject,
        event: &PlainEvent,
        carried: &[u64],
        out: &mut EventOutput<G>,
    ) -> OutcomeOf<G> {
        match subject {
            Subject::Player => unreachable!("handled before"),
            Subject::Enter | Subject::Leave => self.on_border(subject, event, out),
            Subject::Arrival => G::on_arrive(self, event, carried, out),
            Subject::World => G::on_world(self, event, out),
            Subject::Tick if event.seq <= self.last_tick => Outcome::NoOp,
            Subject::Tick => {
                self.last_tick = event.seq;
                out.push_clock();
                Outcome::Applied
            }
        }
    }

    /// Processes a player's entry or departure.
    fn on_border(
        &mut self,
        subject: Subject,
        event: &PlainEvent,
        out: &mut EventOutput<G>,
    ) -> OutcomeOf<G> {
        if event.player_id == 0 {
            return Outcome::Refused(KitRefusal::NoPlayer.into());
        }
        let Some((row, player)) = self.game.players().find_from(NO_ROW, event.player_id) else {
            return match subject {
                Subject::Enter if !self.has_seen(event) => G::on_enter(self, event, out).into(),
                _ => self.on_absent_player(event),
            };
        };
        if event.seq <= player.seq() {
            return Outcome::NoOp;
        }
        let mut player = *player;
        player.set_seq(event.seq);
        let decided = match subject {
            Subject::Leave => G::on_leave(self, row, player, event, out),
            _ => Err(KitRefusal::AlreadyJoined.into()),
        };
        if decided.is_err() {
            self.write_back(row, player);
        }
        decided.into()
    }

    /// Switches to the rules with this hash.
    pub(crate) fn on_rules_change(
        &mut self,
        ruleset: u32,
        out: &mut EventOutput<G>,
    ) -> OutcomeOf<G> {
        if ruleset == self.ruleset {
            return Outcome::NoOp;
        }
        let Some(rules) = self.rulebook.find(ruleset).cloned() else {
            return Outcome::RulesMissing { ruleset };
        };
        self.play_by(rules);
        out.push(0, G::rules_changed(ruleset));
        Outcome::Applied
    }

    pub(super) fn play_by(&mut self, HashedRules { ruleset, rules }: HashedRules<G::Rules>) {
        self.game.play_by(&rules);
        (self.ruleset, self.rules) = (ruleset, rules);
    }
}

/// Prefetches for later events: first the place in the index, then the row that it names, each some
/// events before it is read.
#[derive(Clone, Copy, Debug, Default)]
struct Ahead {
    lookups: [Lookup; EVENTS_AHEAD],
    rows: [u32; EVENTS_AHEAD],
}

impl Ahead {
    /// Starts to look up the player of this event, if there is one.
    #[inline(always)]
    fn begin_lookup<G: Game>(&mut self, game: &G, events: &[PlainEvent], at: usize) {
        if let Some(event) = events.get(at) {
            self.lookups[at % EVENTS_AHEAD] = game.players().begin_lookup(event.player_id);
        }
    }

    /// Finds the row that this player most likely has.
    #[inline(always)]
    fn find<G: Game>(&mut self, game: &G, at: usize) {
        self.rows[at % EVENTS_AHEAD] = game.players().likely_row(self.lookups[at % EVENTS_AHEAD]);
    }

    /// Returns the row that the player of an event most likely has.
    #[inline(always)]
    fn row(&self, at: usize) -> u32 {
        self.rows[at % EVENTS_AHEAD]
    }
}
