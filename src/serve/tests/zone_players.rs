//! The pages of a zone's players.

use super::{World, json};
use crate::hunt::event::Action;
use crate::testing::random::Random;
use crate::view::game::ZoneImage;
use crate::view::zone::ZoneView;
use simd_json::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

/// All pages of so many players, as a client asks for them: each player with its place, and how
/// many players each page has.
fn pages(world: &World, count: usize) -> (BTreeMap<u64, (i64, i64)>, Vec<usize>) {
    let (mut places, mut sizes, mut from) = (BTreeMap::new(), Vec::new(), "0".to_owned());
    loop {
        let target = format!("/v1/zones/0/players?from={from}&count={count}");
        let page = json(&world.body(&target));
        let players = page["players"].as_array().expect("a list");
        sizes.push(players.len());
        for player in players.iter() {
            let id: u64 = player["player_id"].as_str().expect("a text").parse().expect("a number");
            let place = (player["x"].as_i64().unwrap(), player["y"].as_i64().unwrap());
            assert!(places.keys().all(|earlier| *earlier < id), "{id} comes too late");
            places.insert(id, place);
        }
        let Some(next) = page.get("next") else { return (places, sizes) };
        from = next.as_str().expect("a text").to_owned();
    }
}

#[test]
fn all_pages_have_each_player_once_whatever_their_size() {
    let mut world = World::new();
    let mut random = Random::new(7);
    // Some find no room, as in every game.
    for _ in 0..40 {
        let player_id = 5 + random.below(1 << 62);
        let [x, y] = [0, 0].map(|_: i32| random.below(9_000) as i32);
        world.act(player_id, Action::Join { x, y });
    }
    world.act(2, Action::Leave { to_zone: None });
    let zone = world.served.view.zone(0).expect("it is there");
    let known =
        zone.cards().map(|card| (card.player_id, (card.signed(0).into(), card.signed(1).into())));
    let known: BTreeMap<u64, (i64, i64)> = known.collect();
    let all = known.len();
    assert!(all > 10, "{all}");
    for count in [1, 2, 7, all - 1, all, all + 1, 1_000] {
        let (places, sizes) = pages(&world, count);
        assert_eq!(places, known, "{count}");
        let (last, whole) = sizes.split_last().expect("there is a page");
        assert!(whole.iter().all(|size| *size == count), "{count}: {sizes:?}");
        assert!((1..=count).contains(last), "{count}: {sizes:?}");
    }
    // Another process has its players in another order.
    let mut other = World::new();
    let position = zone.position();
    other.served.view.put(ZoneView::of_engine(
        ZoneImage::of(&world.shard),
        Arc::new(world.rulebook.clone()),
        position,
    ));
    let target = "/v1/zones/0/players?count=9";
    assert_eq!(world.get(target), other.get(target));
}

#[test]
fn a_page_has_the_position_of_its_zone_and_of_each_player() {
    let world = World::new();
    let player = |id: u64| {
        let x = 2_000 * id;
        format!(r#"{{"player_id":"{id}","x":{x},"y":70,"heading":0,"health":100}}"#)
    };
    let at = r#"{"at":{"update":4,"offset":4},"players":["#;
    let first = format!("{at}{},{}],\"next\":\"3\"}}", player(1), player(2));
    let last = format!("{at}{},{}]}}", player(3), player(4));
    for (target, expected) in
        [("/v1/zones/0/players?count=2", first), ("/v1/zones/0/players?count=2&from=3", last)]
    {
        assert_eq!(world.body(target), expected);
        // The documentation shows these two.
        let shown = format!("GET {target}\n{expected}\n");
        assert!(include_str!("../../../docs/QUERIES.md").contains(&shown), "{shown}");
    }
    assert_eq!(world.body("/v1/zones/0/players?from=5"), format!("{at}]}}"));
    assert_eq!(world.body("/v1/zones/1/players").matches("player_id").count(), 0);
    for wrong in
        ["from=x", "from=-1", "from=18446744073709551616", "count=0", "count=1001", "after=1"]
    {
        assert_eq!(world.status(&format!("/v1/zones/0/players?{wrong}")), "400", "{wrong}");
    }
    assert_eq!(world.status("/v1/zones/7/players"), "404");
    assert!(world.get("/v1/zones/0/players").contains("Huntd-At: 0:4:4\r\n"));
}
