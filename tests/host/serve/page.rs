//! The page in a real browser, while a demo plays.

use std::path::Path;
use support::browser::{Browser, Look};
use support::playing::Playing;

/// Where pictures of the page are left, for people to look at.
const PICTURES: &str = env!("CARGO_TARGET_TMPDIR");

const LOOKS: [(&str, Look); 4] = [
    ("desktop-light", Look { width: 1440, height: 960, is_dark: false }),
    ("desktop-dark", Look { width: 1440, height: 960, is_dark: true }),
    ("phone-light", Look { width: 390, height: 844, is_dark: false }),
    ("phone-dark", Look { width: 390, height: 844, is_dark: true }),
];

#[test]
fn the_page_shows_a_game_on_every_screen_without_an_error() {
    let Some(browser) = Browser::start() else { return };
    let playing = Playing::start(&["--rate", "4000", "--players", "3000", "--partitions", "2"]);
    browser.look(LOOKS[0].1);
    browser.open(&format!("http://{}/", playing.address));
    browser.wait_until("return document.getElementById('link').textContent === 'live'");
    browser.wait_until("return players.size > 500");
    browser.wait_until("return Number(document.getElementById('applied').textContent) > 0");
    browser.wait_until("return document.getElementById('board').rows.length === 10");
    browser.wait_until("return document.getElementById('zones').rows.length === 2");
    // One of the best is followed, wherever it plays.
    browser.run("document.querySelector('#board button').click()");
    browser.wait_until("return document.getElementById('card').childElementCount === 6");
    browser.wait_until("return document.getElementById('feed').childElementCount > 0");
    for (name, look) in LOOKS {
        browser.look(look);
        browser.wait_until("return canvas.width > 200 && canvas.width === canvas.height");
        let too_wide = "return document.documentElement.scrollWidth > window.innerWidth";
        assert_eq!(browser.run(too_wide), false, "{name}: something is wider than the screen");
        // The map has the colours of the scheme: players are drawn, and the ground is not black.
        let drawn = "const d = pen.getImageData(0, 0, canvas.width, canvas.height).data; \
                     let n = 0; for (let i = 3; i < d.length; i += 4) if (d[i]) n++; \
                     return n > 1000;";
        browser.wait_until(drawn);
        browser.photograph(&Path::new(PICTURES).join(format!("page-{name}.png")));
    }
    browser.run("document.getElementById('near').click()");
    let is_around = "const me = players.get(followed); if (!me) return false; \
                     const [x, y] = [me[0] - shown.x, me[1] - shown.y]; \
                     return shown.side === map.side / 8 && Math.min(x, y) >= 0 \
                        && Math.max(x, y) <= shown.side";
    browser.wait_until(is_around);
    // The other zone.
    browser.run(
        "const select = document.getElementById('zone'); window.other = 1 - zone; \
         select.value = window.other; select.dispatchEvent(new Event('change'))",
    );
    browser.wait_until("return zone === window.other && players.size > 100");
    assert_eq!(browser.errors(), Vec::<String>::new());
}
