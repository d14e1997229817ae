//! The table of leaders: which answers are applied, what is stale, what stops the daemon.

use crate::kafka::error_code::ErrorCode;
use crate::kafka::leader_hint::CurrentLeader;
use crate::kafka::message::{Broker, Metadata, PartitionLeader};
use crate::kafka::metadata::{BROKERS_MAX, LeaderTable, MetadataError};

/// Brokers 1 to 3. Partition `n` has the `n`th leader and leader epoch.
fn metadata(leaders: &[(i32, i32)]) -> Metadata {
    let partitions = (0..).zip(leaders).map(|(partition, &(leader, leader_epoch))| {
        let (leader, error) = match leader {
            -1 => (None, ErrorCode(5)),
            leader => (Some(leader), ErrorCode::NONE),
        };
        PartitionLeader { partition, leader, leader_epoch, error }
    });
    Metadata {
        brokers: (1..=3)
            .map(|node_id| Broker { node_id, host: format!("b{node_id}"), port: 9092 })
            .collect(),
        cluster_id: None,
        controller: None,
        error: ErrorCode::NONE,
        topic_id: 42,
        partitions: partitions.collect(),
        replicas: 1,
    }
}

fn leads(node_id: i32, leader_epoch: i32) -> Option<CurrentLeader> {
    Some(CurrentLeader { node_id, leader_epoch })
}

fn stale(table: &LeaderTable) -> Vec<i32> {
    table.stale().collect()
}

#[test]
fn the_first_answer_fills_the_table() {
    let mut table = LeaderTable::new();
    assert_eq!((table.partition_count(), table.leader(0)), (0, None));
    table.fold(&metadata(&[(1, 5), (-1, 5), (3, 0)])).unwrap();
    assert_eq!(table.leader(0), leads(1, 5));
    assert_eq!(table.leader(1), None);
    assert_eq!((table.leader(3), table.leader(-1)), (None, None));
    assert_eq!(stale(&table), [1]);
    assert_eq!(table.broker(3).unwrap().host, "b3");
    assert_eq!(table.partition_count(), 3);
}

/// The brokers that answer first may be cut off.
#[test]
fn an_answer_of_a_lower_epoch_than_others_have_told_is_no_first_one() {
    for is_first in [true, false] {
        let mut table = LeaderTable::new();
        if !is_first {
            table.fold(&metadata(&[(3, 4)])).unwrap();
        }
        table.expect_leader(0, 5);
        for _ in 0..4 {
            table.fold(&metadata(&[(3, 4)])).unwrap();
            assert_eq!((table.leader(0), table.lags()), (None, true));
        }
        table.fold(&metadata(&[(1, 5)])).unwrap();
        assert_eq!((table.leader(0), table.lags()), (leads(1, 5), false));
        table.expect_leader(0, -1);
        assert_eq!((table.leader(0), table.lags()), (None, false), "it is asked for once more");
        table.fold(&metadata(&[(3, 4)])).unwrap();
        assert!(table.lags());
    }
}

#[test]
fn an_answer_of_a_lower_epoch_is_passed_over_and_the_partition_stays_stale() {
    let mut table = LeaderTable::new();
    table.fold(&metadata(&[(1, 5), (2, 5)])).unwrap();
    table.mark_stale(0, 1);
    assert_eq!(table.leader(0), None);
    table.fold(&metadata(&[(3, 4), (3, 6)])).unwrap();
    assert_eq!((table.leader(0), table.leader(1)), (None, leads(3, 6)));
    assert_eq!(stale(&table), [0]);
    table.fold(&metadata(&[(1, 5), (3, 6)])).unwrap();
    assert_eq!((table.leader(0), stale(&table)), (leads(1, 5), vec![]));
    // A broker before Kafka 2.4 reports no leader epoch: its answer is applied.
    table.fold(&metadata(&[(2, -1), (3, 6)])).unwrap();
    assert_eq!(table.leader(0), leads(2, -1));
}

#[test]
fn a_leader_named_by_a_fetch_response_is_believed_if_newer_and_reachable() {
    let mut table = LeaderTable::new();
    table.fold(&metadata(&[(1, 5)])).unwrap();
    table.mark_stale(0, 1);
    let named = |node_id, leader_epoch| CurrentLeader { node_id, leader_epoch };
    assert!(!table.learn(0, named(2, 5)), "not newer");
    assert!(!table.learn(0, named(9, 6)), "its address is not known");
    assert!(!table.learn(8, named(2, 6)), "no such partition");
    assert_eq!(stale(&table), [0]);
    assert!(table.learn(0, named(2, 6)));
    assert_eq!((table.leader(0), stale(&table)), (leads(2, 6), vec![]));
}

#[test]
fn more_brokers_than_a_cluster_has_are_not_remembered() {
    let mut table = LeaderTable::new();
    table.fold(&metadata(&[(1, 5)])).unwrap();
    for node_id in 0..2 * BROKERS_MAX as i32 {
        table.learn_broker(Broker { node_id, host: "b".to_owned(), port: 9092 });
    }
    assert_eq!(table.brokers().len(), BROKERS_MAX);
    assert_eq!(table.broker(3).unwrap().host, "b", "what is known is still corrected");
    table.fold(&metadata(&[(1, 6)])).unwrap();
    assert_eq!(table.brokers().len(), 3, "a Metadata answer replaces them");
}

#[test]
fn a_broker_that_led_before_does_not_make_its_successor_stale() {
    let mut table = LeaderTable::new();
    table.fold(&metadata(&[(2, 6)])).unwrap();
    assert!(!table.mark_stale(0, 1));
    assert_eq!(table.leader(0), leads(2, 6));
    assert!(table.mark_stale(0, 2));
    assert!(table.mark_stale(0, 1), "no other leader is known");
}

#[test]
fn a_broker_that_is_gone_makes_its_partitions_stale() {
    let mut table = LeaderTable::new();
    table.fold(&metadata(&[(1, 5), (2, 5), (1, 7)])).unwrap();
    table.mark_broker_stale(1);
    assert_eq!(stale(&table), [0, 2]);
    assert_eq!(table.leader(1), leads(2, 5));
    assert!(table.serves(1), "it may come back");
    assert!(table.serves(2) && !table.serves(3));
}

#[test]
fn a_follower_that_is_missing_does_not_hide_the_leader() {
    let mut answer = metadata(&[(1, 5)]);
    answer.partitions[0].error = ErrorCode(9);
    let mut table = LeaderTable::new();
    table.fold(&answer).unwrap();
    assert_eq!(table.leader(0), leads(1, 5));
}

#[test]
fn a_topic_that_is_gone_recreated_or_resized_changes_nothing_and_is_reported() {
    let mut table = LeaderTable::new();
    table.fold(&metadata(&[(1, 5), (2, 5)])).unwrap();
    let gone = Metadata { error: ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, ..metadata(&[]) };
    let error = MetadataError::Topic(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    assert_eq!(table.fold(&gone), Err(error));
    let recreated = Metadata { topic_id: 43, ..metadata(&[(3, 9), (3, 9)]) };
    assert_eq!(table.fold(&recreated), Err(MetadataError::Recreated));
    let resized = metadata(&[(3, 9), (3, 9), (3, 9)]);
    assert_eq!(table.fold(&resized), Err(MetadataError::PartitionCount { before: 2, now: 3 }));
    assert_eq!((table.leader(0), table.leader(1)), (leads(1, 5), leads(2, 5)));
}

#[test]
fn a_leader_epoch_that_goes_back_and_stays_there_is_believed() {
    let mut table = LeaderTable::new();
    table.fold(&metadata(&[(1, 9)])).unwrap();
    table.mark_stale(0, 1);
    for _ in 0..4 {
        table.fold(&metadata(&[(2, 3)])).unwrap();
        assert_eq!(table.leader(0), None, "the broker may lag");
    }
    table.fold(&metadata(&[(2, 3)])).unwrap();
    assert_eq!(table.leader(0), leads(2, 3));

    // Other answers have no effect, however often they come, while the leader is not in doubt.
    let mut table = LeaderTable::new();
    table.fold(&metadata(&[(1, 9)])).unwrap();
    for _ in 0..20 {
        table.fold(&metadata(&[(2, 3)])).unwrap();
        assert_eq!(table.leader(0), leads(1, 9));
    }

    // A leader in doubt is not trusted to serve: it may hold requests.
    let mut table = LeaderTable::new();
    table.fold(&metadata(&[(1, 9), (2, 9)])).unwrap();
    for _ in 0..4 {
        table.fold_doubting(&metadata(&[(2, 3), (1, 3)]), Some(1)).unwrap();
        assert_eq!((table.leader(0), table.leader(1)), (leads(1, 9), leads(2, 9)));
    }
    table.fold_doubting(&metadata(&[(2, 3), (1, 3)]), Some(1)).unwrap();
    assert_eq!((table.leader(0), table.leader(1)), (leads(2, 3), leads(2, 9)));

    // Any other answer in between restarts the count.
    let mut table = LeaderTable::new();
    table.fold(&metadata(&[(1, 9)])).unwrap();
    for round in 0..20 {
        table.fold(&metadata(&[if round % 4 == 3 { (1, 9) } else { (2, 3) }])).unwrap();
        assert_eq!(table.leader(0), leads(1, 9));
    }
}

#[test]
fn brokers_that_an_answer_does_not_list_are_not_fetched_from() {
    let mut table = LeaderTable::new();
    table.fold(&metadata(&[(1, 5), (2, 5), (2, 5)])).unwrap();
    // The third entry lags, and the known leader of its partition is gone, too.
    let mut answer = metadata(&[(1, 5), (2, 5), (1, 4)]);
    answer.brokers.retain(|broker| broker.node_id == 1);
    table.fold(&answer).unwrap();
    assert_eq!(table.leader(0), leads(1, 5));
    assert_eq!(stale(&table), [1, 2], "their leader is gone");
    // An answer without brokers comes from one that has just started.
    let answer = Metadata { brokers: Vec::new(), ..metadata(&[(1, 5), (1, 6), (1, 6)]) };
    table.fold(&answer).unwrap();
    assert_eq!((table.leader(1), stale(&table)), (leads(1, 6), vec![]));
}
