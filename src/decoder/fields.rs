//! The fields of an event's JSON: their names, their ranges, and which of them a type requires.
//!
//! Both tiers of the decoder collect an event's fields here, so that a range or a requirement is
//! written once.

use super::Origin;
use super::names::Names;
use super::quantity::Integer;
use super::reject::Reject;
use crate::engine::event::{Action, Event, Handoff};

/// A known field of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Field {
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
const FIELDS: usize = Field::Handoff as usize + 1;

const FIELD_NAMES: Names<Field> = Names::new(&[
    ("type", Field::Type),
    ("player_id", Field::PlayerId),
    ("seq", Field::Seq),
    ("ts_us", Field::TsUs),
    ("x", Field::X),
    ("y", Field::Y),
    ("heading", Field::Heading),
    ("item", Field::Item),
    ("weapon", Field::Weapon),
    ("hunt", Field::Hunt),
    ("seed", Field::Seed),
    ("treasures", Field::Treasures),
    ("duration_ms", Field::DurationMs),
    ("to_zone", Field::ToZone),
    ("ruleset", Field::Ruleset),
    ("handoff", Field::Handoff),
]);

impl Field {
    /// The field of this name.
    pub(super) fn named(name: &[u8]) -> Option<Field> {
        FIELD_NAMES.find(name)
    }
}

/// A set of fields, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FieldSet(u16);

impl FieldSet {
    const fn of(fields: &[Field]) -> FieldSet {
        let mut bits = 0;
        let mut i = 0;
        while i < fields.len() {
            bits |= 1 << fields[i] as u8;
            i += 1;
        }
        FieldSet(bits)
    }

    /// Adds a field; false if it was there before.
    pub(super) fn insert(&mut self, field: Field) -> bool {
        let before = self.0;
        self.0 |= 1 << field as u8;
        self.0 != before
    }

    fn contains(self, field: Field) -> bool {
        self.0 & (1 << field as u8) != 0
    }

    fn contains_all(self, others: FieldSet) -> bool {
        self.0 & others.0 == others.0
    }
}

/// The type of an event: a player's up to `Use`, the world's from `Tick` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
#[repr(u8)]
pub(super) enum Kind {
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

const KIND_NAMES: Names<Kind> = Names::new(&[
    ("join", Kind::Join),
    ("leave", Kind::Leave),
    ("move", Kind::Move),
    ("rotate", Kind::Rotate),
    ("shoot", Kind::Shoot),
    ("loot", Kind::Loot),
    ("use", Kind::Use),
    ("tick", Kind::Tick),
    ("rules_change", Kind::RulesChange),
    ("hunt_start", Kind::HuntStart),
    ("hunt_end", Kind::HuntEnd),
]);

impl Kind {
    /// The kind that a `type` of this text names.
    pub(super) fn named(name: &[u8]) -> Option<Kind> {
        KIND_NAMES.find(name)
    }

    /// What an event of this kind must have.
    #[inline]
    pub(super) fn required(self) -> FieldSet {
        use Field::{DurationMs, Heading, Hunt, Item, PlayerId, Ruleset, Seed};
        use Field::{Seq, Treasures, TsUs, X, Y};
        const PLAYER: FieldSet = FieldSet::of(&[PlayerId, Seq, TsUs]);
        const PLACE: FieldSet = FieldSet::of(&[PlayerId, Seq, TsUs, X, Y]);
        const ROTATE: FieldSet = FieldSet::of(&[PlayerId, Seq, TsUs, Heading]);
        const USE: FieldSet = FieldSet::of(&[PlayerId, Seq, TsUs, Item]);
        const TICK: FieldSet = FieldSet::of(&[Seq, TsUs]);
        const RULES_CHANGE: FieldSet = FieldSet::of(&[TsUs, Ruleset]);
        const HUNT_START: FieldSet = FieldSet::of(&[TsUs, Hunt, Seed, Treasures, DurationMs]);
        const HUNT_END: FieldSet = FieldSet::of(&[TsUs, Hunt]);
        match self {
            Kind::Leave | Kind::Shoot | Kind::Loot => PLAYER,
            Kind::Join | Kind::Move => PLACE,
            Kind::Rotate => ROTATE,
            Kind::Use => USE,
            Kind::Tick => TICK,
            Kind::RulesChange => RULES_CHANGE,
            Kind::HuntStart => HUNT_START,
            Kind::HuntEnd => HUNT_END,
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
    kind: Option<Kind>,
    /// The whole number of each field, in two's complement.
    numbers: [u64; FIELDS],
    handoff: Option<Handoff>,
}

impl Fields {
    /// The fields of a record of which the type is known, and which fields it has.
    #[inline]
    pub(super) fn of(kind: Kind, present: FieldSet) -> Fields {
        Fields { present, kind: Some(kind), numbers: [0; FIELDS], handoff: None }
    }

    /// Notes that a field stands in the record, which it may do once.
    pub(super) fn claim(&mut self, field: Field) -> Result<(), Reject> {
        if self.present.insert(field) { Ok(()) } else { Err(Reject::DuplicateField) }
    }

    /// Sets the event's type.
    pub(super) fn set_kind(&mut self, kind: Kind) {
        self.kind = Some(kind);
    }

    /// Sets what a joining player brings from another zone.
    pub(super) fn set_handoff(&mut self, handoff: Handoff) {
        self.handoff = Some(handoff);
    }

    /// Sets `x` or `y`, in centimetres.
    #[inline]
    pub(super) fn set_position(&mut self, field: Field, centimetres: i32) {
        self.numbers[field as usize] = i64::from(centimetres) as u64;
    }

    /// Sets a field whose value is a whole number.
    #[inline]
    pub(super) fn set_integer(&mut self, field: Field, value: Integer) -> Result<(), Reject> {
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
    pub(super) fn event(&self, origin: Origin) -> Result<Event, Reject> {
        let kind = self.kind.ok_or(Reject::MissingField)?;
        if !self.present.contains_all(kind.required()) {
            return Err(Reject::MissingField);
        }
        Ok(Event {
            offset: origin.offset,
            time_ms: origin.time_ms,
            player_id: if kind < Kind::Tick { self.number(Field::PlayerId) } else { 0 },
            seq: if kind < Kind::HuntStart { self.number(Field::Seq) } else { 0 },
            ts_us: self.number(Field::TsUs) as i64,
            action: self.action(kind),
        })
    }

    #[inline]
    fn action(&self, kind: Kind) -> Action {
        let x = self.number(Field::X) as i32;
        let y = self.number(Field::Y) as i32;
        let heading = self.number(Field::Heading) as u16;
        let hunt = self.number(Field::Hunt) as u32;
        match kind {
            Kind::Join => match self.handoff {
                Some(handoff) => Action::Arrive { x, y, handoff },
                None => Action::Join { x, y },
            },
            Kind::Leave => {
                let to_zone = self.number(Field::ToZone) as u16;
                Action::Leave { to_zone: self.if_present(Field::ToZone, to_zone) }
            }
            Kind::Move => Action::Move { x, y },
            Kind::Rotate => Action::Rotate { heading },
            Kind::Shoot => Action::Shoot {
                weapon: self.number(Field::Weapon) as u8,
                heading: self.if_present(Field::Heading, heading),
            },
            Kind::Loot => Action::Loot { hunt: self.if_present(Field::Hunt, hunt) },
            Kind::Use => Action::Use { item: self.number(Field::Item) as u8 },
            Kind::Tick => Action::Tick,
            Kind::RulesChange => {
                Action::RulesChange { ruleset: self.number(Field::Ruleset) as u32 }
            }
            Kind::HuntStart => Action::HuntStart {
                hunt,
                seed: self.number(Field::Seed),
                treasures: self.number(Field::Treasures) as u16,
                duration_ms: self.number(Field::DurationMs) as u32,
            },
            Kind::HuntEnd => Action::HuntEnd { hunt },
        }
    }

    /// A field's number, which its range makes fit the field's type.
    #[inline]
    fn number(&self, field: Field) -> u64 {
        self.numbers[field as usize]
    }

    #[inline]
    fn if_present<T>(&self, field: Field, value: T) -> Option<T> {
        self.present.contains(field).then_some(value)
    }
}
