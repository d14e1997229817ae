//! A game that does what turf does not: its events remove players, and make any number of updates.
#![allow(unreachable_pub, reason = "the macros declare what other modules see")]

use crate::kit::engine::{COUNTS_MAX, ZoneCount};
use crate::kit::event::{Event, PlainEvent};
use crate::kit::game::{Game, OutcomeOf};
use crate::kit::rulebook::{GameRules, Rulebook, RulesError};
use crate::kit::update::{EVENT_UPDATES_MAX, Updates};
use crate::kit::zone::{EventOutput, Outcome, Zone};
use crate::testing::turf::events::{TurfAction, TurfRefusal, TurfUpdate};
use std::panic::{AssertUnwindSafe, catch_unwind};

#[derive(Clone, Debug)]
pub struct RelayRules {
    players_max: u32,
}

const RULES: RelayRules = RelayRules { players_max: 10 };

impl GameRules for RelayRules {
    type Game = Relay;

    fn check(&self) -> Result<(), RulesError> {
        Ok(())
    }

    fn check_beside(&self, _: &RelayRules) -> Result<(), RulesError> {
        Ok(())
    }

    fn hash(&self) -> u32 {
        1
    }
}

row! {
    /// A player.
    player Runner { steps: u64, }
}

row! {
    /// The round.
    numbered Round { number: u32, }
}

state! {
    /// A player who paints is out, and the next one has its place.
    Relay of b"RELAYST\x01" by rules: RelayRules {
        players: Players<Runner> = rules.players_max,
        rounds: Numbered<Round> = 1,
    }
}

impl Game for Relay {
    const VERSION: u32 = 1;
    const COUNTS: &'static [ZoneCount] = &[];

    type Action = TurfAction;
    type Update = TurfUpdate;
    type Refusal = TurfRefusal;

    fn counts(_: &Zone<Relay>) -> [u64; COUNTS_MAX] {
        [0; COUNTS_MAX]
    }

    fn play_by(&mut self, _: &RelayRules) {}

    fn clock(unix_ms: u64) -> TurfUpdate {
        TurfUpdate::Clock { unix_ms }
    }

    fn rules_changed(ruleset: u32) -> TurfUpdate {
        TurfUpdate::RulesChanged { ruleset }
    }

    fn refused(reason: TurfRefusal, event: &PlainEvent) -> TurfUpdate {
        TurfUpdate::Refused { reason, seq: event.seq }
    }

    fn on_time(_: &mut Zone<Relay>, _: &PlainEvent, _: &mut EventOutput<Relay>) {}

    fn on_player(
        zone: &mut Zone<Relay>,
        row: u32,
        runner: &mut Runner,
        event: &PlainEvent,
        _: &mut EventOutput<Relay>,
    ) -> Result<(), TurfRefusal> {
        runner.steps += 1;
        match event.unpack(&[]).action {
            TurfAction::Paint => {
                zone.game.players.remove(row);
                let next = Runner { player_id: event.player_id + 1, ..Runner::default() };
                assert_eq!(zone.game.players.add(next), row);
            }
            TurfAction::Step { east: 0 } => {
                zone.game.players.remove(row);
                return Err(TurfRefusal::OffMap);
            }
            _ => {}
        }
        Ok(())
    }

    fn on_enter(
        zone: &mut Zone<Relay>,
        &Event { player_id, seq, .. }: &PlainEvent,
        _: &mut EventOutput<Relay>,
    ) -> Result<(), TurfRefusal> {
        zone.game.players.add(Runner { player_id, seq, steps: 0 });
        Ok(())
    }

    fn on_leave(
        zone: &mut Zone<Relay>,
        row: u32,
        _: Runner,
        _: &PlainEvent,
        _: &mut EventOutput<Relay>,
    ) -> Result<(), TurfRefusal> {
        zone.game.players.remove(row);
        Err(TurfRefusal::OffMap)
    }

    fn on_arrive(
        _: &mut Zone<Relay>,
        _: &PlainEvent,
        _: &[u64],
        _: &mut EventOutput<Relay>,
    ) -> OutcomeOf<Relay> {
        unreachable!("nobody comes from another zone")
    }

    fn on_world(
        _: &mut Zone<Relay>,
        event: &PlainEvent,
        out: &mut EventOutput<Relay>,
    ) -> OutcomeOf<Relay> {
        let TurfAction::Round { seconds } = event.unpack(&[]).action else {
            unreachable!("the only one")
        };
        (0..seconds).for_each(|_| out.push(0, TurfUpdate::Left { seq: 0 }));
        Outcome::Refused(TurfRefusal::NotNow)
    }

    fn on_end(_: &mut Zone<Relay>, _: bool, _: &mut EventOutput<Relay>) {}
}

fn play(zone: &mut Zone<Relay>, seq: u64, player_id: u64, action: TurfAction) -> usize {
    let mut updates = Updates::new();
    let event = Event { offset: 0, time_ms: 1000, player_id, seq, ts_us: 1, action };
    zone.apply(&event, &mut updates);
    updates.len()
}

/// A zone in which player 7 has taken a step.
fn zone() -> Zone<Relay> {
    let mut zone = Zone::<Relay>::new(0, &Rulebook::of(RULES));
    play(&mut zone, 1, 7, TurfAction::Join { field: 0 });
    play(&mut zone, 2, 7, TurfAction::Step { east: 1 });
    zone
}

#[test]
fn a_player_whom_its_own_event_removes_does_not_come_back() {
    let empty = Zone::<Relay>::new(0, &Rulebook::of(RULES)).game.players.digest();
    let row = |zone: &Zone<Relay>| *zone.game.players.row(0);
    assert_eq!(row(&zone()), Runner { player_id: 7, seq: 2, steps: 1 });
    for action in [TurfAction::Step { east: 0 }, TurfAction::Leave] {
        let mut zone = zone();
        play(&mut zone, 3, 7, action);
        assert_eq!((zone.game.players.find(7), row(&zone).player_id), (None, 0), "{action:?}");
        assert_eq!(zone.game.players.digest(), empty);
    }
    let mut zone = zone();
    play(&mut zone, 3, 7, TurfAction::Paint);
    assert_eq!((zone.game.players.find(7), zone.game.players.find(8)), (None, Some(0)));
    assert_eq!(row(&zone), Runner { player_id: 8, ..Runner::default() });
}

#[test]
fn an_event_that_makes_too_many_updates_panics_however_much_room_there_is() {
    // The refusal is one of them.
    let most = EVENT_UPDATES_MAX as u16 - 1;
    let made = |seconds| play(&mut zone(), 0, 0, TurfAction::Round { seconds });
    assert_eq!(made(most), EVENT_UPDATES_MAX);
    assert!(catch_unwind(AssertUnwindSafe(|| made(most + 1))).is_err());
}
