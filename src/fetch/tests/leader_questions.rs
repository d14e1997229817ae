//! When the leaders are asked for, and which broker is asked.

use super::{Daemon, TOPIC_ID, is_to_witness, metadata, options, partitions_of};
use crate::fetch::FetchOptions;
use crate::fetch::cursor::Cursor;
use crate::fetch::dialling::{DialError, Endpoint, MetadataLink};
use crate::kafka::message::{Metadata, PartitionLeader};
use std::io;

fn endpoint(node_id: u16) -> Endpoint {
    Endpoint { host: "broker".to_owned(), port: node_id }
}

/// There is nothing to compare it with.
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
        assert!(sentences[0].1.contains("two connections disagree"), "{sentences:?}");
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

/// Runs turns for this many seconds. The brokers answer, without records.
fn turn_for(daemon: &mut Daemon, seconds: u64) {
    for _ in 0..seconds * 10 {
        daemon.turn(100);
        daemon.answer_all(END);
    }
}

/// The end of the log, up to which the daemon has read.
const END: i64 = 100;

fn away(_: Metadata) -> Result<Metadata, DialError> {
    let error = io::ErrorKind::ConnectionRefused.into();
    Err(DialError::Io { endpoint: endpoint(2), error })
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
        assert!(daemon.links.iter().all(|link| *link == MetadataLink::NewTo(endpoint(2))));
        assert_eq!(daemon.connections.len(), 1, "the leader is not left");
    }
}

#[test]
fn a_broker_that_is_only_asked_for_its_opinion_may_be_away_but_must_not_refuse_us() {
    let mut daemon = Daemon::start_at(END, metadata(&[1, 2], 1));
    daemon.turn_until_connected(1);
    daemon.witness = away;
    turn_for(&mut daemon, 10);
    assert_eq!(daemon.sentences(), []);
    daemon.witness = |_| Err(DialError::SaslListener(endpoint(2)));
    turn_for(&mut daemon, 10);
    let sentences = daemon.sentences();
    assert!(sentences.iter().any(|(_, said)| said.contains("[kafka.sasl]")), "{sentences:?}");
}

/// They confirm each other's claims, and a daemon that has just started knows nothing better.
#[test]
fn brokers_that_are_cut_off_together_are_not_believed_if_the_survey_knew_a_later_leader() {
    let mut daemon = Daemon::start_at(END + 1, metadata(&[1, 2, 3], 1));
    daemon.cursor.surveyed_leader_epoch.set(6);
    daemon.metadata.partitions[0].leader_epoch = 5;
    daemon.lost = vec![(1, 0)];
    turn_for(&mut daemon, 1);
    let is_kept = |link: &&MetadataLink| **link == MetadataLink::Kept;
    assert!(daemon.links.iter().filter(is_kept).count() <= 1, "each answer is another broker's");
    assert!(!daemon.cursor.has_failed() && daemon.connections.is_empty(), "{:?}", daemon.links);
    (daemon.metadata.partitions[0].leader, daemon.metadata.partitions[0].leader_epoch) =
        (Some(3), 6);
    daemon.turn_until_connected(3);
}

/// It may be cut off, and no longer lead.
#[test]
fn a_claim_of_the_leader_counts_once_another_broker_has_said_who_leads() {
    let mut daemon = Daemon::start_at(END + 1, metadata(&[1, 2], 1));
    daemon.lost = vec![(1, 0)];
    daemon.witness = away;
    turn_for(&mut daemon, 300);
    assert!(!daemon.cursor.has_failed());
    assert_eq!(daemon.connections.len(), 2, "another connection makes the same claim");
    assert!(daemon.links.iter().filter(|link| is_to_witness(link)).count() > 100);
    daemon.witness = Ok;
    turn_for(&mut daemon, 60);
    let fault = daemon.cursor.take_fault().expect("both say so").to_string();
    assert!(fault.contains("ends at 100, below offset 101"), "{fault}");
}

/// A daemon that also owns partition 1, led by this broker; broker 1 leads partition 0.
fn owner_of_two(brokers: &[i32], second_leader: i32) -> Daemon {
    let mut metadata = metadata(brokers, 1);
    let leader = Some(second_leader);
    metadata.partitions.push(PartitionLeader { partition: 1, leader, ..metadata.partitions[0] });
    let options = FetchOptions { connections_per_broker: 1, ..options() };
    let daemon = Daemon::start_with(options, END + 1, metadata);
    daemon.cursors.open(Cursor::new(1, 1, (END, None), Box::default()));
    daemon
}

/// Number of fetches of partition 1 within a minute, while broker 1 makes these claims.
fn fetches_of_the_second(lost: Vec<(i32, i32)>) -> usize {
    let mut daemon = owner_of_two(&[1, 2], 1);
    daemon.lost = lost;
    daemon.witness = away;
    turn_for(&mut daemon, 5);
    let mut fetches = Vec::new();
    for _ in 0..600 {
        daemon.turn(100);
        fetches.extend(daemon.answer_all(END));
    }
    fetches.retain(|(_, fetch)| partitions_of(fetch, true).contains(&1));
    assert!(!daemon.cursor.has_failed());
    assert!(daemon.connections.len() <= 2);
    // After the length, the header and the replica id.
    let wait_ms = |fetch: &[u8]| i32::from_be_bytes(fetch[24..28].try_into().expect("four bytes"));
    let patient = fetches.iter().filter(|(_, fetch)| wait_ms(fetch) == 100).count();
    assert!(patient * 10 > fetches.len() * 8, "{patient} of {}", fetches.len());
    fetches.len()
}

#[test]
fn a_claim_about_one_partition_does_not_hold_up_the_others_of_its_broker() {
    let beside_none = fetches_of_the_second(Vec::new());
    let beside_claims = fetches_of_the_second(vec![(1, 0)]);
    assert!(beside_claims * 4 >= beside_none * 3, "{beside_claims} of {beside_none}");
}

#[test]
fn claims_of_two_brokers_are_both_checked() {
    let mut daemon = owner_of_two(&[1, 2, 3], 2);
    daemon.lost = vec![(1, 0), (2, 1)];
    daemon.witness = away;
    turn_for(&mut daemon, 60);
    let has_failed = |daemon: &Daemon| {
        let mut failed = Vec::new();
        daemon.cursors.each(|cursor| failed.push(cursor.has_failed()));
        failed
    };
    assert_eq!(has_failed(&daemon), [false, false]);
    let asked = daemon.links.len();
    assert!(asked < 60 * 3, "{asked} connections");
    daemon.witness = Ok;
    turn_for(&mut daemon, 60);
    // The end of its log says that partition 1 has its offset after all.
    assert_eq!(has_failed(&daemon), [true, false]);
    let others = [2, 3].map(|node_id| MetadataLink::NewTo(endpoint(node_id)));
    assert!(others.iter().all(|other| daemon.links.contains(other)), "{:?}", daemon.links);
}

/// A broker with a bad disk may make both claims at once.
#[test]
fn a_claim_of_the_leader_is_not_forgotten_for_damage_in_the_same_answer() {
    let mut daemon = owner_of_two(&[1, 2], 1);
    (daemon.lost, daemon.zeroed) = (vec![(1, 0)], vec![(1, 1)]);
    daemon.witness = away;
    turn_for(&mut daemon, 60);
    assert!(!daemon.cursor.has_failed());
    let mut failed = 0;
    daemon.cursors.each(|cursor| failed += usize::from(cursor.has_failed()));
    assert_eq!(failed, 1, "what is in a log can be shown again");
    daemon.witness = Ok;
    turn_for(&mut daemon, 10);
    assert!(daemon.cursor.has_failed());
}

#[test]
fn a_broker_that_does_not_know_who_leads_confirms_no_claim() {
    let mut daemon = Daemon::start_at(END + 1, metadata(&[1, 2], 1));
    daemon.lost = vec![(1, 0)];
    daemon.witness = |mut metadata| {
        metadata.partitions[0].leader = None;
        Ok(metadata)
    };
    turn_for(&mut daemon, 5);
    daemon.links.clear();
    turn_for(&mut daemon, 55);
    assert!(!daemon.cursor.has_failed());
    let is_any = daemon.links.iter().filter(|link| **link == MetadataLink::New).count();
    assert!(is_any > 10, "the broker in doubt may be the only one that knows");
}

#[test]
fn a_partition_without_a_leader_is_mostly_asked_for_over_the_kept_connection() {
    let mut metadata = metadata(&[1, 2], 1);
    metadata.partitions[0].leader = None;
    let mut daemon = Daemon::start(metadata);
    turn_for(&mut daemon, 60);
    let (kept, others): (Vec<_>, Vec<_>) =
        daemon.links.iter().partition(|link| **link == MetadataLink::Kept);
    assert!(kept.len() > 100, "{} times: it goes on at once when there is one", kept.len());
    assert!((20..40).contains(&others.len()), "{} connections in a minute", others.len());
}

#[test]
fn a_claim_of_the_leader_counts_although_the_other_brokers_are_behind() {
    let mut daemon = Daemon::start_at(END + 1, metadata(&[1, 2, 3], 1));
    daemon.metadata.partitions[0].leader_epoch = 6;
    daemon.lost = vec![(1, 0)];
    daemon.witness = |mut metadata| {
        (metadata.partitions[0].leader, metadata.partitions[0].leader_epoch) = (Some(2), 5);
        Ok(metadata)
    };
    turn_for(&mut daemon, 10);
    assert!(daemon.cursor.has_failed());
}

#[test]
fn a_claim_about_a_partition_that_nobody_leads_does_not_keep_others_from_being_checked() {
    let mut daemon = owner_of_two(&[1, 2, 3], 2);
    daemon.lost = vec![(1, 0)];
    daemon.witness = away;
    turn_for(&mut daemon, 5);
    daemon.witness = Ok;
    daemon.metadata.partitions[0].leader = None;
    turn_for(&mut daemon, 5);
    daemon.cursors.close(1);
    daemon.cursors.open(Cursor::new(1, 2, (END + 1, None), Box::default()));
    daemon.lost.push((2, 1));
    turn_for(&mut daemon, 10);
    let mut failed = Vec::new();
    daemon.cursors.each(|cursor| failed.push(cursor.has_failed()));
    assert_eq!(failed, [false, true]);
}

#[test]
fn a_broker_that_is_gone_while_it_is_doubted_does_not_keep_others_from_being_checked() {
    let mut daemon = Daemon::start_at(END + 1, metadata(&[1, 2, 3], 1));
    daemon.lost = vec![(1, 0), (2, 0)];
    daemon.witness = away;
    turn_for(&mut daemon, 10);
    daemon.metadata = metadata(&[2, 3], 2);
    turn_for(&mut daemon, 10);
    daemon.witness = Ok;
    daemon.links.clear();
    turn_for(&mut daemon, 60);
    assert!(daemon.cursor.has_failed());
    let is_of_third = |link: &MetadataLink| *link == MetadataLink::NewTo(endpoint(3));
    assert!(daemon.links.iter().any(is_of_third), "{:?}", daemon.links);
}

/// Brokers that are cut off together confirm each other. The records that were read before a start
/// tell that there is a later leader (KIP-320).
#[test]
fn a_claim_of_a_leader_whose_epoch_is_below_that_of_the_record_before_never_counts() {
    let mut cut_off = metadata(&[1, 2], 1);
    cut_off.partitions[0].leader_epoch = 5;
    for (epoch, is_believed) in [(None, true), (Some(5), true), (Some(6), false)] {
        let mut daemon = Daemon::start(cut_off.clone());
        daemon.cursors.close(0);
        daemon.cursor = Cursor::new(0, 2, (END + 1, epoch), Box::default());
        daemon.cursors.open(daemon.cursor.clone());
        daemon.lost = vec![(1, 0)];
        turn_for(&mut daemon, 300);
        assert_eq!(daemon.cursor.has_failed(), is_believed, "{epoch:?}");
        if is_believed {
            continue;
        }
        assert_eq!(daemon.connections.len(), 1);
        let mut healed = metadata(&[1, 2], 2);
        healed.partitions[0].leader_epoch = 6;
        daemon.metadata = healed;
        daemon.turn_until_connected(2);
        assert!(!daemon.cursor.has_failed());
    }
}

/// Returns whether the leader of this number is asked within a minute while the answer of broker 1
/// arrives slowly.
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
    daemon.lost = vec![(1, 0)];
    turn_for(&mut daemon, 5);
    assert!(daemon.cursor.has_failed());
    assert!(!daemon.links.iter().any(is_to_witness), "{:?}", daemon.links);
}

#[test]
fn a_claim_counts_once_no_broker_lists_another_one_any_more() {
    let mut daemon = Daemon::start_at(END + 1, metadata(&[1, 2], 1));
    daemon.lost = vec![(1, 0)];
    daemon.witness = away;
    turn_for(&mut daemon, 20);
    assert!(!daemon.cursor.has_failed());
    daemon.metadata = metadata(&[1], 1);
    turn_for(&mut daemon, 20);
    assert!(daemon.cursor.has_failed());
}
