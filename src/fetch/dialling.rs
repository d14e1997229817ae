//! Between a thread with a ring and its dialler: questions and answers. Only values and decisions:
//! the dialler's thread does the I/O, or the simulator with a network of its own.

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
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Questions that may wait for the dialler: one of each connection, and one about the cluster.
pub const QUESTIONS_MAX: usize = CONNECTIONS_MAX + 1;

/// Milliseconds within which a second question about the cluster says that the last answer did not
/// help. A broker that is cut off from the controllers gives the same answer for ever.
const HELPFUL_MS: u64 = 30_000;

/// Questions, one after the other, that go to another broker because the last answer did not help:
/// in most clusters each broker is among them. Each takes a connection with its login.
const OTHERS_MAX: u32 = 16;

/// Milliseconds between two such questions from then on. Nobody can help while a partition has no
/// leader, and that may last for hours.
const OTHER_EVERY_MS: u64 = 4_000;

/// Milliseconds without a question after which the next one is about something else. While a leader
/// is asked for, at most a second lies between an answer and the next question.
const NEED_ENDED_MS: u64 = 3_000;

/// Where a broker listens.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Endpoint {
    /// Name or address. It is resolved for each connection.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

impl Endpoint {
    /// Where this broker says that it listens.
    pub fn of(broker: &Broker) -> Endpoint {
        Endpoint { host: broker.host.clone(), port: broker.port }
    }

    /// Reads `host:port`; an IPv6 address stands in brackets.
    pub fn parse(text: &str) -> Option<Endpoint> {
        let (host, port) = text.rsplit_once(':')?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        Some(Endpoint { host: host.to_owned(), port: port.parse().ok()? })
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

/// What a thread asks of its dialler. Each question is answered once by a [`FromDialler`].
#[derive(Debug, PartialEq, Eq)]
pub enum ToDialler {
    /// Open a connection to a broker.
    Connect {
        /// The task that waits for it.
        task: usize,
        /// Where the broker listens.
        endpoint: Endpoint,
    },
    /// Ask a broker about the cluster and the topic.
    AskMetadata(MetadataLink),
}

/// The connection for a question about the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetadataLink {
    /// The one that the last answer came on, if it is still open.
    Kept,
    /// A new one to another broker, because that answer is doubted or did not help.
    New,
    /// A new one to this broker, because another one's word about itself is doubted.
    NewTo(Endpoint),
}

/// The answer to a [`ToDialler`].
pub enum FromDialler {
    /// Of [`ToDialler::Connect`].
    Connected {
        /// The task that waits for it.
        task: usize,
        /// A connection that is ready for its first request.
        dialled: Result<Dialled, DialError>,
    },
    /// Of [`ToDialler::AskMetadata`].
    Metadata(Result<Metadata, DialError>),
}

/// The ends that a thread has of a dialler of its own.
pub struct DialEnds {
    /// To the dialler.
    pub dialler: Sender<ToDialler>,
    /// Rung after something was sent there.
    pub dialler_bell: Arc<Bell>,
    /// From the dialler.
    pub dialled: Receiver<FromDialler>,
}

/// The asking thread's side: its ends, and the answers that nobody has taken yet.
pub(crate) struct Dialling {
    questions: Sender<ToDialler>,
    bell: Arc<Bell>,
    answers: RefCell<Receiver<FromDialler>>,
    /// By the task that waits for it.
    dialled: RefCell<Vec<Option<Result<Dialled, DialError>>>>,
    metadata: RefCell<Option<Result<Metadata, DialError>>>,
    /// When it was last asked about the cluster.
    metadata_asked_at: Cell<Option<Instant>>,
    /// The last questions because somebody needs to know.
    needed: Cell<NeededQuestions>,
}

impl Dialling {
    /// Nothing was asked yet.
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

    /// Wakes the dialler by a system call. The hot thread makes none: it rings through its ring.
    pub(crate) fn ring(&self) {
        self.bell.ring();
    }

    /// Sorts the dialler's answers by the tasks that wait for them.
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

    /// Asks for a connection, which [`Dialling::take_dialled`] gives some time later.
    pub(crate) fn ask_for_connection(&self, task: usize, endpoint: Endpoint) {
        let sent = self.questions.try_send(ToDialler::Connect { task, endpoint });
        assert!(sent.is_ok(), "there is room for one question of each task");
    }

    /// What was answered to a task.
    pub(crate) fn take_dialled(&self, task: usize) -> Option<Result<Dialled, DialError>> {
        self.dialled.borrow_mut()[task].take()
    }

    /// Asks about the cluster, which [`Dialling::take_metadata`] gives some time later. If the last
    /// answer did not help, another broker is asked, now and then.
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

    /// What was answered about the cluster.
    pub(crate) fn take_metadata(&self) -> Option<Result<Metadata, DialError>> {
        self.metadata.borrow_mut().take()
    }
}

/// Questions about one need: to how many other brokers they went, and when.
#[derive(Clone, Copy, Default)]
struct NeededQuestions {
    last: Option<Instant>,
    others: u32,
    other_from: Option<Instant>,
}

impl NeededQuestions {
    /// Whether the next question may go to another broker.
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

/// A number for another task beside these; `None`: there are as many as a dialler has room for.
pub(crate) fn free_task(taken: impl Iterator<Item = usize> + Clone) -> Option<usize> {
    (0..CONNECTIONS_MAX).find(|task| taken.clone().all(|other| other != *task))
}

/// A connection that is ready: authenticated, and its versions known.
pub struct Dialled {
    /// The connected socket.
    pub socket: Handle,
    /// The broker's address.
    pub address: SocketAddr,
    /// The versions that both sides speak.
    pub versions: Versions,
    /// Its encryption; `None`: plaintext.
    pub tls: Option<Box<TlsChannel>>,
    /// When it must be replaced, because the broker will close it (KIP-368).
    pub replace_at: Option<Instant>,
}

/// The encryption of a connection, with what was received and not opened yet.
pub struct TlsChannel {
    /// Its records.
    pub session: TlsSession,
    /// Ciphertext from the middle of the stream.
    pub received: Vec<u8>,
}

/// Why a broker could not be reached or asked.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The name has no address now.
    #[error("the broker name {host} cannot be resolved: {error}")]
    Unknown {
        /// The name.
        host: String,
        /// What the resolver said.
        error: io::Error,
    },
    /// Nobody is there, or goes away.
    #[error("broker {endpoint}: {error}")]
    Io {
        /// Where the broker was thought to be.
        endpoint: Endpoint,
        /// What the kernel said.
        error: io::Error,
    },
    /// The listener speaks TLS, and this client does not.
    #[error(
        "broker {0}: the listener speaks TLS: set [kafka.tls], or connect to the port of a \
         plaintext listener"
    )]
    TlsListener(Endpoint),
    /// The listener asks for an authentication.
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
        /// Kafka's name of the request.
        asked: &'static str,
    },
    /// The broker has said nothing for as long as it may; with more time it might.
    #[error("broker {endpoint}: it does not answer within {} s", .wait_ms / 1000)]
    Late {
        /// The broker.
        endpoint: Endpoint,
        /// Milliseconds that it had.
        wait_ms: u64,
    },
    /// TLS.
    #[error("broker {endpoint}: {error}")]
    Tls {
        /// The broker.
        endpoint: Endpoint,
        /// What is wrong.
        error: TlsError,
    },
    /// SASL.
    #[error("broker {endpoint}: {error}")]
    Sasl {
        /// The broker.
        endpoint: Endpoint,
        /// What is wrong.
        error: SaslError,
    },
    /// The broker's answer makes no sense.
    #[error("broker {endpoint}: {error}")]
    Answer {
        /// The broker.
        endpoint: Endpoint,
        /// What does not fit.
        error: MessageError,
    },
    /// The process has no thread or descriptor left for it.
    #[error(
        "no thread or file descriptor is left to open a connection: {0}; raise TasksMax= and \
         LimitNOFILE= for huntd"
    )]
    Resources(io::Error),
}

impl DialError {
    /// A system call for a connection to this broker has failed.
    pub(crate) fn of_io(endpoint: &Endpoint, error: io::Error) -> DialError {
        match is_out_of_descriptors(&error) {
            true => DialError::Resources(error),
            false => DialError::Io { endpoint: endpoint.clone(), error },
        }
    }

    /// A name has no address now.
    pub(crate) fn of_name(host: &str, error: io::Error) -> DialError {
        match is_out_of_descriptors(&error) {
            true => DialError::Resources(error),
            false => DialError::Unknown { host: host.to_owned(), error },
        }
    }

    /// Whether the broker has refused the user or the password.
    pub(crate) fn is_refused_login(&self) -> bool {
        matches!(self, DialError::Sasl { error: SaslError::Refused { .. }, .. })
    }

    /// Whether only the operator can help: certificates, secrets, or the kind of the listener.
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

/// Opens the first of these brokers or addresses that works: what is wrong with one says nothing
/// about the others. If none works, an error that only the operator can help stands for all, even
/// if the others are only away: for an operator it is what there is to do. Next in rank is a broker
/// that is late: with more time it may answer. A password that is refused is tried once: the
/// others would refuse it, too, and may lock the user out. `None`: there is nothing to open.
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

/// Whether the process, or the whole system, has no file descriptor left.
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
        assert_eq!(Endpoint::parse("kafka-1"), None);
        assert_eq!(Endpoint::parse("kafka-1:port"), None);
    }
}
