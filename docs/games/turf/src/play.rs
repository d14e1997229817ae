//! What all versions of turf have: the rules, the state, and what each event does to it.

use super::super::events::{TurfAction, TurfRefusal, TurfUpdate};
use super::edition::{Round, Runner};
use huntd::kit::engine::{COUNTS_MAX, ZoneCount};
use huntd::kit::event::{Event, PlainEvent};
use huntd::kit::game::{Game, OutcomeOf};
use huntd::kit::mix;
use huntd::kit::packed::Packed;
use huntd::kit::rulebook::{GameRules, RulesError, kit_hash};
use huntd::kit::stored_names::Migration;
use huntd::kit::tombstones::Tombstone;
use huntd::kit::zone::{EventOutput, Outcome, Zone};
use serde::Deserialize;

/// The rules.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TurfRules {
    /// The fields along a side of the zone.
    pub side: u32,
    /// Limit of players in a zone.
    pub players_max: u32,
}

impl GameRules for TurfRules {
    type Game = Turf;

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
        let TurfRules { side, players_max } = *self;
        let version = Runner::VERSION.into();
        mix::hash(&[kit_hash(), version, side.into(), players_max.into()], 1) as u32
    }
}

huntd::row! {
    /// A field: the team that painted it, from 1; 0 before that.
    numbered Field { team: u8, }
}

huntd::state! {
    /// The state of turf in one zone.
    Turf of b"TURFSTA\x01" by rules: TurfRules {
        players: Players<Runner> = rules.players_max,
        fields: Numbered<Field> = rules.fields(),
        round: Numbered<Round> = 1,
    }
}

impl TurfRules {
    /// Returns the number of fields of a zone.
    pub(crate) fn fields(&self) -> u32 {
        self.side * self.side
    }
}

fn action(event: &PlainEvent) -> TurfAction {
    event.unpack(&[]).action
}

impl Game for Turf {
    const VERSION: u32 = Runner::VERSION;
    const MIGRATIONS: &'static [Migration] = Runner::MIGRATIONS;
    const COUNTS: &'static [ZoneCount] = &[("players", "Players in a zone, by partition.")];

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

    fn on_time(zone: &mut Zone<Turf>, _: &PlainEvent, out: &mut EventOutput<Turf>) {
        let Round { ends_ms, red, blue } = *zone.game.round.row(0);
        if ends_ms > 0 && ends_ms <= zone.clock.now_ms() {
            zone.game.round.write(0, Round { ends_ms: 0, red, blue });
            out.push(
                0,
                TurfUpdate::Ended { red: red.to_bits() as u32, blue: blue.to_bits() as u32 },
            );
        }
    }

    fn on_player(
        zone: &mut Zone<Turf>,
        _: u32,
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
                runner.score += runner.reward();
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
