//! The players: what they write into the input, and the rules of a world that is small.

use crate::chance::{Chance, Fault};
use huntd::engine::event::Action;
use huntd::engine::rules::rulebook::Rulebook;
use huntd::output::event_json::write_event;
use huntd::service::rules::built_in;

/// Milliseconds since the Unix epoch at the simulation's start.
pub(crate) const EPOCH_MS: i64 = 1_767_225_600_000;

const PLAYERS: u64 = 6;

/// The built-in rules on a map that is quickly made, and some to change to.
pub(crate) fn rulebook() -> Rulebook {
    let mut rules = built_in();
    rules.world.tiles_per_side = 16;
    rules.actors.count_max = 16;
    rules.actors.per_tile_max = 4;
    rules.hunts.treasures_max = 16;
    let mut others = rules.clone();
    others.actors.health = 60;
    others.world.speed_cm_per_s_max *= 2;
    let mut rulebook = Rulebook::of(rules);
    rulebook.add(others).expect("the map is the same");
    rulebook
}

/// A record to be appended.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) time_ms: i64,
    pub(crate) value: Option<Vec<u8>>,
}

/// What one zone's players have done so far.
pub(crate) struct Game {
    partition: u16,
    zones: u16,
    seqs: [u64; PLAYERS as usize],
    /// Whether each player has joined this zone, as far as it knows.
    here: [bool; PLAYERS as usize],
    ticks: u64,
    rulesets: Vec<u64>,
    hunts: u32,
}

impl Game {
    pub(crate) fn new(partition: u16, zones: u16, rulebook: &Rulebook) -> Game {
        Game {
            partition,
            zones,
            seqs: [0; 6],
            here: [false; 6],
            ticks: 0,
            rulesets: rulebook.rulesets().map(u64::from).collect(),
            hunts: 0,
        }
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
        let mut value = Vec::new();
        let (player_id, seq, action) = self.action(chance);
        write_event(&mut value, player_id, seq, ts_us, &action);
        Record { time_ms, value: Some(value) }
    }

    fn action(&mut self, chance: &mut Chance) -> (u64, u64, Action) {
        match chance.below(20) {
            0 => {
                self.ticks += 1;
                return (0, self.ticks, Action::Tick);
            }
            1 if chance.one_in(4) => {
                let ruleset = chance.pick(&self.rulesets) as u32;
                return (0, 0, Action::RulesChange { ruleset });
            }
            1 => return (0, 0, self.hunt(chance)),
            _ => {}
        }
        let player = chance.below(PLAYERS) as usize;
        // Now and then a producer sends an event again.
        if !chance.one_in(20) {
            self.seqs[player] += 1;
        }
        let action = if chance.strikes_of(Fault::Poison, 1) && self.here[player] {
            // No player leaves for where it is: simulated engines fail at that (`node.rs`).
            Action::Leave { to_zone: Some(self.partition) }
        } else if !self.here[player] || chance.one_in(25) {
            self.here[player] = true;
            Action::Join { x: position(chance), y: position(chance) }
        } else {
            self.deed(chance, player)
        };
        (u64::from(self.partition) * 100 + player as u64 + 1, self.seqs[player].max(1), action)
    }

    fn deed(&mut self, chance: &mut Chance, player: usize) -> Action {
        match chance.below(12) {
            0..=4 => Action::Move { x: position(chance), y: position(chance) },
            5 | 6 => Action::Rotate { heading: chance.below(36_000) as u16 },
            7 => Action::Shoot { weapon: chance.below(4) as u8, heading: None },
            8 | 9 => Action::Loot { hunt: None },
            10 => Action::Use { item: chance.between(1, 6) as u8 },
            _ => {
                self.here[player] = false;
                let other = (self.partition + 1) % self.zones;
                let crosses = other != self.partition && chance.one_in(2);
                Action::Leave { to_zone: crosses.then_some(other) }
            }
        }
    }

    fn hunt(&mut self, chance: &mut Chance) -> Action {
        if self.hunts > 0 && chance.one_in(3) {
            return Action::HuntEnd { hunt: self.hunts };
        }
        self.hunts += 1;
        let (seed, treasures) = (chance.next() >> 12, chance.between(1, 12) as u16);
        let duration_ms = chance.between(100, 5_000) as u32;
        Action::HuntStart { hunt: self.hunts, seed, treasures, duration_ms }
    }
}

/// Mostly near the middle, sometimes off the map.
fn position(chance: &mut Chance) -> i32 {
    match chance.one_in(30) {
        true => 20_000,
        false => 6_000 + chance.below(4_000) as i32,
    }
}

fn no_event(chance: &mut Chance) -> Option<Vec<u8>> {
    match chance.below(4) {
        0 => None,
        1 => Some(b"{\"type\":\"dance\",\"player_id\":1,\"seq\":1,\"ts_us\":1}".to_vec()),
        2 => Some(b"{\"type\":".to_vec()),
        _ => Some(vec![0xff; 3]),
    }
}
