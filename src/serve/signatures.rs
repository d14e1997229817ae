//! The signatures of tokens, and digests, with ring: `jsonwebtoken` leaves the cryptography to its
//! caller.
//!
//! Each key has one algorithm (RFC 8725, 3.1), so no token can have a public key taken for a
//! secret.

use jsonwebtoken::crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{ErrorKind, Result};
use jsonwebtoken::signature::{Error, Signer, Verifier};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind, EncodingKey};
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, SHA256, digest};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents,
    UnparsedPublicKey,
};
use ring::{hmac, signature};
use std::sync::Once;

/// Returns the SHA-256 of some bytes.
pub(super) fn sha256(bytes: &[u8]) -> [u8; 32] {
    digest(&SHA256, bytes).as_ref().try_into().expect("a SHA-256 has 32 bytes")
}

/// Returns the SHA-1 of some bytes, by which a WebSocket's server shows that it is one. No secret
/// depends on it.
pub(super) fn sha1(bytes: &[u8]) -> impl AsRef<[u8]> {
    digest(&SHA1_FOR_LEGACY_USE_ONLY, bytes)
}

/// Signs and verifies with ring.
static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: signer,
    verifier_factory: verifier,
    // Only those who turn private keys into public ones need them.
    key_utils: KeyUtils::new_unimplemented(),
};

/// Has `jsonwebtoken` sign and verify with ring. Call it before any key is used.
pub(super) fn install() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        PROVIDER.install_default().expect("no key is used before its provider is installed");
    });
}

struct HmacSigner(hmac::Key);

struct KeyVerifier {
    algorithm: Algorithm,
    key: DecodingKey,
}

fn signer(algorithm: &Algorithm, key: &EncodingKey) -> Result<Box<dyn JwtSigner>> {
    match algorithm {
        Algorithm::HS256 => {
            Ok(Box::new(HmacSigner(hmac::Key::new(hmac::HMAC_SHA256, key.as_bytes()))))
        }
        _ => Err(ErrorKind::UnsupportedAlgorithm.into()),
    }
}

fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>> {
    let is_known = matches!(
        algorithm,
        Algorithm::HS256 | Algorithm::RS256 | Algorithm::ES256 | Algorithm::EdDSA
    );
    match is_known && algorithm.family() == key.family() {
        true => Ok(Box::new(KeyVerifier { algorithm: *algorithm, key: key.clone() })),
        false => Err(ErrorKind::UnsupportedAlgorithm.into()),
    }
}

impl Signer<Vec<u8>> for HmacSigner {
    fn try_sign(&self, message: &[u8]) -> std::result::Result<Vec<u8>, Error> {
        Ok(hmac::sign(&self.0, message).as_ref().to_vec())
    }
}

impl JwtSigner for HmacSigner {
    fn algorithm(&self) -> Algorithm {
        Algorithm::HS256
    }
}

impl Verifier<Vec<u8>> for KeyVerifier {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> std::result::Result<(), Error> {
        let public = |algorithm: &'static dyn signature::VerificationAlgorithm, key: &[u8]| {
            UnparsedPublicKey::new(algorithm, key).verify(message, signature)
        };
        let verified = match (self.algorithm, self.key.kind()) {
            (Algorithm::HS256, DecodingKeyKind::SecretOrDer(secret)) => {
                hmac::verify(&hmac::Key::new(hmac::HMAC_SHA256, secret), message, signature)
            }
            (Algorithm::ES256, DecodingKeyKind::SecretOrDer(key)) => {
                public(&ECDSA_P256_SHA256_FIXED, key)
            }
            (Algorithm::EdDSA, DecodingKeyKind::SecretOrDer(key)) => public(&ED25519, key),
            (Algorithm::RS256, DecodingKeyKind::RsaModulusExponent { n, e }) => {
                let key = RsaPublicKeyComponents { n, e };
                key.verify(&RSA_PKCS1_2048_8192_SHA256, message, signature)
            }
            _ => return Err(Error::new()),
        };
        verified.map_err(|_| Error::new())
    }
}

impl JwtVerifier for KeyVerifier {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}
