//! What is known of one player: two rows, one that most updates change and one that few do.

use crate::hunt::actor::{Compass, HuntProgress};
use crate::hunt::event::{EFFECT_SLOTS, INVENTORY_SLOTS};
use crate::hunt::hunts::HUNTS_MAX;
use crate::hunt::outline::PlayerOutline;
use crate::hunt::refusal::Effect;

/// The row that most updates change: one cache line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Card {
    /// The player; 0 in a row that is free.
    pub player_id: u64,
    /// Its points.
    pub score: u64,
    /// What orders equal scores: the update that made the score what it is. After a snapshot, a
    /// smaller number that gives the snapshot's order.
    pub scored_update: u64,
    /// Where it stands, in cm.
    pub x: i32,
    /// Where it stands, in cm.
    pub y: i32,
    /// Where it looks, in centidegrees.
    pub heading: u16,
    /// What is left of its health; 0 is downed.
    pub health: u16,
    /// How many it holds of the item in this place of `items`.
    pub(super) held: [u16; INVENTORY_SLOTS],
    pub(super) items: [u8; INVENTORY_SLOTS],
    pub(super) effects: u8,
    pub(super) standing: Standing,
}

/// Which of its zones shows a player on the world's board.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Standing {
    /// This one: it is in no other.
    #[default]
    Alone,
    /// This one: its place in another zone is worse.
    Best,
    /// Another one, where its place is better.
    Hidden,
}

const _: () = assert!(size_of::<Card>() == 64);

/// The row that few updates change. Times are in milliseconds since the Unix epoch, by the zone's
/// clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Details {
    /// Number of the update after the one that last changed the player.
    pub changed: u64,
    /// When its score became what it is.
    pub scored_at_ms: i64,
    /// When it stands up again, while it is downed.
    pub respawn_at_ms: i64,
    pub(super) effects_until_ms: [i64; EFFECT_SLOTS],
    pub(super) hunts: [u32; HUNTS_MAX],
    pub(super) found: [u16; HUNTS_MAX],
    pub(super) hint_hunt: u32,
    pub(super) hint_distance: u16,
    pub(super) hint: u8,
}

const _: () = assert!(size_of::<Details>() == 88);

impl Card {
    /// What it holds: item and count, by item.
    pub(crate) fn items(&self) -> impl Iterator<Item = (u8, u16)> + use<> {
        let mut items: [(u8, u16); INVENTORY_SLOTS] =
            std::array::from_fn(|at| (self.items[at], self.held[at]));
        items.sort_unstable();
        items.into_iter().filter(|(_, held)| *held > 0)
    }

    /// The actor holds this many of an item now.
    pub(super) fn hold(&mut self, item: u8, held: u32) {
        let known = (0..INVENTORY_SLOTS).find(|at| self.held[*at] > 0 && self.items[*at] == item);
        let place = known.or_else(|| self.held.iter().position(|held| *held == 0));
        // An inventory has no more items than slots. If a strange log has more, they are lost.
        let Some(at) = place else { return };
        let held = u16::try_from(held).unwrap_or(u16::MAX);
        (self.items[at], self.held[at]) = (if held == 0 { 0 } else { item }, held);
    }

    /// Whether an effect runs.
    pub(crate) fn has(&self, effect: Effect) -> bool {
        self.effects & 1 << effect as u8 != 0
    }
}

impl Details {
    /// When an effect ends, while it runs.
    pub(crate) fn until_ms(&self, effect: Effect) -> i64 {
        self.effects_until_ms[effect as usize]
    }

    /// Treasures that the player found in a hunt without leaving the zone.
    pub(crate) fn found(&self, hunt: u32) -> u16 {
        (0..HUNTS_MAX).find(|at| self.hunts[*at] == hunt).map_or(0, |at| self.found[at])
    }

    /// It found one more. The place of a hunt that does not run any more is free.
    pub(super) fn find(&mut self, hunt: u32, is_running: impl Fn(u32) -> bool) {
        let known = self.hunts.iter().position(|known| *known == hunt);
        let free = || self.hunts.iter().position(|known| *known == 0 || !is_running(*known));
        let Some(at) = known.or_else(free) else { return };
        let found = if self.hunts[at] == hunt { self.found[at] } else { 0 };
        (self.hunts[at], self.found[at]) = (hunt, found.saturating_add(1));
    }

    /// Moves all times on by this much: the clock started after they were noted.
    pub(super) fn shift(&mut self, card: &Card, by_ms: i64) {
        let shifted = |time_ms: i64| time_ms.saturating_add(by_ms);
        self.scored_at_ms = shifted(self.scored_at_ms);
        if card.health == 0 {
            self.respawn_at_ms = shifted(self.respawn_at_ms);
        }
        for effect in Effect::ALL.iter().filter(|effect| card.has(**effect)) {
            let until_ms = &mut self.effects_until_ms[*effect as usize];
            *until_ms = shifted(*until_ms);
        }
    }

    /// The last path hint.
    pub(crate) fn compass(&self) -> Compass {
        let Details { hint_hunt: hunt, hint, hint_distance: distance, .. } = *self;
        Compass { hunt, hint, distance }
    }

    pub(super) fn set_compass(&mut self, Compass { hunt, hint, distance }: Compass) {
        (self.hint_hunt, self.hint, self.hint_distance) = (hunt, hint, distance);
    }
}

/// An effect runs until then.
pub(super) fn start_effect(card: &mut Card, details: &mut Details, effect: Effect, until_ms: i64) {
    card.effects |= 1 << effect as u8;
    details.effects_until_ms[effect as usize] = until_ms;
}

/// An effect is over, and with the compass its hint.
pub(super) fn end_effect(card: &mut Card, details: &mut Details, effect: Effect) {
    card.effects &= !(1 << effect as u8);
    details.effects_until_ms[effect as usize] = 0;
    if effect == Effect::Compass {
        details.set_compass(Compass::default());
    }
}

/// A player as a snapshot has it. The caller numbers its score.
pub(super) fn from_outline(player: &PlayerOutline) -> (Card, Details) {
    let PlayerOutline { player_id, x, y, heading, health, score, .. } = *player;
    let mut card = Card { player_id, x, y, heading, health, score, ..Card::default() };
    let mut details = Details {
        scored_at_ms: player.scored_at_ms,
        respawn_at_ms: player.respawn_at_ms.unwrap_or_default(),
        ..Details::default()
    };
    for stack in player.items.iter().filter(|stack| stack.count > 0) {
        let same = player.items.iter().filter(|other| other.item == stack.item);
        card.hold(stack.item, same.map(|other| u32::from(other.count)).sum());
    }
    for (effect, until_ms) in Effect::ALL.iter().zip(player.effects_until_ms) {
        if let Some(until_ms) = until_ms {
            start_effect(&mut card, &mut details, *effect, until_ms);
        }
    }
    for (at, HuntProgress { hunt, found }) in player.progress.into_iter().enumerate() {
        (details.hunts[at], details.found[at]) = (hunt, found);
    }
    details.set_compass(player.compass);
    (card, details)
}
