//! The records of a connection after its handshake: encrypted into a buffer, decrypted in place.

use super::sealer::Sealer;
use super::{PLAINTEXT_BYTES_MAX, TlsError};
use rustls::client::ClientConnectionData;
use rustls::crypto::cipher::{InboundOpaqueMessage, MessageDecrypter};
use rustls::kernel::KernelConnection;
use rustls::{
    AlertDescription, ConnectionTrafficSecrets, ContentType, ExtractedSecrets, HandshakeType,
    ProtocolVersion, SupportedCipherSuite,
};
use std::ops::Range;

/// Size of a record's header.
pub(crate) const RECORD_HEADER_BYTES: usize = 5;

/// Limit of a whole record: RFC 8446 allows less, RFC 5246 this much.
pub(crate) const TLS_RECORD_BYTES_MAX: usize = RECORD_HEADER_BYTES + 16 * 1024 + 2048;

/// Records per key after which a connection is replaced: far below the 2^24.5 of RFC 8446, 5.5.
const RECORDS_MAX: u64 = 1 << 23;

/// Consecutive records without application data: a few tickets and key updates. A peer that sends
/// more keeps this thread from its other connections. rustls has the same limit.
pub(crate) const IDLE_RECORDS_MAX: u32 = 32;

/// The TLS state of a connection after its handshake.
pub struct TlsSession {
    opener: Box<dyn MessageDecrypter>,
    /// Records decrypted with the current key.
    opened: u64,
    sealer: Sealer,
    /// Records encrypted with the current key.
    sealed: u64,
    suite: SupportedCipherSuite,
    kernel: KernelConnection<ClientConnectionData>,
    /// Consecutive records without application data.
    idle_records: u32,
    /// True if the broker has updated its key and requests the same (RFC 8446, 4.6.3).
    must_update: bool,
}

/// The result of decrypting at the start of received bytes.
#[derive(Debug, PartialEq, Eq)]
pub enum Opened {
    /// No whole record has arrived.
    Incomplete,
    /// A record.
    Record {
        /// Size of the record, which is consumed.
        bytes: usize,
        /// Range of its plaintext; empty for TLS control records.
        plaintext: Range<usize>,
    },
}

impl TlsSession {
    /// Creates the session from the secrets of a handshake.
    pub(super) fn new(
        secrets: ExtractedSecrets,
        kernel: KernelConnection<ClientConnectionData>,
    ) -> Result<TlsSession, TlsError> {
        let ExtractedSecrets { tx: (sealed, seal), rx: (opened, open) } = secrets;
        let suite = kernel.negotiated_cipher_suite();
        Ok(TlsSession {
            opener: opener(suite, open)?,
            opened,
            sealer: Sealer::new(kernel.protocol_version(), seal)?,
            sealed,
            suite,
            kernel,
            idle_records: 0,
            must_update: false,
        })
    }

    /// Encrypts plaintext and appends the records to `out`.
    pub fn seal(&mut self, plaintext: &[u8], out: &mut Vec<u8>) -> Result<(), TlsError> {
        if std::mem::take(&mut self.must_update) {
            // KeyUpdate without a request for one in return: its type, three bytes of length, 0.
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

    /// Returns whether the connection should be replaced, because its keys have encrypted or
    /// decrypted as many records as they should.
    pub(crate) fn is_worn(&self) -> bool {
        self.sealed.max(self.opened) >= RECORDS_MAX
    }

    /// Lower bound of the size of the records that hold this much plaintext.
    pub(crate) fn record_bytes_min(&self, plaintext_bytes: usize) -> usize {
        let records_min = plaintext_bytes.div_ceil(PLAINTEXT_BYTES_MAX);
        plaintext_bytes + records_min * self.sealer.overhead_bytes()
    }

    /// Decrypts the record at the start of `bytes`, in place.
    pub fn open(&mut self, bytes: &mut [u8]) -> Result<Opened, TlsError> {
        let Some([content, major, minor, high, low]) = bytes.first_chunk() else {
            return Ok(Opened::Incomplete);
        };
        let end = RECORD_HEADER_BYTES + usize::from(u16::from_be_bytes([*high, *low]));
        let version = ProtocolVersion::from(u16::from_be_bytes([*major, *minor]));
        let content = ContentType::from(*content);
        if end > TLS_RECORD_BYTES_MAX {
            return Err(TlsError::Protocol(format!("a record of {end} bytes")));
        }
        // TLS 1.3 hides the content type, and fixes the version in the handshake (RFC 8446, 5.2).
        let is_tls13 = self.kernel.protocol_version() == ProtocolVersion::TLSv1_3;
        if is_tls13 && content != ContentType::ApplicationData {
            return Err(TlsError::Protocol(format!("a record of type {content:?}")));
        }
        let Some(record) = bytes.get_mut(RECORD_HEADER_BYTES..end) else {
            return Ok(Opened::Incomplete);
        };
        let record_start = record.as_ptr().addr();
        let message = InboundOpaqueMessage::new(content, version, record);
        let opened = self.opener.decrypt(message, self.opened).map_err(protocol)?;
        self.opened += 1;
        let plaintext = match opened.typ {
            ContentType::ApplicationData => {
                // In place: after the header and, in TLS 1.2, a part of the nonce.
                let start = RECORD_HEADER_BYTES + opened.payload.as_ptr().addr() - record_start;
                start..start + opened.payload.len()
            }
            ContentType::Handshake => {
                self.heed(opened.payload)?;
                end..end
            }
            ContentType::Alert => return Err(alert(opened.payload)),
            other => return Err(TlsError::Protocol(format!("a record of type {other:?}"))),
        };
        self.idle_records = if plaintext.is_empty() { self.idle_records + 1 } else { 0 };
        if self.idle_records > IDLE_RECORDS_MAX {
            let sentence = format!("more than {IDLE_RECORDS_MAX} records in a row hold no data");
            return Err(TlsError::Protocol(sentence));
        }
        Ok(Opened::Record { bytes: end, plaintext })
    }

    /// Processes handshake messages after the handshake: session tickets, which are ignored, and
    /// key updates.
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
                // The new key applies from the next record on, so nothing may follow in this one.
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

/// Returns rustls' code for decrypting single records.
pub(crate) fn opener(
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
            // The rest of the nonce is part of each record (RFC 5288, 3).
            let fixed = if is_gcm { &iv.as_ref()[..4] } else { iv.as_ref() };
            suite.aead_alg.decrypter(key, fixed)
        }
    })
}
