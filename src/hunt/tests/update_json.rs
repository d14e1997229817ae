//! Updates as JSON: one form of each, and only that one is read.

use crate::hunt::change::{Change, KINDS, UPDATES};
use crate::hunt::refusal::ScoreCause;
use crate::kit::kinds::{Form, PayloadPart};
use crate::kit::update::{Payload, Update};
use crate::kit::update_json::UPDATE_JSON_BYTES_MAX;
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
            (_, PayloadPart::Word | PayloadPart::Low | PayloadPart::High) => u64::from(u32::MAX),
            (_, PayloadPart::Long) => u64::MAX,
        };
        payload.set(field.place, value);
    }
    let words = [u64::MAX, i64::MIN as u64, payload.first_word(), payload.long];
    UPDATES.update(words).expect("the longest update is an update")
}

fn json(update: &Update) -> String {
    let mut out = Vec::new();
    UPDATES.write(std::slice::from_ref(update), &mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn the_longest_json_of_every_kind_keeps_its_bound_and_reads_back() {
    for number in 0..KINDS.len() {
        let update = longest(number);
        let text = json(&update);
        assert!(text.len() <= UPDATE_JSON_BYTES_MAX, "{} bytes: {text}", text.len());
        let mut input = text.as_bytes();
        assert_eq!(UPDATES.read(&mut input), Some(update), "{text}");
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
    let update = UPDATES.read(&mut text.as_bytes()).unwrap();
    assert_eq!(update.change::<Change>(), Change::Left { to_zone: None, seq: 3 });
}

proptest! {
    #[test]
    fn words_that_are_an_update_survive_json(words: [u64; 4], kind in 1u8..=KINDS.len() as u8) {
        let words = [words[0], words[1], words[2] & !0xff | u64::from(kind), words[3]];
        let masked = [words[0], words[1], words[2] & 0xffff_ffff_0000_03ff, words[3]];
        for words in [words, masked] {
            if let Some(update) = UPDATES.update(words) {
                let text = json(&update);
                prop_assert_eq!(UPDATES.read(&mut text.as_bytes()), Some(update));
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
        prop_assert_ne!(UPDATES.read(&mut text.as_slice()), Some(update));
    }
}
