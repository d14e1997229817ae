//! Tokens: which are valid, and why others are refused.

use super::access::{ORIGIN_S, SKEW_S, access, ask, signed, token_of, world_at_rate};
use super::text_of;
use crate::runtime::allocator;
use crate::serve::access::{Access, Client, Scopes, TokenRefusal};
use crate::serve::exchange::{Exchange, ExchangeNeed};
use crate::serve::key_set::{KeySet, TOKEN_BYTES_MAX};
use crate::testing::random::Random;
use serde_json::{Value, json};
use std::process::Command;
use std::sync::LazyLock;

/// A JWK Set, and a token of each algorithm that another implementation has signed (jwcrypto).
static SIGNED: LazyLock<Value> = LazyLock::new(|| {
    let text = include_str!("../../../tests/data/jwt.json");
    serde_json::from_str(text).expect("it is JSON")
});

/// `exp` of these tokens, without its half second.
const EXP: u64 = 1_767_229_200;

fn foreign() -> Access {
    let keys = KeySet::parse(&SIGNED["jwks"].to_string()).expect("a valid set");
    access(keys, 10)
}

fn tokens() -> impl Iterator<Item = (&'static str, &'static str)> {
    let tokens = SIGNED["tokens"].as_object().expect("an object").iter();
    tokens.map(|(name, token)| (name.as_str(), token.as_str().expect("a text")))
}

#[test]
fn tokens_of_each_algorithm_are_good_from_nbf_to_exp_with_clocks_that_differ() {
    let access = foreign();
    for (name, token) in tokens() {
        let permit = access.permit(token).unwrap_or_else(|why| panic!("{name}: {why:?}"));
        assert_eq!(permit.client, Client::Player(76_561_198_000_000_042), "{name}");
        let scopes = Scopes { reads: true, commands: true, ..Scopes::default() };
        assert_eq!(permit.scopes, scopes, "{name}");
        let begin = EXP - 3_600 - SKEW_S;
        let cases = [
            (begin - 1, Err(TokenRefusal::Early)),
            (begin, Ok(())),
            (EXP + SKEW_S - 1, Ok(())),
            (EXP + SKEW_S, Err(TokenRefusal::Expired)),
        ];
        for (now_s, expected) in cases {
            assert_eq!(permit.check(now_s), expected, "{name} at {now_s}");
        }
    }
    assert_eq!(tokens().count(), 4);
}

#[test]
fn a_token_whose_bytes_were_changed_is_never_good() {
    let access = foreign();
    let mut random = Random::new(3);
    for (name, token) in tokens() {
        let permit = access.permit(token).expect("it is good");
        for at in 0..token.len() {
            let mut bytes = token.as_bytes().to_vec();
            bytes[at] = b"AZaz09-_.=\"{"[random.below(12) as usize];
            let changed = String::from_utf8(bytes).expect("it is ASCII");
            assert!(changed == token || access.permit(&changed).is_err(), "{name}: {changed}");
        }
        for end in 0..token.len() {
            assert!(access.permit(&token[..end]).is_err(), "{name}: {end}");
        }
        for _ in 0..2_000 {
            let bytes = (0..random.below(200)).map(|_| random.below(128) as u8 as char);
            let noise: String = bytes.collect();
            let at = random.below(token.len() as u64) as usize;
            let _never_panics = access.permit(&noise);
            let mixed = [&token[..at], &noise, &token[at..]].concat();
            assert!(noise.is_empty() || access.permit(&mixed).is_err(), "{name}: {mixed}");
        }
        assert_eq!(access.permit(token), Ok(permit));
    }
}

/// A token with this header and these claims as they are written, signed by a secret.
fn written(header: &str, claims: &str, secret: &[u8]) -> String {
    let part = |text: &str| base64url(text.as_bytes());
    let message = format!("{}.{}", part(header), part(claims));
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret);
    let signature = ring::hmac::sign(&key, message.as_bytes());
    format!("{message}.{}", base64url(signature.as_ref()))
}

fn base64url(bytes: &[u8]) -> String {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let word = [0, 1, 2].map(|at| u32::from(*chunk.get(at).unwrap_or(&0)));
        let word = word[0] << 16 | word[1] << 8 | word[2];
        for digit in 0..=chunk.len() {
            text.push(DIGITS[(word >> (18 - 6 * digit)) as usize % 64].into());
        }
    }
    text
}

const SECRET: &[u8] = &[7; 32];
const HEADER: &str = r#"{"alg":"HS256","kid":"game"}"#;
const CLAIMS: &str = r#"{"sub":"a","aud":"huntd","exp":1010,"scope":"read"}"#;

/// Status and sentence of the answer to a token.
fn answered(token: &str) -> (String, String) {
    let world = world_at_rate(1_000);
    let (exchange, _) = ask(&world, "GET", "/v1/zones", token, "");
    let answer = text_of(&exchange);
    let detail = answer.split_once("\"detail\":\"").map_or("", |(_, rest)| rest);
    let detail = detail.split_once('"').map_or("", |(detail, _)| detail);
    (answer[9..12].to_owned(), detail.to_owned())
}

#[test]
fn a_token_that_is_not_good_is_refused_with_the_reason_and_without_what_it_holds() {
    let with = |claims: &str| written(HEADER, claims, SECRET);
    let header = |header: &str| written(header, CLAIMS, SECRET);
    let edited = |from: &str, to: &str| with(&CLAIMS.replace(from, to));
    let unsigned = |alg: &str| {
        let token = header(&HEADER.replace("HS256", alg));
        let (message, _) = token.rsplit_once('.').expect("it has three parts");
        format!("{message}.")
    };
    let twice = |claim: &str| with(&CLAIMS.replace('{', &format!("{{{claim},")));
    assert_eq!(answered(&with(CLAIMS)).0, "200");
    let malformed = TokenRefusal::Malformed;
    let claims = TokenRefusal::WrongClaims;
    let cases = [
        (unsigned("none"), malformed),
        (unsigned("None"), malformed),
        (unsigned("HS256"), TokenRefusal::WrongSignature),
        (header(r#"{"alg":"HS384","kid":"game"}"#), TokenRefusal::WrongAlgorithm),
        (header(r#"{"alg":"RS256","kid":"game"}"#), TokenRefusal::WrongAlgorithm),
        (header(r#"{"kid":"game"}"#), malformed),
        (header(r#"{"alg":"HS256","alg":"HS256","kid":"game"}"#), malformed),
        (header(r#"{"alg":"HS256","kid":"game","crit":["exp"]}"#), malformed),
        (header(r#"{"alg":"HS256","kid":"other"}"#), TokenRefusal::KeyUnknown),
        (written(HEADER, CLAIMS, &[8; 32]), TokenRefusal::WrongSignature),
        (with("[]"), claims),
        (with(""), claims),
        (with(&"[".repeat(1_500)), claims),
        (edited("1010", "-5"), claims),
        (edited("1010", "1e999"), claims),
        (edited("1010", "1e300"), claims),
        (edited("1010", "18446744073709551615"), claims),
        (edited("1010", "18446744073709551616"), claims),
        (edited("1010", "253402300800"), claims),
        (edited("1010", "\"1010\""), claims),
        (edited("1010", "[1010]"), claims),
        (edited("\"exp\":1010", "\"exp\":null"), TokenRefusal::EndMissing),
        (edited("\"exp\":1010,", ""), TokenRefusal::EndMissing),
        (edited("1010", "970"), TokenRefusal::Expired),
        (edited("1010", "1010,\"nbf\":1031"), TokenRefusal::Early),
        (edited("1010", "1010,\"nbf\":\"now\""), claims),
        (edited("1010", "1010,\"nbf\":null"), claims),
        (edited("\"huntd\"", "\"shop\""), TokenRefusal::WrongAudience),
        (edited("\"huntd\"", "[\"shop\",\"Huntd\"]"), TokenRefusal::WrongAudience),
        (edited("\"huntd\"", "7"), claims),
        (edited("\"aud\":\"huntd\",", ""), TokenRefusal::WrongAudience),
        (edited("\"sub\":\"a\"", "\"sub\":\"\""), TokenRefusal::SubjectMissing),
        (edited("\"sub\":\"a\",", ""), TokenRefusal::SubjectMissing),
        (edited("\"sub\":\"a\"", "\"sub\":7"), claims),
        (edited("\"sub\"", "\"player_id\":76561198000000042,\"sub\""), claims),
        (edited("\"sub\"", "\"player_id\":\"0\",\"sub\""), claims),
        (edited("\"sub\"", "\"player_id\":null,\"sub\""), claims),
        (edited("\"sub\"", "\"player_id\":\"-1\",\"sub\""), claims),
        (edited("\"sub\"", "\"player_id\":\"18446744073709551616\",\"sub\""), claims),
        (twice("\"exp\":9999"), claims),
        (twice("\"aud\":\"shop\""), claims),
        (twice("\"sub\":\"b\""), claims),
        (twice("\"scope\":\"world\""), claims),
        (format!("{}.x", with(CLAIMS)), malformed),
        (with(CLAIMS).replace('.', ".."), malformed),
        (format!("{}==", with(CLAIMS)), malformed),
        ("a".repeat(TOKEN_BYTES_MAX + 1), TokenRefusal::TooLong),
        (String::new(), TokenRefusal::Missing),
    ];
    for (token, refusal) in cases {
        let expected = ("401".to_owned(), refusal.sentence().to_owned());
        assert_eq!(answered(&token), expected, "{token}");
    }
}

#[test]
fn a_public_key_is_never_a_secret() {
    let access = foreign();
    let keys = SIGNED["jwks"]["keys"].as_array().expect("a list");
    let public = keys.iter().filter(|key| key["kty"] != "oct" && key["kid"].as_str() != Some("2"));
    for key in public {
        let kid = key["kid"].as_str().expect("a text").to_owned();
        let parts = ["n", "e", "x", "y"].iter().filter_map(|part| key[*part].as_str());
        for secret in parts.map(str::to_owned).chain([key.to_string()]) {
            let header = format!(r#"{{"alg":"HS256","kid":"{kid}"}}"#);
            let claims = CLAIMS.replace("1010", "9999999999");
            let refused = access.permit(&written(&header, &claims, secret.as_bytes()));
            let reasons = [TokenRefusal::WrongAlgorithm, TokenRefusal::KeyUnknown];
            assert!(reasons.contains(&refused.expect_err("it is forged")), "{kid}");
        }
    }
}

#[test]
fn a_file_that_has_no_usable_keys_is_refused_with_what_to_do_and_without_what_it_has() {
    let secret = "secretsecretsecretsecretsecretsecretsecrets";
    let set = |keys: &str| format!("{{\"keys\":[{keys}]}}");
    let oct = format!(r#"{{"kty":"oct","kid":"a","k":"{secret}"}}"#);
    assert!(KeySet::parse(&set(&oct)).is_ok());
    let cases = [
        (String::new(), "line 1, column 0: write a JWK Set"),
        (format!("[\"{secret}\"]"), "write a JWK Set"),
        (format!("{{\"keys\":\"{secret}\"}}"), "write a JWK Set"),
        (set(""), "has 0 keys"),
        (set(&oct.replace("oct", "secret")), "has 0 keys"),
        (set(&oct.replace("\"kid\"", "\"use\":\"enc\",\"kid\"")), "has 0 keys"),
        (set(&oct.replace("\"kid\"", "\"alg\":\"HS512\",\"kid\"")), "has 0 keys"),
        (set(&oct.replace("\"kid\"", "\"key_ops\":[\"sign\"],\"kid\"")), "has 0 keys"),
        (set(&oct.replace("\"k\"", "\"x\"")), "key 1: write all parts"),
        (set(&oct.replace("secrets\"", "\"")), "key 1: write a secret of at least 32 bytes"),
        (set(&[oct.as_str(), &oct].join(",")), "key 2: another one has its `kid`"),
        (set(r#"{"kty":"EC","crv":"P-256","x":"AA","y":"AA"}"#), "`x` and `y` with 32 bytes"),
        (set(r#"{"kty":"EC","crv":"P-256","x":"AA"}"#), "write all parts"),
        (set(r#"{"kty":"OKP","crv":"Ed25519","x":"AA"}"#), "`x` with 32 bytes"),
        (set(r#"{"kty":"RSA","n":"AQAB","e":"AQAB"}"#), "2,048 to 8,192 bits"),
    ];
    for (text, expected) in cases {
        let sentence = KeySet::parse(&text).err().expect("it is wrong");
        assert!(sentence.contains(expected), "{text}: {sentence}");
        assert!(!sentence.contains("secretsecret"), "{sentence}");
    }
}

#[test]
fn a_token_without_kid_is_good_if_there_is_one_key() {
    let token = written(r#"{"alg":"HS256"}"#, CLAIMS, SECRET);
    assert_eq!(answered(&token).0, "200");
    assert_eq!(foreign().permit(&token), Err(TokenRefusal::KeyUnknown));
}

#[test]
fn a_refusal_that_took_a_signature_ends_the_connection_and_others_do_not() {
    let world = world_at_rate(1_000);
    let request = |token: &str| {
        let head = "GET /v1/zones HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer";
        format!("{head} {token}\r\n\r\n")
    };
    let forged = written(HEADER, CLAIMS, &[8; 32]);
    let expired = signed(&json!({"sub": "a", "aud": "huntd", "exp": ORIGIN_S - SKEW_S}));
    let foreign = written(HEADER, &CLAIMS.replace("huntd", "shop"), SECRET);
    for (token, answers, need) in [
        (forged, 1, ExchangeNeed::Close),
        (foreign, 1, ExchangeNeed::Close),
        (expired, 3, ExchangeNeed::Bytes),
        ("a.b.c".to_owned(), 3, ExchangeNeed::Bytes),
    ] {
        let mut exchange = Exchange::default();
        exchange.receive(request(&token).repeat(3).as_bytes());
        assert_eq!(exchange.advance(&world.served, &world.gate, 0), need);
        let text = text_of(&exchange);
        assert_eq!(text.matches("HTTP/1.1 401 ").count(), answers, "{text}");
        assert_eq!(text.contains("Connection: close\r\n"), answers == 1, "{text}");
    }
}

#[test]
fn a_token_that_was_verified_takes_no_allocation() {
    let world = world_at_rate(1_000_000);
    let mut exchange = Exchange::default();
    let head = "GET /v1/players/1/poll HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer";
    let request = format!("{head} {}\r\n\r\n", token_of("reader"));
    let mut ask = || {
        exchange.receive(request.as_bytes());
        exchange.advance(&world.served, &world.gate, 0);
        assert!(exchange.unsent().starts_with(b"HTTP/1.1 200"));
        let answer = exchange.take_unsent();
        exchange.sent(answer);
    };
    ask();
    allocator::count_serving_thread();
    let before = allocator::serving_allocations();
    (0..1_000).for_each(|_| ask());
    assert_eq!(allocator::serving_allocations() - before, 0);
}

#[test]
fn tokens_that_are_shown_are_remembered_while_others_come_and_go() {
    let mut permits = crate::serve::permits::Permits::default();
    let token = token_of("reader");
    let permit = foreign().permit(tokens().next().expect("one").1).expect("it is good");
    let mut verified = 0;
    for number in 0..200_000 {
        let others = permits.of(&number.to_string(), || Ok::<_, ()>(permit));
        let shown = permits.of(&token, || {
            verified += 1;
            Ok::<_, ()>(permit)
        });
        assert_eq!((others, shown), (Ok(permit), Ok(permit)));
    }
    assert_eq!(verified, 1);
    let mut again = 0;
    for number in 0..200_000 {
        let shown = permits.of(&number.to_string(), || {
            again += 1;
            Ok::<_, ()>(permit)
        });
        assert_eq!(shown, Ok(permit));
    }
    assert!(again > 0, "what is remembered is bounded");
}

#[test]
fn the_program_of_the_documentation_signs_a_token_that_its_key_set_verifies() {
    let text = include_str!("../../../docs/QUERIES.md");
    let block = |begin: &str| {
        let (_, rest) = text.split_once(begin).expect("the page has it");
        rest.split_once("```").expect("it ends").0
    };
    let keys = KeySet::parse(&["{\"keys\"", block("```json\n{\"keys\"")].concat());
    let access = access(keys.expect("a valid set"), 10);
    let program = [block("```python\n"), "print(token)"].concat();
    let Ok(printed) = Command::new("python3").args(["-c", &program]).output() else {
        assert!(std::env::var_os("CI").is_none(), "python3 is missing");
        return;
    };
    let token = String::from_utf8(printed.stdout).expect("a token is text");
    let permit = access.permit(token.trim()).expect("it is good");
    assert_eq!(permit.client, Client::Player(76_561_198_000_000_042));
    let scopes = Scopes { reads: true, commands: true, ..Scopes::default() };
    assert_eq!((permit.scopes, permit.check(1_767_225_600)), (scopes, Ok(())));
}
