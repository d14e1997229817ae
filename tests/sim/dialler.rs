//! One daemon's dialler: its answers come some time later, or it fails.

use crate::answers::Answer;
use crate::broker::Broker;
use crate::chance::{Chance, Fault, Sight};
use crate::mutation::Mutation;
use crate::network::Network;
use huntd::fetch::broker_rotation::BrokerRotation;
use huntd::fetch::dialling::{
    DialError, Dialled, Endpoint, FromDialler, MetadataLink, QUESTIONS_MAX, ToDialler,
};
use huntd::kafka::message::{self, ApiVersionsAnswer, Envelope, Metadata, Versions};
use huntd::queue::bell::Bell;
use huntd::queue::{Receiver, Sender, bounded, bounded_with_bell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// The ends of the thread that asks.
pub(crate) type AskerEnds = (Sender<ToDialler>, Receiver<FromDialler>);

/// The name that the configuration has: it always leads to some broker.
pub(crate) const BOOTSTRAP: &str = "bootstrap";

/// Answers about the cluster from which an old one is taken.
const ANSWERS_KEPT: usize = 4;

pub(crate) struct Dialler {
    questions: Receiver<ToDialler>,
    answers: Sender<FromDialler>,
    rotation: BrokerRotation,
    /// The broker that has answered the last question about the cluster.
    kept: Option<(Endpoint, i32)>,
    topic: &'static str,
    /// What is answered, and when.
    coming: Vec<(u64, ToDialler)>,
    /// The last answers about the cluster, of any broker, the oldest first.
    last_metadata: VecDeque<Vec<u8>>,
    /// The highest leader epoch that was answered of each partition.
    leader_epochs: BTreeMap<i32, i32>,
    /// Brokers that were not found where they had been.
    lost: BTreeSet<String>,
    /// The last connection of each task.
    connections: BTreeMap<usize, Weak<OwnedFd>>,
    /// The time 0.
    base: Instant,
    mutation: Mutation,
}

impl Dialler {
    /// A dialler for a topic, and the ends of the thread that it dials for.
    pub(crate) fn new(
        topic: &'static str,
        bell: &Arc<Bell>,
        base: Instant,
        mutation: Mutation,
    ) -> (Dialler, AskerEnds) {
        let (to_dialler, questions) = bounded(QUESTIONS_MAX);
        let (answers, dialled) = bounded_with_bell(QUESTIONS_MAX, bell);
        let bootstrap = Endpoint { host: BOOTSTRAP.to_owned(), port: 9092 };
        let dialler = Dialler {
            questions,
            answers,
            rotation: BrokerRotation::new(vec![bootstrap]),
            kept: None,
            topic,
            coming: Vec::new(),
            last_metadata: VecDeque::new(),
            leader_epochs: BTreeMap::new(),
            lost: BTreeSet::new(),
            connections: BTreeMap::new(),
            base,
            mutation,
        };
        (dialler, (to_dialler, dialled))
    }

    /// When something will happen here by itself.
    pub(crate) fn next_at(&self) -> Option<u64> {
        self.coming.iter().map(|(at, _)| *at).min()
    }

    /// Takes questions, and answers those that are due.
    pub(crate) fn turn(
        &mut self,
        network: &mut Network,
        broker: &mut Broker,
        chance: &mut Chance,
        now: u64,
    ) {
        while let Some(question) = self.questions.try_receive() {
            let delay = match chance.strikes(Fault::ResponseDelayed) {
                true => chance.pick(&[100_000, 2_000_000, 20_000_000]),
                false => chance.delay_us(),
            };
            self.coming.push((now + delay, question));
        }
        while let Some(place) = self.coming.iter().position(|(at, _)| *at <= now) {
            let answer = match self.coming.remove(place).1 {
                ToDialler::Connect { task, endpoint } => {
                    let dialled = self.connect(network, broker, chance, (task, &endpoint), now);
                    FromDialler::Connected { task, dialled }
                }
                ToDialler::AskMetadata(link) => {
                    FromDialler::Metadata(self.ask(broker, chance, &link))
                }
            };
            assert!(self.answers.try_send(answer).is_ok(), "there is room for every answer");
        }
    }

    fn ask(
        &mut self,
        broker: &mut Broker,
        chance: &mut Chance,
        link: &MetadataLink,
    ) -> Result<Metadata, DialError> {
        let is_kept = *link == MetadataLink::Kept || self.mutation == Mutation::OneBrokerAsked;
        let kept = self.kept.take().filter(|_| is_kept && !chance.strikes(Fault::ConnectionReset));
        let (endpoint, node_id) = match kept {
            Some(kept) => kept,
            None => {
                let endpoint = self.rotation.next(link);
                let node_id = reach(broker, chance, &endpoint)?;
                (endpoint, node_id)
            }
        };
        self.kept = Some((endpoint.clone(), node_id));
        let mut request = Vec::new();
        message::metadata_request(0, CLIENT_ID, self.topic, &mut request);
        let mut bytes = answer(broker, chance, node_id, &request);
        // The answer of a broker that lags behind the others.
        if let Some(oldest) = self.last_metadata.front()
            && chance.strikes_of(Fault::MetadataStale, 4)
        {
            bytes.clone_from(oldest);
        } else {
            self.last_metadata.push_back(bytes.clone());
            let excess = self.last_metadata.len().saturating_sub(ANSWERS_KEPT);
            self.last_metadata.drain(..excess);
        }
        let mut metadata = message::parse_metadata(&bytes, 0, self.topic)
            .map_err(|error| DialError::Answer { endpoint, error })?;
        self.rotation.learn(&metadata.brokers);
        for leader in &mut metadata.partitions {
            let highest = self.leader_epochs.entry(leader.partition).or_insert(leader.leader_epoch);
            if leader.leader_epoch < *highest {
                chance.see(Sight::LeaderEpochWentBack);
                if self.mutation == Mutation::LowerLeaderEpochIgnored {
                    // An entry of no partition is passed over.
                    leader.partition = -1;
                }
            }
            *highest = leader.leader_epoch.max(*highest);
        }
        Ok(metadata)
    }

    fn connect(
        &mut self,
        network: &mut Network,
        broker: &mut Broker,
        chance: &mut Chance,
        (task, endpoint): (usize, &Endpoint),
        now: u64,
    ) -> Result<Dialled, DialError> {
        let name = |host: &str| host.split('-').next().unwrap_or(host).to_owned();
        if broker.node_of(&endpoint.host).is_none() {
            self.lost.insert(name(&endpoint.host));
        }
        let node_id = reach(broker, chance, endpoint)?;
        if self.lost.remove(&name(&endpoint.host)) {
            chance.see(Sight::BrokerFoundAgain);
        }
        let versions = versions(broker, chance, node_id);
        let lifetime_us = match chance.strikes_of(Fault::AuthenticationExpires, 10) {
            true => Some(chance.pick(&[300_000, 2_000_000, 10_000_000])),
            false => None,
        };
        let socket = network.open(broker, node_id, lifetime_us.map(|lifetime| now + lifetime));
        let before = self.connections.insert(task, Arc::downgrade(&socket));
        // One handle is the network's, one is this, and one more is the task's.
        let before = before.and_then(|before| before.upgrade());
        if before.is_some_and(|old| Arc::strong_count(&old) > 2 && network.is_whole(&old)) {
            chance.see(Sight::ConnectionReplaced);
        }
        let address = SocketAddr::from((Ipv4Addr::new(10, 0, 0, node_id as u8), endpoint.port));
        let replace_at = lifetime_us
            .map(|lifetime| self.base + Duration::from_micros(now + lifetime * 85 / 100));
        Ok(Dialled { socket, address, versions, tls: None, replace_at })
    }
}

/// The broker that listens there, if it can be reached now.
fn reach(broker: &Broker, chance: &mut Chance, endpoint: &Endpoint) -> Result<i32, DialError> {
    let refused = || DialError::Io {
        endpoint: endpoint.clone(),
        error: io::ErrorKind::ConnectionRefused.into(),
    };
    let node_id = match endpoint.host.as_str() {
        BOOTSTRAP => 1 + chance.below(crate::broker::BROKERS as u64) as i32,
        host => broker.node_of(host).ok_or_else(refused)?,
    };
    match chance.strikes(Fault::ConnectRefused) {
        true => Err(refused()),
        false => Ok(node_id),
    }
}

/// Name of the client in requests.
const CLIENT_ID: &str = "huntd";

fn versions(broker: &mut Broker, chance: &mut Chance, node_id: i32) -> Versions {
    let mut version = message::API_VERSIONS_VERSION_MAX;
    loop {
        let mut request = Vec::new();
        message::api_versions_request(envelope(version), &mut request);
        let bytes = answer(broker, chance, node_id, &request);
        match message::parse_api_versions(&bytes, version, 0).expect("brokers say what they speak")
        {
            ApiVersionsAnswer::Chosen(versions) => return versions,
            ApiVersionsAnswer::AskWithVersionZero => version = 0,
        }
    }
}

/// A broker's answer, its length left out.
fn answer(broker: &mut Broker, chance: &mut Chance, node_id: i32, request: &[u8]) -> Vec<u8> {
    match broker.answer(chance, node_id, &request[4..], false) {
        Answer::Bytes(mut bytes) => bytes.split_off(4),
        Answer::Hold(_) => unreachable!("only Fetch and Produce are held back"),
    }
}

fn envelope(version: i16) -> Envelope<'static> {
    Envelope { version, correlation_id: 0, client_id: CLIENT_ID }
}
