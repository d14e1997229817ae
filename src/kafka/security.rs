//! How connections to brokers are protected: options and secrets.
//!
//! Secrets are kept in files only. They are read again for each connection, so that a rotated one
//! is used without a restart. No type that holds a secret can be printed.

use crate::runtime::regular_file::{RegularFileError, read_bytes};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Limit of a file with a password or a token.
const SECRET_BYTES_MAX: u64 = 64 * 1024;

/// Limit of a file with certificates or a key. All authorities of a system take a quarter of this.
pub(crate) const PEM_BYTES_MAX: u64 = 1024 * 1024;

/// The read permission of other users.
const READ_BY_OTHERS: u32 = 0o004;

/// The permission of other users to enter a folder.
const ENTERED_BY_OTHERS: u32 = 0o001;

/// How every connection to a broker is protected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Security {
    /// Encrypts the connection and authenticates the broker; `None` for plaintext.
    pub tls: Option<TlsOptions>,
    /// Authenticates this client; `None` if the broker requires nothing, or a certificate.
    pub sasl: Option<SaslOptions>,
}

/// TLS options. The broker's certificate must be valid for its host name; this cannot be disabled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsOptions {
    /// Certificates (PEM) of the authorities to trust; `None`: those of the system.
    pub ca_file: Option<PathBuf>,
    /// This client's certificate, if any.
    pub client: Option<ClientCertificate>,
}

/// A client certificate, for brokers that require one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The certificate and its intermediates (PEM).
    pub certificate_file: PathBuf,
    /// Its private key (PEM), without a passphrase.
    pub key_file: PathBuf,
}

/// SASL options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SaslOptions {
    /// The SASL mechanism.
    pub mechanism: Mechanism,
    /// The user's name; empty if a token names it.
    pub user: String,
    /// The file with the password, or with the token.
    pub secret_file: PathBuf,
}

/// The supported SASL mechanisms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    /// Sends the password itself (RFC 4616).
    Plain,
    /// Proves the password, in both directions (RFC 5802, RFC 7677).
    ScramSha256,
    /// Like `ScramSha256`, with the longer hash (RFC 7677).
    ScramSha512,
    /// Sends a token that another program keeps fresh (RFC 7628, KIP-255).
    OauthBearer,
}

impl Mechanism {
    /// All mechanisms.
    pub const ALL: [Mechanism; 4] =
        [Mechanism::Plain, Mechanism::ScramSha256, Mechanism::ScramSha512, Mechanism::OauthBearer];

    /// Returns whether it proves the password without revealing it.
    pub(crate) fn is_scram(self) -> bool {
        matches!(self, Mechanism::ScramSha256 | Mechanism::ScramSha512)
    }

    /// The registered name.
    pub fn name(self) -> &'static str {
        match self {
            Mechanism::Plain => "PLAIN",
            Mechanism::ScramSha256 => "SCRAM-SHA-256",
            Mechanism::ScramSha512 => "SCRAM-SHA-512",
            Mechanism::OauthBearer => "OAUTHBEARER",
        }
    }
}

/// A file that the configuration names cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {sentence}", path.display())]
pub struct SecurityFileError {
    /// The file.
    pub path: PathBuf,
    /// The cause; never the file's content.
    pub sentence: String,
}

impl SecurityFileError {
    /// Returns the error for a file with invalid content.
    pub fn new(path: &Path, sentence: impl ToString) -> SecurityFileError {
        SecurityFileError { path: path.to_owned(), sentence: sentence.to_string() }
    }

    /// Hides the path if it does not look like one: it may be the secret itself.
    pub(crate) fn hiding_secret(self) -> SecurityFileError {
        let text = self.path.to_string_lossy();
        let begins_as_path = ["/", "./", "../", "%"].iter().any(|begin| text.starts_with(begin));
        let folder = self.path.parent().filter(|folder| folder.is_dir());
        if begins_as_path || folder.is_some() {
            return self;
        }
        let SecurityFileError { sentence, .. } = &self;
        let sentence = format!("{sentence}: give the path of a file, never the secret itself");
        SecurityFileError::new(Path::new("a value that is not shown"), sentence)
    }
}

/// The files with this instance's secrets that every user of this host can read.
pub(crate) fn readable_by_all(security: &Security) -> Vec<&Path> {
    let key = security.tls.as_ref().and_then(|tls| tls.client.as_ref());
    let files = [
        key.map(|client| client.key_file.as_path()),
        security.sasl.as_ref().map(|sasl| sasl.secret_file.as_path()),
    ];
    let allows = |path: &Path, right: u32| {
        std::fs::metadata(path).is_ok_and(|found| found.permissions().mode() & right != 0)
    };
    let is_open = |file: &&Path| {
        let mut folders = file.ancestors().skip(1).filter(|folder| !folder.as_os_str().is_empty());
        allows(file, READ_BY_OTHERS) && folders.all(|folder| allows(folder, ENTERED_BY_OTHERS))
    };
    files.into_iter().flatten().filter(is_open).collect()
}

/// A password or a token. It has no `Debug` and no `Display`.
pub struct Secret(String);

impl Secret {
    /// Reads a secret. The line break that editors append is not part of it.
    pub fn read(path: &Path) -> Result<Secret, SecurityFileError> {
        let wrong = |sentence: String| SecurityFileError::new(path, sentence);
        let text = read_file(path, SECRET_BYTES_MAX).map_err(SecurityFileError::hiding_secret)?;
        let text = String::from_utf8(text).map_err(|_| wrong("is not UTF-8 text".to_owned()))?;
        let secret = text.trim_end_matches(['\r', '\n']);
        if secret.is_empty() {
            return Err(wrong("is empty: write the password or the token into it".to_owned()));
        }
        // PLAIN separates its fields with NUL (RFC 4616), and no password or token may contain one.
        if secret.contains('\0') {
            return Err(wrong(
                "holds a NUL character: write the password or the token as UTF-8 text".to_owned(),
            ));
        }
        Ok(Secret(secret.to_owned()))
    }

    /// The secret, for the code that sends it to a broker.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

/// Reads a file that the configuration names.
pub(crate) fn read_file(path: &Path, bytes_max: u64) -> Result<Vec<u8>, SecurityFileError> {
    let sentence = |error| match error {
        RegularFileError::Io(error) if path.to_string_lossy().contains('%') => {
            format!("cannot be read: {error}; `%d` and the like work only in systemd units")
        }
        RegularFileError::Io(error) => {
            format!("cannot be read: {error}; check path and permissions")
        }
        RegularFileError::Irregular => "is not a regular file".to_owned(),
        RegularFileError::TooLong { bytes_max } => format!("is longer than {bytes_max} bytes"),
        RegularFileError::NotText => "is not UTF-8 text".to_owned(),
    };
    read_bytes(path, bytes_max).map_err(|error| SecurityFileError::new(path, sentence(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<String, String> {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        std::fs::write(file.path(), bytes).expect("it can be written");
        let secret = Secret::read(file.path());
        secret.map(|secret| secret.expose().to_owned()).map_err(|error| error.sentence)
    }

    #[test]
    fn a_secret_is_open_to_all_if_its_file_and_its_folders_are() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("password");
        std::fs::write(&file, "secret").expect("it can be written");
        let sasl = SaslOptions {
            mechanism: Mechanism::Plain,
            user: "hunter".to_owned(),
            secret_file: file.clone(),
        };
        let security = Security { tls: None, sasl: Some(sasl) };
        for (of_folder, of_file, is_open) in
            [(0o755, 0o644, true), (0o755, 0o640, false), (0o700, 0o644, false)]
        {
            for (path, mode) in [(folder.path(), of_folder), (&file, of_file)] {
                let permissions = std::fs::Permissions::from_mode(mode);
                std::fs::set_permissions(path, permissions).expect("it is ours");
            }
            assert_eq!(readable_by_all(&security).len(), usize::from(is_open), "{of_folder:o}");
        }
    }

    #[test]
    fn a_secret_is_the_files_text_without_its_last_line_break() {
        assert_eq!(read(b"pass word\n"), Ok("pass word".to_owned()));
        assert_eq!(read(b" pass\r\n"), Ok(" pass".to_owned()));
        assert!(read(b"\n").unwrap_err().contains("is empty"));
        assert!(read(b"\xff").unwrap_err().contains("UTF-8"));
        assert!(read(b"pass\0word").unwrap_err().contains("a NUL character"));
        let long = vec![b'a'; SECRET_BYTES_MAX as usize + 1];
        assert!(read(&long).unwrap_err().contains("longer"));
        let missing = |path: &str| {
            let error = Secret::read(Path::new(path)).err().expect("there is no such file");
            error.to_string()
        };
        assert!(missing("/hunt/password").starts_with("/hunt/password: cannot be read"));
        assert!(missing("%d/password").contains("only in systemd units"));
        for secret in ["hunter2", "aGVsbG8/d29ybGQ=", "-----BEGIN PRIVATE KEY-----\nMII/\n"] {
            let hidden = missing(secret);
            assert!(!hidden.contains(secret) && hidden.contains("give the path"), "{hidden}");
        }
        let folder = Secret::read(Path::new("/tmp"));
        assert!(folder.is_err_and(|error| error.sentence.contains("not a regular file")));
    }
}
