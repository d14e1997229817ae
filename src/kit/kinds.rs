//! Kinds of updates: the table that defines a game's updates, their packing and their public form.

use crate::kit::update::Payload;
use crate::kit::update_json::UpdateTable;
use std::fmt::Debug;

/// A game's updates, as [`kinds!`] declares them.
pub trait Kinds: Copy + Debug + PartialEq {
    /// The kinds, in the order of their numbers, from 1.
    const KINDS: &'static [UpdateKind];

    /// The table of all of them.
    const TABLE: &'static UpdateTable;

    /// Returns whether the update must follow the zone's clock, because something begins or lasts
    /// from now on.
    fn is_timed(&self) -> bool;

    /// Returns the fields by width.
    fn pack(self) -> Payload;

    /// Decodes an update from its fields. `None` if the kind or a value is unknown.
    fn unpack(payload: Payload) -> Option<Self>;
}

/// The public form of a kind of update.
#[derive(Clone, Copy, Debug)]
pub struct UpdateKind {
    /// The name.
    pub name: &'static str,
    /// The part that it plays in a view.
    pub role: UpdateRole,
    /// The fields in the order in which they are written.
    pub fields: &'static [UpdateField],
}

/// One field of a kind.
#[derive(Clone, Copy, Debug)]
pub struct UpdateField {
    /// The name.
    pub name: &'static str,
    /// The part of the payload that holds the field.
    pub place: PayloadPart,
    /// The format.
    pub form: Form,
    /// The names of its values, if the form is [`Form::Name`].
    pub names: &'static [&'static str],
    /// The largest value of its bits.
    pub most: u64,
}

list! {
    /// Parts that updates play in a view of their zone.
    UpdateRole {
        /// An event of the player was refused.
        Refusal = 0 "refusal",
        /// The player entered the zone. The fields of its card begin with those of the update that
        /// have their names.
        Enter = 1 "enter",
        /// The player left the zone.
        Leave = 2 "leave",
        /// Something about a player in the zone changed. The update sets the fields of the card
        /// that have the names of its own fields.
        Player = 3 "player",
        /// Something about the zone changed, or about a player who may be elsewhere.
        World = 4 "world",
        /// The first field is the hash of the rules from here on.
        Rules = 5 "rules",
        /// The first field is the zone's clock, in milliseconds since the Unix epoch.
        Clock = 6 "clock",
        /// A part of what a player who has left carries to another zone.
        Handoff = 7 "handoff",
    }
}

list! {
    /// Parts of a payload.
    PayloadPart {
        /// `code`.
        Code = 0 "code",
        /// `short`.
        Short = 1 "short",
        /// `word`.
        Word = 2 "word",
        /// The first half of `long`.
        Low = 3 "low",
        /// The second half of `long`.
        High = 4 "high",
        /// `long`.
        Long = 5 "long",
    }
}

list! {
    /// Ways to write a field.
    Form {
        /// An unsigned number.
        Number = 0 "number",
        /// A signed 32-bit number.
        Signed = 1 "signed",
        /// One of the field's names.
        Name = 2 "name",
        /// `true` or `false`.
        Flag = 3 "flag",
        /// A zone, stored as one more; left out where there is none.
        Zone = 4 "zone",
        /// A player; left out where there is none.
        Player = 5 "player",
        /// Four pairs of item and count.
        Items = 6 "items",
    }
}

/// True if a row of [`kinds!`] is timed.
#[macro_export]
macro_rules! is_timed {
    (timed) => {
        true
    };
    (untimed) => {
        false
    };
}

/// Declares a game's updates: an enum, and its [`Kinds`].
///
/// A row has a number, a name, `timed` if something begins or lasts from then on, a role, and
/// fields. A field has a type, its part of the payload, its form and its public name.
#[macro_export]
macro_rules! kinds {
    (
        $(#[$kinds_doc:meta])*
        pub enum $kinds:ident {$(
            $(#[$doc:meta])*
            $variant:ident = $number:literal $name:literal $time:ident $role:ident {
                $($(#[$of:meta])* $field:ident: $type:ty = $place:ident $form:ident $key:literal,)*
            },
        )*}
    ) => {
        $(#[$kinds_doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $kinds {
            $($(#[$doc])* $variant { $($(#[$of])* $field: $type,)* },)*
        }

        const _: () = {
            use $crate::kit::kinds::{
                Form, Kinds, PayloadPart, UpdateField, UpdateKind, UpdateRole,
            };
            use $crate::kit::packed::Packed;
            use $crate::kit::update::Payload;
            use $crate::kit::update_json::UpdateTable;

            impl Kinds for $kinds {
                const KINDS: &'static [UpdateKind] = &[$(UpdateKind {
                    name: $name,
                    role: UpdateRole::$role,
                    fields: &[$(UpdateField {
                        name: $key,
                        place: PayloadPart::$place,
                        form: Form::$form,
                        names: <$type as Packed>::NAMES,
                        most: <$type as Packed>::MOST,
                    },)*],
                },)*];

                const TABLE: &'static UpdateTable = {
                    static TABLE: UpdateTable = UpdateTable::new(<$kinds as Kinds>::KINDS);
                    &TABLE
                };

                #[inline(always)]
                fn is_timed(&self) -> bool {
                    match self {
                        $($kinds::$variant { .. } => $crate::is_timed!($time),)*
                    }
                }

                #[inline(always)]
                fn pack(self) -> Payload {
                    let mut payload = Payload::default();
                    match self {
                        $($kinds::$variant { $($field,)* } => {
                            payload.kind = $number;
                            $(payload.set(PayloadPart::$place, $field.to_bits());)*
                        })*
                    }
                    payload
                }

                fn unpack(payload: Payload) -> Option<$kinds> {
                    Some(match payload.kind {
                        $($number => $kinds::$variant {
                            $($field: Packed::from_bits(payload.get(PayloadPart::$place))?,)*
                        },)*
                        _ => return None,
                    })
                }
            }

            let numbers = [$($number,)*];
            let mut at = 0;
            while at < numbers.len() {
                assert!(numbers[at] == at + 1, "the kinds are numbered from 1 in their order");
                at += 1;
            }
        };
    };
}
