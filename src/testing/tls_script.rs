//! A connection of the hot thread, and a broker's end that does what arbitrary bytes say: which
//! responses it sends, in which records, what TLS says to itself in between, what is damaged, and
//! in which pieces all of it arrives.
//!
//! What is received is what was sent, or the connection ends with the error that fits.

use crate::fetch::connection::ConnectionError;
use crate::kafka::security::TlsOptions;
use crate::kafka::tls::records::IDLE_RECORDS_MAX;
use crate::kafka::tls::{PLAINTEXT_BYTES_MAX, TlsConfig, TlsError, client_config};
use crate::kafka::wire::FRAME_PREFIX_BYTES;
use crate::testing::tls_client::{RESPONSE_BYTES_MAX, TlsClient, Wire};
use crate::testing::tls_peer::{SUITES, TlsPeer, content, peer_config};
use rustls::ServerConfig;
use std::io;
use std::sync::Arc;

/// Bytes that one script sends, about.
const SENT_BYTES_MAX: usize = 400_000;

/// Bytes of a step: what it is, a number, and another one.
const STEP_BYTES: usize = 4;

/// What both ends begin their handshakes with.
pub struct TlsEnds {
    brokers: Vec<Arc<ServerConfig>>,
    client: TlsConfig,
}

impl TlsEnds {
    /// With the broker's certificate, which is its own authority, and its key, both in PEM form.
    pub fn new(identity: &str) -> TlsEnds {
        let name = format!("huntd-tls-{}-{:p}.pem", std::process::id(), identity);
        let file = std::env::temp_dir().join(name);
        std::fs::write(&file, identity).expect("temporary files can be written");
        let options = TlsOptions { ca_file: Some(file.clone()), client: None };
        let client = client_config(&options);
        std::fs::remove_file(file).expect("it was written");
        TlsEnds {
            brokers: SUITES.iter().map(|suite| peer_config(identity, *suite)).collect(),
            client: client.expect("there is a certificate"),
        }
    }

    /// Plays a script. It begins with the suite, how much has come with the handshake, and in which
    /// pieces the rest comes.
    pub fn play(&self, script: &[u8]) {
        let mut script = Script(script);
        let place = usize::from(script.byte()) % self.brokers.len();
        let (peer, session) = TlsPeer::connect(&self.brokers[place], &self.client);
        let (early, is_ahead) = (script.number(), script.byte().is_multiple_of(2));
        let count = script.byte();
        let pieces = script.bytes(count.into()).iter().map(|byte| piece_bytes(*byte)).collect();
        let mut broker = ScriptedBroker::new(peer);
        broker.follow(script.0);
        let ScriptedBroker { mut peer, responses, records, ending, .. } = broker;
        // A broker that is not ahead sends no answer before the one to the last request is there.
        let stops = match is_ahead {
            true => vec![],
            false => responses.iter().map(|response| response.records_end).collect(),
        };
        let is_damaged = ending == Ending::Unknown;
        let mut wire = Wire::new(records, stops, is_damaged, pieces);
        let client = TlsClient::new(session, wire.take(early));
        let mut received = 0;
        let error = loop {
            let mut response = match client.receive(&mut wire) {
                Ok(response) => response,
                Err(error) => break error,
            };
            let sent = responses.get(received).expect("nothing comes that was not sent");
            assert!(response.bytes() == &sent.bytes[FRAME_PREFIX_BYTES..], "response {received}");
            client.give_back(response);
            received += 1;
            let request = vec![received as u8; received * 300];
            client.send(&mut wire, request.clone());
            assert!(peer.open(&wire.take_requests()) == request);
        };
        ending.assert_fits(&error);
        assert!(ending == Ending::Unknown || received == responses.len(), "{received}: {error}");
    }
}

/// Bytes of a piece: all that there are, few, or many.
fn piece_bytes(byte: u8) -> usize {
    match byte {
        0 => usize::MAX,
        few @ 1..128 => few.into(),
        many => 150 * usize::from(many),
    }
}

/// What is left of a script. Behind its end are zeros.
struct Script<'a>(&'a [u8]);

impl<'a> Script<'a> {
    fn byte(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or(0)
    }

    fn number(&mut self) -> usize {
        usize::from(u16::from_be_bytes([self.byte(), self.byte()]))
    }

    fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        bytes
    }
}

/// How a connection must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// The broker closes it.
    EndOfStream,
    /// The broker closes it in order.
    Closed,
    /// With an alert.
    Alert,
    /// The client does not take what the broker sends.
    Refused,
    /// Something was damaged: before that, or somehow.
    Unknown,
}

impl Ending {
    fn assert_fits(self, error: &ConnectionError) {
        let fits = match (self, error) {
            (Ending::EndOfStream, ConnectionError::Io { error, .. }) => {
                error.kind() == io::ErrorKind::UnexpectedEof
            }
            (Ending::Closed, ConnectionError::Tls { error, .. }) => *error == TlsError::Closed,
            (Ending::Alert, ConnectionError::Tls { error, .. }) => {
                matches!(error, TlsError::Alert(_))
            }
            (Ending::Refused, ConnectionError::Tls { error, .. }) => {
                matches!(error, TlsError::Protocol(_))
            }
            (Ending::Unknown, _) => true,
            _ => false,
        };
        assert!(fits, "{error} instead of {self:?}");
    }
}

/// A response, its length included, and where the records end that it needs.
struct ScriptedResponse {
    bytes: Vec<u8>,
    records_end: usize,
}

/// The broker's end, which follows a script.
struct ScriptedBroker {
    peer: TlsPeer,
    /// Those that the client must receive before the connection ends.
    responses: Vec<ScriptedResponse>,
    /// Of further responses, what is not sealed yet.
    unsealed: Vec<u8>,
    /// Responses in `unsealed`: their bytes, and how many of `unsealed` are before their end.
    waiting: Vec<(Vec<u8>, usize)>,
    records: Vec<u8>,
    sent_bytes: usize,
    /// Records in a row without data.
    idle_records: u32,
    ending: Ending,
}

impl ScriptedBroker {
    fn new(peer: TlsPeer) -> ScriptedBroker {
        ScriptedBroker {
            peer,
            responses: Vec::new(),
            unsealed: Vec::new(),
            waiting: Vec::new(),
            records: Vec::new(),
            sent_bytes: 0,
            idle_records: 0,
            ending: Ending::EndOfStream,
        }
    }

    fn follow(&mut self, steps: &[u8]) {
        for step in steps.as_chunks().0 {
            if self.sent_bytes < SENT_BYTES_MAX {
                self.step(*step);
            }
        }
        while !self.unsealed.is_empty() {
            self.seal(PLAINTEXT_BYTES_MAX, 0);
        }
    }

    fn step(&mut self, [step, high, low, more]: [u8; STEP_BYTES]) {
        let is_tls13 = self.peer.is_tls13();
        let number = usize::from(u16::from_be_bytes([high, low]));
        match step % 16 {
            0..=3 => self.respond(4 + number % (RESPONSE_BYTES_MAX - FRAME_PREFIX_BYTES - 4)),
            4 => self.respond(RESPONSE_BYTES_MAX - FRAME_PREFIX_BYTES),
            5..=8 => self.seal(number % (PLAINTEXT_BYTES_MAX + 1), 0),
            9 if is_tls13 => self.seal(number % 4_000, more),
            10 if is_tls13 => {
                self.peer.renew(more.is_multiple_of(2), &mut self.records);
                self.note_idle_record();
            }
            11 if is_tls13 => {
                // A ticket, which nobody reads.
                let message = [&[4, 0, 0, more][..], &vec![high; more.into()]].concat();
                self.peer.seal(content::HANDSHAKE, &message, &mut self.records);
                self.note_idle_record();
            }
            // What would begin another handshake, on an old connection.
            11 => {
                self.peer.seal(content::HANDSHAKE, &[0; 4], &mut self.records);
                self.end(Ending::Refused);
            }
            12 => {
                self.peer.seal(content::DATA, &[], &mut self.records);
                self.note_idle_record();
            }
            13 => {
                self.peer.seal(content::ALERT, &[high, low], &mut self.records);
                self.end(if low == 0 { Ending::Closed } else { Ending::Alert });
            }
            // Neither data nor, in padding, what may be data.
            14 if ![0, content::DATA].contains(&high) => {
                self.peer.seal(high, &vec![low; more.into()], &mut self.records);
                self.end(Ending::Unknown);
            }
            15 => self.damage(number * 7, more),
            _ => {}
        }
    }

    /// A response of so many bytes behind its length, each of which shows its place.
    fn respond(&mut self, count: usize) {
        let start = self.sent_bytes;
        let length = (count as u32).to_be_bytes();
        let bytes = (start..start + count).map(|place| (place ^ (place >> 8)) as u8);
        let response: Vec<u8> = length.into_iter().chain(bytes).collect();
        self.sent_bytes += response.len();
        self.unsealed.extend_from_slice(&response);
        self.waiting.push((response, self.unsealed.len()));
    }

    /// A record with so much of what is not sealed yet, and so much padding.
    fn seal(&mut self, bytes: usize, zeros: u8) {
        let part: Vec<u8> = self.unsealed.drain(..bytes.min(self.unsealed.len())).collect();
        if part.is_empty() {
            return;
        }
        self.peer.seal_padded(&part, zeros, &mut self.records);
        self.idle_records = 0;
        // Behind damage a response may still come.
        let may_come = matches!(self.ending, Ending::EndOfStream | Ending::Unknown);
        let records_end = self.records.len();
        for (bytes, end) in std::mem::take(&mut self.waiting) {
            match end.saturating_sub(part.len()) {
                0 if may_come => self.responses.push(ScriptedResponse { bytes, records_end }),
                0 => {}
                end => self.waiting.push((bytes, end)),
            }
        }
    }

    fn note_idle_record(&mut self) {
        self.idle_records += 1;
        if self.idle_records > IDLE_RECORDS_MAX {
            self.end(Ending::Refused);
        }
    }

    /// What is sent from now on is not received.
    fn end(&mut self, ending: Ending) {
        if self.ending == Ending::EndOfStream || ending == Ending::Unknown {
            self.ending = ending;
        }
    }

    /// Changes a bit of what was sent, or cuts off its end.
    fn damage(&mut self, place: usize, bit: u8) {
        if let Some(byte) = self.records.get_mut(place) {
            *byte ^= 1 << (bit % 8);
        } else {
            let bytes = self.records.len().saturating_sub(place % 100);
            self.records.truncate(bytes);
        }
        self.end(Ending::Unknown);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kafka::tls::records::TlsSession;
    use crate::runtime::allocator::thread_allocations;
    use crate::testing::tls_peer::PEER_NAME;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use std::sync::LazyLock;

    static ENDS: LazyLock<TlsEnds> = LazyLock::new(|| {
        let identity = rcgen::generate_simple_self_signed([PEER_NAME.to_owned()]);
        let identity = identity.expect("a valid name");
        TlsEnds::new(&(identity.cert.pem() + &identity.signing_key.serialize_pem()))
    });

    /// A broker that has sent two responses of 30 bytes: one in two records, and one behind what
    /// TLS says to itself.
    fn two_responses(place: usize) -> (ScriptedBroker, TlsSession) {
        let (peer, session) = TlsPeer::connect(&ENDS.brokers[place], &ENDS.client);
        let mut broker = ScriptedBroker::new(peer);
        broker.respond(26);
        broker.seal(3, 0);
        broker.seal(27, 0);
        broker.step([12, 0, 0, 0]);
        broker.step([10, 0, 0, 0]);
        if broker.peer.is_tls13() {
            broker.step([11, 0, 0, 4]);
        }
        broker.respond(26);
        broker.seal(30, 7 * u8::from(broker.peer.is_tls13()));
        (broker, session)
    }

    #[test]
    fn records_are_opened_wherever_a_stream_is_split() {
        for place in 0..ENDS.brokers.len() {
            let (broker, _) = two_responses(place);
            for split in 1..broker.records.len() {
                let (broker, session) = two_responses(place);
                let stops = broker.responses.iter().map(|response| response.records_end).collect();
                let pieces = vec![split, usize::MAX];
                let mut wire = Wire::new(broker.records, stops, false, pieces);
                let client = TlsClient::new(session, Vec::new());
                for sent in broker.responses {
                    let response = client.receive(&mut wire);
                    let mut response = response.unwrap_or_else(|error| panic!("{split}: {error}"));
                    assert!(response.bytes() == &sent.bytes[FRAME_PREFIX_BYTES..], "{split}");
                }
            }
        }
    }

    #[test]
    fn responses_are_received_without_an_allocation() {
        const WARM: usize = 3;
        for place in 0..ENDS.brokers.len() {
            let (peer, session) = TlsPeer::connect(&ENDS.brokers[place], &ENDS.client);
            let mut broker = ScriptedBroker::new(peer);
            for count in 0..40 {
                broker.respond(RESPONSE_BYTES_MAX - FRAME_PREFIX_BYTES - count * 700);
                if broker.peer.is_tls13() {
                    broker.step([11, 0, 0, 200]);
                }
                while !broker.unsealed.is_empty() {
                    broker.seal(PLAINTEXT_BYTES_MAX - count, 0);
                }
            }
            let stops = broker.responses.iter().map(|response| response.records_end).collect();
            let mut wire = Wire::new(broker.records, stops, false, vec![3, 1_000, 20, usize::MAX]);
            let client = TlsClient::new(session, Vec::new());
            for (count, sent) in broker.responses.iter().enumerate() {
                let before = thread_allocations();
                let response = client.receive(&mut wire);
                let allocations = thread_allocations() - before;
                let mut response = response.expect("nothing is damaged");
                assert!(response.bytes() == &sent.bytes[FRAME_PREFIX_BYTES..]);
                client.give_back(response);
                assert!(count < WARM || allocations == 0, "{count}: {allocations}");
            }
        }
    }

    /// A step that damages nothing and ends nothing, except too many of them without data.
    fn sound_step() -> impl Strategy<Value = Vec<u8>> {
        let step = prop_oneof![6 => 0..9_u8, 2 => 9..13_u8];
        (step, vec(any::<u8>(), 3)).prop_map(|(step, more)| [vec![step], more].concat())
    }

    fn beginning() -> impl Strategy<Value = Vec<u8>> {
        let pieces = vec(any::<u8>(), 0..12);
        (any::<[u8; 4]>(), pieces)
            .prop_map(|(first, pieces)| [&first[..], &[pieces.len() as u8], &pieces].concat())
    }

    proptest! {
        #[test]
        fn what_a_broker_sends_is_received_however_it_is_cut(
            beginning in beginning(),
            steps in vec(sound_step(), 0..60),
        ) {
            ENDS.play(&[beginning, steps.concat()].concat());
        }

        #[test]
        fn a_stream_that_was_damaged_or_broken_off_gives_what_was_sent_before_and_an_error(
            beginning in beginning(),
            steps in vec(sound_step(), 0..30),
            end in (13..16_u8, any::<[u8; 3]>()),
            more in vec(any::<u8>(), 0..100),
        ) {
            let end = [&[end.0][..], &end.1].concat();
            ENDS.play(&[beginning, steps.concat(), end, more].concat());
        }
    }
}
