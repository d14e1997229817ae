//! A broker's end of a TLS connection in this process. It seals whatever a test wants to send, by
//! rustls' own code for one record, and refuses nothing.

use crate::kafka::tls::records::{TlsSession, opener};
use crate::kafka::tls::{Handshake, HandshakeStep, TlsConfig};
use rustls::crypto::cipher::{
    InboundOpaqueMessage, MessageDecrypter, MessageEncrypter, OutboundChunks, OutboundPlainMessage,
};
use rustls::crypto::ring::{cipher_suite, default_provider};
use rustls::kernel::KernelConnection;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, UnbufferedStatus};
use rustls::{
    ConnectionTrafficSecrets, ContentType, ProtocolVersion, ServerConfig, SupportedCipherSuite,
};
use std::sync::Arc;

/// Every suite that brokers and huntd may agree on, except those of RSA, whose records are alike.
pub const SUITES: [SupportedCipherSuite; 6] = [
    cipher_suite::TLS13_AES_128_GCM_SHA256,
    cipher_suite::TLS13_AES_256_GCM_SHA384,
    cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
    cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    cipher_suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
];

/// What the peer's certificate says that it is.
pub const PEER_NAME: &str = "localhost";

/// The types of a record, by their numbers in TLS.
pub mod content {
    /// An alert.
    pub const ALERT: u8 = 21;
    /// What belongs to a handshake.
    pub const HANDSHAKE: u8 = 22;
    /// Data.
    pub const DATA: u8 = 23;
}

/// Bytes of the longest handshake message here: a short chain fits.
const HANDSHAKE_BYTES_MAX: usize = 16 * 1024;

/// A KeyUpdate: its type, three bytes of length, and whether it asks for one in return.
const KEY_UPDATE: [u8; 4] = [24, 0, 0, 1];

/// The broker's end, after the handshake.
pub struct TlsPeer {
    kernel: KernelConnection<ServerConnectionData>,
    encrypter: Box<dyn MessageEncrypter>,
    sealed: u64,
    decrypter: Box<dyn MessageDecrypter>,
    opened: u64,
}

/// The configuration of a peer with this certificate and key, in PEM form, that speaks one suite.
pub fn peer_config(identity_pem: &str, suite: SupportedCipherSuite) -> Arc<ServerConfig> {
    let mut provider = default_provider();
    provider.cipher_suites = vec![suite];
    let certificate = CertificateDer::from_pem_slice(identity_pem.as_bytes());
    let key = PrivateKeyDer::from_pem_slice(identity_pem.as_bytes());
    let identity = (certificate.expect("a certificate"), key.expect("a key"));
    let mut config = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()
        .and_then(|builder| {
            builder.with_no_client_auth().with_single_cert(vec![identity.0], identity.1)
        })
        .expect("a valid configuration");
    config.enable_secret_extraction = true;
    // Tests send their own.
    config.send_tls13_tickets = 0;
    Arc::new(config)
}

impl TlsPeer {
    /// Shakes hands with a client of this configuration: both ends.
    pub fn connect(server: &Arc<ServerConfig>, client: &TlsConfig) -> (TlsPeer, TlsSession) {
        let mut peer = UnbufferedServerConnection::new(server.clone()).expect("a connection");
        let mut handshake = Handshake::begin(client, PEER_NAME).expect("a valid name");
        let (mut to_client, mut to_peer) = (Vec::new(), Vec::new());
        loop {
            match handshake.step(&mut to_client, &mut to_peer).expect("both sides agree") {
                HandshakeStep::Send => {}
                HandshakeStep::Receive => answer(&mut peer, &mut to_peer, &mut to_client),
                HandshakeStep::Done => break,
            }
        }
        answer(&mut peer, &mut to_peer, &mut to_client);
        assert!(to_client.is_empty(), "nothing follows the handshake");
        let (secrets, kernel) =
            peer.dangerous_into_kernel_connection().expect("the handshake is over");
        let suite = kernel.negotiated_cipher_suite();
        let ((sealed, seal), (opened, open)) = (secrets.tx, secrets.rx);
        let encrypter = encrypter(suite, seal);
        let decrypter = opener(suite, open).expect("a known suite");
        let peer = TlsPeer { kernel, encrypter, sealed, decrypter, opened };
        (peer, handshake.finish().expect("the handshake is over"))
    }

    /// Whether the connection speaks TLS 1.3.
    pub fn is_tls13(&self) -> bool {
        self.kernel.protocol_version() == ProtocolVersion::TLSv1_3
    }

    /// Appends one record to `out`.
    pub fn seal(&mut self, content: u8, plaintext: &[u8], out: &mut Vec<u8>) {
        let message = OutboundPlainMessage {
            typ: ContentType::from(content),
            version: ProtocolVersion::TLSv1_2,
            payload: OutboundChunks::Single(plaintext),
        };
        let record = self.encrypter.encrypt(message, self.sealed).expect("it fits into a record");
        self.sealed += 1;
        out.extend(record.encode());
    }

    /// Appends a data record of TLS 1.3 with so many zeros behind its type (RFC 8446, 5.4).
    pub fn seal_padded(&mut self, plaintext: &[u8], zeros: u8, out: &mut Vec<u8>) {
        // The encrypter appends the type: it is the last zero, if there is one.
        let Some(more) = zeros.checked_sub(1) else {
            return self.seal(content::DATA, plaintext, out);
        };
        let inner = [plaintext, &[content::DATA], &vec![0; more.into()]].concat();
        self.seal(0, &inner, out);
    }

    /// Appends a KeyUpdate; what follows is sealed with the new key.
    pub fn renew(&mut self, asks: bool, out: &mut Vec<u8>) {
        let update = [&KEY_UPDATE[..], &[u8::from(asks)]].concat();
        self.seal(content::HANDSHAKE, &update, out);
        let (sealed, secrets) = self.kernel.update_tx_secret().expect("TLS 1.3 renews keys");
        self.encrypter = encrypter(self.kernel.negotiated_cipher_suite(), secrets);
        self.sealed = sealed;
    }

    /// All data in what the client has sent, which must be whole records. Its new keys are used.
    pub fn open(&mut self, mut records: &[u8]) -> Vec<u8> {
        let mut data = Vec::new();
        while let Some(([content, _, _, high, low], rest)) = records.split_first_chunk() {
            let (record, rest) = rest.split_at(u16::from_be_bytes([*high, *low]).into());
            records = rest;
            let mut record = record.to_vec();
            let content = ContentType::from(*content);
            let message = InboundOpaqueMessage::new(content, ProtocolVersion::TLSv1_2, &mut record);
            let opened = self.decrypter.decrypt(message, self.opened).expect("a sound record");
            self.opened += 1;
            match opened.typ {
                ContentType::ApplicationData => data.extend_from_slice(opened.payload),
                ContentType::Handshake => {
                    assert_eq!(opened.payload, [&KEY_UPDATE[..], &[0]].concat());
                    let (opened, secrets) =
                        self.kernel.update_rx_secret().expect("TLS 1.3 renews keys");
                    let suite = self.kernel.negotiated_cipher_suite();
                    self.decrypter = opener(suite, secrets).expect("a known suite");
                    self.opened = opened;
                }
                other => panic!("a client sends no {other:?}"),
            }
        }
        assert!(records.is_empty(), "the last record is not whole");
        data
    }
}

/// The peer's next part of the handshake.
fn answer(peer: &mut UnbufferedServerConnection, incoming: &mut Vec<u8>, outgoing: &mut Vec<u8>) {
    loop {
        let UnbufferedStatus { discard, state, .. } = peer.process_tls_records(incoming);
        let goes_on = match state.expect("the client's handshake is sound") {
            ConnectionState::EncodeTlsData(mut encoding) => {
                let mut message = [0; HANDSHAKE_BYTES_MAX];
                let count = encoding.encode(&mut message).expect("it is shorter");
                outgoing.extend_from_slice(&message[..count]);
                true
            }
            ConnectionState::TransmitTlsData(sending) => {
                sending.done();
                true
            }
            ConnectionState::BlockedHandshake | ConnectionState::WriteTraffic(_) => false,
            other => panic!("{other:?} in the handshake"),
        };
        incoming.drain(..discard);
        if !goes_on {
            return;
        }
    }
}

fn encrypter(
    suite: SupportedCipherSuite,
    secrets: ConnectionTrafficSecrets,
) -> Box<dyn MessageEncrypter> {
    use ConnectionTrafficSecrets::{Aes128Gcm, Aes256Gcm, Chacha20Poly1305};
    let (key, iv, fixed_bytes) = match secrets {
        // The rest of the nonce stands in each record (RFC 5288, 3).
        Aes128Gcm { key, iv } | Aes256Gcm { key, iv } => (key, iv, 4),
        Chacha20Poly1305 { key, iv } => (key, iv, 12),
        _ => panic!("an unknown suite"),
    };
    match suite {
        SupportedCipherSuite::Tls13(suite) => suite.aead_alg.encrypter(key, iv),
        SupportedCipherSuite::Tls12(suite) => {
            let (fixed, explicit) = iv.as_ref().split_at(fixed_bytes);
            suite.aead_alg.encrypter(key, fixed, explicit)
        }
    }
}
