//! Leaders that come and go: a broker that is gone leaves its place to another.

use crate::fetch::dialling::{
    DialEnds, DialError, Endpoint, FromDialler, MetadataLink, QUESTIONS_MAX, ToDialler,
};
use crate::fetch::stage::CONNECTIONS_MAX;
use crate::kafka::error_code::ErrorCode;
use crate::kafka::message::{Broker, Metadata, PartitionLeader};
use crate::publisher::native::NativeProducer;
use crate::publisher::producer::tests::options;
use crate::publisher::producer::{Produce, Producer};
use crate::publisher::publishing::Time;
use crate::queue::bell::Bell;
use crate::queue::{Receiver, Sender, bounded};
use crate::runtime::turns::Turns;
use crate::telemetry::progress::Progress;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A producer whose brokers take no connection.
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
        Cluster { producer, turns, questions, answers, node_ids, links, is_witness_away: false }
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
                    FromDialler::Connected { task, dialled: Err(refused(endpoint)) }
                }
            };
            assert!(self.answers.try_send(answer).is_ok(), "one answer to each question");
        }
        dialled
    }
}

fn refused(endpoint: Endpoint) -> DialError {
    DialError::Io { endpoint, error: io::ErrorKind::ConnectionRefused.into() }
}

#[test]
fn brokers_that_are_gone_leave_their_places_to_others() {
    let mut cluster = Cluster::new();
    cluster.producer.send("updates", 0, b"a frame", 1).expect("there is room");
    for node_id in 1..=2 * CONNECTIONS_MAX as u16 {
        cluster.node_ids = vec![node_id.into()];
        let is_dialled = (0..600).any(|_| cluster.turn(100).contains(&node_id));
        assert!(is_dialled, "broker {node_id}");
    }
    assert_eq!(cluster.producer.outstanding(), 1);
}

#[test]
fn another_broker_is_asked_about_a_leader_in_doubt_and_any_if_that_one_is_away() {
    let mut cluster = Cluster::new();
    cluster.node_ids = vec![1, 2, 3];
    let mut asked = |is_witness_away, doubts| {
        (cluster.is_witness_away, cluster.links) = (is_witness_away, Vec::new());
        for _ in 0..doubts {
            cluster.producer.shared.lanes.borrow_mut().doubts.add(1);
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
        cluster.producer.shared.lanes.borrow_mut().doubts.add(round % 10);
        cluster.turn(50);
    }
    assert_eq!(cluster.links.len(), 2, "in five seconds");
}
