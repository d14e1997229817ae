//! The hunt as the kit's game: what each event does.

use crate::hunt::actor::Body;
use crate::hunt::change::Change;
use crate::hunt::event::{ActionKind, ActionOf, Handoff, HandoffPlace, action};
use crate::hunt::handoff::HandoffOut;
use crate::hunt::hunts::Hunt;
use crate::hunt::refusal::Refusal;
use crate::hunt::rules::motion::{Allowance, on_rotate};
use crate::hunt::rules::{ENGINE_VERSION, Rules};
use crate::hunt::state::TreasureHunt;
use crate::hunt::{EventOutput, Outcome, Population, Shard};
use crate::kit::engine::{COUNTS_MAX, Departure, ZoneCount};
use crate::kit::event::PlainEvent;
use crate::kit::game::{Game, KitRefusal};
use crate::kit::update::Update;

impl From<KitRefusal> for Refusal {
    fn from(refusal: KitRefusal) -> Refusal {
        match refusal {
            KitRefusal::NoPlayer => Refusal::NoPlayer,
            KitRefusal::NotJoined => Refusal::NotJoined,
            KitRefusal::AlreadyJoined => Refusal::AlreadyJoined,
        }
    }
}

impl Game for TreasureHunt {
    const VERSION: u32 = ENGINE_VERSION as u32;
    const COUNTS: &'static [ZoneCount] = &[
        ("players", "Players in a zone, by partition."),
        ("hunts", "Hunts that run in a zone, by partition."),
        ("treasures", "Treasures in a zone that nobody opened, by partition."),
    ];

    type Action = ActionOf<HandoffPlace>;
    type Update = Change;
    type Refusal = Refusal;

    fn counts(zone: &Shard) -> [u64; COUNTS_MAX] {
        let Population { players, hunts, treasures } = zone.population();
        [players.into(), hunts.into(), treasures.into(), 0]
    }

    #[inline(always)]
    fn may_send_players(event: &PlainEvent) -> bool {
        match action(event) {
            ActionOf::Leave { to_zone } => to_zone.is_some(),
            ActionOf::Arrive { .. } => true,
            _ => false,
        }
    }

    fn departures(zone: u16, updates: &[Update]) -> impl Iterator<Item = Departure> {
        HandoffOut::all(zone, updates)
            .map(|(player_id, ts_us, out)| out.departure(player_id, ts_us))
    }

    fn play_by(&mut self, rules: &Rules) {
        self.paces = Allowance::both(rules);
    }

    fn clock(unix_ms: u64) -> Change {
        Change::Clock { unix_ms }
    }

    fn rules_changed(ruleset: u32) -> Change {
        Change::RulesChanged { ruleset }
    }

    fn refused(refusal: Refusal, event: &PlainEvent) -> Change {
        let action = ActionKind::from_code(event.action.kind()).expect("a kind of the table");
        Change::Refused { refusal, action, seq: event.seq }
    }

    #[inline(always)]
    fn on_time(zone: &mut Shard, event: &PlainEvent, out: &mut EventOutput) {
        if zone.is_anything_due() {
            zone.end_due(event, out);
        }
    }

    #[inline(always)]
    fn on_player(
        zone: &mut Shard,
        row: u32,
        body: &mut Body,
        event: &PlainEvent,
        out: &mut EventOutput,
    ) -> Result<(), Refusal> {
        match action(event) {
            ActionOf::Move { x, y } if !body.downed() => zone.on_move(row, body, x, y, out),
            ActionOf::Rotate { heading } if !body.downed() => on_rotate(body, heading, out),
            _ => {
                // A copy, so that steps and turns keep their body in registers.
                let mut copy = *body;
                let decided = zone.on_rarer_action(row, &mut copy, event, out);
                *body = copy;
                decided
            }
        }
    }

    fn on_enter(
        zone: &mut Shard,
        event: &PlainEvent,
        out: &mut EventOutput,
    ) -> Result<(), Refusal> {
        match action(event) {
            ActionOf::Join { x, y } => zone.on_join(event.player_id, event.seq, x, y, out),
            _ => unreachable!("the only way in"),
        }
    }

    fn on_leave(
        zone: &mut Shard,
        row: u32,
        body: Body,
        event: &PlainEvent,
        out: &mut EventOutput,
    ) -> Result<(), Refusal> {
        match action(event) {
            ActionOf::Leave { to_zone } => zone.on_leave(row, body, to_zone, out),
            _ => unreachable!("the only way out"),
        }
    }

    fn on_arrive(
        zone: &mut Shard,
        event: &PlainEvent,
        carried: &[u64],
        out: &mut EventOutput,
    ) -> Outcome {
        match action(event) {
            ActionOf::Arrive { x, y, handoff } => zone
                .on_arrive(event.player_id, (x, y), &Handoff::at(carried, handoff), out)
                .unwrap_or_else(Outcome::Refused),
            _ => unreachable!("the only arrival"),
        }
    }

    fn on_world(zone: &mut Shard, event: &PlainEvent, out: &mut EventOutput) -> Outcome {
        match action(event) {
            ActionOf::RulesChange { ruleset } => zone.on_rules_change(ruleset, out),
            ActionOf::HuntStart { hunt, seed, treasures, duration_ms } => {
                let start = Hunt { hunt, seed, treasures, ..Hunt::default() };
                zone.on_hunt_start(start, duration_ms, out).unwrap_or_else(Outcome::Refused)
            }
            ActionOf::HuntEnd { hunt } => {
                zone.on_hunt_end(hunt, out).unwrap_or_else(Outcome::Refused)
            }
            ActionOf::Tick
            | ActionOf::Join { .. }
            | ActionOf::Leave { .. }
            | ActionOf::Arrive { .. }
            | ActionOf::Move { .. }
            | ActionOf::Rotate { .. }
            | ActionOf::Shoot { .. }
            | ActionOf::Loot { .. }
            | ActionOf::Use { .. } => unreachable!("handled before"),
        }
    }

    #[inline(always)]
    fn on_end(zone: &mut Shard, is_tick: bool, out: &mut EventOutput) {
        zone.work_on_hunts(is_tick, out);
    }
}

impl Shard {
    /// Processes actions other than a plain step or turn.
    #[inline(never)]
    fn on_rarer_action(
        &mut self,
        row: u32,
        body: &mut Body,
        event: &PlainEvent,
        out: &mut EventOutput,
    ) -> Result<(), Refusal> {
        match action(event) {
            _ if body.downed() => Err(Refusal::Downed),
            ActionOf::Shoot { weapon, heading } => self.on_shoot(row, body, weapon, heading, out),
            ActionOf::Use { item } => self.on_use(row, body, item, out),
            ActionOf::Loot { hunt } => self.on_loot(row, body, hunt, out),
            ActionOf::Move { .. }
            | ActionOf::Rotate { .. }
            | ActionOf::Join { .. }
            | ActionOf::Leave { .. }
            | ActionOf::Arrive { .. }
            | ActionOf::Tick
            | ActionOf::RulesChange { .. }
            | ActionOf::HuntStart { .. }
            | ActionOf::HuntEnd { .. } => unreachable!("handled before"),
        }
    }
}
