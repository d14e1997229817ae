//! One daemon's dialler: what it is asked for comes some time later, or fails.

use crate::answers::Answer;
use crate::broker::Broker;
use crate::chance::{Chance, Fault};
use crate::network::Network;
use huntd::fetch::dialling::{
    Candidates, DialError, Dialled, Endpoint, FromDialler, QUESTIONS_MAX, ToDialler,
};
use huntd::kafka::message::{self, ApiVersionsAnswer, Envelope, Metadata, Versions};
use huntd::queue::bell::Bell;
use huntd::queue::{Receiver, Sender, bounded, bounded_with_bell};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

/// The ends of the thread that asks.
pub(crate) type AskerEnds = (Sender<ToDialler>, Receiver<FromDialler>);

/// The name that the configuration has: it always leads to some broker.
pub(crate) const BOOTSTRAP: &str = "bootstrap";

pub(crate) struct Dialler {
    questions: Receiver<ToDialler>,
    answers: Sender<FromDialler>,
    candidates: Candidates,
    topic: &'static str,
    /// What is answered, and when.
    coming: Vec<(u64, ToDialler)>,
    /// The last answer about the cluster, of any broker.
    last_metadata: Vec<u8>,
}

impl Dialler {
    /// A dialler for a topic, and the ends of the thread that it dials for.
    pub(crate) fn new(topic: &'static str, bell: &Arc<Bell>) -> (Dialler, AskerEnds) {
        let (to_dialler, questions) = bounded(QUESTIONS_MAX);
        let (answers, dialled) = bounded_with_bell(QUESTIONS_MAX, bell);
        let bootstrap = Endpoint { host: BOOTSTRAP.to_owned(), port: 9092 };
        let dialler = Dialler {
            questions,
            answers,
            candidates: Candidates::new(vec![bootstrap]),
            topic,
            coming: Vec::new(),
            last_metadata: Vec::new(),
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
                    let dialled = connect(network, broker, chance, &endpoint);
                    FromDialler::Connected { task, dialled }
                }
                ToDialler::AskMetadata => FromDialler::Metadata(self.ask(broker, chance)),
            };
            assert!(self.answers.try_send(answer).is_ok(), "there is room for every answer");
        }
    }

    fn ask(&mut self, broker: &mut Broker, chance: &mut Chance) -> Result<Metadata, DialError> {
        let endpoint = self.candidates.next_endpoint();
        let node_id = reach(broker, chance, &endpoint)?;
        let version = versions(broker, chance, node_id).metadata;
        let mut request = Vec::new();
        message::metadata_request(envelope(version), self.topic, &mut request);
        let mut bytes = answer(broker, chance, node_id, &request);
        // What a broker that lags behind the others would say.
        if chance.strikes(Fault::MetadataStale) && !self.last_metadata.is_empty() {
            bytes.clone_from(&self.last_metadata);
        } else {
            self.last_metadata.clone_from(&bytes);
        }
        let metadata = message::parse_metadata(&bytes, version, 0, self.topic);
        let metadata = metadata.map_err(|error| DialError::Answer { endpoint, error })?;
        self.candidates.learn(&metadata.brokers);
        Ok(metadata)
    }
}

fn connect(
    network: &mut Network,
    broker: &mut Broker,
    chance: &mut Chance,
    endpoint: &Endpoint,
) -> Result<Dialled, DialError> {
    let node_id = reach(broker, chance, endpoint)?;
    let versions = versions(broker, chance, node_id);
    let socket = network.open(broker, node_id);
    let address = SocketAddr::from((Ipv4Addr::new(10, 0, 0, node_id as u8), endpoint.port));
    Ok(Dialled { socket, address, versions, tls: None, replace_at: None })
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
        Answer::Hold(_) => unreachable!("only a Fetch is held back"),
    }
}

fn envelope(version: i16) -> Envelope<'static> {
    Envelope { version, correlation_id: 0, client_id: "huntd" }
}
