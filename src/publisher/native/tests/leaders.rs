//! Leaders that come and go: a broker that is gone leaves its place to another.

use crate::fetch::dialling::{
    DialEnds, DialError, Dialled, Endpoint, FromDialler, MetadataLink, QUESTIONS_MAX, ToDialler,
};
use crate::fetch::stage::CONNECTIONS_MAX;
use crate::kafka::error_code::ErrorCode;
use crate::kafka::message::{Broker, Metadata, PartitionLeader};
use crate::kafka::wire::WireReader;
use crate::publisher::native::NativeProducer;
use crate::publisher::native::tests::bench::{TOPIC, VERSIONS, naming, produced};
use crate::publisher::producer::tests::options;
use crate::publisher::producer::{Produce, Producer};
use crate::publisher::publishing::Time;
use crate::queue::bell::Bell;
use crate::queue::{Receiver, Sender, bounded};
use crate::runtime::operations::{Completed, Request, Task, UserData};
use crate::runtime::turns::Turns;
use crate::telemetry::progress::Progress;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A producer whose brokers take no connection, unless a test says so.
struct Cluster {
    producer: NativeProducer<u32, Producer<u32>>,
    turns: Rc<Turns>,
    questions: Receiver<ToDialler>,
    answers: Sender<FromDialler>,
    /// The brokers, whose ports are their numbers. The first one leads partition 0.
    node_ids: Vec<i32>,
    /// How brokers were asked about the cluster.
    links: Vec<MetadataLink>,
    /// A broker that is asked about another one does not answer.
    is_witness_away: bool,
    /// Brokers take connections, and answer what they are asked there.
    is_there: bool,
    /// Answers that are not received yet.
    unread: VecDeque<Vec<u8>>,
    /// The receive operation that waits for them: its buffer, and where they go.
    receiving: Option<(UserData, Vec<u8>, usize)>,
}

impl Cluster {
    fn new() -> Cluster {
        let bell = || Arc::new(Bell::new().expect("a descriptor is left"));
        let turns = Turns::new(Instant::now(), bell());
        let (dialler, questions) = bounded(QUESTIONS_MAX);
        let (answers, dialled) = bounded(QUESTIONS_MAX);
        let ends = DialEnds { dialler, dialler_bell: bell(), dialled };
        let (options, progress) = (options(), Arc::new(Progress::new()));
        let others = Producer::new(&options);
        let producer = NativeProducer::new(&options, &turns, ends, progress, others);
        let (node_ids, links) = (vec![1], Vec::new());
        Cluster {
            producer,
            turns,
            questions,
            answers,
            node_ids,
            links,
            is_witness_away: false,
            is_there: false,
            unread: VecDeque::new(),
            receiving: None,
        }
    }

    fn metadata(&self) -> Metadata {
        let broker = |node_id: &i32| {
            let port = u16::try_from(*node_id).expect("a small number");
            Broker { node_id: *node_id, host: "broker".to_owned(), port }
        };
        Metadata {
            brokers: self.node_ids.iter().map(broker).collect(),
            cluster_id: None,
            controller: None,
            error: ErrorCode::NONE,
            topic_id: 7,
            partitions: vec![PartitionLeader {
                partition: 0,
                leader: Some(self.node_ids[0]),
                leader_epoch: self.node_ids[0],
                error: ErrorCode::NONE,
            }],
            replicas: 1,
        }
    }

    /// A turn some milliseconds after the last one: the ports that were dialled in it.
    fn turn(&mut self, ms: u64) -> Vec<u16> {
        self.turns.begin_turn(self.turns.now() + Duration::from_millis(ms));
        self.producer.poll(Time { now: self.turns.now(), now_us: 1 });
        let mut dialled = Vec::new();
        while let Some(question) = self.questions.try_receive() {
            let answer = match question {
                ToDialler::AskMetadata(link) => {
                    let answer = match &link {
                        MetadataLink::NewTo(witness) if self.is_witness_away => {
                            Err(refused(witness.clone()))
                        }
                        _ => Ok(self.metadata()),
                    };
                    self.links.push(link);
                    FromDialler::Metadata(answer)
                }
                ToDialler::Connect { task, endpoint } => {
                    dialled.push(endpoint.port);
                    let dialled = match self.is_there {
                        true => Ok(connection()),
                        false => Err(refused(endpoint)),
                    };
                    FromDialler::Connected { task, dialled }
                }
            };
            assert!(self.answers.try_send(answer).is_ok(), "one answer to each question");
        }
        self.operate();
        dialled
    }

    /// Does what the connection asks for.
    fn operate(&mut self) {
        let operations = self.turns.operations();
        while let Some(request) = operations.take_order() {
            match request {
                Request::Start(data, Task::Send { buffer, from, .. }) => {
                    self.unread.push_back(answer(&buffer[from..]));
                    let sent = Ok(buffer.len() - from);
                    operations.finish(data, Completed::new(sent, buffer));
                }
                Request::Start(data, Task::Receive { buffer, from, .. }) => {
                    self.receiving = Some((data, buffer, from));
                }
                _ => unreachable!("an answer comes in one piece, and in time"),
            }
        }
        if self.receiving.is_some() && !self.unread.is_empty() {
            let answer = self.unread.pop_front().expect("there is one");
            let (data, mut buffer, from) = self.receiving.take().expect("there is one");
            buffer[from..][..answer.len()].copy_from_slice(&answer);
            operations.finish(data, Completed::new(Ok(answer.len()), buffer));
        }
    }

    /// The broker closes the connection.
    fn close_connection(&mut self) {
        let (data, buffer, _) = self.receiving.take().expect("the end of it is waited for");
        self.turns.operations().finish(data, Completed::new(Ok(0), buffer));
    }

    /// Publishes a frame, and returns the ports that were dialled meanwhile.
    fn publish(&mut self, receipt: u32) -> Vec<u16> {
        self.producer.send(TOPIC, 0, b"a frame", receipt);
        let dialled = (0..100).flat_map(|_| self.turn(10)).collect();
        let delivery = self.producer.next_delivery().expect("it is answered");
        assert!(delivery.receipt == receipt && delivery.failure.is_none());
        dialled
    }
}

fn connection() -> Dialled {
    // Nothing is ever read from it.
    let file = File::open("/dev/null").expect("a descriptor is left");
    let address = ([127, 0, 0, 1], 1).into();
    let socket = Arc::new(file.into());
    Dialled { socket, address, versions: VERSIONS, tls: None, replace_at: None }
}

/// A broker's answer to a request, both with their lengths.
fn answer(request: &[u8]) -> Vec<u8> {
    let kind = WireReader::resume(request, 4).i16().expect("a request has a kind");
    let id = WireReader::resume(request, 8).i32().expect("a request has a number");
    let answer = match kind {
        0 => produced(id, &[(0, 0, 0)]),
        22 => naming(id, 0, 7),
        _ => unreachable!("nothing else is asked"),
    };
    let length = u32::try_from(answer.len()).expect("it is short");
    [&length.to_be_bytes()[..], &answer].concat()
}

fn refused(endpoint: Endpoint) -> DialError {
    DialError::Io { endpoint, error: io::ErrorKind::ConnectionRefused.into() }
}

#[test]
fn brokers_that_are_gone_leave_their_places_to_others() {
    let mut cluster = Cluster::new();
    cluster.producer.send(TOPIC, 0, b"a frame", 1);
    for node_id in 1..=2 * CONNECTIONS_MAX as u16 {
        cluster.node_ids = vec![node_id.into()];
        let is_dialled = (0..600).any(|_| cluster.turn(100).contains(&node_id));
        assert!(is_dialled, "broker {node_id}");
    }
    assert!(cluster.producer.next_delivery().is_none());
    assert!(cluster.producer.shared.lanes.borrow().has_waiting());
}

#[test]
fn another_broker_is_asked_about_a_leader_in_doubt_and_any_if_that_one_is_away() {
    let mut cluster = Cluster::new();
    cluster.node_ids = vec![1, 2, 3];
    let mut asked = |is_witness_away, doubts| {
        (cluster.is_witness_away, cluster.links) = (is_witness_away, Vec::new());
        for _ in 0..doubts {
            cluster.producer.shared.lanes.borrow_mut().suspects.add(1);
            (0..30).for_each(|_| drop(cluster.turn(100)));
        }
        cluster.links.clone()
    };
    let to = |port| MetadataLink::NewTo(Endpoint { host: "broker".to_owned(), port });
    assert_eq!(asked(false, 1), [MetadataLink::New], "no broker is known yet");
    assert_eq!(asked(false, 3), [to(2), to(3), to(2)]);
    assert_eq!(asked(true, 4), [to(3), MetadataLink::New, to(2), MetadataLink::New]);
}

#[test]
fn doubts_about_many_leaders_are_one_question() {
    let mut cluster = Cluster::new();
    for round in 0..100 {
        cluster.producer.shared.lanes.borrow_mut().suspects.add(round % 10);
        cluster.turn(50);
    }
    assert_eq!(cluster.links.len(), 2, "in five seconds");
}

#[test]
fn a_connection_that_is_closed_while_it_is_idle_is_replaced_before_the_next_frame() {
    let mut cluster = Cluster::new();
    cluster.is_there = true;
    cluster.producer.expect_frames(0);
    assert_eq!(cluster.publish(1), [1]);
    for receipt in 2..5 {
        assert_eq!(cluster.turn(600_000), [0; 0], "a broker closes it, not we");
        cluster.close_connection();
        let dialled: Vec<u16> = (0..20).flat_map(|_| cluster.turn(10)).collect();
        assert_eq!(dialled, [1]);
        assert_eq!(cluster.publish(receipt), [0; 0]);
    }
    // A broker that closes every connection at once is not dialled for ever more quickly.
    let dials = (0..100).filter(|_| {
        if cluster.receiving.is_some() {
            cluster.close_connection();
        }
        !cluster.turn(100).is_empty()
    });
    assert!((5..=16).contains(&dials.count()), "in ten seconds");
    // Nor one that leads nothing any more.
    cluster.node_ids = vec![2, 1];
    cluster.producer.shared.lanes.borrow_mut().closed(1);
    (0..100).for_each(|_| drop(cluster.turn(100)));
    if cluster.receiving.is_some() {
        cluster.close_connection();
    }
    let dialled: Vec<u16> = (0..100).flat_map(|_| cluster.turn(100)).collect();
    assert!(!dialled.contains(&1), "{dialled:?}");
}

#[test]
fn a_broker_is_dialled_before_the_first_frame_of_a_partition_that_an_engine_follows() {
    let mut cluster = Cluster::new();
    cluster.is_there = true;
    let dialled_within_a_second =
        |cluster: &mut Cluster| (0..10).flat_map(|_| cluster.turn(100)).collect::<Vec<u16>>();
    assert_eq!(dialled_within_a_second(&mut cluster), [0; 0], "nothing is to be sent");
    cluster.producer.expect_frames(0);
    assert_eq!(dialled_within_a_second(&mut cluster), [1]);
    assert_eq!(cluster.publish(1), [0; 0]);
    cluster.producer.expect_no_frames(0);
    cluster.close_connection();
    assert_eq!(dialled_within_a_second(&mut cluster), [0; 0]);
}
