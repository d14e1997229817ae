//! What a listener answers a TLS handshake with, from any bytes: an error, or it waits for more.

#![no_main]

use huntd::kafka::security::TlsOptions;
use huntd::kafka::tls::{Handshake, HandshakeStep, TlsConfig, client_config};
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

static CONFIG: LazyLock<TlsConfig> = LazyLock::new(|| {
    let options = TlsOptions { ca_file: None, client: None };
    client_config(&options).expect("this system has certificate authorities")
});

fuzz_target!(|input: &[u8]| {
    let mut handshake = Handshake::begin(&CONFIG, "broker").expect("a valid name");
    let (mut received, mut outgoing) = (Vec::new(), Vec::new());
    let mut answer = Some(input);
    loop {
        match handshake.step(&mut received, &mut outgoing) {
            Ok(HandshakeStep::Send) => outgoing.clear(),
            Ok(HandshakeStep::Receive) => match answer.take() {
                Some(bytes) => received.extend_from_slice(bytes),
                None => return,
            },
            Ok(HandshakeStep::Done) => panic!("nobody has shown a certificate"),
            Err(_) => return,
        }
    }
});
