//! Events: the input of a zone. An event is plain words; a game's table says what they mean.
//!
//! An event has a fixed size and no pointers, so a block of events is plain memory. The decoder
//! makes events from JSON records.

use crate::kit::field::{
    ActionWords, CarriedField, FIELDS_MAX, FieldForm, FieldPlace, FieldReading, FieldSet,
    FieldSpec, PLAYER_ID, SEQ, TS_US, TYPE, carried_words, field_names, of_form, readings,
};
use crate::kit::names::Names;

/// Limit of an event's JSON. A longer record is a reject: game events have some hundred bytes, and
/// the limit keeps the decoder's worst case small.
pub const RECORD_BYTES_MAX: usize = 16 * 1024;

/// Nesting depth of an event's JSON. Events are flat; eight levels leave room for unknown fields.
pub(crate) const JSON_DEPTH_MAX: usize = 8;

/// Incremented whenever the decoder makes a different event from a record, or rejects other
/// records.
pub(crate) const DECODER_VERSION: u64 = 2;

/// One event, of a player or of the world, with its place in the input log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event<A> {
    /// Offset of the record in its input partition.
    pub offset: i64,
    /// Timestamp of the record as Kafka stored it, in milliseconds since the Unix epoch. The zone's
    /// clock follows these times.
    pub time_ms: i64,
    /// The player; 0 for events of the world.
    pub player_id: u64,
    /// The player's own counter, from 1; the id of a tick.
    pub seq: u64,
    /// When the producer emitted the event, in microseconds since the Unix epoch. It is copied to
    /// the updates and never used as a clock.
    pub ts_us: i64,
    /// The action.
    pub action: A,
}

list! {
    /// Who acts. It decides which of `player_id` and `seq` an event has, and what the kit does
    /// before it asks the game.
    Subject {
        /// A player in the zone. `seq` counts the player's events.
        Player = 0 "player",
        /// A player that enters the zone with nothing.
        Enter = 1 "enter",
        /// A player that leaves the zone.
        Leave = 2 "leave",
        /// A player that comes from another zone: its handoffs have an order of their own.
        Arrival = 3 "arrival",
        /// The world: the event has neither player nor `seq`.
        World = 4 "world",
        /// Time passes: `seq` counts such events.
        Tick = 5 "tick",
    }
}

impl Subject {
    /// Returns whether the event is a player's own, which the player's `seq` counts.
    pub(crate) fn is_player(self) -> bool {
        matches!(self, Subject::Player | Subject::Enter | Subject::Leave)
    }

    /// Returns whether the event is the world's.
    pub(crate) fn is_world(self) -> bool {
        matches!(self, Subject::World | Subject::Tick)
    }
}

/// An event as eight plain words: one cache line, in lists and blocks, whatever the game.
pub type PlainEvent = Event<ActionWords>;

const _: () = assert!(size_of::<PlainEvent>() == 64, "an event is a cache line");

/// The record format of an action.
#[derive(Clone, Copy, Debug)]
pub struct ActionSpec {
    /// The name.
    pub name: &'static str,
    /// The `type` of the record.
    pub type_name: &'static str,
    /// Who acts.
    pub subject: Subject,
    /// The fields of the action, in the order in which huntd writes them.
    pub fields: &'static [ActionField],
    /// All fields that the record must have.
    pub required: FieldSet,
}

/// One field of an action.
#[derive(Clone, Copy, Debug)]
pub struct ActionField {
    /// The field's number.
    pub field: u8,
    /// The field's public description.
    pub spec: &'static FieldSpec,
    /// True if the record must have it.
    pub presence: Presence,
    /// Where the action's words hold it.
    pub place: FieldPlace,
}

/// Requirement of a field in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// Required.
    Required,
    /// Optional.
    Optional,
}

impl ActionSpec {
    pub const fn new(
        [name, type_name]: [&'static str; 2],
        subject: Subject,
        fields: &'static [ActionField],
    ) -> ActionSpec {
        let mut required = subject_fields(subject);
        let mut at = 0;
        while at < fields.len() {
            if let Presence::Required = fields[at].presence {
                required = required.and(FieldSet::of(&[fields[at].field]));
            }
            at += 1;
        }
        ActionSpec { name, type_name, subject, fields, required }
    }

    /// Returns the place of a field in the action's words, if the action has the field.
    pub(crate) fn place_of(&self, field: u8) -> Option<FieldPlace> {
        self.fields.iter().find(|known| known.field == field).map(|known| known.place)
    }
}

/// Returns the fields of each record of a subject, in addition to those of the action.
pub(crate) const fn subject_fields(subject: Subject) -> FieldSet {
    match subject {
        Subject::Player | Subject::Enter | Subject::Leave | Subject::Arrival => {
            FieldSet::of(&[TYPE, PLAYER_ID, SEQ, TS_US])
        }
        Subject::World => FieldSet::of(&[TYPE, TS_US]),
        Subject::Tick => FieldSet::of(&[TYPE, SEQ, TS_US]),
    }
}

/// All events of a game: what the decoder and the writers of records know of it.
pub struct EventTable {
    /// The fields, by number.
    pub fields: &'static [FieldSpec],
    /// The actions, by number.
    pub actions: &'static [ActionSpec],
    /// The object that an arrival carries, and the number of its words.
    pub carried: &'static [CarriedField],
    pub(crate) carried_words: usize,
    readings: [FieldReading; FIELDS_MAX],
    /// The fields that say what a player carries.
    pub(crate) handoffs: FieldSet,
    pub(crate) field_names: Names,
    /// Actions by the `type` of their records; an arrival is an entry with a handoff.
    pub(crate) type_names: Names,
}

/// Limit of a game's actions.
pub(crate) const ACTIONS_MAX: usize = 32;

impl EventTable {
    /// Creates the table. It does not compile if a field's name has a digit: records that differ in
    /// digits alone are read as having the same fields. Nor does it if a field has a range that the
    /// decoder cannot hold.
    pub const fn new(
        fields: &'static [FieldSpec],
        actions: &'static [ActionSpec],
        carried: &'static [CarriedField],
    ) -> EventTable {
        let (mut names, mut at) = ([""; ACTIONS_MAX], 0);
        while at < fields.len() {
            let (key, mut byte) = (fields[at].key.as_bytes(), 0);
            while byte < key.len() {
                assert!(!key[byte].is_ascii_digit(), "no digit may be in the name of a field");
                byte += 1;
            }
            at += 1;
        }
        at = 0;
        while at < actions.len() {
            if !matches!(actions[at].subject, Subject::Arrival) {
                names[at] = actions[at].type_name;
            }
            at += 1;
        }
        EventTable {
            fields,
            actions,
            carried,
            carried_words: carried_words(carried),
            readings: readings(fields),
            handoffs: of_form(fields, FieldForm::Handoff),
            field_names: field_names(fields),
            type_names: Names::new(&names),
        }
    }

    /// Returns how a field is read.
    #[inline(always)]
    pub(crate) fn reading(&self, field: u8) -> &FieldReading {
        &self.readings[usize::from(field) % FIELDS_MAX]
    }

    /// Returns the actions of one subject, by number.
    pub(crate) fn of_subject(&self, subject: Subject) -> impl Iterator<Item = u8> {
        (0..).zip(self.actions).filter(move |(_, of)| of.subject == subject).map(|(at, _)| at)
    }
}

impl std::fmt::Debug for EventTable {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("EventTable").finish_non_exhaustive()
    }
}

/// The action of a game's event, as [`events!`] declares it.
pub trait GameAction: Copy {
    /// The game's events.
    const EVENTS: &'static EventTable;

    /// Returns who acts.
    fn subject(words: &ActionWords) -> Subject;

    /// Returns whether a player in the zone acts, as in most events.
    fn is_of_player(words: &ActionWords) -> bool;

    /// Returns the action in these words, which the decoder or [`GameAction::pack`] has made.
    /// `carried` holds what arrivals carry.
    fn unpack(words: &ActionWords, carried: &[u64]) -> Self;

    /// Returns the action's words, and appends what it carries.
    fn pack(self, carried: &mut Vec<u64>) -> ActionWords;

    /// Returns the words of an action that carries nothing.
    fn words(self) -> ActionWords {
        let mut carried = Vec::new();
        let words = self.pack(&mut carried);
        assert!(carried.is_empty(), "the action carries something");
        words
    }
}

impl<A> Event<A> {
    /// Returns the event with another action.
    #[inline(always)]
    pub(crate) fn with<T>(&self, action: T) -> Event<T> {
        let Event { offset, time_ms, player_id, seq, ts_us, .. } = *self;
        Event { offset, time_ms, player_id, seq, ts_us, action }
    }
}

impl PlainEvent {
    /// Returns the event with its action.
    #[inline(always)]
    pub fn unpack<A: GameAction>(&self, carried: &[u64]) -> Event<A> {
        self.with(A::unpack(&self.action, carried))
    }
}

impl<A: GameAction> Event<A> {
    /// Returns the event's words, and appends what it carries.
    pub(crate) fn pack(&self, carried: &mut Vec<u64>) -> PlainEvent {
        self.with(self.action.pack(carried))
    }
}

/// Declares a game's events: the fields of its records, and an enum of the actions.
///
/// `type`, `player_id`, `seq` and `ts_us` are fields of every game. An action has a number, a name,
/// who acts, if need be the `type` of its records, and fields. A field has a type, the record's
/// field, and whether the record must have it.
#[macro_export]
macro_rules! events {
    (
        $(#[$table_doc:meta])*
        $table:ident = $carried_fields:expr;
        fields $event_field:ident {$(
            $(#[$field_doc:meta])*
            $key:ident = $key_name:literal $form:ident $([$least:expr, $most:expr])?,
        )*}
        kinds $kind:ident;
        $(#[$action_doc:meta])*
        actions $action:ident $(<$carried:ident = $whole:ty>)? {$(
            $(#[$doc:meta])*
            $variant:ident = $number:literal $name:literal $subject:ident $(as $type_name:literal)?
            $({ $($field:ident: $type:ty = $of:ident $presence:ident,)* })?,
        )*}
    ) => {
        /// A known field of a record.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        #[allow(dead_code, reason = "code names only some of the fields of every game")]
        pub enum $event_field {
            /// The type of the event.
            Type,
            /// The player.
            PlayerId,
            /// The player's event counter; in a tick, its id.
            Seq,
            /// When the producer emitted the event, in microseconds since the Unix epoch.
            TsUs,
            $($(#[$field_doc])* $key,)*
        }

        impl $event_field {
            /// All fields.
            #[allow(dead_code, reason = "tools and tests list them, if the game has any")]
            pub const ALL: &[$event_field] = &[
                $event_field::Type,
                $event_field::PlayerId,
                $event_field::Seq,
                $event_field::TsUs,
                $($event_field::$key,)*
            ];

            const SPECS: &[$crate::kit::field::FieldSpec] = {
                use $crate::kit::field::{FieldForm, FieldSpec};
                let (id, time) = ([1, u64::MAX as i128], [i64::MIN as i128, i64::MAX as i128]);
                let number = FieldForm::Integer;
                &[
                    FieldSpec { key: "type", form: FieldForm::TypeName, least: 0, most: 0 },
                    FieldSpec { key: "player_id", form: FieldForm::Id, least: id[0], most: id[1] },
                    FieldSpec { key: "seq", form: number, least: id[0], most: id[1] },
                    FieldSpec { key: "ts_us", form: number, least: time[0], most: time[1] },
                    $(FieldSpec {
                        key: $key_name,
                        form: FieldForm::$form,
                        least: 0 $(+ $least as i128)?,
                        most: 0 $(+ $most as i128)?,
                    },)*
                ]
            };

            /// Returns the field's public description.
            pub const fn spec(self) -> &'static $crate::kit::field::FieldSpec {
                &$event_field::SPECS[self as usize]
            }
        }

        $crate::list! {
            /// The kinds of actions.
            $kind { $($(#[$doc])* $variant = $number $name,)* }
        }

        impl $kind {
            const SPECS: &[$crate::kit::event::ActionSpec] = {
                use $crate::kit::event::{ActionField, ActionSpec, Presence, Subject};
                &[$(ActionSpec::new(
                    [$name, [$($type_name,)? $name][0]],
                    Subject::$subject,
                    &[$($(ActionField {
                        field: $event_field::$of as u8,
                        spec: $event_field::$of.spec(),
                        presence: Presence::$presence,
                        place: $kind::$variant.place_of($event_field::$of),
                    },)*)?],
                ),)*]
            };

            /// Returns the action's public description.
            pub const fn spec(self) -> &'static $crate::kit::event::ActionSpec {
                &$kind::SPECS[self as usize]
            }

            /// Returns where the words of this kind of action hold a field.
            const fn place_of(self, field: $event_field) -> $crate::kit::field::FieldPlace {
                use $crate::kit::field::{FieldType, FieldPlace};
                $(#[allow(dead_code, reason = "not every list of fields names it")]
                type $carried = $whole;)?
                let fields: &[(u8, bool)] = match self {
                    $($kind::$variant => &[$($(
                        ($event_field::$of as u8, <$type as FieldType>::IS_WIDE),
                    )*)?],)*
                };
                FieldPlace::of(fields, field as u8)
            }
        }

        $(#[$table_doc])*
        pub static $table: $crate::kit::event::EventTable =
            $crate::kit::event::EventTable::new($event_field::SPECS, $kind::SPECS, $carried_fields);

        $(#[$action_doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $action $(<$carried = $whole>)? {
            $($(#[$doc])* $variant $({ $($field: $type,)* })?,)*
        }

        impl $(<$carried>)? $action $(<$carried>)? {
            /// Returns the kind of action.
            #[inline]
            pub fn kind(&self) -> $kind {
                match self {
                    $($action::$variant { .. } => $kind::$variant,)*
                }
            }
        }

        impl $(<$carried: Copy + $crate::kit::field::FieldType>)? $crate::kit::event::GameAction
            for $action $(<$carried>)?
        {
            const EVENTS: &'static $crate::kit::event::EventTable = &$table;

            #[inline(always)]
            fn subject(words: &$crate::kit::field::ActionWords) -> $crate::kit::event::Subject {
                match words.kind() {
                    $($number => $crate::kit::event::Subject::$subject,)*
                    kind => unreachable!("no action has the number {kind}"),
                }
            }

            #[inline(always)]
            fn is_of_player(words: &$crate::kit::field::ActionWords) -> bool {
                use $crate::kit::event::Subject;
                match words.kind() {
                    $($number => matches!(Subject::$subject, Subject::Player),)*
                    _ => false,
                }
            }

            #[inline(always)]
            fn unpack(words: &$crate::kit::field::ActionWords, _carried: &[u64]) -> Self {
                match words.kind() {
                    $($number => $action::$variant $({ $($field: {
                        let place = const { $kind::$variant.place_of($event_field::$of) };
                        <$type as $crate::kit::field::FieldType>::of(words, place, _carried)
                    },)* })?,)*
                    kind => unreachable!("no action has the number {kind}"),
                }
            }

            fn pack(self, _carried: &mut Vec<u64>) -> $crate::kit::field::ActionWords {
                let mut words = $crate::kit::field::ActionWords::new(self.kind() as u8);
                match self {
                    $($action::$variant $({ $($field,)* })? => {$($(
                        let place = $kind::$variant.place_of($event_field::$of);
                        $crate::kit::field::FieldType::put($field, &mut words, place, _carried);
                    )*)?})*
                }
                words
            }
        }

        const _: () = {
            use $crate::kit::field::{FieldSpec, FieldType};
            $(#[allow(dead_code, reason = "most fields are the same in either form")]
            type $carried = $whole;)?
            $($($({
                let FieldSpec { least, most, .. } = *$event_field::$of.spec();
                let fits = <$type as FieldType>::LEAST <= least
                    && most <= <$type as FieldType>::MOST;
                assert!(fits, concat!($name, ": ", stringify!($field), " is too narrow"));
            })*)?)*
        };
    };
}
