//! The JSON tier: parses any JSON to an event with simd-json. It alone decides what is valid.
//!
//! The record is copied to a padded scratch buffer first, because simd-json needs the padding and
//! writes unescaped strings over its input. The record itself stays unchanged, for the dead letter.

use super::RecordPosition;
use super::fields::{integer_in, position_number};
use super::quantity::{Integer, centimetres};
use super::reject::Reject;
use crate::kit::event::{
    ActionSpec, EventTable, JSON_DEPTH_MAX, PlainEvent, RECORD_BYTES_MAX, Subject, subject_fields,
};
use crate::kit::event_list::Events;
use crate::kit::field::{
    ActionWords, CarriedBits, CarriedField, CarriedForm, FIELDS_MAX, FieldForm, FieldReading,
    FieldSet, PLAYER_ID, SEQ, TS_US, TYPE,
};
use simd_json::{Buffers, ErrorType, INPUT_PADDING, Node, StaticNode, Tape, fill_tape_padded};
use std::slice;

/// The simd-json decoder with its reusable memory.
pub struct JsonDecoder {
    table: &'static EventTable,
    /// The value of each field of the last record.
    numbers: [u64; FIELDS_MAX],
    parser: JsonParser,
}

/// The parser and its reusable memory.
struct JsonParser {
    scratch: Box<[u8]>,
    buffers: Buffers,
    tape: Tape<'static>,
}

impl JsonDecoder {
    /// Creates a decoder whose buffers fit the worst record, so that decoding never allocates.
    pub fn new(table: &'static EventTable) -> JsonDecoder {
        let mut parser = JsonParser {
            scratch: vec![0; RECORD_BYTES_MAX + INPUT_PADDING].into_boxed_slice(),
            buffers: Buffers::with_max_depth(RECORD_BYTES_MAX, JSON_DEPTH_MAX),
            tape: Tape(Vec::new()),
        };
        // simd-json sizes its buffers by the number of structural characters. No record has more of
        // them than this one, which is refused for its depth.
        let refused = parser.parse(&[b'['; RECORD_BYTES_MAX], |_| ());
        assert!(refused.is_err_and(|error| *error.error() == ErrorType::DepthLimitExceeded));
        JsonDecoder { table, numbers: [0; FIELDS_MAX], parser }
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
        let JsonDecoder { table, numbers, parser } = self;
        let fields = JsonFields::none(numbers);
        let carried = events.carried().len();
        let added =
            match parser.parse(value, |nodes| fields.add_event(table, origin, nodes, events)) {
                Ok(added) => added,
                Err(error) => Err(parser.reject(value, &error)),
            };
        if added.is_err() {
            events.carried_mut().truncate(carried);
        }
        added
    }
}

impl JsonParser {
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
        let table = self.table;
        self.parser.parse(value, |nodes| culprit(table, nodes)).ok().flatten()
    }
}

/// Returns the first part of a record for which [`JsonFields::add_event`] refuses it.
fn culprit(table: &EventTable, nodes: &[Node<'_>]) -> Option<String> {
    let mut nodes = nodes.iter();
    let &Node::Object { len, .. } = next(&mut nodes) else { return None };
    let (mut numbers, mut carried) = ([0; FIELDS_MAX], Vec::new());
    let mut fields = JsonFields::none(&mut numbers);
    for _ in 0..len {
        let Some(field) = table.field_names.find(key(&mut nodes)) else {
            skip(&mut nodes);
            continue;
        };
        let is_new = fields.present.insert(field);
        let mut before = nodes.clone();
        match fields.read_field(table, field, &mut nodes, &mut carried) {
            Ok(()) if is_new => {}
            Err(Reject::UnknownType) => return type_name(next(&mut before)),
            Ok(()) | Err(_) => return Some(table.fields[usize::from(field)].key.to_owned()),
        }
    }
    let Some(kind) = fields.kind else {
        return Some(table.fields[usize::from(TYPE)].key.to_owned());
    };
    let required = table.actions[usize::from(kind)].required;
    let is_missing = |field: u8| required.contains(field) && !fields.present.contains(field);
    let missing = (0..).zip(table.fields).filter(|(field, _)| is_missing(*field));
    let missing: Vec<_> = missing.map(|(_, spec)| spec.key).collect();
    Some(missing.join(", ")).filter(|missing| !missing.is_empty())
}

/// Returns a type's name for a sentence: short, and without control characters.
fn type_name(node: &Node<'_>) -> Option<String> {
    let Node::String(name) = node else { return None };
    let shown = name.chars().take(NAME_CHARS_SHOWN);
    Some(shown.map(|c| if c.is_control() { '?' } else { c }).collect())
}

/// The fields of one record, all within their ranges.
struct JsonFields<'n> {
    kind: Option<u8>,
    /// The fields that are present.
    present: FieldSet,
    /// The value of each present field, in two's complement. Absent fields keep stale values.
    numbers: &'n mut [u64; FIELDS_MAX],
}

type Nodes<'a, 'v> = slice::Iter<'a, Node<'v>>;

impl<'n> JsonFields<'n> {
    fn none(numbers: &'n mut [u64; FIELDS_MAX]) -> JsonFields<'n> {
        JsonFields { kind: None, present: FieldSet::default(), numbers }
    }

    fn add_event(
        mut self,
        table: &EventTable,
        origin: RecordPosition,
        nodes: &[Node<'_>],
        events: &mut Events,
    ) -> Result<(), Reject> {
        let mut nodes = nodes.iter();
        let &Node::Object { len, .. } = next(&mut nodes) else {
            return Err(Reject::NotAnObject);
        };
        let carried = events.carried().len();
        for _ in 0..len {
            match table.field_names.find(key(&mut nodes)) {
                Some(field) => {
                    if !self.present.insert(field) {
                        return Err(Reject::DuplicateField);
                    }
                    self.read_field(table, field, &mut nodes, events.carried_mut())?;
                }
                None => skip(&mut nodes),
            }
        }
        let mut kind = self.kind.ok_or(Reject::MissingField)?;
        let mut action = &table.actions[usize::from(kind)];
        // A player with a handoff comes from another zone.
        if self.present.contains_any(table.handoffs) && action.subject == Subject::Enter {
            let arrival = table.of_subject(Subject::Arrival).next();
            kind = arrival.expect("a game with handoffs has arrivals");
            action = &table.actions[usize::from(kind)];
        }
        if !self.present.contains_all(action.required) {
            return Err(Reject::MissingField);
        }
        if action.subject != Subject::Arrival {
            // Others ignore a handoff.
            events.carried_mut().truncate(carried);
        }
        events.push_plain(self.event(origin, kind, action));
        Ok(())
    }

    #[inline]
    fn event(&self, origin: RecordPosition, kind: u8, action: &ActionSpec) -> PlainEvent {
        let ActionSpec { subject, fields, .. } = action;
        let of_subject = subject_fields(*subject);
        let number = |field: u8| match of_subject.contains(field) {
            true => self.number(field),
            false => 0,
        };
        let mut action = ActionWords::new(kind);
        for field in fields.iter().filter(|field| self.present.contains(field.field)) {
            action.put(field.place, self.number(field.field));
        }
        PlainEvent {
            offset: origin.offset,
            time_ms: origin.time_ms,
            player_id: number(PLAYER_ID),
            seq: number(SEQ),
            ts_us: number(TS_US) as i64,
            action,
        }
    }

    #[inline(always)]
    fn number(&self, field: u8) -> u64 {
        self.numbers[usize::from(field) % FIELDS_MAX]
    }

    #[inline]
    fn read_field(
        &mut self,
        table: &EventTable,
        field: u8,
        nodes: &mut Nodes<'_, '_>,
        carried: &mut Vec<u64>,
    ) -> Result<(), Reject> {
        let FieldReading { form, range } = table.reading(field);
        let node = next(nodes);
        let number = &mut self.numbers[usize::from(field) % FIELDS_MAX];
        // Most values are integers, whatever the field.
        if let (FieldForm::Integer | FieldForm::Id | FieldForm::Position, Some(value)) =
            (form, integer(node))
        {
            *number = integer_in(range, value)?;
            return Ok(());
        }
        match (form, node) {
            (FieldForm::TypeName, Node::String(name)) => {
                let kind = table.type_names.find(name.as_bytes());
                self.kind = Some(kind.ok_or(Reject::UnknownType)?);
            }
            (FieldForm::Id, Node::String(digits)) => {
                *number = integer_in(range, decimal(digits)?.into())?;
            }
            (FieldForm::Position, Node::Static(StaticNode::F64(value))) => {
                *number = position_number(centimetres(*value).ok_or(Reject::OutOfRange)?);
            }
            (FieldForm::Handoff, &Node::Object { len, .. }) => {
                *number = carried.len() as u64;
                carried.resize(carried.len() + table.carried_words, 0);
                let start = *number as usize;
                read_carried(table.carried, len, nodes, &mut carried[start..])?;
            }
            _ => return Err(Reject::WrongType),
        }
        Ok(())
    }
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

/// Reads the object that a player carries to words that are 0.
fn read_carried(
    fields: &[CarriedField],
    len: usize,
    nodes: &mut Nodes<'_, '_>,
    words: &mut [u64],
) -> Result<(), Reject> {
    let mut present = FieldSet::default();
    for _ in 0..len {
        let name = key(nodes);
        let found = (0..).zip(fields).find(|(_, field)| field.key.as_bytes() == name);
        let Some((number, field)) = found else {
            skip(nodes);
            continue;
        };
        if !present.insert(number) {
            return Err(Reject::DuplicateField);
        }
        match field.form {
            CarriedForm::Number(bits) => read_bits(nodes, bits, words)?,
            CarriedForm::Pairs { count_max, per_word, first } => {
                let pairs = array(nodes)?;
                if pairs > count_max {
                    return Err(Reject::OutOfRange);
                }
                for at in 0..pairs {
                    pair(nodes)?;
                    for bits in first {
                        read_bits(nodes, bits.at(at, per_word), words)?;
                    }
                }
            }
        }
    }
    let is_missing =
        |(number, field): (u8, &CarriedField)| field.is_required && !present.contains(number);
    match (0..).zip(fields).any(is_missing) {
        true => Err(Reject::MissingField),
        false => Ok(()),
    }
}

fn read_bits(
    nodes: &mut Nodes<'_, '_>,
    bits: CarriedBits,
    words: &mut [u64],
) -> Result<(), Reject> {
    let (least, most) = bits.range;
    bits.put(words, number(nodes, least, most)?);
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
