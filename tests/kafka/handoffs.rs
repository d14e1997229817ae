//! Players that cross zones, ticks, and daemons that die meanwhile: no player is lost, and none is
//! in two zones.

use crate::restarts::wait_until_owned;
use huntd::hunt::change::Change;
use std::collections::BTreeMap;
use support::accounts::{self, Follower};
use support::daemon::{Huntd, Topics};
use support::kafka;

const PLAYERS: u64 = 30;

/// Each player joins zone 0 and then crosses, with some moves between: the event `number` of each.
/// Where a player is follows from what was produced before, so its next event goes there.
fn events(number: u64) -> Vec<(i32, String)> {
    let event = |player: u64| {
        let ts_us = 1_767_225_600_000_000 + number * 100_000;
        let zone = ((number.saturating_sub(1)) / 4 % 2) as i32;
        let action = match number {
            1 => format!(r#""type":"join","x":{},"y":2000"#, 1_000 + player * 50),
            _ if number.is_multiple_of(4) => {
                format!(r#""type":"leave","to_zone":{}"#, 1 - zone)
            }
            _ => r#""type":"rotate","heading":9000"#.to_owned(),
        };
        let head = format!(r#"{{"player_id":{player},"seq":{number},"ts_us":{ts_us}"#);
        (zone, format!("{head},{action}}}"))
    };
    (1..=PLAYERS).map(event).collect()
}

/// How often each handoff was accepted, by player and number.
fn arrivals(follower: &mut Follower) -> BTreeMap<(u64, u32), u32> {
    follower.follow();
    let mut arrivals = BTreeMap::new();
    for update in follower.stories().iter().flat_map(|story| &story.updates) {
        if let Change::Arrived { crossing, .. } = update.change() {
            *arrivals.entry((update.player_id(), crossing)).or_insert(0) += 1;
        }
    }
    arrivals
}

#[test]
fn players_cross_zones_of_two_daemons_once_whatever_dies() {
    let topics = Topics::create(kafka::shared(), "handoffs", 2);
    let folders = [0, 1].map(|_| tempfile::tempdir().expect("a temporary folder"));
    let start = |place: usize| {
        let snapshot = format!("directory = {:?}\nevery_ms = 200", folders[place].path());
        let settings = [("snapshot", snapshot.as_str()), ("input", "tick_every_ms = 200")];
        Huntd::start(kafka::shared(), &topics, &settings)
    };
    let mut follower = Follower::new(kafka::shared(), &topics);
    let (mut first, mut second) = (start(0), start(1));
    wait_until_owned(&mut first, 1);
    wait_until_owned(&mut second, 1);
    for number in 1..=16 {
        crate::players::produce(kafka::shared(), &topics, &events(number));
        if number % 4 != 0 {
            continue;
        }
        // One of them dies with players on their way; the other one takes over.
        match number {
            4 => {
                first.kill9();
                wait_until_owned(&mut second, 2);
                first = start(0);
            }
            8 => {
                second.kill9();
                wait_until_owned(&mut first, 2);
                second = start(1);
            }
            12 => {
                let ended = first.stop();
                assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
                first = start(0);
            }
            _ => {}
        }
        let handoffs = number / 4 * PLAYERS;
        second.wait_until("all players have arrived", |_| {
            arrivals(&mut follower).len() as u64 >= handoffs
        });
        wait_until_owned(&mut first, 1);
        wait_until_owned(&mut second, 1);
    }
    // Ticks alone move both zones on, without a player's event.
    wait_for_ticks(&topics, &mut follower, &mut first);
    for huntd in [first, second] {
        let ended = huntd.stop();
        assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
    }
    let accepted = arrivals(&mut follower);
    assert_eq!(accepted.len() as u64, 4 * PLAYERS, "each handoff is accepted");
    assert!(accepted.values().all(|times| *times == 1), "and once: {accepted:?}");
    // What came in after the last frame is the next owner's.
    accounts::assert_begins_the_replay(kafka::shared(), &topics, follower);
}

fn wait_for_ticks(topics: &Topics, follower: &mut Follower, huntd: &mut Huntd) {
    follower.follow();
    let goal = |place: usize| (place, follower.next_offset(place) + 5);
    let goals: Vec<(usize, i64)> = (0..topics.partitions as usize).map(goal).collect();
    huntd.wait_until("ticks", |_| follower.covers(&goals));
}
