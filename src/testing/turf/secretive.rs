//! Turf with a fault: what decides is in no table.

#[path = "../../../docs/games/turf/src/play.rs"]
#[allow(clippy::duplicate_mod, reason = "the versions share all that is not in `edition`")]
pub(crate) mod play;

#[path = "../../../docs/games/turf/src/view.rs"]
#[allow(clippy::duplicate_mod, reason = "the versions share all that is not in `edition`")]
mod view;

pub(crate) mod edition {
    use huntd::kit::stored_names::Migration;
    use std::cell::Cell;

    thread_local! {
        /// State that is in no table.
        static HIDDEN: Cell<u64> = const { Cell::new(0) };
    }

    huntd::row! {
        /// A player.
        player Runner { field: u32, team: u8, score: u64, }
    }

    huntd::row! {
        /// The round: when it ends, 0 while none runs, and the fields of each team.
        numbered Round { ends_ms: u64, red: u32, blue: u32, }
    }

    impl Runner {
        pub(crate) const VERSION: u32 = 1;
        pub(crate) const MIGRATIONS: &[Migration] = &[];

        pub(crate) fn stepped(&mut self) {}

        pub(crate) fn reward(&mut self) -> u64 {
            HIDDEN.replace(HIDDEN.get() + 1)
        }
    }
}
