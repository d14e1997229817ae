//! TLS as bytes in and bytes out, without I/O: the handshake, and the records after it.
//!
//! The handshake is rustls' own. Afterwards rustls' unbuffered connection would copy each record
//! into memory of its own, so the connection is taken apart, as for a kernel's TLS: records are
//! opened in place by rustls' own code for one record, and keys are renewed by rustls. What stands
//! here are the record's header, the count of records, and what a record may hold.

use crate::kafka::security::{ClientCertificate, SecurityFileError, TlsOptions};
use ring::aead;
use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::crypto::cipher::{InboundOpaqueMessage, MessageDecrypter};
use rustls::kernel::KernelConnection;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::unbuffered::{ConnectionState, EncodeError, UnbufferedStatus};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, ConnectionTrafficSecrets, ContentType,
    ExtractedSecrets, HandshakeType, ProtocolVersion, RootCertStore, SupportedCipherSuite,
};
use std::sync::Arc;

/// Bytes of a record's header.
pub const RECORD_HEADER_BYTES: usize = 5;

/// Bytes of a whole record: RFC 8446 allows less, RFC 5246 this much.
pub const RECORD_BYTES_MAX: usize = RECORD_HEADER_BYTES + 16 * 1024 + 2048;

/// Bytes of plaintext in a record.
const PLAINTEXT_BYTES_MAX: usize = 16 * 1024;

/// Bytes of the nonce in each TLS 1.2 record of an AES-GCM suite.
const EXPLICIT_NONCE_BYTES: usize = 8;

/// Records under one key, after which a connection is worn: far below the 2^24.5 of RFC 8446, 5.5.
const RECORDS_MAX: u64 = 1 << 23;

/// Why there is no TLS connection, or no more of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    /// A file of `[kafka.tls]`.
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
        "the broker's certificate is not valid for the name {0}: connect by a name that it has, or \
         give the broker a certificate with this name"
    )]
    WrongName(String),
    /// The broker's certificate is out of date.
    #[error("the broker's certificate has expired: renew it, and check the clock of this host")]
    Expired,
    /// The broker's certificate is not valid yet.
    #[error("the broker's certificate is not valid yet: check the clocks of both hosts")]
    NotYetValid,
    /// The broker has ended the connection with an alert.
    #[error("the broker refuses the TLS connection with the alert {0}{hint}", hint = alert_hint(.0))]
    Alert(String),
    /// What came is no TLS.
    #[error(
        "the listener does not speak TLS: leave out [kafka.tls], or connect to the port of an SSL \
         listener"
    )]
    NotTls,
    /// Anything else.
    #[error("TLS: {0}")]
    Protocol(String),
    /// The broker has closed the connection in order.
    #[error("the broker has closed the connection")]
    Closed,
}

/// What to do about an alert.
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
        | "AccessDenied" => ": it does not accept the certificate of kafka.tls.certificate_file",
        "ProtocolVersion" => ": it must allow TLS 1.2 or 1.3",
        _ => "",
    }
}

/// What every handshake begins with.
pub type TlsConfig = Arc<ClientConfig>;

/// Reads the files.
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
            let (chain, key) = client_certificate(client)?;
            let wrong = |error: rustls::Error| SecurityFileError::new(&client.key_file, error);
            builder.with_client_auth_cert(chain, key).map_err(wrong)?
        }
    };
    config.enable_secret_extraction = true;
    // Connections are few and long: a ticket would save nothing.
    config.resumption = rustls::client::Resumption::disabled();
    Ok(Arc::new(config))
}

fn roots(options: &TlsOptions) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    let Some(path) = &options.ca_file else {
        let found = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(found.certs);
        return match roots.is_empty() {
            true => Err(TlsError::Protocol(
                "this system has no certificate authorities: install ca-certificates, or set \
                 kafka.tls.ca_file"
                    .to_owned(),
            )),
            false => Ok(roots),
        };
    };
    let wrong = |sentence: String| SecurityFileError::new(path, sentence);
    let found = CertificateDer::pem_file_iter(path).map_err(|error| wrong(error.to_string()))?;
    for certificate in found {
        let certificate = certificate.map_err(|error| wrong(error.to_string()))?;
        roots.add(certificate).map_err(|error| wrong(error.to_string()))?;
    }
    match roots.is_empty() {
        true => Err(wrong("holds no certificate in PEM form".to_owned()).into()),
        false => Ok(roots),
    }
}

type Chain = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn client_certificate(client: &ClientCertificate) -> Result<Chain, SecurityFileError> {
    let path = &client.certificate_file;
    let wrong = |error: rustls::pki_types::pem::Error| SecurityFileError::new(path, error);
    let chain = CertificateDer::pem_file_iter(path).map_err(wrong)?;
    let chain: Vec<_> = chain.collect::<Result<_, _>>().map_err(wrong)?;
    if chain.is_empty() {
        return Err(SecurityFileError::new(path, "holds no certificate in PEM form"));
    }
    let key = PrivateKeyDer::from_pem_file(&client.key_file)
        .map_err(|error| SecurityFileError::new(&client.key_file, error))?;
    Ok((chain, key))
}

/// A handshake under way.
pub struct Handshake {
    connection: UnbufferedClientConnection,
    host: String,
}

/// What a handshake wants next.
#[derive(Debug, PartialEq, Eq)]
pub enum HandshakeStep {
    /// Send what was appended to `outgoing`, then step again.
    Send,
    /// Receive more, then step again.
    Receive,
    /// It is complete.
    Done,
}

impl Handshake {
    /// A handshake with the broker of this name, which its certificate must have.
    pub fn begin(config: &TlsConfig, host: &str) -> Result<Handshake, TlsError> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| TlsError::Protocol(format!("{host} is no host name")))?;
        let connection = UnbufferedClientConnection::new(config.clone(), name)
            .map_err(|error| TlsError::Protocol(error.to_string()))?;
        Ok(Handshake { connection, host: host.to_owned() })
    }

    /// Goes on with what has been received; what was used is removed from `incoming`.
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

    /// The connection after the handshake.
    pub fn finish(self) -> Result<TlsSession, TlsError> {
        let wrong = |error: rustls::Error| TlsError::Protocol(error.to_string());
        let (secrets, kernel) =
            self.connection.dangerous_into_kernel_connection().map_err(wrong)?;
        let ExtractedSecrets { tx: (sealed, seal), rx: (opened, open) } = secrets;
        let suite = kernel.negotiated_cipher_suite();
        Ok(TlsSession {
            opener: opener(suite, open)?,
            opened,
            sealer: Sealer::new(kernel.protocol_version(), seal)?,
            sealed,
            suite,
            kernel,
            must_update: false,
        })
    }
}

/// Lets rustls append, with as much room as it asks for.
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
            other => TlsError::Protocol(format!("the broker's certificate: {other}")),
        },
        rustls::Error::AlertReceived(alert) => TlsError::Alert(format!("{alert:?}")),
        rustls::Error::InvalidMessage(_) => TlsError::NotTls,
        other => TlsError::Protocol(other.to_string()),
    }
}

/// The records of one connection after its handshake.
pub struct TlsSession {
    opener: Box<dyn MessageDecrypter>,
    /// Records opened with the current key.
    opened: u64,
    sealer: Sealer,
    /// Records sealed with the current key.
    sealed: u64,
    suite: SupportedCipherSuite,
    kernel: KernelConnection<ClientConnectionData>,
    /// The broker has renewed its key and asks for the same (RFC 8446, 4.6.3).
    must_update: bool,
}

/// What stands at the start of received bytes.
#[derive(Debug, PartialEq, Eq)]
pub enum Opened<'a> {
    /// Not a whole record.
    Incomplete,
    /// A record.
    Record {
        /// Its bytes, which are done with.
        bytes: usize,
        /// What it holds for us: nothing if the record is TLS' own.
        plaintext: &'a [u8],
    },
}

impl TlsSession {
    /// Appends plaintext as records to `out`.
    pub fn seal(&mut self, plaintext: &[u8], out: &mut Vec<u8>) -> Result<(), TlsError> {
        if std::mem::take(&mut self.must_update) {
            // KeyUpdate, which asks for none in return: its type, three bytes of length, 0.
            let update = [u8::from(HandshakeType::KeyUpdate), 0, 0, 1, 0];
            self.sealer.seal(self.sealed, ContentType::Handshake, &update, out);
            let (sealed, secrets) = self.kernel.update_tx_secret().map_err(protocol)?;
            self.sealer = Sealer::new(ProtocolVersion::TLSv1_3, secrets)?;
            self.sealed = sealed;
        }
        for part in plaintext.chunks(PLAINTEXT_BYTES_MAX) {
            self.sealer.seal(self.sealed, ContentType::ApplicationData, part, out);
            self.sealed += 1;
        }
        Ok(())
    }

    /// Whether the connection should be replaced by a new one: its keys have sealed or opened as
    /// many records as they should.
    pub fn is_worn(&self) -> bool {
        self.sealed.max(self.opened) >= RECORDS_MAX
    }

    /// Opens the record at the start of `bytes`, in place.
    pub fn open<'a>(&mut self, bytes: &'a mut [u8]) -> Result<Opened<'a>, TlsError> {
        let Some([content, major, minor, high, low]) = bytes.first_chunk() else {
            return Ok(Opened::Incomplete);
        };
        let end = RECORD_HEADER_BYTES + usize::from(u16::from_be_bytes([*high, *low]));
        let version = ProtocolVersion::from(u16::from_be_bytes([*major, *minor]));
        let content = ContentType::from(*content);
        if end > RECORD_BYTES_MAX {
            return Err(TlsError::Protocol(format!("a record of {end} bytes")));
        }
        let Some(record) = bytes.get_mut(RECORD_HEADER_BYTES..end) else {
            return Ok(Opened::Incomplete);
        };
        let message = InboundOpaqueMessage::new(content, version, record);
        let opened = self.opener.decrypt(message, self.opened).map_err(protocol)?;
        self.opened += 1;
        let plaintext = match opened.typ {
            ContentType::ApplicationData => opened.payload,
            ContentType::Handshake => {
                self.heed(opened.payload)?;
                &[]
            }
            ContentType::Alert => return Err(alert(opened.payload)),
            other => return Err(TlsError::Protocol(format!("a record of type {other:?}"))),
        };
        Ok(Opened::Record { bytes: end, plaintext })
    }

    /// Handshake messages after the handshake: tickets, which are not used, and new keys.
    fn heed(&mut self, mut messages: &[u8]) -> Result<(), TlsError> {
        if self.kernel.protocol_version() != ProtocolVersion::TLSv1_3 {
            return Err(TlsError::Protocol("the broker renegotiates, which is refused".to_owned()));
        }
        while let Some(([kind, a, b, c], rest)) = messages.split_first_chunk() {
            let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
            let Some((body, rest)) = rest.split_at_checked(length) else {
                return Err(TlsError::Protocol("a handshake message in two records".to_owned()));
            };
            messages = rest;
            match (HandshakeType::from(*kind), body) {
                (HandshakeType::NewSessionTicket, _) => {}
                // New keys begin with the next record, so nothing may follow in this one.
                (HandshakeType::KeyUpdate, [asked @ 0..=1]) if messages.is_empty() => {
                    let (opened, secrets) = self.kernel.update_rx_secret().map_err(protocol)?;
                    self.opener = opener(self.suite, secrets)?;
                    self.opened = opened;
                    self.must_update |= *asked == 1;
                }
                (other, _) => {
                    return Err(TlsError::Protocol(format!("{other:?} after the handshake")));
                }
            }
        }
        match messages.is_empty() {
            true => Ok(()),
            false => Err(TlsError::Protocol("a handshake message in two records".to_owned())),
        }
    }
}

fn protocol(error: rustls::Error) -> TlsError {
    TlsError::Protocol(error.to_string())
}

fn alert(bytes: &[u8]) -> TlsError {
    match bytes {
        [_, 0] => TlsError::Closed,
        [_, number] => TlsError::Alert(format!("{:?}", AlertDescription::from(*number))),
        _ => TlsError::Protocol("a malformed alert".to_owned()),
    }
}

/// rustls' own code for opening one record.
fn opener(
    suite: SupportedCipherSuite,
    secrets: ConnectionTrafficSecrets,
) -> Result<Box<dyn MessageDecrypter>, TlsError> {
    use ConnectionTrafficSecrets::{Aes128Gcm, Aes256Gcm, Chacha20Poly1305};
    let is_gcm = matches!(secrets, Aes128Gcm { .. } | Aes256Gcm { .. });
    let (Aes128Gcm { key, iv } | Aes256Gcm { key, iv } | Chacha20Poly1305 { key, iv }) = secrets
    else {
        return Err(TlsError::Protocol("an unknown cipher suite".to_owned()));
    };
    Ok(match suite {
        SupportedCipherSuite::Tls13(suite) => suite.aead_alg.decrypter(key, iv),
        SupportedCipherSuite::Tls12(suite) => {
            // The rest of the nonce stands in each record (RFC 5288, 3).
            let fixed = if is_gcm { &iv.as_ref()[..4] } else { iv.as_ref() };
            suite.aead_alg.decrypter(key, fixed)
        }
    })
}

/// Seals records into a buffer that its owner reuses; rustls' own code would allocate one for each.
struct Sealer {
    key: aead::LessSafeKey,
    iv: [u8; aead::NONCE_LEN],
    form: RecordForm,
}

/// How a record is laid out, and what its nonce is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RecordForm {
    /// RFC 8446, 5.2 and 5.3.
    Tls13,
    /// RFC 5288, 3: a part of the nonce stands in the record.
    Tls12Gcm,
    /// RFC 7905, 2.
    Tls12Chacha,
}

impl Sealer {
    fn new(
        version: ProtocolVersion,
        secrets: ConnectionTrafficSecrets,
    ) -> Result<Sealer, TlsError> {
        use ConnectionTrafficSecrets::{Aes128Gcm, Aes256Gcm, Chacha20Poly1305};
        let (algorithm, key, iv) = match secrets {
            Aes128Gcm { key, iv } => (&aead::AES_128_GCM, key, iv),
            Aes256Gcm { key, iv } => (&aead::AES_256_GCM, key, iv),
            Chacha20Poly1305 { key, iv } => (&aead::CHACHA20_POLY1305, key, iv),
            _ => return Err(TlsError::Protocol("an unknown cipher suite".to_owned())),
        };
        let form = match version {
            ProtocolVersion::TLSv1_3 => RecordForm::Tls13,
            _ if algorithm == &aead::CHACHA20_POLY1305 => RecordForm::Tls12Chacha,
            _ => RecordForm::Tls12Gcm,
        };
        let key = aead::UnboundKey::new(algorithm, key.as_ref())
            .expect("rustls' keys have the length of their algorithm");
        let iv = iv.as_ref().try_into().expect("every nonce has 12 bytes");
        Ok(Sealer { key: aead::LessSafeKey::new(key), iv, form })
    }

    /// Appends one record. `number` counts the records under this key.
    fn seal(&self, number: u64, content: ContentType, plaintext: &[u8], out: &mut Vec<u8>) {
        assert!(plaintext.len() <= PLAINTEXT_BYTES_MAX);
        let start = out.len();
        let (outer, explicit, inner) = match self.form {
            RecordForm::Tls13 => (ContentType::ApplicationData, 0, 1),
            RecordForm::Tls12Gcm => (content, EXPLICIT_NONCE_BYTES, 0),
            RecordForm::Tls12Chacha => (content, 0, 0),
        };
        let tag_bytes = self.key.algorithm().tag_len();
        let length = (explicit + plaintext.len() + inner + tag_bytes) as u16;
        let [high, low] = length.to_be_bytes();
        out.extend_from_slice(&[u8::from(outer), 3, 3, high, low]);
        if self.form == RecordForm::Tls12Gcm {
            out.extend_from_slice(&number.to_be_bytes());
        }
        let sealed_from = out.len();
        out.extend_from_slice(plaintext);
        if self.form == RecordForm::Tls13 {
            out.push(u8::from(content));
        }
        let mut additional = [0; 13];
        let additional = match self.form {
            RecordForm::Tls13 => {
                additional[..RECORD_HEADER_BYTES].copy_from_slice(&out[start..sealed_from]);
                &additional[..RECORD_HEADER_BYTES]
            }
            RecordForm::Tls12Gcm | RecordForm::Tls12Chacha => {
                additional[..8].copy_from_slice(&number.to_be_bytes());
                additional[8..11].copy_from_slice(&out[start..start + 3]);
                additional[11..].copy_from_slice(&(plaintext.len() as u16).to_be_bytes());
                &additional[..]
            }
        };
        let tag = self
            .key
            .seal_in_place_separate_tag(
                self.nonce(number),
                aead::Aad::from(additional),
                &mut out[sealed_from..],
            )
            .expect("a record is far shorter than any limit of its algorithm");
        out.extend_from_slice(tag.as_ref());
    }

    fn nonce(&self, number: u64) -> aead::Nonce {
        let mut nonce = self.iv;
        let number = number.to_be_bytes();
        match self.form {
            RecordForm::Tls12Gcm => nonce[4..].copy_from_slice(&number),
            RecordForm::Tls13 | RecordForm::Tls12Chacha => {
                nonce[4..].iter_mut().zip(number).for_each(|(byte, part)| *byte ^= part);
            }
        }
        aead::Nonce::assume_unique_for_key(nonce)
    }
}
