//! Reads the files of `[kafka.tls]`, and explains why a file cannot be used. Independent of
//! connections.

use super::certificate_fault;
use crate::kafka::security::{ClientCertificate, PEM_BYTES_MAX, SecurityFileError, read_file};
use rustls::RootCertStore;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::path::Path;

/// Marks a key with a passphrase, in the label of its PEM block (PKCS #8) or in the headers after
/// that line (RFC 1421).
const ENCRYPTED: &[u8] = b"ENCRYPTED";

/// A client's certificate with its intermediates, and its key.
pub(super) type ClientIdentity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// Reads the certificate authorities in a file.
pub(super) fn authorities(path: &Path) -> Result<RootCertStore, SecurityFileError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| certificate_error(path, &error))?;
    }
    Ok(roots)
}

/// Reads the client's certificate and key.
pub(super) fn client_certificate(
    client: &ClientCertificate,
) -> Result<ClientIdentity, SecurityFileError> {
    Ok((certificates(&client.certificate_file)?, private_key(&client.key_file)?))
}

/// Explains why a certificate and a key, each valid, cannot be used together.
pub(super) fn pair_fault(client: &ClientCertificate, error: &rustls::Error) -> SecurityFileError {
    let ClientCertificate { certificate_file, key_file } = client;
    match error {
        rustls::Error::InvalidCertificate(_) => certificate_error(certificate_file, error),
        rustls::Error::InconsistentKeys(_) => {
            let other = certificate_file.display();
            let sentence = format!(
                "is not the key of the certificate in {other}: set kafka.tls.key_file to the key \
                 that this certificate was issued for"
            );
            SecurityFileError::new(key_file, sentence)
        }
        error => SecurityFileError::new(key_file, format!("cannot be used: {error}")),
    }
}

/// Reads all certificates in a file; at least one.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, SecurityFileError> {
    let text = read_file(path, PEM_BYTES_MAX)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let found = found.map_err(|error| pem_error(path, &error))?;
    match found.is_empty() {
        true if has_block(&text, "PRIVATE KEY") => Err(SecurityFileError::new(
            path,
            "holds a private key and no certificate: kafka.tls.key_file is for the key",
        )),
        true => Err(SecurityFileError::new(
            path,
            "holds no certificate in PEM form, which begins with `-----BEGIN CERTIFICATE-----`",
        )),
        false => Ok(found),
    }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, SecurityFileError> {
    let text = read_file(path, PEM_BYTES_MAX).map_err(SecurityFileError::hiding_secret)?;
    if is_encrypted(&text) {
        let sentence = "is protected by a passphrase, which huntd cannot ask for: write the key \
                        without one to a file that only huntd's user can read, with `openssl pkey`";
        return Err(SecurityFileError::new(path, sentence));
    }
    PrivateKeyDer::from_pem_slice(&text).map_err(|error| match error {
        pem::Error::NoItemsFound if has_block(&text, "CERTIFICATE") => SecurityFileError::new(
            path,
            "holds a certificate and no private key: kafka.tls.key_file is for the key",
        ),
        pem::Error::NoItemsFound => SecurityFileError::new(
            path,
            "holds no private key in PEM form, which begins with `-----BEGIN PRIVATE KEY-----`",
        ),
        error => pem_error(path, &error),
    })
}

/// Returns whether a file has a PEM block whose label ends in this.
fn has_block(text: &[u8], label: &str) -> bool {
    let end = format!("{label}-----");
    let mut lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    lines.any(|line| line.starts_with(b"-----BEGIN ") && line.ends_with(end.as_bytes()))
}

/// Returns whether the first private key in a file has a passphrase. Other text may surround it.
fn is_encrypted(text: &[u8]) -> bool {
    let says_so = |line: &[u8]| line.windows(ENCRYPTED.len()).any(|part| part == ENCRYPTED);
    let mut lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let begins =
        |line: &&[u8]| line.starts_with(b"-----BEGIN ") && line.ends_with(b"PRIVATE KEY-----");
    let Some(label) = lines.find(begins) else { return false };
    let mut headers = lines.take_while(|line| line.contains(&b':'));
    says_so(label) || headers.any(says_so)
}

fn pem_error(path: &Path, error: &pem::Error) -> SecurityFileError {
    let sentence = match error {
        pem::Error::MissingSectionEnd { .. } => {
            "ends within a block of PEM, without its line `-----END`: copy the whole file"
        }
        _ => "is not a valid PEM file: copy it again",
    };
    SecurityFileError::new(path, sentence)
}

/// Returns the error for a file with an unusable certificate.
fn certificate_error(path: &Path, error: &rustls::Error) -> SecurityFileError {
    let fault = match error {
        rustls::Error::InvalidCertificate(error) => certificate_fault(error),
        error => error.to_string(),
    };
    SecurityFileError::new(path, format!("holds a certificate that cannot be used: {fault}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kafka::security::TlsOptions;
    use crate::kafka::tls::client_config;
    use rcgen::{CertificateParams, KeyPair};
    use std::path::PathBuf;
    use tempfile::TempDir;

    /// A certificate and its key, in PEM form.
    fn identity() -> (String, String) {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(["localhost".to_owned()]).expect("a valid name");
        let certificate = params.self_signed(&key).expect("a certificate");
        (certificate.pem(), key.serialize_pem())
    }

    fn write(folder: &TempDir, name: &str, text: &str) -> PathBuf {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("it can be written");
        path
    }

    /// The error for files with these texts, and the name of the file that it blames.
    fn refused(ca: &str, certificate: &str, key: &str) -> (String, String) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let certificate_file = write(&folder, "certificate", certificate);
        let client = ClientCertificate { certificate_file, key_file: write(&folder, "key", key) };
        let ca_file = Some(write(&folder, "ca", ca));
        let error = client_config(&TlsOptions { ca_file, client: Some(client) });
        let error = error.expect_err("it is refused").to_string();
        let start = format!("kafka.tls: {}/", folder.path().display());
        let named = error.strip_prefix(&start).expect("the file is named first");
        let (name, sentence) = named.split_once(": ").expect("a sentence follows");
        (name.to_owned(), sentence.to_owned())
    }

    #[test]
    fn files_that_cannot_be_used_are_named_with_what_to_do() {
        let (pem, key) = identity();
        let (_, other_key) = identity();
        let pkcs8 = key.replace("PRIVATE", "ENCRYPTED PRIVATE");
        let legacy = "-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\
                      DEK-Info: AES-256-CBC,E5\n\nMIHs\n-----END EC PRIVATE KEY-----\n";
        let cut = &pem[..pem.len() / 2];
        // The first bytes of the certificate itself are its length.
        let damaged = pem.replacen("\nMII", "\nMIA", 1);
        let no_base64 = pem.replacen("\nMII", "\nM-I", 1);
        for (ca, certificate, key, file, words) in [
            (&*pem, &*pem, &*pkcs8, "key", "is protected by a passphrase"),
            (&pem, &pem, legacy, "key", "is protected by a passphrase"),
            (cut, &pem, &key, "ca", "copy the whole file"),
            (&pem, cut, &key, "certificate", "copy the whole file"),
            (&pem, &pem, &key[..key.len() / 2], "key", "copy the whole file"),
            (&damaged, &pem, &key, "ca", "it is damaged: copy it again"),
            (&pem, &damaged, &key, "certificate", "it is damaged: copy it again"),
            (&no_base64, &pem, &key, "ca", "is not a valid PEM file"),
            (&pem, &pem, &other_key, "key", "is not the key of the certificate in "),
            (&pem, &pem, &pem, "key", "holds a certificate and no private key"),
            (&key, &pem, &key, "ca", "holds a private key and no certificate"),
        ] {
            let (named, sentence) = refused(ca, certificate, key);
            assert!(sentence.contains(words), "{words}: {named}: {sentence}");
            assert_eq!(named, file, "{sentence}");
        }
    }

    #[test]
    fn a_key_may_stand_between_other_blocks_and_remarks_of_any_words() {
        let (pem, key) = identity();
        let folder = tempfile::tempdir().expect("a temporary folder");
        let text = format!("# was ENCRYPTED\n{pem}friendlyName: ENCRYPTED\n{key}\nENCRYPTED\n");
        let certificate_file = write(&folder, "certificate", &pem);
        for text in [text.replace('\n', "\r\n"), text] {
            let key_file = write(&folder, "key", &text);
            let client = ClientCertificate { certificate_file: certificate_file.clone(), key_file };
            let ca_file = Some(certificate_file.clone());
            let config = client_config(&TlsOptions { ca_file, client: Some(client) });
            assert!(config.is_ok(), "{:?}", config.err());
        }
    }
}
