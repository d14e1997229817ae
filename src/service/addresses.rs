//! Checks the addresses in the configuration: of brokers, and to listen on.

use super::config::Check;
use super::settings::ConfigError;
use super::{AccessOptions, AllowedOrigins, ServeOptions};
use crate::fetch::dialling::Endpoint;
use crate::kafka::client::BOOTSTRAP_BROKERS_MAX;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Limit of the number of origins.
const ORIGINS_MAX: usize = 64;

/// Upper limit of the requests per second of a client.
const REQUESTS_PER_S_MAX: u32 = 1_000_000;

impl Check<'_> {
    pub(super) fn brokers(&self) -> Result<Vec<String>, ConfigError> {
        let written = self.texts("kafka.brokers");
        if !(1..=BOOTSTRAP_BROKERS_MAX).contains(&written.len()) {
            let sentence =
                format!("has {} entries: name 1 to {}", written.len(), BOOTSTRAP_BROKERS_MAX);
            return Err(self.error("kafka.brokers", sentence));
        }
        for written in &written {
            broker(written).map_err(|sentence| {
                self.error("kafka.brokers", format!("has the entry \"{written}\": {sentence}"))
            })?;
        }
        Ok(written)
    }

    /// Checks the options of `huntd serve`: where it listens, and whom it answers.
    pub(super) fn serve(&self) -> Result<ServeOptions, ConfigError> {
        let listen = parse(self.text("serve.listen"));
        let listen = listen.map_err(|sentence| self.error("serve.listen", sentence))?;
        let access = self.access()?;
        if access.is_none() && !listen.ip().is_loopback() {
            let sentence = format!(
                "= \"{listen}\": write serve.keys, too, or a loopback address, as in \
                 \"127.0.0.1:9465\""
            );
            return Err(self.error("serve.listen", sentence));
        }
        let origins = origins(self.texts("serve.origins"), access.is_some());
        let origins = origins.map_err(|sentence| self.error("serve.origins", sentence))?;
        let share_address = self.is_true("serve.share_address");
        Ok(ServeOptions { listen, share_address, ring: self.ring()?, access, origins })
    }

    fn access(&self) -> Result<Option<AccessOptions>, ConfigError> {
        let requests_per_s = self.number("serve.requests_per_s", 1..=REQUESTS_PER_S_MAX)?;
        let player_requests_per_s =
            self.number("serve.player_requests_per_s", 1..=REQUESTS_PER_S_MAX)?;
        let Some(audience) = self.optional("serve.audience") else {
            let sentence = "= \"\": write what the `aud` of tokens has to name".to_owned();
            return Err(self.error("serve.audience", sentence));
        };
        let of = |keys| AccessOptions {
            keys: PathBuf::from(keys),
            audience: audience.to_owned(),
            requests_per_s,
            player_requests_per_s,
        };
        Ok(self.optional("serve.keys").map(of))
    }
}

/// Checks the address of a broker, or returns a sentence that says how to write one.
pub(super) fn broker(written: &str) -> Result<String, String> {
    match Endpoint::parse(written) {
        Some(_) => Ok(written.to_owned()),
        None => Err("write host:port, as in \"kafka-1:9092\" or \"[2001:db8::1]:9092\"".to_owned()),
    }
}

/// Returns the origins whose pages may ask, or a sentence that says what to write.
fn origins(written: Vec<String>, has_tokens: bool) -> Result<AllowedOrigins, String> {
    if written == ["*"] {
        return match has_tokens {
            false => Ok(AllowedOrigins::Any),
            true => Err("= [\"*\"]: with serve.keys, list the origins of your pages".to_owned()),
        };
    }
    if written.len() > ORIGINS_MAX {
        return Err(format!("has {} entries: name at most {ORIGINS_MAX}", written.len()));
    }
    match written.iter().find(|origin| !is_origin(origin)) {
        None => Ok(AllowedOrigins::Listed(written)),
        Some(origin) => Err(format!(
            "has the entry \"{origin}\": write scheme and host as browsers do, as in \
             \"https://game.example\" or \"http://localhost:8080\""
        )),
    }
}

/// Returns true if a browser could write a page's origin so: in lower case, without a path, and
/// without the port that is the scheme's default.
fn is_origin(text: &str) -> bool {
    let Some((scheme, authority)) = text.split_once("://") else { return false };
    let is_usual_port = match scheme {
        "http" => authority.ends_with(":80"),
        "https" => authority.ends_with(":443"),
        _ => false,
    };
    let of = |text: &str, more: &[u8]| {
        let is_one = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        !text.is_empty() && text.bytes().all(|byte| is_one(byte) || more.contains(&byte))
    };
    of(scheme, b"+-.") && of(authority, b"-._:[]") && !is_usual_port
}

/// Parses an address, or returns a sentence that says how to write one.
pub(super) fn parse(written: &str) -> Result<SocketAddr, String> {
    let address = written.parse().ok();
    address.ok_or_else(|| {
        format!("= \"{written}\": write an IP address and a port, as in \"127.0.0.1:9464\"")
    })
}
