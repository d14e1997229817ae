//! docs/RULES.md, docs/EVENTS.md and docs/QUERIES.md list the same as the code.

use super::texts;
use crate::hunt::change::KINDS;
use crate::hunt::event::{ActionKind, EventField};
use crate::hunt::refusal::Refusal;
use crate::kit::event::Subject;
use crate::kit::field::{FieldForm, FieldSpec};
use std::collections::{BTreeMap, BTreeSet};

const RULES: &str = include_str!("../../../docs/RULES.md");
const EVENTS: &str = include_str!("../../../docs/EVENTS.md");
const QUERIES: &str = include_str!("../../../docs/QUERIES.md");

#[test]
fn every_kind_of_update_is_documented_with_its_fields_and_their_places() {
    for (number, kind) in (1..).zip(KINDS) {
        let head = format!("| {number} | `{}` | ", kind.name);
        let row = RULES.lines().find(|line| line.starts_with(&head));
        let row = row.unwrap_or_else(|| panic!("docs/RULES.md has no row that begins with {head}"));
        let fields = row.rsplit(" | ").next().unwrap();
        let wanted =
            kind.fields.iter().map(|field| format!("`{}` {}: ", field.name, field.place.name()));
        let mut from = 0;
        for field in wanted {
            let at = fields[from..].find(&field);
            let at = at.unwrap_or_else(|| panic!("docs/RULES.md: {} has no {field}", kind.name));
            from += at + field.len();
        }
        let documented = fields.matches(": ").count();
        assert_eq!(
            documented,
            kind.fields.len(),
            "fields in docs/RULES.md, and in the code: {row}"
        );
    }
}

#[test]
fn every_refusal_is_documented() {
    for name in Refusal::NAMES {
        let head = format!("| `{name}` | ");
        assert!(RULES.contains(&head), "docs/RULES.md has no row that begins with {head}");
    }
}

#[test]
fn every_name_is_documented_in_the_order_of_its_numbers() {
    for kind in KINDS {
        for field in kind.fields.iter().filter(|field| !field.names.is_empty()) {
            let names: Vec<String> = field.names.iter().map(|name| format!("`{name}`")).collect();
            let row = format!("| `{}` of `{}` | {} |", field.name, kind.name, names.join(", "));
            assert!(RULES.lines().any(|line| line == row), "docs/RULES.md has no row {row}");
        }
    }
}

/// The scripts name each update that they expect, and each refusal by its reason.
#[test]
fn every_kind_of_update_and_every_refusal_has_a_script() {
    let scripts = texts("src/hunt/tests");
    let words: BTreeSet<&str> =
        scripts.split(|c: char| c.is_whitespace() || "\"`".contains(c)).collect();
    let reasons = Refusal::NAMES.iter().map(|name| format!("reason={name}"));
    for word in KINDS.iter().map(|kind| kind.name.to_owned()).chain(reasons) {
        assert!(words.contains(word.as_str()), "no script in src/hunt/tests has `{word}`");
    }
}

/// The cells of the table under this heading.
fn rows(page: &'static str, heading: &str) -> Vec<Vec<&'static str>> {
    let section = page.lines().skip_while(|line| *line != heading);
    let table = section.skip_while(|line| !line.starts_with('|'));
    let rows = table.take_while(|line| line.starts_with('|')).skip(2);
    rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

/// The parts of a text within backquotes.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// A limit as written on the page: relative to a large power of two if next to one.
fn bound(number: i128) -> String {
    let power = (number + i128::from(number > 0)).unsigned_abs();
    match number {
        ..0 => format!("-2^{}", power.ilog2()),
        0..=65_535 => number.to_string(),
        _ => format!("2^{}-1", power.ilog2()),
    }
}

#[test]
fn every_field_of_an_event_is_documented_with_its_form_and_range() {
    let documented: BTreeMap<&str, [&str; 2]> = rows(EVENTS, "## Fields")
        .into_iter()
        .flat_map(|row| quoted(row[0]).into_iter().map(move |key| (key, [row[1], row[2]])))
        .collect();
    for field in EventField::ALL {
        let FieldSpec { key, form, least, most } = *field.spec();
        let range = format!("{} .. {}", bound(least), bound(most));
        let wanted = match form {
            FieldForm::TypeName => ["string", "see below"],
            FieldForm::Integer => ["integer", &range],
            FieldForm::Id => ["integer, or string of decimal digits", &range],
            FieldForm::Position => ["number", &format!("{range} once rounded")],
            FieldForm::Handoff => ["object", "see below"],
        };
        let found = documented.get(key).unwrap_or_else(|| panic!("EVENTS.md has no row of {key}"));
        assert_eq!(*found, wanted, "{key} in docs/EVENTS.md, and in the code");
    }
    assert_eq!(documented.len(), EventField::ALL.len(), "{documented:?}");
}

#[test]
fn every_type_of_event_is_documented_with_what_it_requires_and_what_it_may_have() {
    let mut wanted = BTreeMap::<&str, [Vec<&str>; 2]>::new();
    for kind in ActionKind::ALL {
        let spec = kind.spec();
        let head = [EventField::PlayerId, EventField::Seq];
        let head = head.into_iter().filter(|field| spec.required.contains(*field as u8));
        let [required, optional] = wanted.entry(spec.type_name).or_default();
        for field in head.chain(spec.fields.iter().map(|of| EventField::ALL[usize::from(of.field)]))
        {
            let key = field.spec().key;
            if required.contains(&key) || optional.contains(&key) {
                continue;
            }
            // A field of only another kind with this type is optional: an arrival is a join with
            // more fields.
            let is_own = spec.type_name == kind.name();
            let needed = is_own && spec.required.contains(field as u8);
            if needed { &mut *required } else { &mut *optional }.push(key);
        }
    }
    let documented: BTreeMap<&str, [Vec<&str>; 2]> = rows(EVENTS, "## Types")
        .iter()
        .map(|row| (quoted(row[0])[0], [quoted(row[1]), quoted(row[2])]))
        .collect();
    for name in documented.keys().chain(wanted.keys()) {
        let (documented, wanted) = (documented.get(name), wanted.get(name));
        assert_eq!(documented, wanted, "what {name} has in docs/EVENTS.md, and in the code");
    }
    let is_world = |kind: &ActionKind| kind.spec().subject.is_world();
    let world = ActionKind::ALL.iter().copied().filter(is_world).map(ActionKind::name);
    let sentence = EVENTS.lines().find(|line| line.contains(" are the world's"));
    let mut named = quoted(sentence.expect("a sentence says which are the world's"));
    named.retain(|name| *name != "player_id" && *name != "seq");
    named.sort_unstable();
    let mut world: Vec<&str> = world.collect();
    world.sort_unstable();
    assert_eq!(named, world, "the world's in docs/EVENTS.md, and in the code");
}

#[test]
fn the_events_that_a_players_token_posts_are_those_of_players() {
    let (_, sentence) = QUERIES.split_once("posts this player's ").expect("a sentence says which");
    let (listed, rest) = sentence.split_once(". It does not").expect("and which not");
    assert!(rest.trim_start().starts_with("`join`"), "where a player enters, the game decides");
    let is_player =
        |kind: &&ActionKind| matches!(kind.spec().subject, Subject::Player | Subject::Leave);
    let players = ActionKind::ALL.iter().filter(is_player).map(|kind| kind.name());
    assert_eq!(quoted(listed), players.collect::<Vec<_>>(), "in docs/QUERIES.md, and in the code");
}
