//! The outline of a shard: everything that its published updates show. A view starts from it.

use crate::hunt::Shard;
use crate::hunt::actor::{Body, Compass, HuntProgress, Pack};
use crate::hunt::event::{EFFECT_SLOTS, INVENTORY_SLOTS, ItemStack};
use crate::hunt::hunts::{HUNTS_MAX, Hunt, Treasure};
use crate::hunt::refusal::Effect;

/// One player of a shard. Times are in milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlayerOutline {
    /// The player.
    pub player_id: u64,
    /// Position, in cm.
    pub x: i32,
    /// Position, in cm.
    pub y: i32,
    /// Heading, in centidegrees.
    pub heading: u16,
    /// Health; 0 means downed.
    pub health: u16,
    /// Score.
    pub score: u64,
    /// When the score last changed.
    pub scored_at_ms: i64,
    /// The inventory, by slot.
    pub items: [ItemStack; INVENTORY_SLOTS],
    /// When each effect ends; `None` if it is not active.
    pub effects_until_ms: [Option<i64>; EFFECT_SLOTS],
    /// When the player respawns, if downed.
    pub respawn_at_ms: Option<i64>,
    /// The player's progress, by hunt slot.
    pub progress: [HuntProgress; HUNTS_MAX],
    /// The last path hint.
    pub compass: Compass,
}

/// One running hunt of a shard. Times are in milliseconds since the Unix epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HuntOutline {
    /// The hunt.
    pub hunt: u32,
    /// Treasures that it began with; some may not have found a tile.
    pub treasures: u16,
    /// Number of treasures laid so far.
    pub laid: u16,
    /// Number of opened treasures.
    pub opened: u16,
    /// When it began.
    pub started_at_ms: i64,
    /// When it ends.
    pub ends_at_ms: i64,
    /// Unopened treasures on the map: number and position, in cm.
    pub lying: Vec<(u16, i32, i32)>,
}

impl Shard {
    /// All players, the highest score first; among equal scores, the one reached first.
    pub(crate) fn outline(&self) -> Vec<PlayerOutline> {
        let rows = (0..self.game.actors.bodies.used()).map(|row| (self.game.actors.pack(row), row));
        let mut rows: Vec<_> = rows.filter(|(pack, _)| pack.player_id != 0).collect();
        rows.sort_unstable_by_key(|(pack, _)| {
            (u64::MAX - pack.score, pack.scored_ordinal, pack.player_id)
        });
        rows.into_iter()
            .map(|(pack, row)| self.outline_of(self.game.actors.body(row), pack))
            .collect()
    }

    fn outline_of(&self, body: &Body, pack: &Pack) -> PlayerOutline {
        let effects = Effect::ALL.iter().zip(pack.effects_until_ms);
        let mut effects_until_ms = [None; EFFECT_SLOTS];
        for ((effect, until_ms), place) in effects.zip(&mut effects_until_ms) {
            *place = body.has(*effect).then(|| self.clock.unix_ms(until_ms));
        }
        PlayerOutline {
            player_id: body.player_id,
            x: body.x(),
            y: body.y(),
            heading: body.heading(),
            health: body.health(),
            score: pack.score,
            scored_at_ms: self.clock.unix_ms(pack.scored_at_ms),
            items: pack.items,
            effects_until_ms,
            respawn_at_ms: body.downed().then(|| self.clock.unix_ms(pack.respawn_at_ms)),
            progress: pack.progress,
            compass: body.compass(),
        }
    }

    /// The hunts whose treasures can be opened, by number.
    pub(crate) fn hunt_outlines(&self) -> Vec<HuntOutline> {
        let slots = (0..HUNTS_MAX).filter(|slot| self.game.hunts.hunt(*slot).running());
        let mut hunts: Vec<_> = slots.map(|slot| self.hunt_outline(slot)).collect();
        hunts.sort_unstable_by_key(|hunt| hunt.hunt);
        hunts
    }

    fn hunt_outline(&self, slot: usize) -> HuntOutline {
        let Hunt { hunt, treasures, tried, laid, opened, started_ms, ends_ms, .. } =
            *self.game.hunts.hunt(slot);
        let lying = (0..tried).filter_map(|number| match self.game.hunts.treasure(slot, number) {
            Treasure::Lies(tile) => {
                let (x, y) = self.game.tiles.middle(tile);
                Some((number, x, y))
            }
            Treasure::Nowhere | Treasure::Opened(_) => None,
        });
        HuntOutline {
            hunt,
            treasures,
            laid,
            opened,
            started_at_ms: self.clock.unix_ms(started_ms),
            ends_at_ms: self.clock.unix_ms(ends_ms),
            lying: lying.collect(),
        }
    }
}
