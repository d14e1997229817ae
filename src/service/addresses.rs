//! Where the process listens, as the configuration says.

use super::ServeOptions;
use super::written::WrittenServe;
use std::net::SocketAddr;
use std::path::PathBuf;

/// An address, or the sentence that says how to write one.
pub(super) fn parse(written: &str) -> Result<SocketAddr, String> {
    let address = written.parse().ok();
    address.ok_or_else(|| {
        format!("= \"{written}\": write an IP address and a port, as in \"127.0.0.1:9464\"")
    })
}

/// How `huntd serve` is reached, or the sentence that says what to write.
pub(super) fn serve(written: &WrittenServe) -> Result<ServeOptions, String> {
    let listen = parse(&written.listen)?;
    let tokens = Some(&written.tokens).filter(|file| !file.is_empty()).map(PathBuf::from);
    match listen.ip().is_loopback() || tokens.is_some() {
        true => Ok(ServeOptions { listen, tokens }),
        false => Err(format!(
            "= \"{listen}\": write serve.tokens, too, or a loopback address, as in \
             \"127.0.0.1:9465\""
        )),
    }
}
