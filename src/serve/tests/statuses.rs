//! The statuses of every route: those that the server answers are those of the OpenAPI document.

use super::access::{ask, token_of, world_at_rate};
use super::{ROUTES, World, documented, json, text_of};
use crate::hunt::queries::VIEW_SCHEMA;
use crate::serve::command::{Appended, Stamps, commands};
use crate::serve::exchange::{Exchange, ExchangeNeed};
use crate::serve::gate::Pass;
use crate::serve::openapi;
use crate::serve::routes::{EVENTS, STREAM, TICKET};
use simd_json::prelude::*;
use std::collections::BTreeSet;

/// Requests of one token that pass at once: those of the rate that is the least.
const BURST: usize = 64;

/// Each of them provokes another status of some routes.
const QUERIES: [&str; 9] =
    ["", "after=0:4", "zone=x", "zone=9", "zone=1", "at=x", "at=9:0", "at=1:0", "at=0:9&wait_ms=0"];

fn world() -> World {
    let mut world = world_at_rate(1);
    world.served.halt(1, "the log is damaged".to_owned());
    world
}

/// The status of the answer to a request without a body; `None`: it was let in, and waits.
fn status(world: &World, method: &str, target: &str, headers: &str) -> Option<String> {
    let mut exchange = Exchange::default();
    exchange.receive(
        format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n").as_bytes(),
    );
    exchange.advance(&world.served, &world.gate, 0);
    let answer = text_of(&exchange);
    if !answer.is_empty() {
        documented::check(method, target, &answer);
    }
    answer.get(9..12).map(str::to_owned)
}

/// What a request is answered that shows no token, not the right one, or is too large; and what one
/// too many is.
fn refusals(method: &str, target: &str) -> BTreeSet<String> {
    let world = world();
    let headers = [
        String::new(),
        format!("Authorization: Bearer {}\r\n", token_of("game")),
        "Content-Length: 16385\r\n".to_owned(),
        "Transfer-Encoding: gzip\r\n".to_owned(),
        "Expect: 200-ok\r\n".to_owned(),
        format!("X: {}\r\n", "x".repeat(4096)),
    ];
    let mut found: BTreeSet<String> =
        headers.iter().filter_map(|headers| status(&world, method, target, headers)).collect();
    let token = format!("Authorization: Bearer {}\r\n", token_of("all"));
    found.extend((0..=BURST).filter_map(|_| status(&world, method, target, &token)).last());
    found
}

fn of_get(path: &str) -> BTreeSet<String> {
    let world = world();
    let topic = if path == STREAM { "player=2" } else { "" };
    let answers = QUERIES.iter().filter_map(|query| {
        let target = format!("{path}?{topic}&{query}");
        let token = format!("Authorization: Bearer {}\r\n", token_of("reader"));
        status(&world, "GET", &target, &token)
    });
    // What the versions of the WebSocket protocol are is asked of streams alone.
    let sockets = ["13", "8"].map(|version| {
        let headers = format!(
            "Authorization: Bearer {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: {version}\r\n",
            token_of("reader")
        );
        status(&world, "GET", &format!("{path}?{topic}"), &headers)
    });
    let sockets = sockets.into_iter().flatten();
    answers.chain(sockets).chain(refusals("GET", &format!("{path}?{topic}"))).collect()
}

/// The status of posting a body, by what became of its events.
fn posted(world: &World, token: &str, body: &str, appended: Appended) -> String {
    let (mut exchange, is_posted) = ask(world, "POST", "/v1/events?wait_ms=0", token, body);
    if is_posted {
        let (posted, zone, pass): (&[u8], Option<u16>, Pass) = exchange.posted().expect("it was");
        let (mut decoder, mut stamps) =
            (crate::decoder::Decoder::new(&crate::hunt::event::EVENTS), Stamps::default());
        let stamp = || stamps.next(0);
        let made = commands((posted, zone, &pass), &world.served, &mut decoder, stamp);
        let admitted = made.and_then(|made| {
            world.gate.count_commands(&pass, made.len(), 0)?;
            Ok(made.into_iter().map(|command| (command, appended)).collect())
        });
        exchange.append(admitted);
        assert_ne!(exchange.advance(&world.served, &world.gate, 0), ExchangeNeed::Post);
    }
    let answer = text_of(&exchange);
    documented::check("POST", EVENTS, &answer);
    answer[9..12].to_owned()
}

fn of_post() -> BTreeSet<String> {
    let world = world_at_rate(1);
    let event = r#"{"type":"loot","player_id":1}"#;
    let fates = [Appended::At(0), Appended::At(9), Appended::Full, Appended::Unknown];
    let decided = fates.map(|appended| posted(&world, "all", event, appended));
    let cases =
        [("all", "no event"), ("all", r#"{"type":"loot","player_id":99}"#), ("reader", event)];
    let refused = cases.map(|(token, body)| posted(&world, token, body, Appended::Full));
    // Without tokens a body that is not said to be JSON may be another site's.
    let without_tokens = World::new();
    let untyped = status(&without_tokens, "POST", EVENTS, "").expect("it is refused");
    decided.into_iter().chain(refused).chain([untyped]).chain(refusals("POST", EVENTS)).collect()
}

fn of_ticket() -> BTreeSet<String> {
    let (world, without_tokens) = (world(), World::new());
    let token = format!("Authorization: Bearer {}\r\n", token_of("reader"));
    let foreign = "Origin: https://evil.example\r\n";
    let answers = [
        status(&world, "POST", TICKET, &token),
        status(&world, "POST", "/v1/ticket?zone=0", &token),
        status(&without_tokens, "POST", TICKET, ""),
        status(&without_tokens, "POST", TICKET, foreign),
    ];
    answers.into_iter().flatten().chain(refusals("POST", TICKET)).collect()
}

#[test]
fn every_route_answers_with_the_statuses_that_the_document_has() {
    let document = json(&openapi::document(&VIEW_SCHEMA));
    for (method, path) in ROUTES {
        let responses = document["paths"][*path][*method]["responses"].as_object().unwrap();
        let documented: BTreeSet<String> = responses.keys().cloned().collect();
        let target = path.replace("{id}", "2").replace("{board}", "world").replace("{zone}", "0");
        let answered = match *path {
            EVENTS => of_post(),
            TICKET => of_ticket(),
            _ => of_get(&target),
        };
        assert_eq!(answered, documented, "{method} {path}");
        for (status, response) in responses.iter().filter(|(status, _)| status.as_str() >= "400") {
            let reference = format!("#/components/responses/{status}");
            assert_eq!(response["$ref"].as_str(), Some(reference.as_str()), "{method} {path}");
            assert!(document["components"]["responses"][status.as_str()].is_object(), "{status}");
        }
    }
}
