//! Events with every number in and out of range, posted by players and by game servers: what
//! reaches the log is an event that its sender may send, and it takes nothing from later ones.

use super::access::{ORIGIN_S, ask, player_token, world_at_rate};
use super::{World, text_of};
use crate::decoder::{Decoder, RecordPosition};
use crate::hunt::Outcome;
use crate::hunt::event::{Action, ActionKind, EVENTS, Event, EventField};
use crate::kit::field::{FieldForm, FieldSpec};
use crate::kit::update::Updates;
use crate::serve::command::Command;
use crate::serve::exchange::ExchangeNeed;

/// The player whose token is shown.
const PLAYER: u64 = 2;

/// Values of a field at the edges of its range and of integer types, and such as are no numbers.
fn values(field: EventField) -> Vec<String> {
    let FieldSpec { least, most, .. } = *field.spec();
    let near = |edge: i128| (-1..=1).map(move |step| edge + step);
    let edges = [least, most, 0, i64::MIN.into(), i64::MAX.into(), u64::MAX.into(), 1 << 53];
    let numbers = edges.into_iter().flat_map(near).map(|number| number.to_string());
    let others = ["-0", "0.5", "1e308", "1e999", "null", "\"1\"", "[]", "true"];
    numbers.chain(others.map(str::to_owned)).collect()
}

/// An event of this kind whose one field is written so.
fn record(kind: ActionKind, spoilt: EventField, value: &str) -> String {
    let mut text = format!("{{\"type\":\"{}\"", kind.spec().type_name);
    let own = kind.spec().fields.iter().map(|of| EventField::ALL[usize::from(of.field)]);
    let others = [EventField::PlayerId, EventField::Seq, EventField::TsUs];
    for field in others.into_iter().chain(own) {
        let FieldSpec { key, form, .. } = *field.spec();
        let usual = match (field, form) {
            (EventField::PlayerId, _) => PLAYER.to_string(),
            (_, FieldForm::Handoff) => HANDOFF.to_owned(),
            _ => "100".to_owned(),
        };
        let written = if field == spoilt { value } else { &usual };
        text += &format!(",\"{key}\":{written}");
    }
    text + "}"
}

const HANDOFF: &str = r#"{"from_zone":3,"crossing":2,"score":9,"last_seq":6}"#;

/// A handoff whose one field is at an edge of the widest integer.
fn handoffs() -> Vec<String> {
    let spoilt = |old: &str, key: &str| {
        let values = ["0", "-1", "65535", "65536", "4294967295", "18446744073709551615", "1e3"];
        let written = values.map(|value| HANDOFF.replace(old, &format!("\"{key}\":{value}")));
        written.into_iter().collect::<Vec<_>>()
    };
    [
        spoilt("\"from_zone\":3", "from_zone"),
        spoilt("\"crossing\":2", "crossing"),
        spoilt("\"score\":9", "score"),
        spoilt("\"last_seq\":6", "last_seq"),
    ]
    .concat()
}

/// All events to post.
fn bodies() -> Vec<String> {
    let mut bodies = Vec::new();
    for kind in ActionKind::ALL {
        let own = kind.spec().fields.iter().map(|of| EventField::ALL[usize::from(of.field)]);
        let others = [EventField::PlayerId, EventField::Seq, EventField::TsUs];
        for field in others.into_iter().chain(own) {
            let values = match field.spec().form {
                FieldForm::Handoff => handoffs(),
                _ => values(field),
            };
            bodies.extend(values.iter().map(|value| record(*kind, field, value)));
        }
    }
    bodies
}

/// Posts an event, and gives what is to be appended.
fn posted(world: &World, token: &str, body: &str) -> Option<Command> {
    let (mut exchange, is_posted) = ask(world, "POST", "/v1/events?zone=0&wait_ms=0", token, body);
    assert!(is_posted, "{body}");
    let appended = super::posting::appended(world, &exchange, 0);
    let command = appended.as_ref().ok().map(|commands| commands[0].0.clone());
    exchange.append(appended);
    assert_eq!(exchange.advance(&world.served, &world.gate, 0), ExchangeNeed::Bytes);
    let answer = text_of(&exchange);
    let statuses = if command.is_some() { ["202", "202"] } else { ["400", "403"] };
    assert!(statuses.contains(&&answer[9..12]), "{body}: {answer}");
    command
}

/// Decides a record as a daemon does, and shows it to the view.
fn decide(world: &mut World, command: &Command) -> (Event, Outcome) {
    let origin = RecordPosition { offset: world.events, time_ms: 1_767_225_700_000 };
    let event =
        Decoder::new(&EVENTS).decode::<Action>(origin, Some(&command.record)).expect("an event");
    let mut updates = Updates::new();
    let outcome = world.shard.apply(&event, &mut updates);
    world.events += 1;
    world.served.view.fold(0, updates.as_slice()).expect("the view knows the rules");
    world.served.view.seal(0, world.events);
    (event, outcome)
}

#[test]
fn whatever_number_a_player_posts_its_event_is_its_own_and_later_ones_count() {
    let token = player_token(PLAYER, ORIGIN_S + 10);
    let mut taken = 0;
    for body in bodies() {
        let mut world = world_at_rate(1_000_000);
        let Some(command) = posted(&world, &token, &body) else { continue };
        let stamp = 1_000 * world.events;
        let (event, outcome) = decide(&mut world, &command);
        let kind = event.action.kind();
        assert!(kind.spec().subject.is_player() && kind != ActionKind::Join, "{body}");
        assert_eq!((event.player_id, event.ts_us), (PLAYER, stamp), "{body}");
        assert!(!matches!(outcome, Outcome::RulesMissing { .. }), "{body}");
        let later = r#"{"type":"rotate","player_id":2,"heading":5}"#;
        let later = posted(&world, "game", later).expect("it is an event");
        let outcome = decide(&mut world, &later).1;
        assert_ne!(outcome, Outcome::NoOp, "the game's event counts no more after {body}");
        taken += 1;
    }
    assert!(taken > 50, "{taken} were taken");
}

#[test]
fn whatever_number_a_game_server_posts_what_is_appended_is_an_event_and_halts_no_zone() {
    let mut taken = 0;
    for body in bodies() {
        let mut world = world_at_rate(1_000_000);
        let Some(command) = posted(&world, "game", &body) else { continue };
        let outcome = decide(&mut world, &command).1;
        assert!(!matches!(outcome, Outcome::RulesMissing { .. }), "{body}");
        taken += 1;
    }
    assert!(taken > 200, "{taken} were taken");
}
