//! The page in a real browser, beside a daemon and a real broker.

use crate::players::{events, produce};
use crate::serving::{SECRET, TOKEN};
use crate::snapshots::{settings, start};
use support::browser::Browser;
use support::daemon::{Huntd, Topics};
use support::kafka;
use support::serving::Serving;
use tempfile::TempDir;

/// Events that are posted at once: so many that their rate is seen, however slow the page is.
const MANY: u64 = 64;

/// A `seq` that is later than those of the time.
const LATE: u64 = 9_000_000_000_000_000;

/// Starts a daemon in whose zones nothing happens but what is posted, and a process that serves
/// them. Its snapshots are in the folder.
fn start_without_ticks(topics: &Topics) -> (TempDir, Huntd, Serving) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut settings = settings(folder.path());
    settings.push(("input", "tick_every_ms = 0".to_owned()));
    let mut huntd = start(topics, &settings, &[]);
    huntd.wait_for_address();
    let serving = Serving::start(&huntd);
    serving.body_at(&vec![0; topics.partitions as usize], "/v1/zones");
    (folder, huntd, serving)
}

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
    browser.wait_until_page(&format!(
        "const {{ applied, refused, noOp }} = page.zone.count.total; \
         return applied === {} && refused === {} && noOp === {MANY}",
        2 + MANY,
        1 + MANY,
    ));
}

/// Lets a question about the zone fail once, after which the page is live again.
fn check_failed_question(browser: &Browser) {
    browser.wait_until_page(
        "return import(`${location.origin}/link.js`).then(({ link }) => { \
         link.get = async () => { delete link.get; throw new Error('nobody answers'); }; \
         page.zone.loadHunts(); return true; })",
    );
    browser.wait_for_text("link", "connecting");
    browser.wait_for_text("link", "live");
}

/// Opens an address of what is not there, which the page says, and goes back to one that is there.
fn check_wrong_address(browser: &Browser) {
    let go = |hash: &str| browser.run(&format!("location.hash = '{hash}'; return null;"));
    let says = |name: &str, text: &str| {
        browser.wait_until(&format!(
            "return document.getElementById('{name}').textContent === \"{text}\""
        ));
    };
    go("zone=99&player=99999999999999999999");
    says("alarm-title", "The zone cannot be shown");
    says("alarm-text", "zone 99 is none of the world's");
    says("player-state", "write `player` as a player's number");
    // A refused request is an error in the browser's log.
    browser.errors();
    go("zone=0&player=7");
    browser.wait_until("return document.getElementById('alarm').hidden");
    says("player-state", "Well");
}

/// Waits until a player is at this place, on the page and on its map.
fn is_at(browser: &Browser, player: u64, x: u32, y: u32) {
    browser.wait_until_page(&format!(
        "const player = page.zone?.players.get('{player}'); \
         if (player?.x !== {x} || player.y !== {y}) return false; \
         const shown = page.map.visible.find((one) => one.id === '{player}'); \
         return Math.round(shown?.shownX) === {x} && Math.round(shown.shownY) === {y}"
    ));
}

#[test]
fn a_posted_event_moves_a_player_on_the_page_and_the_page_outlives_a_restart() {
    let Some(browser) = Browser::start() else { return };
    let topics = Topics::create(kafka::shared(), "page", 1);
    let (_folder, huntd, serving) = start_without_ticks(&topics);
    browser.open(&format!("http://{}/#zone=0", serving.address()));
    browser.wait_for_text("link", "live");
    browser.wait_until("return document.getElementById('nobody').checkVisibility()");
    check_failed_question(&browser);
    post(&serving, r#"{"type":"join","player_id":7,"x":1000,"y":2000}"#);
    is_at(&browser, 7, 1000, 2000);
    browser.wait_until("return document.getElementById('board').rows.length === 1");
    post(&serving, r#"{"type":"move","player_id":7,"x":1040,"y":2000}"#);
    is_at(&browser, 7, 1040, 2000);
    // What is refused is in the feed, with its reason.
    browser.open(&format!("http://{}/#zone=0&player=7", serving.address()));
    browser.wait_for_text("player-state", "Well");
    post(&serving, r#"{"type":"loot","player_id":7}"#);
    browser.wait_until(
        "const line = document.querySelector('#player-feed .refused'); \
         return line !== null && line.textContent.includes('nothing in reach')",
    );
    check_counts(&browser, &serving);
    check_wrong_address(&browser);
    assert_eq!(browser.errors(), Vec::<String>::new());
    let address = serving.address().to_owned();
    drop(serving);
    browser.wait_for_text("alarm-title", "Connection lost");
    let serving = Serving::start_at(&huntd, &address, &[]);
    // The page is linked before the zone is loaded.
    serving.body_at(&[0], "/v1/zones");
    browser.wait_until("return document.getElementById('alarm').hidden");
    browser.wait_for_text("link", "live");
    let later = LATE + 1 + MANY;
    let step = format!(r#"{{"type":"move","player_id":7,"seq":{later},"x":1080,"y":2000}}"#);
    post(&serving, &step);
    is_at(&browser, 7, 1080, 2000);
    // A page that is opened while nothing happens asks where the players are.
    browser.open("about:blank");
    browser.open(&format!("http://{}/#zone=0", serving.address()));
    is_at(&browser, 7, 1080, 2000);
}

#[test]
fn one_goes_back_from_a_followed_player_and_looks_back_while_the_player_crosses_zones() {
    let Some(browser) = Browser::start() else { return };
    let topics = Topics::create(kafka::shared(), "page-back", 2);
    let (_folder, _huntd, serving) = start_without_ticks(&topics);
    post(&serving, r#"{"type":"join","player_id":7,"x":1000,"y":2000}"#);
    let is_at = |hash: &str| browser.wait_until(&format!("return location.hash === '{hash}'"));
    let cross = |from: u64, to: u64| {
        let leave = format!(r#"{{"type":"leave","player_id":7,"to_zone":{to}}}"#);
        let (status, answer) =
            serving.post(&format!("/v1/events?zone={from}&wait_ms=10000"), &leave);
        assert_eq!(status, "200", "{answer}");
        browser.wait_until_page(&format!("return page.player.zone === {to}"));
    };
    browser.open(&format!("http://{}/", serving.address()));
    browser.wait_until_page("page.choose('7'); return true");
    is_at("#zone=0&player=7");
    // Back is where the player was chosen, and not where the player is.
    browser.run("history.back(); return null;");
    is_at("#player=7");
    browser.wait_until_page("return page.zone === null && page.player.zone === 0");
    browser.run("history.forward(); return null;");
    is_at("#zone=0&player=7");
    // A zone that the player enters is not a step to go back to.
    let steps = browser.run("return history.length");
    cross(0, 1);
    is_at("#zone=1&player=7");
    assert_eq!(browser.run("return history.length"), steps);
    // Who looks back stays where that was.
    browser.wait_until_page("page.timeline.toggle(); return true");
    cross(1, 0);
    browser.wait_until_page("return page.movedTo === 0 && page.zone.number === 1");
    is_at("#zone=1&player=7");
    browser.run("document.getElementById('to-live').click(); return null;");
    is_at("#zone=0&player=7");
    assert_eq!(browser.errors(), Vec::<String>::new());
}

#[test]
fn the_page_asks_for_a_token_refuses_a_wrong_one_and_tells_when_nobody_plays_a_zone() {
    let Some(browser) = Browser::start() else { return };
    let topics = Topics::create(kafka::shared(), "page-token", 1);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut huntd = start(&topics, &settings(folder.path()), &[]);
    huntd.wait_for_address();
    let keys = folder.path().join("keys.json");
    let key = format!(r#"{{"kty":"oct","kid":"one","k":"{SECRET}"}}"#);
    std::fs::write(&keys, format!(r#"{{"keys":[{key}]}}"#)).expect("the file is written");
    let keys = keys.to_str().expect("the path is text");
    let serving = Serving::start_at(&huntd, "127.0.0.1:0", &[("HUNTD_SERVE__KEYS", keys)]);
    browser.open(&format!("http://{}/#zone=0", serving.address()));
    let enter = |token: &str| {
        browser.run(&format!(
            "document.getElementById('token').value = '{token}'; \
             document.querySelector('#door button').click()"
        ));
    };
    browser.wait_for_text("alarm-title", "A token is needed");
    enter("wrong");
    browser.wait_for_text("alarm-title", "Wrong token");
    enter(TOKEN);
    browser.wait_for_text("link", "live");
    browser.wait_until("return document.getElementById('alarm').hidden");
    drop(huntd);
    browser.wait_for_text("alarm-title", "Zone 0 is stale");
    browser.wait_until("return document.body.classList.contains('old')");
}

#[test]
fn the_page_says_after_which_record_and_when_it_shows_a_zone() {
    let Some(browser) = Browser::start() else { return };
    let topics = Topics::create(kafka::shared(), "page-moment", 1);
    produce(kafka::shared(), &topics, &events(1, 3, 1..=2));
    let mut huntd = Huntd::start(kafka::shared(), &topics, &[]);
    huntd.wait_for_address();
    let showing = Serving::start_showing(&huntd, "0:2");
    showing.body_at(&[3], "/v1/zones");
    browser.open(&format!("http://{}/#zone=0", showing.address()));
    browser.wait_until(
        r"return /^as of 0:2, 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} UTC$/
            .test(document.getElementById('as-of').textContent)",
    );
    browser.wait_until("return document.getElementById('as-of').checkVisibility()");
    assert_eq!(browser.errors(), Vec::<String>::new());
}
