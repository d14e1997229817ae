//! One actor, as two rows of fixed size: one that almost every event needs, and one that few events
//! need.

use crate::hunt::event::{EFFECT_SLOTS, INVENTORY_SLOTS, ItemStack};
use crate::hunt::hunts::HUNTS_MAX;
use crate::hunt::refusal::{Effect, Hint};
use crate::kit::chunks::CacheLine;
use crate::kit::row::{Identity, Row};
use crate::kit::tombstones::HandoffId;

const _: () = assert!(Effect::ALL.len() == EFFECT_SLOTS);

/// The part that moves.
///
/// It is stored as the words of its row: the common actions change two or three of them, and the
/// others are neither unpacked nor packed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Body {
    /// The player's id; 0 in a free row.
    pub player_id: u64,
    /// The last `seq` that was applied.
    pub seq: u64,
    /// x and y.
    place: u64,
    /// Allowance, heading, health.
    vigour: u64,
    /// When the allowance was last updated.
    pub allowance_at_ms: u64,
    /// When the weapon is ready again.
    pub ready_at_ms: u64,
    /// Effects and compass.
    marks: u64,
}

/// A path hint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Compass {
    /// The hunt that it refers to; 0 for none.
    pub hunt: u32,
    /// Number of the [`Hint`].
    pub hint: u8,
    /// The distance, in tiles.
    pub distance: u16,
}

impl Body {
    /// Position in cm.
    #[inline]
    pub(crate) fn x(&self) -> i32 {
        self.place as i32
    }

    /// Position in cm.
    #[inline]
    pub(crate) fn y(&self) -> i32 {
        (self.place >> 32) as i32
    }

    /// Moves the actor to a position.
    #[inline]
    pub(crate) fn stand_at(&mut self, x: i32, y: i32) {
        self.place = u64::from(x as u32) | u64::from(y as u32) << 32;
    }

    /// Distance that the actor may still move at once, in thousandths of a cm.
    #[inline]
    pub(crate) fn allowance(&self) -> u32 {
        self.vigour as u32
    }

    /// Sets the allowance.
    #[inline]
    pub(crate) fn set_allowance(&mut self, allowance: u32) {
        self.vigour = self.vigour & !0xffff_ffff | u64::from(allowance);
    }

    /// The heading, in centidegrees.
    #[inline]
    pub(crate) fn heading(&self) -> u16 {
        (self.vigour >> 32) as u16
    }

    /// Sets the heading.
    #[inline]
    pub(crate) fn set_heading(&mut self, heading: u16) {
        self.vigour = self.vigour & !(0xffff << 32) | u64::from(heading) << 32;
    }

    /// The health; 0 means downed.
    #[inline]
    pub(crate) fn health(&self) -> u16 {
        (self.vigour >> 48) as u16
    }

    /// Sets the health.
    #[inline]
    pub(crate) fn set_health(&mut self, health: u16) {
        self.vigour = self.vigour & !(0xffff << 48) | u64::from(health) << 48;
    }

    /// Returns whether it waits for its respawn.
    #[inline]
    pub(crate) fn downed(&self) -> bool {
        self.vigour >> 48 == 0
    }

    /// Returns whether an effect is active.
    #[inline]
    pub(crate) fn has(&self, effect: Effect) -> bool {
        self.marks & 1 << effect as u8 != 0
    }

    /// Starts an effect.
    pub(crate) fn start(&mut self, effect: Effect) {
        self.marks |= 1 << effect as u8;
    }

    /// Ends an effect. A later compass publishes the hint again.
    pub(crate) fn end(&mut self, effect: Effect) {
        self.marks &= !(1 << effect as u8);
        if effect == Effect::Compass {
            self.set_compass(Compass::default());
        }
    }

    /// The last path hint.
    pub(crate) fn compass(&self) -> Compass {
        Compass {
            hint: (self.marks >> 8) as u8,
            distance: (self.marks >> 16) as u16,
            hunt: (self.marks >> 32) as u32,
        }
    }

    /// Stores the last path hint.
    pub(crate) fn set_compass(&mut self, Compass { hunt, hint, distance }: Compass) {
        let compass = u64::from(hint) << 8 | u64::from(distance) << 16 | u64::from(hunt) << 32;
        self.marks = self.marks & 0xff | compass;
    }
}

player_row!(Body);

impl Row for Body {
    type Words = [u64; 7];
    /// A body and its hash fill a cache line.
    type Alignment = CacheLine;
    const IDENTITY: Identity = Identity::Own;

    #[inline]
    fn to_words(&self) -> [u64; 7] {
        let Body { player_id, seq, place, vigour, allowance_at_ms, ready_at_ms, marks } = *self;
        [player_id, seq, place, vigour, allowance_at_ms, ready_at_ms, marks]
    }

    fn from_words(words: [u64; 7]) -> Option<Body> {
        let [player_id, seq, place, vigour, allowance_at_ms, ready_at_ms, marks] = words;
        let body = Body { player_id, seq, place, vigour, allowance_at_ms, ready_at_ms, marks };
        let valid = body.heading() < 36_000
            && marks & 0xff < 1 << EFFECT_SLOTS
            && Hint::from_code(body.compass().hint).is_some();
        valid.then_some(body)
    }
}

/// The carried part of an actor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pack {
    /// The player's id; 0 in a free row.
    pub player_id: u64,
    /// The inventory.
    pub items: [ItemStack; INVENTORY_SLOTS],
    /// When each effect ends; 0 if it is not active.
    pub effects_until_ms: [u64; EFFECT_SLOTS],
    /// When the actor respawns; 0 if it is not downed.
    pub respawn_at_ms: u64,
    /// The score.
    pub score: u64,
    /// Ordinal of the update that last changed the score.
    pub scored_ordinal: u64,
    /// When the score last changed.
    pub scored_at_ms: u64,
    /// Number of the player's last handoff out of a zone, as far as known here.
    pub crossing_sent: u32,
    /// The last handoff that was accepted here.
    pub accepted: HandoffId,
    /// The player's progress, by hunt slot.
    pub progress: [HuntProgress; HUNTS_MAX],
}

/// A player's progress in a hunt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HuntProgress {
    /// The hunt. If the slot holds another hunt, the count is stale.
    pub hunt: u32,
    /// Treasures opened.
    pub found: u16,
}

impl Pack {
    /// When the next of its effects ends, or it respawns.
    pub(crate) fn next_due_ms(&self) -> Option<u64> {
        let due = self.effects_until_ms.into_iter().chain([self.respawn_at_ms]);
        due.filter(|at_ms| *at_ms != 0).min()
    }
}

fn item_words(items: &[ItemStack; INVENTORY_SLOTS]) -> [u64; 2] {
    let word = |half: &[ItemStack]| {
        half.iter()
            .rev()
            .map(|ItemStack { item, count }| u64::from(*item) | u64::from(*count) << 8)
            .fold(0, |word, stack| word << 16 | stack)
    };
    [word(&items[..4]), word(&items[4..])]
}

impl Row for Pack {
    type Words = [u64; 17];
    type Alignment = u64;
    const IDENTITY: Identity = Identity::Own;

    fn to_words(&self) -> [u64; 17] {
        let Pack {
            player_id,
            items,
            effects_until_ms: [a, b, c, d],
            respawn_at_ms,
            score,
            scored_ordinal,
            scored_at_ms,
            crossing_sent,
            accepted: HandoffId { seq: accepted_seq, crossing: accepted_crossing },
            progress,
        } = *self;
        let [items_low, items_high] = item_words(&items);
        let [found_0, found_1, found_2, found_3] =
            progress.map(|HuntProgress { hunt, found }| u64::from(hunt) | u64::from(found) << 32);
        [
            player_id,
            items_low,
            items_high,
            a,
            b,
            c,
            d,
            respawn_at_ms,
            score,
            scored_ordinal,
            scored_at_ms,
            u64::from(crossing_sent) | u64::from(accepted_crossing) << 32,
            accepted_seq,
            found_0,
            found_1,
            found_2,
            found_3,
        ]
    }

    fn from_words(words: [u64; 17]) -> Option<Pack> {
        let items = std::array::from_fn(|slot| {
            let bits = words[1 + slot / 4] >> (slot % 4 * 16);
            ItemStack { item: bits as u8, count: (bits >> 8) as u8 }
        });
        let progress = std::array::from_fn(|at| {
            let word = words[13 + at];
            HuntProgress { hunt: word as u32, found: (word >> 32) as u16 }
        });
        let pack = Pack {
            player_id: words[0],
            items,
            effects_until_ms: [words[3], words[4], words[5], words[6]],
            respawn_at_ms: words[7],
            score: words[8],
            scored_ordinal: words[9],
            scored_at_ms: words[10],
            crossing_sent: words[11] as u32,
            accepted: HandoffId { seq: words[12], crossing: (words[11] >> 32) as u32 },
            progress,
        };
        (pack.to_words() == words).then_some(pack)
    }
}
