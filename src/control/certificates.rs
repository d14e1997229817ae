//! The files of `[kafka.tls]`. librdkafka's clients read them when they are made and never again:
//! only a restart gives all of them renewed ones. Joining again gives the group's client alone what
//! is in the files then.

use super::dialler::DialOptions;
use super::link::Link;
use crate::fetch::dialling::{DialError, Endpoint};
use crate::kafka::membership::{MembershipError, MembershipEvent};
use crate::kafka::tls::{self, TlsConfig};
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

/// Milliseconds between two questions, at least. Each dials every broker of the configuration, and
/// an outage brings an event a second from each broker.
const QUESTION_EVERY_MS: u64 = 5_000;

/// The files as they were at the start, and the question whether a restart helps: whether brokers
/// refuse them and take those of now.
///
/// With TLS 1.3 a broker refuses a certificate after the handshake, and librdkafka says only that
/// no broker answers. So huntd dials itself, with the files as they were and as they are.
pub(super) struct Certificates {
    dial: DialOptions,
    /// What was in the files before the clients were made; `None`: no TLS, or files that could not
    /// be used.
    held: Option<TlsConfig>,
    /// Before this time nothing is asked.
    next_at: Instant,
    /// The question under way: it is answered with the error that a restart would cure.
    question: Option<Receiver<MembershipError>>,
}

impl Certificates {
    /// The files as they are now.
    pub(super) fn read(dial: &DialOptions) -> Certificates {
        let files = dial.security.tls.as_ref();
        let held = files.and_then(|files| tls::client_config(files).ok());
        Certificates { dial: dial.clone(), held, next_at: Instant::now(), question: None }
    }

    /// Takes an event of the group. If old certificates may be behind it, the brokers of the
    /// configuration are asked, one question at a time.
    pub(super) fn on_group_event(&mut self, event: &MembershipEvent, now: Instant) {
        use MembershipError::{TlsFailed, Unreachable};
        let MembershipEvent::Error(error @ (TlsFailed(_) | Unreachable(_))) = event else { return };
        let (None, Some(held)) = (&self.question, &self.held) else { return };
        if now < self.next_at {
            return;
        }
        self.next_at = now + Duration::from_millis(QUESTION_EVERY_MS);
        let (dial, held, reason) = (self.dial.clone(), held.clone(), error.to_string());
        let (sender, answer) = mpsc::channel();
        let ask = move || {
            if dial.bootstrap.iter().any(|endpoint| are_outdated(&held, endpoint, &dial)) {
                // The control thread may have ended.
                sender.send(MembershipError::TlsOutdated(reason)).ok();
            }
        };
        // Without a thread nothing is known, and a later event asks again.
        let thread = thread::Builder::new().name("certificates".to_owned()).spawn(ask);
        self.question = thread.is_ok().then_some(answer);
    }

    /// What the brokers have answered, once: the group's error, if a restart would cure it.
    pub(super) fn verdict(&mut self) -> Option<MembershipEvent> {
        match self.question.as_ref()?.try_recv() {
            Err(TryRecvError::Empty) => None,
            answer => {
                self.question = None;
                answer.ok().map(MembershipEvent::Error)
            }
        }
    }
}

/// Whether a broker takes the files of now and refuses those that are held. It is asked about the
/// latter before and after: one that is only starting or stopping closes connections, too.
fn are_outdated(held: &TlsConfig, endpoint: &Endpoint, dial: &DialOptions) -> bool {
    let takes_files = || Link::open(endpoint, dial)?.ask_metadata(dial, &dial.topic);
    let takes_held =
        || Link::open_with(endpoint, dial, &|_| Ok(held.clone()))?.ask_metadata(dial, &dial.topic);
    let refuses_held =
        || matches!(takes_held(), Err(DialError::Tls { .. } | DialError::Silent { .. }));
    refuses_held() && takes_files().is_ok() && refuses_held()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kafka::security::{Security, TlsOptions};
    use rcgen::generate_simple_self_signed;
    use std::net::TcpListener;

    /// One that dials a broker which says nothing, so that no question is answered.
    fn certificates(silent: &TcpListener) -> Certificates {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        let authority = generate_simple_self_signed([]).expect("no name is wrong");
        std::fs::write(file.path(), authority.cert.pem()).expect("it can be written");
        let tls = TlsOptions { ca_file: Some(file.path().to_owned()), client: None };
        let port = silent.local_addr().expect("it is bound").port();
        Certificates::read(&DialOptions {
            bootstrap: vec![Endpoint { host: "127.0.0.1".to_owned(), port }],
            client_id: "huntd".to_owned(),
            topic: "input".to_owned(),
            security: Security { tls: Some(tls), sasl: None },
        })
    }

    #[test]
    fn an_outage_that_brings_many_events_brings_few_questions() {
        let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let (mut certificates, start) = (certificates(&silent), Instant::now());
        let event = MembershipEvent::Error(MembershipError::Unreachable("away".to_owned()));
        let questions = (0..=20).filter(|second| {
            certificates.on_group_event(&event, start + Duration::from_secs(*second));
            // As if it were answered at once.
            certificates.question.take().is_some()
        });
        assert_eq!(questions.collect::<Vec<u64>>(), [0, 5, 10, 15, 20]);
    }
}
