//! Where logs begin and end, as the brokers of a mock cluster say it.

use huntd::control::surveyor::Surveyor;
use huntd::kafka::topic_error::TopicError;
use huntd::ownership::bounds::Bounds;
use rdkafka::mocking::MockCluster;
use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};
use support::PATIENCE;
use support::mock::{self, Cluster, append};

type Surveys = BTreeMap<i32, Result<Bounds, TopicError>>;

/// Two brokers. The second leads partition 1 of both topics, the first all others.
fn two_brokers() -> Cluster {
    let cluster = MockCluster::new(2).expect("a mock cluster");
    for topic in ["events", "updates"] {
        cluster.create_topic(topic, 3, 2).expect("a topic");
        for partition in 0..3 {
            let leader = if partition == 1 { 2 } else { 1 };
            cluster.partition_leader(topic, partition, Some(leader)).expect("the mock's broker");
        }
    }
    cluster
}

fn wait_for(surveyor: &mut Surveyor, found: &mut Surveys, count: usize) {
    let start = Instant::now();
    while found.len() < count {
        assert!(start.elapsed() < PATIENCE, "{found:?}");
        surveyor.poll(|partition, bounds| {
            assert!(found.insert(partition, bounds).is_none(), "each is reported once");
        });
        thread::sleep(Duration::from_millis(1));
    }
}

fn survey(cluster: &Cluster) -> Surveys {
    let mut surveyor = Surveyor::new(mock::dial_options(cluster, "events"), "updates", &[]);
    let mut found = Surveys::new();
    surveyor.begin(&[0, 1, 2]);
    wait_for(&mut surveyor, &mut found, 3);
    found
}

#[test]
fn the_bounds_of_each_partition_are_those_of_its_logs() {
    let cluster = two_brokers();
    append(&cluster, "events", 1, b"{}");
    (0..2).for_each(|_| append(&cluster, "updates", 1, b"{}"));
    append(&cluster, "events", 2, b"{}");
    let bounds = |input_end, output_end| {
        Ok(Bounds { input_start: 0, input_end, input_leader_epoch: 1, output_start: 0, output_end })
    };
    let expected = [(0, bounds(0, 0)), (1, bounds(1, 2)), (2, bounds(1, 0))];
    assert_eq!(survey(&cluster), Surveys::from(expected));
}

/// It is also one of those that are asked who leads.
#[test]
fn a_leader_that_is_silent_holds_up_only_what_it_leads() {
    let cluster = two_brokers();
    let silence = Duration::from_secs(60);
    cluster.broker_round_trip_time(2, silence).expect("the mock's broker");
    let mut surveyor = Surveyor::new(mock::dial_options(&cluster, "events"), "updates", &[]);
    let mut found = Surveys::new();
    surveyor.begin(&[0, 1, 2]);
    wait_for(&mut surveyor, &mut found, 2);
    assert!(found[&0].is_ok() && found[&2].is_ok(), "{found:?}");
    wait_for(&mut surveyor, &mut found, 3);
    let silent = found[&1].clone().expect_err("nobody has said it").to_string();
    let address = cluster.bootstrap_servers();
    let address = address.split(',').nth(1).expect("there are two");
    assert!(silent.contains(&format!("no answer from {address} within 2 s")), "{silent}");
}

#[test]
fn a_partition_without_a_leader_may_have_one_later_and_the_others_have_theirs() {
    let cluster = two_brokers();
    cluster.partition_leader("updates", 1, None).expect("the mock's topic");
    let found = survey(&cluster);
    assert!(found[&0].is_ok() && found[&2].is_ok(), "{found:?}");
    let sentence = "partition 1 of `updates` has no leader now";
    assert_eq!(found[&1], Err(TopicError::NotNow(sentence.to_owned())));
}

#[test]
fn of_two_surveys_of_a_partition_only_the_later_one_has_a_result() {
    let cluster = two_brokers();
    let mut surveyor = Surveyor::new(mock::dial_options(&cluster, "events"), "updates", &[]);
    surveyor.begin(&[0]);
    // The first one has ended, and nobody has looked.
    thread::sleep(Duration::from_millis(500));
    append(&cluster, "events", 0, b"{}");
    surveyor.begin(&[0]);
    let mut found = Surveys::new();
    wait_for(&mut surveyor, &mut found, 1);
    assert_eq!(found[&0].as_ref().map(|bounds| bounds.input_end), Ok(1));
    surveyor.poll(|partition, bounds| panic!("{partition}: {bounds:?}"));
}

#[test]
fn brokers_that_are_all_silent_are_named() {
    let cluster = two_brokers();
    for broker in [1, 2] {
        let silence = Duration::from_secs(60);
        cluster.broker_round_trip_time(broker, silence).expect("the mock's broker");
    }
    for (_, bounds) in survey(&cluster) {
        let error = bounds.expect_err("nobody has said it");
        assert!(matches!(error, TopicError::Unreachable(_)), "{error:?}");
        for address in cluster.bootstrap_servers().split(',') {
            assert!(error.to_string().contains(address), "{error}");
        }
    }
}
