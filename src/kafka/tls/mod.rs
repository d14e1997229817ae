//! TLS as bytes in and bytes out, without I/O: the handshake, and the records after it.
//!
//! rustls performs the handshake. Afterwards, its unbuffered connection would copy each record into
//! memory of its own, so the connection is taken apart, as for kernel TLS: rustls' code for single
//! records decrypts in place, and rustls renews the keys. This module handles the record's header,
//! the count of records, and the content types.

mod files;
pub mod records;
mod sealer;

use crate::kafka::security::{SecurityFileError, TlsOptions};
use records::TlsSession;
use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::ServerName;
use rustls::unbuffered::{ConnectionState, EncodeError, UnbufferedStatus};
use rustls::{CertificateError, ClientConfig, OtherError, RootCertStore};
use std::sync::Arc;

/// Limit of plaintext in a record.
pub(crate) const PLAINTEXT_BYTES_MAX: usize = 16 * 1024;

/// Why a TLS connection cannot be opened or continued.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    /// A file of `[kafka.tls]` cannot be used.
    #[error("kafka.tls: {0}")]
    File(#[from] SecurityFileError),
    /// The broker's certificate is signed by an authority that is not trusted.
    #[error(
        "no trusted authority has signed the broker's certificate: set kafka.tls.ca_file to the \
         certificate of the authority that has"
    )]
    UnknownAuthority,
    /// The broker's certificate is for other names.
    #[error(
        "the broker's certificate is not valid for the name {0}: connect by a name that it has, \
         or give the broker a certificate with this name"
    )]
    WrongName(String),
    /// The broker's certificate is out of date.
    #[error("the broker's certificate has expired: renew it, and check the clock of this host")]
    Expired,
    /// The broker's certificate is not valid yet.
    #[error("the broker's certificate is not valid yet: check the clocks of both hosts")]
    NotYetValid,
    /// The broker's certificate is invalid for another reason.
    #[error("the broker's certificate cannot be used: {0}")]
    BrokerCertificate(String),
    /// The broker has ended the connection with an alert.
    #[error("the broker refused the TLS connection with the alert {}{}", .0, alert_hint(.0))]
    Alert(String),
    /// The received bytes are not TLS.
    #[error(
        "the listener does not speak TLS: leave out [kafka.tls], or connect to the port of an SSL \
         listener"
    )]
    NotTls,
    /// Any other protocol error.
    #[error("TLS: {0}")]
    Protocol(String),
    /// The broker has closed the connection with a close_notify alert.
    #[error("the broker has closed the connection")]
    Closed,
}

/// Suggests a remedy for an alert.
fn alert_hint(name: &str) -> &'static str {
    match name {
        "CertificateRequired" | "HandshakeFailure" => {
            ": it may ask for a client certificate, see kafka.tls.certificate_file"
        }
        "BadCertificate"
        | "UnknownCA"
        | "CertificateUnknown"
        | "CertificateExpired"
        | "CertificateRevoked"
        | "UnsupportedCertificate"
        | "AccessDenied" => {
            ": it asks for a client certificate that it accepts, see kafka.tls.certificate_file"
        }
        "ProtocolVersion" => ": it must allow TLS 1.2 or 1.3",
        _ => "",
    }
}

/// The settings of every handshake.
pub type TlsConfig = Arc<ClientConfig>;

/// Reads the files and creates the settings.
pub fn client_config(options: &TlsOptions) -> Result<TlsConfig, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let wrong = |error: rustls::Error| TlsError::Protocol(error.to_string());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(wrong)?
        .with_root_certificates(roots(options)?);
    let mut config = match &options.client {
        None => builder.with_no_client_auth(),
        Some(client) => {
            let (chain, key) = files::client_certificate(client)?;
            let wrong = |error| files::pair_fault(client, &error);
            builder.with_client_auth_cert(chain, key).map_err(wrong)?
        }
    };
    config.enable_secret_extraction = true;
    // Connections are few and long-lived: a session ticket would save nothing.
    config.resumption = rustls::client::Resumption::disabled();
    Ok(Arc::new(config))
}

/// The authorities that are trusted to sign a broker's certificate.
fn roots(options: &TlsOptions) -> Result<RootCertStore, TlsError> {
    if let Some(path) = &options.ca_file {
        return Ok(files::authorities(path)?);
    }
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    match roots.is_empty() {
        true => Err(TlsError::Protocol(
            "this system has no certificate authorities: install ca-certificates, or set \
             kafka.tls.ca_file"
                .to_owned(),
        )),
        false => Ok(roots),
    }
}

/// Returns the first bytes of a TLS client, to find out whether a listener uses TLS. No handshake
/// follows.
pub(crate) fn greeting() -> Result<Vec<u8>, TlsError> {
    let wrong = |error: rustls::Error| TlsError::Protocol(error.to_string());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(wrong)?
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let mut greeting = Vec::new();
    Handshake::begin(&Arc::new(config), "broker")?.step(&mut Vec::new(), &mut greeting)?;
    Ok(greeting)
}

/// A handshake in progress.
pub struct Handshake {
    connection: UnbufferedClientConnection,
    host: String,
}

/// The next step of a handshake.
#[derive(Debug, PartialEq, Eq)]
pub enum HandshakeStep {
    /// Send what was appended to `outgoing`, then step again.
    Send,
    /// Receive more, then step again.
    Receive,
    /// The handshake is complete.
    Done,
}

impl Handshake {
    /// Starts a handshake with the broker of this name, which its certificate must contain.
    pub fn begin(config: &TlsConfig, host: &str) -> Result<Handshake, TlsError> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| TlsError::Protocol(format!("{host} is not a host name")))?;
        let connection = UnbufferedClientConnection::new(config.clone(), name)
            .map_err(|error| TlsError::Protocol(error.to_string()))?;
        Ok(Handshake { connection, host: host.to_owned() })
    }

    /// Continues with the received bytes. Consumed bytes are removed from `incoming`.
    pub fn step(
        &mut self,
        incoming: &mut Vec<u8>,
        outgoing: &mut Vec<u8>,
    ) -> Result<HandshakeStep, TlsError> {
        loop {
            let host = &self.host;
            let UnbufferedStatus { discard, state, .. } =
                self.connection.process_tls_records(incoming);
            let step = match state.map_err(|error| sentence_of(error, host))? {
                ConnectionState::EncodeTlsData(mut encoding) => {
                    encode_into(outgoing, |room| encoding.encode(room))?;
                    None
                }
                ConnectionState::TransmitTlsData(sending) => {
                    sending.done();
                    Some(HandshakeStep::Send)
                }
                ConnectionState::BlockedHandshake => Some(HandshakeStep::Receive),
                ConnectionState::WriteTraffic(_) => Some(HandshakeStep::Done),
                ConnectionState::PeerClosed | ConnectionState::Closed => {
                    return Err(TlsError::Closed);
                }
                other => return Err(TlsError::Protocol(format!("{other:?} in the handshake"))),
            };
            incoming.drain(..discard);
            if let Some(step) = step {
                return Ok(step);
            }
        }
    }

    /// Returns the session after the handshake.
    pub fn finish(self) -> Result<TlsSession, TlsError> {
        let wrong = |error: rustls::Error| TlsError::Protocol(error.to_string());
        let (secrets, kernel) =
            self.connection.dangerous_into_kernel_connection().map_err(wrong)?;
        TlsSession::new(secrets, kernel)
    }
}

/// Lets rustls append its output, with as much space as it asks for.
fn encode_into(
    outgoing: &mut Vec<u8>,
    mut encode: impl FnMut(&mut [u8]) -> Result<usize, EncodeError>,
) -> Result<(), TlsError> {
    let start = outgoing.len();
    let mut room = PLAINTEXT_BYTES_MAX;
    loop {
        outgoing.resize(start + room, 0);
        match encode(&mut outgoing[start..]) {
            Ok(count) => {
                outgoing.truncate(start + count);
                return Ok(());
            }
            Err(EncodeError::InsufficientSize(more)) => room = more.required_size,
            Err(error) => return Err(TlsError::Protocol(error.to_string())),
        }
    }
}

/// Returns the fault of a certificate, and the remedy.
fn certificate_fault(error: &CertificateError) -> String {
    let name = match error {
        // A webpki error, whose text is its name.
        CertificateError::Other(OtherError(error)) => error.to_string(),
        error => error.to_string(),
    };
    match name.as_str() {
        "CaUsedAsEndEntity" => "it is one of a CA: use a CA's certificate as kafka.tls.ca_file, \
                                and one signed by it for the broker"
            .to_owned(),
        "UnsupportedCertVersion" => "its version is too old: issue it as X.509 v3".to_owned(),
        "BadEncoding" => "it is damaged: copy it again, or issue another one".to_owned(),
        _ => format!("{name}; issue another one"),
    }
}

fn sentence_of(error: rustls::Error, host: &str) -> TlsError {
    use CertificateError::{
        Expired, ExpiredContext, NotValidForName, NotValidForNameContext, NotValidYet,
        NotValidYetContext, UnknownIssuer,
    };
    match error {
        rustls::Error::InvalidCertificate(error) => match error {
            UnknownIssuer => TlsError::UnknownAuthority,
            NotValidForName | NotValidForNameContext { .. } => TlsError::WrongName(host.to_owned()),
            Expired | ExpiredContext { .. } => TlsError::Expired,
            NotValidYet | NotValidYetContext { .. } => TlsError::NotYetValid,
            other => TlsError::BrokerCertificate(certificate_fault(&other)),
        },
        rustls::Error::AlertReceived(alert) => TlsError::Alert(format!("{alert:?}")),
        rustls::Error::InvalidMessage(_) => TlsError::NotTls,
        other => TlsError::Protocol(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, KeyPair};
    use rustls::client::WebPkiServerVerifier;
    use rustls::client::danger::ServerCertVerifier;
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, UnixTime};

    const HOST: &str = "localhost";

    /// A certificate of the version that `openssl x509 -req` without extensions makes.
    const CERTIFICATE_V1: &str = "\
-----BEGIN CERTIFICATE-----
MIIBIzCBywIUD3cxvmfRrI+zbH5KthcezDjzWDEwCgYIKoZIzj0EAwIwFDESMBAG
A1UEAwwJbG9jYWxob3N0MCAXDTI2MTEyNTE3NTA0NVoYDzIxMjYxMTAxMTc1MDQ1
WjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNC
AATttlm65cEWPum1Xeff78TytD5k7EfrKcJ9wW8DgLmr+2xkJXRGzJ/CB5JbxgEG
X0iyjN7Ls8xNUeUXzC68pCZDMAoGCCqGSM49BAMCA0cAMEQCIGyxGCarLANVHHP4
Kvb01lVLrFPnj1s6bPWCfG4eIPxoAiAWg8aON1Hq0whlzsM2Rq73ru6eitOnaoM0
OlVFSg8gmQ==
-----END CERTIFICATE-----
";

    /// The error for a broker with this certificate, which is also trusted as an authority.
    fn refused(pem: &str) -> TlsError {
        let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).expect("a certificate");
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone()).expect("it can be read");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
        let verifier = verifier.build().expect("there is an authority");
        let name = ServerName::try_from(HOST).expect("a valid name");
        let verified = verifier.verify_server_cert(&certificate, &[], &name, &[], UnixTime::now());
        sentence_of(verified.expect_err("it is refused"), HOST)
    }

    fn self_signed(set: impl FnOnce(&mut CertificateParams)) -> String {
        let mut params = CertificateParams::new([HOST.to_owned()]).expect("a valid name");
        set(&mut params);
        params.self_signed(&KeyPair::generate().expect("a key")).expect("a certificate").pem()
    }

    #[test]
    fn a_certificate_that_no_broker_can_have_is_named_with_its_fault_and_what_to_do() {
        let of_ca = self_signed(|params| params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained));
        let of_client = self_signed(|params| {
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        });
        for (pem, words) in [
            (of_ca.as_str(), "use a CA's certificate as kafka.tls.ca_file, and one signed by it"),
            (CERTIFICATE_V1, "issue it as X.509 v3"),
            (&of_client, "issue another one"),
        ] {
            let error = refused(pem);
            let sentence = error.to_string();
            assert!(matches!(error, TlsError::BrokerCertificate(_)), "{sentence}");
            assert!(sentence.contains(words) && !sentence.contains("Error("), "{sentence}");
        }
    }
}
