//! Checks `[kafka.tls]` and `[kafka.sasl]`, as far as possible without the network.

use super::config::Check;
use super::settings::ConfigError;
use crate::kafka::security::{ClientCertificate, Mechanism, SaslOptions, Security, TlsOptions};
use std::path::PathBuf;

impl Check<'_> {
    /// Returns how connections to brokers are protected.
    pub(super) fn security(&self) -> Result<Security, ConfigError> {
        Ok(Security { tls: self.tls()?, sasl: self.sasl()? })
    }

    fn tls(&self) -> Result<Option<TlsOptions>, ConfigError> {
        let paths = ["kafka.tls.ca_file", "kafka.tls.certificate_file", "kafka.tls.key_file"];
        let [ca, certificate, key] = paths.map(|path| self.optional(path));
        if !self.is_true("kafka.tls.enabled") {
            return match paths.into_iter().find(|path| self.optional(path).is_some()) {
                None => Ok(None),
                Some(path) => {
                    let sentence = "is set, but TLS is not enabled: set kafka.tls.enabled = true";
                    Err(self.error(path, sentence.to_owned()))
                }
            };
        }
        let client = match (certificate, key) {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some(ClientCertificate {
                certificate_file: PathBuf::from(certificate),
                key_file: PathBuf::from(key),
            }),
            (certificate, _) => {
                let (path, other) = match certificate {
                    Some(_) => ("kafka.tls.certificate_file", "kafka.tls.key_file"),
                    None => ("kafka.tls.key_file", "kafka.tls.certificate_file"),
                };
                return Err(self.error(path, format!("is set alone: set {other} too")));
            }
        };
        Ok(Some(TlsOptions { ca_file: ca.map(PathBuf::from), client }))
    }

    fn sasl(&self) -> Result<Option<SaslOptions>, ConfigError> {
        let paths = ["kafka.sasl.user", "kafka.sasl.secret_file", "kafka.sasl.token_file"];
        let [user, secret_file, token_file] = paths.map(|path| self.optional(path));
        let Some(name) = self.optional("kafka.sasl.mechanism") else {
            let is_set = user.or(secret_file).or(token_file).is_some();
            let sentence = "is empty, but a user, a secret or a token is set: choose a mechanism";
            return match is_set {
                true => Err(self.error("kafka.sasl.mechanism", sentence.to_owned())),
                false => Ok(None),
            };
        };
        if name.eq_ignore_ascii_case("GSSAPI") {
            let sentence = "= \"GSSAPI\": unsupported mechanism; use \"SCRAM-SHA-512\" with \
                            TLS, or a client certificate, see kafka.tls.certificate_file";
            return Err(self.error("kafka.sasl.mechanism", sentence.to_owned()));
        }
        let choices = Mechanism::ALL.map(|mechanism| (mechanism.name(), mechanism));
        let mechanism = self.choice("kafka.sasl.mechanism", &choices)?;
        if mechanism == Mechanism::OauthBearer {
            return self.token().map(Some);
        }
        if token_file.is_some() {
            let sentence =
                format!("is set, but {name} takes a password: set kafka.sasl.secret_file");
            return Err(self.error("kafka.sasl.token_file", sentence));
        }
        let Some(user) = user else {
            return Err(self.error("kafka.sasl.user", format!("is empty: {name} needs a user")));
        };
        let Some(file) = secret_file else {
            let sentence = "is empty: name the file with the password";
            return Err(self.error("kafka.sasl.secret_file", sentence.to_owned()));
        };
        Ok(Some(SaslOptions { mechanism, user: user.to_owned(), secret_file: file.into() }))
    }

    /// Checks the options of OAUTHBEARER; the token names the user.
    fn token(&self) -> Result<SaslOptions, ConfigError> {
        let others = ["kafka.sasl.user", "kafka.sasl.secret_file"];
        if let Some(path) = others.into_iter().find(|path| self.optional(path).is_some()) {
            let sentence = "is set, but OAUTHBEARER takes a token: set kafka.sasl.token_file alone";
            return Err(self.error(path, sentence.to_owned()));
        }
        let Some(file) = self.optional("kafka.sasl.token_file") else {
            let sentence = "is empty: name the file with the token";
            return Err(self.error("kafka.sasl.token_file", sentence.to_owned()));
        };
        let (mechanism, user) = (Mechanism::OauthBearer, String::new());
        Ok(SaslOptions { mechanism, user, secret_file: file.into() })
    }
}
