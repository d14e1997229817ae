//! Events that clients post, and what they are answered.

use super::{World, text_of};
use crate::decoder::{Decoder, RecordPosition};
use crate::hunt::Shard;
use crate::hunt::event::{Action, EVENTS, Event};
use crate::kit::update::Updates;
use crate::serve::command::{Appended, COMMANDS_MAX, Command, Stamps, commands};
use crate::serve::exchange::{Exchange, ExchangeNeed};
use crate::serve::problem::Problem;
use crate::serve::waiting::AwaitedOffset;
use simd_json::prelude::*;

/// Posts a body, appends its events at the zone's next offset, and gives exchange and records.
pub(super) fn post(world: &World, target: &str, body: &str) -> (Exchange, Vec<Vec<u8>>) {
    let mut exchange = Exchange::default();
    let head = format!(
        "POST {target} HTTP/1.1\r\nHost: localhost\r\n\
        Content-Type: application/json\r\nContent-Length: {}",
        body.len()
    );
    exchange.receive(format!("{head}\r\n\r\n{body}").as_bytes());
    if exchange.advance(&world.served, &world.gate, 0) != ExchangeNeed::Post {
        return (exchange, Vec::new());
    }
    let appended = appended(world, &exchange, 0);
    let commands = appended.iter().flatten().map(|(command, _)| command);
    let records = commands.map(|command| command.record.clone()).collect();
    exchange.append(appended);
    (exchange, records)
}

/// What was posted, appended at the zone's next offset.
pub(super) fn appended(
    world: &World,
    exchange: &Exchange,
    now_ms: u64,
) -> Result<Vec<(Command, Appended)>, Problem> {
    let (posted, zone, pass) = exchange.posted().expect("it was posted");
    let (mut decoder, mut stamps) = (Decoder::new(&EVENTS), Stamps::default());
    let stamp = || stamps.next(1_000 * world.events);
    let commands = commands((posted, zone, &pass), &world.served, &mut decoder, stamp)?;
    world.gate.count_commands(&pass, commands.len(), now_ms)?;
    let offsets = world.events..;
    Ok(commands.into_iter().zip(offsets.map(Appended::At)).collect())
}

/// Applies a record that was appended, as a daemon does.
pub(super) fn decide(world: &mut World, record: &[u8]) {
    let origin = RecordPosition { offset: world.events, time_ms: 1_767_225_700_000 };
    let event = Decoder::new(&EVENTS).decode::<Action>(origin, Some(record)).unwrap();
    let mut updates = Updates::new();
    world.shard.apply(&event, &mut updates);
    world.events += 1;
    world.served.view.fold(0, updates.as_slice()).unwrap();
    world.served.view.seal(0, world.events);
}

/// A command is answered by what was published.
#[test]
fn a_command_is_answered_when_its_frame_is_there_with_its_own_updates() {
    let mut world = World::new();
    let cases = [
        (
            r#"{"type":"rotate","player_id":1,"heading":77}"#,
            "\"outcome\":\"applied\"",
            "\"heading\":77",
        ),
        (r#"{"type":"use","player_id":1,"item":3}"#, "\"outcome\":\"refused\"", "item_not_held"),
        (
            r#"{"type":"rotate","player_id":1,"seq":1,"heading":5}"#,
            "\"outcome\":\"no_op\"",
            "\"updates\":[]",
        ),
    ];
    for (body, outcome, detail) in cases {
        let (mut exchange, records) = post(&world, "/v1/events", body);
        assert!(
            matches!(exchange.advance(&world.served, &world.gate, 1), ExchangeNeed::Offset { .. }),
            "{body}"
        );
        assert_eq!(text_of(&exchange), "");
        decide(&mut world, &records[0]);
        assert_eq!(exchange.advance(&world.served, &world.gate, 2), ExchangeNeed::Bytes);
        let answer = text_of(&exchange);
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
        assert!(answer.contains(outcome) && answer.contains(detail), "{answer}");
        let (update, offset) = (world.next_update(), world.events);
        assert!(answer.contains(&format!("\r\nHuntd-At: 0:{update}:{offset}\r\n")), "{answer}");
        let at = format!("\"at\":{{\"update\":{update},\"offset\":{offset}}}");
        assert!(answer.contains(&at), "{answer}");
    }
}

/// Point 1 of the contract: zone, update and offset are those of what the answer says.
#[test]
fn an_answer_about_events_names_the_position_of_every_zone_that_they_are_for() {
    let mut world = World::new();
    let (mut other, mut updates) = (Shard::new(1, &world.rulebook), Updates::new());
    let action = Action::Join { x: 70, y: 70 };
    let joins = Event { offset: 0, time_ms: 0, player_id: 9, seq: 1, ts_us: 0, action };
    other.apply(&joins, &mut updates);
    world.served.view.fold(1, updates.as_slice()).unwrap();
    world.served.view.seal(1, 1);
    let body = r#"[{"type":"rotate","player_id":1,"heading":7},{"type":"loot","player_id":9}]"#;
    let mut exchange = Exchange::default();
    let head = "POST /v1/events?wait_ms=20 HTTP/1.1\r\nHost: localhost\r\n\
        Content-Type: application/json\r\nContent-Length";
    exchange.receive(format!("{head}: {}\r\n\r\n{body}", body.len()).as_bytes());
    assert_eq!(exchange.advance(&world.served, &world.gate, 0), ExchangeNeed::Post);
    exchange.append(appended(&world, &exchange, 0));
    // The first zone is within a frame when the time is up: nothing of that is told.
    world.within_frame(1, Action::Rotate { heading: 7 });
    exchange.advance(&world.served, &world.gate, 20);
    let answer = text_of(&exchange);
    assert!(
        answer.starts_with("HTTP/1.1 202 Accepted") && !answer.contains("Huntd-At"),
        "{answer}"
    );
    let body = super::json(answer.split_once("\r\n\r\n").expect("a head").1);
    let results = body["results"].as_array().expect("both");
    let at = |result: &simd_json::OwnedValue| {
        let number = |name: &str| result["at"][name].as_u64().expect("a number");
        (result["zone"].as_u64().expect("a number"), number("update"), number("offset"))
    };
    assert_eq!(results.iter().map(at).collect::<Vec<_>>(), [(0, 4, 4), (1, 1, 1)]);
}

#[test]
fn events_without_a_seq_get_later_ones_and_those_with_one_keep_it() {
    let world = World::new();
    let body = r#" [ {"type":"loot","player_id":1}, {"type":"loot","player_id":2,"seq":9},
        {"type":"hunt_end","hunt":1} ] "#;
    let (_, records) = post(&world, "/v1/events?zone=0", body);
    let texts: Vec<_> = records.iter().map(|record| String::from_utf8_lossy(record)).collect();
    assert!(texts[0].starts_with(r#"{"seq":4000,"ts_us":4000,"type""#), "{texts:?}");
    assert!(texts[1].starts_with(r#"{"ts_us":4001,"type""#), "{texts:?}");
    assert!(texts[2].contains(r#""ts_us":4002,"#), "{texts:?}");
}

#[test]
fn what_is_no_command_never_reaches_the_log() {
    let world = World::new();
    let one = r#"{"type":"loot","player_id":1}"#;
    let many = format!("[{}]", vec![one; COMMANDS_MAX + 1].join(","));
    let cases = [
        ("/v1/events", "hello", "400"),
        ("/v1/events", "[", "400"),
        ("/v1/events", "[}]", "400"),
        ("/v1/events", r#"{"type":"jump","player_id":1}"#, "400"),
        ("/v1/events", many.as_str(), "400"),
        ("/v1/events", r#"{"type":"loot","player_id":99}"#, "404"),
        ("/v1/events?zone=9", one, "404"),
        ("/v1/events?zone=x", one, "400"),
    ];
    for (target, body, status) in cases {
        let (mut exchange, records) = post(&world, target, body);
        exchange.advance(&world.served, &world.gate, 1);
        assert_eq!((&text_of(&exchange)[9..12], records.len()), (status, 0), "{target} {body}");
    }
    assert!(world.get("/v1/events").contains("Allow: POST, OPTIONS\r\n"));
}

#[test]
fn a_command_that_is_not_decided_in_time_is_accepted_and_one_that_was_not_appended_is_not() {
    let world = World::new();
    let body = r#"{"type":"loot","player_id":1}"#;
    let (mut late, _) = post(&world, "/v1/events?wait_ms=20", body);
    let awaited = AwaitedOffset { zone: 0, next_offset: 5 };
    let need = ExchangeNeed::Offset { awaited, until_ms: 20 };
    assert_eq!(late.advance(&world.served, &world.gate, 1), need);
    late.advance(&world.served, &world.gate, 20);
    let answer = text_of(&late);
    assert!(answer.starts_with("HTTP/1.1 202 Accepted"), "{answer}");
    assert!(answer.contains("\"offset\":4") && answer.contains("\"appended\""), "{answer}");
    for (appended, status) in [
        (Appended::Full, "503"),
        (Appended::Refused, "503"),
        (Appended::Elsewhere, "503"),
        (Appended::Unknown, "504"),
    ] {
        let mut exchange = Exchange::default();
        let head = format!(
            "POST /v1/events HTTP/1.1\r\nHost: localhost\r\n\
            Content-Type: application/json\r\nContent-Length: {}",
            body.len()
        );
        exchange.receive(format!("{head}\r\n\r\n{body}").as_bytes());
        assert_eq!(exchange.advance(&world.served, &world.gate, 0), ExchangeNeed::Post);
        let (mut decoder, mut stamps) = (Decoder::new(&EVENTS), Stamps::default());
        let (posted, zone, pass) = exchange.posted().expect("it was posted");
        let stamp = || stamps.next(0);
        let made = commands((posted, zone, &pass), &world.served, &mut decoder, stamp).unwrap();
        exchange.append(Ok(made.into_iter().map(|command| (command, appended)).collect()));
        exchange.advance(&world.served, &world.gate, 0);
        assert_eq!(&text_of(&exchange)[9..12], status);
    }
}

#[test]
fn a_command_whose_updates_are_not_kept_any_more_is_told_to_be_decided_and_nothing_else() {
    let mut world = World::new();
    let body = r#"{"type":"rotate","player_id":1,"heading":77}"#;
    let number = world.next_update();
    let answer_later = |world: &mut World| {
        let (exchange, records) = post(world, "/v1/events", body);
        decide(world, &records[0]);
        exchange
    };
    let mut gone = answer_later(&mut world);
    (1..=10).for_each(|heading| world.act(2, Action::Rotate { heading }));
    let mut kept = answer_later(&mut world);
    while world.served.view.zone(0).unwrap().recent().first() <= number {
        world.act(2, Action::Rotate { heading: (world.events % 36_000) as u16 });
    }
    for (exchange, outcome) in [(&mut gone, "\"decided\"}"), (&mut kept, "\"applied\",")] {
        assert_eq!(exchange.advance(&world.served, &world.gate, 1), ExchangeNeed::Bytes);
        let answer = text_of(exchange);
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
        assert!(answer.contains(&format!("\"outcome\":{outcome}")), "{answer}");
    }
}

#[test]
fn a_change_to_rules_that_are_not_known_is_refused_before_it_is_appended() {
    let world = World::new();
    let known = world.rulebook.first().ruleset;
    for (ruleset, is_known) in [(known, true), (known ^ 1, false)] {
        let body = format!(r#"{{"type":"rules_change","ruleset":{ruleset}}}"#);
        let (mut exchange, records) = post(&world, "/v1/events?zone=0&wait_ms=0", &body);
        exchange.advance(&world.served, &world.gate, 1);
        let answer = text_of(&exchange);
        assert_eq!(
            (records.len(), answer.contains("rules.files")),
            (usize::from(is_known), !is_known),
            "{answer}"
        );
        assert_eq!(&answer[9..12], if is_known { "202" } else { "400" });
    }
}

#[test]
fn nothing_is_appended_to_an_input_that_the_zone_is_not_played_from_or_said_to_wait_there() {
    let mut world = World::new();
    let body = r#"{"type":"loot","player_id":1}"#;
    let (mut open, _) = post(&world, "/v1/events?wait_ms=20", body);
    for (is_another, status, records) in [(true, "503", 0), (false, "202", 1)] {
        world.served.set_input(0, is_another);
        let (mut exchange, appended) = post(&world, "/v1/events?wait_ms=0", body);
        exchange.advance(&world.served, &world.gate, 1);
        let answer = text_of(&exchange);
        assert_eq!((&answer[9..12], appended.len()), (status, records), "{answer}");
        assert_eq!(answer.contains("no event was appended"), is_another, "{answer}");
    }
    world.served.set_input(0, true);
    open.advance(&world.served, &world.gate, 20);
    let answer = text_of(&open);
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("waits there"), "{answer}");
}

#[test]
fn an_event_that_lacks_something_is_refused_by_its_name() {
    let world = World::new();
    for (body, lacking) in [
        (r#"{"type":"rotate","player_id":1}"#, "`heading`"),
        (r#"{"type":"move","player_id":1,"seq":1,"ts_us":1}"#, "`x, y`"),
        (
            r#"{"type":"rotate","player_id":1,"heading":"a"}"#,
            "wrong_type: a field's value has the wrong type: `heading`",
        ),
        (r#"{"type":"jump","player_id":1}"#, "`jump`"),
    ] {
        let (mut exchange, _) = post(&world, "/v1/events", body);
        exchange.advance(&world.served, &world.gate, 1);
        assert!(text_of(&exchange).contains(lacking), "{}", text_of(&exchange));
    }
}
