//! Items and effects.
//!
//! An actor has each effect at most once. Another item of the same kind extends it, up to a limit;
//! different effects run in parallel.

use crate::hunt::actor::{Body, Compass, Pack};
use crate::hunt::change::Change;
use crate::hunt::refusal::{Effect, Refusal};
use crate::hunt::rules::{ItemUse, inventory};
use crate::hunt::{EventOutput, Shard};

impl Shard {
    pub(crate) fn on_use(
        &mut self,
        row: u32,
        body: &mut Body,
        item: u8,
        out: &mut EventOutput,
    ) -> Result<(), Refusal> {
        let does = self.rules.item(item).ok_or(Refusal::UnknownItem)?.does;
        let mut pack = *self.game.actors.pack(row);
        let held = inventory::take(&mut pack.items, item).ok_or(Refusal::ItemNotHeld)?;
        let useless = match does {
            ItemUse::Start(effect) => self.effect_until(&pack, effect, u32::MAX).is_none(),
            ItemUse::Heal(_) => body.health() >= self.rules.actors.health,
        };
        if useless {
            return Err(Refusal::ItemUseless);
        }
        out.push(body.player_id, Change::ItemUsed { item, held });
        match does {
            ItemUse::Start(effect) => {
                let lasts_ms = self.rules.effects[effect as usize].lasts_ms;
                self.start_effect(body, &mut pack, effect, lasts_ms, out);
                if effect == Effect::Compass {
                    *body = self.emit_hint_unless(Compass::default(), *body, out);
                }
            }
            ItemUse::Heal(health) => {
                let gained = health.min(self.rules.actors.health - body.health());
                body.set_health(body.health() + gained);
                let health = body.health().into();
                out.push(body.player_id, Change::Healed { gained, health });
            }
        }
        self.game.actors.write_pack(row, pack);
        Ok(())
    }

    /// Returns when an effect would end if extended by this time; `None` if that is not later than
    /// its current end.
    fn effect_until(&self, pack: &Pack, effect: Effect, lasts_ms: u32) -> Option<u64> {
        let now_ms = self.clock.now_ms();
        let until_ms = pack.effects_until_ms[effect as usize];
        let latest_ms = now_ms + u64::from(self.rules.effects[effect as usize].lasts_ms_max);
        let added_ms = (until_ms.max(now_ms) + u64::from(lasts_ms)).min(latest_ms);
        (added_ms > until_ms.max(now_ms)).then_some(added_ms)
    }

    /// Starts or extends an effect. The caller writes both rows.
    pub(crate) fn start_effect(
        &self,
        body: &mut Body,
        pack: &mut Pack,
        effect: Effect,
        lasts_ms: u32,
        out: &mut EventOutput,
    ) {
        let Some(until_ms) = self.effect_until(pack, effect, lasts_ms) else {
            return;
        };
        let before_ms = std::mem::replace(&mut pack.effects_until_ms[effect as usize], until_ms);
        // An effect that is over but not settled yet counts as over.
        if body.has(effect) && before_ms <= self.clock.now_ms() {
            self.end_effect(body, effect, before_ms);
        }
        if effect == Effect::Haste {
            self.grow_allowance(body, self.clock.now_ms());
        }
        body.start(effect);
        let lasts_ms = (until_ms - self.clock.now_ms()) as u32;
        out.push(body.player_id, Change::EffectStarted { effect, lasts_ms });
    }

    /// Ends an effect that was over at this time. The caller writes the row.
    pub(crate) fn end_effect(&self, body: &mut Body, effect: Effect, at_ms: u64) {
        if effect == Effect::Haste {
            self.grow_allowance(body, at_ms);
        }
        body.end(effect);
    }

    /// Returns the strength of an actor's active effect; `None` if it is not active.
    pub(crate) fn strength(&self, pack: &Pack, effect: Effect) -> Option<u32> {
        let active = pack.effects_until_ms[effect as usize] > self.clock.now_ms();
        active.then(|| self.rules.effects[effect as usize].percent)
    }
}
