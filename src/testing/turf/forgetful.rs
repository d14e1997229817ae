//! Turf with a fault: a field that decides is not stored.

#[path = "../../../docs/games/turf/src/play.rs"]
#[allow(clippy::duplicate_mod, reason = "the versions share all that is not in `edition`")]
pub(crate) mod play;

#[path = "../../../docs/games/turf/src/view.rs"]
#[allow(clippy::duplicate_mod, reason = "the versions share all that is not in `edition`")]
mod view;

pub(crate) mod edition {
    use huntd::kit::packed::Packed;
    use huntd::kit::stored_names::Migration;

    /// A number that a stored state does not have.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Forgotten(u64);

    impl Packed for Forgotten {
        const MOST: u64 = 0;

        fn to_bits(self) -> u64 {
            0
        }

        fn from_bits(_: u64) -> Option<Forgotten> {
            Some(Forgotten(0))
        }
    }

    huntd::row! {
        /// A player.
        player Runner { field: u32, team: u8, score: u64, painted: Forgotten, }
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
            self.painted.0 += 1;
            self.painted.0
        }
    }
}
