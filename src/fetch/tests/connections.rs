//! When connections are opened, waited for and closed.

use super::{Daemon, metadata};
use crate::fetch::stage::CONNECTIONS_MAX;
use crate::ownership::event::TroubleSource;
use crate::runtime::operations::Handle;
use crate::telemetry::metrics::Gauge;
use std::sync::Arc;

#[test]
fn brokers_that_are_gone_leave_their_places_to_others() {
    let mut daemon = Daemon::start(metadata(&[1], 1));
    for node_id in 1..=2 * CONNECTIONS_MAX as i32 {
        daemon.metadata = metadata(&[node_id], node_id);
        daemon.break_connections();
        daemon.turn_until_connected(node_id);
        assert_eq!(daemon.metrics.gauge(Gauge::Connections), 1);
        let sentences = daemon.sentences();
        let is_about_places = |(source, _): &(_, _)| *source == TroubleSource::Connections;
        assert!(!sentences.iter().any(is_about_places), "{sentences:?}");
    }
}

#[test]
fn a_broker_that_leads_nothing_keeps_its_connection_for_a_minute() {
    let mut daemon = Daemon::start(metadata(&[1, 2], 1));
    daemon.turn_until_connected(1);
    // Another broker leads now, and the old leader no longer answers.
    daemon.metadata = metadata(&[1, 2], 2);
    daemon.break_connections();
    daemon.turn_until_connected(2);
    let second = daemon.connections.last().expect("it is there").1.clone();
    let is_open = |handle: &Handle| Arc::strong_count(handle) > 2;
    assert!(is_open(&second));
    // The first broker leads again.
    daemon.metadata = metadata(&[1, 2], 1);
    daemon.cursor.is_new.set(true);
    daemon.turn_until_asked();
    daemon.answer_with_nothing(0);
    daemon.turn_until_connected(1);
    for _ in 0..59 {
        daemon.turn(1_000);
        assert!(is_open(&second), "leaders come back");
    }
    for _ in 0..5 {
        daemon.turn(1_000);
    }
    assert!(!is_open(&second));
}

/// A broker reads no request before its throttle is over (KIP-219).
#[test]
fn an_answer_is_overdue_only_once_the_throttle_is_over_but_not_after_days() {
    for (throttle_ms, muted_s) in [(60_000, 60), (1 << 30, 110)] {
        let mut daemon = Daemon::start(metadata(&[1], 1));
        daemon.turn_until_connected(1);
        daemon.answer_with_nothing(throttle_ms);
        for second in 0..muted_s {
            daemon.turn(1_000);
            // The next Fetch is sent early, and waits in the broker's socket.
            assert_eq!(daemon.receiving.len(), usize::from(second > 10), "after {second} s");
        }
        let sentences = daemon.sentences();
        assert!(!sentences.iter().any(|(_, said)| said.contains("timed out")), "{sentences:?}");
        (0..15).for_each(|_| daemon.turn(1_000));
        let sentences = daemon.sentences();
        assert!(sentences.iter().any(|(_, said)| said.contains("timed out")), "{sentences:?}");
    }
}

#[test]
fn a_connection_that_takes_the_place_of_a_throttled_one_is_asked_later_and_has_to_answer() {
    let mut daemon = Daemon::start(metadata(&[1], 1));
    daemon.are_short_lived = true;
    daemon.turn_until_connected(1);
    daemon.are_short_lived = false;
    for nth in 1..=2 {
        daemon.answer(nth, 60_000, &[1]);
        for second in 0..=10 {
            assert!(daemon.receiving.is_empty(), "asked after {second} s");
            daemon.turn(1_000);
        }
        (0..10).for_each(|_| daemon.turn(0));
        assert_eq!(daemon.receiving.len(), 1);
        assert_eq!(daemon.connections.len(), 2, "it is dialled and then used");
    }
    let seconds = daemon.turn_until_overdue();
    assert!(seconds < 15, "the new connection is not throttled: {seconds} s");
}
