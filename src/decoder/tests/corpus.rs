//! The decoder's result for each kind of record: the golden corpus, and records that are too long
//! for it.

use crate::decoder::{Decoder, RecordPosition, reject::Reject};
use crate::hunt::event::{Action, ActionKind, EVENTS, Event, EventField};
use crate::kit::event::{ActionSpec, RECORD_BYTES_MAX};
use crate::kit::event_list::Events;
use crate::kit::field::FieldSpec;
use std::collections::BTreeSet;

const ORIGIN: RecordPosition = RecordPosition { offset: 7, time_ms: 1000 };

const MOVE: &str = r#"{"type":"move","player_id":42,"seq":7,"ts_us":1,"x":120350.5,"y":-4}"#;

/// The corpus: records that are events, and records that are not.
pub(crate) const ACCEPTED: &str = include_str!("../../../tests/data/corpus/accepted.txt");
pub(crate) const REFUSED: &str = include_str!("../../../tests/data/corpus/refused.txt");

/// A record, and the expected event or reject.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) record: Vec<u8>,
    pub(crate) expected: &'static str,
}

/// The cases of a corpus file: three lines each, separated by empty lines.
pub(crate) fn cases(file: &'static str) -> Vec<Case> {
    let lines: Vec<&str> = file.lines().skip_while(|line| !line.starts_with("# ")).collect();
    let cases = lines.chunks(4).map(|case| Case {
        name: case[0].strip_prefix("# ").expect("a case begins with its name"),
        record: percent_decoded(case[1]),
        expected: case[2],
    });
    cases.collect()
}

fn percent_decoded(text: &str) -> Vec<u8> {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        bytes.push(u8::from_str_radix(&part[..2], 16).expect("two hexadecimal digits after %"));
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    bytes
}

fn outcome(result: Result<Event, Reject>) -> String {
    match result {
        Ok(event) => format!("{event:?}"),
        Err(reject) => reject.name().to_owned(),
    }
}

/// Decodes each case twice, so that a layout learnt from one case is tried on all others.
fn assert_corpus(file: &'static str) {
    let mut decoder = Decoder::new(&EVENTS);
    let cases = cases(file);
    let mut wrong = String::new();
    for case in cases.iter().chain(&cases) {
        let found = outcome(decoder.decode::<Action>(ORIGIN, Some(&case.record)));
        if found != case.expected {
            wrong += &format!("{}:\n  {}\n  {}\n", case.name, case.expected, found);
        }
    }
    assert!(wrong.is_empty(), "expected and found:\n{wrong}");
}

#[test]
fn every_accepted_record_of_the_corpus_gives_its_event() {
    assert_corpus(ACCEPTED);
}

#[test]
fn every_refused_record_of_the_corpus_gives_its_reject() {
    assert_corpus(REFUSED);
}

#[test]
fn the_corpus_names_no_case_twice_and_holds_every_reject_of_a_value_that_has_bytes() {
    let refused = cases(REFUSED);
    let accepted = cases(ACCEPTED);
    let names: BTreeSet<_> = refused.iter().chain(&accepted).map(|case| case.name).collect();
    assert_eq!(names.len(), refused.len() + accepted.len());
    let rejects: BTreeSet<_> = refused.iter().map(|case| case.expected).collect();
    for reject in Reject::ALL {
        // Excludes rejects by length, and those that the decoder does not produce.
        let by_length = [Reject::NullValue, Reject::EmptyValue, Reject::TooLong];
        let is_elsewhere = by_length.contains(&reject) || Reject::PASSED_OVER.contains(&reject);
        assert_eq!(rejects.contains(reject.name()), !is_elsewhere, "{reject:?}");
    }
}

#[test]
fn the_corpus_holds_every_kind_of_action() {
    let mut decoder = Decoder::new(&EVENTS);
    let mut decode = |case: Case| decoder.decode::<Action>(ORIGIN, Some(&case.record)).ok();
    let events = cases(ACCEPTED).into_iter().filter_map(&mut decode);
    let held: Vec<ActionKind> = events.map(|event| event.action.kind()).collect();
    for kind in ActionKind::ALL {
        assert!(held.contains(kind), "tests/data/corpus/accepted.txt has no {}", kind.name());
    }
}

#[test]
fn only_an_arrival_leaves_words_of_its_handoff_in_the_list() {
    let handoff = r#","handoff":{"from_zone":1,"crossing":1,"score":0,"last_seq":1}}"#;
    let with_handoff = MOVE.replace('}', handoff);
    let broken = with_handoff.replace("120350.5", "true");
    let arrival = with_handoff.replace("move", "join");
    let (mut decoder, mut events) = (Decoder::new(&EVENTS), Events::default());
    for (record, is_event, words) in
        [(&with_handoff, true, 0), (&broken, false, 0), (&arrival, true, EVENTS.carried_words)]
    {
        let bytes = record.as_bytes();
        let decoded = decoder.decode_within(ORIGIN, bytes, 0..bytes.len(), &mut events);
        assert_eq!((decoded.is_ok(), events.carried().len()), (is_event, words), "{record}");
    }
}

/// A record with these integer fields and this type.
fn record_of(type_name: &str, fields: &[(&str, i128)]) -> Vec<u8> {
    let fields = fields.iter().map(|(key, number)| format!(",\"{key}\":{number}"));
    format!("{{\"type\":\"{type_name}\"{}}}", fields.collect::<String>()).into_bytes()
}

#[test]
fn every_type_of_event_needs_its_required_fields_and_takes_each_in_its_range_alone() {
    let mut decoder = Decoder::new(&EVENTS);
    let mut decode = |type_name, fields: &[_]| {
        decoder
            .decode::<Action>(ORIGIN, Some(&record_of(type_name, fields)))
            .map(|event| event.action.kind())
    };
    for kind in ActionKind::ALL.iter().filter(|kind| **kind != ActionKind::Arrive) {
        let ActionSpec { type_name, required, .. } = kind.spec();
        let is_number = |field: &EventField| field.spec().least < field.spec().most;
        let numbers = EventField::ALL.iter().copied().filter(is_number);
        let all: Vec<_> = numbers.map(|field| (field, field.spec())).collect();
        let needed = all.iter().filter(|(field, _)| required.contains(*field as u8));
        let needed: Vec<_> = needed.map(|(_, spec)| (spec.key, spec.most)).collect();
        assert_eq!(decode(type_name, &needed), Ok(*kind));
        for absent in 0..needed.len() {
            let mut fields = needed.clone();
            fields.remove(absent);
            assert_eq!(decode(type_name, &fields), Err(Reject::MissingField), "{fields:?}");
        }
        for (_, FieldSpec { key, least, most, .. }) in all {
            let mut fields: Vec<_> =
                needed.iter().copied().filter(|(needed, _)| needed != key).collect();
            for (number, is_taken) in
                [(*least, true), (*most, true), (least - 1, false), (most + 1, false)]
            {
                fields.push((key, number));
                let found = decode(type_name, &fields);
                // A number of more than 64 bits is invalid as a number.
                let beyond = matches!(found, Err(Reject::OutOfRange | Reject::InvalidNumber));
                assert!(if is_taken { found == Ok(*kind) } else { beyond }, "{fields:?}");
                fields.pop();
            }
        }
    }
}

#[test]
fn a_null_value_and_an_empty_value_are_rejects_of_their_own() {
    let mut decoder = Decoder::new(&EVENTS);
    assert_eq!(decoder.decode::<Action>(ORIGIN, None), Err(Reject::NullValue));
    assert_eq!(decoder.decode::<Action>(ORIGIN, Some(b"")), Err(Reject::EmptyValue));
}

#[test]
fn an_event_carries_the_offset_and_the_timestamp_of_its_record() {
    let origin = RecordPosition { offset: i64::MAX, time_ms: -1 };
    let event = Decoder::new(&EVENTS)
        .decode::<Action>(origin, Some(MOVE.as_bytes()))
        .expect("a valid record");
    let action = Action::Move { x: 120_351, y: -4 };
    let expected = Event { offset: i64::MAX, time_ms: -1, player_id: 42, seq: 7, ts_us: 1, action };
    assert_eq!(event, expected);
}

#[test]
fn a_record_cut_at_any_byte_is_rejected_and_does_not_disturb_the_next_one() {
    let mut decoder = Decoder::new(&EVENTS);
    let whole = decoder.decode::<Action>(ORIGIN, Some(MOVE.as_bytes())).expect("a valid record");
    for length in 0..MOVE.len() {
        let cut = decoder.decode::<Action>(ORIGIN, Some(&MOVE.as_bytes()[..length]));
        assert!(cut.is_err(), "{length} bytes gave {cut:?}");
        assert_eq!(decoder.decode::<Action>(ORIGIN, Some(MOVE.as_bytes())), Ok(whole));
    }
}

#[test]
fn a_record_with_any_one_byte_changed_to_any_other_never_panics() {
    let mut decoder = Decoder::new(&EVENTS);
    let mut accepted = 0u32;
    for at in 0..MOVE.len() {
        for byte in 0..=u8::MAX {
            let mut record = MOVE.as_bytes().to_vec();
            record[at] = byte;
            accepted += u32::from(decoder.decode::<Action>(ORIGIN, Some(&record)).is_ok());
        }
    }
    assert!(accepted > MOVE.len() as u32, "{accepted} accepted");
}

#[test]
fn a_record_of_the_largest_size_is_an_event_and_one_byte_more_is_too_long() {
    let mut decoder = Decoder::new(&EVENTS);
    let mut record = MOVE.as_bytes().to_vec();
    record.resize(RECORD_BYTES_MAX, b' ');
    assert!(decoder.decode::<Action>(ORIGIN, Some(&record)).is_ok());
    record.push(b' ');
    assert_eq!(decoder.decode::<Action>(ORIGIN, Some(&record)), Err(Reject::TooLong));
}

#[test]
fn the_largest_record_may_be_one_string_and_one_byte_of_it_can_spoil_it() {
    let mut decoder = Decoder::new(&EVENTS);
    let head = MOVE.strip_suffix('}').expect("an object").to_owned() + r#","name":""#;
    let text_bytes = RECORD_BYTES_MAX - head.len() - 2;
    for (text, expected) in [
        ("a", None),
        (r"\n", None),
        ("\u{e9}", None),
        (r"\ud83d", Some(Reject::InvalidJson)),
        ("\n", Some(Reject::InvalidJson)),
    ] {
        let padding = "a".repeat(text_bytes % text.len());
        let filled = text.repeat(text_bytes / text.len());
        let record = format!("{head}{filled}{padding}\"}}");
        assert_eq!(record.len(), RECORD_BYTES_MAX);
        let result = decoder.decode::<Action>(ORIGIN, Some(record.as_bytes()));
        assert_eq!(result.err(), expected, "{text:?}");
    }
}

#[test]
fn a_field_may_stand_after_thousands_of_unknown_ones() {
    let unknown = "\"a\":1,".repeat(2000);
    let record = MOVE.replace("\"x\"", &format!("{unknown}\"x\""));
    let result = Decoder::new(&EVENTS).decode::<Action>(ORIGIN, Some(record.as_bytes()));
    assert!(matches!(result, Ok(Event { action: Action::Move { x: 120_351, y: -4 }, .. })));
}

#[test]
fn brackets_that_open_or_close_without_end_are_rejected() {
    let mut decoder = Decoder::new(&EVENTS);
    for (record, expected) in [
        ("[".repeat(RECORD_BYTES_MAX), Reject::TooDeep),
        ("{".repeat(RECORD_BYTES_MAX), Reject::InvalidJson),
        ("]".repeat(RECORD_BYTES_MAX), Reject::InvalidJson),
        ("{}".repeat(RECORD_BYTES_MAX / 2), Reject::TrailingBytes),
        ("{\"a\":".repeat(9), Reject::TooDeep),
        ("\"".repeat(RECORD_BYTES_MAX), Reject::TrailingBytes),
        ("\\".repeat(RECORD_BYTES_MAX), Reject::InvalidJson),
        ("-".repeat(RECORD_BYTES_MAX), Reject::InvalidNumber),
        ("9".repeat(RECORD_BYTES_MAX), Reject::InvalidNumber),
    ] {
        let result = decoder.decode::<Action>(ORIGIN, Some(record.as_bytes()));
        assert_eq!(result, Err(expected), "{}...", &record[..8]);
    }
}
