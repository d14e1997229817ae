//! HTTP as clients and proxies speak it.

use super::{World, text_of};
use crate::serve::exchange::{Exchange, ExchangeNeed};

/// What is answered to these bytes, and what is needed then.
fn advance(world: &World, bytes: &str) -> (String, ExchangeNeed) {
    let mut exchange = Exchange::default();
    exchange.receive(bytes.as_bytes());
    let need = exchange.advance(&world.served, &world.gate, 0);
    (text_of(&exchange), need)
}

fn ask(method: &str, target: &str) -> String {
    advance(&World::new(), &format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\n\r\n")).0
}

#[test]
fn an_escaped_target_and_an_absolute_one_are_answered_as_the_plain_one() {
    let plain = ask("GET", "/v1/players/2?at=0:4");
    assert!(plain.starts_with("HTTP/1.1 200 "), "{plain}");
    for target in [
        "/v1/players/%32?at=0%3A4",
        "/v1/pl%61yers/2?%61t=0%3a4",
        "http://localhost:9465/v1/players/2?at=0:4",
    ] {
        assert_eq!(ask("GET", target), plain, "{target}");
    }
    for target in ["x/v1/zones", "../v1/zones", "/v1%2Fzones", "http://evil.example/v1/zones"] {
        assert!(ask("GET", target).starts_with("HTTP/1.1 4"), "{target}");
    }
}

#[test]
fn events_in_chunks_are_posted() {
    let world = World::new();
    let head = "POST /v1/events HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
                Transfer-Encoding: chunked\r\n\r\n";
    let chunks = "7\r\n{\"type\"\r\n16\r\n:\"loot\",\"player_id\":1}\r\n0\r\n\r\n";
    let mut exchange = Exchange::default();
    exchange.receive([head, chunks].concat().as_bytes());
    assert_eq!(exchange.advance(&world.served, &world.gate, 0), ExchangeNeed::Post);
    let (body, _, _) = exchange.posted().expect("it was posted");
    assert_eq!(body, br#"{"type":"loot","player_id":1}"#);
}

#[test]
fn a_client_of_http_1_0_that_asks_for_it_is_told_that_the_connection_stays() {
    let world = World::new();
    let ask = |headers: &str| advance(&world, &format!("GET /livez HTTP/1.0\r\n{headers}\r\n"));
    let (answer, need) = ask("Connection: Keep-Alive\r\n");
    assert!(answer.contains("\r\nConnection: keep-alive\r\n"), "{answer}");
    assert_eq!(need, ExchangeNeed::Bytes);
    let (answer, need) = ask("");
    assert!(answer.contains("\r\nConnection: close\r\n"), "{answer}");
    assert_eq!(need, ExchangeNeed::Close);
}

#[test]
fn methods_that_a_path_does_not_take_are_refused_with_those_that_it_takes() {
    for (path, allowed) in [
        ("/v1/zones", "GET, HEAD, OPTIONS"),
        ("/v1/players/2?nonsense", "GET, HEAD, OPTIONS"),
        ("/", "GET, HEAD, OPTIONS"),
        ("/livez", "GET, HEAD, OPTIONS"),
        ("/metrics", "GET, HEAD, OPTIONS"),
        ("/v1/events", "POST, OPTIONS"),
        ("/v1/stream", "GET, OPTIONS"),
    ] {
        let allow = format!("\r\nAllow: {allowed}\r\n");
        for method in ["DELETE", "PUT", "PATCH", "TRACE"] {
            let answer = ask(method, path);
            assert!(answer.starts_with("HTTP/1.1 405 ") && answer.contains(&allow), "{answer}");
        }
        let answer = ask("OPTIONS", path);
        assert!(answer.starts_with("HTTP/1.1 204 ") && answer.contains(&allow), "{answer}");
    }
    assert!(ask("OPTIONS", "*").starts_with("HTTP/1.1 204 "));
    assert!(ask("DELETE", "/v2").starts_with("HTTP/1.1 404 "));
    assert!(ask("BREW", "/v1/zones").starts_with("HTTP/1.1 501 "));
}

#[test]
fn no_answer_to_head_has_a_body() {
    let targets = ["/v1/zones", "/v2", "/v1/zones?x", "/livez", "/", "*", "/v1/stream"];
    for target in targets {
        let answer = ask("HEAD", target);
        assert!(answer.ends_with("\r\n\r\n"), "{target}: {answer}");
        assert!(answer.contains("Content-Length: "), "{target}: {answer}");
    }
}

#[test]
fn a_stream_tells_a_proxy_not_to_hold_it_back() {
    assert!(ask("GET", "/v1/stream?zone=0").contains("\r\nX-Accel-Buffering: no\r\n"));
}

#[test]
fn what_a_path_does_not_take_is_refused_and_not_passed_over() {
    for (target, detail) in [
        ("/v1/boards/0?cuont=3", "`cuont` is no parameter here"),
        ("/v1/boards/0?count=1000", "a number from 1 to 100"),
        ("/v1/boards/0?count=0", "a number from 1 to 100"),
        ("/v1/boards/0?around=1&each_side=50", "a number from 0 to 49"),
        ("/v1/boards/0?from=1&from=2", "one value"),
        ("/v1/boards/foo", "`board` as a zone's number, or `world`"),
        ("/v1/boards/+0", "`board` as"),
        ("/v1/players/+2", "`id` as"),
        ("/v1/zones?wait_ms=10001", "milliseconds from 0 to 10000"),
        ("/v1/zones?zone=1", "`zone` is no parameter here"),
        ("/v1/stream?zone=0&every_ms=1", "milliseconds from 50 to 15000"),
        ("/v1/stream?zone=0&plyer=1", "`plyer` is no parameter here"),
    ] {
        let answer = ask("GET", target);
        assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains(detail), "{answer}");
    }
}
