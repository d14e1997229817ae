//! Random events of every kind.
//!
//! They are drawn from the table of all events (`engine/event.rs`), field by field. So a new event
//! takes part in every test that plays a random game. To make its games worth playing, give it a
//! weight and its fields numbers that mean something: [`RandomGame::kind`], [`RandomGame::number`].

use crate::hunt::event::{Action, ActionKind, Event, EventField};
use crate::hunt::event::{Handoff, ItemStack};
use crate::hunt::rules::rulebook::Rulebook;
use crate::kit::event::Subject;
use crate::kit::event::{ActionField, GameAction, Presence};
use crate::kit::field::{ActionWords, FieldForm, FieldSpec};

/// Draws a number below another one, which is not 0.
pub type Below<'a> = &'a mut dyn FnMut(u64) -> u64;

/// What kind of game it is.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Players that take part.
    pub players: u64,
    /// Id of the first of them; the others count on.
    pub first_player_id: u64,
    /// Side of the map, in cm.
    pub side_cm: i32,
    /// Zones that players leave for. Without any, they leave for good.
    pub to_zones: Vec<u16>,
    /// Rules to go on by.
    pub rulesets: Vec<u32>,
    /// Weights of kinds that are to come more or less often than usual.
    pub weights: &'static [(ActionKind, u64)],
    /// One of this many numbers is at the edge of some integer type, whatever its range; 0: none.
    pub edge_one_in: u64,
}

impl Setting {
    /// A few players on the map of these rules, who stay within all ranges.
    pub fn of(rulebook: &Rulebook) -> Setting {
        Setting {
            players: 24,
            first_player_id: 1,
            side_cm: rulebook.first().rules.world.side_cm() as i32,
            to_zones: vec![0, 1, 2],
            rulesets: rulebook.rulesets().collect(),
            weights: &[],
            edge_one_in: 0,
        }
    }
}

/// What a player knows of itself.
#[derive(Clone, Debug)]
struct RandomPlayer {
    seq: u64,
    x: i32,
    y: i32,
    /// Whether it has joined and not left.
    is_here: bool,
}

/// A game that goes on and on: players join, walk, act and leave, and some of it makes no sense.
#[derive(Clone, Debug)]
pub struct RandomGame {
    setting: Setting,
    players: Vec<RandomPlayer>,
    hunts: u64,
    ticks: u64,
    time_ms: i64,
    events: i64,
}

/// Time of the first event, in milliseconds since the Unix epoch.
const BASE_MS: i64 = 1_767_225_600_000;

/// Milliseconds from one event to the next at most, and an event is late at most.
const STEP_MS_MAX: u64 = 40;
const LATE_MS_MAX: u64 = 20;

/// Centimetres that a move goes along each side at most.
const MOVE_CM_MAX: u64 = 700;

impl RandomGame {
    /// A game before its first event. Players will join around the middle of the map.
    pub fn new(setting: Setting) -> RandomGame {
        let middle = setting.side_cm / 2;
        let player = RandomPlayer { seq: 0, x: middle, y: middle, is_here: false };
        let players = vec![player; setting.players as usize];
        RandomGame { setting, players, hunts: 0, ticks: 0, time_ms: BASE_MS, events: 0 }
    }

    /// Whether a player takes part now, as far as it knows.
    pub fn is_here(&self, player_id: u64) -> bool {
        let number = player_id.checked_sub(self.setting.first_player_id);
        let player = number.and_then(|number| self.players.get(number as usize));
        player.is_some_and(|player| player.is_here)
    }

    /// The next event. Some come twice or late.
    pub fn event(&mut self, below: Below) -> Event {
        self.events += 1;
        self.time_ms = self.time_ms.saturating_add(below(STEP_MS_MAX) as i64);
        let player = below(self.setting.players) as usize;
        let kind = self.kind(player, below);
        let action = self.action(kind, player, below);
        let count = |counter: &mut u64, below: Below| {
            *counter = (*counter + u64::from(below(30) > 0)).max(1);
            *counter
        };
        let player_id = self.setting.first_player_id + player as u64;
        let (player_id, seq) = match kind.spec().subject {
            Subject::Player | Subject::Enter | Subject::Leave | Subject::Arrival => {
                (player_id, count(&mut self.players[player].seq, below))
            }
            Subject::World => (0, 0),
            Subject::Tick => (0, count(&mut self.ticks, below)),
        };
        let time_ms = self.time_ms.saturating_sub(below(LATE_MS_MAX) as i64);
        let (offset, ts_us) = (self.events, self.time_ms.saturating_mul(1000));
        self.spoil(Event { offset, time_ms, player_id, seq, ts_us, action }, below)
    }

    /// Puts an edge in the place of a number that stands beside the action.
    fn spoil(&mut self, mut event: Event, below: Below) -> Event {
        match self.edge(below) {
            Some(edge) if below(2) == 0 => event.time_ms = edge as i64,
            Some(edge) if below(2) == 0 => event.player_id = edge,
            Some(edge) if below(8) == 0 => event.seq = edge,
            // The times of all later events.
            Some(edge) if below(8) == 0 => self.time_ms = edge as i64,
            _ => {}
        }
        event
    }

    /// A number at the edge of some type, if there is to be one.
    fn edge(&self, below: Below) -> Option<u64> {
        let one_in = self.setting.edge_one_in;
        if one_in == 0 || below(one_in) > 0 {
            return None;
        }
        let edges = [0u64, 1 << 16, 1 << 31, 1 << 32, 1 << 53, 1 << 63];
        let edge = edges[below(edges.len() as u64) as usize];
        Some(edge.wrapping_add(below(4)).wrapping_sub(2))
    }

    /// What happens next. A player who is not here mostly joins.
    fn kind(&self, player: usize, below: Below) -> ActionKind {
        let usual = |kind: ActionKind| match kind {
            ActionKind::Move => 64,
            ActionKind::Loot => 40,
            ActionKind::Shoot => 30,
            ActionKind::Use => 16,
            ActionKind::Tick => 12,
            ActionKind::Rotate => 10,
            ActionKind::HuntStart | ActionKind::HuntEnd | ActionKind::RulesChange => 2,
            _ => 4,
        };
        let weight = |kind: ActionKind| {
            let changed = self.setting.weights.iter().find(|(changed, _)| *changed == kind);
            changed.map_or_else(|| usual(kind), |(_, weight)| *weight)
        };
        let mut drawn = below(ActionKind::ALL.iter().map(|kind| weight(*kind)).sum());
        let kind = ActionKind::ALL.iter().find(|kind| {
            let is_drawn = drawn < weight(**kind);
            drawn = drawn.saturating_sub(weight(**kind));
            is_drawn
        });
        let kind = *kind.expect("a number below the sum of the weights");
        let is_absent = kind.spec().subject.is_player() && !self.players[player].is_here;
        if is_absent && below(4) > 0 { ActionKind::Join } else { kind }
    }

    fn action(&mut self, kind: ActionKind, player: usize, below: Below) -> Action {
        match kind {
            ActionKind::Join | ActionKind::Arrive => self.players[player].is_here = true,
            ActionKind::Leave => self.players[player].is_here = false,
            ActionKind::HuntStart => self.hunts += 1,
            _ => {}
        }
        self.step(player, below);
        let (mut words, mut carried) = (ActionWords::new(kind as u8), Vec::new());
        for ActionField { field, spec, presence, place } in kind.spec().fields {
            if spec.form == FieldForm::Handoff {
                words.put(*place, 0);
                carried.extend(self.handoff(player, below).to_words());
                continue;
            }
            let is_left_out = *presence == Presence::Optional && below(2) == 0;
            let field = EventField::ALL[usize::from(*field)];
            let number = self.edge(below).or_else(|| self.number(field, kind, player, below));
            if let Some(number) = number.filter(|_| !is_left_out) {
                words.put(*place, number);
            }
        }
        Action::unpack(&words, &carried)
    }

    /// Takes a player some way on, now and then a little beyond the edge of the map.
    fn step(&mut self, player: usize, below: Below) {
        let side_cm = self.setting.side_cm;
        let RandomPlayer { x, y, .. } = &mut self.players[player];
        for along in [x, y] {
            let way_cm = below(2 * MOVE_CM_MAX + 1) as i32 - MOVE_CM_MAX as i32;
            *along = (*along + way_cm).clamp(-9, side_cm + 8);
        }
    }

    /// A number for a field, within its range; `None`: there is none.
    fn number(
        &self,
        field: EventField,
        kind: ActionKind,
        player: usize,
        below: Below,
    ) -> Option<u64> {
        let RandomPlayer { x, y, .. } = self.players[player];
        let one_of = |count: usize, below: Below| (count > 0).then(|| below(count as u64) as usize);
        Some(match field {
            EventField::X => i64::from(x) as u64,
            EventField::Y => i64::from(y) as u64,
            EventField::Heading => below(36_000),
            EventField::Hunt if kind == ActionKind::HuntStart => self.hunts - below(20) / 19,
            EventField::Hunt => below(self.hunts + 2),
            EventField::Seed => below(u64::MAX),
            EventField::Treasures => below(32),
            EventField::DurationMs => below(6_000),
            EventField::ToZone => {
                let zones = &self.setting.to_zones;
                zones[one_of(zones.len(), below)?].into()
            }
            EventField::Ruleset => {
                let rulesets = &self.setting.rulesets;
                rulesets[one_of(rulesets.len(), below)?].into()
            }
            _ => {
                let FieldSpec { least, most, .. } = *field.spec();
                (least + i128::from(below((most - least).min(7) as u64 + 1))) as u64
            }
        })
    }

    fn handoff(&mut self, player: usize, below: Below) -> Handoff {
        let mut draw = |bound: u64| self.edge(below).unwrap_or_else(|| below(bound));
        let mut handoff = Handoff {
            from_zone: draw(4) as u16,
            crossing: draw(1000).max(1) as u32,
            score: draw(500),
            last_seq: draw(self.players[player].seq + 3),
            ..Handoff::default()
        };
        handoff.items =
            handoff.items.map(|_| ItemStack { item: draw(8) as u8, count: draw(5) as u8 });
        handoff.effects = handoff.effects.map(|_| draw(6) as u8);
        handoff.effects_left_ms = handoff.effects_left_ms.map(|_| draw(5_000) as u32);
        handoff
    }
}
