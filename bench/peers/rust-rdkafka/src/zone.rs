//! The reference job for one zone: parse an event, keep what is known of its player, say one
//! update.

use crate::frame::Frame;
use rustc_hash::FxHashMap;
use serde::Deserialize;

/// Health of an unhurt player.
const HEALTH: u64 = 100;

/// Sides of a tile are 1,024 cm, and 256 tiles are the side of a zone.
fn tile(x: i64, y: i64) -> u64 {
    ((y >> 10) * 256 + (x >> 10)).cast_unsigned()
}

/// What an event may hold. Other keys are passed over.
#[derive(Deserialize)]
pub struct Event {
    r#type: Kind,
    #[serde(default)]
    player_id: u64,
    #[serde(default)]
    seq: u64,
    ts_us: i64,
    #[serde(default)]
    x: i64,
    #[serde(default)]
    y: i64,
    #[serde(default)]
    heading: u64,
    #[serde(default)]
    weapon: u64,
    #[serde(default)]
    hunt: u64,
    #[serde(default)]
    treasures: u64,
    #[serde(default)]
    duration_ms: u64,
}

impl Event {
    /// The event in a record's value, if it is one.
    pub fn parse(value: &[u8]) -> Option<Event> {
        serde_json::from_slice(value).ok()
    }
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Join,
    Move,
    Rotate,
    Shoot,
    Loot,
    HuntStart,
}

/// What is known of a player.
#[derive(Default)]
struct Player {
    seq: u64,
    x: i64,
    y: i64,
    tile: u64,
    heading: u64,
    moves: u64,
    turns: u64,
    shots: u64,
    loots: u64,
}

/// The players of one partition.
#[derive(Default)]
pub struct Zone {
    players: FxHashMap<u64, Player>,
    hunts: u64,
    /// Events that were applied.
    pub events: u64,
    /// Records that are no events.
    pub rejects: u64,
}

impl Zone {
    /// Applies what was parsed and puts its update into the frame.
    pub fn apply(&mut self, event: Option<Event>, frame: &mut Frame) {
        let Some(event) = event else {
            self.rejects += 1;
            return;
        };
        self.events += 1;
        if let Kind::HuntStart = event.r#type {
            self.hunts += 1;
            frame.begin("hunt_started", 0, event.ts_us);
            frame.field("treasures", event.treasures);
            frame.field("hunt", event.hunt);
            frame.field("duration_ms", event.duration_ms);
            frame.end();
            return;
        }
        let player = self.players.entry(event.player_id).or_default();
        player.seq = player.seq.max(event.seq);
        let mut begin = |kind| frame.begin(kind, event.player_id, event.ts_us);
        match event.r#type {
            Kind::Join => {
                (player.x, player.y) = (event.x, event.y);
                player.tile = tile(event.x, event.y);
                begin("joined");
                frame.field("health", HEALTH);
                frame.signed("x", event.x);
                frame.signed("y", event.y);
            }
            Kind::Move => {
                player.moves += 1;
                (player.x, player.y) = (event.x, event.y);
                player.tile = tile(event.x, event.y);
                begin("moved");
                frame.field("tile", player.tile);
                frame.signed("x", event.x);
                frame.signed("y", event.y);
            }
            Kind::Rotate => {
                player.turns += 1;
                player.heading = event.heading;
                begin("rotated");
                frame.field("heading", event.heading);
            }
            Kind::Shoot => {
                player.shots += 1;
                begin("shot");
                frame.field("weapon", event.weapon);
                frame.field("heading", player.heading);
                frame.field("distance_cm", 0);
            }
            Kind::Loot => {
                player.loots += 1;
                begin("item_gained");
                frame.field("item", 1);
                frame.field("gained", 1);
                frame.field("held", player.loots);
            }
            Kind::HuntStart => unreachable!("hunts were dealt with"),
        }
        frame.end();
    }

    /// A hash of all that is known, whatever the order of the players.
    pub fn digest(&self) -> u64 {
        let of_player = |(id, player): (&u64, &Player)| {
            let Player { seq, x, y, tile, heading, moves, turns, shots, loots } = player;
            let place = [x.cast_unsigned(), y.cast_unsigned()];
            let counts =
                [*seq, place[0], place[1], *tile, *heading, *moves, *turns, *shots, *loots];
            counts.iter().fold(*id, |hash, value| {
                let hash = (hash ^ value).wrapping_mul(0x100_0000_01b3);
                hash ^ hash >> 32
            })
        };
        self.players.iter().map(of_player).fold(self.hunts, u64::wrapping_add)
    }
}
