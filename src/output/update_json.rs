//! Converts an update to and from a JSON object.
//!
//! The object has `kind`, `player_id`, `ts_us`, then the fields of the kind, always in the order of
//! the table and without white space: each update has one form, and only that form is accepted.
//! Player ids are strings, and so is any number above 2^53, which JavaScript and jq would round. A
//! field without a value is left out.

use crate::hunt::change::{Change, KINDS};
use crate::kit::kinds::{Form, PayloadPart, UpdateField, UpdateKind};
use crate::kit::update::{Payload, Update};
use crate::output::line::{Head, Line, Text};

/// Numbers above this are written as strings.
const NUMBER_MAX: u64 = 1 << 53;

/// Appends the updates' JSON objects, with commas between them.
pub(crate) fn write(updates: &[Update], out: &mut Vec<u8>) {
    let (mut line, mut heads) = (Line::new(), Heads::default());
    for (index, update) in updates.iter().enumerate() {
        line.clear();
        if index > 0 {
            line.push(b',');
        }
        line.push_update(update, &mut heads);
        out.extend_from_slice(line.written());
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

static TEMPLATES: [Template; KINDS.len()] = {
    let mut templates = [Template::of(&KINDS[0]); KINDS.len()];
    let mut at = 1;
    while at < KINDS.len() {
        templates[at] = Template::of(&KINDS[at]);
        at += 1;
    }
    templates
};

impl Template {
    const fn of(kind: &UpdateKind) -> Template {
        let head = Text::new(&["{\"kind\":\"", kind.name, "\",\"player_id\":\""]);
        let unused = Member::of(&KINDS[0].fields[0]);
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
    fn push_update(&mut self, update: &Update, heads: &mut Heads) {
        let words = update.words();
        let template = &TEMPLATES[usize::from(words[2] as u8) - 1];
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

/// Reads the object at the start of `input` and advances `input` past it. `None` if it is not
/// output of [`write`]; `input` is then unspecified.
pub(crate) fn read(input: &mut &[u8]) -> Option<Update> {
    skip(input, b"{\"kind\":\"")?;
    let name = until(input, b'"')?;
    let number = KINDS.iter().position(|kind| kind.name.as_bytes() == name)?;
    skip(input, b",\"player_id\":\"")?;
    let player_id = read_digits(input)?;
    skip(input, b"\",\"ts_us\":")?;
    let ts_us = read_signed(input)?;
    let mut payload = Payload { kind: number as u8 + 1, ..Payload::default() };
    for field in KINDS[number].fields {
        let value = read_field(field, input)?;
        payload.set(field.place, value);
        if payload.get(field.place) != value {
            return None;
        }
    }
    skip(input, b"}")?;
    Update::from_words::<Change>([player_id, ts_us as u64, payload.first_word(), payload.long])
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hunt::change::Change;
    use crate::hunt::refusal::ScoreCause;
    use crate::kit::kinds::PayloadPart;
    use crate::output::frame::UPDATE_JSON_BYTES_MAX;
    use proptest::prelude::*;

    /// An update of this kind with the longest value in each field.
    fn longest(number: usize) -> Update {
        let kind = &KINDS[number];
        let mut payload = Payload { kind: number as u8 + 1, ..Payload::default() };
        for field in kind.fields {
            let longest_name = |at: &usize| field.names[*at].len();
            let value = match (field.form, field.place) {
                (Form::Signed, _) => u64::from(i32::MIN as u32),
                (Form::Name, _) => (0..field.names.len()).max_by_key(longest_name).unwrap() as u64,
                (Form::Flag, _) => 0,
                (Form::Zone, _) => u64::from(u16::MAX) + 1,
                (_, PayloadPart::Code) => u64::from(u8::MAX),
                (_, PayloadPart::Short) if kind.name == "handoff_effect" => u64::from(u8::MAX),
                (_, PayloadPart::Short) => u64::from(u16::MAX),
                (_, PayloadPart::Word | PayloadPart::Low | PayloadPart::High) => {
                    u64::from(u32::MAX)
                }
                (_, PayloadPart::Long) => u64::MAX,
            };
            payload.set(field.place, value);
        }
        let words = [u64::MAX, i64::MIN as u64, payload.first_word(), payload.long];
        Update::from_words::<Change>(words).expect("the longest update is an update")
    }

    fn json(update: &Update) -> String {
        let mut out = Vec::new();
        write(std::slice::from_ref(update), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_longest_json_of_every_kind_keeps_its_bound_and_reads_back() {
        for number in 0..KINDS.len() {
            let update = longest(number);
            let text = json(&update);
            assert!(text.len() <= UPDATE_JSON_BYTES_MAX, "{} bytes: {text}", text.len());
            let mut input = text.as_bytes();
            assert_eq!(read(&mut input), Some(update), "{text}");
            assert!(input.is_empty());
            assert_eq!(Update::new(u64::MAX, i64::MIN, update.change::<Change>()), update);
            serde_json::from_str::<serde_json::Value>(&text).expect("what is written is JSON");
        }
    }

    #[test]
    fn a_player_id_is_a_string_and_a_score_is_one_beyond_2_to_the_53() {
        let score = |score| {
            json(&Update::new(7, -5, Change::Scored { cause: ScoreCause::Loot, points: 9, score }))
        };
        let fields = r#""cause":"loot","points":9,"score":9007199254740992"#;
        let head = r#"{"kind":"scored","player_id":"7","ts_us":-5,"#;
        assert_eq!(score(1 << 53), format!("{head}{fields}}}"));
        assert!(score((1 << 53) + 1).contains(r#""score":"9007199254740993""#));
    }

    #[test]
    fn a_field_without_a_value_is_left_out() {
        let left = |to_zone| json(&Update::new(7, 1, Change::Left { to_zone, seq: 3 }));
        assert!(!left(None).contains("to_zone"));
        assert!(left(Some(0)).contains(r#""to_zone":0,"#));
        let text = left(None);
        let update = read(&mut text.as_bytes()).unwrap();
        assert_eq!(update.change::<Change>(), Change::Left { to_zone: None, seq: 3 });
    }

    proptest! {
        #[test]
        fn words_that_are_an_update_survive_json(words: [u64; 4], kind in 1u8..=KINDS.len() as u8) {
            let words = [words[0], words[1], words[2] & !0xff | u64::from(kind), words[3]];
            let masked = [words[0], words[1], words[2] & 0xffff_ffff_0000_03ff, words[3]];
            for words in [words, masked] {
                if let Some(update) = Update::from_words::<Change>(words) {
                    let text = json(&update);
                    prop_assert_eq!(read(&mut text.as_bytes()), Some(update));
                    prop_assert_eq!(update.words(), words);
                }
            }
        }

        #[test]
        fn any_change_of_a_byte_is_refused_or_read_as_another_update(
            number in 0..KINDS.len(), at: prop::sample::Index, byte: u8,
        ) {
            let update = longest(number);
            let mut text = json(&update).into_bytes();
            let at = at.index(text.len());
            prop_assume!(text[at] != byte);
            text[at] = byte;
            prop_assert_ne!(read(&mut text.as_slice()), Some(update));
        }
    }
}
