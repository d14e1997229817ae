//! The consumer group: offsets for lag tools, its protocols, and no Fetch of librdkafka's.

use crate::players::{events, produce};
use crate::restarts::wait_until_owned;
use crate::verbs;
use huntd::kafka::client::ClientOptions;
use huntd::kafka::group::{GroupOptions, GroupProtocol, Membership};
use huntd::kafka::membership::MembershipEvent;
use huntd::kafka::security::Security;
use rdkafka::consumer::{BaseConsumer, Consumer};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use support::PATIENCE;
use support::accounts::{self, Follower};
use support::daemon::{Huntd, Topics};
use support::kafka::{self, Cluster, Options};
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
        let end = Instant::now() + PATIENCE;
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

/// Kafka wants three replicas of the groups' topic, and one broker has no room for them.
#[test]
fn a_cluster_that_cannot_coordinate_groups_is_named_by_check_and_by_a_start() {
    let properties = vec![("offsets.topic.replication.factor", "3".to_owned())];
    let cluster = Cluster::start(1, &Options { properties, ..Options::for_tests() });
    let topics = Topics::named("uncoordinated", 1);
    let keys = [
        format!("kafka.brokers={}", cluster.bootstrap()),
        format!("kafka.input_topic={}", topics.input),
        format!("kafka.output_topic={}", topics.output),
        format!("kafka.dead_letter_topic={}", topics.dead_letters),
        format!("kafka.group={}", topics.group()),
    ];
    let config = concat!(env!("CARGO_MANIFEST_DIR"), "/config/huntd.toml");
    let run = |verb: &[&str]| {
        let sets = keys.iter().flat_map(|key| ["--set", key.as_str()]);
        let arguments = verb.iter().copied().chain(["--config", config]).chain(sets);
        verbs::huntd(&arguments.collect::<Vec<_>>())
    };
    let created = run(&["topics", "--partitions", "1"]);
    assert_eq!(created.code, 0, "{}", created.errors);

    let mut huntd = Huntd::start(&cluster, &topics, &[]);
    let sentence = format!("no broker coordinates the group `{}`: COORDINATOR_NOT", topics.group());
    huntd.wait_until("a line about it", |huntd| huntd.log().contains(&sentence));
    let remedy = "it has 1 brokers, and the brokers' offsets.topic.replication.factor";
    assert!(huntd.log().contains(remedy), "{}", huntd.log());
    let checked = run(&["check"]);
    assert_eq!(checked.code, 4, "{}{}", checked.output, checked.errors);
    assert!(checked.errors.contains(&sentence), "{}", checked.errors);
}

/// Another program in the group, until it is dropped.
struct Stranger {
    is_there: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Stranger {
    fn join(topics: &Topics) -> Stranger {
        let mut config = kafka::shared().client().config();
        config
            .set("group.id", topics.group())
            .set("partition.assignment.strategy", "cooperative-sticky")
            .set("session.timeout.ms", "6000");
        let consumer: BaseConsumer = config.create().expect("the configuration is valid");
        consumer.subscribe(&[&topics.input]).expect("it begins to join");
        let is_there = Arc::new(AtomicBool::new(true));
        let stays = is_there.clone();
        let (joined, is_in) = mpsc::channel();
        let consume = move || {
            while stays.load(Ordering::Relaxed) {
                drop(consumer.poll(Duration::from_millis(100)));
                if consumer.assignment().is_ok_and(|assigned| assigned.count() > 0) {
                    joined.send(()).ok();
                }
            }
        };
        let thread = Some(thread::spawn(consume));
        is_in.recv_timeout(PATIENCE).expect("it has joined");
        Stranger { is_there, thread }
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.is_there.store(false, Ordering::Relaxed);
        self.thread.take().expect("it runs until then").join().expect("it ends");
    }
}

/// It reads and commits what it has, so no lag grows.
#[test]
fn partitions_that_another_program_in_the_group_has_taken_count_as_unread() {
    let topics = Topics::create(kafka::shared(), "taken", 2);
    let _stranger = Stranger::join(&topics);
    produce(kafka::shared(), &topics, &events(2, 20, 1..=10));
    let mut huntd = Huntd::start(kafka::shared(), &topics, &[]);
    wait_until_owned(&mut huntd, 1);
    let words = "another program in the group has taken them";
    huntd.wait_until("a line about it", |huntd| huntd.log().contains(words));
    assert_eq!(huntd.metric("huntd_partitions_unread"), 1, "{}", huntd.log());
}

#[test]
fn members_that_share_partitions_in_another_way_are_named_with_what_to_do() {
    let topics = Topics::create(kafka::shared(), "inconsistent", 1);
    let _stranger = Stranger::join(&topics);
    let mut huntd =
        Huntd::start(kafka::shared(), &topics, &[("kafka", "group_protocol = \"eager\"")]);
    let words = format!("the group `{}` has members with which huntd cannot", topics.group());
    huntd.wait_until("a line about it", |huntd| huntd.log().contains(&words));
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
        assignment: None,
        protocol,
        session_timeout_ms: 6_000,
    }
}
