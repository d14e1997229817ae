//! An event as a JSON record: huntd's own ones, and those that a game server would write.
//!
//! The publisher, `load`, `replay` and `demo` all write events here, so that the same event is the
//! same bytes wherever it is sent.

use crate::engine::event::{Action, Handoff};

/// Appends one event. The world's events have no player, and those with an id of their own no
/// `seq`: 0 leaves the field out. Key order and spacing are always the same: producers write their
/// records with one piece of code too, and the decoder is quickest on what it saw before.
pub fn write_event(out: &mut Vec<u8>, player_id: u64, seq: u64, ts_us: i64, action: &Action) {
    out.extend_from_slice(type_member(action));
    if player_id != 0 {
        write_member(out, b",\"player_id\":", player_id);
    }
    if seq != 0 {
        write_member(out, b",\"seq\":", seq);
    }
    write_member(out, b",\"ts_us\":", ts_us);
    write_fields(out, action);
    out.push(b'}');
}

fn type_member(action: &Action) -> &'static [u8] {
    match action {
        Action::Join { .. } | Action::Arrive { .. } => b"{\"type\":\"join\"",
        Action::Leave { .. } => b"{\"type\":\"leave\"",
        Action::Move { .. } => b"{\"type\":\"move\"",
        Action::Rotate { .. } => b"{\"type\":\"rotate\"",
        Action::Shoot { .. } => b"{\"type\":\"shoot\"",
        Action::Loot { .. } => b"{\"type\":\"loot\"",
        Action::Use { .. } => b"{\"type\":\"use\"",
        Action::Tick => b"{\"type\":\"tick\"",
        Action::RulesChange { .. } => b"{\"type\":\"rules_change\"",
        Action::HuntStart { .. } => b"{\"type\":\"hunt_start\"",
        Action::HuntEnd { .. } => b"{\"type\":\"hunt_end\"",
    }
}

fn write_fields(out: &mut Vec<u8>, action: &Action) {
    match *action {
        Action::Join { x, y } | Action::Move { x, y } => {
            write_member(out, b",\"x\":", x);
            write_member(out, b",\"y\":", y);
        }
        Action::Arrive { x, y, handoff } => {
            write_member(out, b",\"x\":", x);
            write_member(out, b",\"y\":", y);
            write_handoff(out, &handoff);
        }
        Action::Leave { to_zone: Some(zone) } => write_member(out, b",\"to_zone\":", zone),
        Action::Leave { to_zone: None } => {}
        Action::Rotate { heading } => write_member(out, b",\"heading\":", heading),
        Action::Shoot { weapon, heading } => {
            write_member(out, b",\"weapon\":", weapon);
            if let Some(heading) = heading {
                write_member(out, b",\"heading\":", heading);
            }
        }
        Action::Loot { hunt: Some(hunt) } => write_member(out, b",\"hunt\":", hunt),
        Action::Loot { hunt: None } => {}
        Action::Use { item } => write_member(out, b",\"item\":", item),
        Action::Tick => {}
        Action::RulesChange { ruleset } => write_member(out, b",\"ruleset\":", ruleset),
        Action::HuntStart { hunt, seed, treasures, duration_ms } => {
            write_member(out, b",\"hunt\":", hunt);
            write_member(out, b",\"seed\":", seed);
            write_member(out, b",\"treasures\":", treasures);
            write_member(out, b",\"duration_ms\":", duration_ms);
        }
        Action::HuntEnd { hunt } => write_member(out, b",\"hunt\":", hunt),
    }
}

fn write_handoff(out: &mut Vec<u8>, handoff: &Handoff) {
    let Handoff { from_zone, crossing, score, last_seq, items, effects, effects_left_ms } =
        *handoff;
    write_member(out, b",\"handoff\":{\"from_zone\":", from_zone);
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
