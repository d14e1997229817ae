//! A page of another origin in a real browser, with a token, a ticket and the program of the
//! documentation.

use crate::serving::{SECRET, TOKEN};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use support::browser::Browser;
use support::daemon::{Huntd, Topics};
use support::kafka;
use support::serving::Serving;

/// Serves one page to everybody who asks, for the rest of the process. Returns its origin.
fn serve_page(page: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it has an address");
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let Ok(mut client) = client else { continue };
            let mut lines = BufReader::new(&client).lines();
            while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n";
            let _gone = write!(client, "{head}Content-Length: {}\r\n\r\n{page}", page.len());
        }
    });
    format!("http://{address}")
}

/// The block of `docs/QUERIES.md` that begins so.
fn documented(begin: &str) -> &'static str {
    let text = include_str!("../../docs/QUERIES.md");
    let (_, rest) = text.split_once(begin).expect("the page has it");
    rest.split_once("```").expect("it ends").0
}

/// Runs an asynchronous script in the page. Returns its result, or its error as a text.
pub(crate) fn awaited(browser: &Browser, script: &str) -> Value {
    browser.run(&format!(
        "window.result = undefined; \
         (async () => {{ {script} }})().then((of) => {{ window.result = of; }}, \
         (error) => {{ window.result = String(error); }}); return null;"
    ));
    browser.wait_until("return window.result !== undefined");
    browser.run("return window.result")
}

#[test]
fn a_page_of_an_origin_that_is_served_asks_and_follows_a_zone_and_another_page_does_not() {
    let Some(browser) = Browser::start() else { return };
    let topics = Topics::create(kafka::shared(), "cross-origin", 1);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut huntd = Huntd::start(kafka::shared(), &topics, &[("input", "tick_every_ms = 100")]);
    huntd.wait_for_address();
    let page = "<!doctype html><link rel=icon href=data:,><title>a game</title>";
    let [game, foreign] = [serve_page(page), serve_page(page)];
    let keys = folder.path().join("keys.json");
    let key = format!(r#"{{"kty":"oct","kid":"one","k":"{SECRET}"}}"#);
    std::fs::write(&keys, format!(r#"{{"keys":[{key}]}}"#)).expect("the file is written");
    let keys = keys.to_str().expect("the path is text");
    let environment = [("HUNTD_SERVE__KEYS", keys), ("HUNTD_SERVE__ORIGINS", game.as_str())];
    let serving = Serving::start_with(&huntd, &environment);
    let server = format!("http://{}", serving.address());
    // The token goes along, so the browser asks before. At first the zone is not known yet.
    let ask = format!(
        "const headers = {{ Authorization: 'Bearer {TOKEN}' }}; \
         const ask = () => fetch('{server}/v1/zones', {{ headers }}); \
         let answer = await ask(); while (answer.status === 503) answer = await ask(); \
         await answer.json(); return answer.status + ' ' + answer.headers.get('Huntd-At');"
    );
    browser.open(&foreign);
    assert_eq!(awaited(&browser, &ask), "TypeError: Failed to fetch");
    browser.errors();
    browser.open(&game);
    assert_eq!(awaited(&browser, &ask), "200 null");
    let at = ask.replace("/v1/zones", "/v1/zones/0/hunts");
    let at = awaited(&browser, &at);
    assert!(at.as_str().is_some_and(|at| at.starts_with("200 0:")), "{at}");
    let refused = awaited(&browser, &ask.replace("Bearer ", "Bearer x"));
    assert_eq!(refused, "401 null", "a page can read why");
    // A refused request is an error in the browser's log.
    browser.errors();
    let program = documented("```js\nasync function follow");
    browser.run(&format!(
        "window.taken = []; window.follow = async function {program}; \
         window.follow('{server}', '{TOKEN}', 'zone=0&board=world', \
         (name, data) => window.taken.push([name, data])); return null;"
    ));
    browser.wait_until("return window.taken.some(([name]) => name === 'at')");
    browser.wait_until("return window.taken.some(([name]) => name === 'board')");
    let kinds = "window.taken.filter(([name]) => name === 'update').map(([, of]) => of.kind)";
    // Ticks go on, so the zone has updates without players.
    browser.wait_until(&format!("return {kinds}.includes('clock')"));
    assert_eq!(browser.errors(), Vec::<String>::new());
    // The stream is cut: the page goes on where it was, with a new ticket.
    let address = serving.address().to_owned();
    drop(serving);
    let before = browser.run("return window.taken.length");
    let _serving = Serving::start_at(&huntd, &address, &environment);
    browser.wait_until(&format!("return window.taken.length > {before}"));
    let resets = "window.taken.filter(([name]) => name === 'at' || name === 'reset').length";
    assert_eq!(browser.run(&format!("return {resets}")), 1, "no update is missing");
}
