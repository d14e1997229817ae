//! Pages of other origins, as browsers ask for them.

use super::access::{gate_of, token_of};
use super::{World, text_of};
use crate::serve::exchange::{Exchange, ExchangeNeed};
use crate::serve::gate::Gate;
use crate::service::AllowedOrigins;

const GAME: &str = "https://game.example";

fn listed() -> AllowedOrigins {
    AllowedOrigins::Listed(vec!["http://localhost:8080".to_owned(), GAME.to_owned()])
}

fn world(gate: Gate) -> World {
    let mut world = World::new();
    world.gate = gate;
    world
}

/// The answer to a request of a page; `posted` if its events are appended.
fn asked(world: &World, method: &str, target: &str, headers: &str) -> String {
    let body = if method == "POST" { r#"{"type":"loot","player_id":1}"# } else { "" };
    let mut exchange = Exchange::default();
    let head = format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\n{headers}");
    let length = body.len();
    exchange.receive(format!("{head}Content-Length: {length}\r\n\r\n{body}").as_bytes());
    match exchange.advance(&world.served, &world.gate, 0) {
        ExchangeNeed::Post => "posted".to_owned(),
        _ => text_of(&exchange),
    }
}

/// The values of a header line.
fn values<'a>(answer: &'a str, name: &str) -> Vec<&'a str> {
    let (head, _) = answer.split_once("\r\n\r\n").expect("an answer has a head");
    head.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).collect()
}

const ALLOW_ORIGIN: &str = "Access-Control-Allow-Origin";

#[test]
fn every_answer_names_the_origin_of_a_page_that_is_served_and_no_other() {
    let world = world(gate_of(listed(), 1_000));
    let token = format!("Authorization: Bearer {}\r\n", token_of("reader"));
    let targets = [
        ("GET", "/v1/zones", "200"),
        ("HEAD", "/v1/zones", "200"),
        ("GET", "/v1/players/2?after=0:99", "204"),
        ("GET", "/v1/players/99", "404"),
        ("GET", "/v1/stream?zone=0", "200"),
        ("GET", "/v1/stream", "400"),
        ("GET", "/readyz", "200"),
        ("GET", "/metrics", "200"),
        ("GET", "/", "200"),
        ("POST", "/v1/zones", "405"),
        ("POST", "/v1/ticket", "200"),
        ("PUT", "/v1/zones", "405"),
        ("OPTIONS", "/v1/zones", "204"),
    ];
    for (method, target, status) in targets {
        for (origin, expected) in [
            (Some(GAME), Some(GAME)),
            (Some("http://localhost:8080"), Some("http://localhost:8080")),
            (Some("https://game.example:8080"), None),
            (Some("http://game.example"), None),
            (Some("https://GAME.example"), None),
            (Some("https://game.example.evil.example"), None),
            (Some("null"), None),
            (None, None),
        ] {
            let origin_line = origin.map_or(String::new(), |of| format!("Origin: {of}\r\n"));
            let answer = asked(&world, method, target, &(token.clone() + &origin_line));
            assert_eq!(&answer[9..12], status, "{method} {target}");
            let named = values(&answer, ALLOW_ORIGIN);
            assert_eq!(named, Vec::from_iter(expected), "{method} {target} {origin:?}");
            assert_eq!(values(&answer, "Vary"), ["Origin"], "{method} {target} {origin:?}");
            let exposed = values(&answer, "Access-Control-Expose-Headers").concat();
            assert_eq!(exposed.contains("Huntd-At"), expected.is_some(), "{method} {target}");
            assert!(values(&answer, "Access-Control-Allow-Credentials").is_empty());
        }
    }
    // A refused token can be read, too: a page has to know that it needs another one.
    let answer = asked(&world, "GET", "/v1/zones", &format!("Origin: {GAME}\r\n"));
    assert_eq!((&answer[9..12], values(&answer, ALLOW_ORIGIN)), ("401", vec![GAME]));
}

#[test]
fn a_browser_that_asks_before_is_told_what_a_page_may_send_without_a_token() {
    let world = world(gate_of(listed(), 1_000));
    let ask = |origin: &str, target: &str| {
        let more = "Access-Control-Request-Method: POST\r\n\
                    Access-Control-Request-Headers: authorization,content-type\r\n";
        asked(&world, "OPTIONS", target, &format!("Origin: {origin}\r\n{more}"))
    };
    for (target, methods) in [
        ("/v1/events", "POST, OPTIONS"),
        ("/v1/stream", "GET, OPTIONS"),
        ("/v1/zones", "GET, HEAD, OPTIONS"),
    ] {
        let answer = ask(GAME, target);
        assert!(answer.starts_with("HTTP/1.1 204 "), "{answer}");
        assert_eq!(values(&answer, "Access-Control-Allow-Methods"), [methods]);
        let headers = "Authorization, Content-Type, Huntd-At, Last-Event-ID";
        assert_eq!(values(&answer, "Access-Control-Allow-Headers"), [headers]);
        assert_eq!(values(&answer, "Access-Control-Max-Age"), ["86400"]);
        let foreign = ask("https://evil.example", target);
        assert!(foreign.starts_with("HTTP/1.1 204 ") && !foreign.contains("Access-Control"));
    }
    assert!(ask(GAME, "/v2").starts_with("HTTP/1.1 404 "));
}

#[test]
fn without_origins_nothing_is_said_of_them() {
    let silent = world(gate_of(AllowedOrigins::default(), 1_000));
    for (method, target) in [("GET", "/"), ("OPTIONS", "/v1/zones"), ("GET", "/v1/zones")] {
        let answer = asked(&silent, method, target, &format!("Origin: {GAME}\r\n"));
        assert!(!answer.contains("Access-Control") && !answer.contains("Vary"), "{answer}");
    }
}

#[test]
fn without_tokens_pages_that_are_served_may_ask_and_others_may_not() {
    let json = "Content-Type: application/json\r\n";
    let from = |origin: &str| format!("Origin: {origin}\r\n{json}");
    let of_list = world(Gate::new(None, listed(), 0));
    let of_all = world(Gate::new(None, AllowedOrigins::Any, 0));
    let get = |world: &World, headers: &str| asked(world, "GET", "/v1/zones", headers);
    let post = |world: &World, headers: &str| asked(world, "POST", "/v1/events", headers);
    assert_eq!(values(&get(&of_list, &from(GAME)), ALLOW_ORIGIN), [GAME]);
    assert_eq!(post(&of_list, &from(GAME)), "posted");
    let foreign = get(&of_list, &from("https://evil.example"));
    assert_eq!((&foreign[9..12], values(&foreign, ALLOW_ORIGIN)), ("403", vec![]));
    let open = get(&of_all, &from("https://any.example"));
    assert_eq!((&open[9..12], values(&open, ALLOW_ORIGIN)), ("200", vec!["*"]));
    assert!(values(&open, "Vary").is_empty(), "{open}");
    assert!(post(&of_all, &from("https://any.example")).starts_with("HTTP/1.1 403 "));
    assert_eq!(post(&of_all, &from("http://localhost:9465")), "posted");
    // A name that leads here only since the page was loaded is no reason to answer.
    for world in [&of_list, &of_all] {
        let mut exchange = Exchange::default();
        let head = "GET /v1/zones HTTP/1.1\r\nHost: evil.example\r\n\r\n";
        exchange.receive(head.as_bytes());
        exchange.advance(&world.served, &world.gate, 0);
        assert!(text_of(&exchange).starts_with("HTTP/1.1 403 "));
    }
}
