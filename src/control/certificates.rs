//! The files of `[kafka.tls]`. librdkafka's clients read them when they are made and never again:
//! only a restart gives them renewed ones.

use super::dialler::DialOptions;
use super::link::Link;
use crate::fetch::dialling::{DialError, Endpoint};
use crate::kafka::membership::{MembershipError, MembershipEvent};
use crate::kafka::tls::{self, TlsConfig};
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread;

/// The files as librdkafka's clients have read them, and the question whether brokers take them.
///
/// With TLS 1.3 a broker refuses a certificate after the handshake, and librdkafka says only that
/// no broker answers. So huntd dials itself, with the files as they were and as they are.
pub(super) struct Certificates {
    dial: DialOptions,
    /// What was in the files; `None`: no TLS, or files that could not be used.
    held: Option<TlsConfig>,
    /// The question under way: it is answered with the error that a restart would cure.
    question: Option<Receiver<MembershipError>>,
}

impl Certificates {
    /// The files as they are now.
    pub(super) fn read(dial: &DialOptions) -> Certificates {
        let files = dial.security.tls.as_ref();
        let held = files.and_then(|files| tls::client_config(files).ok());
        Certificates { dial: dial.clone(), held, question: None }
    }

    /// Takes an event of the group. If old certificates may be behind it, brokers are asked, one
    /// question at a time.
    pub(super) fn on_group_event(&mut self, event: &MembershipEvent) {
        use MembershipError::{TlsFailed, Unreachable};
        let MembershipEvent::Error(error @ (TlsFailed(_) | Unreachable(_))) = event else { return };
        let (None, Some(held)) = (&self.question, &self.held) else { return };
        let (dial, held, reason) = (self.dial.clone(), held.clone(), error.to_string());
        let (sender, answer) = mpsc::channel();
        let ask = move || {
            if dial.bootstrap.iter().any(|endpoint| are_outdated(&held, endpoint, &dial)) {
                // The control thread may have ended.
                sender.send(MembershipError::TlsOutdated(reason)).ok();
            }
        };
        // Without a thread nothing is known, and the next event asks again.
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
