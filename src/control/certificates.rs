//! The files of `[kafka.tls]`. librdkafka's clients read them when they are made and never again:
//! only a restart gives them renewed ones.

use crate::kafka::membership::{MembershipError, MembershipEvent};
use crate::kafka::security::{PEM_BYTES_MAX, TlsOptions, read_file};
use crate::kafka::tls;

/// The files as librdkafka's clients have read them.
pub(super) struct Certificates {
    options: Option<TlsOptions>,
    /// What each of them held; `None`: not all of them could be read.
    held: Option<Vec<Vec<u8>>>,
}

impl Certificates {
    /// The files as they are now.
    pub(super) fn read(options: Option<&TlsOptions>) -> Certificates {
        Certificates { options: options.cloned(), held: options.and_then(contents) }
    }

    /// Adds to the group's error whether a restart would help. With TLS 1.3 a broker refuses a
    /// certificate after the handshake, and librdkafka says only that no broker answers.
    pub(super) fn judge(&self, event: MembershipEvent) -> MembershipEvent {
        use MembershipError::{TlsFailed, TlsOutdated, Unreachable};
        match event {
            MembershipEvent::Error(error @ (TlsFailed(_) | Unreachable(_)))
                if self.are_renewed() =>
            {
                MembershipEvent::Error(TlsOutdated(error.to_string()))
            }
            event => event,
        }
    }

    /// Whether a start would read other ones, and could use them: they may be half written.
    fn are_renewed(&self) -> bool {
        let Some(options) = &self.options else { return false };
        tls::client_config(options).is_ok() && contents(options) != self.held
    }
}

fn contents(options: &TlsOptions) -> Option<Vec<Vec<u8>>> {
    let client = options.client.iter();
    let client = client.flat_map(|client| [&client.certificate_file, &client.key_file]);
    let files = options.ca_file.iter().chain(client);
    files.map(|file| read_file(file, PEM_BYTES_MAX).ok()).collect()
}
