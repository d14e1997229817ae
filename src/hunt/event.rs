//! The events of a shard: the engine's whole input, and the table of all events.
//!
//! An event is a fixed-size value without pointers, so a block of events is plain memory. The
//! decoder makes events from JSON records.

use crate::hunt::field::{FieldForm, FieldSet, FieldSource, FieldSpec, FieldType, FieldValues};
use crate::kit::event::Subject;

/// Limit of an event's JSON. A longer record is a reject: game events have some hundred bytes, and
/// the limit keeps the decoder's worst case small.
pub const RECORD_BYTES_MAX: usize = 16 * 1024;

/// Nesting depth of an event's JSON. Events are flat; eight levels leave room for unknown fields.
pub(crate) const JSON_DEPTH_MAX: usize = 8;

/// Incremented whenever the decoder makes a different event from a record, or rejects other
/// records.
pub(crate) const DECODER_VERSION: u64 = 2;

/// Slots of an actor's inventory, all of which a handoff carries.
pub(crate) const INVENTORY_SLOTS: usize = 8;

/// Limit of an actor's simultaneous timed effects, all of which a handoff carries.
pub(crate) const EFFECT_SLOTS: usize = 4;

/// An event of the hunt. What an arrival carries is part of the event, or in a list beside it: see
/// [`ListedEvent`](crate::hunt::events::ListedEvent).
pub type Event<H = Handoff> = crate::kit::event::Event<Action<H>>;

/// The data that an actor carries from one zone to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handoff {
    /// The zone that the player left.
    pub from_zone: u16,
    /// Rises with each of the player's handoffs: a zone accepts each (player, crossing) once.
    pub crossing: u32,
    /// The player's score.
    pub score: u64,
    /// The last `seq` of the player that was applied.
    pub last_seq: u64,
    /// The inventory; a slot with a count of 0 is empty.
    pub items: [ItemStack; INVENTORY_SLOTS],
    /// The active effects; 0 for an empty slot.
    pub effects: [u8; EFFECT_SLOTS],
    /// Remaining time of the effect in the same slot, in milliseconds.
    pub effects_left_ms: [u32; EFFECT_SLOTS],
}

/// A stack of one kind of item.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ItemStack {
    /// The item, as numbered in the rules.
    pub item: u8,
    /// The number of items; 0 for an empty slot.
    pub count: u8,
}

/// The record format of an action.
#[derive(Clone, Copy, Debug)]
pub struct ActionSpec {
    /// The `type` of the record.
    pub type_name: &'static str,
    /// The fields of the action, in the order in which huntd writes them.
    pub fields: &'static [ActionField],
    /// All fields that the record must have.
    pub required: FieldSet,
}

impl ActionSpec {
    const fn new(
        type_name: &'static str,
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
        ActionSpec { type_name, fields, required }
    }
}

/// One field of an action.
#[derive(Clone, Copy, Debug)]
pub struct ActionField {
    /// The field of the record.
    pub field: EventField,
    /// True if the record must have it.
    pub presence: Presence,
}

/// Requirement of a field in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// Required.
    Required,
    /// Optional.
    Optional,
}

/// Returns the fields of each record of a subject, in addition to those of the action.
pub(crate) const fn subject_fields(subject: Subject) -> FieldSet {
    use EventField::{PlayerId, Seq, TsUs, Type};
    match subject {
        Subject::Player | Subject::Enter | Subject::Leave | Subject::Arrival => {
            FieldSet::of(&[Type, PlayerId, Seq, TsUs])
        }
        Subject::World => FieldSet::of(&[Type, TsUs]),
        Subject::Tick => FieldSet::of(&[Type, Seq, TsUs]),
    }
}

impl<H> Event<H> {
    /// Creates the event with these field values. Absent ones are 0.
    #[inline]
    pub(crate) fn unpack(
        offset: i64,
        time_ms: i64,
        kind: ActionKind,
        values: &FieldValues,
    ) -> Event<H>
    where
        H: FieldType,
    {
        let fields = subject_fields(kind.subject());
        let number = |field| if fields.contains(field) { values.number(field) } else { 0 };
        Event {
            offset,
            time_ms,
            player_id: number(EventField::PlayerId),
            seq: number(EventField::Seq),
            ts_us: number(EventField::TsUs) as i64,
            action: Action::unpack(kind, values),
        }
    }
}

macro_rules! events {
    (
        fields {$(
            $(#[$field_doc:meta])*
            $key:ident = $key_name:literal $form:ident $([$least:expr, $most:expr])?,
        )*}
        actions<$carried:ident = $whole:ty> {$(
            $(#[$doc:meta])*
            $variant:ident = $number:literal $name:literal $subject:ident $(as $type_name:literal)?
            $({ $($field:ident: $type:ty = $of:ident $presence:ident,)* })?,
        )*}
    ) => {
        /// A known field of a record.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum EventField {
            $($(#[$field_doc])* $key,)*
        }

        impl EventField {
            /// All fields.
            pub(crate) const ALL: &[EventField] = &[$(EventField::$key,)*];

            /// The field's public description.
            #[inline]
            pub(crate) const fn spec(self) -> &'static FieldSpec {
                const SPECS: &[FieldSpec] = &[$(FieldSpec {
                    key: $key_name,
                    form: FieldForm::$form,
                    least: 0 $(+ $least as i128)?,
                    most: 0 $(+ $most as i128)?,
                },)*];
                &SPECS[self as usize]
            }
        }

        list! {
            /// The kinds of actions.
            ActionKind { $($(#[$doc])* $variant = $number $name,)* }
        }

        impl ActionKind {
            /// The action's public description.
            #[inline]
            pub const fn spec(self) -> &'static ActionSpec {
                const SPECS: &[ActionSpec] = &[$(ActionSpec::new(
                    [$($type_name,)? $name][0],
                    Subject::$subject,
                    &[$($(ActionField {
                        field: EventField::$of,
                        presence: Presence::$presence,
                    },)*)?],
                ),)*];
                &SPECS[self as usize]
            }

            /// Returns who acts.
            #[inline]
            pub(crate) const fn subject(self) -> Subject {
                match self {
                    $(ActionKind::$variant => Subject::$subject,)*
                }
            }
        }

        /// An action of a player or the world. Positions are in centimetres, headings in
        /// centidegrees.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Action<$carried = $whole> {
            $($(#[$doc])* $variant $({ $($field: $type,)* })?,)*
        }

        impl<$carried: Copy> crate::kit::event::GameAction for Action<$carried> {
            #[inline]
            fn subject(&self) -> Subject {
                self.kind().subject()
            }
        }

        impl<$carried> Action<$carried> {
            /// Returns the kind of action.
            #[inline]
            pub fn kind(&self) -> ActionKind {
                match self {
                    $(Action::$variant { .. } => ActionKind::$variant,)*
                }
            }

            /// Creates the action of a kind from these values. Absent ones are 0, or `None`.
            #[inline(always)]
            pub(crate) fn unpack(kind: ActionKind, values: &impl FieldSource) -> Action<$carried>
            where
                $carried: FieldType,
            {
                let mut action = Action::Tick;
                Action::unpack_to(&mut action, kind, values);
                action
            }

            /// Like [`Action::unpack`], but writes the action in place. Each kind writes only its
            /// own fields.
            #[inline(always)]
            pub(crate) fn unpack_to(
                place: &mut Action<$carried>,
                kind: ActionKind,
                values: &impl FieldSource,
            ) where
                $carried: FieldType,
            {
                match kind {
                    $(ActionKind::$variant => *place = Action::$variant $({
                        $($field: <$type>::of(values, EventField::$of),)*
                    })?,)*
                }
            }

            /// Returns the action's fields in a record.
            pub(crate) fn pack(&self) -> FieldValues
            where
                $carried: FieldType + Copy,
            {
                let mut values = FieldValues::default();
                match *self {
                    $(Action::$variant $({ $($field,)* })? => {
                        $($($field.put(&mut values, EventField::$of);)*)?
                    })*
                }
                values
            }
        }

        $($($(const _: () = {
            #[allow(dead_code, reason = "most fields are the same in either form")]
            type $carried = $whole;
            let FieldSpec { least, most, .. } = *EventField::$of.spec();
            let fits = <$type as FieldType>::LEAST <= least && most <= <$type as FieldType>::MOST;
            assert!(fits, concat!($name, ": ", stringify!($field), " has no room for its range"));
        };)*)?)*
    };
}

// The table. docs/HACKING.md describes what a new event needs in addition to its rows.
events! {
    fields {
        /// The type of the event.
        Type = "type" TypeName,
        /// The player.
        PlayerId = "player_id" Id[1, u64::MAX],
        /// The player's event counter; in a tick, its id.
        Seq = "seq" Integer[1, u64::MAX],
        /// When the producer emitted the event, in microseconds since the Unix epoch.
        TsUs = "ts_us" Integer[i64::MIN, i64::MAX],
        /// Position, in cm.
        X = "x" Position[i32::MIN, i32::MAX],
        /// Position, in cm.
        Y = "y" Position[i32::MIN, i32::MAX],
        /// Heading, in centidegrees.
        Heading = "heading" Integer[0, 35_999],
        /// An item's number in the rules.
        Item = "item" Integer[0, u8::MAX],
        /// A weapon's number in the rules.
        Weapon = "weapon" Integer[0, u8::MAX],
        /// A hunt's id.
        Hunt = "hunt" Integer[0, u32::MAX],
        /// Determines the positions and contents of treasures.
        Seed = "seed" Integer[0, u64::MAX],
        /// Number of treasures of a hunt.
        Treasures = "treasures" Integer[0, u16::MAX],
        /// Duration of a hunt.
        DurationMs = "duration_ms" Integer[0, u32::MAX],
        /// The zone that a player leaves for.
        ToZone = "to_zone" Integer[0, u16::MAX],
        /// Hash of the rules to switch to.
        Ruleset = "ruleset" Integer[0, u32::MAX],
        /// The data that a player brings from another zone.
        Handoff = "handoff" Handoff,
    }
    actions<H = Handoff> {
        /// The player enters this zone, carrying nothing.
        Join = 0 "join" Enter { x: i32 = X Required, y: i32 = Y Required, },
        /// The player enters this zone from another one, with what it carried there.
        Arrive = 1 "arrive" Arrival as "join" {
            x: i32 = X Required,
            y: i32 = Y Required,
            handoff: H = Handoff Required,
        },
        /// The player leaves the game, or goes to the zone `to_zone`.
        Leave = 2 "leave" Leave { to_zone: Option<u16> = ToZone Optional, },
        /// The player is now at this position.
        Move = 3 "move" Player { x: i32 = X Required, y: i32 = Y Required, },
        /// The player now has this heading, 0..=35_999.
        Rotate = 4 "rotate" Player { heading: u16 = Heading Required, },
        /// The player fires along `heading`, or along its actor's heading if the event has none.
        Shoot = 5 "shoot" Player {
            weapon: u8 = Weapon Optional,
            heading: Option<u16> = Heading Optional,
        },
        /// The player opens a treasure within reach, of this hunt or of any.
        Loot = 6 "loot" Player { hunt: Option<u32> = Hunt Optional, },
        /// The player uses one item from its inventory.
        Use = 7 "use" Player { item: u8 = Item Required, },
        /// Time passes. `seq` is the tick's id; an id that is not above the last one is a no-op.
        Tick = 8 "tick" Tick,
        /// A hunt begins: `treasures` are laid according to `seed`, for `duration_ms` of the zone's
        /// clock.
        HuntStart = 9 "hunt_start" World {
            hunt: u32 = Hunt Required,
            seed: u64 = Seed Required,
            treasures: u16 = Treasures Required,
            duration_ms: u32 = DurationMs Required,
        },
        /// A hunt ends before its time.
        HuntEnd = 10 "hunt_end" World { hunt: u32 = Hunt Required, },
        /// The zone switches to the rules with this hash.
        RulesChange = 11 "rules_change" World { ruleset: u32 = Ruleset Required, },
    }
}
