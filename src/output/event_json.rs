//! Writes an event as a JSON record: huntd's own events, and those that a game server would write.
//!
//! The publisher, `load`, `replay` and `demo` all write events here, so that equal events have
//! equal bytes everywhere.

use crate::kit::event::{ActionField, ActionSpec, EventTable, GameAction, Subject};
use crate::kit::field::{ActionWords, CarriedBits, CarriedField, CarriedForm, FieldForm};

/// Appends one event of a game. World events have no player, and most have no `seq`: 0 leaves the
/// field out. Key order and spacing never change, as in the records of other producers, because the
/// decoder is fastest on texts that it has seen before.
pub fn write_event<A: GameAction>(
    out: &mut Vec<u8>,
    player_id: u64,
    seq: u64,
    ts_us: i64,
    action: &A,
) {
    let mut carried = Vec::new();
    let words = action.pack(&mut carried);
    write_words(out, A::EVENTS, (player_id, seq, ts_us), (&words, &carried));
}

/// Appends a tick of a game.
pub(crate) fn write_tick(out: &mut Vec<u8>, table: &EventTable, id: u64, ts_us: i64) {
    let kind = table.of_subject(Subject::Tick).next().expect("every game has ticks");
    write_words(out, table, (0, id, ts_us), (&ActionWords::new(kind), &[]));
}

/// The name of the event that changes the rules of a zone, in games that have one, and that of its
/// field.
const RULES_CHANGE: &str = "rules_change";
const RULESET: &str = "ruleset";

/// Appends the event that changes a zone's rules. `None`: the game has no such event.
pub(crate) fn write_rules_change(
    out: &mut Vec<u8>,
    table: &EventTable,
    ruleset: u32,
    ts_us: i64,
) -> Option<()> {
    let is_change = |action: &ActionSpec| action.name == RULES_CHANGE;
    let kind = table.actions.iter().position(is_change)?;
    let field = table.actions[kind].fields.iter().find(|field| field.spec.key == RULESET)?;
    let mut words = ActionWords::new(kind as u8);
    words.put(field.place, ruleset.into());
    write_words(out, table, (0, 0, ts_us), (&words, &[]));
    Some(())
}

/// Like [`write_event`], for an action in words and what it carries.
pub(crate) fn write_words(
    out: &mut Vec<u8>,
    table: &EventTable,
    (player_id, seq, ts_us): (u64, u64, i64),
    (words, carried): (&ActionWords, &[u64]),
) {
    let ActionSpec { type_name, fields, .. } = &table.actions[usize::from(words.kind())];
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
    for ActionField { spec, place, .. } in fields.iter().filter(|field| words.has(field.place)) {
        write_key(out, b",\"", spec.key);
        let number = words.get(*place);
        match spec.form {
            FieldForm::Handoff => write_carried(out, table.carried, &carried[number as usize..]),
            _ if spec.least < 0 && place.is_wide => write_member(out, b"", number as i64),
            _ if spec.least < 0 => write_member(out, b"", number as i32),
            _ => write_member(out, b"", number),
        }
    }
    out.push(b'}');
}

fn write_carried(out: &mut Vec<u8>, fields: &[CarriedField], words: &[u64]) {
    for (at, CarriedField { key, form, .. }) in fields.iter().enumerate() {
        write_key(out, if at == 0 { b"{\"" } else { b",\"" }, key);
        match *form {
            CarriedForm::Number(bits) => write_member(out, b"", bits.get(words)),
            CarriedForm::Pairs { count_max, per_word, first } => {
                let pair = |at| first.map(|bits: CarriedBits| bits.at(at, per_word));
                write_pairs(out, (0..count_max).map(pair), words);
            }
        }
    }
    out.push(b'}');
}

/// Writes the pairs that are there: those whose numbers are in their ranges.
fn write_pairs(out: &mut Vec<u8>, pairs: impl Iterator<Item = [CarriedBits; 2]>, words: &[u64]) {
    let is_there = |pair: &[CarriedBits; 2]| pair.iter().all(|of| of.get(words) >= of.range.0);
    out.push(b'[');
    for (at, [first, second]) in pairs.filter(is_there).enumerate() {
        write_member(out, if at == 0 { b"[" } else { b",[" }, first.get(words));
        write_member(out, b",", second.get(words));
        out.push(b']');
    }
    out.push(b']');
}

fn write_key(out: &mut Vec<u8>, before: &[u8], key: &str) {
    out.extend_from_slice(before);
    out.extend_from_slice(key.as_bytes());
    out.extend_from_slice(b"\":");
}

fn write_member(out: &mut Vec<u8>, name: &[u8], value: impl itoa::Integer) {
    out.extend_from_slice(name);
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}
