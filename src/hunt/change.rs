//! The hunt's updates: the table of all kinds.

use crate::hunt::event::{ActionKind, ItemStack};
use crate::hunt::refusal::{Effect, Hint, HuntEndCause, Refusal, ScoreCause};
use crate::kit::kinds::Kinds;
use crate::kit::packed::Packed;
use crate::kit::update_json::UpdateTable;

impl Packed for [ItemStack; 4] {
    const MOST: u64 = u64::MAX;

    fn to_bits(self) -> u64 {
        self.iter()
            .rev()
            .fold(0, |bits, stack| bits << 16 | u64::from(stack.count) << 8 | u64::from(stack.item))
    }

    fn from_bits(bits: u64) -> Option<[ItemStack; 4]> {
        let bytes = bits.to_le_bytes();
        Some(std::array::from_fn(|slot| ItemStack {
            item: bytes[slot * 2],
            count: bytes[slot * 2 + 1],
        }))
    }
}

/// The kinds, in the order of their numbers, from 1.
#[cfg(test)]
pub(crate) const KINDS: &[crate::kit::kinds::UpdateKind] = Change::KINDS;

/// The updates of the hunt.
pub const UPDATES: &UpdateTable = Change::TABLE;

kinds! {
    /// The change that an update publishes.
    pub enum Change {
        /// The rules refused an event.
        Refused = 1 "refused" untimed Refusal {
            /// The reason.
            refusal: Refusal = Code Name "reason",
            /// The action of the event.
            action: ActionKind = Short Name "action",
            /// The event's `seq`.
            seq: u64 = Long Number "seq",
        },
        /// A player entered the zone.
        Joined = 2 "joined" timed Enter {
            /// Full health.
            health: u16 = Short Number "health",
            /// Position, in cm.
            x: i32 = Low Signed "x",
            /// Position, in cm.
            y: i32 = High Signed "y",
        },
        /// A player entered from another zone.
        Arrived = 3 "arrived" timed Enter {
            /// The zone that the player left.
            from_zone: u16 = Short Number "from_zone",
            /// Number of the handoff.
            crossing: u32 = Word Number "crossing",
            /// Position, in cm.
            x: i32 = Low Signed "x",
            /// Position, in cm.
            y: i32 = High Signed "y",
        },
        /// A player left the game or went to another zone.
        Left = 4 "left" untimed Leave {
            /// The destination zone.
            to_zone: Option<u16> = Word Zone "to_zone",
            /// The last `seq` that was applied.
            seq: u64 = Long Number "seq",
        },
        /// An actor moved.
        Moved = 5 "moved" untimed Player {
            /// Number of the tile, row by row.
            tile: u32 = Word Number "tile",
            /// Position, in cm.
            x: i32 = Low Signed "x",
            /// Position, in cm.
            y: i32 = High Signed "y",
        },
        /// An actor turned.
        Rotated = 6 "rotated" untimed Player {
            /// Heading, in centidegrees.
            heading: u16 = Short Number "heading",
        },
        /// An actor fired.
        Shot = 7 "shot" untimed Player {
            /// The weapon.
            weapon: u8 = Code Number "weapon",
            /// Heading, in centidegrees.
            heading: u16 = Short Number "heading",
            /// Distance to the target. Without a target, the distance to the middle of the wall's
            /// tile, or the weapon's range if that is less or no wall was hit.
            distance_cm: u32 = Word Number "distance_cm",
            /// The player who was hit.
            target: Option<u64> = Long Player "target",
        },
        /// An actor lost health.
        Damaged = 8 "damaged" untimed Player {
            /// The weapon.
            weapon: u8 = Code Number "weapon",
            /// The damage after shields.
            damage: u16 = Short Number "damage",
            /// The remaining health.
            health: u32 = Word Number "health",
            /// The player who fired.
            by: u64 = Long Player "by",
        },
        /// An actor has no health left.
        Downed = 9 "downed" timed Player {
            /// The weapon.
            weapon: u8 = Code Number "weapon",
            /// Time until the respawn.
            respawn_ms: u32 = Word Number "respawn_ms",
            /// The player who fired.
            by: u64 = Long Player "by",
        },
        /// A downed actor respawned.
        Respawned = 10 "respawned" untimed Player {
            /// Full health.
            health: u16 = Short Number "health",
            /// Number of the tile.
            tile: u32 = Word Number "tile",
            /// Position, in cm.
            x: i32 = Low Signed "x",
            /// Position, in cm.
            y: i32 = High Signed "y",
        },
        /// An item restored health.
        Healed = 11 "healed" untimed Player {
            /// Health gained.
            gained: u16 = Short Number "gained",
            /// The health now.
            health: u32 = Word Number "health",
        },
        /// A score changed.
        Scored = 12 "scored" timed Player {
            /// The cause.
            cause: ScoreCause = Code Name "cause",
            /// Points gained.
            points: u32 = Word Number "points",
            /// The score now.
            score: u64 = Long Number "score",
        },
        /// A hunt began.
        HuntStarted = 13 "hunt_started" timed World {
            /// Number of treasures to lay.
            treasures: u16 = Short Number "treasures",
            /// The hunt.
            hunt: u32 = Word Number "hunt",
            /// Duration of the hunt.
            duration_ms: u32 = Low Number "duration_ms",
        },
        /// A treasure was laid in the middle of a tile.
        TreasureLaid = 14 "treasure_laid" untimed World {
            /// Number within the hunt, from 0.
            treasure: u16 = Short Number "treasure",
            /// The hunt.
            hunt: u32 = Word Number "hunt",
            /// Position, in cm.
            x: i32 = Low Signed "x",
            /// Position, in cm.
            y: i32 = High Signed "y",
        },
        /// A treasure was opened, which removes it.
        Looted = 15 "looted" untimed Player {
            /// True if an effect multiplied the points.
            doubled: bool = Code Flag "doubled",
            /// Number within the hunt.
            treasure: u16 = Short Number "treasure",
            /// The hunt.
            hunt: u32 = Word Number "hunt",
            /// Points of the treasure.
            points: u32 = Low Number "points",
            /// Time since the hunt began.
            elapsed_ms: u32 = High Number "elapsed_ms",
        },
        /// A finisher of a hunt, published when the hunt is over, in the order of ranks.
        Finished = 16 "finished" untimed World {
            /// Treasures that the player opened.
            found: u16 = Short Number "found",
            /// The hunt.
            hunt: u32 = Word Number "hunt",
            /// Rank, from 1.
            rank: u32 = Low Number "rank",
            /// Time from the hunt's start to the player's finish.
            elapsed_ms: u32 = High Number "elapsed_ms",
        },
        /// A hunt is over; its finishers follow.
        HuntEnded = 17 "hunt_ended" untimed World {
            /// The cause.
            cause: HuntEndCause = Code Name "cause",
            /// Treasures that were opened.
            opened: u16 = Short Number "opened",
            /// The hunt.
            hunt: u32 = Word Number "hunt",
            /// Number of finishers.
            finishers: u32 = Low Number "finishers",
            /// Time since the hunt began.
            elapsed_ms: u32 = High Number "elapsed_ms",
        },
        /// An actor has more of an item.
        ItemGained = 18 "item_gained" untimed Player {
            /// The item.
            item: u8 = Code Number "item",
            /// Number gained.
            gained: u16 = Short Number "gained",
            /// Number held now.
            held: u32 = Word Number "held",
        },
        /// An item did not fit the inventory.
        ItemLost = 19 "item_lost" untimed Player {
            /// The item.
            item: u8 = Code Number "item",
            /// Number lost.
            lost: u16 = Short Number "lost",
        },
        /// An actor used an item.
        ItemUsed = 20 "item_used" untimed Player {
            /// The item.
            item: u8 = Code Number "item",
            /// Number held now.
            held: u32 = Word Number "held",
        },
        /// An effect began, or was extended.
        EffectStarted = 21 "effect_started" timed Player {
            /// The effect.
            effect: Effect = Code Name "effect",
            /// Time until it ends.
            lasts_ms: u32 = Word Number "lasts_ms",
        },
        /// An effect ended.
        EffectEnded = 22 "effect_ended" untimed Player {
            /// The effect.
            effect: Effect = Code Name "effect",
        },
        /// The path to the nearest unopened treasure of a hunt.
        PathHint = 23 "path_hint" untimed Player {
            /// The next step, or stale.
            hint: Hint = Code Name "hint",
            /// The hunt.
            hunt: u32 = Word Number "hunt",
            /// Steps from tile to tile; 0 if stale.
            distance_tiles: u32 = Low Number "distance_tiles",
        },
        /// The first of nine parts of what a player carries to another zone.
        Handoff = 24 "handoff" untimed Handoff {
            /// The destination zone.
            to_zone: u16 = Short Number "to_zone",
            /// Number of the handoff, which a zone accepts once.
            crossing: u32 = Word Number "crossing",
            /// The last `seq` that was applied.
            last_seq: u64 = Long Number "last_seq",
        },
        /// The position where the player enters the other zone.
        HandoffPlace = 25 "handoff_place" untimed Handoff {
            /// In cm, on the other zone's map.
            x: i32 = Low Signed "x",
            /// In cm, on the other zone's map.
            y: i32 = High Signed "y",
        },
        /// The score that the player carries.
        HandoffScore = 26 "handoff_score" untimed Handoff {
            /// The whole score.
            score: u64 = Long Number "score",
        },
        /// Half of the player's inventory.
        HandoffItems = 27 "handoff_items" untimed Handoff {
            /// The first slot: 0 or 4.
            first_slot: u8 = Code Number "first_slot",
            /// Item and count of four slots.
            items: [ItemStack; 4] = Long Items "items",
        },
        /// One of the player's effect slots.
        HandoffEffect = 28 "handoff_effect" untimed Handoff {
            /// The slot, 0..=3.
            slot: u8 = Code Number "slot",
            /// 1 + the effect's number; 0 for none.
            effect: u8 = Short Number "effect",
            /// Remaining time.
            left_ms: u32 = Word Number "left_ms",
        },
        /// From this update on, the zone uses other rules.
        RulesChanged = 29 "rules_changed" untimed Rules {
            /// Hash of the rules.
            ruleset: u32 = Word Number "ruleset",
        },
        /// The zone's clock, from which later times count. It is published before an event's first
        /// timed update, by each tick, and when it starts, but only once until it moves.
        Clock = 30 "clock" untimed Clock {
            /// Milliseconds since the Unix epoch; 0 before it starts.
            unix_ms: u64 = Long Number "unix_ms",
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kit::update::Payload;
    use proptest::prelude::*;

    prop_compose! {
        /// Payloads of all kinds and of unknown ones, with mostly small values.
        fn payloads()(
            kind in 0..=KINDS.len() as u8 + 1,
            code in prop_oneof![Just(0), 0..16_u8, any::<u8>()],
            short in prop_oneof![Just(0), 0..16_u16, any::<u16>()],
            word in prop_oneof![Just(0), 0..=65_537_u32, any::<u32>()],
            long in prop_oneof![Just(0), 0..3_u64, any::<u32>().prop_map(u64::from), any::<u64>()],
        ) -> Payload {
            Payload { kind, code, short, word, long }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        #[test]
        fn fields_are_a_change_s_if_that_change_has_them(payload in payloads()) {
            let change = Change::unpack(payload);
            let is_whole = change.is_some_and(|change| change.pack() == payload);
            prop_assert_eq!(UPDATES.has(payload), is_whole);
        }
    }
}
