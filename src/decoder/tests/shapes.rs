//! The shape tier reads no record differently from the JSON tier, whatever bytes surround it.
//! Tested with short records of many producers, changed in a few places. Each kind of processor,
//! AVX2 and AVX-512, reads 250,000 of them, or half of `HUNTD_FUZZ_RECORDS`. `HUNTD_FUZZ_SEED`
//! repeats a run.
//!
//! The records are not those of a random game, which are valid and have small numbers: here numbers
//! are at the limits of their fields and beyond, and records are broken.

use super::parsed;
use crate::decoder::json::JsonDecoder;
use crate::decoder::reject::Reject;
use crate::decoder::runs::RUNS_MAX;
use crate::decoder::shape::Shapes;
use crate::decoder::simd::Processor;
use crate::decoder::{Decoder, RecordPosition};
use crate::hunt::event::{ActionKind, EVENTS, EventField};
use crate::kit::event::Presence;
use crate::kit::event_list::Events;
use crate::kit::field::{ActionWords, FieldForm, FieldSet};
use crate::testing::random::Random;
use std::collections::BTreeSet;

const ORIGIN: RecordPosition = RecordPosition { offset: 3, time_ms: 4 };

/// Numbers at every limit of the shape tier, and numbers that it leaves to others.
const NUMBERS: [&str; 28] = [
    "0",
    "00",
    "-0",
    "01",
    "-1",
    "255",
    "256",
    "35999",
    "36000",
    "65535",
    "65536",
    "4294967295",
    "4294967296",
    "2147483647",
    "2147483648",
    "-2147483647",
    "-2147483648",
    "9999999999999999",
    "10000000000000000",
    "01234567890123456",
    "999999999999999999",
    "9999999999999999999",
    "18446744073709551615",
    "18446744073709551616",
    "100000000000000000000000000000000000",
    "1.5",
    "1e3",
    "1E-3",
];

/// Unknown fields, with `#` for digits.
const EXTRAS: [&str; 10] = [
    "\"version\":#",
    "\"note\":{\"a\":[#,2]}",
    "\"note\":{\"a1\":[1,{\"b#\":-#.#}]}",
    "\"session\":\"0a1b-#\"",
    "\"client\":\"a text that is longer than what is compared at once\"",
    "\"k#\":true",
    "\"ratio\":-0.#",
    "\"name\":\"\u{e9}#\u{1f48e}\"",
    "\"power\":#e2",
    "\"escaped\":\"\\u0041#\"",
];

/// An arrival contains an object and is left to the next tier.
#[test]
fn the_first_tier_has_room_for_the_numbers_of_every_event_and_two_more() {
    for kind in ActionKind::ALL.iter().copied().filter(|kind| *kind != ActionKind::Arrive) {
        let optional = kind.spec().fields.iter().map(|field| field.field);
        let all = kind.spec().required.and(FieldSet::of(&optional.collect::<Vec<_>>()));
        let is_number = |field: &EventField| field.spec().form != FieldForm::TypeName;
        let fields = EventField::ALL.iter().copied().filter(|field| all.contains(*field as u8));
        let numbers = fields.filter(is_number).count();
        assert!(numbers + 2 <= RUNS_MAX, "{}: raise RUNS_MAX", kind.spec().type_name);
    }
}

fn pick<'a>(random: &mut Random, list: &[&'a str]) -> &'a str {
    list[random.below(list.len() as u64) as usize]
}

fn number(random: &mut Random, most: i128) -> String {
    if random.below(16) == 0 {
        return pick(random, &NUMBERS).to_owned();
    }
    let digits = 10_i128.pow(1 + random.below(17) as u32);
    (i128::from(random.below(u64::MAX)) % digits).clamp(1, most.max(1)).to_string()
}

/// A record as one of the producers writes it.
fn record(random: &mut Random, producers: u64) -> Vec<u8> {
    let producer = random.below(producers);
    let kinds = ActionKind::ALL;
    let kind = kinds[random.below(kinds.len() as u64) as usize].spec();
    let mut fields = vec![format!("\"type\":\"{}\"", kind.type_name)];
    for field in EventField::ALL {
        let spec = field.spec();
        let has = |presence| {
            kind.fields.iter().any(|of| of.field == *field as u8 && of.presence == presence)
        };
        let optional = has(Presence::Optional) && producer.is_multiple_of(2);
        let unused = producer % 7 == 3 && *field == EventField::Heading;
        let needed = kind.required.contains(*field as u8) || has(Presence::Required);
        if matches!(spec.form, FieldForm::TypeName | FieldForm::Handoff)
            || !(needed || optional || unused)
        {
            continue;
        }
        let number = number(random, spec.most);
        let minus = if spec.least < 0 && random.below(4) == 0 { "-" } else { "" };
        let quote = if spec.form == FieldForm::Id && producer % 3 == 1 { "\"" } else { "" };
        fields.push(format!("\"{}\":{quote}{minus}{number}{quote}", spec.key));
    }
    if !producer.is_multiple_of(4) {
        let extra = EXTRAS[producer as usize % EXTRAS.len()].split('#');
        let extra: Vec<_> = extra.collect();
        let digits = number(random, 99_999);
        fields.push(extra.join(&digits));
    }
    let first = producer as usize % fields.len();
    fields.rotate_left(first);
    let comma = [",", ", ", "\n,"][producer as usize % 3];
    format!("{{{}}}", fields.join(comma)).into_bytes()
}

/// Changes a record in one place.
fn mutate(random: &mut Random, bytes: &mut Vec<u8>) {
    if bytes.is_empty() {
        return;
    }
    let at = random.below(bytes.len() as u64) as usize;
    match random.below(7) {
        0 => bytes[at] = random.below(256) as u8,
        1 => bytes[at] ^= 1 << random.below(8),
        2 => drop(bytes.remove(at)),
        3 => bytes.truncate(at),
        4 => bytes.insert(at, b'0' + random.below(10) as u8),
        5 => bytes.truncate(bytes.len() - 1),
        _ => bytes.insert(at, noise(random)),
    }
}

/// A byte around a record: mostly one that could belong to it.
fn noise(random: &mut Random) -> u8 {
    const LIKELY: &[u8] = b"0123456789}}}\"\",:{-.[] ";
    match random.below(4) {
        0 => random.below(256) as u8,
        _ => LIKELY[random.below(LIKELY.len() as u64) as usize],
    }
}

/// Surrounds a record with a few or many other bytes.
fn surround(random: &mut Random, record: &[u8]) -> (Vec<u8>, std::ops::Range<usize>) {
    let (before, after) = (random.below(24), [0, 3, 200][random.below(3) as usize]);
    let mut bytes: Vec<u8> = (0..before).map(|_| noise(random)).collect();
    let start = bytes.len();
    bytes.extend_from_slice(record);
    let end = bytes.len();
    bytes.extend((0..after).map(|_| noise(random)));
    (bytes, start..end)
}

fn environment_number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is a whole number, not {text}")))
}

/// Statistics of a run.
#[derive(Default)]
pub(crate) struct Seen {
    pub events: u64,
    pub by_shape: u64,
    pub kinds_by_shape: BTreeSet<&'static str>,
}

fn run(processor: Processor, seed: u64, count: u64, producers: u64, seen: &mut Seen) {
    let mut random = Random::new(seed);
    let (mut json, mut decoder, mut shapes) =
        (JsonDecoder::new(&EVENTS), Decoder::new(&EVENTS), Shapes::on(Some(processor), &EVENTS));
    let mut events = Events::default();
    for index in 0..count {
        let mut bytes = record(&mut random, producers);
        if random.below(3) == 0 {
            (0..=random.below(2)).for_each(|_| mutate(&mut random, &mut bytes));
        }
        let (buffer, range) = surround(&mut random, &bytes);
        let expected = parsed(&mut json, ORIGIN, &bytes);
        let shown = || format!("seed {seed}, record {index}: {}", bytes.escape_ascii());
        events.clear();
        let found = decoder.decode_within(ORIGIN, &buffer, range.clone(), &mut events);
        let found = found.map(|()| events.pop().expect("no reject is an event"));
        assert_eq!(found, expected, "the tiers differ, {}", shown());
        events.clear();
        if shapes.read(ORIGIN, &buffer, range, &mut events) {
            let event = events.pop().expect("it was added");
            assert_eq!(Ok(event), expected, "the first tier differs, {}", shown());
            seen.by_shape += 1;
            seen.kinds_by_shape.insert(event.action.kind().name());
        } else if expected.is_ok() {
            shapes.learn(&bytes);
        }
        seen.events += u64::from(expected.is_ok());
    }
}

#[test]
fn shapes_and_json_agree_on_short_records_whatever_is_around_them() {
    let seed = environment_number("HUNTD_FUZZ_SEED").unwrap_or(0x0073_6861_7065);
    let records = environment_number("HUNTD_FUZZ_RECORDS").unwrap_or(500_000);
    for processor in Processor::detect() {
        let mut seen = Seen::default();
        for (producers, run_seed) in [1, 2, 5, 60].into_iter().zip(seed..) {
            run(processor, run_seed, records / 8, producers, &mut seen);
        }
        let records = records / 2;
        assert!(seen.events > records / 4 && seen.events < records - records / 10);
        assert!(seen.by_shape > records / 10, "{} of {records} by shape", seen.by_shape);
        let mut expected: BTreeSet<_> = ActionKind::NAMES.iter().copied().collect();
        // Arrivals are left to the other tiers.
        expected.remove(ActionKind::Arrive.name());
        assert_eq!(seen.kinds_by_shape, expected);
    }
}

/// Replaces each `@` in a text by a value.
fn filled(text: &str, values: &str) -> String {
    let mut values = values.split_whitespace();
    let value = |part: &str| format!("{}{part}", values.next().expect("a value for each place"));
    let (first, rest) = text.split_once('@').expect("a place");
    first.to_owned() + &rest.split('@').map(value).collect::<String>()
}

/// Learns the text with the first values, then checks which of the others are read, with the result
/// of the JSON tier.
fn check(text: &str, known: &str, others: &[(&str, bool)]) {
    for processor in Processor::detect() {
        let mut shapes = Shapes::on(Some(processor), &EVENTS);
        shapes.learn(filled(text, known).as_bytes());
        let mut json = JsonDecoder::new(&EVENTS);
        for (values, is_read) in [(known, true)].iter().chain(others) {
            let record = filled(text, values);
            let mut events = Events::default();
            let found = shapes.read(ORIGIN, record.as_bytes(), 0..record.len(), &mut events);
            assert_eq!(found, *is_read, "{processor:?}, {record}");
            assert_eq!(events.len(), usize::from(found));
            if found {
                let event = events.pop().expect("it was added");
                assert_eq!(Ok(event), parsed(&mut json, ORIGIN, record.as_bytes()), "{record}");
            }
        }
    }
}

#[test]
fn numbers_are_read_in_their_ranges() {
    check(
        r#"{"type":"rotate","player_id":@,"seq":@,"ts_us":@,"heading":@"#,
        "7 1 5 10}",
        &[
            ("76561198000000042 9 0 0}", true),
            ("9999999999999999999 9 0 35999}", true),
            ("18446744073709551615 9 0 0}", false),
            ("7 9999999999999999 9999999999999999 0}", true),
            ("7 10000000000000000 0 0}", false),
            ("0 1 0 0}", false),
            ("7 0 0 0}", false),
            ("7 1 0 36000}", false),
            ("07 1 0 0}", false),
            ("7 1 0 00}", false),
            ("7 1 -1 0}", false),
            ("7 1 1.0 0}", false),
            ("7 1 1e5 0}", false),
            ("7 1 1 0},", false),
            ("7 1 1 0", false),
        ],
    );
}

mod skills {
    #![allow(unreachable_pub, reason = "the macros declare what other modules see")]
    #![allow(unused_imports, unused_mut, dead_code, reason = "no other game is without fields")]

    crate::events! {
        /// Events whose types differ in a digit.
        SKILL_EVENTS = &[];
        fields SkillField {}
        kinds SkillKind;
        /// A skill is used.
        actions Skill {
            /// The first one.
            One = 0 "skill1" Player,
            /// Another one.
            Zero = 1 "skill0" Player,
            /// A skill without a digit.
            Plain = 2 "skill" Player,
        }
    }
}

#[test]
fn types_that_differ_in_a_digit_are_told_apart_whatever_was_read_before() {
    use skills::{SKILL_EVENTS, Skill};
    let mut decoder = Decoder::new(&SKILL_EVENTS);
    for round in 0..100 {
        for action in [Skill::One, Skill::Zero, Skill::Plain] {
            let name = action.kind().spec().type_name;
            let record = format!(r#"{{"type":"{name}","player_id":7,"seq":1,"ts_us":{round}}}"#);
            let event = decoder.decode::<Skill>(ORIGIN, Some(record.as_bytes()));
            assert_eq!(event.map(|event| event.action), Ok(action), "{record}");
        }
        let unknown = br#"{"type":"skill2","player_id":7,"seq":1,"ts_us":5}"#;
        assert_eq!(decoder.decode::<Skill>(ORIGIN, Some(unknown)), Err(Reject::UnknownType));
    }
}

#[test]
fn a_minus_is_part_of_the_shape() {
    check(
        r#"{"type":"move","player_id":7,"seq":1,"ts_us":@,"x":@,"y":@}"#,
        "-5 -10 3",
        &[
            ("-0 -2147483647 2147483647", true),
            ("-5 -2147483648 3", false),
            ("5 -10 3", false),
            ("-5 -10 2147483648", false),
        ],
    );
    let mut shapes = Shapes::new(&EVENTS);
    let zero = br#"{"type":"rotate","player_id":7,"seq":1,"ts_us":5,"heading":-0}"#;
    shapes.learn(zero);
    assert!(
        !shapes.read(ORIGIN, zero, 0..zero.len(), &mut Events::default()),
        "what is never below 0"
    );
}

#[test]
fn what_is_unknown_may_be_constant_text_with_other_digits() {
    check(
        r#"{"type":"loot","player_id":"@","seq":2,"ts_us":6000000,"n@":{"a":[@,"@"],"b":-@}}"#,
        "7 1 1 x02 1",
        &[
            ("9 0 0 x000 0", true),
            ("9 1 01 x02 1", false),
            ("9 1 1 x02 01", false),
            ("09 1 1 x02 1", false),
            ("9 1 1 y02 1", false),
        ],
    );
    check(
        r#"{"type":"tick","client":"a_text_that_is_longer_than_what_is_@,"seq":@,"ts_us":5}"#,
        "compared_at_once\" 1",
        &[
            ("compared_at_once\" 12345", true),
            ("compared_at_twice\" 1", false),
            ("compared_at_oncf\" 1", false),
        ],
    );
}

#[test]
fn what_is_checked_and_left_out_is_so_here_too() {
    check(
        r#"{"type":"hunt_end","player_id":@,"seq":4,"hunt":@,"ts_us":1234567,"x":@}"#,
        "7 5 4",
        &[
            ("1234567890123456 4294967295 4", true),
            ("0 5 4", false),
            ("7 5 2147483648", false),
            ("7 4294967296 4", false),
        ],
    );
}

#[test]
fn what_stands_behind_a_record_is_no_part_of_it() {
    let whole = br#"{"type":"tick","seq":1,"ts_us":5}"#;
    let cuts = [(whole.len(), "}}"), (whole.len() - 1, ""), (whole.len() - 2, "")];
    for (processor, (bytes, tail)) in Processor::detect().flat_map(|one| cuts.map(|cut| (one, cut)))
    {
        let mut shapes = Shapes::on(Some(processor), &EVENTS);
        shapes.learn(whole);
        let mut buffer = vec![b'1'; 40];
        buffer.extend_from_slice(whole);
        buffer.extend_from_slice(tail.as_bytes());
        buffer.extend_from_slice(&[b'1'; 200]);
        let mut events = Events::default();
        let is_read = shapes.read(ORIGIN, &buffer, 40..40 + bytes, &mut events);
        assert_eq!(is_read, bytes == whole.len());
    }
}

#[test]
fn shapes_that_are_all_different_are_hardly_learnt_until_one_comes_again() {
    let mut shapes = Shapes::new(&EVENTS);
    if Processor::detect().next().is_none() {
        return;
    }
    let named = |name: u32| {
        let name: String = format!("{name:05}").bytes().map(|byte| char::from(byte + 49)).collect();
        format!(r#"{{"type":"tick","seq":1,"ts_us":5,"{name}":null}}"#)
    };
    let learns = |shapes: &mut Shapes, name| {
        let (record, mut events) = (named(name), Events::default());
        shapes.learn(record.as_bytes());
        shapes.read(ORIGIN, record.as_bytes(), 0..record.len(), &mut events)
    };
    // A hit ends the pause, so no record is read twice here.
    (0..40_000).for_each(|name| shapes.learn(named(name).as_bytes()));
    let learnt = (40_000..50_000).take_while(|name| !learns(&mut shapes, *name)).count();
    assert!((1..=255).contains(&learnt), "{learnt}");
    assert!(learns(&mut shapes, 60_000), "after a hit the next one is learnt at once");
    let mut events = Events::default();
    let first = named(0);
    assert!(!shapes.read(ORIGIN, first.as_bytes(), 0..first.len(), &mut events), "is forgotten");
}

#[test]
fn a_reject_adds_no_event() {
    let mut decoder = Decoder::new(&EVENTS);
    let mut events = Events::default();
    let value = b"{\"type\":\"tick\",\"seq\":01,\"ts_us\":5}";
    let decoded = decoder.decode_within(ORIGIN, value, 0..value.len(), &mut events);
    assert_eq!((decoded, events.len()), (Err(Reject::InvalidNumber), 0));
    let tick = b"{\"type\":\"tick\",\"seq\":1,\"ts_us\":5}";
    for count in 1..5 {
        decoder.decode_within(ORIGIN, tick, 0..tick.len(), &mut events).expect("an event");
        let last = events.plain().last().expect("it was added");
        assert_eq!((events.len(), last.action), (count, ActionWords::new(ActionKind::Tick as u8)));
    }
}
