//! Players for a load that resembles a real one.
//!
//! 60 % of the players' events are moves, 20 % rotations, 10 % shots and 10 % loots. Every zone has
//! a tick every second and a new hunt every ten seconds. Players walk: they keep a direction for a
//! while, turn, stay on the map, and stay below the speed that the rules allow.

use crate::hunt::event::Action;
use crate::kit::bots::{BotOptions, Bots, SplitMix64};
use crate::kit::event::GameAction;
use crate::kit::field::ActionWords;

/// Number of weapons of the players: those of the built-in rules.
pub(crate) const BOT_WEAPONS: u8 = 3;

/// Side of the square that players stay in, in thousandths of a centimetre: at high rates a step is
/// shorter than a centimetre.
const WALK_SIDE: i64 = 65_536 * CM;

/// One centimetre.
const CM: i64 = 1000;

/// About an eighth of the speed that the rules allow, so that no step is refused although a zone's
/// clock lags some records behind.
const SPEED_PER_S: i64 = 300 * CM;

/// Longest single step, however long the player stood.
const STEP_MAX: i64 = 50 * CM;

/// Ticks between the starts of two hunts of a zone.
const HUNT_EVERY_TICKS: u64 = 10;

/// Ticks after which a hunt is ended, unless it is left to end by itself.
const HUNT_END_TICKS: u64 = 6;

/// Duration of a hunt that is left to end by itself, in milliseconds.
const HUNT_MS: u32 = 8_000;

/// Treasures of a hunt in a zone.
const HUNT_TREASURES: u16 = 2048;

/// Players who walk.
pub(crate) struct Walkers {
    walkers: Vec<Walker>,
    /// What the world does in each zone at this tick.
    world_action: Action,
}

struct Walker {
    x: i64,
    y: i64,
    heading: u16,
    moved_us: i64,
}

impl Walkers {
    /// Creates players who are anywhere in the square.
    pub(crate) fn new(options: &BotOptions, chance: &mut SplitMix64) -> Walkers {
        let walker = |_| Walker {
            x: chance.below(WALK_SIDE as u64) as i64,
            y: chance.below(WALK_SIDE as u64) as i64,
            heading: chance.below(36_000) as u16,
            moved_us: options.base_us,
        };
        let walkers = (0..options.players()).map(walker).collect();
        Walkers { walkers, world_action: Action::Tick }
    }
}

impl Bots for Walkers {
    fn enter(&mut self, player: usize, time_us: i64) -> ActionWords {
        let walker = &mut self.walkers[player];
        walker.moved_us = time_us;
        let (x, y) = walker.position();
        Action::Join { x, y }.words()
    }

    fn act(&mut self, player: usize, time_us: i64, chance: &mut SplitMix64) -> ActionWords {
        let walker = &mut self.walkers[player];
        let action = match chance.below(100) {
            0..60 => walker.walk(time_us),
            60..80 => walker.turn(chance),
            80..90 => {
                Action::Shoot { weapon: chance.below(BOT_WEAPONS.into()) as u8, heading: None }
            }
            _ => Action::Loot { hunt: None },
        };
        action.words()
    }

    /// Every second is a tick, except when a hunt begins or is ended, in all zones alike.
    fn act_as_world(&mut self, tick: u64, zone: u16, chance: &mut SplitMix64) -> ActionWords {
        if zone == 0 {
            let hunt = (tick / HUNT_EVERY_TICKS) as u32 + 1;
            self.world_action = match (tick - 1) % HUNT_EVERY_TICKS {
                0 => Action::HuntStart {
                    hunt,
                    seed: chance.next(),
                    treasures: HUNT_TREASURES,
                    duration_ms: HUNT_MS,
                },
                HUNT_END_TICKS if hunt.is_multiple_of(2) => Action::HuntEnd { hunt },
                _ => Action::Tick,
            };
        }
        self.world_action.words()
    }
}

impl Walker {
    /// The player's position, in centimetres.
    fn position(&self) -> (i32, i32) {
        ((self.x / CM) as i32, (self.y / CM) as i32)
    }

    fn walk(&mut self, time_us: i64) -> Action {
        let elapsed_us = time_us - self.moved_us;
        self.moved_us = time_us;
        let step = (SPEED_PER_S * elapsed_us / 1_000_000).min(STEP_MAX);
        let (dx, dy) = direction(self.heading);
        let (x, y) = (self.x + dx * step / 100, self.y + dy * step / 100);
        self.x = x.clamp(0, WALK_SIDE - 1);
        self.y = y.clamp(0, WALK_SIDE - 1);
        if (self.x, self.y) != (x, y) {
            self.heading = (self.heading + 18_000) % 36_000;
        }
        let (x, y) = self.position();
        Action::Move { x, y }
    }

    fn turn(&mut self, chance: &mut SplitMix64) -> Action {
        let turned = chance.below(9_000) + 36_000 - 4_500;
        self.heading = ((u64::from(self.heading) + turned) % 36_000) as u16;
        Action::Rotate { heading: self.heading }
    }
}

/// One of eight directions, as hundredths of a step along x and y: never longer than a step.
fn direction(heading: u16) -> (i64, i64) {
    const DIRECTIONS: [(i64, i64); 8] =
        [(100, 0), (70, 70), (0, 100), (-70, 70), (-100, 0), (-70, -70), (0, -100), (70, -70)];
    DIRECTIONS[usize::from(heading) * DIRECTIONS.len() / 36_000]
}
