//! docs/RULES.md lists what the code has.

use huntd::engine::change::{KINDS, PayloadPart};
use huntd::engine::refusal::Refusal;

const RULES: &str = include_str!("../../docs/RULES.md");
const PROTOCOL: &str = include_str!("../../docs/PROTOCOL.md");

#[test]
fn every_kind_of_update_is_documented_with_its_fields_and_their_places() {
    for (number, kind) in (1..).zip(KINDS) {
        let head = format!("| {number} | `{}` | ", kind.name);
        let row = RULES.lines().find(|line| line.starts_with(&head));
        let row = row.unwrap_or_else(|| panic!("no row begins with {head}"));
        let fields = row.rsplit(" | ").next().unwrap();
        let wanted = kind.fields.iter().map(|field| {
            let place = match field.place {
                PayloadPart::Code => "code",
                PayloadPart::Short => "short",
                PayloadPart::Word => "word",
                PayloadPart::Low => "low",
                PayloadPart::High => "high",
                PayloadPart::Long => "long",
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
    let all: Vec<String> = Refusal::NAMES.iter().map(|name| format!("`{name}`")).collect();
    let all = all.join(", ");
    let protocol: Vec<&str> = PROTOCOL.split_whitespace().collect();
    assert!(protocol.join(" ").contains(&format!(": {all}.")), "{all}");
}

#[test]
fn every_name_is_documented_in_the_order_of_its_numbers() {
    for kind in KINDS {
        for field in kind.fields.iter().filter(|field| !field.names.is_empty()) {
            let names: Vec<String> = field.names.iter().map(|name| format!("`{name}`")).collect();
            let row = format!("| `{}` of `{}` | {} |", field.name, kind.name, names.join(", "));
            assert!(RULES.lines().any(|line| line == row), "{row}");
        }
    }
}
