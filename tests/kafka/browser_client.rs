//! The client for browsers, and the game that is written with it, in a real browser.

use crate::cross_origin::awaited;
use crate::serving::SECRET;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use support::browser::Browser;
use support::daemon::{Huntd, Topics};
use support::kafka;
use support::serving::Serving;

/// A token of player 42, who may also enter, and one of the game's server. [`SECRET`] has signed
/// them as the key `one`.
const PLAYER: &str = "eyJhbGciOiJIUzI1NiIsImtpZCI6Im9uZSJ9.\
    eyJhdWQiOiJodW50ZCIsImV4cCI6MjUzNDAyMzAwNzk5LCJwbGF5ZXJfaWQiOiI0MiIsInNjb3BlIjoi\
    cmVhZCBjb21tYW5kIGpvaW4ifQ.\
    QgNOA3VLMKGCyzzyM4wHFmRFbmmhInkkR4xFsEztOIU";
const GAME: &str = "eyJhbGciOiJIUzI1NiIsImtpZCI6Im9uZSJ9.\
    eyJhdWQiOiJodW50ZCIsImV4cCI6MjUzNDAyMzAwNzk5LCJzdWIiOiJnYW1lIiwic2NvcGUiOiJyZWFk\
    IGNvbW1hbmQgam9pbiB3b3JsZCJ9.\
    Fzl5760rx4TooIx7__AlTNOdXdpkbvmlj8_UGLxAtPE";

/// The folder of the game, as a static server has it.
const FILES: [(&str, &str, &str); 2] = [
    ("/game.html", "text/html", include_str!("../../docs/clients/browser/game.html")),
    (
        "/huntd-browser.mjs",
        "text/javascript",
        include_str!("../../docs/clients/browser/huntd-browser.mjs"),
    ),
];

/// Serves the folder for the rest of the process. Returns its origin.
fn serve_folder() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it has an address");
    let files: HashMap<&str, (&str, &str)> =
        FILES.into_iter().map(|(path, kind, text)| (path, (kind, text))).collect();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let Ok(mut client) = client else { continue };
            let mut lines = BufReader::new(&client).lines().map_while(Result::ok);
            let request = lines.next().unwrap_or_default();
            while lines.next().is_some_and(|line| !line.is_empty()) {}
            let path = request.split([' ', '?']).nth(1).unwrap_or_default();
            let (kind, text) = files.get(path).copied().unwrap_or(("text/plain", ""));
            let head = "HTTP/1.1 200 OK\r\nConnection: close\r\n";
            let length = text.len();
            let _gone = write!(
                client,
                "{head}Content-Type: {kind}\r\nContent-Length: {length}\r\n\r\n{text}"
            );
        }
    });
    format!("http://{address}")
}

/// What the game's server does, from within the page.
struct GameServer<'a> {
    browser: &'a Browser,
    server: String,
}

impl GameServer<'_> {
    /// Asks until the zone is there. Returns the answer as a text.
    fn ask(&self, method: &str, path: &str, body: &str) -> String {
        let GameServer { server, .. } = self;
        let body = if body.is_empty() { String::new() } else { format!("body: '{body}',") };
        let answer = awaited(
            self.browser,
            &format!(
                "const headers = {{ Authorization: 'Bearer {GAME}', \
                 'Content-Type': 'application/json' }}; \
                 const request = {{ method: '{method}', {body} headers }}; \
                 const ask = () => fetch('{server}{path}', request) \
                 .then((of) => of.status === 503 ? ask() : of.text(), ask); return ask();"
            ),
        );
        answer.as_str().expect("a text").to_owned()
    }

    fn post(&self, event: &str) {
        let answer = self.ask("POST", "/v1/events?zone=0&wait_ms=10000", event);
        assert!(answer.contains("\"outcome\":\"applied\""), "{event}: {answer}");
    }

    /// The place of a treasure.
    fn treasure(&self) -> (i64, i64) {
        let tiles = self.ask("GET", "/v1/zones/0/tiles", "");
        let tiles: serde_json::Value = serde_json::from_str(&tiles).expect("JSON");
        let at = |number: usize| tiles["treasures"][0][number].as_i64().expect("a treasure lies");
        (at(2), at(3))
    }
}

#[test]
fn a_game_of_another_origin_plays_the_hunt_sees_others_come_and_go_and_outlives_a_killed_server() {
    let Some(browser) = Browser::start() else { return };
    let topics = Topics::create(kafka::shared(), "browser-game", 1);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut huntd = Huntd::start(kafka::shared(), &topics, &[("input", "tick_every_ms = 100")]);
    huntd.wait_for_address();
    let origin = serve_folder();
    let keys = folder.path().join("keys.json");
    let key = format!(r#"{{"kty":"oct","kid":"one","k":"{SECRET}"}}"#);
    std::fs::write(&keys, format!(r#"{{"keys":[{key}]}}"#)).expect("the file is written");
    let keys = keys.to_str().expect("the path is text");
    let environment = [("HUNTD_SERVE__KEYS", keys), ("HUNTD_SERVE__ORIGINS", origin.as_str())];
    let serving = Serving::start_with(&huntd, &environment);
    let address = serving.address().to_owned();
    browser.open(&format!("{origin}/nothing"));
    let game = GameServer { browser: &browser, server: format!("http://{address}") };
    game.post(r#"{"type":"hunt_start","hunt":1,"seed":5,"treasures":3,"duration_ms":600000}"#);
    let (x, y) = game.treasure();
    browser.errors();

    browser.open(&format!(
        "{origin}/game.html?server=http://{address}&token={PLAYER}&player=42&zone=0&x={x}&y={y}"
    ));
    let has = |id: &str, text: &str| {
        browser.wait_until(&format!(
            "return document.getElementById('{id}').textContent.includes('{text}')"
        ));
    };
    let press = |key: &str| {
        browser.run(&format!(
            "dispatchEvent(new KeyboardEvent('keydown', {{ key: '{key}' }})); return null;"
        ));
    };
    has("state", "open");
    has("log", "join: applied");
    has("me", &format!("{x}, {y}, health 100"));
    press("l");
    has("log", "loot: applied");
    // Walls may be on one side.
    press("ArrowRight");
    press("ArrowLeft");
    has("log", "move: applied");

    let join = |id: u64, x: i64| {
        game.post(&format!(r#"{{"type":"join","player_id":{id},"x":{x},"y":{y}}}"#));
    };
    join(7, x);
    has("around", "7");
    has("log", "7 came");
    game.post(r#"{"type":"leave","player_id":7}"#);
    has("around", "nobody");
    has("log", "7 went");
    assert_eq!(browser.errors(), Vec::<String>::new());

    drop(serving);
    has("state", "lost");
    // What is pressed meanwhile is sent when the server is there again.
    browser.run("document.getElementById('log').replaceChildren(); return null;");
    press("ArrowLeft");
    let _serving = Serving::start_at(&huntd, &address, &environment);
    has("state", "open");
    has("log", "move: ");
    join(8, x);
    has("log", "8 came");
    press("Escape");
    has("log", "leave: applied");
    has("me", "nowhere");
}
