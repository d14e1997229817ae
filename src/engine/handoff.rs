//! What a zone remembers of players that left it, and what players carry to another zone.

use crate::engine::actors::ACTORS_MAX;
use crate::engine::change::Change;
use crate::engine::event::{EFFECT_SLOTS, Handoff, INVENTORY_SLOTS, ItemStack};
use crate::engine::index::Index;
use crate::engine::state::Words;
use crate::engine::table::{Identity, Row, Table};
use crate::engine::update::Update;

/// Updates that an arrival makes at most: itself, each stack kept and lost, the effects, the way,
/// the score. A player's own event, which settles the player too, makes fewer.
pub(crate) const ARRIVAL_UPDATES_MAX: usize = 3 + 2 * INVENTORY_SLOTS + EFFECT_SLOTS;

/// Updates that one actor's settling makes at most: the end of each effect, the respawn, the way.
pub(crate) const SETTLE_UPDATES_MAX: usize = EFFECT_SLOTS + 2;

/// Players that left a zone and are still known there: as many as it holds, because all may leave.
pub(crate) const TOMBSTONES_MAX: usize = ACTORS_MAX;

/// Words of a player that left.
const TOMBSTONE_WORDS: usize = 4;

/// The same in a stored state, behind its row's number.
pub(crate) const STORED_TOMBSTONE_WORDS: usize = 1 + TOMBSTONE_WORDS;

/// Identifies one of a player's handoffs, and orders them. A later handoff has a higher `seq`; one
/// that was sent back, or on, has the same `seq` and a higher number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HandoffId {
    /// The `seq` of the `leave`.
    pub seq: u64,
    /// Number of the handoff.
    pub crossing: u32,
}

/// What is remembered of a player that left, so that its repeated events stay no-ops and each
/// handoff is accepted once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tombstone {
    /// The player; 0 in an empty row.
    pub player_id: u64,
    /// The last `seq` that was applied.
    pub seq: u64,
    /// Number of the player's last handoff out of a zone, as far as it is known here.
    pub crossing_sent: u32,
    /// The last one that was accepted here.
    pub accepted: HandoffId,
}

impl Row<TOMBSTONE_WORDS> for Tombstone {
    const IDENTITY: Identity = Identity::Number;

    fn to_words(&self) -> [u64; TOMBSTONE_WORDS] {
        let Tombstone { player_id, seq, crossing_sent, accepted } = *self;
        let HandoffId { seq: accepted_seq, crossing: accepted_crossing } = accepted;
        let crossings = u64::from(crossing_sent) | u64::from(accepted_crossing) << 32;
        [player_id, seq, crossings, accepted_seq]
    }

    fn from_words(
        [player_id, seq, crossings, accepted_seq]: [u64; TOMBSTONE_WORDS],
    ) -> Option<Tombstone> {
        let accepted = HandoffId { seq: accepted_seq, crossing: (crossings >> 32) as u32 };
        Some(Tombstone { player_id, seq, crossing_sent: crossings as u32, accepted })
    }
}

const ROWS_MAX: u32 = TOMBSTONES_MAX as u32;

/// The players that left last, in a ring: a new one takes the oldest one's place.
#[derive(Clone, Debug)]
pub(crate) struct Tombstones {
    pub(crate) rows: Table<Tombstone, TOMBSTONE_WORDS>,
    index: Index,
    next: u32,
}

impl Tombstones {
    /// Nobody left yet.
    pub(crate) fn none() -> Tombstones {
        Tombstones {
            rows: Table::new(TOMBSTONES_MAX, 3),
            index: Index::new(TOMBSTONES_MAX),
            next: 0,
        }
    }

    /// What is remembered of a player.
    pub(crate) fn find(&self, player_id: u64) -> Option<&Tombstone> {
        self.row_of(player_id).map(|row| self.rows.row(row))
    }

    fn row_of(&self, player_id: u64) -> Option<u32> {
        self.index.find(player_id, |row| self.rows.row(row).player_id)
    }

    /// Remembers a player, in place of what was remembered of it.
    pub(crate) fn put(&mut self, tombstone: Tombstone) {
        self.take(tombstone.player_id);
        let row = self.next;
        self.next = (row + 1) % ROWS_MAX;
        self.rows.reach(row);
        let oldest = self.rows.row(row).player_id;
        if oldest != 0 {
            self.index.remove(oldest, row);
        }
        self.rows.write(row, tombstone);
        self.index.insert(tombstone.player_id, row, |row| self.rows.row(row).player_id);
    }

    /// Forgets a player.
    pub(crate) fn take(&mut self, player_id: u64) -> Option<Tombstone> {
        let row = self.row_of(player_id)?;
        let tombstone = *self.rows.row(row);
        self.index.remove(player_id, row);
        self.rows.write(row, Tombstone::default());
        Some(tombstone)
    }

    /// The row that is written next, and how many are not empty: what a checkpoint notes at once.
    pub(crate) fn noted(&self) -> [u32; 2] {
        let Tombstones { rows: _, index, next } = self;
        [*next, index.count()]
    }

    /// The tombstones of a checkpoint.
    pub(crate) fn decode(words: &mut Words) -> Option<Tombstones> {
        let row_of = |word: u64| u32::try_from(word).ok().filter(|row| *row < ROWS_MAX);
        let mut tombstones = Tombstones::none();
        let next = row_of(words.word()?)?;
        for _ in 0..words.word()? {
            let row = row_of(words.word()?)?;
            let tombstone = Tombstone::from_words(words.take()?)?;
            tombstones.rows.reach(row);
            let taken = tombstones.rows.row(row).player_id != 0;
            if taken || tombstone.player_id == 0 || tombstones.find(tombstone.player_id).is_some() {
                return None;
            }
            tombstones.rows.write(row, tombstone);
            let rows = &tombstones.rows;
            tombstones.index.insert(tombstone.player_id, row, |row| rows.row(row).player_id);
        }
        tombstones.next = next;
        Some(tombstones)
    }

    /// Hash of all tombstones.
    pub(crate) fn digest(&self) -> u64 {
        let Tombstones { rows, index: _, next } = self;
        rows.digest().wrapping_add(u64::from(*next))
    }
}

/// Updates that a handoff consists of, in a row and in this order.
pub(crate) const HANDOFF_PARTS: usize = 9;
const _: () = assert!(HANDOFF_PARTS == 5 + EFFECT_SLOTS);
const _: () = assert!(SETTLE_UPDATES_MAX + 1 + HANDOFF_PARTS <= ARRIVAL_UPDATES_MAX);

/// A player on its way from one zone to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandoffOut {
    /// The zone it goes to.
    pub to_zone: u16,
    /// Where it enters, in cm.
    pub x: i32,
    /// Where it enters, in cm.
    pub y: i32,
    /// What it carries.
    pub handoff: Handoff,
}

impl HandoffOut {
    /// The handoff as the changes that publish it.
    pub(crate) fn parts(&self) -> [Change; HANDOFF_PARTS] {
        let HandoffOut { to_zone, x, y, handoff } = *self;
        // The zone that it leaves is that of the updates.
        let Handoff { from_zone: _, crossing, score, last_seq, items, effects, effects_left_ms } =
            handoff;
        let items = |first: usize| Change::HandoffItems {
            first_slot: first as u8,
            items: std::array::from_fn(|at| items[first + at]),
        };
        let effect = |slot: usize| Change::HandoffEffect {
            slot: slot as u8,
            effect: effects[slot],
            left_ms: effects_left_ms[slot],
        };
        [
            Change::Handoff { to_zone, crossing, last_seq },
            Change::HandoffPlace { x, y },
            Change::HandoffScore { score },
            items(0),
            items(4),
            effect(0),
            effect(1),
            effect(2),
            effect(3),
        ]
    }

    /// The handoff in these updates of `from_zone`, with its player. `None`: they are not
    /// the parts of one player's handoff, all of them and in their order.
    pub(crate) fn from_updates(
        from_zone: u16,
        updates: &[Update; HANDOFF_PARTS],
    ) -> Option<(u64, HandoffOut)> {
        let player_id = updates[0].player_id();
        let mut out = HandoffOut {
            to_zone: 0,
            x: 0,
            y: 0,
            handoff: Handoff { from_zone, ..Handoff::default() },
        };
        let handoff = &mut out.handoff;
        for update in updates {
            match update.change() {
                Change::Handoff { to_zone, crossing: number, last_seq } => {
                    out.to_zone = to_zone;
                    (handoff.crossing, handoff.last_seq) = (number, last_seq);
                }
                Change::HandoffPlace { x, y } => (out.x, out.y) = (x, y),
                Change::HandoffScore { score } => handoff.score = score,
                Change::HandoffItems { first_slot, items } => {
                    let first = usize::from(first_slot);
                    let slots: &mut [ItemStack] = handoff.items.get_mut(first..first + 4)?;
                    slots.copy_from_slice(&items);
                }
                Change::HandoffEffect { slot, effect, left_ms } => {
                    *handoff.effects.get_mut(usize::from(slot))? = effect;
                    handoff.effects_left_ms[usize::from(slot)] = left_ms;
                }
                _ => return None,
            }
        }
        let told = updates.iter().map(Update::change).eq(out.parts());
        let one_player = updates.iter().all(|update| update.player_id() == player_id);
        (told && one_player && player_id != 0).then_some((player_id, out))
    }
}
