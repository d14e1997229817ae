//! The keys that verify tokens: a JWK Set (RFC 7517), as identity providers publish it.

use crate::runtime::regular_file::{RegularFileError, read_text};
use crate::serve::access::{TokenClaims, TokenRefusal};
use crate::serve::signatures::{self, sha256};
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::jwk::{
    AlgorithmParameters, EllipticCurve, Jwk, JwkSet, KeyAlgorithm, KeyOperations, PublicKeyUse,
};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind, Validation, decode, decode_header};
use ring::hmac;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// Bytes of a JWK Set: room for all keys, and for a chain of certificates with each.
const SET_BYTES_MAX: u64 = 1 << 20;

/// Keys of a set that verify tokens.
const KEYS_MAX: usize = 64;

/// Bytes of a secret, at least: as many as its signatures have (RFC 7518, 3.2).
const SECRET_BYTES_MIN: usize = 32;

/// Bytes of an RSA modulus, which ring takes: from 2,048 to 8,192 bits.
const MODULUS_BYTES: std::ops::RangeInclusive<usize> = 256..=1024;

/// Bytes of a P-256 point, uncompressed.
const POINT_BYTES: usize = 65;

/// Bytes of an Ed25519 key.
const ED25519_BYTES: usize = 32;

/// Bytes of a token. A request's head has room for it, and for what browsers send beside it.
pub(crate) const TOKEN_BYTES_MAX: usize = 3 * 1024;

/// The purpose of the secret that is derived for stream tickets.
const TICKETS: &[u8] = b"huntd stream tickets";

/// The reason why keys cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeySetError {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}; check serve.keys and the file's permissions")]
    Read {
        /// The file.
        path: PathBuf,
        /// The fault in it.
        source: RegularFileError,
    },
    /// It is not in the required form.
    #[error("{path}: {sentence}")]
    Wrong {
        /// The file.
        path: PathBuf,
        /// The remedy.
        sentence: String,
    },
}

/// The keys of one file.
pub(crate) struct KeySet {
    keys: Vec<TokenKey>,
    /// SHA-256 of the file.
    digest: [u8; 32],
    /// The first secret of the file, which only those know who may read it.
    secret: Option<Vec<u8>>,
}

/// A key, with the one algorithm that it is for.
struct TokenKey {
    id: Option<String>,
    key: DecodingKey,
    validation: Validation,
}

impl KeySet {
    /// The keys of a file.
    pub(crate) fn load(path: &Path) -> Result<KeySet, KeySetError> {
        let text = read_text(path, SET_BYTES_MAX)
            .map_err(|source| KeySetError::Read { path: path.to_owned(), source })?;
        KeySet::parse(&text)
            .map_err(|sentence| KeySetError::Wrong { path: path.to_owned(), sentence })
    }

    /// The keys of a text, or a sentence that says what is wrong with it.
    pub(crate) fn parse(text: &str) -> Result<KeySet, String> {
        signatures::install();
        // The error itself could show a secret.
        let set: JwkSet = serde_json::from_str(text).map_err(|error| {
            let (line, column) = (error.line(), error.column());
            format!("line {line}, column {column}: write a JWK Set; see docs/QUERIES.md")
        })?;
        let mut keys: Vec<TokenKey> = Vec::new();
        for (number, jwk) in (1..).zip(&set.keys) {
            let key = token_key(jwk).map_err(|sentence| format!("key {number}: {sentence}"))?;
            let Some(key) = key else { continue };
            if keys.iter().any(|other| other.id == key.id) {
                return Err(format!("key {number}: another one has its `kid`; give it its own"));
            }
            keys.push(key);
        }
        if !(1..=KEYS_MAX).contains(&keys.len()) {
            return Err(format!(
                "has {} keys for HS256, RS256, ES256 or EdDSA: write 1 to {KEYS_MAX}",
                keys.len()
            ));
        }
        let is_secret = |key: &&TokenKey| key.validation.algorithms == [Algorithm::HS256];
        let secret = keys.iter().find(is_secret).and_then(|of| of.key.try_get_as_bytes().ok());
        let secret = secret.map(<[u8]>::to_vec);
        let digest = sha256(text.as_bytes());
        Ok(KeySet { keys, digest, secret })
    }

    /// Returns true if both sets come from equal files.
    pub(crate) fn is_same(&self, other: &KeySet) -> bool {
        self.digest == other.digest
    }

    /// The secret that signs tickets of streams. Every process with this file derives the same, if
    /// the file has a secret; if not, it is made of `random`.
    pub(crate) fn ticket_secret(&self, random: &[u8]) -> hmac::Tag {
        let secret = self.secret.as_deref().unwrap_or(random);
        let mut derived = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, secret));
        // With the digest, no ticket outlives the keys that its token was verified with.
        [TICKETS, &self.digest].iter().for_each(|part| derived.update(part));
        derived.sign()
    }

    /// The claims of a token that one of the keys has signed.
    pub(crate) fn claims(&self, token: &str) -> Result<TokenClaims, TokenRefusal> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(TokenRefusal::TooLong);
        }
        let header = decode_header(token).map_err(|_| TokenRefusal::Malformed)?;
        // The signer requires something that is not implemented here (RFC 7515, 4.1.11).
        if header.crit.is_some() {
            return Err(TokenRefusal::Malformed);
        }
        let key = self.key(header.kid.as_deref()).ok_or(TokenRefusal::KeyUnknown)?;
        claims(token, &key.key, &key.validation)
    }

    /// The key of this id. A token names none if there is only one.
    fn key(&self, id: Option<&str>) -> Option<&TokenKey> {
        match id {
            Some(_) => self.keys.iter().find(|key| key.id.as_deref() == id),
            None => self.keys.first().filter(|_| self.keys.len() == 1),
        }
    }
}

/// The claims of a token that this key has signed.
pub(super) fn claims<T: serde::de::DeserializeOwned>(
    token: &str,
    key: &DecodingKey,
    validation: &Validation,
) -> Result<T, TokenRefusal> {
    let decoded = decode(token, key, validation).map_err(|error| match error.kind() {
        ErrorKind::InvalidAlgorithm => TokenRefusal::WrongAlgorithm,
        ErrorKind::InvalidSignature => TokenRefusal::WrongSignature,
        ErrorKind::Json(_) => TokenRefusal::WrongClaims,
        _ => TokenRefusal::Malformed,
    })?;
    Ok(decoded.claims)
}

/// Checks of `jsonwebtoken`: algorithm and signature. The caller checks the claims, because it has
/// the time.
pub(super) fn validation(algorithm: Algorithm) -> Validation {
    let mut validation = Validation::new(algorithm);
    validation.required_spec_claims = HashSet::new();
    (validation.validate_exp, validation.validate_aud) = (false, false);
    validation
}

/// A key that verifies tokens. `None`: it is for something else, or of an unknown kind. An error
/// says what to write.
fn token_key(jwk: &Jwk) -> Result<Option<TokenKey>, &'static str> {
    let (algorithm, named) = match &jwk.algorithm {
        AlgorithmParameters::OctetKey(_) => (Algorithm::HS256, KeyAlgorithm::HS256),
        AlgorithmParameters::RSA(_) => (Algorithm::RS256, KeyAlgorithm::RS256),
        AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P256 => {
            (Algorithm::ES256, KeyAlgorithm::ES256)
        }
        AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => {
            (Algorithm::EdDSA, KeyAlgorithm::EdDSA)
        }
        AlgorithmParameters::Other(key) => {
            let is = |name: &str, of: &[&str]| {
                key.fields
                    .get(name)
                    .and_then(|value| value.as_str())
                    .is_some_and(|is| of.contains(&is))
            };
            let is_known = is("kty", &["oct", "RSA"]) || is("crv", &["P-256", "Ed25519"]);
            return if is_known { Err("write all parts of its `kty`") } else { Ok(None) };
        }
        _ => return Ok(None),
    };
    let common = &jwk.common;
    let is_other = common.key_algorithm.is_some_and(|of| of != named)
        || common.public_key_use.as_ref().is_some_and(|of| *of != PublicKeyUse::Signature)
        || common.key_operations.as_ref().is_some_and(|of| !of.contains(&KeyOperations::Verify));
    if is_other {
        return Ok(None);
    }
    let key = DecodingKey::from_jwk(jwk).map_err(|_| "write its parts in base64url")?;
    check_size(&key, algorithm)?;
    let id = common.key_id.clone();
    Ok(Some(TokenKey { id, key, validation: validation(algorithm) }))
}

fn check_size(key: &DecodingKey, algorithm: Algorithm) -> Result<(), &'static str> {
    match (algorithm, key.kind()) {
        (Algorithm::HS256, DecodingKeyKind::SecretOrDer(key)) if key.len() < SECRET_BYTES_MIN => {
            Err("write a secret of at least 32 bytes as `k`")
        }
        (Algorithm::ES256, DecodingKeyKind::SecretOrDer(key)) if key.len() != POINT_BYTES => {
            Err("write `x` and `y` with 32 bytes each")
        }
        (Algorithm::EdDSA, DecodingKeyKind::SecretOrDer(key)) if key.len() != ED25519_BYTES => {
            Err("write `x` with 32 bytes")
        }
        (Algorithm::RS256, DecodingKeyKind::RsaModulusExponent { n, e }) => {
            let is_whole = |number: &[u8]| number.first().is_some_and(|first| *first != 0);
            match MODULUS_BYTES.contains(&n.len()) && is_whole(n) && is_whole(e) {
                true => Ok(()),
                false => {
                    Err("write `n` with 2,048 to 8,192 bits, and `n` and `e` without zeros first")
                }
            }
        }
        _ => Ok(()),
    }
}
