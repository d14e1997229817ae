//! Who gets what with which token.

use super::World;
use crate::hunt::event::Action;
use crate::serve::access::Access;
use crate::serve::exchange::{Exchange, ExchangeNeed};
use crate::serve::gate::Gate;
use crate::serve::key_set::KeySet;
use crate::serve::problem::Problem;
use crate::serve::signatures;
use crate::service::{AccessOptions, AllowedOrigins};
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::{Value, json};
use std::path::PathBuf;

const SECRET: [u8; 32] = [7; 32];

/// The Unix time at 0 of the exchanges' clock.
pub(super) const ORIGIN_S: u64 = 1_000;

/// Seconds for which a token is good after its `exp`.
pub(super) const SKEW_S: u64 = 30;

/// The key of all tokens here, and if need be another one.
fn keys(has_another: bool) -> KeySet {
    // Thirty-two bytes of 7.
    let secret = json!({"kty": "oct", "kid": "game", "k": "BwcH".repeat(10) + "Bwc"});
    let another = json!({"kty": "oct", "kid": "another", "k": "A".repeat(43)});
    let keys = if has_another { vec![secret, another] } else { vec![secret] };
    KeySet::parse(&json!({ "keys": keys }).to_string()).expect("a valid set")
}

/// How requests are let in with tokens of these keys.
pub(super) fn access(keys: KeySet, requests_per_s: u32) -> Access {
    let audience = "huntd".to_owned();
    let options =
        AccessOptions { keys: PathBuf::new(), audience, requests_per_s, player_requests_per_s: 2 };
    Access::new(keys, &options)
}

/// A token with these claims.
pub(super) fn signed(claims: &Value) -> String {
    signatures::install();
    let header = Header { kid: Some("game".to_owned()), ..Header::new(Algorithm::HS256) };
    encode(&header, claims, &EncodingKey::from_secret(&SECRET)).expect("it can be signed")
}

/// A token of a player.
pub(super) fn player_token(player_id: u64, exp: u64) -> String {
    let scope = "read command";
    signed(&json!({"player_id": player_id.to_string(), "aud": "huntd", "exp": exp, "scope": scope}))
}

/// The token of one of these clients; of nobody, its name.
pub(super) fn token_of(name: &str) -> String {
    let scope = match name {
        "reader" => "read",
        "game" => "command join world",
        "actor" => "command",
        "all" => "read command join world",
        other => return other.to_owned(),
    };
    signed(&json!({"sub": name, "aud": "huntd", "exp": 1_000_000, "scope": scope}))
}

/// A gate for these tokens and for pages of these origins.
pub(super) fn gate_of(origins: AllowedOrigins, requests_per_s: u32) -> Gate {
    Gate::new(Some(access(keys(false), requests_per_s)), origins, 1_000 * ORIGIN_S)
}

fn world() -> World {
    world_at_rate(1_000)
}

/// A world whose clients have this many requests a second.
pub(super) fn world_at_rate(requests_per_s: u32) -> World {
    let mut world = World::new();
    world.gate = gate_of(AllowedOrigins::default(), requests_per_s);
    world
}

/// A request with this token, and what it needs.
pub(super) fn ask(
    world: &World,
    method: &str,
    path: &str,
    token: &str,
    body: &str,
) -> (Exchange, bool) {
    let mut exchange = Exchange::default();
    let (length, token) = (body.len(), token_of(token));
    let head =
        format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n");
    exchange.receive(format!("{head}Content-Length: {length}\r\n\r\n{body}").as_bytes());
    let need = exchange.advance(&world.served, &world.gate, 0);
    (exchange, need == ExchangeNeed::Post)
}

fn status(world: &World, path: &str, token: &str) -> String {
    super::text_of(&ask(world, "GET", path, token, "").0)[9..12].to_owned()
}

/// The status of posting this body by somebody.
fn post(world: &World, token: &str, body: &str) -> String {
    let (mut exchange, is_posted) = ask(world, "POST", "/v1/events?wait_ms=0", token, body);
    if is_posted {
        let appended = super::posting::appended(world, &exchange, 0);
        exchange.append(appended);
        exchange.advance(&world.served, &world.gate, 0);
    }
    super::text_of(&exchange)[9..12].to_owned()
}

#[test]
fn without_a_valid_token_only_the_page_and_the_probes_are_answered() {
    let world = world();
    for path in ["/", "/page.js", "/livez", "/readyz"] {
        assert_eq!(world.status(path), "200", "{path}");
    }
    for path in ["/v1/zones", "/v1/players/1", "/v1/stream?zone=0", "/metrics", "/v2"] {
        assert_eq!(world.status(path), "401", "{path}");
        assert!(world.get(path).contains("WWW-Authenticate: Bearer\r\n"), "{path}");
        for token in ["nobody", "player.1.9999.00", "a.b.c"] {
            let answer = super::text_of(&ask(&world, "GET", path, token, "").0);
            assert!(answer.starts_with("HTTP/1.1 401 "), "{path} {token}");
            let challenge = "WWW-Authenticate: Bearer error=\"invalid_token\"\r\n";
            assert!(answer.contains(challenge), "{path} {token}: {answer}");
        }
    }
    assert_eq!(post(&world, "nobody", r#"{"type":"loot","player_id":1}"#), "401");
}

#[test]
fn a_token_is_good_for_its_scopes() {
    let world = world();
    let event = r#"{"type":"loot","player_id":1}"#;
    let paths = ["/v1/zones/0/tiles", "/v1/players/1/poll", "/metrics", "/v1/stream?zone=0"];
    for path in paths {
        assert_eq!(status(&world, path, "reader"), "200", "{path}");
        assert_eq!(status(&world, path, "game"), "403", "{path}");
        assert_eq!(status(&world, path, "all"), "200", "{path}");
    }
    assert_eq!(post(&world, "reader", event), "403");
    assert_eq!(post(&world, "game", event), "202");
    assert_eq!(post(&world, "all", r#"{"type":"hunt_end","hunt":1}"#), "400", "no zone");
}

#[test]
fn a_player_sees_and_acts_for_itself_alone() {
    let world = world();
    let token = player_token(2, ORIGIN_S + 10);
    let allowed = [
        "/v1/players/2",
        "/v1/players/2/poll",
        "/v1/boards/world",
        "/v1/boards/0",
        "/v1/zones",
        "/v1/stream?player=2&board=0",
    ];
    let refused = [
        "/v1/players/1",
        "/v1/players/1/poll",
        "/v1/zones/0/tiles",
        "/v1/zones/0/hunts",
        "/v1/zones/0/players",
        "/v1/stream?zone=0",
        "/v1/stream?player=2&player=1",
        "/metrics",
    ];
    for (paths, expected) in [(&allowed[..], "200"), (&refused[..], "403")] {
        for path in paths {
            assert_eq!(status(&world, path, &token), expected, "{path}");
        }
    }
    let brought = r#""handoff":{"from_zone":1,"crossing":2,"score":1000000,"last_seq":6}"#;
    let join = r#"{"type":"join","player_id":2,"seq":9,"x":1,"y":2"#;
    let cases = [
        (r#"{"type":"rotate","player_id":2,"heading":3}"#.to_owned(), "202"),
        (r#"{"type":"rotate","player_id":1,"heading":3}"#.to_owned(), "403"),
        (format!("{join}}}"), "403"),
        (format!("{join},{brought}}}"), "403"),
        (r#"[{"type":"loot","player_id":2},{"type":"loot","player_id":3}]"#.to_owned(), "403"),
        (r#"{"type":"tick","seq":5}"#.to_owned(), "403"),
        (
            r#"{"type":"hunt_start","hunt":1,"seed":1,"treasures":1,"duration_ms":1}"#.to_owned(),
            "403",
        ),
    ];
    for (body, expected) in cases {
        assert_eq!(post(&world, &token, &body), expected, "{body}");
    }
    let expired = player_token(2, ORIGIN_S - SKEW_S);
    assert_eq!(status(&world, "/v1/players/2", &expired), "401");
}

#[test]
fn who_asks_too_often_waits_and_the_others_do_not() {
    let world = world();
    let ask_at = |token: &str, now_ms| {
        let mut exchange = Exchange::default();
        let head = "GET /v1/zones HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer";
        exchange.receive(format!("{head} {}\r\n\r\n", token_of(token)).as_bytes());
        exchange.advance(&world.served, &world.gate, now_ms);
        super::text_of(&exchange)[9..12].to_owned()
    };
    let (two, three) = (player_token(2, ORIGIN_S + 99), player_token(3, ORIGIN_S + 99));
    // A burst of 64 is let through, then two a second.
    let passed = (0..100).filter(|_| ask_at(&two, 5) == "200").count();
    assert_eq!(passed, 64);
    assert_eq!(ask_at(&two, 5), "429");
    assert_eq!(ask_at(&three, 5), "200");
    assert_eq!(ask_at("reader", 5), "200");
    let passed = (0..100).filter(|_| ask_at(&two, 2_005) == "200").count();
    assert_eq!(passed, 4);
    // Another token of this player does not help.
    assert_eq!(ask_at(&player_token(2, ORIGIN_S + 50), 2_005), "429");
    let events = vec![r#"{"type":"loot","player_id":3}"#; 64].join(",");
    assert_eq!(post(&world, &three, &format!("[{events}]")), "429", "each event counts");
}

#[test]
fn a_stream_ends_when_its_token_expires_or_the_keys_are_replaced() {
    let mut world = world();
    let token = player_token(2, ORIGIN_S + 10);
    let listen = |world: &World, token: &str, topic: &str| {
        ask(world, "GET", &format!("/v1/stream?{topic}"), token, "").0
    };
    let mut expiring = listen(&world, &token, "player=2");
    let mut reading = listen(&world, "reader", "zone=0");
    let closes = |world: &World, exchange: &mut Exchange, now_ms| {
        exchange.take_unsent();
        exchange.advance(&world.served, &world.gate, now_ms) == ExchangeNeed::Close
    };
    let end_ms = 1_000 * (10 + SKEW_S);
    assert!(!closes(&world, &mut expiring, end_ms - 1));
    assert!(closes(&world, &mut expiring, end_ms));
    assert!(!closes(&world, &mut reading, end_ms));
    world.gate.replace(keys(false));
    assert!(!closes(&world, &mut reading, end_ms), "these are the same");
    world.gate.replace(keys(true));
    world.act(1, Action::Rotate { heading: 1 });
    assert!(closes(&world, &mut reading, end_ms));
}

#[test]
fn events_of_the_world_and_joins_have_scopes_of_their_own() {
    let world = world();
    let join = r#"{"type":"join","player_id":1,"x":1,"y":2}"#;
    let hunt_end = r#"{"type":"hunt_end","hunt":1}"#;
    let cases = [("actor", join, "403"), ("actor", hunt_end, "403"), ("game", join, "202")];
    for (token, body, expected) in cases {
        assert_eq!(post(&world, token, body), expected, "{token} {body}");
    }
    assert_eq!(post(&world, "actor", r#"{"type":"loot","player_id":1}"#), "202");
}

#[test]
fn a_player_s_scopes_are_good_for_what_is_its_own() {
    let world = world();
    let token = |scope: &str| {
        let exp = ORIGIN_S + 10;
        signed(&json!({"player_id": "2", "aud": ["huntd"], "exp": exp, "scope": scope}))
    };
    let join = |player: u64| format!(r#"{{"type":"join","player_id":{player},"x":1,"y":2}}"#);
    let tick = r#"{"type":"tick","seq":5}"#;
    let arrival =
        join(2).replace('}', r#","handoff":{"from_zone":1,"crossing":2,"score":9,"last_seq":6}}"#);
    let all = token("read command join world");
    assert_eq!(post(&world, &all, &join(2)), "202");
    for body in [&join(3), &arrival, tick] {
        assert_eq!(post(&world, &all, body), "403", "{body}");
    }
    assert_eq!(status(&world, "/v1/players/2", &token("read")), "200");
    assert_eq!(status(&world, "/v1/players/2", &token("command")), "403");
    assert_eq!(status(&world, "/v1/players/2", &token("reader openid")), "403");
    assert_eq!(post(&world, &token("read"), r#"{"type":"loot","player_id":2}"#), "403");
}

#[test]
fn a_player_s_events_have_this_process_s_time_and_no_seq_ahead_of_it() {
    let world = world();
    let token = player_token(2, ORIGIN_S + 10);
    let record = |body: &str| {
        let (exchange, is_posted) = ask(&world, "POST", "/v1/events", &token, body);
        assert!(is_posted, "{body}");
        let appended = super::posting::appended(&world, &exchange, 0)?;
        Ok::<String, Problem>(String::from_utf8_lossy(&appended[0].0.record).into_owned())
    };
    let stamp = 1_000 * world.events;
    let written = |seq: i64| {
        format!(r#"{{"type":"rotate","player_id":2,"seq":{seq},"ts_us":{stamp},"heading":3}}"#)
    };
    let rotate = |fields: &str| format!(r#"{{"type":"rotate","player_id":2,{fields}"heading":3}}"#);
    assert_eq!(record(&rotate("")), Ok(written(stamp)));
    let least = i64::MIN;
    assert_eq!(record(&rotate(&format!("\"ts_us\":{least},"))), Ok(written(stamp)));
    // An event that is sent again keeps its `seq`, so it takes effect once.
    assert_eq!(record(&rotate("\"seq\":9,\"more\":[1],")), Ok(written(9)));
    for ahead in [stamp.cast_unsigned() + 1, u64::MAX] {
        let refused = record(&rotate(&format!("\"seq\":{ahead},")));
        assert!(matches!(refused, Err(Problem::Parameter { name: "seq", .. })), "{refused:?}");
    }
}

#[test]
fn without_tokens_a_page_of_another_site_gets_and_changes_nothing() {
    let world = World::new();
    let body = r#"{"type":"rotate","player_id":1,"heading":3}"#;
    let asked = |method: &str, target: &str, headers: &str| {
        let body = if method == "POST" { body } else { "" };
        let head = format!("{method} {target} HTTP/1.1\r\n{headers}");
        let mut exchange = Exchange::default();
        let length = format!("Content-Length: {}\r\n\r\n", body.len());
        exchange.receive([head, length, body.to_owned()].concat().as_bytes());
        match exchange.advance(&world.served, &world.gate, 0) {
            ExchangeNeed::Post => "posted".to_owned(),
            _ => super::text_of(&exchange)[9..12].to_owned(),
        }
    };
    let json = "Content-Type: application/json\r\n";
    for (host, is_local) in [
        ("localhost:9465", true),
        ("LocalHost", true),
        ("127.0.0.1:9465", true),
        ("127.9.9.9", true),
        ("[::1]:9465", true),
        ("evil.example", false),
        ("localhost.evil.example:9465", false),
        ("127.0.0.1.evil.example", false),
        ("0.0.0.0:9465", false),
        ("[::2]:9465", false),
        ("", false),
    ] {
        let headers = format!("Host: {host}\r\n{json}");
        let expected = if is_local { ("200", "posted") } else { ("403", "403") };
        let answered = (asked("GET", "/v1/zones", &headers), asked("POST", "/v1/events", &headers));
        assert_eq!((answered.0.as_str(), answered.1.as_str()), expected, "{host}");
        // Of a page, Origin says the same.
        let headers = format!("Host: localhost\r\n{json}Origin: http://{host}\r\n");
        assert_eq!(asked("POST", "/v1/events", &headers), expected.1, "{host}");
    }
    for headers in ["", "Content-Type: text/plain\r\n", "Content-Type: application/json2\r\n"] {
        let headers = format!("Host: localhost\r\n{headers}");
        assert_eq!(asked("POST", "/v1/events", &headers), "415", "{headers}");
    }
    let headers = format!("Host: localhost\r\nOrigin: null\r\n{json}");
    assert_eq!(asked("POST", "/v1/events", &headers), "403");
    let charset = "Host: localhost\r\nContent-Type: Application/JSON; charset=utf-8\r\n";
    assert_eq!(asked("POST", "/v1/events", charset), "posted");
}

/// Streams of one player that are open at once, and of one token.
const STREAMS: [usize; 2] = [16, 2_048];

/// Streams that are open at once without tokens.
const STREAMS_WITHOUT_TOKENS: usize = 10_000;

#[test]
fn clients_without_tokens_read_so_many_streams_together() {
    let world = World::new();
    let open = || {
        let mut exchange = Exchange::default();
        exchange.receive(b"GET /v1/stream?board=world HTTP/1.1\r\nHost: localhost\r\n\r\n");
        exchange.advance(&world.served, &world.gate, 0);
        (super::text_of(&exchange)[9..12].to_owned(), exchange)
    };
    let mut streams: Vec<_> = (0..STREAMS_WITHOUT_TOKENS).map(|_| open()).collect();
    assert!(streams.iter().all(|(status, _)| status == "200"));
    assert_eq!(open().0, "429");
    streams.pop();
    assert_eq!(open().0, "200");
}

#[test]
fn a_client_reads_so_many_streams_and_may_read_another_once_one_has_ended() {
    let world = world_at_rate(1_000_000);
    let player = player_token(2, ORIGIN_S + 10);
    let open = |world: &World, token: &str| {
        let (exchange, _) = ask(world, "GET", "/v1/stream?board=world", token, "");
        (super::text_of(&exchange)[9..12].to_owned(), exchange)
    };
    for (token, most) in [player.as_str(), "reader"].into_iter().zip(STREAMS) {
        let mut streams: Vec<_> = (0..most).map(|_| open(&world, token)).collect();
        assert!(streams.iter().all(|(status, _)| status == "200"), "{token}");
        let (status, refused) = open(&world, token);
        assert_eq!(status, "429", "{token}");
        let answer = super::text_of(&refused);
        assert!(answer.contains("streams") && answer.contains("\r\nRetry-After: "), "{answer}");
        drop(refused);
        assert_eq!(open(&world, "all").0, "200", "each client has its own");
        streams.pop();
        assert_eq!(open(&world, token).0, "200", "{token}");
        // Streams of earlier keys end, and the new ones begin without them.
        world.gate.replace(keys(true));
        assert_eq!(open(&world, token).0, "200", "{token}");
        world.gate.replace(keys(false));
    }
}
