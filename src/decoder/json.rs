//! The JSON tier: parses any JSON to an event with simd-json. It alone decides what is valid.
//!
//! The record is copied to a padded scratch buffer first, because simd-json needs the padding and
//! writes unescaped strings over its input. The record itself stays unchanged, for the dead letter.

use super::RecordPosition;
use super::fields::{field_named, set_integer, set_position, type_named};
use super::quantity::{Integer, centimetres};
use super::reject::Reject;
use crate::hunt::event::{
    ActionKind, EventField, Handoff, ItemStack, JSON_DEPTH_MAX, RECORD_BYTES_MAX,
};
use crate::hunt::events::Events;
use crate::hunt::field::{FieldForm, FieldSet, FieldValues};
use simd_json::{Buffers, ErrorType, INPUT_PADDING, Node, StaticNode, Tape, fill_tape_padded};
use std::slice;

/// The simd-json decoder with its reusable memory.
pub struct JsonDecoder {
    scratch: Box<[u8]>,
    buffers: Buffers,
    tape: Tape<'static>,
}

impl JsonDecoder {
    /// Creates a decoder whose buffers fit the worst record, so that decoding never allocates.
    pub fn new() -> JsonDecoder {
        let mut decoder = JsonDecoder {
            scratch: vec![0; RECORD_BYTES_MAX + INPUT_PADDING].into_boxed_slice(),
            buffers: Buffers::with_max_depth(RECORD_BYTES_MAX, JSON_DEPTH_MAX),
            tape: Tape(Vec::new()),
        };
        // simd-json sizes its buffers by the number of structural characters. No record has more of
        // them than this one, which is refused for its depth.
        let refused = decoder.parse(&[b'['; RECORD_BYTES_MAX], |_| ());
        assert!(refused.is_err_and(|error| *error.error() == ErrorType::DepthLimitExceeded));
        decoder
    }

    /// Decodes a record's bytes and adds the event, or returns why there is none.
    pub fn read(
        &mut self,
        origin: RecordPosition,
        value: &[u8],
        events: &mut Events,
    ) -> Result<(), Reject> {
        if value.is_empty() {
            return Err(Reject::EmptyValue);
        }
        if value.len() > RECORD_BYTES_MAX {
            return Err(Reject::TooLong);
        }
        match self.parse(value, |nodes| add_event(origin, nodes, events)) {
            Ok(added) => added,
            Err(error) => Err(self.reject(value, &error)),
        }
    }

    /// Parses `value` and passes the result to `read`: a tape of nodes in document order.
    fn parse<T>(
        &mut self,
        value: &[u8],
        read: impl FnOnce(&[Node<'_>]) -> T,
    ) -> Result<T, simd_json::Error> {
        self.scratch[..value.len()].copy_from_slice(value);
        let mut tape = std::mem::replace(&mut self.tape, Tape(Vec::new())).reset();
        let parsed = fill_tape_padded(&mut self.scratch, value.len(), &mut self.buffers, &mut tape);
        let result = parsed.map(|()| read(&tape.0));
        self.tape = tape.reset();
        result
    }

    fn reject(&mut self, value: &[u8], error: &simd_json::Error) -> Reject {
        // The parser may find another error first, and reports that.
        if std::str::from_utf8(value).is_err() {
            return Reject::NotUtf8;
        }
        match error.error() {
            ErrorType::DepthLimitExceeded => Reject::TooDeep,
            ErrorType::InvalidNumber => Reject::InvalidNumber,
            ErrorType::TrailingData => Reject::TrailingBytes,
            ErrorType::InternalError if self.ends_at(value, error.index()) => Reject::TrailingBytes,
            _ => Reject::InvalidJson,
        }
    }

    /// Returns whether a whole document ends at `index`, where the parser gave up: it has one error
    /// for a value with an invalid start and for bytes after the last bracket.
    fn ends_at(&mut self, value: &[u8], index: usize) -> bool {
        let bracket = matches!(value.get(index), Some(b'}' | b']'));
        bracket && self.parse(&value[..=index], |_| ()).is_ok()
    }
}

/// Limit of a name from a record in a sentence.
const NAME_CHARS_SHOWN: usize = 32;

impl JsonDecoder {
    /// Returns the part of a rejected record that caused the reject: a field, or the unknown type.
    /// Only rejected records are parsed again for it.
    pub(super) fn culprit(&mut self, value: &[u8]) -> Option<String> {
        self.parse(value, culprit).ok().flatten()
    }
}

/// Returns the first part of a record for which [`add_event`] refuses it.
fn culprit(nodes: &[Node<'_>]) -> Option<String> {
    let mut nodes = nodes.iter();
    let &Node::Object { len, .. } = next(&mut nodes) else { return None };
    let mut fields = JsonFields::default();
    for _ in 0..len {
        let Some(field) = field_named(key(&mut nodes)) else {
            skip(&mut nodes);
            continue;
        };
        let is_new = fields.values.present.insert(field);
        let mut before = nodes.clone();
        match read_field(field, &mut nodes, &mut fields) {
            Ok(()) if is_new => {}
            Err(Reject::UnknownType) => return type_name(next(&mut before)),
            Ok(()) | Err(_) => return Some(field.spec().key.to_owned()),
        }
    }
    let Some(kind) = fields.kind else { return Some(EventField::Type.spec().key.to_owned()) };
    let present = &fields.values.present;
    let is_missing = |field: &&EventField| {
        let field = FieldSet::of(&[**field]);
        kind.spec().required.contains_all(field) && !present.contains_all(field)
    };
    let missing = EventField::ALL.iter().filter(is_missing).map(|field| field.spec().key);
    Some(missing.collect::<Vec<_>>().join(", ")).filter(|missing| !missing.is_empty())
}

/// Returns a type's name for a sentence: short, and without control characters.
fn type_name(node: &Node<'_>) -> Option<String> {
    let Node::String(name) = node else { return None };
    let shown = name.chars().take(NAME_CHARS_SHOWN);
    Some(shown.map(|c| if c.is_control() { '?' } else { c }).collect())
}

impl Default for JsonDecoder {
    fn default() -> JsonDecoder {
        JsonDecoder::new()
    }
}

/// The fields of one record, all within their ranges.
#[derive(Debug, Default)]
struct JsonFields {
    kind: Option<ActionKind>,
    values: FieldValues,
}

type Nodes<'a, 'v> = slice::Iter<'a, Node<'v>>;

fn add_event(
    origin: RecordPosition,
    nodes: &[Node<'_>],
    events: &mut Events,
) -> Result<(), Reject> {
    let mut nodes = nodes.iter();
    let &Node::Object { len, .. } = next(&mut nodes) else {
        return Err(Reject::NotAnObject);
    };
    let mut fields = JsonFields::default();
    for _ in 0..len {
        match field_named(key(&mut nodes)) {
            Some(field) => {
                if !fields.values.present.insert(field) {
                    return Err(Reject::DuplicateField);
                }
                read_field(field, &mut nodes, &mut fields)?;
            }
            None => skip(&mut nodes),
        }
    }
    let kind = match fields.kind.ok_or(Reject::MissingField)? {
        // A player with a handoff comes from another zone.
        ActionKind::Join if fields.values.handoff.is_some() => ActionKind::Arrive,
        kind => kind,
    };
    if !fields.values.present.contains_all(kind.spec().required) {
        return Err(Reject::MissingField);
    }
    events.push_fields(origin.offset, origin.time_ms, kind, &mut fields.values);
    Ok(())
}

fn read_field(
    field: EventField,
    nodes: &mut Nodes<'_, '_>,
    fields: &mut JsonFields,
) -> Result<(), Reject> {
    let values = &mut fields.values;
    let (form, node) = (field.spec().form, next(nodes));
    // Most values are integers, whatever the field.
    if let (FieldForm::Integer | FieldForm::Id | FieldForm::Position, Some(number)) =
        (form, integer(node))
    {
        return set_integer(values, field, number);
    }
    match (form, node) {
        (FieldForm::TypeName, Node::String(name)) => {
            fields.kind = Some(type_named(name.as_bytes()).ok_or(Reject::UnknownType)?);
        }
        (FieldForm::Id, Node::String(digits)) => {
            set_integer(values, field, decimal(digits)?.into())?;
        }
        (FieldForm::Position, Node::Static(StaticNode::F64(value))) => {
            set_position(values, field, centimetres(*value).ok_or(Reject::OutOfRange)?);
        }
        (FieldForm::Handoff, &Node::Object { len, .. }) => {
            values.handoff = Some(read_handoff(len, nodes)?);
        }
        _ => return Err(Reject::WrongType),
    }
    Ok(())
}

/// Parses a string of digits: no sign, no blank, no leading zero.
fn decimal(digits: &str) -> Result<u64, Reject> {
    let canonical = !digits.is_empty()
        && digits.bytes().all(|byte| byte.is_ascii_digit())
        && (digits.len() == 1 || !digits.starts_with('0'));
    if !canonical {
        return Err(Reject::WrongType);
    }
    digits.parse().map_err(|_| Reject::OutOfRange)
}

fn read_handoff(len: usize, nodes: &mut Nodes<'_, '_>) -> Result<Handoff, Reject> {
    const KEYS: [&[u8]; 6] =
        [b"from_zone", b"crossing", b"score", b"last_seq", b"items", b"effects"];
    const REQUIRED: u8 = 0b1111;
    let mut handoff = Handoff::default();
    let mut present = 0u8;
    for _ in 0..len {
        let name = key(nodes);
        let Some(index) = KEYS.iter().position(|known| *known == name) else {
            skip(nodes);
            continue;
        };
        if present & (1 << index) != 0 {
            return Err(Reject::DuplicateField);
        }
        present |= 1 << index;
        match index {
            0 => handoff.from_zone = number(nodes, 0, u16::MAX.into())? as u16,
            1 => handoff.crossing = number(nodes, 1, u32::MAX.into())? as u32,
            2 => handoff.score = number(nodes, 0, u64::MAX)?,
            3 => handoff.last_seq = number(nodes, 0, u64::MAX)?,
            4 => read_items(nodes, &mut handoff)?,
            _ => read_effects(nodes, &mut handoff)?,
        }
    }
    if present & REQUIRED == REQUIRED { Ok(handoff) } else { Err(Reject::MissingField) }
}

/// Reads `[[item, count], ...]`: the slots of an inventory from the first on.
fn read_items(nodes: &mut Nodes<'_, '_>, handoff: &mut Handoff) -> Result<(), Reject> {
    let stacks = array(nodes)?;
    let slots = handoff.items.get_mut(..stacks).ok_or(Reject::OutOfRange)?;
    for slot in slots {
        pair(nodes)?;
        let item = number(nodes, 0, u8::MAX.into())? as u8;
        let count = number(nodes, 1, u8::MAX.into())? as u8;
        *slot = ItemStack { item, count };
    }
    Ok(())
}

/// Reads `[[effect, left_ms], ...]`: the active effects from the first slot on.
fn read_effects(nodes: &mut Nodes<'_, '_>, handoff: &mut Handoff) -> Result<(), Reject> {
    let effects = array(nodes)?;
    if effects > handoff.effects.len() {
        return Err(Reject::OutOfRange);
    }
    for slot in 0..effects {
        pair(nodes)?;
        handoff.effects[slot] = number(nodes, 1, u8::MAX.into())? as u8;
        handoff.effects_left_ms[slot] = number(nodes, 0, u32::MAX.into())? as u32;
    }
    Ok(())
}

fn next<'a, 'v>(nodes: &mut Nodes<'a, 'v>) -> &'a Node<'v> {
    nodes.next().expect("a tape holds every node that its objects and arrays announce")
}

fn key<'v>(nodes: &mut Nodes<'_, 'v>) -> &'v [u8] {
    match next(nodes) {
        Node::String(key) => key.as_bytes(),
        node => unreachable!("an object's key is a string, not {node:?}"),
    }
}

fn skip(nodes: &mut Nodes<'_, '_>) {
    if let &Node::Object { count, .. } | &Node::Array { count, .. } = next(nodes)
        && count > 0
    {
        nodes.nth(count - 1);
    }
}

#[inline]
fn integer(node: &Node<'_>) -> Option<Integer> {
    match *node {
        Node::Static(StaticNode::U64(value)) => Some(value.into()),
        Node::Static(StaticNode::I64(value)) => Some(value.into()),
        _ => None,
    }
}

/// Reads an integer from `least` to `most`.
fn number(nodes: &mut Nodes<'_, '_>, least: u64, most: u64) -> Result<u64, Reject> {
    match integer(next(nodes)).ok_or(Reject::WrongType)?.to_u64() {
        Some(value) if least <= value && value <= most => Ok(value),
        _ => Err(Reject::OutOfRange),
    }
}

/// Reads the start of an array, which must come next, and returns its length.
fn array(nodes: &mut Nodes<'_, '_>) -> Result<usize, Reject> {
    match next(nodes) {
        &Node::Array { len, .. } => Ok(len),
        _ => Err(Reject::WrongType),
    }
}

fn pair(nodes: &mut Nodes<'_, '_>) -> Result<(), Reject> {
    if array(nodes)? == 2 { Ok(()) } else { Err(Reject::WrongType) }
}
