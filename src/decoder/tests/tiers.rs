//! All tiers of the decoder yield the same event or the same reject for every record, and
//! serde_json agrees with them on what is JSON. Tested with a million mutated records, or
//! `HUNTD_FUZZ_RECORDS`. `HUNTD_FUZZ_SEED` repeats a run.

use super::parsed;
use crate::decoder::json::JsonDecoder;
use crate::decoder::layout::Layouts;

use crate::decoder::reject::Reject;
use crate::decoder::{Decoder, RecordPosition};
use crate::hunt::event::{Action, ActionKind, EVENTS, Event, EventField, Handoff};
use crate::hunt::rules::rulebook::Rulebook;
use crate::hunt::rules_file::built_in;
use crate::kit::event::GameAction;
use crate::kit::event_list::Events;
use crate::kit::field::{FieldForm, FieldSpec};
use crate::output::event_json::write_event;
use crate::testing::random::Random;
use crate::testing::random_game::{RandomGame, Setting};
use std::collections::BTreeSet;

const ORIGIN: RecordPosition = RecordPosition { offset: 3, time_ms: 4 };

fn pick<'a, T: ?Sized>(random: &mut Random, list: &[&'a T]) -> &'a T {
    list[random.below(list.len() as u64) as usize]
}

/// Numbers and other values at every limit of the decoder.
const VALUES: [&str; 48] = [
    "0",
    "-0",
    "1",
    "-1",
    "00",
    "01",
    "-01",
    "7.0",
    "7e0",
    "1E2",
    "0.5",
    "-0.5",
    "2.5",
    "2.499999",
    "2.4999999999999999",
    "0.49999999999999994",
    "2147483647",
    "2147483647.4",
    "2147483647.5",
    "-2147483648",
    "-2147483648.4999999",
    "-2147483648.5",
    "35999",
    "36000",
    "255",
    "256",
    "65535",
    "65536",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "-9223372036854775809",
    "9999999999999999999",
    "18446744073709551615",
    "18446744073709551616",
    "1e308",
    "1e309",
    "1e-400",
    "null",
    "true",
    "\"42\"",
    "\"042\"",
    "\"\"",
    "\"4\\u0032\"",
    "[]",
    "{\"a\":1}",
];

/// Fragments that may be inserted anywhere into a record.
const PIECES: [&str; 36] = [
    " ",
    "\n",
    "\t",
    ",",
    ":",
    "\"",
    "{",
    "}",
    "[",
    "]",
    "\\",
    "\\\"",
    "\\u0041",
    "\\ud83d",
    "\u{feff}",
    "\u{e9}",
    "\u{1f48e}",
    "\0",
    "\x0c",
    "-",
    "+",
    ".",
    "e",
    "E5",
    "0",
    "9",
    "123456789",
    "true",
    "false",
    "null",
    "\"a\":1",
    ",\"x\":3",
    ",\"note\":\"text\"",
    ",\"a\":-1.25",
    ",\"a\":false",
    ",\"heading\":17",
];

/// Records of a random game, as written by several producers, each with its own field order,
/// spacing and extra fields. Values are as long or short as a field's range allows.
struct Records {
    random: Random,
    game: RandomGame,
    producers: u64,
}

impl Records {
    fn new(seed: u64, producers: u64) -> Records {
        let game = RandomGame::new(Setting::of(&Rulebook::of(built_in())));
        Records { random: Random::new(seed), game, producers }
    }

    fn next(&mut self) -> Vec<u8> {
        let producer = self.random.below(self.producers);
        let Event { action, .. } = self.game.event(&mut |bound| self.random.below(bound));
        let (spec, words) = (action.kind().spec(), action.pack(&mut Vec::new()));
        let mut fields = vec![("type", format!("\"{}\"", spec.type_name))];
        // Some producers write a field that the type does not use.
        let extra = EventField::ALL.get(producer as usize);
        for field in EventField::ALL {
            let place = spec.place_of(*field as u8);
            let is_present = place.is_some_and(|place| words.has(place));
            let is_needed = spec.required.contains(*field as u8) || is_present;
            if is_needed || extra == Some(field) {
                fields.extend(self.value(*field, producer).map(|value| (field.spec().key, value)));
            }
        }
        if let Action::Arrive { handoff, .. } = action {
            fields.push(("handoff", handoff_json(handoff)));
        }
        let random = &mut self.random;
        match producer % 5 {
            1 => fields.push(("version", pick(random, &["1", "-2.75", "true", "null"]).to_owned())),
            2 => {
                fields.push(("note", format!("\"{}\"", pick(random, &["", "ok", "a b", "\u{e9}"]))))
            }
            3 => fields.push(("deep", "{\"a\":[1,{}]}".to_owned())),
            _ => {}
        }
        let first = producer as usize % fields.len();
        fields.rotate_left(first);
        let (colon, comma) = [(":", ","), (": ", ", "), (" : ", "\n,")][producer as usize % 3];
        let fields: Vec<_> = fields.iter().map(|(k, v)| format!("\"{k}\"{colon}{v}")).collect();
        format!("{{{}}}", fields.join(comma)).into_bytes()
    }

    /// A number within the field's range, if it has one, in the producer's format.
    fn value(&mut self, field: EventField, producer: u64) -> Option<String> {
        let FieldSpec { form, least, most, .. } = *field.spec();
        let bound = 10i128.pow(1 + self.random.below(19) as u32);
        let number = i128::from(self.random.below(u64::MAX)) % bound;
        let is_negative = least < 0 && self.random.below(8) == 0;
        let number = if is_negative { -number } else { number }.clamp(least, most);
        match form {
            FieldForm::TypeName | FieldForm::Handoff => None,
            FieldForm::Id if producer % 3 == 1 => Some(format!("\"{number}\"")),
            FieldForm::Position if producer % 4 == 1 => {
                Some(format!("{}.{:05}", number / 2, self.random.below(100_000)))
            }
            FieldForm::Integer | FieldForm::Id | FieldForm::Position => Some(number.to_string()),
        }
    }
}

fn handoff_json(handoff: Handoff) -> String {
    let mut record = Vec::new();
    write_event(&mut record, 1, 1, 1, &Action::Arrive { x: 0, y: 0, handoff });
    let record = String::from_utf8(record).expect("JSON is text");
    let (_, handoff) = record.split_once("\"handoff\":").expect("an arrival has it");
    handoff.strip_suffix('}').expect("a record ends so").to_owned()
}

fn insert(bytes: &mut Vec<u8>, at: usize, piece: &[u8]) {
    bytes.splice(at..at, piece.iter().copied());
}

/// Changes a record in one place.
fn mutate(random: &mut Random, bytes: &mut Vec<u8>, other: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    let at = random.below(bytes.len() as u64) as usize;
    match random.below(9) {
        0 => bytes[at] = random.below(256) as u8,
        1 => bytes[at] ^= 1 << random.below(8),
        2 => drop(bytes.remove(at)),
        3 => bytes.truncate(at),
        4 => insert(bytes, at, pick(random, &PIECES).as_bytes()),
        5 => {
            let end = (at + 1 + random.below(24) as usize).min(bytes.len());
            let range = bytes[at..end].to_vec();
            insert(bytes, at, &range);
        }
        6 => {
            bytes.truncate(at);
            bytes.extend_from_slice(&other[random.below(other.len() as u64) as usize..]);
        }
        _ => replace_value(random, bytes, at),
    }
}

/// Replaces the value after `at` by an edge case.
fn replace_value(random: &mut Random, bytes: &mut Vec<u8>, at: usize) {
    let Some(colon) = bytes[at..].iter().position(|byte| *byte == b':') else {
        return;
    };
    let start = at + colon + 1;
    let is_end = |byte: &u8| matches!(byte, b',' | b'}');
    let length = bytes[start..].iter().position(is_end).unwrap_or(bytes.len() - start);
    bytes.splice(start..start + length, pick(random, &VALUES).bytes());
}

/// Returns whether serde_json accepts the record, if comparable: it accepts deeper nesting, and
/// integers of any size.
fn is_json_to_serde(record: &[u8], result: Result<Event, Reject>) -> Option<bool> {
    let comparable = !matches!(
        result,
        Err(Reject::TooDeep | Reject::InvalidNumber | Reject::TooLong | Reject::EmptyValue)
    );
    comparable.then(|| serde_json::from_slice::<serde_json::Value>(record).is_ok())
}

fn is_json(result: Result<Event, Reject>) -> bool {
    !matches!(result, Err(Reject::NotUtf8 | Reject::TrailingBytes | Reject::InvalidJson))
}

fn environment_number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is a whole number, not {text}")))
}

/// Statistics of a run.
#[derive(Default)]
struct Seen {
    events: u64,
    by_layout: u64,
    kinds: BTreeSet<&'static str>,
    kinds_by_layout: BTreeSet<&'static str>,
}

/// Compares the tiers.
fn run(seed: u64, count: u64, producers: u64, seen: &mut Seen) {
    let mut records = Records::new(seed, producers);
    let mut json = JsonDecoder::new(&EVENTS);
    let mut decoder = Decoder::new(&EVENTS);
    // The decoder soon stops trying a tier that does not know its records; this one sees all of
    // them.
    let mut layouts = Layouts::new(&EVENTS);
    let (mut previous, mut events) = (records.next(), Events::default());
    for index in 0..count {
        let mut bytes = records.next();
        for _ in 0..records.random.below(4) {
            mutate(&mut records.random, &mut bytes, &previous);
        }
        let expected = parsed(&mut json, ORIGIN, &bytes);
        let found = decoder.decode::<Action>(ORIGIN, Some(&bytes));
        let shown = || format!("seed {seed}, record {index}: {}", bytes.escape_ascii());
        assert_eq!(found, expected, "the tiers differ, {}", shown());
        if layouts.read(ORIGIN, &bytes, &mut events) {
            let event = events.pop().expect("it was added");
            assert_eq!(Ok(event), expected, "the layouts differ, {}", shown());
            seen.by_layout += 1;
            seen.kinds_by_layout.insert(event.action.kind().name());
        } else if expected.is_ok() {
            layouts.learn(&bytes);
        }
        if let Some(serde) = is_json_to_serde(&bytes, expected) {
            assert_eq!(serde, is_json(expected), "serde_json differs: {expected:?}, {}", shown());
        }
        if let Ok(event) = expected {
            seen.events += 1;
            seen.kinds.insert(event.action.kind().name());
        }
        if !bytes.is_empty() {
            previous = bytes;
        }
    }
}

#[test]
fn all_tiers_and_serde_json_agree_on_mutated_records() {
    let seed = environment_number("HUNTD_FUZZ_SEED").unwrap_or(0x0068_756e_7464);
    let records = environment_number("HUNTD_FUZZ_RECORDS").unwrap_or(1_000_000);
    // Few producers keep the shape tier busy; many make it learn and forget all the time.
    let mut seen = Seen::default();
    for (producers, run_seed) in [1, 2, 7, 105].into_iter().zip(seed..) {
        run(run_seed, records / 4, producers, &mut seen);
    }
    // The comparison is meaningful only if each tier saw enough of all kinds, and rejects, too.
    let Seen { events, by_layout, kinds, mut kinds_by_layout } = seen;
    assert!(by_layout > records / 20, "{by_layout} of {records} by layout");
    assert!(events > by_layout + records / 20, "{events} events, {by_layout} by layout");
    assert!(events < records - records / 20, "{events} of {records} are events");
    let all: BTreeSet<_> = ActionKind::NAMES.iter().copied().collect();
    assert_eq!(kinds, all, "kinds that were read, and all");
    // Arrivals are left to the layout tier.
    assert!(kinds_by_layout.insert(ActionKind::Arrive.name()));
    assert_eq!(kinds_by_layout, all, "kinds that the first tier read, and all");
}

#[test]
fn what_is_nested_in_a_record_is_text_of_its_layout() {
    const NESTED: &str = r#"{"a":["]",{"x":[]},7]}"#;
    let record = |x: u32, nested: &str| {
        format!(r#"{{"type":"move","player_id":7,"seq":1,"ts_us":5,"at":{nested},"x":{x},"y":2}}"#)
    };
    let (mut layouts, mut json) = (Layouts::new(&EVENTS), JsonDecoder::new(&EVENTS));
    layouts.learn(record(1, NESTED).as_bytes());
    for (x, nested, is_read) in [
        (1, NESTED, true),
        (3_000_000, NESTED, true),
        (1, r#"{"a":["]",{"x":[]},8]}"#, false),
        (1, r#"{"a":["]",{"x":[]},7]},"b":{}"#, false),
        (1, "[]", false),
        (1, "7", false),
    ] {
        let (record, mut events) = (record(x, nested), Events::default());
        assert_eq!(layouts.read(ORIGIN, record.as_bytes(), &mut events), is_read, "{record}");
        if let Some(event) = events.pop() {
            assert_eq!(Ok(event), parsed(&mut json, ORIGIN, record.as_bytes()), "{record}");
        }
    }
}
