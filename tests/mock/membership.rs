//! Group membership against a mock cluster: who has which partition, and no Fetch request.

use huntd::kafka::group::{GroupOptions, GroupProtocol, Membership};
use huntd::kafka::membership::MembershipError;
use huntd::kafka::membership::MembershipEvent;
use huntd::kafka::right::Right;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::topic_partition_list::TopicPartitionList;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};
use support::PATIENCE;
use support::mock::{self, Cluster, wait_for};

const POLL: Duration = Duration::from_millis(20);

fn options(cluster: &Cluster, protocol: GroupProtocol) -> GroupOptions {
    GroupOptions {
        client: mock::client(cluster),
        input_topic: "events".to_owned(),
        instance_id: None,
        assignment: None,
        protocol,
        session_timeout_ms: 6_000,
    }
}

/// A member and what it owns, which lets go of what it is asked for.
struct Member {
    membership: Membership,
    owned: BTreeSet<i32>,
    assigned: bool,
    revocations: usize,
    answers: Vec<(u64, bool)>,
}

impl Member {
    fn join(options: &GroupOptions) -> Member {
        let membership = Membership::join(options).expect("the topic is there");
        Member {
            membership,
            owned: BTreeSet::new(),
            assigned: false,
            revocations: 0,
            answers: Vec::new(),
        }
    }

    fn turn(&mut self) {
        if let Some(event) = self.membership.poll(POLL) {
            self.take(event);
        }
    }

    fn take(&mut self, event: MembershipEvent) {
        match event {
            MembershipEvent::Assigned(partitions) => {
                self.assigned = true;
                self.owned.extend(partitions);
            }
            MembershipEvent::Revoked(partitions) => {
                self.revocations += 1;
                self.owned.retain(|partition| !partitions.contains(partition));
            }
            MembershipEvent::Lost(partitions) => {
                self.owned.retain(|partition| !partitions.contains(partition));
            }
            MembershipEvent::Answered { question, is_member, .. } => {
                self.answers.push((question, is_member));
            }
            MembershipEvent::Error(error) => panic!("{error}"),
        }
    }
}

/// Lets all members turn until they own these numbers of partitions.
fn settle(members: &mut [&mut Member], counts: &[usize]) {
    wait_for("the group to settle", || {
        members.iter_mut().for_each(|member| member.turn());
        let all_assigned = members.iter().all(|member| member.assigned);
        let mut owned: Vec<usize> = members.iter().map(|member| member.owned.len()).collect();
        owned.sort_unstable();
        all_assigned && owned == counts
    });
    let all: BTreeSet<i32> = members.iter().flat_map(|member| member.owned.clone()).collect();
    assert_eq!(all, (0..4).collect());
}

fn shares_the_partitions(protocol: GroupProtocol) {
    let cluster = mock::cluster(&[("events", 4)]);
    let options = options(&cluster, protocol);
    let mut first = Member::join(&options);
    assert_eq!(first.membership.partitions(), 4);
    settle(&mut [&mut first], &[4]);
    let mut second = Member::join(&options);
    settle(&mut [&mut first, &mut second], &[2, 2]);
    assert_eq!(first.revocations, 1);
    drop(second);
    settle(&mut [&mut first], &[4]);
    wait_for("statistics", || {
        first.turn();
        first.membership.fetch_requests().is_some()
    });
    assert_eq!(first.membership.fetch_requests(), Some(0));
}

#[test]
fn a_classic_group_shares_the_partitions_and_sends_no_fetch_request() {
    shares_the_partitions(GroupProtocol::Classic);
}

#[test]
fn a_group_of_the_new_protocol_shares_the_partitions_and_sends_no_fetch_request() {
    shares_the_partitions(GroupProtocol::Consumer);
}

#[test]
fn the_group_answers_whether_it_counts_a_member_in() {
    let cluster = mock::cluster(&[("events", 4)]);
    let mut member = Member::join(&options(&cluster, GroupProtocol::Classic));
    settle(&mut [&mut member], &[4]);
    // The commits for lag tools are no answers.
    member.membership.commit(&[(0, 7)]);
    member.membership.ask(1, &[(0, 5), (3, 0)]);
    wait_for("an answer", || {
        member.turn();
        !member.answers.is_empty()
    });
    assert_eq!(member.answers, [(1, true)]);

    let fenced = RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID;
    cluster.request_errors(RDKafkaApiKey::OffsetCommit, &[fenced]);
    member.membership.ask(2, &[(1, 5)]);
    wait_for("an answer", || {
        member.turn();
        member.answers.len() == 2
    });
    assert_eq!(member.answers[1], (2, false));
}

/// The errors that a member reports while it turns for so long.
fn errors_within(member: &mut Member, time: Duration) -> Vec<MembershipError> {
    let end = Instant::now() + time;
    let mut errors = Vec::new();
    while Instant::now() < end {
        match member.membership.poll(POLL) {
            Some(MembershipEvent::Error(error)) => errors.push(error),
            Some(event) => member.take(event),
            None => {}
        }
    }
    errors
}

/// A member whose request is answered with an error once has all partitions, then and later.
fn survives(request: RDKafkaApiKey, error: RDKafkaRespErr) {
    let cluster = mock::cluster(&[("events", 4)]);
    let mut options = options(&cluster, GroupProtocol::Classic);
    options.session_timeout_ms = 3_000;
    cluster.request_errors(request, &[error]);
    let mut member = Member::join(&options);
    settle(&mut [&mut member], &[4]);
    // Heartbeats come once a second.
    let errors = errors_within(&mut member, Duration::from_millis(1_500));
    assert!(errors.iter().all(|error| !error.is_final()), "{request:?} {error:?}: {errors:?}");
    settle(&mut [&mut member], &[4]);
}

#[test]
fn errors_of_the_group_that_pass_leave_a_member_with_its_partitions() {
    use RDKafkaRespErr as Code;
    let passing = [
        (RDKafkaApiKey::FindCoordinator, Code::RD_KAFKA_RESP_ERR_COORDINATOR_NOT_AVAILABLE),
        (RDKafkaApiKey::JoinGroup, Code::RD_KAFKA_RESP_ERR_COORDINATOR_LOAD_IN_PROGRESS),
        (RDKafkaApiKey::JoinGroup, Code::RD_KAFKA_RESP_ERR_NOT_COORDINATOR),
        (RDKafkaApiKey::JoinGroup, Code::RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID),
        (RDKafkaApiKey::SyncGroup, Code::RD_KAFKA_RESP_ERR_REBALANCE_IN_PROGRESS),
        (RDKafkaApiKey::SyncGroup, Code::RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID),
        (RDKafkaApiKey::Heartbeat, Code::RD_KAFKA_RESP_ERR_NOT_COORDINATOR),
        (RDKafkaApiKey::Heartbeat, Code::RD_KAFKA_RESP_ERR_ILLEGAL_GENERATION),
        (RDKafkaApiKey::Heartbeat, Code::RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID),
        (RDKafkaApiKey::Heartbeat, Code::RD_KAFKA_RESP_ERR_REBALANCE_IN_PROGRESS),
    ];
    thread::scope(|scope| {
        for (request, error) in passing {
            scope.spawn(move || survives(request, error));
        }
    });
}

fn not_authorised(what: &str, right: Right) -> MembershipError {
    MembershipError::NotAuthorised { what: what.to_owned(), right }
}

#[test]
fn errors_of_the_group_that_only_the_operator_can_cure_are_final() {
    use RDKafkaRespErr as Code;
    let cluster = mock::cluster(&[("events", 4)]);
    let mut options = options(&cluster, GroupProtocol::Classic);
    options.instance_id = Some("host-7".to_owned());
    let denied = not_authorised("the group `hunters`", Right::Read);
    let on_cluster = not_authorised("the cluster", Right::DescribeCluster);
    let taken = MembershipError::InstanceTaken("host-7".to_owned());
    for (request, error, said) in [
        (RDKafkaApiKey::JoinGroup, Code::RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED, denied),
        (
            RDKafkaApiKey::JoinGroup,
            Code::RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED,
            on_cluster,
        ),
        (RDKafkaApiKey::JoinGroup, Code::RD_KAFKA_RESP_ERR_FENCED_INSTANCE_ID, taken),
    ] {
        cluster.request_errors(request, &[error; 8]);
        let mut member = Member::join(&options);
        let mut errors = Vec::new();
        wait_for("a final error", || {
            errors.extend(errors_within(&mut member, POLL));
            errors.iter().any(MembershipError::is_final)
        });
        assert!(errors.contains(&said), "{error:?}: {errors:?}");
        cluster.clear_request_errors(request);
    }
}

#[test]
fn statistics_would_show_fetch_requests() {
    let cluster = mock::cluster(&[("events", 4)]);
    let mut list = TopicPartitionList::new();
    list.add_partition("events", 0);
    let consumer: BaseConsumer<CountFetches> = ClientConfig::new()
        .set("bootstrap.servers", cluster.bootstrap_servers())
        .set("group.id", "fetching")
        .set("statistics.interval.ms", "100")
        .create_with_context(CountFetches::default())
        .expect("a consumer");
    consumer.assign(&list).expect("an assignment");
    wait_for("a Fetch request", || {
        assert!(consumer.poll(POLL).is_none(), "the topic is empty");
        consumer.context().0.load(std::sync::atomic::Ordering::Relaxed) > 0
    });
}

#[derive(Default)]
struct CountFetches(std::sync::atomic::AtomicI64);

impl rdkafka::ClientContext for CountFetches {
    fn stats(&self, statistics: rdkafka::Statistics) {
        let fetches = statistics.brokers.values().filter_map(|broker| broker.req.get("Fetch"));
        self.0.store(fetches.sum(), std::sync::atomic::Ordering::Relaxed);
    }
}

impl rdkafka::consumer::ConsumerContext for CountFetches {}

#[test]
fn a_member_without_a_partition_stands_by() {
    let cluster = mock::cluster(&[("events", 1)]);
    let options = options(&cluster, GroupProtocol::Classic);
    let mut first = Member::join(&options);
    let mut second = Member::join(&options);
    wait_for("both members to be taken in", || {
        first.turn();
        second.turn();
        first.assigned && second.assigned && first.owned.len() + second.owned.len() == 1
    });
}

#[test]
fn committed_offsets_are_read_back() {
    let cluster = mock::cluster(&[("events", 4)]);
    let options = options(&cluster, GroupProtocol::Classic);
    let mut member = Member::join(&options);
    settle(&mut [&mut member], &[4]);
    assert!(member.membership.commit_and_wait(&[(0, 17), (3, 4)], PATIENCE));
    assert!(member.membership.commit_and_wait(&[(0, 18)], PATIENCE));
    drop(member);

    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", cluster.bootstrap_servers())
        .set("group.id", "hunters")
        .create()
        .expect("a consumer");
    let mut list = TopicPartitionList::new();
    list.add_partition("events", 0);
    list.add_partition("events", 3);
    let committed = consumer.committed_offsets(list, PATIENCE).expect("offsets");
    let offsets: Vec<Option<i64>> =
        committed.elements().iter().map(|element| element.offset().to_raw()).collect();
    assert_eq!(offsets, [Some(18), Some(4)]);
}

#[test]
fn what_is_wrong_is_said_in_one_sentence() {
    let cluster = mock::cluster(&[("events", 4)]);
    let mut options = options(&cluster, GroupProtocol::Classic);
    let missing = RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART;
    cluster.topic_error("events", missing).expect("the mock's topic");
    let error = Membership::join(&options).err().expect("the topic is missing");
    assert_eq!(error, MembershipError::TopicMissing("events".to_owned()));
    assert!(error.is_final());

    let denied = RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED;
    cluster.topic_error("events", denied).expect("the mock's topic");
    let error = Membership::join(&options).err().expect("the topic is not ours to read");
    assert_eq!(error, not_authorised("the topic `events`", Right::Read));

    let closed = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = closed.local_addr().expect("its address").to_string();
    drop(closed);
    options.client.brokers = vec![address.clone()];
    let error = Membership::join(&options).err().expect("nobody listens");
    assert_eq!(error, MembershipError::Unreachable(address));
    assert!(!error.is_final());
}
