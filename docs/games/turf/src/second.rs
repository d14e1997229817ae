//! The second version: steps are not counted, painted fields are, and every third one has two
//! points.

#[path = "play.rs"]
#[allow(clippy::duplicate_mod, reason = "the versions share all that is not in `edition`")]
pub mod play;

#[path = "view.rs"]
#[allow(clippy::duplicate_mod, reason = "the versions share all that is not in `edition`")]
mod view;

pub(crate) mod edition {
    use huntd::kit::stored_names::Migration;

    huntd::row! {
        /// A player.
        player Runner { field: u32, painted: u32, team: u8, score: u64, }
    }

    huntd::row! {
        /// The round: when it ends, 0 while none runs, and the fields of each team.
        numbered Round { ends_ms: u64, red: u32, blue: u32, }
    }

    impl Runner {
        pub(crate) const VERSION: u32 = 2;
        // The first version has a point for each painted field.
        pub(crate) const MIGRATIONS: &[Migration] = &[Migration {
            table: "players",
            field: "painted",
            migrate: |player| player.get("score"),
        }];

        /// Notes that the player has gone one field on.
        pub(crate) fn stepped(&mut self) {}

        /// Notes that the player has painted a field, and returns the points for it.
        pub(crate) fn reward(&mut self) -> u64 {
            self.painted += 1;
            1 + u64::from(self.painted.is_multiple_of(3))
        }
    }
}
