//! The second edition: steps are not counted, painted fields are, and every third one has two
//! points.

#[path = "play.rs"]
#[allow(clippy::duplicate_mod, reason = "the editions share all that is not in `edition`")]
pub mod play;

pub(crate) mod edition {
    use crate::kit::stored_names::Migration;
    use crate::testing::turf::TurfEdition;

    row! {
        /// A player.
        player Runner { field: u32, painted: u32, team: u8, score: u64, }
    }

    row! {
        /// The round: when it ends, 0 while none runs, and the fields of each team.
        numbered Round { ends_ms: u64, red: u32, blue: u32, }
    }

    impl TurfEdition for Runner {
        const VERSION: u32 = 2;
        const MIGRATIONS: &'static [Migration] = &[];

        fn stepped(&mut self) {}

        fn reward(&mut self) -> u64 {
            self.painted += 1;
            1 + u64::from(self.painted.is_multiple_of(3))
        }
    }
}
