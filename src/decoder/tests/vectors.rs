//! The meaning of input records, and the dead letters of others: the vectors that docs/EVENTS.md
//! and docs/PROTOCOL.md refer to.

use crate::decoder::{Decoder, RecordPosition};
use crate::hunt::event::{Action, ActionKind, EVENTS, Event, Handoff};
use crate::kit::event::{ActionField, ActionSpec, GameAction};
use crate::kit::field::{ActionWords, FieldForm, FieldSpec};
use crate::output::dead_letter::{DeadLetter, LetterRun};
use crate::testing::vectors::{bytes_of, vectors};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The bytes of a record or letter: as text, or as `_hex` if they are not text.
fn content(vector: &Value, key: &str) -> Option<Vec<u8>> {
    match vector.get(format!("{key}_hex")) {
        Some(digits) => Some(bytes_of(digits.as_str().expect("hexadecimal digits"))),
        None => vector[key].as_str().map(|text| text.as_bytes().to_vec()),
    }
}

/// An event in the form of the vectors: 64-bit numbers as text, which no JSON reader rounds.
fn event_value(event: &Event) -> Value {
    let (spec, mut carried) = (event.action.kind().spec(), Vec::new());
    let words = event.action.pack(&mut carried);
    let mut value = json!({
        "type": spec.type_name,
        "player_id": event.player_id.to_string(),
        "seq": event.seq.to_string(),
        "ts_us": event.ts_us.to_string(),
    });
    for field in spec.fields {
        let present = words.has(field.place);
        let shown = present.then(|| field_value(field, &words, &carried));
        value[field.spec.key] = shown.unwrap_or(Value::Null);
    }
    value
}

fn field_value(field: &ActionField, words: &ActionWords, carried: &[u64]) -> Value {
    let (FieldSpec { form, least, most, .. }, number) = (field.spec, words.get(field.place));
    match form {
        FieldForm::Handoff => handoff_value(&Handoff::at(carried, 0)),
        _ if *most > u32::MAX.into() => number.to_string().into(),
        _ if *least < 0 => (number as i32).into(),
        _ => number.into(),
    }
}

fn handoff_value(handoff: &Handoff) -> Value {
    let items = handoff.items.iter().filter(|stack| stack.count > 0);
    let effects = handoff.effects.iter().zip(handoff.effects_left_ms);
    let effects = effects.filter(|(effect, _)| **effect > 0);
    json!({
        "from_zone": handoff.from_zone,
        "crossing": handoff.crossing,
        "score": handoff.score.to_string(),
        "last_seq": handoff.last_seq.to_string(),
        "items": items.map(|stack| [stack.item, stack.count]).collect::<Vec<_>>(),
        "effects": effects.map(|(effect, left_ms)| json!([effect, left_ms])).collect::<Vec<_>>(),
    })
}

#[test]
fn every_record_of_the_vectors_is_the_event_or_the_reject_that_they_tell() {
    let mut decoder = Decoder::new(&EVENTS);
    let mut types = BTreeSet::new();
    for vector in vectors("events.json") {
        let record = content(&vector, "record");
        let found = match decoder
            .decode::<Action>(RecordPosition { offset: 7, time_ms: 1_000 }, record.as_deref())
        {
            Ok(event) => json!({"event": event_value(&event)}),
            Err(reject) => json!({"reject": reject.name()}),
        };
        types.extend(found["event"]["type"].as_str().map(str::to_owned));
        let expected = vector.as_object().expect("an object");
        for (key, value) in found.as_object().expect("an object") {
            assert_eq!(expected.get(key), Some(value), "{}", vector["name"]);
        }
    }
    for ActionSpec { type_name, .. } in ActionKind::ALL.iter().map(|kind| kind.spec()) {
        assert!(types.contains(*type_name), "docs/vectors/events.json has no {type_name}");
    }
}

#[test]
fn every_dead_letter_of_the_vectors_has_that_key_and_those_headers() {
    let mut decoder = Decoder::new(&EVENTS);
    for vector in vectors("dead_letters.json") {
        let (record, letter) = (&vector["record"], &vector["letter"]);
        let number = |key: &str| record[key].as_i64().expect("a number");
        let value = content(record, "value");
        let (offset, time_ms) = (number("offset"), number("timestamp_ms"));
        let decoded =
            decoder.decode::<Action>(RecordPosition { offset, time_ms }, value.as_deref());
        let reject = decoded.expect_err("a letter's record is no event");
        let dead_letter = DeadLetter {
            partition: number("partition") as i32,
            ownership_id: 1,
            offset,
            time_ms,
            reason: reject.name(),
            sentence: Some(decoder.explain(reject, value.as_deref())),
            key: content(record, "key"),
            value,
            cut: None,
            run: record.get("run").map(|run| LetterRun {
                last_offset: run["last_offset"].as_i64().expect("a number"),
                records: run["records"].as_u64().expect("a number"),
            }),
        };
        let topic = record["topic"].as_str().expect("a name");
        assert_eq!(letter["key"], dead_letter.place(topic));
        let headers: Vec<Value> = dead_letter
            .headers(topic)
            .into_iter()
            .map(|(name, bytes)| json!([name, String::from_utf8(bytes).expect("text")]))
            .collect();
        assert_eq!(letter["headers"], Value::Array(headers), "{}", vector["name"]);
        assert_eq!(content(letter, "value"), dead_letter.value, "{}", vector["name"]);
    }
}
