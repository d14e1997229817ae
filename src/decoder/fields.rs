//! Field and type names and ranges from the table of all events, arranged for fast look-ups.
//!
//! The tiers that read values one by one set an event's fields here, so that ranges are checked in
//! one place.

use super::names::Names;
use super::quantity::Integer;
use super::reject::Reject;
use crate::hunt::event::{ActionKind, EventField};
use crate::hunt::field::{FIELDS, FieldValues};

const FIELD_NAMES: Names<EventField> = {
    let mut names = [("", EventField::Type); FIELDS];
    let mut at = 0;
    while at < FIELDS {
        let field = EventField::ALL[at];
        names[at] = (field.spec().key, field);
        at += 1;
    }
    Names::new(&names)
};

/// Returns the field with this name.
pub(super) fn field_named(name: &[u8]) -> Option<EventField> {
    FIELD_NAMES.find(name)
}

/// Number of event types: an arrival is a `join` with a handoff.
const TYPES: usize = ActionKind::ALL.len() - 1;

const TYPE_NAMES: Names<ActionKind> = {
    let mut names = [("", ActionKind::Join); TYPES];
    let (mut at, mut kind) = (0, 0);
    while at < TYPES {
        if !matches!(ActionKind::ALL[kind], ActionKind::Arrive) {
            names[at] = (ActionKind::ALL[kind].spec().type_name, ActionKind::ALL[kind]);
            at += 1;
        }
        kind += 1;
    }
    Names::new(&names)
};

/// Returns the kind of action that this `type` names.
pub(super) fn type_named(name: &[u8]) -> Option<ActionKind> {
    TYPE_NAMES.find(name)
}

/// The integers that a field can hold.
#[derive(Clone, Copy)]
struct Range {
    /// Largest magnitude below zero.
    negative_max: u64,
    least: u64,
    most: u64,
}

/// The range of each field.
const RANGES: [Range; FIELDS] = {
    let mut ranges = [Range { negative_max: 0, least: 0, most: 0 }; FIELDS];
    let mut at = 0;
    while at < FIELDS {
        let spec = EventField::ALL[at].spec();
        let is_signed = spec.least < 0;
        ranges[at] = Range {
            negative_max: if is_signed { -spec.least as u64 } else { 0 },
            least: if is_signed { 0 } else { spec.least as u64 },
            most: spec.most as u64,
        };
        at += 1;
    }
    ranges
};

/// Sets an integer field, if the value is in the field's range.
#[inline]
pub(super) fn set_integer(
    values: &mut FieldValues,
    field: EventField,
    value: Integer,
) -> Result<(), Reject> {
    let Range { negative_max, least, most } = RANGES[field as usize];
    let Integer { magnitude, negative } = value;
    let fits = if negative {
        magnitude <= negative_max && least <= magnitude
    } else {
        least <= magnitude && magnitude <= most
    };
    values.set(field, if negative { magnitude.wrapping_neg() } else { magnitude });
    if fits { Ok(()) } else { Err(Reject::OutOfRange) }
}

/// Sets `x` or `y`, in centimetres.
#[inline]
pub(super) fn set_position(values: &mut FieldValues, field: EventField, centimetres: i32) {
    values.set(field, i64::from(centimetres) as u64);
}
