//! What can happen in a shard: the engine's whole input.
//!
//! An event is a fixed-size value without pointers, so that a block of them is plain memory. The
//! decoder makes events from JSON records; nothing else does, but for tests and the load tools.

/// Bytes of one event's JSON. A longer record is a reject: game events are some hundred bytes, and
/// the bound keeps the worst case of the decoder small.
pub const RECORD_BYTES_MAX: usize = 16 * 1024;

/// Nesting depth of an event's JSON. Events are flat; eight levels leave room for unknown fields.
pub const JSON_DEPTH_MAX: usize = 8;

/// Counts up whenever the decoder would make other events from the same records, or refuse others.
pub const DECODER_VERSION: u64 = 2;

/// Slots of an actor's inventory; a hand-off carries all of them.
pub const INVENTORY_SLOTS: usize = 8;

/// Timed effects that an actor can be under at once; a hand-off carries all of them.
pub const EFFECT_SLOTS: usize = 4;

/// One player event, with the place in the input log that it came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Offset of the record in its input partition.
    pub offset: i64,
    /// Timestamp of the record as Kafka stored it, in milliseconds since the Unix epoch. The
    /// shard's clock is made of these.
    pub time_ms: i64,
    /// The player. 0 for events of the world: `tick`, `rules_change`, `hunt_start`, `hunt_end`.
    pub player_id: u64,
    /// The player's own counter, from 1; the id of a `tick`.
    pub seq: u64,
    /// When the producer emitted the event, in microseconds since the Unix epoch. Data: it is
    /// copied to the updates, and never read as a clock.
    pub ts_us: i64,
    /// What happened.
    pub action: Action,
}

/// What a player, or the world, did. Positions are in centimetres, headings in centidegrees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The player enters this shard, with nothing in hand.
    Join { x: i32, y: i32 },
    /// The player enters this shard from another one, with what it carried there.
    Arrive { x: i32, y: i32, handoff: Handoff },
    /// The player leaves: for good, or for the zone `to_zone`.
    Leave { to_zone: Option<u16> },
    /// The player now stands at this position.
    Move { x: i32, y: i32 },
    /// The player now looks this way, 0..=35_999.
    Rotate { heading: u16 },
    /// The player fires along `heading`, or along its actor's heading where the event has none.
    Shoot { weapon: u8, heading: Option<u16> },
    /// The player opens a treasure within reach: of this hunt, or of any.
    Loot { hunt: Option<u32> },
    /// The player uses one item from its inventory.
    Use { item: u8 },
    /// Time passes. `seq` is the tick's id; an id that is not above the last one is a no-op.
    Tick,
    /// The game goes on by the rules with this hash.
    RulesChange { ruleset: u32 },
    /// A hunt begins: `treasures` are laid by `seed` and lie for `duration_ms` of event time.
    HuntStart { hunt: u32, seed: u64, treasures: u16, duration_ms: u32 },
    /// A hunt ends before its time.
    HuntEnd { hunt: u32 },
}

impl Action {
    /// Whether it is what a player does that is in the zone, or asks to be.
    #[inline]
    pub fn is_of_a_player(&self) -> bool {
        !matches!(
            self,
            Action::Arrive { .. }
                | Action::Tick
                | Action::RulesChange { .. }
                | Action::HuntStart { .. }
                | Action::HuntEnd { .. }
        )
    }
}

/// What an actor carries from one zone to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handoff {
    /// The zone that the player left.
    pub from_zone: u16,
    /// Grows with each of the player's crossings: a zone accepts each (player, n) once.
    pub crossing: u32,
    /// The player's score.
    pub score: u64,
    /// The last `seq` of the player that was applied.
    pub last_seq: u64,
    /// The inventory; a slot with a count of 0 is empty.
    pub items: [ItemStack; INVENTORY_SLOTS],
    /// The active effects; 0 is an empty slot.
    pub effects: [u8; EFFECT_SLOTS],
    /// Milliseconds that the effect in the same slot still lasts.
    pub effects_left_ms: [u32; EFFECT_SLOTS],
}

/// Some items of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ItemStack {
    /// The item, as numbered in the rules.
    pub item: u8,
    /// How many; 0 makes the slot empty.
    pub count: u8,
}

const _: () = assert!(size_of::<Event>() <= 120);
