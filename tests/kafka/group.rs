//! The consumer group: offsets for lag tools, its protocols, and no Fetch of librdkafka's.

use crate::players::{events, produce};
use huntd::kafka::client::ClientOptions;
use huntd::kafka::group::{GroupOptions, GroupProtocol, Membership};
use huntd::kafka::membership::MembershipEvent;
use huntd::kafka::security::Security;
use std::time::{Duration, Instant};
use support::accounts::{self, Follower};
use support::daemon::{Huntd, Topics};
use support::kafka;
use support::notified::Systemd;

#[test]
fn every_protocol_delivers_and_all_offsets_are_committed_at_the_end() {
    for protocol in ["classic", "eager", "consumer"] {
        let topics = Topics::create(kafka::shared(), protocol, 3);
        produce(kafka::shared(), &topics, &events(3, 30, 1..=20));
        let setting = format!("group_protocol = \"{protocol}\"");
        let mut huntd = Huntd::start(kafka::shared(), &topics, &[("kafka", &setting)]);
        let mut follower = Follower::new(kafka::shared(), &topics);
        accounts::wait_until_covered(kafka::shared(), &topics, &mut follower, &mut huntd);
        let ended = huntd.stop();
        assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
        accounts::assert_is_the_replay(kafka::shared(), &topics, follower);
        let committed = kafka::shared().client().committed(topics.group(), &topics.input, 3);
        assert_eq!(committed, [200, 200, 200], "{protocol}");
    }
}

#[test]
fn a_standby_with_nothing_assigned_is_ready_and_takes_over_when_the_owner_stops() {
    let topics = Topics::create(kafka::shared(), "standby", 1);
    produce(kafka::shared(), &topics, &events(1, 20, 1..=10));
    let mut owner = Huntd::start(kafka::shared(), &topics, &[]);
    let mut follower = Follower::new(kafka::shared(), &topics);
    accounts::wait_until_covered(kafka::shared(), &topics, &mut follower, &mut owner);

    let systemd = Systemd::listen();
    let mut standby = Huntd::start_under(&systemd.path, kafka::shared(), &topics, &[]);
    systemd.hear_until("READY=1");
    standby.wait_until("its address", |standby| standby.log().contains("\"address\":\""));
    assert_eq!(standby.metric("huntd_shards_owned"), 0, "{}", standby.log());
    assert_eq!(owner.metric("huntd_shards_owned"), 1, "{}", owner.log());

    let ended = owner.stop();
    assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
    produce(kafka::shared(), &topics, &events(1, 20, 11..=20));
    accounts::wait_until_covered(kafka::shared(), &topics, &mut follower, &mut standby);
    let ended = standby.stop();
    assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
    accounts::assert_is_the_replay(kafka::shared(), &topics, follower);
}

#[test]
fn a_member_of_the_group_fetches_nothing() {
    for group_protocol in [GroupProtocol::Classic, GroupProtocol::Eager, GroupProtocol::Consumer] {
        let topics = Topics::create(kafka::shared(), "member", 2);
        produce(kafka::shared(), &topics, &events(2, 10, 1..=10));
        let mut membership = Membership::join(&options(&topics, group_protocol)).expect("joined");
        let end = Instant::now() + Duration::from_secs(60);
        let mut assigned = Vec::new();
        while assigned.len() < 2 {
            assert!(Instant::now() < end, "nothing is assigned under {group_protocol:?}");
            let event = membership.poll(Duration::from_millis(100));
            if let Some(MembershipEvent::Assigned(partitions)) = event {
                assigned.extend(partitions);
            }
        }
        // Statistics come once a second: two more of them have seen the assignment at work.
        let seen = Instant::now() + Duration::from_millis(2_500);
        while Instant::now() < seen {
            membership.poll(Duration::from_millis(100));
        }
        assert_eq!(membership.fetch_requests(), Some(0), "{group_protocol:?}");
    }
}

fn options(topics: &Topics, protocol: GroupProtocol) -> GroupOptions {
    GroupOptions {
        client: ClientOptions {
            brokers: kafka::shared().bootstrap().split(',').map(str::to_owned).collect(),
            client_id: "huntd-test".to_owned(),
            security: Security::default(),
            group: topics.group().to_owned(),
        },
        input_topic: topics.input.clone(),
        instance_id: None,
        protocol,
        session_timeout_ms: 6_000,
    }
}
