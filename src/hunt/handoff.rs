//! The data that players carry to another zone.

use crate::hunt::change::Change;
use crate::hunt::event::{
    ActionOf, EFFECT_SLOTS, HANDOFF_WORDS, Handoff, HandoffPlace, INVENTORY_SLOTS, ItemStack,
};
use crate::kit::engine::Departure;
use crate::kit::event::GameAction;
use crate::kit::field::CARRIED_WORDS_MAX;
use crate::kit::update::Update;

/// Limit of the updates of an arrival: itself, each stack kept and lost, the effects, the hint, the
/// score. A player's own event, which settles the player, too, causes fewer.
pub(crate) const ARRIVAL_UPDATES_MAX: usize = 3 + 2 * INVENTORY_SLOTS + EFFECT_SLOTS;

/// Limit of the updates of settling one actor: the end of each effect, the respawn, the hint.
pub(crate) const SETTLE_UPDATES_MAX: usize = EFFECT_SLOTS + 2;

/// Number of consecutive updates that publish a handoff, in this order.
pub(crate) const HANDOFF_PARTS: usize = 9;
const _: () = assert!(HANDOFF_PARTS == 5 + EFFECT_SLOTS);
const _: () = assert!(SETTLE_UPDATES_MAX + 1 + HANDOFF_PARTS <= ARRIVAL_UPDATES_MAX);

/// A player on the way from one zone to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HandoffOut {
    /// The destination zone.
    pub to_zone: u16,
    /// Position of entry, in cm.
    pub x: i32,
    /// Position of entry, in cm.
    pub y: i32,
    /// The carried data.
    pub handoff: Handoff,
}

impl HandoffOut {
    /// Returns the changes that publish the handoff.
    pub(crate) fn parts(&self) -> [Change; HANDOFF_PARTS] {
        let HandoffOut { to_zone, x, y, handoff } = *self;
        // The updates themselves show the zone that it leaves.
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

    /// Returns the handoffs in an event's updates, with player and time.
    pub(crate) fn all(
        from_zone: u16,
        updates: &[Update],
    ) -> impl Iterator<Item = (u64, i64, HandoffOut)> {
        let is_first = |update: &Update| matches!(update.change(), Change::Handoff { .. });
        let starts = (0..updates.len()).filter(move |place| is_first(&updates[*place]));
        starts.map(move |start| {
            let parts: &[Update; HANDOFF_PARTS] =
                updates[start..].first_chunk().expect("a handoff is published as a whole");
            let (player_id, out) = HandoffOut::from_updates(from_zone, parts)
                .expect("the engine publishes a handoff in order");
            (player_id, parts[0].ts_us(), out)
        })
    }

    /// Returns the arrival in the other zone.
    pub(crate) fn departure(&self, player_id: u64, ts_us: i64) -> Departure {
        let HandoffOut { to_zone, x, y, handoff } = *self;
        let mut carried = [0; CARRIED_WORDS_MAX];
        carried[..HANDOFF_WORDS].copy_from_slice(&handoff.to_words());
        Departure {
            to_zone,
            player_id,
            // The player's next event must have a higher number than the last applied one.
            seq: handoff.last_seq.max(1),
            ts_us,
            action: ActionOf::<HandoffPlace>::Arrive { x, y, handoff: 0 }.pack(&mut Vec::new()),
            carried,
        }
    }

    /// Returns the handoff in these updates of `from_zone`, with its player. `None` if they are not
    /// all parts of one player's handoff, in order.
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
        let told = updates.iter().map(Update::change::<Change>).eq(out.parts());
        let one_player = updates.iter().all(|update| update.player_id() == player_id);
        (told && one_player && player_id != 0).then_some((player_id, out))
    }
}
