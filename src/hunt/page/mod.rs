//! The page at `/` of `huntd serve`: static files in the binary.

use crate::view::game::Asset;

/// The files. Each script has one purpose, and `page.js` brings them together.
pub(crate) const PAGE: &[Asset] = &[
    Asset {
        path: "/",
        content_type: "text/html; charset=utf-8",
        bytes: include_bytes!("index.html"),
    },
    Asset {
        path: "/page.css",
        content_type: "text/css; charset=utf-8",
        bytes: include_bytes!("page.css"),
    },
    Asset { path: "/icon.svg", content_type: "image/svg+xml", bytes: include_bytes!("icon.svg") },
    script("/huntd-browser.mjs", include_bytes!("../../../docs/clients/browser/huntd-browser.mjs")),
    script("/address.js", include_bytes!("address.js")),
    script("/alarm.js", include_bytes!("alarm.js")),
    script("/board.js", include_bytes!("board.js")),
    script("/camera.js", include_bytes!("camera.js")),
    script("/count.js", include_bytes!("count.js")),
    script("/dom.js", include_bytes!("dom.js")),
    script("/feed.js", include_bytes!("feed.js")),
    script("/film.js", include_bytes!("film.js")),
    script("/heat.js", include_bytes!("heat.js")),
    script("/hunts.js", include_bytes!("hunts.js")),
    script("/link.js", include_bytes!("link.js")),
    script("/map.js", include_bytes!("map.js")),
    script("/names.js", include_bytes!("names.js")),
    script("/page.js", include_bytes!("page.js")),
    script("/player.js", include_bytes!("player.js")),
    script("/pulse.js", include_bytes!("pulse.js")),
    script("/reader.js", include_bytes!("reader.js")),
    script("/search.js", include_bytes!("search.js")),
    script("/timeline.js", include_bytes!("timeline.js")),
    script("/words.js", include_bytes!("words.js")),
    script("/world.js", include_bytes!("world.js")),
    script("/zone.js", include_bytes!("zone.js")),
];

const fn script(path: &'static str, bytes: &'static [u8]) -> Asset {
    Asset { path, content_type: "text/javascript; charset=utf-8", bytes }
}

#[cfg(test)]
mod tests {
    use crate::hunt::change::KINDS;
    use crate::hunt::event::ActionKind;
    use crate::hunt::queries::VIEW_SCHEMA;
    use crate::hunt::{Outcome, Shard};
    use crate::kit::update::Updates;
    use crate::testing::hostile_zone::rulebook;
    use crate::testing::random::Random;
    use crate::testing::random_game::{RandomGame, Setting};
    use std::collections::BTreeSet;

    /// The names in the page's list of updates of which an event makes one at most.
    fn own_names() -> Vec<&'static str> {
        let text = str::from_utf8(VIEW_SCHEMA.asset("/count.js").unwrap().bytes).unwrap();
        let (_, list) = text.split_once("static OWN = new Set([").unwrap();
        let (list, _) = list.split_once(']').unwrap();
        list.split('"').skip(1).step_by(2).collect()
    }

    /// How many updates of that list an event makes, at least and at most.
    fn own_updates(kind: ActionKind, outcome: Outcome) -> (usize, usize) {
        match (outcome, kind) {
            (Outcome::Refused(_), _) => (1, 1),
            (Outcome::NoOp | Outcome::RulesMissing { .. }, _) => (0, 0),
            // One that finds its player here, or no room, makes only updates that others make, too.
            (Outcome::Applied, ActionKind::Arrive) => (0, 1),
            (Outcome::Applied, ActionKind::Tick | ActionKind::HuntEnd) => (0, 0),
            (Outcome::Applied, _) => (1, 1),
        }
    }

    #[test]
    fn the_page_knows_the_updates_that_only_an_events_own_action_makes() {
        let own = own_names();
        let mut seen = BTreeSet::new();
        for seed in 0..8 {
            let rulebook = rulebook(seed % 2 == 0);
            let (mut random, mut updates) = (Random::new(seed), Updates::new());
            let mut shard = Shard::new(1, &rulebook);
            let mut game = RandomGame::new(Setting::of(&rulebook));
            for _ in 0..10_000 {
                let event = game.event(&mut |bound| random.below(bound));
                updates.clear();
                let outcome = shard.apply(&event, &mut updates);
                let kinds = updates.as_slice().iter().map(|update| update.payload().kind);
                let names = kinds.map(|kind| KINDS[usize::from(kind) - 1].name);
                let found: Vec<&str> = names.filter(|name| own.contains(name)).collect();
                let (least, most) = own_updates(event.action.kind(), outcome);
                assert!(
                    (least..=most).contains(&found.len()),
                    "{found:?} of {event:?}: {outcome:?}"
                );
                seen.extend(found);
            }
        }
        assert_eq!(seen, own.into_iter().collect(), "what the games made, and what the page lists");
    }
}
