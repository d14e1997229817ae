//! The fields of an event's JSON: their names, their ranges, and which of them a type requires.
//!
//! Both tiers of the decoder collect an event's fields here, so that a range or a requirement is
//! written once.

use super::RecordPosition;
use super::names::Names;
use super::quantity::Integer;
use super::reject::Reject;
use crate::engine::event::{Action, Event, Handoff};

/// A known field of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum EventField {
    PlayerId,
    TsUs,
    Seq,
    X,
    Y,
    Heading,
    Item,
    Weapon,
    Hunt,
    Seed,
    Treasures,
    DurationMs,
    ToZone,
    Ruleset,
    Type,
    Handoff,
}

/// How many known fields there are.
const FIELDS: usize = EventField::Handoff as usize + 1;

const FIELD_NAMES: Names<EventField> = Names::new(&[
    ("type", EventField::Type),
    ("player_id", EventField::PlayerId),
    ("seq", EventField::Seq),
    ("ts_us", EventField::TsUs),
    ("x", EventField::X),
    ("y", EventField::Y),
    ("heading", EventField::Heading),
    ("item", EventField::Item),
    ("weapon", EventField::Weapon),
    ("hunt", EventField::Hunt),
    ("seed", EventField::Seed),
    ("treasures", EventField::Treasures),
    ("duration_ms", EventField::DurationMs),
    ("to_zone", EventField::ToZone),
    ("ruleset", EventField::Ruleset),
    ("handoff", EventField::Handoff),
]);

impl EventField {
    /// The field of this name.
    pub(super) fn named(name: &[u8]) -> Option<EventField> {
        FIELD_NAMES.find(name)
    }
}

/// A set of fields, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FieldSet(u16);

impl FieldSet {
    const fn of(fields: &[EventField]) -> FieldSet {
        let mut bits = 0;
        let mut i = 0;
        while i < fields.len() {
            bits |= 1 << fields[i] as u8;
            i += 1;
        }
        FieldSet(bits)
    }

    /// Adds a field; false if it was there before.
    pub(super) fn insert(&mut self, field: EventField) -> bool {
        let before = self.0;
        self.0 |= 1 << field as u8;
        self.0 != before
    }

    fn contains(self, field: EventField) -> bool {
        self.0 & (1 << field as u8) != 0
    }

    fn contains_all(self, others: FieldSet) -> bool {
        self.0 & others.0 == others.0
    }
}

/// The type of an event: a player's up to `Use`, the world's from `Tick` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
#[repr(u8)]
pub(super) enum EventKind {
    Join,
    Leave,
    Move,
    Rotate,
    Shoot,
    Loot,
    Use,
    Tick,
    HuntStart,
    HuntEnd,
    RulesChange,
}

const KIND_NAMES: Names<EventKind> = Names::new(&[
    ("join", EventKind::Join),
    ("leave", EventKind::Leave),
    ("move", EventKind::Move),
    ("rotate", EventKind::Rotate),
    ("shoot", EventKind::Shoot),
    ("loot", EventKind::Loot),
    ("use", EventKind::Use),
    ("tick", EventKind::Tick),
    ("rules_change", EventKind::RulesChange),
    ("hunt_start", EventKind::HuntStart),
    ("hunt_end", EventKind::HuntEnd),
]);

impl EventKind {
    /// The kind that a `type` of this text names.
    pub(super) fn named(name: &[u8]) -> Option<EventKind> {
        KIND_NAMES.find(name)
    }

    /// What an event of this kind must have.
    #[inline]
    pub(super) fn required(self) -> FieldSet {
        use EventField::{DurationMs, Heading, Hunt, Item, PlayerId, Ruleset, Seed};
        use EventField::{Seq, Treasures, TsUs, X, Y};
        const PLAYER: FieldSet = FieldSet::of(&[PlayerId, Seq, TsUs]);
        const PLACE: FieldSet = FieldSet::of(&[PlayerId, Seq, TsUs, X, Y]);
        const ROTATE: FieldSet = FieldSet::of(&[PlayerId, Seq, TsUs, Heading]);
        const USE: FieldSet = FieldSet::of(&[PlayerId, Seq, TsUs, Item]);
        const TICK: FieldSet = FieldSet::of(&[Seq, TsUs]);
        const RULES_CHANGE: FieldSet = FieldSet::of(&[TsUs, Ruleset]);
        const HUNT_START: FieldSet = FieldSet::of(&[TsUs, Hunt, Seed, Treasures, DurationMs]);
        const HUNT_END: FieldSet = FieldSet::of(&[TsUs, Hunt]);
        match self {
            EventKind::Leave | EventKind::Shoot | EventKind::Loot => PLAYER,
            EventKind::Join | EventKind::Move => PLACE,
            EventKind::Rotate => ROTATE,
            EventKind::Use => USE,
            EventKind::Tick => TICK,
            EventKind::RulesChange => RULES_CHANGE,
            EventKind::HuntStart => HUNT_START,
            EventKind::HuntEnd => HUNT_END,
        }
    }
}

/// The whole numbers that a field can take.
struct Range {
    /// How far below zero it goes.
    negative_max: u64,
    least: u64,
    most: u64,
}

impl Range {
    const fn signed(bits: u32) -> Range {
        Range { negative_max: 1 << (bits - 1), least: 0, most: (1 << (bits - 1)) - 1 }
    }

    const fn unsigned(least: u64, most: u64) -> Range {
        Range { negative_max: 0, least, most }
    }
}

/// The range of each field, in the order of [`Field`]; that of the last two does not matter.
const RANGES: [Range; FIELDS] = [
    Range::unsigned(1, u64::MAX),
    Range::signed(64),
    Range::unsigned(1, u64::MAX),
    Range::signed(32),
    Range::signed(32),
    Range::unsigned(0, 35_999),
    Range::unsigned(0, u8::MAX as u64),
    Range::unsigned(0, u8::MAX as u64),
    Range::unsigned(0, u32::MAX as u64),
    Range::unsigned(0, u64::MAX),
    Range::unsigned(0, u16::MAX as u64),
    Range::unsigned(0, u32::MAX as u64),
    Range::unsigned(0, u16::MAX as u64),
    Range::unsigned(0, u32::MAX as u64),
    Range::unsigned(0, 0),
    Range::unsigned(0, 0),
];

/// The fields of one record, each within its range.
#[derive(Clone, Debug, Default)]
pub(super) struct Fields {
    present: FieldSet,
    kind: Option<EventKind>,
    /// The whole number of each field, in two's complement.
    numbers: [u64; FIELDS],
    handoff: Option<Handoff>,
}

impl Fields {
    /// The fields of a record of which the type is known, and which fields it has.
    #[inline]
    pub(super) fn of(kind: EventKind, present: FieldSet) -> Fields {
        Fields { present, kind: Some(kind), numbers: [0; FIELDS], handoff: None }
    }

    /// Notes that a field stands in the record, which it may do once.
    pub(super) fn claim(&mut self, field: EventField) -> Result<(), Reject> {
        if self.present.insert(field) { Ok(()) } else { Err(Reject::DuplicateField) }
    }

    /// Sets the event's type.
    pub(super) fn set_kind(&mut self, kind: EventKind) {
        self.kind = Some(kind);
    }

    /// Sets what a joining player brings from another zone.
    pub(super) fn set_handoff(&mut self, handoff: Handoff) {
        self.handoff = Some(handoff);
    }

    /// Sets `x` or `y`, in centimetres.
    #[inline]
    pub(super) fn set_position(&mut self, field: EventField, centimetres: i32) {
        self.numbers[field as usize] = i64::from(centimetres) as u64;
    }

    /// Sets a field whose value is a whole number.
    #[inline]
    pub(super) fn set_integer(&mut self, field: EventField, value: Integer) -> Result<(), Reject> {
        let Range { negative_max, least, most } = RANGES[field as usize];
        let Integer { magnitude, negative } = value;
        let fits = if negative {
            magnitude <= negative_max && least <= magnitude
        } else {
            least <= magnitude && magnitude <= most
        };
        let number = if negative { magnitude.wrapping_neg() } else { magnitude };
        self.numbers[field as usize] = number;
        if fits { Ok(()) } else { Err(Reject::OutOfRange) }
    }

    /// The event, once all fields of the record are set.
    #[inline]
    pub(super) fn event(&self, origin: RecordPosition) -> Result<Event, Reject> {
        let kind = self.kind.ok_or(Reject::MissingField)?;
        if !self.present.contains_all(kind.required()) {
            return Err(Reject::MissingField);
        }
        Ok(Event {
            offset: origin.offset,
            time_ms: origin.time_ms,
            player_id: if kind < EventKind::Tick { self.number(EventField::PlayerId) } else { 0 },
            seq: if kind < EventKind::HuntStart { self.number(EventField::Seq) } else { 0 },
            ts_us: self.number(EventField::TsUs) as i64,
            action: self.action(kind),
        })
    }

    #[inline]
    fn action(&self, kind: EventKind) -> Action {
        let x = self.number(EventField::X) as i32;
        let y = self.number(EventField::Y) as i32;
        let heading = self.number(EventField::Heading) as u16;
        let hunt = self.number(EventField::Hunt) as u32;
        match kind {
            EventKind::Join => match self.handoff {
                Some(handoff) => Action::Arrive { x, y, handoff },
                None => Action::Join { x, y },
            },
            EventKind::Leave => {
                let to_zone = self.number(EventField::ToZone) as u16;
                Action::Leave { to_zone: self.if_present(EventField::ToZone, to_zone) }
            }
            EventKind::Move => Action::Move { x, y },
            EventKind::Rotate => Action::Rotate { heading },
            EventKind::Shoot => Action::Shoot {
                weapon: self.number(EventField::Weapon) as u8,
                heading: self.if_present(EventField::Heading, heading),
            },
            EventKind::Loot => Action::Loot { hunt: self.if_present(EventField::Hunt, hunt) },
            EventKind::Use => Action::Use { item: self.number(EventField::Item) as u8 },
            EventKind::Tick => Action::Tick,
            EventKind::RulesChange => {
                Action::RulesChange { ruleset: self.number(EventField::Ruleset) as u32 }
            }
            EventKind::HuntStart => Action::HuntStart {
                hunt,
                seed: self.number(EventField::Seed),
                treasures: self.number(EventField::Treasures) as u16,
                duration_ms: self.number(EventField::DurationMs) as u32,
            },
            EventKind::HuntEnd => Action::HuntEnd { hunt },
        }
    }

    /// A field's number, which its range makes fit the field's type.
    #[inline]
    fn number(&self, field: EventField) -> u64 {
        self.numbers[field as usize]
    }

    #[inline]
    fn if_present<T>(&self, field: EventField, value: T) -> Option<T> {
        self.present.contains(field).then_some(value)
    }
}
