//! The first edition: a player's steps are counted.

use crate::kit::stored_names::Migration;
use crate::testing::turf::TurfEdition;

row! {
    /// A player.
    player Runner { field: u32, team: u8, score: u64, steps: u64, }
}

row! {
    /// The round: when it ends, 0 while none runs, and the fields of each team.
    numbered Round { ends_ms: u64, red: u32, blue: u32, }
}

impl TurfEdition for Runner {
    const VERSION: u32 = 1;
    const MIGRATIONS: &'static [Migration] = &[];

    fn stepped(&mut self) {
        self.steps += 1;
    }

    fn reward(&mut self) -> u64 {
        1
    }
}
