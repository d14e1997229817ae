//! Leaders that come and go: a broker that is gone leaves its place to another.

use crate::fetch::dialling::{
    DialEnds, DialError, Endpoint, FromDialler, QUESTIONS_MAX, ToDialler,
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
    /// The only broker, whose port is its number. It leads partition 0.
    node_id: i32,
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
        Cluster { producer, turns, questions, answers, node_id: 1 }
    }

    fn metadata(&self) -> Metadata {
        let (node_id, port) = (self.node_id, u16::try_from(self.node_id).expect("a small number"));
        Metadata {
            brokers: vec![Broker { node_id, host: "broker".to_owned(), port }],
            cluster_id: None,
            controller: None,
            error: ErrorCode::NONE,
            topic_id: 7,
            partitions: vec![PartitionLeader {
                partition: 0,
                leader: Some(node_id),
                leader_epoch: node_id,
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
                ToDialler::AskMetadata(_) => FromDialler::Metadata(Ok(self.metadata())),
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
        cluster.node_id = node_id.into();
        let is_dialled = (0..600).any(|_| cluster.turn(100).contains(&node_id));
        assert!(is_dialled, "broker {node_id}");
    }
    assert_eq!(cluster.producer.outstanding(), 1);
}
