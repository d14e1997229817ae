//! Where the process listens, as the configuration says.

use super::ServeOptions;
use super::written::WrittenServe;
use std::net::SocketAddr;

/// An address, or the sentence that says how to write one.
pub(super) fn parse(written: &str) -> Result<SocketAddr, String> {
    let address = written.parse().ok();
    address.ok_or_else(|| {
        format!("= \"{written}\": write an IP address and a port, as in \"127.0.0.1:9464\"")
    })
}

/// Where `huntd serve` answers, or the sentence that says what to write.
pub(super) fn serve(written: &WrittenServe) -> Result<ServeOptions, String> {
    let listen = parse(&written.listen)?;
    match listen.ip().is_loopback() {
        true => Ok(ServeOptions { listen }),
        false => Err(format!(
            "= \"{listen}\": write a loopback address and a port, as in \"127.0.0.1:9465\""
        )),
    }
}
