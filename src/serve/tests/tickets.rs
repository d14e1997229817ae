//! Tickets of streams, for pages whose `EventSource` cannot send a token.

use super::access::{ORIGIN_S, SKEW_S, gate_of, player_token, token_of, world_at_rate};
use super::{World, json, text_of};
use crate::hunt::event::Action;
use crate::serve::exchange::{Exchange, ExchangeNeed};
use crate::serve::gate::Gate;
use crate::serve::key_set::KeySet;
use crate::service::AllowedOrigins;
use simd_json::prelude::*;

/// The answer to a request at this time, and the exchange.
fn asked(world: &World, request: &str, now_ms: u64) -> (String, Exchange) {
    let mut exchange = Exchange::default();
    exchange.receive(request.as_bytes());
    exchange.advance(&world.served, &world.gate, now_ms);
    (text_of(&exchange), exchange)
}

/// The ticket that is issued for a token.
fn ticket(world: &World, token: &str, now_ms: u64) -> String {
    let (answer, _) = asked(
        world,
        &format!(
            "POST /v1/ticket HTTP/1.1\r\nHost: localhost\r\n\
             Content-Type: application/json\r\nAuthorization: Bearer {token}\r\n\r\n"
        ),
        now_ms,
    );
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer has a head");
    assert!(head.starts_with("HTTP/1.1 200 "), "{answer}");
    let body = json(body);
    assert_eq!(body["expires_in_s"].as_u64(), Some(60));
    body["ticket"].as_str().expect("a text").to_owned()
}

fn get(world: &World, target: &str, now_ms: u64) -> (String, Exchange) {
    asked(world, &format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n"), now_ms)
}

/// The status of a stream that is opened with a ticket.
fn opened(world: &World, topics: &str, ticket: &str, now_ms: u64) -> String {
    let (answer, _) = get(world, &format!("/v1/stream?{topics}&ticket={ticket}"), now_ms);
    answer[9..12].to_owned()
}

#[test]
fn a_ticket_opens_streams_of_its_token_for_a_minute_and_nothing_else() {
    let world = world_at_rate(1_000);
    let reader = ticket(&world, &token_of("reader"), 0);
    assert_eq!(opened(&world, "zone=0&board=world", &reader, 59_999), "200");
    assert_eq!(opened(&world, "zone=0&board=world", &reader, 60_000), "401");
    let (answer, _) = get(&world, &format!("/v1/stream?zone=0&ticket={reader}"), 60_000);
    assert!(answer.contains("post to /v1/ticket for a new one"), "{answer}");
    let player = ticket(&world, &player_token(2, ORIGIN_S + 600), 0);
    assert_eq!(opened(&world, "player=2&board=0", &player, 0), "200");
    assert_eq!(opened(&world, "player=1", &player, 0), "403");
    assert_eq!(opened(&world, "zone=0", &player, 0), "403");
    let game = ticket(&world, &token_of("game"), 0);
    assert_eq!(opened(&world, "zone=0", &game, 0), "403");
    for target in ["/v1/zones", "/v1/players/2", "/metrics"] {
        let (answer, _) = get(&world, &format!("{target}?ticket={reader}"), 0);
        assert!(answer.starts_with("HTTP/1.1 401 "), "{target}: {answer}");
    }
    let bearer = format!("Authorization: Bearer {reader}\r\n\r\n");
    let (answer, _) =
        asked(&world, &format!("GET /v1/zones HTTP/1.1\r\nHost: localhost\r\n{bearer}"), 0);
    assert!(answer.starts_with("HTTP/1.1 401 "), "a ticket is no token: {answer}");
    for wrong in ["", "x", &token_of("reader"), &reader[..reader.len() - 1]] {
        assert_eq!(opened(&world, "zone=0", wrong, 0), "401", "{wrong}");
    }
}

#[test]
fn a_stream_of_a_ticket_lasts_as_long_as_the_token_and_its_keys() {
    let world = world_at_rate(1_000);
    let token = player_token(2, ORIGIN_S + 600);
    let ticket = ticket(&world, &token, 0);
    let (_, mut stream) = get(&world, &format!("/v1/stream?player=2&ticket={ticket}"), 0);
    let closes = |stream: &mut Exchange, now_ms| {
        stream.take_unsent();
        stream.advance(&world.served, &world.gate, now_ms) == ExchangeNeed::Close
    };
    let end_ms = 1_000 * (600 + SKEW_S);
    assert!(!closes(&mut stream, end_ms - 1));
    assert!(closes(&mut stream, end_ms));
    let (_, mut other) = get(&world, &format!("/v1/stream?player=2&ticket={ticket}"), 1);
    assert!(!closes(&mut other, 2));
    let keys = format!(r#"{{"keys":[{{"kty":"oct","k":"{}"}}]}}"#, "A".repeat(43));
    world.gate.replace(KeySet::parse(&keys).expect("a valid set"));
    assert!(closes(&mut other, 3));
    assert_eq!(opened(&world, "player=2", &ticket, 3), "401");
}

#[test]
fn streams_of_tickets_count_as_those_of_their_client() {
    let world = world_at_rate(1_000_000);
    let ticket = ticket(&world, &player_token(2, ORIGIN_S + 600), 0);
    let target = format!("/v1/stream?player=2&ticket={ticket}");
    let streams: Vec<_> = (0..16).map(|_| get(&world, &target, 0)).collect();
    assert!(streams.iter().all(|(answer, _)| answer.starts_with("HTTP/1.1 200 ")));
    assert!(get(&world, &target, 0).0.starts_with("HTTP/1.1 429 "));
}

#[test]
fn processes_whose_keys_have_a_secret_take_each_other_s_tickets() {
    let (one, other) = (world_at_rate(1_000), world_at_rate(1_000));
    let reader = ticket(&one, &token_of("reader"), 0);
    assert_eq!(opened(&other, "zone=0", &reader, 0), "200");
}

#[test]
fn without_tokens_a_ticket_is_empty_and_streams_need_none() {
    let mut world = World::new();
    world.gate = Gate::new(None, AllowedOrigins::default(), 0);
    assert_eq!(ticket(&world, "", 0), "");
    for ticket in ["", "anything"] {
        assert_eq!(opened(&world, "zone=0", ticket, 0), "200");
    }
}

#[test]
fn a_page_says_in_the_query_where_its_stream_ended_and_a_browser_in_the_header() {
    let mut world = World::new();
    world.gate = gate_of(AllowedOrigins::default(), 1_000);
    let reader = ticket(&world, &token_of("reader"), 0);
    world.act(1, Action::Rotate { heading: 5 });
    world.act(1, Action::Rotate { heading: 7 });
    let read = |header: &str| {
        let target = format!("/v1/stream?zone=0&ticket={reader}&last_event_id=0:3");
        let head = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n{header}\r\n");
        let (_, mut stream) = asked(&world, &head, 0);
        stream.advance(&world.served, &world.gate, 1);
        let text = text_of(&stream);
        let ids = text.lines().filter_map(|line| line.strip_prefix("id: "));
        ids.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(read(""), ["0:4", "0:5"]);
    assert_eq!(read("Last-Event-ID: 0:4\r\n"), ["0:5"]);
}
