//! Players that a program makes up, for loads and demos.

use crate::kit::event::PlainEvent;
use crate::kit::field::ActionWords;

/// The id of the first bot: ids are as large as Steam's, which exposes readers that lose digits of
/// 64-bit numbers.
pub const BOT_ID_FIRST: u64 = 76_561_198_000_000_000;

/// The options of a load: equal options yield equal events, byte for byte.
#[derive(Clone, Copy, Debug)]
pub struct BotOptions {
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
    /// Whether people watch the players, who then do what is worth watching.
    pub is_watched: bool,
}

impl BotOptions {
    /// Returns the number of players.
    pub fn players(&self) -> u32 {
        self.players.max(self.zones.into())
    }

    /// Returns the zone of a player.
    pub(crate) fn zone_of(&self, player: usize) -> u16 {
        (player % usize::from(self.zones)) as u16
    }
}

/// What the players of a game do. They are numbered from 0, and enter before anything else happens.
/// Actions are words, as [`GameAction::words`](crate::kit::event::GameAction::words) returns them.
pub trait Bots: Send {
    /// Returns how a player enters.
    fn enter(&mut self, player: usize, time_us: i64) -> ActionWords;

    /// Returns what a player does next.
    fn act(&mut self, player: usize, time_us: i64, chance: &mut SplitMix64) -> ActionWords;

    /// Returns what the world does in a zone at a tick, of which there is one a second, from 1 on.
    fn act_as_world(&mut self, tick: u64, zone: u16, chance: &mut SplitMix64) -> ActionWords;

    /// Learns of each event of a zone in turn.
    fn observe(&mut self, _zone: u16, _event: &PlainEvent) {}
}

/// The SplitMix64 generator of Steele, Lea and Flood: 64 bits of state; any seed works.
#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// Returns the generator of a seed.
    pub fn new(seed: u64) -> SplitMix64 {
        SplitMix64(seed)
    }

    /// Returns the next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `end`, from the high half of a product instead of a division.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }
}
