//! The first version: a player's steps are counted.

#[path = "play.rs"]
pub mod play;

#[path = "view.rs"]
mod view;

pub(crate) mod edition {
    use huntd::kit::stored_names::Migration;

    huntd::row! {
        /// A player.
        player Runner { field: u32, team: u8, score: u64, steps: u64, }
    }

    huntd::row! {
        /// The round: when it ends, 0 while none runs, and the fields of each team.
        numbered Round { ends_ms: u64, red: u32, blue: u32, }
    }

    impl Runner {
        pub(crate) const VERSION: u32 = 1;
        pub(crate) const MIGRATIONS: &[Migration] = &[];

        /// Notes that the player has gone one field on.
        pub(crate) fn stepped(&mut self) {
            self.steps += 1;
        }

        /// Notes that the player has painted a field, and returns the points for it.
        pub(crate) fn reward(&mut self) -> u64 {
            1
        }
    }
}
