//! Players who are worth watching: they walk over the whole map, look for treasures, and shoot at
//! those who are near. An engine plays their events here, too, so they know where they are and what
//! lies around.

use crate::hunt::Shard;
use crate::hunt::change::Change;
use crate::hunt::event::Action;
use crate::hunt::rules::rulebook::Rulebook;
use crate::hunt::walk::{along, distance_cm, square_cm};
use crate::hunt::walkers::BOT_WEAPONS;
use crate::kit::bots::{BOT_ID_FIRST, BotOptions, Bots, SplitMix64};
use crate::kit::event::{GameAction, PlainEvent};
use crate::kit::field::ActionWords;
use crate::kit::update::Updates;

/// Less than half of the speed that the rules allow, so that no step is refused although a zone's
/// clock lags some records behind.
const SPEED_CM_PER_S: i64 = 1_000;

/// Longest single step, however long the player stood.
const STEP_CM_MAX: i64 = 1_500;

/// Distance at which a player opens a treasure, which the rules allow from 1,536 cm on.
const REACH_CM: u32 = 1_000;

/// Distance at which a player shoots at another one.
const SHOT_CM_MAX: i32 = 5_000;

/// Percentage of a player's events that are shots if somebody is near.
const SHOTS_PERCENT: u64 = 6;

/// Treasures of which a player goes to the nearest one.
const TREASURES_SEEN: u64 = 8;

/// One of this many players roams and looks for no treasure.
const ROAMS: usize = 3;

/// Ticks between the starts of two hunts of a zone, and between those of neighbouring zones.
const HUNT_EVERY_TICKS: u64 = 75;
const HUNT_LATER_TICKS: u64 = 13;

/// Duration of a hunt that is not finished before, in milliseconds.
const HUNT_MS: u32 = 60_000;

/// Treasures of a hunt.
const HUNT_TREASURES: u16 = 240;

/// All players, and what lies in their zones.
pub(crate) struct Hunters {
    /// By zone.
    shards: Vec<Shard>,
    updates: Updates,
    side_cm: i32,
    hunters: Vec<Hunter>,
    /// By zone.
    treasures: Vec<Vec<LyingTreasure>>,
}

#[derive(Clone, Copy)]
struct Hunter {
    x: i32,
    y: i32,
    zone: u16,
    is_downed: bool,
    goal: Option<(i32, i32)>,
    moved_us: i64,
}

#[derive(Clone, Copy)]
struct LyingTreasure {
    hunt: u32,
    number: u16,
    x: i32,
    y: i32,
}

impl Hunters {
    /// Creates players of these zones, anywhere on the map.
    pub(crate) fn new(
        rulebook: &Rulebook,
        options: &BotOptions,
        chance: &mut SplitMix64,
    ) -> Hunters {
        let world = &rulebook.first().rules.world;
        let side_cm = (world.tiles_per_side * world.tile_cm).cast_signed();
        let hunters = (0..options.players() as usize).map(|player| {
            let (x, y) = anywhere(side_cm, chance);
            let zone = options.zone_of(player);
            Hunter { x, y, zone, is_downed: false, goal: None, moved_us: 0 }
        });
        Hunters {
            hunters: hunters.collect(),
            side_cm,
            shards: (0..options.zones).map(|zone| Shard::new(zone, rulebook)).collect(),
            updates: Updates::new(),
            treasures: vec![Vec::new(); usize::from(options.zones)],
        }
    }

    fn next_action(&mut self, number: usize, time_us: i64, chance: &mut SplitMix64) -> Action {
        let Hunter { x, y, goal, moved_us, .. } = self.hunters[number];
        if chance.below(100) < SHOTS_PERCENT
            && let Some((to_x, to_y)) = self.nearest(number)
        {
            let weapon = chance.below(BOT_WEAPONS.into()) as u8;
            return Action::Shoot { weapon, heading: Some(heading(to_x - x, to_y - y)) };
        }
        let Some((to_x, to_y)) = goal else {
            let (to_x, to_y) = self.choose(number, chance);
            self.hunters[number].goal = Some((to_x, to_y));
            return Action::Rotate { heading: heading(to_x - x, to_y - y) };
        };
        let (way_x, way_y) = (to_x - x, to_y - y);
        let left_cm = distance_cm(way_x, way_y);
        let hunter = &mut self.hunters[number];
        if left_cm <= REACH_CM {
            hunter.goal = None;
            return Action::Loot { hunt: None };
        }
        hunter.moved_us = time_us;
        let walked_cm = SPEED_CM_PER_S * (time_us - moved_us) / 1_000_000;
        let step_cm = walked_cm.min(STEP_CM_MAX).min(left_cm.into()) as u32;
        let (step_x, step_y) = along(heading(way_x, way_y), step_cm);
        Action::Move { x: x + step_x, y: y + step_y }
    }

    /// Returns where the nearest other player is who is near enough for a shot.
    fn nearest(&self, number: usize) -> Option<(i32, i32)> {
        let own = &self.hunters[number];
        let others = self.hunters.iter().enumerate().filter(|(other, hunter)| {
            *other != number
                && hunter.zone == own.zone
                && !hunter.is_downed
                && (hunter.x - own.x).abs() < SHOT_CM_MAX
                && (hunter.y - own.y).abs() < SHOT_CM_MAX
        });
        let nearest =
            others.min_by_key(|(_, hunter)| square_cm(hunter.x - own.x, hunter.y - own.y));
        nearest.map(|(_, hunter)| (hunter.x, hunter.y))
    }

    /// Chooses where a player goes.
    fn choose(&self, number: usize, chance: &mut SplitMix64) -> (i32, i32) {
        let own = &self.hunters[number];
        let treasures = &self.treasures[usize::from(own.zone)];
        if number.is_multiple_of(ROAMS) || treasures.is_empty() {
            return anywhere(self.side_cm, chance);
        }
        let seen =
            (0..TREASURES_SEEN).map(|_| treasures[chance.below(treasures.len() as u64) as usize]);
        let nearest = seen.min_by_key(|treasure| square_cm(treasure.x - own.x, treasure.y - own.y));
        nearest.map_or((own.x, own.y), |treasure| (treasure.x, treasure.y))
    }
}

impl Bots for Hunters {
    fn enter(&mut self, player: usize, time_us: i64) -> ActionWords {
        let hunter = &mut self.hunters[player];
        hunter.moved_us = time_us;
        Action::Join { x: hunter.x, y: hunter.y }.words()
    }

    fn act(&mut self, player: usize, time_us: i64, chance: &mut SplitMix64) -> ActionWords {
        self.next_action(player, time_us, chance).words()
    }

    fn act_as_world(&mut self, tick: u64, zone: u16, chance: &mut SplitMix64) -> ActionWords {
        let begins_at = u64::from(zone) * HUNT_LATER_TICKS % HUNT_EVERY_TICKS;
        if (tick - 1) % HUNT_EVERY_TICKS != begins_at {
            return Action::Tick.words();
        }
        let hunt = (tick / HUNT_EVERY_TICKS) as u32 + 1;
        let (treasures, duration_ms) = (HUNT_TREASURES, HUNT_MS);
        Action::HuntStart { hunt, seed: chance.next(), treasures, duration_ms }.words()
    }

    /// Plays the event, and learns what has become of it.
    fn observe(&mut self, zone: u16, event: &PlainEvent) {
        let treasures = &mut self.treasures[usize::from(zone)];
        self.updates.clear();
        self.shards[usize::from(zone)].apply(&event.unpack::<Action>(&[]), &mut self.updates);
        for update in self.updates.as_slice() {
            let number = update.player_id().checked_sub(BOT_ID_FIRST);
            let hunter = number.and_then(|number| self.hunters.get_mut(number as usize));
            match (update.change(), hunter) {
                (Change::Moved { x, y, .. }, Some(hunter)) => (hunter.x, hunter.y) = (x, y),
                (Change::Downed { .. }, Some(hunter)) => hunter.is_downed = true,
                (Change::Respawned { x, y, .. }, Some(hunter)) => {
                    (hunter.x, hunter.y, hunter.is_downed) = (x, y, false);
                }
                (Change::TreasureLaid { treasure, hunt, x, y }, _) => {
                    treasures.push(LyingTreasure { hunt, number: treasure, x, y });
                    if treasure + 1 == HUNT_TREASURES {
                        self.hunters
                            .iter_mut()
                            .filter(|hunter| hunter.zone == zone)
                            .for_each(|hunter| hunter.goal = None);
                    }
                }
                (Change::Looted { treasure, hunt, .. }, _) => {
                    treasures.retain(|one| (one.hunt, one.number) != (hunt, treasure));
                }
                (Change::HuntEnded { hunt, .. }, _) => treasures.retain(|one| one.hunt != hunt),
                _ => {}
            }
        }
    }
}

fn anywhere(side_cm: i32, chance: &mut SplitMix64) -> (i32, i32) {
    let mut place = || chance.below(side_cm.unsigned_abs().into()) as i32;
    (place(), place())
}

/// Returns the heading of a vector, in centidegrees: 0 along x, 9000 along y.
fn heading(x: i32, y: i32) -> u16 {
    let (quarter, x, y) = match (x, y) {
        (1.., 0..) => (0, x, y),
        (..=0, 1..) => (9_000, y, -x),
        (..0, ..=0) => (18_000, -x, -y),
        _ => (27_000, -y, x),
    };
    // The turn is to the left of all headings up to this one.
    let is_left = |heading: u16| {
        let (along_x, along_y) = along(heading, 1 << 20);
        i64::from(along_x) * i64::from(y) >= i64::from(along_y) * i64::from(x)
    };
    let (mut low, mut high) = (0, 9_000);
    while low + 1 < high {
        let middle = u16::midpoint(low, high);
        if is_left(middle) { low = middle } else { high = middle }
    }
    quarter + low
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edition::edition;
    use crate::hunt::rules_file::built_in;
    use crate::hunt::state::TreasureHunt;
    use crate::tools::accounts::OfflineShards;
    use crate::tools::traffic::Traffic;
    use std::sync::Arc;

    #[test]
    fn a_heading_leads_to_where_it_was_taken() {
        for (x, y) in [(1, 0), (0, 1), (-1, 0), (0, -1), (3, 4), (-300, 1), (-7, -90), (500, -3)] {
            let (along_x, along_y) = along(heading(x, y), 100_000);
            let (x, y) = (i64::from(x), i64::from(y));
            let aside = (i64::from(along_x) * y - i64::from(along_y) * x).abs();
            let ahead = i64::from(along_x) * x + i64::from(along_y) * y;
            assert!(ahead > 0 && aside * 2_000 <= ahead, "{x}, {y}: {along_x}, {along_y}");
        }
        assert!(heading(0, 0) < 36_000);
    }

    #[test]
    fn hunters_walk_the_whole_map_and_finish_their_hunts() {
        let rulebook = Rulebook::of(built_in());
        let options = BotOptions {
            seed: 7,
            players: 200,
            zones: 2,
            rate: 400,
            base_us: 1_000_000_000,
            is_watched: true,
        };
        let mut source = Traffic::new(&edition::<TreasureHunt>(), &rulebook, options)
            .expect("the hunt has bots");
        let mut offline = OfflineShards::new(Arc::new(rulebook.clone()));
        let (mut winners, mut downed, mut quarters) = (0, 0, [0; 4]);
        for _ in 0..60_000 {
            let record = source.next_record();
            for update in offline.apply(&record).expect("no rules are missing").updates {
                match update.change() {
                    Change::Finished { rank: 1, .. } => winners += 1,
                    Change::Downed { .. } => downed += 1,
                    Change::Moved { x, y, .. } => {
                        quarters[usize::from(x >= 131_072) + 2 * usize::from(y >= 131_072)] += 1;
                    }
                    _ => {}
                }
            }
        }
        let total = offline.total();
        assert!(winners >= 2 && downed > 0, "{winners} winners, {downed} downed");
        assert!(quarters.iter().all(|moves| *moves > 1_000), "{quarters:?}");
        assert!(total.refusals * 5 < total.events, "{:?}", total.refusals_by_reason);
        assert_eq!(total.rejects, 0);
    }
}
