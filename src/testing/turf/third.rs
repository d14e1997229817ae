//! The third edition: fields that had other types, with migrations.

#[path = "play.rs"]
#[allow(clippy::duplicate_mod, reason = "the editions share all that is not in `edition`")]
pub mod play;

pub(crate) mod edition {
    use crate::kit::stored_names::Migration;
    use crate::testing::turf::TurfEdition;

    row! {
        /// A player.
        player Runner { tenths: u64, field: u32, team: u8, score: u64, }
    }

    row! {
        /// The round: when it ends, 0 while none runs, and the fields of each team.
        numbered Round { red: u64, blue: u64, ends_ms: u64, }
    }

    impl TurfEdition for Runner {
        const VERSION: u32 = 3;
        const MIGRATIONS: &'static [Migration] = &[
            Migration { table: "round", field: "red", migrate: |round| round.get("red") },
            Migration { table: "round", field: "blue", migrate: |round| round.get("blue") },
            Migration {
                table: "players",
                field: "tenths",
                migrate: |player| player.get("score")?.checked_mul(10),
            },
        ];

        fn stepped(&mut self) {}

        fn reward(&mut self) -> u64 {
            self.tenths += 10;
            1
        }
    }
}
