//! Partitions that are fetched from a follower replica (KIP-392).

use super::{Daemon, metadata, names_rack};
use std::time::Duration;

/// A daemon that fetches from broker 2, as the leader, broker 1, has told it to.
fn beside_a_follower() -> Daemon {
    let mut daemon = Daemon::start(metadata(&[1, 2], 1));
    daemon.turn_until_connected(1);
    daemon.answer_with_follower(1, 2);
    daemon.turn_until_connected(2);
    daemon
}

/// Turns for so many milliseconds, while the logs end here. Returns after how many of them the
/// leader has been sent a Fetch, and whether that said where the daemon is.
fn turn_until_the_leader_serves(
    daemon: &mut Daemon,
    ms: u64,
    ends: (i64, i64),
) -> Option<(u64, bool)> {
    (0..ms).step_by(100).find_map(|at| {
        daemon.turn(100);
        let fetches = daemon.answer_all(ends.0, ends.1);
        let (_, fetch) = fetches.into_iter().find(|(node_id, _)| *node_id == 1)?;
        Some((at, names_rack(&fetch)))
    })
}

/// The follower is lost, the leader does not know that yet, and a Metadata answer does.
#[test]
fn one_that_the_cluster_does_not_list_any_more_is_not_waited_for() {
    let mut daemon = beside_a_follower();
    daemon.break_connections();
    daemon.turn_until_asked();
    daemon.answer_with_follower(2, 2);
    daemon.metadata = metadata(&[1], 1);
    daemon.cursor.is_new.set(true);
    let served = turn_until_the_leader_serves(&mut daemon, 2_000, (0, 0));
    assert!(served.is_some(), "the leader is asked");
}

#[test]
fn the_leader_says_where_the_log_ends() {
    let mut daemon = beside_a_follower();
    for (ends, breaks) in [((100, 0), false), ((200, 150), false), ((300, 250), true)] {
        if breaks {
            daemon.break_connection(1);
        }
        assert_eq!(turn_until_the_leader_serves(&mut daemon, 3_000, ends), None);
        assert_eq!(daemon.progress.shard(0).high_watermark.get(), ends.0);
    }
}

#[test]
fn one_that_stands_still_is_left_for_its_leader_and_asked_again_minutes_later() {
    let mut daemon = beside_a_follower();
    let idle = turn_until_the_leader_serves(&mut daemon, 60_000, (5, 5));
    assert_eq!(idle, None, "nobody has records");
    let behind = turn_until_the_leader_serves(&mut daemon, 60_000, (100, 5));
    let (after_ms, is_placed) = behind.expect("the follower is left");
    assert!((3_000..=6_000).contains(&after_ms), "after {after_ms} ms");
    assert!(!is_placed, "else the leader might name the follower again");
    let again = (1..=600).find(|_| {
        daemon.turn(1_000);
        let fetches = daemon.answer_all(100, 5);
        fetches.iter().any(|(node_id, fetch)| *node_id == 1 && names_rack(fetch))
    });
    assert!(again.is_some_and(|seconds| (290..=310).contains(&seconds)), "{again:?} s");
}

#[test]
fn one_that_throttles_can_show_nothing_and_is_not_taken_for_one_that_stands_still() {
    let mut daemon = beside_a_follower();
    daemon.follower_throttle_ms = 8_000;
    assert_eq!(turn_until_the_leader_serves(&mut daemon, 8_000, (100, 5)), None);
    daemon.follower_throttle_ms = 0;
    let behind = turn_until_the_leader_serves(&mut daemon, 60_000, (100, 5));
    let (after_ms, _) = behind.expect("it stands still in any case");
    assert!((3_000..=7_000).contains(&after_ms), "after {after_ms} ms");
}

#[test]
fn one_that_throttles_again_and_again_is_left_once_it_has_shown_for_long_enough_that_it_stands() {
    for throttle_ms in [300, 1_000, 8_000] {
        let mut daemon = beside_a_follower();
        daemon.follower_throttle_ms = throttle_ms;
        let behind = turn_until_the_leader_serves(&mut daemon, 290_000, (100, 5));
        let (after_ms, is_placed) = behind.expect("the follower is left");
        assert!(after_ms > 4_000, "{throttle_ms} ms: after {after_ms} ms");
        assert!(!is_placed, "else the leader might name the follower again");
    }
}

#[test]
fn one_that_is_not_asked_because_the_shard_takes_nothing_can_show_nothing() {
    let mut daemon = beside_a_follower();
    for _ in 0..2 {
        let behind = turn_until_the_leader_serves(&mut daemon, 3_000, (100, 5));
        assert_eq!(behind, None, "the follower has time left");
        let later = daemon.turns.now() + Duration::from_secs(10);
        daemon.cursor.retry_at.set(Some(later));
        assert_eq!(turn_until_the_leader_serves(&mut daemon, 10_000, (100, 5)), None);
    }
    let behind = turn_until_the_leader_serves(&mut daemon, 60_000, (100, 5));
    assert!(behind.is_some(), "it stands still in any case");
}

/// A leader names a follower before it looks at its own log, and some need no rack for that.
#[test]
fn one_that_refuses_is_not_asked_again_and_again_if_its_leader_insists_on_it() {
    let mut daemon = Daemon::start_at(101, metadata(&[1, 2, 3], 1));
    (daemon.follower, daemon.lost, daemon.insists) = (2, vec![(2, 0)], true);
    let mut fetches = Vec::new();
    for _ in 0..600 {
        daemon.turn(100);
        fetches.extend(daemon.answer_all(101, 101));
    }
    let of = |broker| fetches.iter().filter(|(node_id, _)| *node_id == broker).count();
    assert!((10..=150).contains(&of(1)) && of(2) == 1, "{} times, {} times", of(1), of(2));
}

#[test]
fn one_that_refuses_what_its_leader_sends_to_it_is_left_for_its_leader() {
    let mut daemon = Daemon::start_at(101, metadata(&[1, 2, 3], 1));
    (daemon.follower, daemon.lost) = (2, vec![(2, 0)]);
    let mut fetches = Vec::new();
    for _ in 0..600 {
        daemon.turn(100);
        fetches.extend(daemon.answer_all(101, 101));
    }
    let of = |broker| fetches.iter().filter(|(node_id, _)| *node_id == broker).count();
    assert!(of(1) > 200 && of(2) == 1, "{} times, {} times", of(1), of(2));
    // What the leader says itself is believed.
    daemon.lost = vec![(1, 0), (2, 0)];
    for _ in 0..100 {
        daemon.turn(100);
        daemon.answer_all(100, 100);
    }
    assert!(daemon.cursor.has_failed());
}
