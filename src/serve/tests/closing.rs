//! The last answer of a connection says that it is, and no other does.

use super::access::{token_of, world_at_rate};
use super::text_of;
use crate::serve::exchange::{Exchange, ExchangeNeed};

#[test]
fn whatever_is_answered_says_close_where_the_connection_closes_and_nowhere_else() {
    let mut world = world_at_rate(1_000);
    world.served.halt(1, "its log was cut".to_owned());
    let asked = [
        ("GET", "/", "all", "200"),
        ("GET", "/livez", "all", "200"),
        ("GET", "/metrics", "all", "200"),
        ("GET", "/metrics", "game", "403"),
        ("HEAD", "/v1/zones", "all", "200"),
        ("GET", "/v1/players/1?after=0:9", "all", "204"),
        ("GET", "/v1/zones", "nobody", "401"),
        ("GET", "/v2", "all", "404"),
        ("POST", "/v1/zones", "all", "405"),
        ("POST", "/v1/events?zone=x", "all", "400"),
        ("GET", "/v1/stream?zone=x", "all", "400"),
        ("GET", "/v1/stream", "all", "400"),
        ("GET", "/v1/stream?zone=9", "all", "404"),
        ("GET", "/v1/stream?zone=0", "game", "403"),
        ("GET", "/v1/stream?zone=1", "all", "503"),
    ];
    for (method, target, token, status) in asked {
        for (connection, closes) in [("close", true), ("keep-alive", false)] {
            let head = format!(
                "{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: {connection}"
            );
            let mut exchange = Exchange::default();
            let token = token_of(token);
            let request = format!("{head}\r\nAuthorization: Bearer {token}\r\n\r\n");
            exchange.receive(request.as_bytes());
            let need = exchange.advance(&world.served, &world.gate, 0);
            let answer = text_of(&exchange);
            assert_eq!(&answer[9..12], status, "{method} {target}");
            assert_eq!(answer.contains("\r\nConnection: close\r\n"), closes, "{method} {target}");
            assert_eq!(need == ExchangeNeed::Close, closes, "{method} {target} {connection}");
        }
    }
}
