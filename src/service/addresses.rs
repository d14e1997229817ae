//! Checks the addresses in the configuration: of the brokers, and those to listen on.

use super::ServeOptions;
use super::config::Check;
use super::settings::ConfigError;
use super::written::WrittenServe;
use crate::kafka::client::BOOTSTRAP_BROKERS_MAX;
use std::net::SocketAddr;
use std::path::PathBuf;

impl Check<'_> {
    pub(super) fn brokers(&self, written: &[String]) -> Result<Vec<String>, ConfigError> {
        if !(1..=BOOTSTRAP_BROKERS_MAX).contains(&written.len()) {
            let sentence =
                format!("has {} entries: name 1 to {}", written.len(), BOOTSTRAP_BROKERS_MAX);
            return Err(self.error("kafka.brokers", sentence));
        }
        for broker in written {
            let port = broker.rsplit_once(':').filter(|(host, _)| !host.is_empty());
            let port = port.and_then(|(_, port)| port.parse::<u16>().ok());
            if port.is_none_or(|port| port == 0) || broker.contains([',', ' ', '/']) {
                let sentence =
                    format!("has the entry \"{broker}\": write host:port, as in \"kafka-1:9092\"");
                return Err(self.error("kafka.brokers", sentence));
            }
        }
        Ok(written.to_vec())
    }
}

/// Parses an address, or returns a sentence that says how to write one.
pub(super) fn parse(written: &str) -> Result<SocketAddr, String> {
    let address = written.parse().ok();
    address.ok_or_else(|| {
        format!("= \"{written}\": write an IP address and a port, as in \"127.0.0.1:9464\"")
    })
}

/// Returns how `huntd serve` is reached, or a sentence that says what to write.
pub(super) fn serve(written: &WrittenServe) -> Result<ServeOptions, String> {
    let listen = parse(&written.listen)?;
    let tokens = Some(&written.tokens).filter(|file| !file.is_empty()).map(PathBuf::from);
    match listen.ip().is_loopback() || tokens.is_some() {
        true => Ok(ServeOptions { listen, share_address: written.share_address, tokens }),
        false => Err(format!(
            "= \"{listen}\": write serve.tokens, too, or a loopback address, as in \
             \"127.0.0.1:9465\""
        )),
    }
}
