//! Questions and answers between a thread with a ring and its dialler. This module holds only
//! values and decisions: the dialler's thread does the I/O, or the simulator with its own network.

use crate::fetch::stage::CONNECTIONS_MAX;
use crate::kafka::message::{Broker, MessageError, Metadata, Versions};
use crate::kafka::sasl::SaslError;
use crate::kafka::tls::TlsError;
use crate::kafka::tls::records::TlsSession;
use crate::queue::bell::Bell;
use crate::queue::{Receiver, Sender};
use crate::runtime::operations::Handle;
use rustix::io::Errno;
use std::cell::{Cell, RefCell};
use std::fmt::{self, Display, Formatter};
use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Questions that may wait for the dialler: one per connection, and one about the cluster.
pub const QUESTIONS_MAX: usize = CONNECTIONS_MAX + 1;

/// A second question about the cluster within this many milliseconds means that the last answer did
/// not help. A broker that is cut off from the controllers repeats the same answer indefinitely.
const HELPFUL_MS: u64 = 30_000;

/// Consecutive questions that go to another broker because the last answer did not help. In most
/// clusters this reaches every broker. Each takes a new connection with its login.
const OTHERS_MAX: u32 = 16;

/// Milliseconds between two such questions after that. While a partition has no leader no broker
/// can help, and that may last for hours.
const OTHER_EVERY_MS: u64 = 4_000;

/// Milliseconds without a question after which the next question counts as a new need. While a
/// leader is being looked for, at most a second passes between an answer and the next question.
const NEED_ENDED_MS: u64 = 3_000;

/// A broker's host and port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Endpoint {
    /// Name or address, resolved for each connection.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

impl Endpoint {
    /// The endpoint that this broker advertises.
    pub fn of(broker: &Broker) -> Endpoint {
        Endpoint { host: broker.host.clone(), port: broker.port }
    }

    /// Parses `host:port`; an IPv6 address is in brackets. Other forms are refused, because
    /// librdkafka reads them otherwise, or not at all.
    pub fn parse(text: &str) -> Option<Endpoint> {
        let is_strange = |it: char| it.is_control() || it.is_whitespace() || ",/".contains(it);
        let (host, port) = text.rsplit_once(':').filter(|_| !text.contains(is_strange))?;
        let (host, strange) = match host.strip_prefix('[').and_then(|it| it.strip_suffix(']')) {
            Some(address) => {
                // An interface may follow: `fe80::1%eth0`.
                address.split('%').next()?.parse::<Ipv6Addr>().ok()?;
                (address, &['[', ']'][..])
            }
            None => (host, &['[', ']', ':'][..]),
        };
        if host.is_empty() || host.contains(strange) {
            return None;
        }
        let is_number = port.bytes().all(|digit| digit.is_ascii_digit());
        let port = port.parse().ok().filter(|port| is_number && *port > 0)?;
        Some(Endpoint { host: host.to_owned(), port })
    }
}

impl Display for Endpoint {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let Endpoint { host, port } = self;
        match host.contains(':') {
            true => write!(formatter, "[{host}]:{port}"),
            false => write!(formatter, "{host}:{port}"),
        }
    }
}

/// A question of a thread to its dialler. Each is answered once by a [`FromDialler`].
#[derive(Debug, PartialEq, Eq)]
pub enum ToDialler {
    /// Open a connection to a broker.
    Connect {
        /// The task that is waiting.
        task: usize,
        /// Where the broker listens.
        endpoint: Endpoint,
    },
    /// Ask a broker about the cluster and the topic.
    AskMetadata(MetadataLink),
}

/// Which connection to use for a question about the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetadataLink {
    /// The connection of the last answer, if it is still open.
    Kept,
    /// A new connection to another broker, because that answer is in doubt or did not help.
    New,
    /// A new connection to this broker, because another broker's claim about itself is in doubt.
    NewTo(Endpoint),
}

/// The answer to a [`ToDialler`].
pub enum FromDialler {
    /// Answers [`ToDialler::Connect`].
    Connected {
        /// The task that is waiting.
        task: usize,
        /// A connection that is ready for its first request.
        dialled: Result<Dialled, DialError>,
    },
    /// Answers [`ToDialler::AskMetadata`].
    Metadata(Result<Metadata, DialError>),
}

/// A thread's ends of the queues to and from its own dialler.
pub struct DialEnds {
    /// To the dialler.
    pub dialler: Sender<ToDialler>,
    /// Rung after a message is sent there.
    pub dialler_bell: Arc<Bell>,
    /// From the dialler.
    pub dialled: Receiver<FromDialler>,
}

/// The asking thread's side: its ends, and the answers that are not yet taken.
pub(crate) struct Dialling {
    questions: Sender<ToDialler>,
    bell: Arc<Bell>,
    answers: RefCell<Receiver<FromDialler>>,
    /// Answers by the index of the waiting task.
    dialled: RefCell<Vec<Option<Result<Dialled, DialError>>>>,
    metadata: RefCell<Option<Result<Metadata, DialError>>>,
    /// When the last question about the cluster was sent.
    metadata_asked_at: Cell<Option<Instant>>,
    /// The recent questions that were asked because a leader is missing.
    needed: Cell<NeededQuestions>,
}

impl Dialling {
    /// Creates the side of a thread that has not asked anything yet.
    pub(crate) fn new(ends: DialEnds) -> Dialling {
        Dialling {
            questions: ends.dialler,
            bell: ends.dialler_bell,
            answers: RefCell::new(ends.dialled),
            dialled: RefCell::new((0..CONNECTIONS_MAX).map(|_| None).collect()),
            metadata: RefCell::new(None),
            metadata_asked_at: Cell::new(None),
            needed: Cell::new(NeededQuestions::default()),
        }
    }

    /// Wakes the dialler with a system call. The hot thread rings through its ring instead.
    pub(crate) fn ring(&self) {
        self.bell.ring();
    }

    /// Sorts the dialler's answers by waiting task.
    pub(crate) fn take_answers(&self) {
        while let Some(answer) = self.answers.borrow_mut().try_receive() {
            match answer {
                FromDialler::Connected { task, dialled } => {
                    self.dialled.borrow_mut()[task] = Some(dialled);
                }
                FromDialler::Metadata(metadata) => *self.metadata.borrow_mut() = Some(metadata),
            }
        }
    }

    /// Asks for a connection; [`Dialling::take_dialled`] returns it later.
    pub(crate) fn ask_for_connection(&self, task: usize, endpoint: Endpoint) {
        let sent = self.questions.try_send(ToDialler::Connect { task, endpoint });
        assert!(sent.is_ok(), "there is room for one question of each task");
    }

    /// Takes the answer for a task.
    pub(crate) fn take_dialled(&self, task: usize) -> Option<Result<Dialled, DialError>> {
        self.dialled.borrow_mut()[task].take()
    }

    /// Asks about the cluster; [`Dialling::take_metadata`] returns the answer later. If the last
    /// answer did not help, another broker is asked, at a limited rate.
    pub(crate) fn ask_metadata(&self, now: Instant, link: MetadataLink) {
        let helpful = Duration::from_millis(HELPFUL_MS);
        let before = self.metadata_asked_at.replace(Some(now));
        let has_helped =
            before.is_none_or(|before| now.saturating_duration_since(before) >= helpful);
        let link = match link {
            MetadataLink::Kept => {
                let mut needed = self.needed.get();
                let goes_on = needed.may_ask_other(now) && !has_helped;
                self.needed.set(needed);
                if goes_on { MetadataLink::New } else { MetadataLink::Kept }
            }
            link => link,
        };
        let asked = self.questions.try_send(ToDialler::AskMetadata(link));
        assert!(asked.is_ok(), "there is room for one question about the cluster");
    }

    /// Takes the answer about the cluster.
    pub(crate) fn take_metadata(&self) -> Option<Result<Metadata, DialError>> {
        self.metadata.borrow_mut().take()
    }
}

/// Limits how often a question that is asked because a leader is missing may go to another broker.
#[derive(Clone, Copy, Default)]
struct NeededQuestions {
    /// When such a question was last asked.
    last: Option<Instant>,
    /// How many went to other brokers since the need began.
    others: u32,
    /// When the next one may go to another broker, once `OTHERS_MAX` have.
    other_from: Option<Instant>,
}

impl NeededQuestions {
    /// Returns whether the next question may go to another broker.
    fn may_ask_other(&mut self, now: Instant) -> bool {
        let ended = Duration::from_millis(NEED_ENDED_MS);
        let last = self.last.replace(now);
        if last.is_none_or(|last| now.saturating_duration_since(last) >= ended) {
            (self.others, self.other_from) = (0, None);
        }
        let may = self.others < OTHERS_MAX || self.other_from.is_none_or(|from| from <= now);
        if may {
            self.others = self.others.saturating_add(1);
            self.other_from = Some(now + Duration::from_millis(OTHER_EVERY_MS));
        }
        may
    }
}

/// Returns a free task number; `None` if the dialler has no room for another task.
pub(crate) fn free_task(taken: impl Iterator<Item = usize> + Clone) -> Option<usize> {
    (0..CONNECTIONS_MAX).find(|task| taken.clone().all(|other| other != *task))
}

/// A connection that is ready: authenticated, with its API versions known.
pub struct Dialled {
    /// The connected socket.
    pub socket: Handle,
    /// The broker's address.
    pub address: SocketAddr,
    /// The API versions that both sides support.
    pub versions: Versions,
    /// TLS state; `None` for plaintext.
    pub tls: Option<Box<TlsChannel>>,
    /// When to replace the connection, because the broker will close it (KIP-368).
    pub replace_at: Option<Instant>,
}

/// The TLS session of a connection, and the bytes received but not decrypted yet.
pub struct TlsChannel {
    /// The TLS session.
    pub session: TlsSession,
    /// Ciphertext, possibly cut within a record.
    pub received: Vec<u8>,
}

/// Why a broker could not be reached or asked.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The name cannot be resolved.
    #[error("the broker name {host} cannot be resolved: {error}")]
    Unknown {
        /// The name.
        host: String,
        /// The resolver's error.
        error: io::Error,
    },
    /// The broker is unreachable or the connection broke.
    #[error("broker {endpoint}: {error}")]
    Io {
        /// The address that was dialled.
        endpoint: Endpoint,
        /// The kernel's error.
        error: io::Error,
    },
    /// The listener requires TLS, and this client does not use it.
    #[error(
        "broker {0}: the listener speaks TLS: set [kafka.tls], or connect to the port of a \
         plaintext listener"
    )]
    TlsListener(Endpoint),
    /// The listener requires authentication.
    #[error(
        "broker {0}: the listener closes the connection of a client that does not authenticate: \
         set [kafka.sasl], or connect to the port of a listener without SASL"
    )]
    SaslListener(Endpoint),
    /// The listener closes the connection without an answer.
    #[error("broker {endpoint}: it closes the connection instead of answering {asked}")]
    Silent {
        /// The broker.
        endpoint: Endpoint,
        /// Kafka's name for the request.
        asked: &'static str,
    },
    /// The broker did not answer in time; with more time it might.
    #[error("broker {endpoint}: it does not answer within {} s", .wait_ms / 1000)]
    Late {
        /// The broker.
        endpoint: Endpoint,
        /// The time limit.
        wait_ms: u64,
    },
    /// A TLS error.
    #[error("broker {endpoint}: {error}")]
    Tls {
        /// The broker.
        endpoint: Endpoint,
        /// The cause.
        error: TlsError,
    },
    /// A SASL error.
    #[error("broker {endpoint}: {error}")]
    Sasl {
        /// The broker.
        endpoint: Endpoint,
        /// The cause.
        error: SaslError,
    },
    /// The broker sent an invalid answer.
    #[error("broker {endpoint}: {error}")]
    Answer {
        /// The broker.
        endpoint: Endpoint,
        /// The parse error.
        error: MessageError,
    },
    /// The process has no thread or file descriptor left.
    #[error(
        "no thread or file descriptor is left to open a connection: {0}; raise TasksMax= and \
         LimitNOFILE= for huntd"
    )]
    Resources(io::Error),
}

impl DialError {
    /// Returns the error for a failed system call on a connection to this broker.
    pub(crate) fn of_io(endpoint: &Endpoint, error: io::Error) -> DialError {
        match is_out_of_descriptors(&error) {
            true => DialError::Resources(error),
            false => DialError::Io { endpoint: endpoint.clone(), error },
        }
    }

    /// Returns the error for a name that cannot be resolved.
    pub(crate) fn of_name(host: &str, error: io::Error) -> DialError {
        match is_out_of_descriptors(&error) {
            true => DialError::Resources(error),
            false => DialError::Unknown { host: host.to_owned(), error },
        }
    }

    /// Returns whether the broker refused the user or the password.
    pub(crate) fn is_refused_login(&self) -> bool {
        matches!(self, DialError::Sasl { error: SaslError::Refused { .. }, .. })
    }

    /// Returns whether only the operator can fix it: certificates, secrets, or the kind of
    /// listener.
    pub fn is_final(&self) -> bool {
        match self {
            DialError::TlsListener(_) | DialError::SaslListener(_) => true,
            DialError::Tls { error, .. } => {
                !matches!(error, TlsError::Protocol(_) | TlsError::Closed)
            }
            DialError::Sasl { error, .. } => !matches!(error, SaslError::Message(_)),
            DialError::Unknown { .. }
            | DialError::Io { .. }
            | DialError::Silent { .. }
            | DialError::Late { .. }
            | DialError::Answer { .. }
            | DialError::Resources(_) => false,
        }
    }
}

/// Opens the first of these brokers or addresses that works; a failure of one says nothing about
/// the others. If none works, the error that only the operator can fix is returned, even if the
/// others are merely unreachable, because the operator can act on it. Next in rank is a broker that
/// timed out: with more time it may answer. A refused password is tried once: the other brokers
/// would refuse it, too, and may lock the user out. `None` if there is nothing to open.
pub(crate) fn open_any<P, T>(
    places: impl IntoIterator<Item = P>,
    mut open: impl FnMut(P) -> Result<T, DialError>,
) -> Option<Result<T, DialError>> {
    let mut worst: Option<DialError> = None;
    for place in places {
        match open(place) {
            Ok(opened) => return Some(Ok(opened)),
            Err(error) if error.is_refused_login() => return Some(Err(error)),
            Err(_) if worst.as_ref().is_some_and(DialError::is_final) => {}
            Err(DialError::Unknown { .. } | DialError::Io { .. } | DialError::Silent { .. })
                if matches!(worst, Some(DialError::Late { .. })) => {}
            Err(error) => worst = Some(error),
        }
    }
    worst.map(Err)
}

/// Returns whether the process or the system has run out of file descriptors.
fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(host: &str) -> Endpoint {
        Endpoint { host: host.to_owned(), port: 9092 }
    }

    #[test]
    fn what_is_wrong_with_one_broker_counts_only_if_no_other_one_works() {
        let refused = || Err(DialError::TlsListener(endpoint("refused")));
        let away = || {
            let error = io::ErrorKind::ConnectionRefused.into();
            Err(DialError::Io { endpoint: endpoint("away"), error })
        };
        let opened = |answers: Vec<Result<(), DialError>>| open_any(answers, |answer| answer);
        assert!(matches!(opened(vec![refused(), away(), Ok(())]), Some(Ok(()))));
        for answers in [vec![refused(), away()], vec![away(), refused()]] {
            assert!(matches!(opened(answers), Some(Err(DialError::TlsListener(_)))));
        }
        assert!(matches!(opened(vec![away()]), Some(Err(DialError::Io { .. }))));
        let late = || Err(DialError::Late { endpoint: endpoint("late"), wait_ms: 3_000 });
        for answers in [vec![late(), away()], vec![away(), late()]] {
            assert!(matches!(opened(answers), Some(Err(DialError::Late { .. }))));
        }
        for answers in [vec![late(), refused()], vec![refused(), late()]] {
            assert!(matches!(opened(answers), Some(Err(DialError::TlsListener(_)))));
        }
        assert!(opened(vec![]).is_none());
        let (who, mechanism, sentence) = ("hunter".to_owned(), "PLAIN", "no".to_owned());
        let error = SaslError::Refused { who, mechanism, sentence };
        let locked = Err(DialError::Sasl { endpoint: endpoint("strict"), error });
        assert!(matches!(opened(vec![locked, Ok(())]), Some(Err(DialError::Sasl { .. }))));
    }

    #[test]
    fn an_endpoint_is_a_name_or_an_address_with_a_port() {
        let of = |host: &str| Some(endpoint(host));
        assert_eq!(Endpoint::parse("kafka-1:9092"), of("kafka-1"));
        assert_eq!(Endpoint::parse("[::1]:9092"), of("::1"));
        assert_eq!(Endpoint::parse("[fe80::1%eth0]:9092"), of("fe80::1%eth0"));
        for wrong in [
            "kafka-1",
            "kafka-1:port",
            "kafka-1:+9092",
            "kafka-1:0",
            "kafka-1:65536",
            ":9092",
            "::1:9092",
            "[::1:9092",
            "::1]:9092",
            "[[::1]]:9092",
            "[kafka-1]:9092",
            "[]:9092",
            "[::1]",
            "kafka]:9092",
            "kafka\n1:9092",
            "kafka 1:9092",
            "a:1,b:2",
            "//kafka-1:9092",
        ] {
            assert_eq!(Endpoint::parse(wrong), None, "{wrong}");
        }
    }
}
