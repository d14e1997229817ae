//! docs/RULES.md lists what the code has.

use huntd::engine::change::{KINDS, Place};
use huntd::engine::refusal::Refusal;

const RULES: &str = include_str!("../../docs/RULES.md");

#[test]
fn every_kind_of_update_is_documented_with_its_fields_and_their_places() {
    for (number, kind) in (1..).zip(KINDS) {
        let head = format!("| {number} | `{}` | ", kind.name);
        let row = RULES.lines().find(|line| line.starts_with(&head));
        let row = row.unwrap_or_else(|| panic!("no row begins with {head}"));
        let fields = row.rsplit(" | ").next().unwrap();
        let wanted = kind.fields.iter().map(|field| {
            let place = match field.place {
                Place::Code => "code",
                Place::Short => "short",
                Place::Word => "word",
                Place::Low => "low",
                Place::High => "high",
                Place::Long => "long",
            };
            format!("`{}` {place}: ", field.name)
        });
        let mut from = 0;
        for field in wanted {
            let at = fields[from..].find(&field);
            from += at.unwrap_or_else(|| panic!("{} has no {field}", kind.name)) + field.len();
        }
        assert_eq!(fields.matches(": ").count(), kind.fields.len(), "{row}");
    }
}

#[test]
fn every_refusal_is_documented() {
    for name in Refusal::NAMES {
        assert!(RULES.contains(&format!("| `{name}` | ")), "{name}");
    }
}
