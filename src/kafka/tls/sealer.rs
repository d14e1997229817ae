//! Encrypts records into a buffer that its owner reuses; rustls' own code would allocate one for
//! each.

use super::records::RECORD_HEADER_BYTES;
use super::{PLAINTEXT_BYTES_MAX, TlsError};
use ring::aead;
use rustls::{ConnectionTrafficSecrets, ContentType, ProtocolVersion};

/// Bytes of the nonce in each TLS 1.2 record of an AES-GCM suite.
const EXPLICIT_NONCE_BYTES: usize = 8;

/// One direction of a connection.
pub(super) struct Sealer {
    key: aead::LessSafeKey,
    iv: [u8; aead::NONCE_LEN],
    form: RecordForm,
}

/// The layout of a record and the construction of its nonce.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RecordForm {
    /// RFC 8446, 5.2 and 5.3.
    Tls13,
    /// RFC 5288, 3: the record contains a part of the nonce.
    Tls12Gcm,
    /// RFC 7905, 2.
    Tls12Chacha,
}

impl RecordForm {
    /// Bytes before and after the plaintext, without header and tag.
    fn extra_bytes(self) -> (usize, usize) {
        match self {
            RecordForm::Tls13 => (0, 1),
            RecordForm::Tls12Gcm => (EXPLICIT_NONCE_BYTES, 0),
            RecordForm::Tls12Chacha => (0, 0),
        }
    }
}

impl Sealer {
    pub(super) fn new(
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

    /// Overhead of a record beyond its plaintext.
    pub(super) fn overhead_bytes(&self) -> usize {
        let (explicit, inner) = self.form.extra_bytes();
        RECORD_HEADER_BYTES + explicit + inner + self.key.algorithm().tag_len()
    }

    /// Appends one record. `number` is the index of the record under this key.
    pub(super) fn seal(
        &self,
        number: u64,
        content: ContentType,
        plaintext: &[u8],
        out: &mut Vec<u8>,
    ) {
        assert!(plaintext.len() <= PLAINTEXT_BYTES_MAX);
        let start = out.len();
        let (explicit, inner) = self.form.extra_bytes();
        let outer = match self.form {
            RecordForm::Tls13 => ContentType::ApplicationData,
            RecordForm::Tls12Gcm | RecordForm::Tls12Chacha => content,
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
