//! The fields of an event's record: their formats, and the values of one record.

use crate::hunt::event::{EventField, Handoff};

/// The JSON format of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldForm {
    /// A string: the name of an event type.
    TypeName,
    /// An integer.
    Integer,
    /// An integer, or a string of its digits.
    Id,
    /// A number of centimetres, rounded to an integer.
    Position,
    /// An object: the data that a player carries from one zone to another.
    Handoff,
}

/// The public description of a field.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FieldSpec {
    /// The name.
    pub key: &'static str,
    /// The format.
    pub form: FieldForm,
    /// The smallest value; 0 if the field is not a number.
    pub least: i128,
    /// The largest value; 0 if the field is not a number.
    pub most: i128,
}

/// Number of fields.
pub(crate) const FIELDS: usize = EventField::ALL.len();

/// A set of fields, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FieldSet(u32);

const _: () = assert!(FIELDS <= u32::BITS as usize, "give FieldSet a wider integer");

impl FieldSet {
    /// Creates the set of these fields.
    pub(crate) const fn of(fields: &[EventField]) -> FieldSet {
        let mut set = FieldSet(0);
        let mut at = 0;
        while at < fields.len() {
            set.0 |= fields[at].bit();
            at += 1;
        }
        set
    }

    /// Returns the union of two sets.
    pub(crate) const fn and(self, others: FieldSet) -> FieldSet {
        FieldSet(self.0 | others.0)
    }

    /// Adds a field. Returns false if it was already present.
    #[inline]
    pub(crate) fn insert(&mut self, field: EventField) -> bool {
        let before = self.0;
        self.0 |= field.bit();
        self.0 != before
    }

    /// Returns whether a field is in the set.
    #[inline]
    pub(crate) fn contains(self, field: EventField) -> bool {
        self.0 & field.bit() != 0
    }

    /// Returns whether all of these fields are in the set.
    #[inline]
    pub(crate) fn contains_all(self, others: FieldSet) -> bool {
        self.0 & others.0 == others.0
    }
}

impl EventField {
    const fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// The values of one record's fields.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FieldValues {
    /// The fields that are present.
    pub present: FieldSet,
    /// The value of each field, in two's complement; 0 if absent.
    numbers: [u64; FIELDS],
    /// The data that a joining player brings from another zone.
    pub handoff: Option<Handoff>,
}

impl FieldValues {
    /// Creates zero values of fields that are known to be present.
    #[inline]
    pub(crate) fn of(present: FieldSet) -> FieldValues {
        FieldValues { present, ..FieldValues::default() }
    }

    /// Sets the value of a field that is present.
    #[inline]
    pub(crate) fn set(&mut self, field: EventField, number: u64) {
        self.numbers[field as usize] = number;
    }

    /// Adds a field with its value.
    pub(crate) fn put(&mut self, field: EventField, number: u64) {
        self.present.insert(field);
        self.set(field, number);
    }
}

/// A source of field values.
pub(crate) trait FieldSource {
    /// Returns a field's value, in two's complement; 0 if absent.
    fn number(&self, field: EventField) -> u64;

    /// Returns whether the record has a field.
    fn has(&self, field: EventField) -> bool;

    /// Returns the data that a joining player brings from another zone.
    fn handoff(&self) -> Option<Handoff>;
}

impl FieldSource for FieldValues {
    #[inline]
    fn number(&self, field: EventField) -> u64 {
        self.numbers[field as usize]
    }

    #[inline]
    fn has(&self, field: EventField) -> bool {
        self.present.contains(field)
    }

    #[inline]
    fn handoff(&self) -> Option<Handoff> {
        self.handoff
    }
}

/// A type of an action's field. The range of the record's field ensures that its value fits.
pub(crate) trait FieldType: Sized {
    /// The smallest value that fits.
    const LEAST: i128;
    /// The largest value that fits.
    const MOST: i128;

    /// Reads the field from a record.
    fn of(values: &impl FieldSource, field: EventField) -> Self;

    /// Adds the field to a record.
    fn put(self, values: &mut FieldValues, field: EventField);
}

macro_rules! number_types {
    ($($type:ty as $wide:ty),*) => {$(
        impl FieldType for $type {
            const LEAST: i128 = <$type>::MIN as i128;
            const MOST: i128 = <$type>::MAX as i128;

            #[inline]
            fn of(values: &impl FieldSource, field: EventField) -> $type {
                values.number(field) as $type
            }

            fn put(self, values: &mut FieldValues, field: EventField) {
                values.put(field, <$wide>::from(self) as u64);
            }
        }
    )*};
}

number_types!(u8 as u64, u16 as u64, u32 as u64, u64 as u64, i32 as i64);

impl<T: FieldType> FieldType for Option<T> {
    const LEAST: i128 = T::LEAST;
    const MOST: i128 = T::MOST;

    #[inline]
    fn of(values: &impl FieldSource, field: EventField) -> Option<T> {
        values.has(field).then(|| T::of(values, field))
    }

    fn put(self, values: &mut FieldValues, field: EventField) {
        if let Some(value) = self {
            value.put(values, field);
        }
    }
}

impl FieldType for Handoff {
    const LEAST: i128 = 0;
    const MOST: i128 = 0;

    #[inline]
    fn of(values: &impl FieldSource, _: EventField) -> Handoff {
        values.handoff().unwrap_or_default()
    }

    fn put(self, values: &mut FieldValues, field: EventField) {
        values.present.insert(field);
        values.handoff = Some(self);
    }
}
