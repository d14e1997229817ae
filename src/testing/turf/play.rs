//! What all editions of turf have: its events, updates and rules.

use super::edition::{Round, Runner};
use crate::kit::engine::{AnyRulebook, COUNTS_MAX, any_rulebook};
use crate::kit::event::{Event, PlainEvent};
use crate::kit::game::{Game, KitRefusal, OutcomeOf};
use crate::kit::mix;
use crate::kit::packed::Packed;
use crate::kit::rulebook::{GameRules, Rulebook, RulesError};
use crate::kit::stored_names::Migration;
use crate::kit::tombstones::Tombstone;
use crate::kit::zone::{EventOutput, Outcome, Zone};
use crate::testing::random::Random;
use crate::testing::turf::TurfEdition;
use std::cell::Cell;

list! {
    /// Why an event was refused.
    TurfRefusal {
        /// The player id is 0.
        NoPlayer = 0 "no_player",
        /// The player is not in the zone.
        NotJoined = 1 "not_joined",
        /// The player is in the zone already.
        AlreadyJoined = 2 "already_joined",
        /// The zone is full.
        ZoneFull = 3 "zone_full",
        /// There is no such field.
        OffMap = 4 "off_map",
        /// No round runs, or one already runs.
        NotNow = 5 "not_now",
        /// The field has the team's colour.
        OwnField = 6 "own_field",
    }
}

kinds! {
    /// The published updates.
    pub enum TurfUpdate {
        /// An event was refused.
        Refused = 1 "refused" untimed Refusal {
            reason: TurfRefusal = Code Name "reason",
            seq: u64 = Long Number "seq",
        },
        /// A player is on a field.
        Placed = 2 "placed" untimed Player {
            team: u8 = Code Number "team",
            field: u32 = Word Number "field",
        },
        /// A field was painted.
        Painted = 3 "painted" timed Player {
            field: u32 = Word Number "field",
            score: u64 = Long Number "score",
        },
        /// A player has left.
        Left = 4 "left" untimed Leave { seq: u64 = Long Number "seq", },
        /// A round began.
        Began = 5 "began" timed World { seconds: u16 = Short Number "seconds", },
        /// A round is over.
        Ended = 6 "ended" untimed World {
            red: u32 = Low Number "red",
            blue: u32 = High Number "blue",
        },
        /// The zone's clock.
        Clock = 7 "clock" untimed Clock { unix_ms: u64 = Long Number "unix_ms", },
        /// The zone uses other rules.
        RulesChanged = 8 "rules_changed" untimed Rules { ruleset: u32 = Word Number "ruleset", },
        /// A player entered the zone.
        Joined = 9 "joined" untimed Enter {
            team: u8 = Code Number "team",
            field: u32 = Word Number "field",
        },
    }
}

events! {
    /// The events of turf.
    TURF_EVENTS = &[];
    fields TurfField {
        /// A field of the zone.
        Field = "field" Integer[0, u32::MAX],
        /// 1 for a step east, 0 for a step north.
        East = "east" Integer[0, 1],
        /// The length of a round.
        Seconds = "seconds" Integer[0, u16::MAX],
    }
    kinds TurfKind;
    /// An action of a player or the world.
    actions TurfAction {
        /// The player enters the zone.
        Join = 0 "join" Enter { field: u32 = Field Required, },
        /// The player goes one field on.
        Step = 1 "step" Player { east: u8 = East Required, },
        /// The player paints its field.
        Paint = 2 "paint" Player,
        /// The player leaves the game.
        Leave = 3 "leave" Leave,
        /// A round begins.
        Round = 4 "round" World { seconds: u16 = Seconds Required, },
        /// Time passes.
        Tick = 5 "tick" Tick,
    }
}

/// Faults that a game could have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurfFault {
    /// What decides is in no table.
    HiddenState,
    /// A deciding value is in no digest and no stored state, but depends on a row's position.
    RowNumber,
}

/// The rules.
#[derive(Clone, Debug)]
pub struct TurfRules {
    /// The fields along a side of the zone.
    pub side: u32,
    /// Limit of players in a zone.
    pub players_max: u32,
    /// The game's fault, if it has one.
    pub fault: Option<TurfFault>,
}

impl GameRules for TurfRules {
    fn check(&self) -> Result<(), RulesError> {
        match self.side {
            1..=64 => Ok(()),
            _ => Err(RulesError { key: "side", must_be: "1..=64" }),
        }
    }

    fn check_beside(&self, other: &TurfRules) -> Result<(), RulesError> {
        match self.side == other.side {
            true => Ok(()),
            false => Err(RulesError { key: "side", must_be: "as in the first rules" }),
        }
    }

    fn hash(&self) -> u32 {
        let TurfRules { side, players_max, fault: _ } = *self;
        mix::hash(&[Runner::VERSION.into(), side.into(), players_max.into()], 1) as u32
    }
}

row! {
    /// A field: the team that painted it, from 1; 0 before that.
    numbered Field { team: u8, }
}

state! {
    /// The state of turf in one zone.
    Turf of b"TURFSTA\x01" by rules: TurfRules {
        players: Players<Runner> = rules.players_max,
        fields: Numbered<Field> = rules.fields(),
        round: Numbered<Round> = 1,
    }
}

impl From<KitRefusal> for TurfRefusal {
    fn from(refusal: KitRefusal) -> TurfRefusal {
        match refusal {
            KitRefusal::NoPlayer => TurfRefusal::NoPlayer,
            KitRefusal::NotJoined => TurfRefusal::NotJoined,
            KitRefusal::AlreadyJoined => TurfRefusal::AlreadyJoined,
        }
    }
}

impl TurfRules {
    fn fields(&self) -> u32 {
        self.side * self.side
    }
}

fn action(event: &PlainEvent) -> TurfAction {
    event.unpack(&[]).action
}

thread_local! {
    /// State that is in no table.
    static HIDDEN: Cell<u64> = const { Cell::new(0) };
}

impl Game for Turf {
    const VERSION: u32 = Runner::VERSION;
    const MIGRATIONS: &'static [Migration] = Runner::MIGRATIONS;
    const COUNTS: &'static [&'static str] = &["players"];

    type Action = TurfAction;
    type Update = TurfUpdate;
    type Refusal = TurfRefusal;

    fn counts(zone: &Zone<Turf>) -> [u64; COUNTS_MAX] {
        [zone.game.players.count().into(), 0, 0, 0]
    }

    fn play_by(&mut self, _: &TurfRules) {}

    fn clock(unix_ms: u64) -> TurfUpdate {
        TurfUpdate::Clock { unix_ms }
    }

    fn rules_changed(ruleset: u32) -> TurfUpdate {
        TurfUpdate::RulesChanged { ruleset }
    }

    fn refused(reason: TurfRefusal, event: &PlainEvent) -> TurfUpdate {
        TurfUpdate::Refused { reason, seq: event.seq }
    }

    fn on_time(zone: &mut Zone<Turf>, out: &mut EventOutput<Turf>) {
        let Round { ends_ms, red, blue } = *zone.game.round.row(0);
        if ends_ms > 0 && ends_ms <= zone.clock.now_ms() {
            zone.game.round.write(0, Round { ends_ms: 0, red, blue });
            out.push(
                0,
                TurfUpdate::Ended { red: red.to_bits() as u32, blue: blue.to_bits() as u32 },
            );
        }
    }

    fn settle(_: &mut Zone<Turf>, _: u32, player: Runner, _: &mut EventOutput<Turf>) -> Runner {
        player
    }

    fn on_player(
        zone: &mut Zone<Turf>,
        row: u32,
        runner: &mut Runner,
        event: &PlainEvent,
        out: &mut EventOutput<Turf>,
    ) -> Result<(), TurfRefusal> {
        let (fields, team) = (zone.rules.fields(), runner.team);
        match action(event) {
            TurfAction::Step { east } => {
                let to = if east == 1 { runner.field + 1 } else { runner.field + zone.rules.side };
                if to >= fields {
                    return Err(TurfRefusal::OffMap);
                }
                runner.field = to;
                runner.stepped();
                out.push(runner.player_id, TurfUpdate::Placed { team, field: to });
                Ok(())
            }
            TurfAction::Paint => {
                let mut round = *zone.game.round.row(0);
                if round.ends_ms == 0 {
                    return Err(TurfRefusal::NotNow);
                }
                if zone.game.fields.row(runner.field).team == team {
                    return Err(TurfRefusal::OwnField);
                }
                zone.game.fields.write(runner.field, Field { team });
                *if team == 1 { &mut round.red } else { &mut round.blue } += 1;
                zone.game.round.write(0, round);
                let points = match zone.rules.fault {
                    None => runner.reward(),
                    Some(TurfFault::HiddenState) => HIDDEN.replace(HIDDEN.get() + 1),
                    Some(TurfFault::RowNumber) => u64::from(row) + 1,
                };
                runner.score += points;
                let (field, score) = (runner.field, runner.score);
                out.push(runner.player_id, TurfUpdate::Painted { field, score });
                Ok(())
            }
            _ => unreachable!("handled before"),
        }
    }

    fn on_enter(
        zone: &mut Zone<Turf>,
        event: &PlainEvent,
        out: &mut EventOutput<Turf>,
    ) -> Result<(), TurfRefusal> {
        let TurfAction::Join { field } = action(event) else { unreachable!("the only way in") };
        if zone.game.players.count() == zone.rules.players_max {
            return Err(TurfRefusal::ZoneFull);
        }
        if field >= zone.rules.fields() {
            return Err(TurfRefusal::OffMap);
        }
        let Event { player_id, seq, .. } = *event;
        zone.tombstones.take(player_id);
        let team = 1 + (player_id % 2) as u8;
        zone.game.players.add(Runner { player_id, seq, field, team, ..Runner::default() });
        out.push(player_id, TurfUpdate::Joined { team, field });
        Ok(())
    }

    fn on_leave(
        zone: &mut Zone<Turf>,
        row: u32,
        Runner { player_id, seq, .. }: Runner,
        _: &PlainEvent,
        out: &mut EventOutput<Turf>,
    ) -> Result<(), TurfRefusal> {
        zone.game.players.remove(row);
        zone.tombstones.put(Tombstone { player_id, seq, ..Tombstone::default() });
        out.push(player_id, TurfUpdate::Left { seq });
        Ok(())
    }

    fn on_arrive(
        _: &mut Zone<Turf>,
        _: &PlainEvent,
        _: &[u64],
        _: &mut EventOutput<Turf>,
    ) -> OutcomeOf<Turf> {
        unreachable!("nobody comes from another zone")
    }

    fn on_world(
        zone: &mut Zone<Turf>,
        event: &PlainEvent,
        out: &mut EventOutput<Turf>,
    ) -> OutcomeOf<Turf> {
        let TurfAction::Round { seconds } = action(event) else { unreachable!("the only one") };
        if zone.game.round.row(0).ends_ms > 0 {
            return Outcome::Refused(TurfRefusal::NotNow);
        }
        (0..zone.rules.fields()).for_each(|field| zone.game.fields.write(field, Field { team: 0 }));
        let ends_ms = zone.clock.now_ms() + 1 + u64::from(seconds) * 1000;
        zone.game.round.write(0, Round { ends_ms, red: 0, blue: 0 });
        out.push(0, TurfUpdate::Began { seconds });
        Outcome::Applied
    }

    fn on_end(_: &mut Zone<Turf>, _: bool, _: &mut EventOutput<Turf>) {}
}

/// A small zone.
pub const SMALL_RULES: TurfRules = TurfRules { side: 8, players_max: 6, fault: None };

/// Random events of every kind, most of them new and in range.
pub fn random_events(random: &mut Random, count: i64) -> Vec<Event<TurfAction>> {
    let (mut seqs, mut time_ms) = ([0; 10], 1_000_000);
    let event = |offset| {
        time_ms += random.below(40) as i64;
        let action = match random.below(20) {
            0..3 => TurfAction::Join { field: random.below(70) as u32 },
            3..10 => TurfAction::Step { east: u8::from(random.below(3) > 0) },
            10..16 => TurfAction::Paint,
            16 => TurfAction::Leave,
            17 => TurfAction::Round { seconds: random.below(3) as u16 },
            _ => TurfAction::Tick,
        };
        let player =
            if action.kind().spec().subject.is_world() { 0 } else { random.below(10) as usize };
        seqs[player] += u64::from(random.below(30) > 0);
        let (player_id, seq) = (player as u64, seqs[player]);
        Event { offset, time_ms, player_id, seq, ts_us: 7, action }
    };
    (0..count).map(event).collect()
}

impl From<Rulebook<TurfRules>> for AnyRulebook {
    fn from(rulebook: Rulebook<TurfRules>) -> AnyRulebook {
        any_rulebook::<Turf>(rulebook)
    }
}
