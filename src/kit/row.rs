//! Rows: what tables hold, as words.

use crate::kit::mix;
use crate::kit::words::Words;
use std::fmt::Debug;

/// A row: a fixed number of words, of which all zero is the empty row.
pub trait Row: Copy + Debug + Default {
    /// Its words: an array.
    type Words: RowWords;

    /// Rows lie in memory as values of this type do.
    type Alignment: Copy + Debug + Default;

    /// The number of its words.
    const WORDS: usize = Self::Words::COUNT;

    /// What the row's hash is bound to beside its words.
    const IDENTITY: Identity;

    /// Returns every field, packed.
    fn to_words(&self) -> Self::Words;

    /// Returns the row that these words are; `None` if there is no such row.
    fn from_words(words: Self::Words) -> Option<Self>;
}

/// The words of a row.
pub trait RowWords: Copy {
    /// How many they are.
    const COUNT: usize;

    /// Returns them as a slice.
    fn as_slice(&self) -> &[u64];

    /// Returns their hash.
    fn hash(&self, salt: u64) -> u64;

    /// Reads them. `None`: there are fewer.
    fn read(words: &mut Words) -> Option<Self>;
}

impl<const COUNT: usize> RowWords for [u64; COUNT] {
    const COUNT: usize = COUNT;

    #[inline(always)]
    fn as_slice(&self) -> &[u64] {
        self
    }

    #[inline(always)]
    fn hash(&self, salt: u64) -> u64 {
        mix::hash(self, salt)
    }

    fn read(words: &mut Words) -> Option<[u64; COUNT]> {
        words.take()
    }
}

/// What a row's hash is bound to beside its words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    /// Nothing: the row names itself in its first word, and where it lies in the table is layout.
    Own,
    /// The row's number, which has a meaning.
    Number,
}

/// Declares a row with a word for each field: of a player, or of a table whose numbers have a
/// meaning.
#[macro_export]
macro_rules! row {
    (
        $(#[$doc:meta])*
        player $row:ident { $($(#[$of:meta])* $field:ident: $type:ty,)* }
    ) => {
        $crate::row! {
            $(#[$doc])*
            $row by Own {
                /// The player; 0 in a row that is free.
                player_id: u64,
                /// The last `seq` that was applied.
                seq: u64,
                $($(#[$of])* $field: $type,)*
            }
        }

        $crate::player_row!($row);
    };
    (
        $(#[$doc:meta])*
        numbered $row:ident { $($(#[$of:meta])* $field:ident: $type:ty,)* }
    ) => {
        $crate::row! { $(#[$doc])* $row by Number { $($(#[$of])* $field: $type,)* } }
    };
    (
        $(#[$doc:meta])*
        $row:ident by $identity:ident { $($(#[$of:meta])* $field:ident: $type:ty,)* }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $row {
            $($(#[$of])* pub $field: $type,)*
        }

        const _: () = {
            use $crate::kit::packed::Packed;
            use $crate::kit::row::{Identity, Row};

            const WORDS: usize = [$(stringify!($field)),*].len();

            impl $row {
                /// The fields, as a stored state names them.
                pub const FIELDS: &'static [$crate::kit::stored_names::StoredField] =
                    &$crate::kit::stored_names::word_fields::<WORDS>(
                        [$(stringify!($field)),*],
                        [$(stringify!($type)),*],
                        [$(<$type as Packed>::MOST),*],
                    );
            }

            impl Row for $row {
                type Words = [u64; WORDS];
                type Alignment = u64;
                const IDENTITY: Identity = Identity::$identity;

                #[inline(always)]
                fn to_words(&self) -> [u64; WORDS] {
                    [$(self.$field.to_bits()),*]
                }

                fn from_words([$($field),*]: [u64; WORDS]) -> Option<$row> {
                    Some($row { $($field: Packed::from_bits($field)?,)* })
                }
            }
        };
    };
}
