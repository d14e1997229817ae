//! What is known of one actor: two rows of fixed size, one that every event touches and one that
//! few do.

use crate::engine::event::{EFFECT_SLOTS, INVENTORY_SLOTS, ItemStack};
use crate::engine::refusal::{Effect, Hint};
use crate::engine::table::{Identity, Row};
use crate::limits::HUNTS_MAX;

const _: () = assert!(Effect::ALL.len() == EFFECT_SLOTS);

/// The part that moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Body {
    /// The player; 0 in a row that is free.
    pub player_id: u64,
    /// The last `seq` that was applied.
    pub seq: u64,
    /// Position in cm.
    pub x: i32,
    /// Position in cm.
    pub y: i32,
    /// Way that the actor may still go at once, in thousandths of a cm.
    pub allowance: u32,
    /// Where it looks, in centidegrees.
    pub heading: u16,
    /// What is left of its health; 0 is downed.
    pub health: u16,
    /// When the allowance last grew.
    pub allowance_at_ms: u64,
    /// When its weapon is ready again.
    pub ready_at_ms: u64,
    /// A bit for each effect that has not ended.
    pub effects: u8,
    /// The path hint that it was told last.
    pub hint: u8,
    /// The hunt's slot that the hint is about.
    pub hint_slot: u8,
    /// The distance that it was told, in tiles.
    pub hint_distance: u16,
}

impl Body {
    /// Whether it waits for its respawn.
    pub fn downed(&self) -> bool {
        self.health == 0
    }

    /// Whether an effect has not ended.
    pub fn has(&self, effect: Effect) -> bool {
        self.effects & 1 << effect as u8 != 0
    }
}

impl Row<7> for Body {
    const IDENTITY: Identity = Identity::FirstWord;

    fn to_words(&self) -> [u64; 7] {
        [
            self.player_id,
            self.seq,
            u64::from(self.x as u32) | u64::from(self.y as u32) << 32,
            u64::from(self.allowance)
                | u64::from(self.heading) << 32
                | u64::from(self.health) << 48,
            self.allowance_at_ms,
            self.ready_at_ms,
            u64::from(self.effects)
                | u64::from(self.hint) << 8
                | u64::from(self.hint_slot) << 16
                | u64::from(self.hint_distance) << 24,
        ]
    }

    fn from_words(words: [u64; 7]) -> Option<Body> {
        let [player_id, seq, place, limits, allowance_at_ms, ready_at_ms, marks] = words;
        let body = Body {
            player_id,
            seq,
            x: place as u32 as i32,
            y: (place >> 32) as u32 as i32,
            allowance: limits as u32,
            heading: (limits >> 32) as u16,
            health: (limits >> 48) as u16,
            allowance_at_ms,
            ready_at_ms,
            effects: marks as u8,
            hint: (marks >> 8) as u8,
            hint_slot: (marks >> 16) as u8,
            hint_distance: (marks >> 24) as u16,
        };
        let valid = body.heading < 36_000
            && body.effects < 1 << EFFECT_SLOTS
            && Hint::from_code(body.hint).is_some()
            && usize::from(body.hint_slot) < HUNTS_MAX
            && marks >> 40 == 0;
        valid.then_some(body)
    }
}

/// The part that is carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pack {
    /// The player; 0 in a row that is free.
    pub player_id: u64,
    /// The inventory.
    pub items: [ItemStack; INVENTORY_SLOTS],
    /// When each effect ends; 0 where it has ended.
    pub effects_until_ms: [u64; EFFECT_SLOTS],
    /// When the actor stands up again; 0 while it stands.
    pub respawn_at_ms: u64,
    /// Its points.
    pub score: u64,
    /// Ordinal of the event that made the score what it is.
    pub scored_ordinal: u64,
    /// When that was.
    pub scored_at_ms: u64,
    /// Number of the player's last crossing out of a zone, as far as it is known here.
    pub crossing_sent: u32,
    /// Number of the last crossing that was accepted here.
    pub crossing_accepted: u32,
    /// What the player found, by hunt slot.
    pub progress: [Progress; HUNTS_MAX],
}

/// What a player found in a hunt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The hunt. Another one in the same slot makes the count stale.
    pub hunt: u32,
    /// Treasures opened.
    pub found: u16,
}

impl Pack {
    /// When the next of its effects ends or it stands up again.
    pub fn next_due_ms(&self) -> Option<u64> {
        let due = self.effects_until_ms.into_iter().chain([self.respawn_at_ms]);
        due.filter(|at_ms| *at_ms != 0).min()
    }
}

fn item_words(items: &[ItemStack; INVENTORY_SLOTS]) -> [u64; 2] {
    let word = |half: &[ItemStack]| {
        half.iter()
            .rev()
            .fold(0, |word, stack| word << 16 | u64::from(stack.item) | u64::from(stack.count) << 8)
    };
    [word(&items[..4]), word(&items[4..])]
}

impl Row<16> for Pack {
    const IDENTITY: Identity = Identity::FirstWord;

    fn to_words(&self) -> [u64; 16] {
        let [items_low, items_high] = item_words(&self.items);
        let [a, b, c, d] = self.effects_until_ms;
        let found = |at: usize| {
            u64::from(self.progress[at].hunt) | u64::from(self.progress[at].found) << 32
        };
        [
            self.player_id,
            items_low,
            items_high,
            a,
            b,
            c,
            d,
            self.respawn_at_ms,
            self.score,
            self.scored_ordinal,
            self.scored_at_ms,
            u64::from(self.crossing_sent) | u64::from(self.crossing_accepted) << 32,
            found(0),
            found(1),
            found(2),
            found(3),
        ]
    }

    fn from_words(words: [u64; 16]) -> Option<Pack> {
        let items = std::array::from_fn(|slot| {
            let bits = words[1 + slot / 4] >> (slot % 4 * 16);
            ItemStack { item: bits as u8, count: (bits >> 8) as u8 }
        });
        let progress = std::array::from_fn(|at| {
            let word = words[12 + at];
            Progress { hunt: word as u32, found: (word >> 32) as u16 }
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
            crossing_accepted: (words[11] >> 32) as u32,
            progress,
        };
        (pack.to_words() == words).then_some(pack)
    }
}
