//! The positions of players during a recorded match, and the events that follow from them.
//!
//! The games' adapters only report what a recording says: this player is here, turns, fires, is
//! gone. The scene turns that into events: joins and leaves, zones, each player's `seq`, the
//! partition's offsets and timestamps, and the world's own events. `docs/MATCHES.md` has the
//! decisions and their reasons.

use super::grid::Grid;
use huntd::hunt::event::Action;
use huntd::kit::bots::BOT_ID_FIRST;
use huntd::output::event_json::write_event;
use huntd::tools::source::SourceRecord;
use std::collections::BTreeMap;
use std::ops::Range;

/// Player ids reserved per repetition of a match.
const PLAYER_IDS_PER_REPETITION: u64 = 1_000_000;

/// Milliseconds of record time between the starts of two repetitions; longer than any match.
pub(crate) const REPETITION_MS: i64 = 2 * 3600 * 1000;

/// Milliseconds between two ticks of a zone.
const TICK_MS: i64 = 1000;

/// Milliseconds between the starts of two hunts of a zone.
const HUNT_EVERY_MS: i64 = 600_000;

/// Duration of a hunt in milliseconds: between hunts there is time without one.
const HUNT_MS: u32 = 480_000;

/// Treasures of a hunt in a zone: enough that players find some, although they do not know of them.
const HUNT_TREASURES: u16 = 4096;

/// Hunt ids reserved per repetition: one every ten minutes of two hours, and a reserve.
const HUNTS_PER_REPETITION: u32 = 100;

/// Assumed walking speed of a player. The rules allow a quarter more, because their clock lags some
/// records behind.
const WALK_CM_PER_S: i64 = 2_000;

/// Rest that a player may make up for in one burst, in milliseconds; as in the rules, with the same
/// margin.
const WALK_BURST_MS: i64 = 1_800;

/// Distance that a player may walk in one burst, in thousandths of a centimetre.
const WALK_ALLOWANCE_MAX: i64 = WALK_CM_PER_S * WALK_BURST_MS;

/// The events of a match, generated from what its adapter reports.
pub(crate) struct Scene {
    grid: Grid,
    base_ms: i64,
    repetition: u32,
    time_ms: i64,
    tick_ms_next: i64,
    hunt_ms_next: i64,
    /// By the recording's own numbers; sorted, so that the leaves at the end are, too.
    players: BTreeMap<u64, ScenePlayer>,
    offset_next: Vec<i64>,
    text: Vec<u8>,
    waiting: Vec<WaitingEvent>,
    taken: usize,
}

#[derive(Default)]
struct ScenePlayer {
    seq: u64,
    place: Option<MapPlace>,
}

/// A player's position, in centimetres from the map's corner.
#[derive(Clone, Copy)]
struct MapPlace {
    x: i64,
    y: i64,
    zone: u16,
    time_ms: i64,
    /// Distance that the player may walk now, in thousandths of a centimetre. It grows with time,
    /// and steps use it up.
    allowance: i64,
}

impl MapPlace {
    /// Returns the other place with the remaining allowance; `None` if it is too far to walk.
    fn walk_to(&self, to: MapPlace) -> Option<MapPlace> {
        let grown = self.allowance + (to.time_ms - self.time_ms) * WALK_CM_PER_S;
        let (dx, dy) = (to.x - self.x, to.y - self.y);
        let way_cm = (dx * dx + dy * dy).isqrt() + 1;
        let allowance = grown.min(WALK_ALLOWANCE_MAX) - way_cm * 1000;
        let stood = dx == 0 && dy == 0;
        (stood || allowance >= 0).then_some(MapPlace { allowance: allowance.max(0), ..to })
    }
}

/// An event that has not been taken yet.
struct WaitingEvent {
    partition: u16,
    offset: i64,
    time_ms: i64,
    text: Range<usize>,
}

impl Scene {
    /// Creates an empty scene. Records begin at `base_ms`, milliseconds since the Unix epoch.
    pub(crate) fn new(grid: Grid, base_ms: i64) -> Scene {
        let zones = usize::from(grid.zones());
        Scene {
            grid,
            base_ms,
            repetition: 0,
            time_ms: base_ms,
            tick_ms_next: base_ms,
            hunt_ms_next: base_ms,
            players: BTreeMap::new(),
            offset_next: vec![0; zones],
            text: Vec::new(),
            waiting: Vec::new(),
            taken: 0,
        }
    }

    /// Sets the time of the next reports, in milliseconds since the recording began, and emits the
    /// world's events that are due before it. Time never runs backwards.
    pub(crate) fn set_time(&mut self, ts_ms: i64) {
        let start_ms = self.start_ms();
        let time_ms = start_ms + ts_ms.clamp(0, REPETITION_MS - 1);
        while self.tick_ms_next <= time_ms {
            self.time_ms = self.time_ms.max(self.tick_ms_next);
            if self.hunt_ms_next <= self.tick_ms_next {
                self.start_hunts(start_ms);
                self.hunt_ms_next += HUNT_EVERY_MS;
            }
            let tick = (self.tick_ms_next / TICK_MS) as u64;
            self.emit_world(tick, Action::Tick);
            self.tick_ms_next += TICK_MS;
        }
        self.time_ms = self.time_ms.max(time_ms);
    }

    fn start_ms(&self) -> i64 {
        self.base_ms + i64::from(self.repetition) * REPETITION_MS
    }

    fn start_hunts(&mut self, start_ms: i64) {
        let hunt_of_match = ((self.hunt_ms_next - start_ms) / HUNT_EVERY_MS) as u32;
        let hunt = 1 + self.repetition * HUNTS_PER_REPETITION + hunt_of_match;
        let (seed, treasures) = (u64::from(hunt), HUNT_TREASURES);
        let action = Action::HuntStart { hunt, seed, treasures, duration_ms: HUNT_MS };
        self.emit_world(0, action);
    }

    fn emit_world(&mut self, seq: u64, action: Action) {
        for zone in 0..self.grid.zones() {
            self.emit(zone, 0, seq, action);
        }
    }

    /// Reports a player at a map position, in centimetres from its centre. The player joins if
    /// absent, moves if it can have walked there, and otherwise leaves and joins again.
    pub(crate) fn see(&mut self, player: u64, x: i64, y: i64) {
        let Some((x, y, zone)) = self.grid.place(x, y) else {
            self.leave(player);
            return;
        };
        let here = MapPlace { x, y, zone, time_ms: self.time_ms, allowance: WALK_ALLOWANCE_MAX };
        let from = self.players.entry(player).or_default().place;
        let walked = from.and_then(|from| from.walk_to(here));
        match from {
            None => self.join(player, here),
            Some(_) if walked.is_none() => {
                self.leave(player);
                self.join(player, here);
            }
            Some(from) if from.zone != zone => {
                self.emit_player(player, from.zone, Action::Leave { to_zone: Some(zone) });
                self.join(player, here);
            }
            Some(_) => {
                self.put(player, walked.unwrap_or(here));
                let (x, y) = self.grid.within_zone(zone, x, y);
                self.emit_player(player, zone, Action::Move { x, y });
            }
        }
    }

    /// Respawns the player at a position.
    pub(crate) fn respawn(&mut self, player: u64, x: i64, y: i64) {
        self.leave(player);
        self.see(player, x, y);
    }

    fn join(&mut self, player: u64, here: MapPlace) {
        self.put(player, here);
        let (x, y) = self.grid.within_zone(here.zone, here.x, here.y);
        self.emit_player(player, here.zone, Action::Join { x, y });
    }

    fn put(&mut self, player: u64, here: MapPlace) {
        self.players.entry(player).or_default().place = Some(here);
    }

    /// Removes the player until it is seen again.
    pub(crate) fn leave(&mut self, player: u64) {
        let place = self.players.get_mut(&player).and_then(|known| known.place.take());
        if let Some(place) = place {
            self.emit_player(player, place.zone, Action::Leave { to_zone: None });
        }
    }

    /// Lets the player act at its position. An absent player causes no event.
    pub(crate) fn act(&mut self, player: u64, action: Action) {
        if let Some(place) = self.players.get(&player).and_then(|known| known.place) {
            self.emit_player(player, place.zone, action);
        }
    }

    /// Returns whether the player is present.
    pub(crate) fn is_present(&self, player: u64) -> bool {
        self.players.get(&player).is_some_and(|known| known.place.is_some())
    }

    /// Makes everybody leave, and starts the next repetition, with other players at a later time.
    pub(crate) fn end_match(&mut self) {
        let present: Vec<u64> = self.players.keys().copied().collect();
        for player in present {
            self.leave(player);
        }
        self.players.clear();
        self.repetition += 1;
        self.tick_ms_next = self.start_ms();
        self.hunt_ms_next = self.start_ms();
    }

    fn emit_player(&mut self, player: u64, zone: u16, action: Action) {
        let known = self.players.entry(player).or_default();
        known.seq += 1;
        let seq = known.seq;
        let shift = u64::from(self.repetition) * PLAYER_IDS_PER_REPETITION;
        self.emit(zone, BOT_ID_FIRST + shift + player, seq, action);
    }

    fn emit(&mut self, zone: u16, player_id: u64, seq: u64, action: Action) {
        let start = self.text.len();
        write_event(&mut self.text, player_id, seq, self.time_ms * 1000, &action);
        let offset = &mut self.offset_next[usize::from(zone)];
        self.waiting.push(WaitingEvent {
            partition: zone,
            offset: *offset,
            time_ms: self.time_ms,
            text: start..self.text.len(),
        });
        *offset += 1;
    }

    /// Returns the next event, in the order of creation.
    pub(crate) fn take(&mut self) -> Option<SourceRecord<'_>> {
        let next = self.waiting.get(self.taken)?;
        self.taken += 1;
        Some(SourceRecord {
            partition: next.partition,
            offset: next.offset,
            time_ms: next.time_ms,
            value: Some(&self.text[next.text.clone()]),
        })
    }

    /// Frees the memory of events, once all have been taken.
    pub(crate) fn forget_taken(&mut self) {
        assert!(!self.has_waiting());
        self.waiting.clear();
        self.text.clear();
        self.taken = 0;
    }

    /// Returns whether [`Scene::take`] would return an event.
    pub(crate) fn has_waiting(&self) -> bool {
        self.taken < self.waiting.len()
    }
}
