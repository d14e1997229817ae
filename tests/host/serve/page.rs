//! The page in a real browser, while a demo plays.

use std::path::Path;
use support::browser::{Browser, Look};
use support::playing::Playing;

/// Where pictures of the page are left, for people to look at.
const PICTURES: &str = env!("CARGO_TARGET_TMPDIR");

const LOOKS: [(&str, Look); 4] = [
    ("desktop-light", Look { width: 1440, height: 900, is_dark: false }),
    ("desktop-dark", Look { width: 1440, height: 900, is_dark: true }),
    ("phone-light", Look { width: 390, height: 844, is_dark: false }),
    ("phone-dark", Look { width: 390, height: 844, is_dark: true }),
];

/// Looks at the page on every screen. Nothing is wider than that.
fn photograph(browser: &Browser, what: &str) {
    for (name, look) in LOOKS {
        browser.look(look);
        // The page has drawn itself with the new size and colours.
        browser.wait_until(
            "return new Promise((done) => requestAnimationFrame(() => \
             requestAnimationFrame(() => done(true))))",
        );
        let too_wide = "return document.documentElement.scrollWidth > window.innerWidth";
        assert_eq!(browser.run(too_wide), false, "{what}, {name}: wider than the screen");
        browser.photograph(&Path::new(PICTURES).join(format!("page-{what}-{name}.png")));
    }
    browser.look(LOOKS[0].1);
}

fn click(browser: &Browser, selector: &str) {
    browser.run(&format!("document.querySelector('{selector}').click()"));
}

/// Somebody is followed: the map is near it, and its card is there.
fn is_followed(browser: &Browser) {
    browser.wait_until("return document.getElementById('card').childElementCount >= 5");
    browser.wait_until_page(
        "const me = page.zone?.players.get(page.player.id); if (!me) return false; \
         const [x, y] = page.camera.toScreen(me.shownX, me.shownY); \
         return !page.camera.isWhole() && x > 0 && y > 0 \
            && x < page.camera.width && y < page.camera.height",
    );
}

#[test]
fn the_page_shows_the_world_its_zones_and_players_on_every_screen_without_an_error() {
    let Some(browser) = Browser::start() else { return };
    let playing = Playing::start(&["--players", "3000", "--partitions", "2"]);
    browser.look(LOOKS[0].1);
    browser.open(&format!("http://{}/", playing.address));
    browser.wait_for_text("link", "live");
    browser.wait_until("return document.querySelectorAll('.zone').length === 2");
    browser.wait_until("return document.getElementById('board').rows.length === 10");
    browser.wait_until("return document.querySelectorAll('#hunts > li').length === 2");
    // The heat of both zones is painted.
    browser.wait_until(
        "return [...document.querySelectorAll('.zone canvas')].every((canvas) => \
         canvas.getContext('2d').getImageData(0, 0, 240, 240).data.some((byte) => byte > 0))",
    );
    photograph(&browser, "world");

    click(&browser, ".zone[data-zone=\"1\"]");
    browser.wait_until("return location.hash === '#zone=1'");
    browser.wait_for_text("link", "live");
    browser.wait_until_page("return page.zone.players.size > 1000");
    browser.wait_until("return parseInt(document.getElementById('applied').textContent) > 0");
    browser.wait_until("return document.querySelectorAll('#feed .icon').length > 0");
    // Somebody has found something, and stands in the hunt.
    browser.wait_until("return document.querySelectorAll('#hunts .standings li').length > 0");
    // Players are drawn all over the map.
    browser.wait_until_page(
        "const parts = [0, 0, 0, 0], { side } = page.zone.map; \
         for (const { x, y } of page.zone.players.values()) \
           parts[(x > side / 2) + 2 * (y > side / 2)]++; \
         return page.map.visible.length > 1000 && parts.every((part) => part > 100)",
    );
    photograph(&browser, "zone");

    click(&browser, "#board button");
    is_followed(&browser);
    browser.wait_until("return document.getElementById('player-feed').childElementCount > 0");
    photograph(&browser, "player");
    let hash = browser.run("return location.hash");
    let hash = hash.as_str().expect("a text");
    assert!(hash.contains("zone=") && hash.contains("player=7656119800000"), "{hash}");

    // The address alone leads back there.
    browser.open("about:blank");
    browser.open(&format!("http://{}/{hash}", playing.address));
    is_followed(&browser);
    assert_eq!(browser.errors(), Vec::<String>::new());
}

#[test]
fn the_page_zooms_searches_looks_back_and_returns_to_live() {
    let Some(browser) = Browser::start() else { return };
    let playing = Playing::start(&["--players", "600", "--rate", "1000", "--partitions", "2"]);
    browser.look(LOOKS[0].1);
    browser.open(&format!("http://{}/#zone=0", playing.address));
    browser.wait_until_page("return page.zone?.players.size === 300 && page.zone.told === null");

    // The wheel looks nearer at what is under the pointer.
    browser.wait_until_page(
        "const map = document.getElementById('map'), { left, top } = map.getBoundingClientRect(); \
         const at = [page.camera.width / 2 + 40, page.camera.height / 2 - 30]; \
         const before = page.camera.toMap(...at); \
         map.dispatchEvent(new WheelEvent('wheel', { deltaY: -900, cancelable: true, \
           clientX: left + at[0], clientY: top + at[1] })); \
         const after = page.camera.toMap(...at); \
         const way = Math.hypot(before[0] - after[0], before[1] - after[1]); \
         return !page.camera.isWhole() && way < 1000",
    );
    // A player under the pointer is named, and followed with a click.
    browser.wait_until_page(
        "page.camera.fit(); const player = page.map.visible[0]; \
         if (!player) return false; \
         const at = page.camera.toScreen(player.shownX, player.shownY); \
         page.hover(at); \
         const isNamed = !document.getElementById('tip').hidden; \
         page.click(at); return isNamed && page.player.id !== null",
    );
    is_followed(&browser);
    click(&browser, "#unfollow");
    browser.wait_until("return document.getElementById('player-panel').hidden");

    // A player of the other zone is found by its name, and its zone is opened.
    browser.wait_until_page(
        "const input = document.getElementById('search'); input.focus(); \
         return import(`${location.origin}/names.js`).then(({ nameOf }) => { \
           input.value = nameOf('76561198000000001'); \
           input.dispatchEvent(new Event('input')); \
           const found = document.querySelectorAll('#found [role=option]').length === 1; \
           if (found) input.dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter' })); \
           return found; })",
    );
    browser.wait_until("return location.hash === '#zone=1&player=76561198000000001'");
    is_followed(&browser);

    // Looking back, players are where they were.
    browser.wait_until_page("return page.film.pictures.length > 5");
    browser.run(
        "const slider = document.getElementById('slider'); slider.value = -3; \
         slider.dispatchEvent(new Event('input'))",
    );
    browser.wait_until("return document.body.classList.contains('past')");
    browser.wait_until_page(
        "const picture = page.film.pictureAt(performance.now() - page.timeline.back); \
         return page.map.visible.length > 0 && page.map.visible.every((player) => { \
           const at = picture.ids.indexOf(player.id); \
           return Math.abs(picture.x[at] - player.shownX) < 3000; })",
    );
    browser
        .wait_until("return /^0:0[0-9] ago$/.test(document.getElementById('moment').textContent)");
    // A picture keeps no more than it needs, although all of them have been looked at.
    browser.wait_until_page(
        "for (const { when } of page.film.pictures) page.film.playersAt(when); \
         const isIndex = (of, { ids }) => of instanceof Map && of.size === ids.length; \
         return !page.film.pictures.some((picture) => \
           Object.values(picture).some((of) => isIndex(of, picture)))",
    );
    click(&browser, "#to-live");
    browser.wait_for_text("moment", "Live");

    let offset_is_shown = "return document.getElementById('offset').checkVisibility()";
    assert_eq!(browser.run(offset_is_shown), false);
    click(&browser, "#technical");
    assert_eq!(browser.run(offset_is_shown), true);
    assert_eq!(browser.errors(), Vec::<String>::new());
}

#[test]
fn the_page_tells_of_everything_that_makes_it_old() {
    let Some(browser) = Browser::start() else { return };
    let playing = Playing::start(&["--events", "2000", "--partitions", "1"]);
    browser.look(LOOKS[0].1);
    browser.open(&format!("http://{}/#zone=0", playing.address));
    browser.wait_for_text("link", "live");
    let judged = "return import(`${location.origin}/alarm.js`).then(({ judge, show }) => { \
        const well = { silence: 0, hasBeenHeard: true, zone: { zone: 3, state: 'live' }, \
          stream: 'open' }; \
        const said = (more) => { show(judge({ ...well, ...more })); \
          return document.getElementById('alarm').checkVisibility() \
            ? document.getElementById('alarm').textContent : ''; }; \
        const refusal = { status: 401, message: 'no token' }; \
        const read = (more) => { said(more); \
          return document.querySelector('[role=alert]').textContent; }; \
        const stale = (stale_ms) => ({ zone: { zone: 3, state: 'stale', at: { stale_ms } } }); \
        return said({}) === '' \
          && said({ silence: 9000 }).includes('Connection lost') \
          && said({ refusal }).includes('A token is needed') \
          && said({ refusal, hasToken: true }).includes('Wrong token') \
          && document.getElementById('token').checkVisibility() \
          && said({ zone: { zone: 3, state: 'halted', sentence: 'Why.' } }).includes('Why.') \
          && said(stale(61000)).includes('1:01') \
          && read(stale(61000)) === read(stale(62000)) \
          && said({ silence: 9000 }).includes('0:09') \
          && read({ silence: 9000 }) === read({ silence: 10000 }) \
          && said({ zone: { zone: 3, state: 'loading' } }).includes('being loaded') \
          && said({ stream: 'lost', streamLostFor: 9000 }).includes('interrupted') \
          && said({ stream: 'lost', streamLostFor: 9 }) === ''; })";
    assert_eq!(browser.run(judged), true);
    assert_eq!(browser.errors(), Vec::<String>::new());
    // Nobody answers any more, and what is shown is old.
    drop(playing);
    browser.wait_until(
        "return document.getElementById('alarm-title').textContent === 'Connection lost' \
            && document.body.classList.contains('old')",
    );
    photograph(&browser, "gone");
}
