//! The page's map in a real browser: how many frames a second it draws, and how long one takes.
//! The browser has no graphics card here, so it draws on the cores that play the game.

use crate::{Size, say};
use serde_json::Value;
use support::browser::{Browser, Look};
use support::playing::Playing;

const LOOK: Look = Look { width: 1440, height: 960, is_dark: false };

/// From now on the page notes how long each frame takes to draw.
const TIME_FRAMES: &str = "window.took = []; const drawn = page.drawZone; \
     page.drawZone = (...moment) => { const at = performance.now(); \
         drawn.apply(page, moment); took.push(performance.now() - at); }; return true;";

/// How many frames there were, the median and 99th percentile of their times in milliseconds, and
/// how many players were on the screen.
const FRAMES: &str = "took.sort((a, b) => a - b); \
     const at = (q) => took[Math.floor(q * took.length)]; \
     return import(`${location.origin}/page.js`).then(({ page }) => \
         [took.length, at(.5), at(.99), page.map.visible.length]);";

pub(crate) fn page(size: &Size) {
    let Some(browser) = Browser::start() else { return };
    let players = size.players_on_page.to_string();
    let rate = (4 * size.players_on_page).to_string();
    let playing = Playing::start(&["--rate", &rate, "--players", &players, "--partitions", "1"]);
    browser.look(LOOK);
    browser.open(&format!("http://{}/#zone=0", playing.address));
    let half = size.players_on_page / 2;
    browser.wait_until_page(&format!("return page.zone?.players.size > {half}"));
    browser.wait_until_page(TIME_FRAMES);
    std::thread::sleep(size.time);
    let frames = browser.run(FRAMES);
    let number = |at: usize| frames.get(at).and_then(Value::as_f64).expect("a number");
    say(&format!(
        "page: {:.0} frames/s of {:.0} players, {rate} events/s; drawing one takes p50 {:.1}, \
         p99 {:.1} ms",
        number(0) / size.time.as_secs_f64(),
        number(3),
        number(1),
        number(2),
    ));
}
