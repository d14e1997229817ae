//! Players for `load` and `demo`: they walk, and paint where they are.

use super::events::TurfAction;
use huntd::kit::bots::{Bots, SplitMix64};
use huntd::kit::event::GameAction;
use huntd::kit::field::ActionWords;

/// Ticks between the starts of two rounds.
const ROUND_EVERY_TICKS: u64 = 10;

/// Seconds that a round takes.
const ROUND_SECONDS: u16 = 8;

/// Players who paint.
pub(crate) struct Painters {
    /// The fields of a zone.
    pub fields: u32,
}

impl Bots for Painters {
    fn enter(&mut self, player: usize, _: i64) -> ActionWords {
        TurfAction::Join { field: (player as u32 * 7) % self.fields }.words()
    }

    fn act(&mut self, _: usize, _: i64, chance: &mut SplitMix64) -> ActionWords {
        let action = match chance.below(10) {
            0..3 => TurfAction::Step { east: 1 },
            3..4 => TurfAction::Step { east: 0 },
            _ => TurfAction::Paint,
        };
        action.words()
    }

    fn act_as_world(&mut self, tick: u64, _: u16, _: &mut SplitMix64) -> ActionWords {
        match tick % ROUND_EVERY_TICKS {
            1 => TurfAction::Round { seconds: ROUND_SECONDS }.words(),
            _ => TurfAction::Tick.words(),
        }
    }
}
