//! Writes an event as a JSON record: huntd's own events, and those that a game server would write.
//!
//! The publisher, `load`, `replay` and `demo` all write events here, so that equal events have
//! equal bytes everywhere.

use crate::hunt::event::{Action, ActionField, ActionSpec, EventField, Handoff};
use crate::hunt::field::{FieldSource, FieldSpec, FieldValues};

/// Appends one event. World events have no player, and most have no `seq`: 0 leaves the field out.
/// Key order and spacing never change, as in the records of other producers, because the decoder is
/// fastest on texts that it has seen before.
pub fn write_event(out: &mut Vec<u8>, player_id: u64, seq: u64, ts_us: i64, action: &Action) {
    let ActionSpec { type_name, fields, .. } = *action.kind().spec();
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(type_name.as_bytes());
    out.push(b'"');
    if player_id != 0 {
        write_member(out, b",\"player_id\":", player_id);
    }
    if seq != 0 {
        write_member(out, b",\"seq\":", seq);
    }
    write_member(out, b",\"ts_us\":", ts_us);
    let values = action.pack();
    for ActionField { field, .. } in fields {
        if values.present.contains(*field) {
            write_field(out, *field, &values);
        }
    }
    out.push(b'}');
}

fn write_field(out: &mut Vec<u8>, field: EventField, values: &FieldValues) {
    let FieldSpec { key, least, .. } = *field.spec();
    out.extend_from_slice(b",\"");
    out.extend_from_slice(key.as_bytes());
    match (values.handoff, values.number(field)) {
        (Some(handoff), _) if field == EventField::Handoff => write_handoff(out, &handoff),
        (_, number) if least < 0 => write_member(out, b"\":", number as i64),
        (_, number) => write_member(out, b"\":", number),
    }
}

fn write_handoff(out: &mut Vec<u8>, handoff: &Handoff) {
    let Handoff { from_zone, crossing, score, last_seq, items, effects, effects_left_ms } =
        *handoff;
    write_member(out, b"\":{\"from_zone\":", from_zone);
    write_member(out, b",\"crossing\":", crossing);
    write_member(out, b",\"score\":", score);
    write_member(out, b",\"last_seq\":", last_seq);
    let items = items.into_iter().filter(|stack| stack.count > 0);
    write_pairs(out, b",\"items\":[", items.map(|stack| (stack.item, stack.count)));
    let effects = effects.into_iter().zip(effects_left_ms).filter(|(effect, _)| *effect != 0);
    write_pairs(out, b",\"effects\":[", effects);
    out.push(b'}');
}

fn write_pairs(
    out: &mut Vec<u8>,
    name: &[u8],
    pairs: impl Iterator<Item = (impl itoa::Integer, impl itoa::Integer)>,
) {
    out.extend_from_slice(name);
    for (number, (first, second)) in pairs.enumerate() {
        write_member(out, if number == 0 { b"[" } else { b",[" }, first);
        write_member(out, b",", second);
        out.push(b']');
    }
    out.push(b']');
}

fn write_member(out: &mut Vec<u8>, name: &[u8], value: impl itoa::Integer) {
    out.extend_from_slice(name);
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}
