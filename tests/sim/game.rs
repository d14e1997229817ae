//! The players: what they write into the input, and the rules of a small world.

use crate::chance::{Chance, Fault};
use huntd::hunt::event::{Action, ActionKind, Event};
use huntd::hunt::rules::Rules;
use huntd::hunt::rules::rulebook::Rulebook;
use huntd::hunt::rules_file::built_in;
use huntd::output::event_json::write_event;
use huntd::testing::random_game::{RandomGame, Setting};

/// Milliseconds since the Unix epoch at the simulation's start.
pub(crate) const EPOCH_MS: i64 = 1_767_225_600_000;

const PLAYERS: u64 = 6;

/// The built-in rules on a map that is quickly made, and some to change to.
pub(crate) fn rulebook() -> Rulebook {
    let mut others = small_rules();
    others.actors.health = 60;
    others.world.speed_cm_per_s_max *= 2;
    let mut rulebook = fewer_rules();
    rulebook.add(others).expect("the map is the same");
    rulebook
}

/// The built-in rules on that map, without others to change to.
pub(crate) fn fewer_rules() -> Rulebook {
    Rulebook::of(small_rules())
}

/// The rules of the second edition, on that map. A view does not learn of them, so nothing that it
/// shows follows from what is other in them.
pub(crate) fn later_rules() -> Rules {
    let mut rules = small_rules();
    rules.world.speed_cm_per_s_max *= 3;
    rules.points.iter_mut().for_each(|points| points.points += 1);
    rules
}

fn small_rules() -> Rules {
    let mut rules = built_in();
    rules.world.tiles_per_side = 16;
    rules.actors.count_max = 16;
    rules.actors.per_tile_max = 4;
    rules.hunts.treasures_max = 32;
    rules
}

/// A record to be appended.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) time_ms: i64,
    pub(crate) value: Option<Vec<u8>>,
}

/// Kinds of actions with odds of their own: hunts are short, and arrivals are huntd's to write.
pub(crate) const WEIGHTS: &[(ActionKind, u64)] =
    &[(ActionKind::Arrive, 0), (ActionKind::Leave, 14), (ActionKind::HuntStart, 8)];

/// The same where no event names rules: another edition does not have them.
pub(crate) const WEIGHTS_OF_EDITIONS: &[(ActionKind, u64)] = &[
    (ActionKind::Arrive, 0),
    (ActionKind::Leave, 14),
    (ActionKind::HuntStart, 8),
    (ActionKind::RulesChange, 0),
];

/// What one zone's players do.
pub(crate) struct Game {
    partition: u16,
    events: RandomGame,
}

impl Game {
    pub(crate) fn new(
        partition: u16,
        zones: u16,
        rulebook: &Rulebook,
        weights: &'static [(ActionKind, u64)],
    ) -> Game {
        let setting = Setting {
            players: PLAYERS,
            first_player_id: first_player_id(partition),
            to_zones: (0..zones).filter(|zone| *zone != partition).collect(),
            weights,
            ..Setting::of(rulebook)
        };
        Game { partition, events: RandomGame::new(setting) }
    }

    /// What happens next in the zone.
    pub(crate) fn record(&mut self, chance: &mut Chance, now_us: u64) -> Record {
        let mut time_ms = EPOCH_MS + (now_us / 1000) as i64;
        if chance.strikes_of(Fault::TimeBack, 3) {
            time_ms -= chance.pick(&[1, 5_000, 3_600_000]) as i64;
        }
        if chance.strikes_of(Fault::TimeAhead, 3) {
            time_ms += chance.pick(&[60_000, 315_360_000_000]) as i64;
        }
        if chance.strikes_of(Fault::NoEvent, 3) {
            return Record { time_ms, value: no_event(chance) };
        }
        let ts_us = EPOCH_MS * 1000 + now_us as i64;
        let Event { player_id, seq, mut action, .. } =
            self.events.event(&mut |bound| chance.below(bound));
        if self.events.is_here(player_id) && chance.strikes_of(Fault::Poison, 1) {
            // No player leaves for where it is: simulated engines fail at that (`node.rs`).
            action = Action::Leave { to_zone: Some(self.partition) };
        }
        let mut value = Vec::new();
        write_event(&mut value, player_id, seq, ts_us, &action);
        Record { time_ms, value: Some(value) }
    }
}

/// The players that began in a zone leave the world, whatever they did before.
pub(crate) fn farewells(zone: u16, now_us: u64) -> impl Iterator<Item = Record> {
    let ids = first_player_id(zone)..first_player_id(zone) + PLAYERS;
    ids.map(move |player_id| {
        let (time_ms, mut value) = (EPOCH_MS + (now_us / 1000) as i64, Vec::new());
        let leave = Action::Leave { to_zone: None };
        write_event(&mut value, player_id, i64::MAX.cast_unsigned(), time_ms * 1000, &leave);
        Record { time_ms, value: Some(value) }
    })
}

fn first_player_id(zone: u16) -> u64 {
    u64::from(zone) * 100 + 1
}

fn no_event(chance: &mut Chance) -> Option<Vec<u8>> {
    match chance.below(4) {
        0 => None,
        1 => Some(b"{\"type\":\"dance\",\"player_id\":1,\"seq\":1,\"ts_us\":1}".to_vec()),
        2 => Some(b"{\"type\":".to_vec()),
        _ => Some(vec![0xff; 3]),
    }
}
