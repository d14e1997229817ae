//! Who is asked who leads, and when.

use super::{Daemon, TOPIC_ID, is_beside, metadata, options};
use crate::fetch::FetchOptions;
use crate::fetch::dialling::{DialError, Endpoint, MetadataLink};
use crate::kafka::message::Metadata;
use std::io;

fn endpoint(node_id: u16) -> Endpoint {
    Endpoint { host: "broker".to_owned(), port: node_id }
}

/// Nothing is known to compare it with.
#[test]
fn which_topic_the_input_is_counts_once_two_connections_have_said_the_same() {
    let truth = metadata(&[1], 1);
    for lie in [
        Metadata { topic_id: TOPIC_ID + 1, ..truth.clone() },
        Metadata { partitions: Vec::new(), ..truth.clone() },
    ] {
        let mut daemon = Daemon::start(lie);
        daemon.turn(0);
        daemon.metadata = truth.clone();
        daemon.turn_until_connected(1);
        let links = [MetadataLink::Kept, MetadataLink::New, MetadataLink::New];
        assert_eq!(daemon.links, links);
        assert_eq!(daemon.progress.input_topic_id.get(), Some(&TOPIC_ID.to_be_bytes()));
        assert!(!daemon.cursor.has_failed());
        let sentences = daemon.sentences();
        assert_eq!(sentences.len(), 1, "{sentences:?}");
        assert!(sentences[0].1.contains("do not say the same"), "{sentences:?}");
    }
}

#[test]
fn the_second_connection_is_asked_at_once() {
    let mut daemon = Daemon::start(metadata(&[1], 1));
    for _ in 0..6 {
        daemon.turn(0);
    }
    assert_eq!(daemon.links, [MetadataLink::Kept, MetadataLink::New]);
    assert_eq!(daemon.connections.len(), 1, "no time has passed");
}

#[test]
fn a_leader_that_no_answer_has_listed_is_asked_for_until_one_does() {
    let mut daemon = Daemon::start(metadata(&[1], 2));
    for _ in 0..20 {
        daemon.turn(100);
    }
    assert!(daemon.connections.is_empty(), "nobody knows where the leader listens");
    daemon.metadata = metadata(&[1, 2], 2);
    daemon.turn_until_connected(2);
}

/// Turns for so many seconds, in which the brokers answer. Nobody has records.
fn turn_for(daemon: &mut Daemon, seconds: u64) {
    for _ in 0..seconds * 10 {
        daemon.turn(100);
        daemon.answer_all(END, END);
    }
}

/// Where the log ends, and the daemon has read up to.
const END: i64 = 100;

/// Kafka's error code of an offset that is not in the log.
const OFFSET_OUT_OF_RANGE: i16 = 1;

fn away() -> DialError {
    let error = io::ErrorKind::ConnectionRefused.into();
    DialError::Io { endpoint: endpoint(2), error }
}

#[test]
fn another_broker_than_the_leader_is_asked_about_a_partition_that_misses_its_ticks() {
    for (tick_every_ms, questions) in [(1_000, 24), (4_000, 6), (60_000, 2), (0, 2)] {
        let options = FetchOptions { tick_every_ms, ..options() };
        let mut daemon = Daemon::start_with(options, END, metadata(&[1, 2], 1));
        daemon.turn_until_connected(1);
        daemon.links.clear();
        turn_for(&mut daemon, 61);
        let asked = daemon.links.len();
        assert!((questions - 1..=questions).contains(&asked), "{tick_every_ms} ms: {asked} times");
        assert!(daemon.links.iter().all(|link| *link == MetadataLink::NewBeside(endpoint(1))));
        assert_eq!(daemon.connections.len(), 1, "the leader is not left");
    }
}

#[test]
fn a_broker_that_is_only_asked_for_its_opinion_may_be_away_but_must_not_refuse_us() {
    let mut daemon = Daemon::start_at(END, metadata(&[1, 2], 1));
    daemon.turn_until_connected(1);
    daemon.beside = Some(away);
    turn_for(&mut daemon, 10);
    assert_eq!(daemon.sentences(), []);
    daemon.beside = Some(|| DialError::SaslListener(endpoint(2)));
    turn_for(&mut daemon, 10);
    let sentences = daemon.sentences();
    assert!(sentences.iter().any(|(_, said)| said.contains("[kafka.sasl]")), "{sentences:?}");
}

/// It may be cut off, and lead no more.
#[test]
fn a_claim_of_the_leader_counts_once_another_broker_has_said_who_leads() {
    let mut daemon = Daemon::start_at(END + 1, metadata(&[1, 2], 1));
    daemon.leader_error = OFFSET_OUT_OF_RANGE;
    daemon.beside = Some(away);
    turn_for(&mut daemon, 300);
    assert!(!daemon.cursor.has_failed());
    let ports = daemon.connections.iter().map(|(port, _)| *port);
    assert!(ports.filter(|port| *port == 1).count() > 3, "it makes its claim again and again");
    assert!(daemon.links.iter().filter(|link| is_beside(link)).count() > 100);
    daemon.beside = None;
    turn_for(&mut daemon, 60);
    let fault = daemon.cursor.take_fault().expect("both say so").to_string();
    assert!(fault.contains("ends at 100, below offset 101"), "{fault}");
}

/// Whether the leader of this number is asked within a minute while the answer of broker 1 arrives
/// slowly.
fn asks_while_an_answer_arrives(leader: i32) -> bool {
    let mut daemon = Daemon::start_at(END, metadata(&[1, 2], 1));
    daemon.turn_until_connected(1);
    daemon.begin_answer();
    daemon.metadata = metadata(&[1, 2], leader);
    (0..600).any(|_| {
        daemon.turn(100);
        daemon.connections.len() > 1
    })
}

#[test]
fn an_answer_that_arrives_slowly_is_waited_for_but_not_from_a_broker_that_leads_no_more() {
    assert!(!asks_while_an_answer_arrives(1));
    assert!(asks_while_an_answer_arrives(2));
}

#[test]
fn a_claim_of_the_only_broker_counts_once_two_connections_have_made_it() {
    let mut daemon = Daemon::start_at(END + 1, metadata(&[1], 1));
    daemon.leader_error = OFFSET_OUT_OF_RANGE;
    daemon.beside = Some(away);
    turn_for(&mut daemon, 40);
    assert!(daemon.cursor.has_failed());
}
