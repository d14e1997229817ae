//! Streams, and where they are resumed.

use super::{World, text_of};
use crate::hunt::Shard;
use crate::hunt::event::{Action, Event};
use crate::kit::update::Updates;
use crate::serve::exchange::{Exchange, ExchangeNeed};
use std::time::{Duration, Instant};

/// Reads a zone's stream to its end: the numbers of its updates, and names of other events.
fn read_stream(world: &World, exchange: &mut Exchange, now_ms: u64) -> Vec<String> {
    let mut text = String::new();
    for _ in 0..100 {
        exchange.advance(&world.served, &world.gate, now_ms);
        text += &text_of(exchange);
        exchange.take_unsent();
    }
    let lines = text.lines();
    let names = lines.filter_map(|line| {
        line.strip_prefix("id: ").or(line.strip_prefix("event: ").filter(|name| *name != "update"))
    });
    names.map(str::to_owned).collect()
}

fn stream(target: &str, last_event_id: &str) -> Exchange {
    let mut exchange = Exchange::default();
    let head =
        format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nLast-Event-ID: {last_event_id}");
    exchange.receive(format!("{head}\r\n\r\n").as_bytes());
    exchange
}

#[test]
fn a_stream_that_is_resumed_anywhere_has_every_update_once() {
    let mut world = World::new();
    let mut first = stream("/v1/stream?zone=0", "");
    assert_eq!(read_stream(&world, &mut first, 0), ["at"]);
    for heading in 1..=300 {
        world.act(1, Action::Rotate { heading });
    }
    let next = world.served.view.zone(0).unwrap().position().update;
    let all: Vec<String> = (4..next).map(|number| format!("0:{number}")).collect();
    assert_eq!(read_stream(&world, &mut first, 0), all);
    for cut in [0, 7, 299] {
        let mut other = stream("/v1/stream?zone=0", &all[cut]);
        assert_eq!(read_stream(&world, &mut other, 0), all[cut + 1..]);
    }
}

#[test]
fn a_client_that_is_ahead_of_a_process_is_waited_for_and_not_for_ever() {
    let mut world = World::new();
    let next = world.served.view.zone(0).unwrap().position().update;
    // Another process has written this one's next two updates already.
    let mut ahead = stream("/v1/stream?zone=0", &format!("0:{}", next + 1));
    let mut nowhere = stream("/v1/stream?zone=0", "0:99999");
    assert!(read_stream(&world, &mut ahead, 0).is_empty());
    assert!(read_stream(&world, &mut nowhere, 0).is_empty());
    for heading in 1..=3 {
        world.act(1, Action::Rotate { heading });
    }
    let end = world.served.view.zone(0).unwrap().position().update;
    let rest: Vec<String> = (next + 2..end).map(|number| format!("0:{number}")).collect();
    assert!(!rest.is_empty());
    assert_eq!(read_stream(&world, &mut ahead, 9_999), rest);
    assert!(read_stream(&world, &mut nowhere, 9_999).is_empty());
    assert_eq!(read_stream(&world, &mut nowhere, 10_000), ["reset"]);
}

#[test]
fn a_client_that_is_ahead_gets_its_reset_when_ten_seconds_have_passed() {
    let mut world = World::new();
    // Nor does it wait until the zone is stale.
    world.served.pass_time(Instant::now() + Duration::from_secs(60));
    let mut nowhere = stream("/v1/stream?zone=0", "0:99999");
    nowhere.advance(&world.served, &world.gate, 0);
    nowhere.take_unsent();
    for now_ms in [0, 300] {
        let need = nowhere.advance(&world.served, &world.gate, now_ms);
        let ExchangeNeed::Turn(turn) = need else { panic!("{need:?}") };
        assert_eq!(turn.until_ms, 10_000);
    }
}

#[test]
fn a_genesis_is_a_reset_for_each_client_that_was_there_before_it_and_for_no_other() {
    let mut world = World::new();
    let mut open = stream("/v1/stream?zone=0", "");
    assert_eq!(read_stream(&world, &mut open, 0), ["at"]);
    let genesis = world.next_update();
    world.start_over();
    assert_eq!(read_stream(&world, &mut open, 20), ["reset"]);
    let resume = |world: &World, last: u64| {
        let mut resumed = stream("/v1/stream?zone=0", &format!("0:{last}"));
        read_stream(world, &mut resumed, 20)
    };
    assert_eq!(resume(&world, genesis - 1), ["reset"]);
    world.act(1, Action::Join { x: 70, y: 70 });
    world.act(2, Action::Join { x: 70, y: 70 });
    let ids = [genesis, genesis + 1].map(|update| format!("0:{update}"));
    assert_eq!(read_stream(&world, &mut open, 40), ids);
    assert_eq!(resume(&world, genesis - 1), ["reset"]);
    assert_eq!(resume(&world, genesis), ids[1..]);
    world.start_over();
    assert_eq!(read_stream(&world, &mut open, 60), ["reset"]);
}

#[test]
fn a_stream_of_a_stale_zone_begins_with_its_position() {
    let mut world = World::new();
    world.served.pass_time(Instant::now() + Duration::from_secs(60));
    for (id, first) in [("", "at"), ("0:3", ""), ("9:1", "reset")] {
        let names = read_stream(&world, &mut stream("/v1/stream?zone=0", id), 0);
        let expected = [first, "stale"].into_iter().filter(|name| !name.is_empty());
        assert_eq!(names, expected.collect::<Vec<_>>(), "{id}");
    }
}

#[test]
fn state_is_streamed_when_it_changed_and_no_more_often_than_asked() {
    let mut world = World::new();
    // The clock starts, which moves the times of all that came before.
    (1..=8).for_each(|heading| world.act(1, Action::Rotate { heading }));
    let mut cards = stream("/v1/stream?player=1&board=0&every_ms=100", "");
    assert_eq!(read_stream(&world, &mut cards, 0), ["card", "board"]);
    assert!(read_stream(&world, &mut cards, 500).is_empty());
    for heading in 1..=50 {
        world.act(1, Action::Rotate { heading });
    }
    assert!(read_stream(&world, &mut cards, 550).is_empty());
    assert_eq!(read_stream(&world, &mut cards, 600), ["card"]);
    let mut wrong = stream("/v1/stream?player=x", "");
    wrong.advance(&world.served, &world.gate, 0);
    assert!(text_of(&wrong).starts_with("HTTP/1.1 400"));
}

#[test]
fn an_id_resumes_every_zone_of_its_stream_and_a_zone_that_it_does_not_name_gets_a_reset() {
    let mut world = World::new();
    let mut both = stream("/v1/stream?zone=1&zone=0", "");
    assert_eq!(read_stream(&world, &mut both, 0), ["at", "at"]);
    let mut other = Shard::new(1, &world.rulebook);
    let mut act = |world: &mut World, zone: u16, seq: u64| match zone {
        0 => world.act(1, Action::Rotate { heading: seq as u16 }),
        _ => {
            let action = Action::Join { x: 2_000 * seq as i32, y: 70 };
            let offset = seq as i64;
            let event = Event { offset, time_ms: 0, player_id: seq, seq, ts_us: 1, action };
            let mut updates = Updates::new();
            other.apply(&event, &mut updates);
            world.served.view.fold(1, updates.as_slice()).unwrap();
            world.served.view.seal(1, offset + 1);
        }
    };
    act(&mut world, 1, 1);
    act(&mut world, 1, 2);
    let next = world.served.view.zone(0).unwrap().position().update;
    let last = next - 1;
    assert_eq!(
        read_stream(&world, &mut both, 0),
        [format!("1:0,0:{last}"), format!("1:1,0:{last}")]
    );
    act(&mut world, 0, 7);
    let ids = read_stream(&world, &mut both, 10);
    assert_eq!(ids.last(), Some(&format!("0:{},1:1", world.next_update() - 1)));
    // Zone 1 goes on while nobody listens.
    act(&mut world, 1, 3);
    let mut again = stream("/v1/stream?zone=1&zone=0", ids.last().unwrap());
    let resumed = read_stream(&world, &mut again, 20);
    assert_eq!(resumed, [format!("1:2,0:{}", world.next_update() - 1)]);
    let mut partly = stream("/v1/stream?zone=0&zone=1", "1:1");
    assert_eq!(read_stream(&world, &mut partly, 20)[0], "reset");
    let strange = ["1:1,0", ",,1:1,", "1:1,x:9,0:18446744073709551615", "1:1,99999:3"];
    for id in strange {
        let mut strange = stream("/v1/stream?zone=0", id);
        assert_eq!(read_stream(&world, &mut strange, 20), ["reset"], "{id}");
    }
}

#[test]
fn a_client_that_falls_behind_the_recent_updates_gets_a_reset() {
    let mut world = World::new();
    let mut slow = stream("/v1/stream?zone=0", "");
    assert_eq!(read_stream(&world, &mut slow, 0), ["at"]);
    let begun = world.next_update();
    while world.next_update() < begun + 65_536 {
        world.act(1, Action::Rotate { heading: (world.events % 36_000) as u16 });
    }
    let kept = world.served.view.zone(0).unwrap().recent().first();
    // The oldest update that is kept can still be gone on with, the one before it cannot.
    for (next, event) in [(kept, format!("0:{kept}")), (kept - 1, "reset".to_owned())] {
        let mut resumed = stream("/v1/stream?zone=0", &format!("0:{}", next - 1));
        assert_eq!(read_stream(&world, &mut resumed, 0)[0], event);
    }
    world.act(1, Action::Rotate { heading: 1 });
    world.act(1, Action::Rotate { heading: 2 });
    assert_eq!(read_stream(&world, &mut slow, 0), ["reset"]);
}

#[test]
fn a_stream_of_a_halted_zone_says_so_and_ends() {
    let mut world = World::new();
    let mut ended = stream("/v1/stream?zone=1&zone=0", "");
    assert_eq!(read_stream(&world, &mut ended, 0), ["at", "at"]);
    world.served.halt(0, "its log was cut".to_owned());
    assert_eq!(ended.advance(&world.served, &world.gate, 1), ExchangeNeed::Close);
    let last =
        "event: halted\ndata: {\"zone\":0,\"detail\":\"zone 0 is halted: its log was cut\"}\n\n";
    assert_eq!(text_of(&ended), last);
    ended.take_unsent();
    assert_eq!(ended.advance(&world.served, &world.gate, 2), ExchangeNeed::Close);
    assert!(ended.unsent().is_empty(), "it is said once");
    for target in ["/v1/stream?zone=0", "/v1/stream?zone=1&zone=0"] {
        let mut refused = stream(target, "");
        refused.advance(&world.served, &world.gate, 0);
        let text = text_of(&refused);
        assert!(text.starts_with("HTTP/1.1 503") && text.contains("its log was cut"), "{text}");
    }
    let mut other = stream("/v1/stream?zone=1&board=0", "");
    assert_eq!(read_stream(&world, &mut other, 0), ["at", "board"], "a board says it itself");
}
