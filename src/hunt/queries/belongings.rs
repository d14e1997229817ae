//! The hunt's part of a player in a view: items, effects, finds and the last path hint.

use crate::hunt::actor::{Compass, HuntProgress};
use crate::hunt::event::{EFFECT_SLOTS, INVENTORY_SLOTS};
use crate::hunt::hunts::HUNTS_MAX;
use crate::hunt::outline::PlayerOutline;
use crate::hunt::refusal::Effect;

/// A player's items, effects, finds and path hint. Times are in milliseconds since the Unix epoch,
/// by the zone's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Belongings {
    /// When the player respawns, if it is downed.
    pub respawn_at_ms: i64,
    /// Items by slot. A slot whose count is 0 is free.
    items: [u8; INVENTORY_SLOTS],
    counts: [u16; INVENTORY_SLOTS],
    effects_until_ms: [i64; EFFECT_SLOTS],
    hunts: [u32; HUNTS_MAX],
    found: [u16; HUNTS_MAX],
    hint_hunt: u32,
    hint_distance: u16,
    hint: u8,
    /// Bits of the active effects.
    pub effects: u8,
}

const _: () = assert!(size_of::<Belongings>() == 96);

impl Belongings {
    /// Returns what a player of an engine has.
    pub(super) fn of(player: &PlayerOutline) -> Belongings {
        let respawn_at_ms = player.respawn_at_ms.unwrap_or_default();
        let mut belongings = Belongings { respawn_at_ms, ..Belongings::default() };
        belongings.set_compass(player.compass);
        for stack in player.items.iter().filter(|stack| stack.count > 0) {
            let same = player.items.iter().filter(|other| other.item == stack.item);
            belongings.hold(stack.item, same.map(|other| u32::from(other.count)).sum());
        }
        for (effect, until_ms) in Effect::ALL.iter().zip(player.effects_until_ms) {
            if let Some(until_ms) = until_ms {
                belongings.start_effect(*effect, until_ms);
            }
        }
        for (at, HuntProgress { hunt, found }) in player.progress.into_iter().enumerate() {
            (belongings.hunts[at], belongings.found[at]) = (hunt, found);
        }
        belongings
    }

    /// Returns the items and their counts, ordered by item.
    pub(crate) fn items(&self) -> impl Iterator<Item = (u8, u16)> + use<> {
        let mut items: [(u8, u16); INVENTORY_SLOTS] =
            std::array::from_fn(|at| (self.items[at], self.counts[at]));
        items.sort_unstable();
        items.into_iter().filter(|(_, count)| *count > 0)
    }

    /// Sets the count of an item.
    pub(super) fn hold(&mut self, item: u8, count: u32) {
        let known = (0..INVENTORY_SLOTS).find(|at| self.counts[*at] > 0 && self.items[*at] == item);
        let place = known.or_else(|| self.counts.iter().position(|count| *count == 0));
        // An inventory has no more items than slots. If a strange log has more, they are lost.
        let Some(at) = place else { return };
        let count = u16::try_from(count).unwrap_or(u16::MAX);
        (self.items[at], self.counts[at]) = (if count == 0 { 0 } else { item }, count);
    }

    /// Returns the active effects, and when each ends.
    pub(crate) fn effects(&self) -> impl Iterator<Item = (Effect, i64)> {
        let active = Effect::ALL.iter().filter(|effect| self.effects & 1 << **effect as u8 != 0);
        active.map(|effect| (*effect, self.effects_until_ms[*effect as usize]))
    }

    pub(super) fn start_effect(&mut self, effect: Effect, until_ms: i64) {
        self.effects |= 1 << effect as u8;
        self.effects_until_ms[effect as usize] = until_ms;
    }

    /// Ends an effect. With the compass, its hint goes.
    pub(super) fn end_effect(&mut self, effect: Effect) {
        self.effects &= !(1 << effect as u8);
        self.effects_until_ms[effect as usize] = 0;
        if effect == Effect::Compass {
            self.set_compass(Compass::default());
        }
    }

    /// Returns the last path hint.
    pub(crate) fn compass(&self) -> Compass {
        let Belongings { hint_hunt: hunt, hint, hint_distance: distance, .. } = *self;
        Compass { hunt, hint, distance }
    }

    pub(super) fn set_compass(&mut self, Compass { hunt, hint, distance }: Compass) {
        (self.hint_hunt, self.hint, self.hint_distance) = (hunt, hint, distance);
    }

    /// Returns the number of treasures that the player found in a hunt without leaving the zone.
    pub(crate) fn found(&self, hunt: u32) -> u16 {
        (0..HUNTS_MAX).find(|at| self.hunts[*at] == hunt).map_or(0, |at| self.found[at])
    }

    /// Counts one more find. The place of a hunt that is over is free.
    pub(super) fn find(&mut self, hunt: u32, is_running: impl Fn(u32) -> bool) {
        let known = self.hunts.iter().position(|known| *known == hunt);
        let free = || self.hunts.iter().position(|known| *known == 0 || !is_running(*known));
        let Some(at) = known.or_else(free) else { return };
        let found = if self.hunts[at] == hunt { self.found[at] } else { 0 };
        (self.hunts[at], self.found[at]) = (hunt, found.saturating_add(1));
    }

    /// Moves all times on by this much.
    pub(super) fn shift(&mut self, is_downed: bool, by_ms: i64) {
        if is_downed {
            self.respawn_at_ms = self.respawn_at_ms.saturating_add(by_ms);
        }
        for effect in Effect::ALL.iter().filter(|effect| self.effects & 1 << **effect as u8 != 0) {
            let until_ms = &mut self.effects_until_ms[*effect as usize];
            *until_ms = until_ms.saturating_add(by_ms);
        }
    }
}
