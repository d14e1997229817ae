//! Converts an update to and from a JSON object.
//!
//! The object has `kind`, `player_id`, `ts_us`, then the fields of the kind, always in the order of
//! the table and without white space: each update has one form, and only that form is accepted.
//! Player ids are strings, and so is any number above 2^53, which JavaScript and jq would round. A
//! field without a value is left out.

use crate::kit::kinds::{Form, PayloadPart, UpdateField, UpdateKind};
use crate::kit::line::{Head, Line, Text};
use crate::kit::update::{Payload, Update};

/// Numbers above this are written as strings.
const NUMBER_MAX: u64 = 1 << 53;

/// Upper limit of one update in JSON; a test encodes the longest of each kind.
pub(crate) const UPDATE_JSON_BYTES_MAX: usize = 220;

/// Limit of a game's kinds of updates.
const KINDS_MAX: usize = 64;

/// All updates of a game: what readers and the writers of records know of it.
pub struct UpdateTable {
    /// The kinds, by number from 1.
    pub kinds: &'static [UpdateKind],
    templates: [Template; KINDS_MAX],
}

impl std::fmt::Debug for UpdateTable {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("UpdateTable").finish_non_exhaustive()
    }
}

impl UpdateTable {
    /// Creates the table of these kinds.
    pub const fn new(kinds: &'static [UpdateKind]) -> UpdateTable {
        let mut templates = [Template::of(&kinds[0]); KINDS_MAX];
        let mut at = 1;
        while at < kinds.len() {
            templates[at] = Template::of(&kinds[at]);
            at += 1;
        }
        UpdateTable { kinds, templates }
    }

    /// Returns the update with these words. `None` if there is no such kind or name, or if bits are
    /// set that the kind does not use.
    pub(crate) fn update(&self, words: [u64; 4]) -> Option<Update> {
        let update = Update::from_words(words);
        self.has(update.payload()).then_some(update)
    }

    /// Returns whether the fields form a valid update: each is a value of its type, and no other
    /// bit is set.
    pub(crate) fn has(&self, payload: Payload) -> bool {
        let number = usize::from(payload.kind).wrapping_sub(1);
        let Some(kind) = self.kinds.get(number) else { return false };
        let mut known = Payload { kind: payload.kind, ..Payload::default() };
        for UpdateField { place, most, .. } in kind.fields {
            let bits = payload.get(*place);
            if bits > *most {
                return false;
            }
            known.set(*place, bits);
        }
        known == payload
    }

    /// Appends the updates' JSON objects, with commas between them.
    pub(crate) fn write(&self, updates: &[Update], out: &mut Vec<u8>) {
        let (mut line, mut heads) = (Line::new(), Heads::default());
        for (index, update) in updates.iter().enumerate() {
            line.clear();
            if index > 0 {
                line.push(b',');
            }
            let kind = usize::from(update.words()[2] as u8);
            line.push_update(&self.templates[kind - 1], update, &mut heads);
            out.extend_from_slice(line.written());
        }
    }

    /// Reads the object at the start of `input` and advances `input` past it. `None` if it is not
    /// output of [`UpdateTable::write`]; `input` is then unspecified.
    pub(crate) fn read(&self, input: &mut &[u8]) -> Option<Update> {
        skip(input, b"{\"kind\":\"")?;
        let name = until(input, b'"')?;
        let number = self.kinds.iter().position(|kind| kind.name.as_bytes() == name)?;
        skip(input, b",\"player_id\":\"")?;
        let player_id = read_digits(input)?;
        skip(input, b"\",\"ts_us\":")?;
        let ts_us = read_signed(input)?;
        let mut payload = Payload { kind: number as u8 + 1, ..Payload::default() };
        for field in self.kinds[number].fields {
            let value = read_field(field, input)?;
            payload.set(field.place, value);
            if payload.get(field.place) != value {
                return None;
            }
        }
        skip(input, b"}")?;
        self.update([player_id, ts_us as u64, payload.first_word(), payload.long])
    }
}

/// The leading digits of the numbers that every update has.
#[derive(Default)]
struct Heads {
    player: Head,
    time: Head,
}

/// The template of one kind's objects.
#[derive(Clone, Copy)]
struct Template {
    /// The object up to the player's id.
    head: Text,
    fields: [Member; FIELDS_MAX],
    field_count: usize,
}

/// The template of one field.
#[derive(Clone, Copy)]
struct Member {
    /// The text before the value, including its quotation mark if it always has one.
    key: Text,
    /// Index of the update's word that contains the value.
    word: usize,
    /// Position of its lowest bit.
    shift: u32,
    /// Mask of its bits.
    mask: u64,
    form: Form,
    names: &'static [&'static str],
}

const FIELDS_MAX: usize = 5;

impl Template {
    const fn of(kind: &UpdateKind) -> Template {
        let head = Text::new(&["{\"kind\":\"", kind.name, "\",\"player_id\":\""]);
        let unused = Member {
            key: Text::new(&[]),
            word: 2,
            shift: 0,
            mask: 0,
            form: Form::Number,
            names: &[],
        };
        let mut template =
            Template { head, fields: [unused; FIELDS_MAX], field_count: kind.fields.len() };
        let mut at = 0;
        while at < kind.fields.len() {
            template.fields[at] = Member::of(&kind.fields[at]);
            at += 1;
        }
        template
    }
}

impl Member {
    const fn of(field: &UpdateField) -> Member {
        let end = if matches!(field.form, Form::Name | Form::Player) { "\":\"" } else { "\":" };
        // The layout of `Payload` in an update's third and fourth word.
        let (word, shift, bits) = match field.place {
            PayloadPart::Code => (2, 8, 8),
            PayloadPart::Short => (2, 16, 16),
            PayloadPart::Word => (2, 32, 32),
            PayloadPart::Low => (3, 0, 32),
            PayloadPart::High => (3, 32, 32),
            PayloadPart::Long => (3, 0, 64),
        };
        Member {
            key: Text::new(&[",\"", field.name, end]),
            word,
            shift,
            mask: u64::MAX >> (64 - bits),
            form: field.form,
            names: field.names,
        }
    }
}

const TIME: Text = Text::new(&["\",\"ts_us\":"]);

impl Line {
    fn push_update(&mut self, template: &Template, update: &Update, heads: &mut Heads) {
        let words = update.words();
        self.push_text(&template.head);
        self.push_digits_after(words[0], &mut heads.player);
        self.push_text(&TIME);
        match words[1] {
            time @ ..=NUMBER_MAX => self.push_digits_after(time, &mut heads.time),
            time => self.push_signed(time as i64),
        }
        for member in &template.fields[..template.field_count] {
            self.push_member(member, words[member.word] >> member.shift & member.mask);
        }
        self.push(b'}');
    }

    fn push_member(&mut self, member: &Member, value: u64) {
        if value == 0 && matches!(member.form, Form::Zone | Form::Player) {
            return;
        }
        self.push_text(&member.key);
        match member.form {
            Form::Number => self.push_number(value),
            Form::Signed => self.push_signed(i64::from(value as u32 as i32)),
            Form::Name => {
                self.push_bytes(member.names[value as usize].as_bytes());
                self.push(b'"');
            }
            Form::Flag => self.push_bytes(if value == 0 { b"false" } else { b"true" }),
            Form::Zone => self.push_digits(value - 1),
            Form::Player => {
                self.push_digits(value);
                self.push(b'"');
            }
            Form::Items => self.push_items(value),
        }
    }

    fn push_items(&mut self, value: u64) {
        for (slot, pair) in value.to_le_bytes().chunks_exact(2).enumerate() {
            self.push_bytes(if slot == 0 { b"[[" } else { b",[" });
            self.push_digits(u64::from(pair[0]));
            self.push(b',');
            self.push_digits(u64::from(pair[1]));
            self.push(b']');
        }
        self.push(b']');
    }

    fn push_number(&mut self, value: u64) {
        if value <= NUMBER_MAX {
            self.push_digits(value);
        } else {
            self.push(b'"');
            self.push_digits(value);
            self.push(b'"');
        }
    }

    fn push_signed(&mut self, value: i64) {
        if value < 0 && value >= -(NUMBER_MAX as i64) {
            self.push(b'-');
            self.push_digits(value.unsigned_abs());
        } else if value < 0 {
            self.push_bytes(b"\"-");
            self.push_digits(value.unsigned_abs());
            self.push(b'"');
        } else {
            self.push_number(value as u64);
        }
    }
}

fn read_field(field: &UpdateField, input: &mut &[u8]) -> Option<u64> {
    let mut rest = *input;
    let here = skip(&mut rest, b",\"")
        .and_then(|()| skip(&mut rest, field.name.as_bytes()))
        .and_then(|()| skip(&mut rest, b"\":"));
    if here.is_none() && matches!(field.form, Form::Zone | Form::Player) {
        return Some(0);
    }
    here?;
    *input = rest;
    match field.form {
        Form::Number => read_number(input),
        Form::Signed => Some(u64::from(i32::try_from(read_signed(input)?).ok()? as u32)),
        Form::Name => {
            skip(input, b"\"")?;
            let name = until(input, b'"')?;
            field.names.iter().position(|known| known.as_bytes() == name).map(|at| at as u64)
        }
        Form::Flag => match skip(input, b"true") {
            Some(()) => Some(1),
            None => skip(input, b"false").map(|()| 0),
        },
        Form::Zone => read_digits(input)?.checked_add(1),
        Form::Player => {
            skip(input, b"\"")?;
            let id = read_digits(input)?;
            skip(input, b"\"")?;
            Some(id).filter(|id| *id != 0)
        }
        Form::Items => read_items(input),
    }
}

fn read_items(input: &mut &[u8]) -> Option<u64> {
    let mut bytes = [0; 8];
    for (slot, pair) in bytes.chunks_exact_mut(2).enumerate() {
        skip(input, if slot == 0 { b"[[" } else { b",[" })?;
        pair[0] = u8::try_from(read_digits(input)?).ok()?;
        skip(input, b",")?;
        pair[1] = u8::try_from(read_digits(input)?).ok()?;
        skip(input, b"]")?;
    }
    skip(input, b"]")?;
    Some(u64::from_le_bytes(bytes))
}

fn read_number(input: &mut &[u8]) -> Option<u64> {
    if skip(input, b"\"").is_some() {
        let value = read_digits(input)?;
        skip(input, b"\"")?;
        return Some(value).filter(|value| *value > NUMBER_MAX);
    }
    read_digits(input).filter(|value| *value <= NUMBER_MAX)
}

fn read_signed(input: &mut &[u8]) -> Option<i64> {
    let quoted = skip(input, b"\"").is_some();
    let negative = skip(input, b"-").is_some();
    let size = read_digits(input)?;
    if quoted {
        skip(input, b"\"")?;
    }
    if quoted != (size > NUMBER_MAX) || (negative && size == 0) {
        return None;
    }
    if negative { 0i64.checked_sub_unsigned(size) } else { i64::try_from(size).ok() }
}

/// Reads decimal digits without a leading zero.
fn read_digits(input: &mut &[u8]) -> Option<u64> {
    let length = input.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, rest) = input.split_at(length);
    if digits.is_empty() || (digits[0] == b'0' && length > 1) {
        return None;
    }
    *input = rest;
    digits
        .iter()
        .try_fold(0u64, |value, digit| value.checked_mul(10)?.checked_add(u64::from(digit - b'0')))
}

fn skip(input: &mut &[u8], expected: &[u8]) -> Option<()> {
    *input = input.strip_prefix(expected)?;
    Some(())
}

fn until<'a>(input: &mut &'a [u8], end: u8) -> Option<&'a [u8]> {
    let length = input.iter().position(|byte| *byte == end)?;
    let found = &input[..length];
    *input = &input[length + 1..];
    Some(found)
}
