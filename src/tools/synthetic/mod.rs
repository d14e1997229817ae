//! A generated load that resembles a real one; equal seeds yield equal loads.
//!
//! First every player joins its zone. Then 60 % of the players' events are moves, 20 % rotations,
//! 10 % shots and 10 % loots. Every zone has a tick every second and a new hunt every ten seconds.
//! Players walk: they keep a direction for a while, turn, stay on the map, and stay below the speed
//! that the rules allow. The load that a demo's page shows is another one: its players hunt.

mod hunters;

use super::WEAPONS;
use super::source::SourceRecord;
use crate::hunt::event::Action;
use crate::hunt::rules::rulebook::Rulebook;
use crate::output::event_json::write_event;
use hunters::Hunters;

/// The options of the load: equal options yield equal events, byte for byte.
#[derive(Clone, Copy, Debug)]
pub struct SyntheticOptions {
    /// Seed of the random numbers.
    pub seed: u64,
    /// Players over all zones, at least one per zone.
    pub players: u32,
    /// Zones, one partition each.
    pub zones: u16,
    /// Events per second of intended time.
    pub rate: u64,
    /// Intended time of the first event, in microseconds since the Unix epoch.
    pub base_us: i64,
}

/// Events per second of intended time if they are sent as fast as possible.
pub const RATE_UNPACED: u64 = 1_000_000;

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

/// Microseconds between two ticks of a zone.
const TICK_US: i64 = 1_000_000;

/// Ticks between the starts of two hunts of a zone.
const HUNT_EVERY_TICKS: u64 = 10;

/// Ticks after which a hunt is ended, unless it is left to end by itself.
const HUNT_END_TICKS: u64 = 6;

/// Duration of a hunt that is left to end by itself, in milliseconds.
const HUNT_MS: u32 = 8_000;

/// Treasures of a hunt in a zone.
const HUNT_TREASURES: u16 = 2048;

/// The generator.
pub(crate) struct Synthetic {
    options: SyntheticOptions,
    chance: SplitMix64,
    players: Vec<SyntheticPlayer>,
    joined: usize,
    made: u64,
    time_us: i64,
    /// Increment of the intended time per event: whole microseconds, and the remainder.
    step: (i64, u64),
    rest: u64,
    tick: u64,
    /// World events that are due for this tick, from this zone on.
    world: Option<WorldEvents>,
    offset_next: Vec<i64>,
    text: Vec<u8>,
    /// Where the players hunt, they decide what they do.
    hunters: Option<Hunters>,
}

struct SyntheticPlayer {
    seq: u64,
    x: i64,
    y: i64,
    heading: u16,
    zone: u16,
    moved_us: i64,
}

/// One world event for each zone in turn.
struct WorldEvents {
    action: Action,
    zone: u16,
}

impl Synthetic {
    /// Creates a load that has not begun.
    pub(crate) fn new(options: SyntheticOptions) -> Synthetic {
        assert!(options.zones > 0 && options.rate > 0);
        let mut chance = SplitMix64(options.seed);
        let players = (0..options.players.max(u32::from(options.zones)))
            .map(|number| SyntheticPlayer {
                seq: 0,
                x: chance.below(WALK_SIDE as u64) as i64,
                y: chance.below(WALK_SIDE as u64) as i64,
                heading: chance.below(36_000) as u16,
                zone: (number % u32::from(options.zones)) as u16,
                moved_us: options.base_us,
            })
            .collect();
        Synthetic {
            chance,
            players,
            joined: 0,
            made: 0,
            time_us: options.base_us,
            step: ((1_000_000 / options.rate) as i64, 1_000_000 % options.rate),
            rest: 0,
            tick: 0,
            world: None,
            offset_next: vec![0; usize::from(options.zones)],
            text: Vec::with_capacity(256),
            hunters: None,
            options,
        }
    }

    /// Creates a load of players who hunt.
    pub(crate) fn of_hunters(options: SyntheticOptions, rulebook: Rulebook) -> Synthetic {
        let mut synthetic = Synthetic::new(options);
        let Synthetic { players, chance, .. } = &mut synthetic;
        let zone_of_each = players.iter().map(|player| player.zone);
        let hunters = Hunters::new(rulebook, options.zones, zone_of_each, chance);
        synthetic.hunters = Some(hunters);
        synthetic
    }

    /// Returns the next event. Its `ts_us` is its intended send time.
    pub(crate) fn next_record(&mut self) -> SourceRecord<'_> {
        self.text.clear();
        let zone = match self.next_world_event() {
            Some(zone) => zone,
            None if self.joined < self.players.len() => self.join(),
            None => self.play(),
        };
        let time_ms = self.time_us / 1000;
        self.advance();
        let offset_next = &mut self.offset_next[usize::from(zone)];
        let offset = *offset_next;
        *offset_next += 1;
        let record = SourceRecord { partition: zone, offset, time_ms, value: Some(&self.text) };
        if let Some(hunters) = &mut self.hunters {
            hunters.play(&record);
        }
        record
    }

    fn advance(&mut self) {
        self.made += 1;
        self.time_us += self.step.0;
        self.rest += self.step.1;
        if self.rest >= self.options.rate {
            self.rest -= self.options.rate;
            self.time_us += 1;
        }
    }

    fn next_world_event(&mut self) -> Option<u16> {
        if self.world.is_none() {
            let due_us = self.options.base_us + self.tick as i64 * TICK_US;
            if self.joined < self.players.len() || self.time_us < due_us {
                return None;
            }
            self.tick += 1;
            self.world = Some(WorldEvents { action: self.world_action(), zone: 0 });
        }
        let events = self.world.as_mut()?;
        let zone = events.zone;
        let action = match self.hunters {
            Some(_) => Hunters::world_action(self.tick, zone, &mut self.chance),
            None => events.action,
        };
        events.zone += 1;
        if events.zone == self.options.zones {
            self.world = None;
        }
        let seq = if action == Action::Tick { self.tick } else { 0 };
        write_event(&mut self.text, 0, seq, self.time_us, &action);
        Some(zone)
    }

    /// Every second is a tick, except when a hunt begins or is ended.
    fn world_action(&mut self) -> Action {
        let hunt = (self.tick / HUNT_EVERY_TICKS) as u32 + 1;
        match (self.tick - 1) % HUNT_EVERY_TICKS {
            0 => Action::HuntStart {
                hunt,
                seed: self.chance.next(),
                treasures: HUNT_TREASURES,
                duration_ms: HUNT_MS,
            },
            HUNT_END_TICKS if hunt.is_multiple_of(2) => Action::HuntEnd { hunt },
            _ => Action::Tick,
        }
    }

    fn join(&mut self) -> u16 {
        let number = self.joined;
        self.joined += 1;
        self.players[number].moved_us = self.time_us;
        let (x, y) = self.players[number].position();
        let action = match &mut self.hunters {
            Some(hunters) => hunters.join(number, self.time_us),
            None => Action::Join { x, y },
        };
        self.write(number, action)
    }

    fn play(&mut self) -> u16 {
        let number = self.chance.below(self.players.len() as u64) as usize;
        if let Some(hunters) = &mut self.hunters {
            let action = hunters.act(number, self.time_us, &mut self.chance);
            return self.write(number, action);
        }
        let action = match self.chance.below(100) {
            0..60 => self.walk(number),
            60..80 => self.turn(number),
            80..90 => {
                Action::Shoot { weapon: self.chance.below(WEAPONS.into()) as u8, heading: None }
            }
            _ => Action::Loot { hunt: None },
        };
        self.write(number, action)
    }

    fn walk(&mut self, number: usize) -> Action {
        let player = &mut self.players[number];
        let elapsed_us = self.time_us - player.moved_us;
        player.moved_us = self.time_us;
        let step = (SPEED_PER_S * elapsed_us / 1_000_000).min(STEP_MAX);
        let (dx, dy) = direction(player.heading);
        let (x, y) = (player.x + dx * step / 100, player.y + dy * step / 100);
        player.x = x.clamp(0, WALK_SIDE - 1);
        player.y = y.clamp(0, WALK_SIDE - 1);
        if (player.x, player.y) != (x, y) {
            player.heading = (player.heading + 18_000) % 36_000;
        }
        let (x, y) = player.position();
        Action::Move { x, y }
    }

    fn turn(&mut self, number: usize) -> Action {
        let turned = self.chance.below(9_000) + 36_000 - 4_500;
        let player = &mut self.players[number];
        player.heading = ((u64::from(player.heading) + turned) % 36_000) as u16;
        Action::Rotate { heading: player.heading }
    }

    fn write(&mut self, number: usize, action: Action) -> u16 {
        let player = &mut self.players[number];
        player.seq += 1;
        let player_id = super::PLAYER_ID_FIRST + number as u64;
        write_event(&mut self.text, player_id, player.seq, self.time_us, &action);
        player.zone
    }
}

impl SyntheticPlayer {
    /// The player's position, in centimetres.
    fn position(&self) -> (i32, i32) {
        ((self.x / CM) as i32, (self.y / CM) as i32)
    }
}

/// One of eight directions, as hundredths of a step along x and y: never longer than a step.
fn direction(heading: u16) -> (i64, i64) {
    const DIRECTIONS: [(i64, i64); 8] =
        [(100, 0), (70, 70), (0, 100), (-70, 70), (-100, 0), (-70, -70), (0, -100), (70, -70)];
    DIRECTIONS[usize::from(heading) * DIRECTIONS.len() / 36_000]
}

/// The SplitMix64 generator of Steele, Lea and Flood: 64 bits of state; any seed works.
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `end`, from the high half of a product instead of a division.
    fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests;
