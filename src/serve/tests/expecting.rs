//! Clients that want to be asked for their body before they send it (RFC 9110, 10.1.1).

use super::access::{token_of, world_at_rate};
use super::{World, text_of};
use crate::serve::exchange::{Exchange, ExchangeNeed};

const BODY: &str = r#"{"type":"loot","player_id":1}"#;
const CONTINUE: &str = "HTTP/1.1 100 Continue\r\n\r\n";

/// The head of a post of `BODY`.
fn head(target: &str, headers: &str) -> String {
    let length = BODY.len();
    format!(
        "POST {target} HTTP/1.1\r\nHost: localhost\r\n\
        Content-Type: application/json\r\nContent-Length: {length}\r\n{headers}\r\n"
    )
}

/// What is answered to these bytes, and what is needed then.
fn advance(exchange: &mut Exchange, world: &World, bytes: &str) -> (String, ExchangeNeed) {
    exchange.receive(bytes.as_bytes());
    let need = exchange.advance(&world.served, &world.gate, 0);
    let answer = text_of(exchange);
    exchange.take_unsent();
    (answer, need)
}

#[test]
fn a_client_that_expects_it_is_asked_for_its_body_once() {
    let world = World::new();
    let mut exchange = Exchange::default();
    let head = head("/v1/events", "Expect: 100-Continue\r\n");
    for _ in 0..2 {
        let asked = advance(&mut exchange, &world, &head);
        assert_eq!(asked, (CONTINUE.to_owned(), ExchangeNeed::Bytes));
        for piece in ["", &BODY[..1], ""] {
            let more = advance(&mut exchange, &world, piece);
            assert_eq!(more, (String::new(), ExchangeNeed::Bytes));
        }
        let whole = advance(&mut exchange, &world, &BODY[1..]);
        assert_eq!(whole, (String::new(), ExchangeNeed::Post));
        let (body, _, _) = exchange.posted().expect("it was posted");
        assert_eq!(body, BODY.as_bytes());
        let appended = super::posting::appended(&world, &exchange, 0).expect("it is an event");
        let refused =
            appended.into_iter().map(|(of, _)| (of, crate::serve::command::Appended::Full));
        exchange.append(Ok(refused.collect()));
        // The next request of the session is asked on, too.
        assert!(advance(&mut exchange, &world, "").0.starts_with("HTTP/1.1 503 "));
    }
}

#[test]
fn who_has_sent_something_of_its_body_or_expects_nothing_is_not_asked_for_it() {
    let world = World::new();
    let expecting = head("/v1/events", "Expect: 100-continue\r\n");
    let older = expecting.replace("HTTP/1.1", "HTTP/1.0");
    let plain = head("/v1/events", "");
    for (head, sent) in [(&expecting, 1), (&expecting, BODY.len()), (&older, 0), (&plain, 0)] {
        let mut exchange = Exchange::default();
        let (begun, rest) = BODY.split_at(sent);
        let (first, _) = advance(&mut exchange, &world, &[head, begun].concat());
        let (second, need) = advance(&mut exchange, &world, rest);
        assert_eq!((first.as_str(), second.as_str(), need), ("", "", ExchangeNeed::Post), "{head}");
    }
    // There is no body to ask for.
    let get = "GET /v1/zones HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n\r\n";
    assert!(advance(&mut Exchange::default(), &world, get).0.starts_with("HTTP/1.1 200 "));
}

#[test]
fn a_body_whose_request_is_refused_by_its_head_alone_is_not_asked_for() {
    let world = world_at_rate(1_000);
    let token = |name: &str| {
        format!("Authorization: Bearer {}\r\nExpect: 100-continue\r\n", token_of(name))
    };
    let refused = [
        ("/v1/events", "Expect: 100-continue\r\n".to_owned(), "401"),
        ("/v1/events", token("nobody"), "401"),
        ("/v1/events", token("reader"), "403"),
        ("/v1/events?zone=x", token("game"), "400"),
        ("/v1/zones", token("game"), "405"),
        ("/v2/events", token("game"), "404"),
        ("/v1/events", token("game").replace("100-continue", "200-ok"), "417"),
    ];
    for (target, headers, status) in refused {
        let mut exchange = Exchange::default();
        let (answer, need) = advance(&mut exchange, &world, &head(target, &headers));
        assert_eq!((&answer[9..12], need), (status, ExchangeNeed::Close), "{target} {headers}");
        assert!(answer.contains("Connection: close\r\n"), "a body that comes is no request");
    }
    let long = head("/v1/events", &token("game")).replace(": 29\r\n", ": 16385\r\n");
    assert!(advance(&mut Exchange::default(), &world, &long).0.starts_with("HTTP/1.1 413 "));
    let mut exchange = Exchange::default();
    let admitted = advance(&mut exchange, &world, &head("/v1/events", &token("game")));
    assert_eq!(admitted, (CONTINUE.to_owned(), ExchangeNeed::Bytes));
    assert_eq!(advance(&mut exchange, &world, BODY).1, ExchangeNeed::Post);
}

#[test]
fn a_request_counts_once_however_it_is_sent() {
    let world = world_at_rate(1);
    let token = token_of("game");
    let headers = format!("Authorization: Bearer {token}\r\nExpect: 100-continue\r\n");
    for _ in 0..64 {
        let mut exchange = Exchange::default();
        assert_eq!(advance(&mut exchange, &world, &head("/v1/events", &headers)).0, CONTINUE);
        assert_eq!(advance(&mut exchange, &world, BODY).1, ExchangeNeed::Post);
    }
    let (answer, _) = advance(&mut Exchange::default(), &world, &head("/v1/events", &headers));
    assert!(answer.starts_with("HTTP/1.1 429 "), "{answer}");
}
