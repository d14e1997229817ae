//! The sight of a player: the players around it, as they come, change and go.
//!
//! It is state and not a list of updates: what changed twice between two events is written once,
//! and a client that reads slowly misses nothing but the time between.

use crate::serve::answers::{Served, at};
use crate::serve::event_form::EventBatch;
use crate::serve::problem::Problem;
use crate::view::card::Card;
use crate::view::json::Json;
use crate::view::zone::ZoneView;

/// Players in sight at once: of more, those who are nearest. An event has some 16 KiB at most.
pub(crate) const SIGHT_PLAYERS_MAX: usize = 128;

/// How far a client may ask to see, in units of the game's positions: half a kilometre in cm.
pub(crate) const SIGHT_RADIUS_MAX: u32 = 50_000;

/// Players that a topic looks at in a millisecond, on average, to find those in sight: so it takes
/// about a thousandth of the thread's time, however many are near.
const LOOKED_AT_PER_MS: u32 = 100;

/// The players in sight of a player, as its client knows them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sight {
    player_id: u64,
    radius: u32,
    told: Told,
}

/// The last event that a client got.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Told {
    /// Nothing yet.
    Nothing,
    /// The player cannot be seen around, for this reason.
    Nobody(Problem),
    /// These players in a zone before this update, ordered by their numbers.
    Players { zone: u16, update: u64, players: Vec<SeenPlayer> },
}

/// A player in sight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SeenPlayer {
    player_id: u64,
    /// [`Card::changed`] when it was written.
    changed: u64,
}

impl Sight {
    /// Creates the sight of a player whose client knows nothing yet.
    pub(crate) fn new(player_id: u64, radius: u32) -> Sight {
        Sight { player_id, radius, told: Told::Nothing }
    }

    /// Returns the player.
    pub(crate) fn player_id(&self) -> u64 {
        self.player_id
    }

    /// Writes what has changed, if anything has. Returns the milliseconds for which nothing more is
    /// to be written, because of the work that this was; `None` if the zone is within a frame, and
    /// nothing can be said.
    pub(crate) fn write(&mut self, served: &Served, events: &mut EventBatch) -> Option<u64> {
        let zone = served.zone_of(self.player_id).and_then(|zone| served.zone(zone));
        match zone {
            Ok(zone) if zone.is_within_frame() => None,
            Ok(zone) if self.knows(zone) => Some(0),
            Ok(zone) => Some(self.write_players(served, zone, events)),
            Err(problem) => {
                self.write_nobody(problem, events);
                Some(0)
            }
        }
    }

    /// Returns whether nothing has happened in the zone since the last event.
    fn knows(&self, zone: &ZoneView) -> bool {
        let now = (zone.partition(), zone.position().update);
        matches!(self.told, Told::Players { zone, update, .. } if (zone, update) == now)
    }

    fn write_nobody(&mut self, problem: Problem, events: &mut EventBatch) {
        if self.told != Told::Nobody(problem.clone()) {
            events.write_object("around", |json| {
                json.id("player_id", self.player_id).text("detail", &problem.sentence());
            });
            self.told = Told::Nobody(problem);
        }
    }

    fn write_players(&mut self, served: &Served, zone: &ZoneView, events: &mut EventBatch) -> u64 {
        let (cards, looked_at) = in_sight(zone, self.player_id, self.radius);
        let seen = |card: &&Card| SeenPlayer { player_id: card.player_id, changed: card.changed };
        let players: Vec<SeenPlayer> = cards.iter().map(seen).collect();
        let partition = zone.partition();
        let schema = served.schema();
        let write = |json: &mut Json, card: &&Card| {
            json.id("player_id", card.player_id);
            schema.write_fields(card, json);
        };
        match &self.told {
            Told::Players { zone, players: before, .. }
                if (*zone, before) == (partition, &players) => {}
            Told::Players { zone: known, players: before, .. } if *known == partition => {
                let find = |list: &[SeenPlayer], player_id: u64| {
                    let at = list.binary_search_by_key(&player_id, |seen| seen.player_id);
                    at.ok().map(|at| list[at])
                };
                let was = |card: &&&Card| find(before, card.player_id);
                let entered = cards.iter().filter(|card| was(card).is_none());
                let changed = cards
                    .iter()
                    .filter(|card| was(card).is_some_and(|seen| seen.changed != card.changed));
                let left = before.iter().filter(|seen| find(&players, seen.player_id).is_none());
                events.write_object("sight", |json| {
                    json.id("player_id", self.player_id).number("zone", partition.into());
                    at(json, served.moment(zone));
                    json.objects("entered", entered, write).objects("changed", changed, write);
                    json.objects("left", left, |json, seen| {
                        json.id("player_id", seen.player_id);
                    });
                });
            }
            _ => events.write_object("around", |json| {
                json.id("player_id", self.player_id).number("zone", partition.into());
                at(json, served.moment(zone));
                json.objects("players", cards.iter(), write);
            }),
        }
        self.told = Told::Players { zone: partition, update: zone.position().update, players };
        (looked_at / LOOKED_AT_PER_MS).into()
    }
}

/// The players in sight, ordered by their numbers: the player itself, and those who are nearest.
/// With them the number of players who were looked at.
fn in_sight(zone: &ZoneView, player_id: u64, radius: u32) -> (Vec<&Card>, u32) {
    let mut found = Vec::new();
    let looked_at = zone.around(player_id, radius, |distance, card| {
        found.push((distance, card.player_id != player_id, card.player_id, card));
    });
    if found.len() > SIGHT_PLAYERS_MAX {
        found.select_nth_unstable_by_key(SIGHT_PLAYERS_MAX, |of| (of.0, of.1, of.2));
        found.truncate(SIGHT_PLAYERS_MAX);
    }
    found.sort_unstable_by_key(|(_, _, player_id, _)| *player_id);
    (found.into_iter().map(|(.., card)| card).collect(), looked_at)
}
