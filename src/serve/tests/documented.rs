//! The schemas of the OpenAPI document: answers are what they say, and the names are the engine's.

use super::ROUTES;
use super::contract::{PLAYERS, RandomWorld, ZONES};
use super::schema::Schemas;
use super::text_of;
use crate::decoder::tests::corpus::{ACCEPTED, REFUSED, cases};
use crate::decoder::{Decoder, reject::Reject};
use crate::hunt::event::EVENTS;
use crate::hunt::queries::VIEW_SCHEMA;
use crate::hunt::refusal::{Effect, Hint, HuntEndCause};
use crate::kit::update::Update;
use crate::serve::answers::{AsOf, Served, ZoneState};
use crate::serve::command::{Appended, Stamps, commands};
use crate::serve::exchange::{Exchange, ExchangeNeed};
use crate::serve::gate::Gate;
use crate::serve::openapi;
use crate::serve::routes::TICKET;
use crate::testing::hostile_zone::rulebook;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

static DOCUMENT: LazyLock<Value> = LazyLock::new(|| {
    serde_json::from_str(&openapi::document(&VIEW_SCHEMA)).expect("the document is JSON")
});

/// Parts of the document that answers do not show: what is posted.
const POSTED: [&str; 3] = ["Event", "Events", "Handoff"];

/// Checks an answer by what the document has for its route and status.
pub(super) fn check(method: &str, target: &str, answer: &str) {
    Shown::default().check(method, target, answer);
}

/// Checks events of a stream.
pub(super) fn check_events(text: &str) {
    let stream = "/paths/~1v1~1stream/get/responses/200/content/text~1event-stream";
    Shown::default().check_events(stream, text);
}

/// Checks an event of a WebSocket.
pub(super) fn check_socket_event(event: &Value) {
    let name = event["event"].as_str().expect("it has a name");
    let responses = "/paths/~1v1~1stream/get/responses";
    let mut shown = Shown::default();
    match name {
        "answer" => {
            let at = format!("{responses}/101/x-messages/answer");
            shown.check_part(&at, name, &event.to_string());
        }
        _ => {
            let at = format!("{responses}/200/content/text~1event-stream/x-events/{name}");
            shown.check_part(&at, name, &event["data"].to_string());
        }
    }
}

/// Which parts of the document answers have shown, as JSON pointers.
#[derive(Default)]
struct Shown(BTreeSet<String>);

impl Shown {
    fn check(&mut self, method: &str, target: &str, answer: &str) {
        let (head, body) = answer.split_once("\r\n\r\n").expect("an answer has a head");
        let content_type = head.lines().find_map(|line| line.strip_prefix("Content-Type: "));
        let response = response(method, target, &head["HTTP/1.1 ".len()..][..3]);
        let Some(response) = response else {
            // No route: the page and the probes, or a problem.
            if content_type == Some("application/problem+json") {
                self.check_part("/components/schemas/Problem", target, body);
            }
            return;
        };
        let documented = DOCUMENT.pointer(&response).expect("it was found");
        let Some(content) = documented.get("content").and_then(Value::as_object) else {
            assert_eq!((content_type, body), (None, ""), "{method} {target}");
            self.0.insert(response);
            return;
        };
        let types: Vec<&str> = content.keys().map(String::as_str).collect();
        assert_eq!(types, Vec::from_iter(content_type), "{method} {target}");
        let content = format!("{response}/content/{}", types[0].replace('/', "~1"));
        match types[0] {
            "text/event-stream" => self.check_events(&content, body),
            _ => self.check_part(&format!("{content}/schema"), target, body),
        }
        self.0.insert(response);
    }

    /// Checks the events of a part of a stream.
    fn check_events(&mut self, content: &str, text: &str) {
        for event in text.split("\n\n").filter(|event| event.starts_with("event: ")) {
            let mut lines = event.lines();
            let name = lines.find_map(|line| line.strip_prefix("event: ")).expect("it has a name");
            let data = lines.find_map(|line| line.strip_prefix("data: ")).expect("it has data");
            let at = format!("{content}/x-events/{name}");
            self.check_part(&at, name, data);
            self.0.insert(at);
        }
    }

    fn check_part(&mut self, at: &str, what: &str, text: &str) {
        let value =
            serde_json::from_str(text).unwrap_or_else(|why| panic!("{what}: {why}: {text}"));
        let seen = std::mem::take(&mut self.0);
        let mut schemas = Schemas { document: &DOCUMENT, seen };
        let checked = schemas.check(at, &value);
        checked.unwrap_or_else(|why| panic!("{what}:\n{why}\n{text}"));
        self.0 = schemas.seen;
    }
}

/// Where the document has the answer of a status; `None`: the method or the path is no route's.
fn response(method: &str, target: &str, status: &str) -> Option<String> {
    let (path, _) = target.split_once('?').unwrap_or((target, ""));
    let is_it = |template: &str| {
        let (asked, parts) = (path.split('/'), template.split('/'));
        asked.clone().count() == parts.clone().count()
            && asked.zip(parts).all(|(asked, part)| part.starts_with('{') || asked == part)
    };
    let method = method.to_ascii_lowercase();
    let route = ROUTES.iter().find(|(of, template)| *of == method && is_it(template));
    let (method, path) = route?;
    let at = format!("/paths/{}/{method}/responses/{status}", path.replace('/', "~1"));
    let response = DOCUMENT.pointer(&at).unwrap_or_else(|| panic!("{target}: no status {status}"));
    Some(match response.get("$ref").and_then(Value::as_str) {
        Some(of_all) => of_all.trim_start_matches('#').to_owned(),
        None => at,
    })
}

/// All that is under these parts and has this name, as JSON pointers.
fn find(at: &str, part: &Value, name: &str, found: &mut BTreeSet<String>) {
    let under = |key: &str| format!("{at}/{}", key.replace('/', "~1"));
    if let Some(object) = part.as_object() {
        for (key, value) in object {
            if let (true, Some(named)) = (key == name, value.as_object()) {
                found.extend(named.keys().map(|one| format!("{}/{one}", under(key))));
            }
            find(&under(key), value, name, found);
        }
    }
    for (number, value) in part.as_array().into_iter().flatten().enumerate() {
        find(&under(&number.to_string()), value, name, found);
    }
}

/// All that answers are to show: the properties, the streams' events, and what each route answers
/// when nothing is wrong.
fn all() -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for (name, schema) in DOCUMENT["components"]["schemas"].as_object().expect("an object") {
        if !POSTED.contains(&name.as_str()) {
            find(&format!("/components/schemas/{name}"), schema, "properties", &mut all);
        }
    }
    find("/paths", &DOCUMENT["paths"], "x-events", &mut all);
    let mut responses = BTreeSet::new();
    find("/paths", &DOCUMENT["paths"], "responses", &mut responses);
    all.extend(responses.into_iter().filter(|at| at.contains("/responses/2")));
    all
}

fn ask(shown: &mut Shown, served: &Served, target: &str) {
    let mut exchange = Exchange::default();
    exchange.receive(format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes());
    exchange.advance(served, &Gate::open(), 0);
    shown.check("GET", target, &text_of(&exchange));
}

/// Everything that can be asked of a world.
fn ask_all(shown: &mut Shown, served: &Served) {
    let mut exchange = Exchange::default();
    let head = format!("POST {TICKET} HTTP/1.1\r\nHost: localhost");
    exchange.receive(format!("{head}\r\nContent-Type: application/json\r\n\r\n").as_bytes());
    exchange.advance(served, &Gate::open(), 0);
    shown.check("POST", TICKET, &text_of(&exchange));
    let targets = ["/v1/zones", "/v1/boards/world?count=100", "/v1/openapi.json"];
    targets.into_iter().for_each(|target| ask(shown, served, target));
    for zone in 0..ZONES {
        for target in [
            "boards/{}?from=2",
            "zones/{}/tiles",
            "zones/{}/tiles?since=9",
            "zones/{}/hunts",
            "zones/{}/players?count=2",
        ] {
            ask(shown, served, &format!("/v1/{}", target.replace("{}", &zone.to_string())));
        }
    }
    for player in 1..=PLAYERS {
        for target in [
            "players/{}",
            "players/{}?after=0:99999",
            "players/{}/poll?after=1:99999",
            "boards/world?around={}",
            "boards/1?around={}",
        ] {
            ask(shown, served, &format!("/v1/{}", target.replace("{}", &player.to_string())));
        }
    }
}

/// Posts events that were appended at these offsets of a zone.
fn post(shown: &mut Shown, served: &Served, zone: u16, body: &str, offsets: &[i64]) {
    let target = format!("/v1/events?zone={zone}&wait_ms=0");
    let head = format!(
        "POST {target} HTTP/1.1\r\nHost: localhost\r\n\
        Content-Type: application/json\r\nContent-Length: {}",
        body.len()
    );
    let mut exchange = Exchange::default();
    exchange.receive(format!("{head}\r\n\r\n{body}").as_bytes());
    assert_eq!(exchange.advance(served, &Gate::open(), 0), ExchangeNeed::Post);
    let (mut decoder, mut stamps) = (Decoder::new(&EVENTS), Stamps::default());
    let (posted, zone, pass) = exchange.posted().expect("it was posted");
    let stamp = || stamps.next(1);
    let made = commands((posted, zone, &pass), served, &mut decoder, stamp).expect("events");
    let appended = made.into_iter().zip(offsets.iter().map(|offset| Appended::At(*offset)));
    exchange.append(Ok(appended.collect()));
    exchange.advance(served, &Gate::open(), 0);
    shown.check("POST", &target, &text_of(&exchange));
}

/// A post of the event that has made these updates, as far as a post is answered by them.
fn event_of(updates: &[Update]) -> String {
    let player = updates.iter().map(Update::player_id).find(|player| *player != 0).unwrap_or(1);
    let ts_us = updates.first().map_or(0, Update::ts_us);
    format!(r#"{{"type":"loot","player_id":"{player}","seq":1,"ts_us":{ts_us}}}"#)
}

#[test]
fn all_answers_are_what_the_document_says_and_together_they_show_all_of_it() {
    let mut shown = Shown::default();
    for seed in 200..210 {
        let mut world = RandomWorld::new(seed);
        let mut served = world.served();
        let zones =
            "zone=0&zone=1&zone=2&player=1&player=99&board=world&around=2&radius=9000&every_ms=50";
        let target = format!("/v1/stream?{zones}");
        // Of each second stream the client has read updates that no process has.
        let id = if seed % 2 == 0 { "" } else { "0:9999999" };
        let mut stream = Exchange::default();
        let head = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nLast-Event-ID: {id}");
        stream.receive(format!("{head}\r\n\r\n").as_bytes());
        let mut read = String::new();
        for event in 0..2_000_u64 {
            let (zone, updates, next_offset) = world.play();
            served.fold(zone, &updates);
            served.seal(zone, next_offset, 1, 0);
            if event % 5 == 0 {
                let posted = event_of(&updates);
                post(&mut shown, &served, zone, &posted, &[next_offset - 1]);
                let twice = format!("[{posted},{posted}]");
                for offset in [next_offset - 1, next_offset] {
                    post(&mut shown, &served, zone, &twice, &[next_offset - 1, offset]);
                }
            }
            for _ in 0..4 {
                stream.advance(&served, &Gate::open(), 50 * event);
                read += &text_of(&stream);
                stream.take_unsent();
            }
            if event % 50 == 0 {
                ask_all(&mut shown, &served);
            }
        }
        // Owners fall silent, and one of them is heard again.
        served.pass_time(Instant::now() + Duration::from_secs(60));
        ask(&mut shown, &served, "/v1/zones");
        stream.advance(&served, &Gate::open(), 900_000);
        read += &text_of(&stream);
        stream.take_unsent();
        served.hear_owner(0, 1, served.now());
        stream.advance(&served, &Gate::open(), 910_000);
        read += &text_of(&stream);
        stream.take_unsent();
        // A process that begins now has none of the updates.
        let mut later = world.served();
        post(&mut shown, &later, 0, &event_of(&[]), &[0]);
        later.as_of = Some(AsOf { zone: 0, offset: 3, time_ms: 5 });
        later.zones[1] = ZoneState::Loading;
        later.halt(2, "its log was cut".to_owned());
        ask(&mut shown, &later, "/v1/zones");
        served.halt(0, "its log was cut".to_owned());
        stream.advance(&served, &Gate::open(), 1_000_000);
        shown.check("GET", &target, &(read + &text_of(&stream)));
    }
    let loading = Served::new(&rulebook(false), 2, Duration::from_secs(2));
    ask(&mut shown, &loading, "/v1/zones");
    ask(&mut shown, &loading, "/v1/players/1");
    let missing: Vec<String> = all().difference(&shown.0).cloned().collect();
    assert!(missing.is_empty(), "no answer has shown {missing:#?}");
}

/// The names that the schema at this place allows.
fn names(at: &str) -> Vec<&str> {
    let names = DOCUMENT.pointer(at).and_then(Value::as_array).expect("a list of names");
    names.iter().map(|name| name.as_str().expect("a name")).collect()
}

#[test]
fn the_document_has_the_engine_s_names() {
    let card = "/components/schemas/Card/properties";
    let past = "/components/schemas/Hunts/properties/past/items/properties";
    assert_eq!(names(&format!("{card}/effects/items/properties/effect/enum")), Effect::NAMES);
    assert_eq!(names(&format!("{card}/hint/properties/hint/enum")), Hint::NAMES);
    assert_eq!(names(&format!("{past}/cause/enum")), HuntEndCause::NAMES);
    let responses = DOCUMENT["components"]["responses"].as_object().expect("an object");
    let mut statuses: Vec<u64> = responses.keys().map(|status| status.parse().unwrap()).collect();
    // What has no such method is no route of the document.
    statuses.push(405);
    statuses.sort_unstable();
    let status = DOCUMENT.pointer("/components/schemas/Problem/properties/status/enum");
    assert_eq!(status, Some(&json!(statuses)));
}

#[test]
fn what_the_decoder_takes_is_an_event_of_the_document_and_what_it_takes_no_field_of_is_none() {
    let is_event = |record: &[u8]| {
        let value = serde_json::from_slice(record).expect("it is JSON");
        let mut schemas = Schemas { document: &DOCUMENT, seen: BTreeSet::new() };
        schemas.check("/components/schemas/Event", &value)
    };
    for case in cases(ACCEPTED) {
        is_event(&case.record).unwrap_or_else(|why| panic!("{}:\n{why}", case.name));
    }
    let of_fields =
        [Reject::WrongType, Reject::OutOfRange, Reject::UnknownType, Reject::MissingField];
    for case in cases(REFUSED) {
        if of_fields.iter().any(|reject| reject.name() == case.expected) {
            // A post may leave out what these lack.
            let is_stamped = ["no seq", "no ts_us", "a tick without an id"].contains(&case.name);
            assert_eq!(is_event(&case.record).is_ok(), is_stamped, "{}", case.name);
        }
    }
}
