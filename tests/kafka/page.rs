//! The page in a real browser, beside a daemon and a real broker.

use crate::snapshots::{settings, start};
use support::browser::Browser;
use support::daemon::Topics;
use support::kafka;
use support::serving::Serving;

/// Events that are posted at once: so many that their rate is seen, however slow the page is.
const MANY: u64 = 64;

/// A `seq` that is later than those of the time.
const LATE: u64 = 9_000_000_000_000_000;

fn post(serving: &Serving, body: &str) {
    let (status, answer) = serving.post("/v1/events?zone=0&wait_ms=10000", body);
    assert_eq!(status, "200", "{answer}");
}

/// Posts more events, and looks how the page counts all: two were applied before, and one was
/// refused.
fn check_counts(browser: &Browser, serving: &Serving) {
    // Events of one time are told apart.
    let turn = |player: u64, number: u64| {
        let turn = format!(r#""type":"rotate","player_id":{player},"heading":{number}"#);
        format!(r#"{{{turn},"seq":{},"ts_us":5}}"#, LATE + number)
    };
    let list = |events: Vec<String>| format!("[{}]", events.join(","));
    let is_shown = |name: &str| {
        browser.wait_until(&format!(
            "return Number(document.getElementById('{name}').textContent) > 0"
        ));
    };
    post(serving, &list((1..=MANY).map(|seq| turn(7, seq)).collect()));
    is_shown("applied");
    post(serving, &list(vec![turn(7, 1); MANY as usize]));
    is_shown("no-op");
    post(serving, &list((1..=MANY).map(|seq| turn(8, seq)).collect()));
    is_shown("refused");
    browser.wait_until(&format!(
        "const {{ applied, refused, noOp }} = count.total; \
         return applied === {} && refused === {} && noOp === {MANY}",
        2 + MANY,
        1 + MANY,
    ));
}

#[test]
fn a_posted_event_moves_a_player_on_the_page_and_the_page_outlives_a_restart() {
    let Some(browser) = Browser::start() else { return };
    let topics = Topics::create(kafka::shared(), "page", 1);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut settings = settings(folder.path());
    // Nothing happens but what is posted.
    settings.push(("input", "tick_every_ms = 0".to_owned()));
    let mut huntd = start(&topics, &settings, &[]);
    huntd.wait_for_address();
    let serving = Serving::start(&huntd);
    serving.body_at(&[0], "/v1/zones");
    browser.open(&format!("http://{}/", serving.address()));
    browser.wait_until("return document.getElementById('link').textContent === 'live'");
    browser.wait_until("return document.getElementById('board').rows.length === 0");
    post(&serving, r#"{"type":"join","player_id":7,"x":1000,"y":2000}"#);
    browser.wait_until("return String(players.get('7')) === '1000,2000'");
    browser.wait_until(
        "return document.getElementById('board').rows[0]?.cells[1].textContent === '7'",
    );
    let is_drawn = |x: u32, y: u32| {
        browser.wait_until(&format!(
            "const s = canvas.width / map.side; \
             return pen.getImageData({x} * s, canvas.height - {y} * s, 1, 1).data[3] > 0;"
        ));
    };
    is_drawn(1000, 2000);
    post(&serving, r#"{"type":"move","player_id":7,"x":1040,"y":2000}"#);
    browser.wait_until("return String(players.get('7')) === '1040,2000'");
    // What is refused is in the feed, with its reason.
    browser.run("follow('7')");
    post(&serving, r#"{"type":"loot","player_id":7}"#);
    browser.wait_until(
        "const line = document.querySelector('#feed .refused'); \
         return line !== null && line.textContent.includes('nothing_in_reach')",
    );
    check_counts(&browser, &serving);
    assert_eq!(browser.errors(), Vec::<String>::new());
    let address = serving.address().to_owned();
    drop(serving);
    browser.wait_until("return document.getElementById('link').textContent === 'reconnecting'");
    let serving = Serving::start_at(&huntd, &address, &[]);
    // The page is linked before the zone is loaded.
    serving.body_at(&[0], "/v1/zones");
    browser.wait_until("return document.getElementById('link').textContent === 'live'");
    let later = LATE + 1 + MANY;
    let step = format!(r#"{{"type":"move","player_id":7,"seq":{later},"x":1080,"y":2000}}"#);
    post(&serving, &step);
    browser.wait_until("return String(players.get('7')) === '1080,2000'");
    // A page that is opened while nothing happens asks where the players are.
    browser.open(&format!("http://{}/", serving.address()));
    browser.wait_until("return String(players.get('7')) === '1080,2000'");
}
