//! The records of a TLS connection after its handshake: responses in records of any size, tickets,
//! new keys, alerts and damage, which arrive in any pieces. What is received is what was sent, or
//! the connection ends with the error that fits.

#![no_main]

use huntd::testing::tls_peer::PEER_NAME;
use huntd::testing::tls_script::TlsEnds;
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

static ENDS: LazyLock<TlsEnds> = LazyLock::new(|| {
    let identity = rcgen::generate_simple_self_signed([PEER_NAME.to_owned()]);
    let identity = identity.expect("a valid name");
    TlsEnds::new(&(identity.cert.pem() + &identity.signing_key.serialize_pem()))
});

fuzz_target!(|script: &[u8]| ENDS.play(script));
