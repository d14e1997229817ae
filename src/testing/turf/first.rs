//! The first edition: a player's steps are counted.

#[path = "play.rs"]
#[allow(clippy::duplicate_mod, reason = "the editions share all that is not in `edition`")]
pub mod play;

pub(crate) mod edition {
    use crate::kit::stored_names::Migration;

    pub(crate) const VERSION: u32 = 1;
    pub(crate) const MIGRATIONS: &[Migration] = &[];

    row! {
        /// A player.
        player Runner { field: u32, team: u8, score: u64, steps: u64, }
    }

    row! {
        /// The round: when it ends, 0 while none runs, and the fields of each team.
        numbered Round { ends_ms: u64, red: u32, blue: u32, }
    }

    pub(crate) fn stepped(runner: &mut Runner) {
        runner.steps += 1;
    }

    pub(crate) fn reward(_: &mut Runner) -> u64 {
        1
    }
}
