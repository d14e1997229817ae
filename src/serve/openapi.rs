//! The OpenAPI document: `openapi.json`, the game's part of it, and the schemas that follow from
//! the tables of events and updates.

use crate::kit::event::{ActionSpec, EventTable, Subject};
use crate::kit::field::{FieldForm, FieldSpec, SEQ, TS_US};
use crate::kit::kinds::{Form, PayloadPart, UpdateField, UpdateKind};
use crate::view::game::ViewSchema;
use serde_json::{Number, Value, json};

/// Returns the document of a game.
pub(crate) fn document(game: &ViewSchema) -> String {
    let parsed = |text| serde_json::from_str(text).expect("a part of the document is JSON");
    let mut document = parsed(include_str!("openapi.json"));
    merge(&mut document, parsed(game.openapi));
    let schemas = &mut document["components"]["schemas"];
    schemas["Update"] = update(game.game.updates.kinds);
    schemas["Event"] = event(game.game.events);
    document.to_string()
}

/// Adds a part to a document: to objects by key, to lists at their ends. Other values are replaced.
fn merge(document: &mut Value, part: Value) {
    match (document, part) {
        (Value::Object(members), Value::Object(part)) => {
            for (key, value) in part {
                merge(members.entry(key).or_insert(Value::Null), value);
            }
        }
        (Value::Array(items), Value::Array(part)) => items.extend(part),
        (value, part) => *value = part,
    }
}

fn part(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

fn range(least: impl Into<i128>, most: impl Into<i128>) -> Value {
    let integer = |number| Number::from_i128(number).expect("it fits 64 bits");
    let (least, most) = (integer(least.into()), integer(most.into()));
    json!({"type": "integer", "minimum": least, "maximum": most})
}

fn update(kinds: &[UpdateKind]) -> Value {
    let kinds: Value = kinds.iter().map(update_kind).collect();
    json!({"description": "One change, as in the frames of the output topic", "oneOf": kinds})
}

fn update_kind(kind: &UpdateKind) -> Value {
    let mut required = vec!["kind", "player_id", "ts_us"];
    let mut properties = json!({
        "kind": {"const": kind.name}, "player_id": part("PlayerId"), "ts_us": part("Int64"),
    });
    for field in kind.fields {
        properties[field.name] = update_field(field);
        if !matches!(field.form, Form::Zone | Form::Player) {
            required.push(field.name);
        }
    }
    json!({
        "type": "object", "additionalProperties": false, "required": required,
        "properties": properties,
    })
}

fn update_field(field: &UpdateField) -> Value {
    match (field.form, field.place) {
        (Form::Number, PayloadPart::Long) => part("UInt64"),
        (Form::Number, PayloadPart::Code) => range(0, u8::MAX),
        (Form::Number, PayloadPart::Short) | (Form::Zone, _) => range(0, u16::MAX),
        (Form::Number, PayloadPart::Word | PayloadPart::Low | PayloadPart::High) => {
            range(0, u32::MAX)
        }
        (Form::Signed, _) => range(i32::MIN, i32::MAX),
        (Form::Name, _) => json!({"enum": field.names}),
        (Form::Flag, _) => json!({"type": "boolean"}),
        (Form::Player, _) => part("PlayerId"),
        (Form::Items, _) => part("ItemSlots"),
    }
}

fn event(events: &EventTable) -> Value {
    let mut properties = json!({});
    for spec in events.fields {
        if let Some(schema) = event_field(spec) {
            properties[spec.key] = schema;
        }
    }
    // An arrival is a join with a handoff.
    let kinds = events.actions.iter().filter(|action| action.subject != Subject::Arrival);
    let kinds: Value = kinds.map(|action| event_type(events, action)).collect();
    json!({
        "type": "object", "description": "An event of docs/EVENTS.md. Other fields are ignored",
        "properties": properties, "oneOf": kinds,
    })
}

fn event_type(events: &EventTable, action: &ActionSpec) -> Value {
    // A client may leave these two out.
    let is_posted = |field: u8| action.required.contains(field) && field != SEQ && field != TS_US;
    let required = (0..).zip(events.fields).filter(|(field, _)| is_posted(*field));
    let required: Vec<&str> = required.map(|(_, spec)| spec.key).collect();
    json!({"required": required, "properties": {"type": {"const": action.type_name}}})
}

/// Returns the schema of a field; `None`: it is the type, which is a constant of each event.
fn event_field(FieldSpec { form, least, most, .. }: &FieldSpec) -> Option<Value> {
    Some(match form {
        FieldForm::TypeName => return None,
        FieldForm::Integer => range(*least, *most),
        FieldForm::Id => {
            let text = json!({"type": "string", "format": "uint64", "not": {"const": "0"}});
            json!({"oneOf": [range(*least, *most), text]})
        }
        // Numbers that round to one of the range.
        FieldForm::Position => {
            let (least, most) = (*least as f64 - 0.5, *most as f64 + 0.5);
            json!({"type": "number", "exclusiveMinimum": least, "exclusiveMaximum": most})
        }
        FieldForm::Handoff => part("Handoff"),
    })
}
