//! Checks `[kafka.tls]` and `[kafka.sasl]`, as far as possible without the network.

use super::config::{Check, optional};
use super::settings::ConfigError;
use super::written::{WrittenSasl, WrittenTls};
use crate::kafka::security::{ClientCertificate, Mechanism, SaslOptions, Security, TlsOptions};
use std::path::PathBuf;

impl Check<'_> {
    /// Returns how connections to brokers are protected.
    pub(super) fn security(
        &self,
        tls: &WrittenTls,
        sasl: &WrittenSasl,
    ) -> Result<Security, ConfigError> {
        Ok(Security { tls: self.tls(tls)?, sasl: self.sasl(sasl)? })
    }

    fn tls(&self, raw: &WrittenTls) -> Result<Option<TlsOptions>, ConfigError> {
        let files = [
            ("kafka.tls.ca_file", &raw.ca_file),
            ("kafka.tls.certificate_file", &raw.certificate_file),
            ("kafka.tls.key_file", &raw.key_file),
        ];
        if !raw.enabled {
            return match files.iter().find(|(_, file)| !file.is_empty()) {
                None => Ok(None),
                Some((path, _)) => {
                    let sentence = "is set, but TLS is not enabled: set kafka.tls.enabled = true";
                    Err(self.error(path, sentence.to_owned()))
                }
            };
        }
        let client = match (optional(&raw.certificate_file), optional(&raw.key_file)) {
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
        Ok(Some(TlsOptions { ca_file: optional(&raw.ca_file).map(PathBuf::from), client }))
    }

    fn sasl(&self, raw: &WrittenSasl) -> Result<Option<SaslOptions>, ConfigError> {
        let Some(name) = optional(&raw.mechanism) else {
            let files = [&raw.user, &raw.secret_file, &raw.token_file];
            let is_set = files.into_iter().any(|value| !value.is_empty());
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
        let mechanism = self.choice("kafka.sasl.mechanism", name, &choices)?;
        if mechanism == Mechanism::OauthBearer {
            return self.token(raw).map(Some);
        }
        if !raw.token_file.is_empty() {
            let sentence =
                format!("is set, but {name} takes a password: set kafka.sasl.secret_file");
            return Err(self.error("kafka.sasl.token_file", sentence));
        }
        if raw.user.is_empty() {
            return Err(self.error("kafka.sasl.user", format!("is empty: {name} needs a user")));
        }
        let Some(file) = optional(&raw.secret_file) else {
            let sentence = "is empty: name the file with the password";
            return Err(self.error("kafka.sasl.secret_file", sentence.to_owned()));
        };
        Ok(Some(SaslOptions { mechanism, user: raw.user.clone(), secret_file: file.into() }))
    }

    /// Checks the options of OAUTHBEARER; the token names the user.
    fn token(&self, raw: &WrittenSasl) -> Result<SaslOptions, ConfigError> {
        let others = [("kafka.sasl.user", &raw.user), ("kafka.sasl.secret_file", &raw.secret_file)];
        if let Some((path, _)) = others.iter().find(|(_, value)| !value.is_empty()) {
            let sentence = "is set, but OAUTHBEARER takes a token: set kafka.sasl.token_file alone";
            return Err(self.error(path, sentence.to_owned()));
        }
        let Some(file) = optional(&raw.token_file) else {
            let sentence = "is empty: name the file with the token";
            return Err(self.error("kafka.sasl.token_file", sentence.to_owned()));
        };
        let (mechanism, user) = (Mechanism::OauthBearer, String::new());
        Ok(SaslOptions { mechanism, user, secret_file: file.into() })
    }
}
