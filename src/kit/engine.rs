//! A zone of any game, as the daemon sees it: it is called once for a block of events.

use crate::kit::checkpoint::{CheckpointRead, StateError};
use crate::kit::event::{ACTIONS_MAX, EventTable, GameAction, PlainEvent};
use crate::kit::event_list::Events;
use crate::kit::field::{ActionWords, CARRIED_WORDS_MAX};
use crate::kit::game::Game;
use crate::kit::kinds::Kinds;
use crate::kit::packed::Packed;
use crate::kit::rulebook::{GameRules, Rulebook};
use crate::kit::stored_names::{check_migrations, check_names};
use crate::kit::update::{Update, Updates};
use crate::kit::update_json::UpdateTable;
use crate::kit::zone::{Outcome, Zone};
use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

/// Limit of a game's reasons to refuse an event.
const REFUSALS_MAX: usize = 64;

/// Limit of the numbers that a game counts in a zone.
pub const COUNTS_MAX: usize = 4;

/// Name and description of a number that a game counts in a zone.
pub type ZoneCount = (&'static str, &'static str);

/// The tables of a game: what the daemon and the tools know of it.
#[derive(Debug)]
pub struct GameSchema {
    /// The events.
    pub events: &'static EventTable,
    /// The updates.
    pub updates: &'static UpdateTable,
    /// The reasons to refuse an event, by number.
    pub refusals: &'static [&'static str],
    /// What is counted in a zone.
    pub counts: &'static [ZoneCount],
}

impl GameSchema {
    /// Returns a bit for each reason to refuse an event.
    pub(crate) fn refusal_codes(&self) -> u64 {
        let codes = (0..).zip(self.refusals).filter(|(_, name)| !name.is_empty());
        codes.fold(0, |codes, (code, _): (u32, _)| codes | 1 << code)
    }

    /// Returns the names of the actions, by number.
    pub(crate) fn action_names(&self) -> Vec<&'static str> {
        self.events.actions.iter().map(|action| action.name).collect()
    }
}

/// The schema of a game.
pub const fn schema_of<G: Game>() -> &'static GameSchema {
    const {
        let schema = &GameSchema {
            events: <G::Action as GameAction>::EVENTS,
            updates: <G::Update as Kinds>::TABLE,
            refusals: <G::Refusal as Packed>::NAMES,
            counts: G::COUNTS,
        };
        assert!(schema.refusals.len() <= REFUSALS_MAX && schema.counts.len() <= COUNTS_MAX);
        check_names(G::TABLES);
        check_migrations(G::MIGRATIONS, G::TABLES);
        schema
    }
}

/// A player on the way to another zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// The destination zone.
    pub to_zone: u16,
    /// The player.
    pub player_id: u64,
    /// The `seq` of the arrival.
    pub seq: u64,
    /// When the event was emitted, in microseconds since the Unix epoch.
    pub ts_us: i64,
    /// The arrival, and what the player carries.
    pub action: ActionWords,
    /// The carried words.
    pub carried: [u64; CARRIED_WORDS_MAX],
}

/// The outcomes of a block of events.
#[derive(Debug)]
pub struct BlockReport {
    /// Events that were processed, whatever their outcome.
    pub events: usize,
    /// Applied events, by action.
    pub applied: [u32; ACTIONS_MAX],
    /// Refused events, by reason.
    pub refused: [u32; REFUSALS_MAX],
    /// Events that changed nothing.
    pub no_ops: u64,
    /// Player and `seq` of the last event of a player that changed nothing.
    pub repeated: Option<(u64, u64)>,
    /// Input offset of an event that needs rules that are not here, and their hash.
    pub missing: Option<(i64, u32)>,
    /// Players who left for another zone, with the input offset of the event.
    pub departures: Vec<(i64, Departure)>,
    /// A bit for each reason that exists: an event with another one takes down the zone.
    reasons: u64,
}

impl BlockReport {
    /// Creates a report without events that has room for this many departures. `reasons` has a bit
    /// for each reason to refuse an event.
    pub(crate) fn new(departures: usize, reasons: u64) -> BlockReport {
        BlockReport {
            events: 0,
            applied: [0; ACTIONS_MAX],
            refused: [0; REFUSALS_MAX],
            no_ops: 0,
            repeated: None,
            missing: None,
            departures: Vec::with_capacity(departures),
            reasons,
        }
    }

    /// Starts a new report in the same memory.
    pub(crate) fn clear(&mut self) {
        let mut departures = std::mem::take(&mut self.departures);
        departures.clear();
        *self = BlockReport { departures, ..BlockReport::new(0, self.reasons) };
    }

    /// Adds an event.
    #[inline(always)]
    fn add<G: Game>(
        &mut self,
        zone: u16,
        event: &PlainEvent,
        outcome: Outcome<G::Refusal>,
        updates: &[Update],
    ) {
        match outcome {
            Outcome::Applied => self.applied[usize::from(event.action.kind()) % ACTIONS_MAX] += 1,
            Outcome::Refused(refusal) => {
                let reason = refusal.to_bits() as usize % REFUSALS_MAX;
                assert!(self.reasons >> reason & 1 == 1, "the list of reasons is closed");
                self.refused[reason] += 1;
            }
            Outcome::NoOp => {
                self.no_ops += 1;
                if G::Action::subject(&event.action).is_player() {
                    self.repeated = Some((event.player_id, event.seq));
                }
            }
            Outcome::RulesMissing { ruleset } => self.missing = Some((event.offset, ruleset)),
        }
        if G::may_send_players(event) {
            let all = G::departures(zone, updates);
            self.departures.extend(all.map(|departure| (event.offset, departure)));
        }
        // Last, so that an event counts as being processed until all of this is done.
        self.events += 1;
    }
}

/// A zone of a game that the caller does not know.
pub trait Engine: Send {
    /// Returns the input partition of the zone.
    fn partition(&self) -> u16;

    /// Returns the version of the game: others make other updates or another state.
    fn version(&self) -> u32;

    /// Returns the hash of the zone's rules.
    fn ruleset(&self) -> u32;

    /// Returns the hash of the whole state: equal digests mean equal state.
    fn digest(&self) -> u64;

    /// Returns the last accepted `seq` of a player; 0 if none is remembered.
    fn last_seq(&self, player_id: u64) -> u64;

    /// Returns what the game counts, in the order of [`GameSchema::counts`].
    fn counts(&self) -> [u64; COUNTS_MAX];

    /// Adopts a larger book of the same game: from now on an event can switch to its rules.
    fn know(&mut self, rulebook: &AnyRulebook);

    /// Applies a part of these events, as long as the updates have room for one more and the rules
    /// are loaded, and adds them to the report.
    fn apply_part(
        &mut self,
        events: &Events,
        part: Range<usize>,
        updates: &mut Updates,
        report: &mut BlockReport,
    );

    /// Starts a checkpoint of the current state, and returns its size in bytes.
    fn begin_checkpoint(&mut self) -> u64;

    /// Appends the next bytes of the checkpoint, up to `bytes_max` in total.
    fn write_checkpoint(&mut self, out: &mut Vec<u8>, bytes_max: usize) -> CheckpointRead;

    /// Ends the checkpoint, if there is one.
    fn end_checkpoint(&mut self);
}

/// Appends a zone's whole state, as a snapshot holds it. The daemon writes it block by block.
pub fn encode_state(zone: &mut (impl Engine + ?Sized), out: &mut Vec<u8>) {
    zone.begin_checkpoint();
    while zone.write_checkpoint(out, usize::MAX) == CheckpointRead::More {}
}

impl<G: Game> Engine for Zone<G> {
    fn partition(&self) -> u16 {
        self.partition()
    }

    fn version(&self) -> u32 {
        G::VERSION
    }

    fn ruleset(&self) -> u32 {
        self.ruleset()
    }

    fn digest(&self) -> u64 {
        self.digest()
    }

    fn last_seq(&self, player_id: u64) -> u64 {
        self.last_seq(player_id)
    }

    fn counts(&self) -> [u64; COUNTS_MAX] {
        G::counts(self)
    }

    fn know(&mut self, rulebook: &AnyRulebook) {
        let rulebook: &dyn Any = &**rulebook;
        let rulebook = rulebook.downcast_ref::<Rulebook<G::Rules>>();
        self.know(rulebook.expect("a daemon plays one game"));
    }

    fn apply_part(
        &mut self,
        events: &Events,
        part: Range<usize>,
        updates: &mut Updates,
        report: &mut BlockReport,
    ) {
        let zone = self.partition();
        self.apply_all(events, part, updates, |event, outcome, made| {
            report.add::<G>(zone, event, outcome, made);
        });
    }

    fn begin_checkpoint(&mut self) -> u64 {
        self.begin_checkpoint()
    }

    fn write_checkpoint(&mut self, out: &mut Vec<u8>, bytes_max: usize) -> CheckpointRead {
        self.write_checkpoint(out, bytes_max)
    }

    fn end_checkpoint(&mut self) {
        self.end_checkpoint();
    }
}

/// The rulebook of a game that the holder does not know. It makes the zones of the game.
pub type AnyRulebook = Arc<dyn GameRulebook>;

/// A rulebook whose holder does not know its game.
pub trait GameRulebook: Any + Send + Sync {
    /// Returns the tables of the game.
    fn schema(&self) -> &'static GameSchema;

    /// Returns the version of the game.
    fn version(&self) -> u32;

    /// Returns the hashes of all rules, that of new zones first.
    fn rulesets(&self) -> Vec<u32>;

    /// Returns this book, reordered so that new zones begin with the rules with this hash; `None`
    /// if it does not contain them.
    fn beginning_by(&self, ruleset: u32) -> Option<AnyRulebook>;

    /// Returns a zone before its first event, with the first rules of the book.
    fn new_zone(&self, partition: u16) -> Box<dyn Engine>;

    /// Decodes a zone from its stored state.
    fn stored_zone(&self, bytes: &[u8]) -> Result<Box<dyn Engine>, StateError>;

    /// Decodes a zone from a state that another version of the game has stored. It continues by the
    /// first rules of the book.
    fn migrated_zone(&self, bytes: &[u8]) -> Result<Box<dyn Engine>, StateError>;
}

impl<R: GameRules> From<Rulebook<R>> for AnyRulebook {
    fn from(rulebook: Rulebook<R>) -> AnyRulebook {
        Arc::new(rulebook)
    }
}

impl<R: GameRules> GameRulebook for Rulebook<R> {
    fn schema(&self) -> &'static GameSchema {
        schema_of::<R::Game>()
    }

    fn version(&self) -> u32 {
        R::Game::VERSION
    }

    fn rulesets(&self) -> Vec<u32> {
        self.rulesets().collect()
    }

    fn beginning_by(&self, ruleset: u32) -> Option<AnyRulebook> {
        self.beginning_by(ruleset).map(AnyRulebook::from)
    }

    fn new_zone(&self, partition: u16) -> Box<dyn Engine> {
        Box::new(Zone::<R::Game>::new(partition, self))
    }

    fn stored_zone(&self, bytes: &[u8]) -> Result<Box<dyn Engine>, StateError> {
        Ok(Box::new(Zone::<R::Game>::decode_state(bytes, self)?))
    }

    fn migrated_zone(&self, bytes: &[u8]) -> Result<Box<dyn Engine>, StateError> {
        Ok(Box::new(Zone::<R::Game>::migrate_state(bytes, self)?))
    }
}

/// Decodes the zones of a game from stored states.
pub trait ZoneDecoder {
    /// A zone, or any zone.
    type Zone: Engine + ?Sized;

    /// Decodes a zone from its stored state.
    fn decode_zone(&self, bytes: &[u8]) -> Result<Box<Self::Zone>, StateError>;

    /// Returns whether a decoded zone has the stored digest: the state is not migrated.
    fn keeps_digest(&self) -> bool {
        true
    }
}

/// Decodes zones from states of another version of the game.
#[derive(Clone)]
pub(crate) struct Migrated(pub AnyRulebook);

impl ZoneDecoder for Migrated {
    type Zone = dyn Engine;

    fn decode_zone(&self, bytes: &[u8]) -> Result<Box<dyn Engine>, StateError> {
        self.0.migrated_zone(bytes)
    }

    fn keeps_digest(&self) -> bool {
        false
    }
}

impl ZoneDecoder for AnyRulebook {
    type Zone = dyn Engine;

    fn decode_zone(&self, bytes: &[u8]) -> Result<Box<dyn Engine>, StateError> {
        self.stored_zone(bytes)
    }
}
