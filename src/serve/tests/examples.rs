//! The examples of docs/QUERIES.md: what each route answers in a small world.

use super::posting::{decide, post};
use super::{ROUTES, World, text_of};
use crate::hunt::event::Action;
use crate::serve::routes::{EVENTS, STREAM, TICKET};

/// One request of each route that a GET answers.
const TARGETS: [&str; 7] = [
    "/v1/players/2",
    "/v1/players/2/poll",
    "/v1/boards/world?count=2",
    "/v1/zones",
    "/v1/zones/0/hunts",
    "/v1/zones/0/players?count=1",
    "/v1/zones/0/tiles?since=3",
];

/// The documentation shows these by programs that use them, or the answer is the description.
const SHOWN_ELSEWHERE: [&str; 3] = [TICKET, STREAM, "/v1/openapi.json"];

#[test]
fn the_documentation_shows_an_answer_of_each_route() {
    let mut world = World::new();
    let hunt = Action::HuntStart { hunt: 1, seed: 7, treasures: 2, duration_ms: 60_000 };
    world.act(0, hunt);
    world.act(2, Action::Rotate { heading: 90 });
    // Blanks fill up a poll.
    let example = |target: &&str| format!("GET {target}\n{}\n", world.body(target).trim_end());
    let mut examples: String = TARGETS.iter().map(example).collect();
    let event = r#"{"type":"rotate","player_id":1,"seq":9,"ts_us":1767225600400000,"heading":77}"#;
    let (mut exchange, records) = post(&world, EVENTS, event);
    exchange.advance(&world.served, &world.gate, 1);
    decide(&mut world, &records[0]);
    exchange.advance(&world.served, &world.gate, 2);
    let answer = text_of(&exchange);
    let (_, body) = answer.split_once("\r\n\r\n").expect("an answer has a head");
    examples += &format!("POST {EVENTS}\n{event}\n{body}\n");
    for (method, route) in ROUTES.iter().filter(|(_, route)| !SHOWN_ELSEWHERE.contains(route)) {
        let segments = |path: &str| path.split(['?', '/']).count();
        let (begin, end) = route.split_once('{').unwrap_or((route, ""));
        let end = end.split_once('}').map_or("", |(_, end)| end);
        let is_shown = examples.lines().any(|line| {
            line.strip_prefix(&format!("{} ", method.to_uppercase())).is_some_and(|target| {
                let path = target.split('?').next().expect("there is a first part");
                path.starts_with(begin) && path.ends_with(end) && segments(path) == segments(route)
            })
        });
        assert!(is_shown, "no example of {method} {route}");
    }
    let shown = include_str!("../../../docs/QUERIES.md");
    let examples = format!("```text\n{examples}```\n");
    assert!(shown.contains(&examples), "write this into docs/QUERIES.md:\n{examples}");
}
