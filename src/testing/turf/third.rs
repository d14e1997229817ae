//! The third version: fields that had other types, with migrations.

#[path = "../../../docs/games/turf/src/play.rs"]
#[allow(clippy::duplicate_mod, reason = "the versions share all that is not in `edition`")]
pub(crate) mod play;

pub(crate) mod edition {
    use crate::kit::stored_names::Migration;

    huntd::row! {
        /// A player.
        player Runner { tenths: u64, field: u32, team: u8, score: u64, }
    }

    huntd::row! {
        /// The round: when it ends, 0 while none runs, and the fields of each team.
        numbered Round { red: u64, blue: u64, ends_ms: u64, }
    }

    impl Runner {
        pub(crate) const VERSION: u32 = 3;
        pub(crate) const MIGRATIONS: &[Migration] = &[
            Migration { table: "round", field: "red", migrate: |round| round.get("red") },
            Migration { table: "round", field: "blue", migrate: |round| round.get("blue") },
            Migration {
                table: "players",
                field: "tenths",
                migrate: |player| player.get("score")?.checked_mul(10),
            },
        ];

        pub(crate) fn stepped(&mut self) {}

        pub(crate) fn reward(&mut self) -> u64 {
            self.tenths += 10;
            1
        }
    }
}
