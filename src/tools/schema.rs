//! `huntd schema`: the tables of events and updates as JSON, for programs in other languages.

use super::failure::ToolError;
use crate::edition::Edition;
use crate::kit::event::{ActionField, ActionSpec, Presence};
use crate::kit::field::{FieldForm, FieldSpec};
use crate::kit::kinds::{UpdateField, UpdateKind};
use serde_json::{Number, Value, json};
use std::io::Write;

/// Prints the tables.
pub fn run(edition: &Edition) -> Result<(), ToolError> {
    let game = edition.schema.game;
    let events = game.events.actions.iter().map(event);
    let updates = (1..).zip(game.updates.kinds).map(|(number, kind)| update(number, kind));
    let tables =
        json!({"events": events.collect::<Value>(), "updates": updates.collect::<Value>()});
    Ok(writeln!(std::io::stdout(), "{tables:#}")?)
}

fn event(ActionSpec { name, type_name, subject, fields, .. }: &ActionSpec) -> Value {
    let fields: Value = fields.iter().map(event_field).collect();
    json!({"action": name, "type": type_name, "subject": subject.name(), "fields": fields})
}

fn event_field(ActionField { spec, presence, .. }: &ActionField) -> Value {
    let FieldSpec { key, form, least, most } = spec;
    let form = match form {
        FieldForm::TypeName => "type",
        FieldForm::Integer => "integer",
        FieldForm::Id => "id",
        FieldForm::Position => "position",
        FieldForm::Handoff => "handoff",
    };
    let mut shown = json!({
        "name": key, "form": form, "required": *presence == Presence::Required,
    });
    if least != most {
        let integer = |number| Number::from_i128(number).expect("a bound fits 64 bits");
        shown["least"] = json!(integer(*least));
        shown["most"] = json!(integer(*most));
    }
    shown
}

fn update(number: u8, kind: &UpdateKind) -> Value {
    let fields: Value = kind.fields.iter().map(update_field).collect();
    json!({"number": number, "kind": kind.name, "fields": fields})
}

fn update_field(UpdateField { name, place, form, names, .. }: &UpdateField) -> Value {
    let mut shown = json!({"name": name, "place": place.name(), "form": form.name()});
    if !names.is_empty() {
        shown["names"] = json!(names);
    }
    shown
}
