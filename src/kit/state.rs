//! The state of a game in one zone: the tables, and how a checkpoint stores and reads them.

use crate::kit::checkpoint::{Checkpoint, Part};
use crate::kit::players::{Player, Players};
use crate::kit::stored_names::StoredTable;
use crate::kit::words::Words;
use std::fmt::Debug;

/// The state of a game in one zone, as [`state!`] declares it.
///
/// It is in tables and columns, whose hashes are the digest and which a checkpoint reads. What
/// follows from them (indexes, trees, lists) is computed again after a restart.
pub trait GameState: Clone + Debug {
    /// First word of an encoded zone: its name and the format's version.
    const FORMAT: u64;

    /// The tables of an encoded state, numbered from [`GAME_TABLES`](
    /// crate::kit::stored_names::GAME_TABLES) on.
    const TABLES: &'static [StoredTable];

    /// Words that a checkpoint notes at once, at most: everything that is in no table.
    const NOTED_WORDS_MAX: usize;

    /// The number of parts that a checkpoint reads.
    const PARTS: u8;

    /// The numbers that a designer may change.
    type Rules;

    /// The part of a player that almost every event needs.
    type Player: Player;

    /// Returns the limit of players in a zone.
    fn players_max(rules: &Self::Rules) -> u32;

    /// Returns how many rows each [`Numbered`](crate::kit::numbered::Numbered) table has.
    fn numbered_rows(rules: &Self::Rules) -> Vec<u32>;

    /// Returns how many words the rows of the largest state by these rules have.
    fn row_words_max(rules: &Self::Rules) -> u64;

    /// Returns the state before the first event.
    fn new(rules: &Self::Rules) -> Self;

    /// Returns the hash of the players, and that of everything else.
    fn digests(&self) -> [u64; 2];

    /// Returns the players.
    fn players(&self) -> &Players<Self::Player>;

    /// Returns the players.
    fn players_mut(&mut self) -> &mut Players<Self::Player>;

    /// Returns a part.
    fn part(&self, number: u8) -> &dyn Part;

    /// Returns a part.
    fn part_mut(&mut self, number: u8) -> &mut dyn Part;

    /// Lists the players' part of an encoded state: noted words and rows, in their order.
    fn list_players(&self, checkpoint: &mut Checkpoint);

    /// Lists the rest of an encoded state.
    fn list_rest(&self, checkpoint: &mut Checkpoint);

    /// Reads the players of a state that was encoded at this time of the zone's clock. `None`:
    /// they are not players that these rules allow.
    fn load_players(&mut self, rules: &Self::Rules, now_ms: u64, words: &mut Words) -> Option<()>;

    /// Reads the rest of an encoded state. `None`: it is not one.
    fn load_rest(&mut self, now_ms: u64, words: &mut Words) -> Option<()>;
}

/// Declares the state of a game: its players, and tables whose row numbers have a meaning.
///
/// Both have a bound that may depend on the rules. All rows of a numbered table exist from the
/// start, at least one. Rules are refused if they allow more than 131,072 players, or if a zone
/// that is full by them takes more than 64 MiB. A row has 32 words at most.
#[macro_export]
macro_rules! state {
    (
        $(#[$doc:meta])*
        $state:ident of $format:literal by $rules:ident: $rules_type:ty {
            $players:ident: Players<$player:ty> = $players_max:expr,
            $($table:ident: Numbered<$row:ty> = $rows:expr,)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $state {
            pub $players: $crate::kit::players::Players<$player>,
            $(pub $table: $crate::kit::numbered::Numbered<$row>,)*
        }

        const _: () = {
            use $crate::kit::checkpoint::{Checkpoint, Part};
            use $crate::kit::numbered::Numbered;
            use $crate::kit::players::Players;
            use $crate::kit::row::Row;
            use $crate::kit::state::GameState;
            use $crate::kit::stored_names::{GAME_TABLES, StoredTable};
            use $crate::kit::words::Words;

            #[repr(u8)]
            #[allow(non_camel_case_types, reason = "parts have the names of their fields")]
            enum PartNumber { $players, $($table,)* }

            impl GameState for $state {
                const FORMAT: u64 = u64::from_le_bytes(*$format);
                const TABLES: &'static [StoredTable] = &[
                    StoredTable::of_rows(
                        stringify!($players),
                        <$player as Row>::WORDS,
                        <$player>::FIELDS,
                    ),
                    $(StoredTable::of_rows(
                        stringify!($table),
                        <$row as Row>::WORDS,
                        <$row>::FIELDS,
                    ),)*
                ];
                const NOTED_WORDS_MAX: usize = 1;
                const PARTS: u8 = [stringify!($players), $(stringify!($table)),*].len() as u8;

                type Rules = $rules_type;
                type Player = $player;

                fn players_max($rules: &$rules_type) -> u32 {
                    $players_max
                }

                fn numbered_rows($rules: &$rules_type) -> Vec<u32> {
                    let _not_every_state_has_such_tables = $rules;
                    vec![$($rows),*]
                }

                fn row_words_max($rules: &$rules_type) -> u64 {
                    let words = |rows: u32, words: usize| u64::from(rows) * words as u64;
                    let rest: &[u64] = &[$(words($rows, <$row as Row>::WORDS)),*];
                    words($players_max, <$player as Row>::WORDS) + rest.iter().sum::<u64>()
                }

                fn new($rules: &$rules_type) -> $state {
                    $state {
                        $players: Players::new($players_max as usize, PartNumber::$players as u64),
                        $($table: Numbered::new($rows, PartNumber::$table as u64),)*
                    }
                }

                fn digests(&self) -> [u64; 2] {
                    let rest = [$(self.$table.digest()),*];
                    [self.$players.digest(), rest.into_iter().fold(0, u64::wrapping_add)]
                }

                #[inline(always)]
                fn players(&self) -> &Players<$player> {
                    &self.$players
                }

                #[inline(always)]
                fn players_mut(&mut self) -> &mut Players<$player> {
                    &mut self.$players
                }

                fn part(&self, number: u8) -> &dyn Part {
                    let parts: [&dyn Part; Self::PARTS as usize] =
                        [&self.$players, $(&self.$table),*];
                    parts[usize::from(number)]
                }

                fn part_mut(&mut self, number: u8) -> &mut dyn Part {
                    let parts: [&mut dyn Part; Self::PARTS as usize] =
                        [&mut self.$players, $(&mut self.$table),*];
                    parts.into_iter().nth(number.into()).expect("there is a part of this number")
                }

                fn list_players(&self, checkpoint: &mut Checkpoint) {
                    let (words, part) = (<$player as Row>::WORDS, PartNumber::$players as u8);
                    self.$players.list(GAME_TABLES + part, part, words, checkpoint);
                }

                fn list_rest(&self, checkpoint: &mut Checkpoint) {
                    $({
                        let part = PartNumber::$table as u8;
                        self.$table.list(GAME_TABLES + part, part, checkpoint);
                    })*
                }

                fn load_players(
                    &mut self,
                    $rules: &$rules_type,
                    _: u64,
                    words: &mut Words,
                ) -> Option<()> {
                    self.$players.load($players_max, words)
                }

                fn load_rest(&mut self, _: u64, words: &mut Words) -> Option<()> {
                    $(self.$table.load(words)?;)*
                    Some(())
                }
            }
        };
    };
}
