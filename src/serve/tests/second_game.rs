//! Another game than the hunt is served: its cards, boards and streams follow from its tables.

use super::text_of;
use crate::kit::rulebook::Rulebook;
use crate::kit::update::Updates;
use crate::kit::zone::Zone;
use crate::serve::answers::{Served, ZoneState};
use crate::serve::exchange::Exchange;
use crate::serve::gate::Gate;
use crate::serve::lag::Lag;
use crate::testing::random::Random;
use crate::testing::turf::first::play::Turf;
use crate::testing::turf::{FIRST_RULES, random_events};
use crate::view::card::Card;
use crate::view::game::{Viewed, ViewedGame, ZoneImage};
use crate::view::zone::{ZonePosition, ZoneView};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A process that serves this zone.
fn served(zone: ZoneView) -> Served {
    let mut served = Served::new(&Rulebook::of(FIRST_RULES), 1, Duration::from_secs(2));
    served.begin(zone);
    served.zones[0] = ZoneState::Live { owner_epoch: 1, lag: Lag::none(Instant::now()) };
    served
}

fn answer(served: &Served, target: &str) -> String {
    let mut exchange = Exchange::default();
    exchange.receive(format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes());
    exchange.advance(served, &Gate::open(), 0);
    text_of(&exchange)
}

fn body(served: &Served, target: &str) -> String {
    let answer = answer(served, target);
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{target}: {answer}");
    answer.split_once("\r\n\r\n").expect("a head").1.to_owned()
}

#[test]
fn cards_boards_and_queries_of_another_game_are_those_of_its_engine() {
    for seed in 0..20 {
        let rulebook = Rulebook::of(FIRST_RULES);
        let game: Arc<dyn ViewedGame> = Arc::new(rulebook.clone());
        let mut zone = Zone::<Turf>::new(0, &rulebook);
        let mut served = served(ZoneView::new(0, game.clone(), ZonePosition::default()));
        let (mut updates, mut position) = (Updates::new(), ZonePosition::default());
        for event in random_events(&mut Random::new(seed), 400) {
            updates.clear();
            zone.apply(&event, &mut updates);
            served.fold(0, updates.as_slice());
            position.update += updates.len() as u64;
            position.next_offset = event.offset + 1;
            served.seal(0, position.next_offset, 1, 0);
        }
        let later = self::served(ZoneView::of_engine(ZoneImage::of(&zone), game, position));
        let mut asked = vec!["/v1/zones/0/players".to_owned(), "/v1/zones/0/round".to_owned()];
        let cards = Turf::cards(&zone);
        assert!(!cards.is_empty(), "seed {seed}: nobody is left");
        for Card { player_id, score, fields: [team, field, ..], .. } in cards {
            let path = format!("/v1/players/{player_id}/poll");
            let poll = body(&served, &path);
            let numbers: Vec<u64> =
                serde_json::from_str(&poll).unwrap_or_else(|error| panic!("{poll}: {error}"));
            let expected = [position.update, 0, score, numbers[3], team.into(), field.into(), 0, 0];
            assert_eq!(numbers, expected, "seed {seed}");
            let board = body(&served, &format!("/v1/boards/0?around={player_id}&each_side=0"));
            let rank = format!("\"rank\":{},\"player_id\":\"{player_id}\"", numbers[3]);
            assert!(board.contains(&rank), "{board}");
            let card = body(&served, &format!("/v1/players/{player_id}"));
            let fields = format!("\"team\":{team},\"field\":{field}}}");
            assert!(card.ends_with(&fields), "{card}");
        }
        for path in asked.drain(..) {
            assert_eq!(body(&served, &path), body(&later, &path), "seed {seed}");
        }
    }
}

#[test]
fn a_server_of_another_game_has_its_routes_alone() {
    let rulebook = Rulebook::of(FIRST_RULES);
    let game: Arc<dyn ViewedGame> = Arc::new(rulebook.clone());
    let mut served = served(ZoneView::new(0, game, ZonePosition::default()));
    for path in ["/map.js", "/v1/zones/0/hunts", "/v1/zones/0/tiles"] {
        assert!(answer(&served, path).starts_with("HTTP/1.1 404 "), "{path}");
    }
    let document = body(&served, "/v1/openapi.json");
    assert!(document.contains("/round") && document.contains("\"began\""), "{document}");
    for of_the_hunt in ["treasure_laid", "hunt_start"] {
        assert!(!document.contains(of_the_hunt), "{document}");
    }
    let mut exchange = Exchange::default();
    exchange.receive(b"GET /v1/stream?zone=0&board=0 HTTP/1.1\r\nHost: localhost\r\n\r\n");
    exchange.advance(&served, &Gate::open(), 0);
    exchange.take_unsent();
    exchange.advance(&served, &Gate::open(), 0);
    let stream = text_of(&exchange);
    let position = "event: at\ndata: {\"zone\":0,\"update\":0,\"offset\":0}\n\n";
    assert!(stream.contains(position) && stream.contains("event: board\n"), "{stream}");
    let (mut zone, mut updates) = (Zone::<Turf>::new(0, &rulebook), Updates::new());
    for event in random_events(&mut Random::new(1), 60) {
        updates.clear();
        zone.apply(&event, &mut updates);
        served.fold(0, updates.as_slice());
        served.seal(0, event.offset + 1, 1, 0);
    }
    exchange.take_unsent();
    exchange.advance(&served, &Gate::open(), 1_000);
    let stream = text_of(&exchange);
    assert!(
        stream.contains("id: 0:0\ndata: {\"kind\":\"") && stream.contains("\"team\":"),
        "{stream}"
    );
}
