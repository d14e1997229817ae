//! TLS records as the data plane seals and opens them, against rustls' own server.

use huntd::kafka::security::{ClientCertificate, TlsOptions};
use huntd::kafka::tls::records::{Opened, TlsSession};
use huntd::kafka::tls::{Handshake, HandshakeStep, TlsError, client_config};
use huntd::testing::tls_peer::SUITES;
use proptest::collection::vec;
use proptest::prelude::{any, proptest};
use proptest::sample::{Index, select};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustls::crypto::ring::{cipher_suite, default_provider};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, SupportedCipherSuite};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use support::kafka::secure::{self, HOST};

/// A server of one suite, the client's records, and what the server has sent with the handshake.
fn connect(suite: SupportedCipherSuite) -> (ServerConnection, TlsSession, Vec<u8>) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    secure::write_files(folder.path());
    let file = |name: &str| folder.path().join(name);
    let mut provider = default_provider();
    provider.cipher_suites = vec![suite];
    let chain = CertificateDer::pem_file_iter(file("broker.pem")).expect("a chain");
    let chain = chain.collect::<Result<_, _>>().expect("certificates");
    let key = PrivateKeyDer::from_pem_file(file("broker.pem")).expect("a key");
    let config = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .expect("a valid configuration");
    let mut server = ServerConnection::new(Arc::new(config)).expect("a connection");
    let options = TlsOptions { ca_file: Some(file("ca.pem")), client: None };
    let config = client_config(&options).expect("the files are valid");
    let mut handshake = Handshake::begin(&config, HOST).expect("a valid name");
    let (mut received, mut outgoing) = (Vec::new(), Vec::new());
    loop {
        match handshake.step(&mut received, &mut outgoing).expect("both sides agree") {
            HandshakeStep::Send => {
                give(&mut server, &std::mem::take(&mut outgoing));
            }
            HandshakeStep::Receive => received.extend(take(&mut server)),
            HandshakeStep::Done => break,
        }
    }
    received.extend(take(&mut server));
    (server, handshake.finish().expect("the handshake is done"), received)
}

fn give(server: &mut ServerConnection, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        server.read_tls(&mut bytes).expect("there is room");
        server.process_new_packets().expect("the client's records are sound");
    }
}

fn take(server: &mut ServerConnection) -> Vec<u8> {
    let mut bytes = Vec::new();
    while server.wants_write() {
        server.write_tls(&mut bytes).expect("a vector takes everything");
    }
    bytes
}

/// All plaintext in these records, which are whole.
fn open(session: &mut TlsSession, mut records: &mut [u8]) -> Result<Vec<u8>, TlsError> {
    let mut all = Vec::new();
    loop {
        match session.open(records)? {
            Opened::Incomplete => return Ok(all),
            Opened::Record { bytes, plaintext } => {
                all.extend_from_slice(&records[plaintext]);
                records = &mut records[bytes..];
            }
        }
    }
}

#[test]
fn what_one_side_seals_the_other_opens_in_every_suite_and_through_new_keys() {
    for suite in SUITES {
        let (mut server, mut session, mut received) = connect(suite);
        for round in 0..20_usize {
            let data: Vec<u8> = (0..round * round * 251 + 1).map(|n| (n % 239) as u8).collect();
            let mut sealed = Vec::new();
            session.seal(&data, &mut sealed).expect("records");
            let mut arrived = Vec::new();
            for part in sealed.chunks(1000) {
                give(&mut server, part);
                // The rest of a record is not there yet.
                let read = server.reader().read_to_end(&mut arrived);
                assert!(read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock));
            }
            assert_eq!(arrived, data, "{suite:?}");

            if round % 5 == 4 && matches!(suite, SupportedCipherSuite::Tls13(_)) {
                server.refresh_traffic_keys().expect("TLS 1.3 renews keys");
            }
            let mut rest = data.as_slice();
            let mut opened = Vec::new();
            while !rest.is_empty() {
                let count = server.writer().write(rest).expect("the server writes");
                rest = &rest[count..];
                received.extend(take(&mut server));
                opened.extend(open(&mut session, &mut received).expect("the server's records"));
                received.clear();
            }
            assert_eq!(opened, data, "{suite:?}");
        }
        server.send_close_notify();
        assert_eq!(open(&mut session, &mut take(&mut server)), Err(TlsError::Closed));
    }
}

/// Each such record makes us derive a key, and none brings an answer nearer.
#[test]
fn a_broker_that_sends_one_record_without_data_after_the_other_is_given_up() {
    let (mut server, mut session, mut received) = connect(cipher_suite::TLS13_AES_128_GCM_SHA256);
    open(&mut session, &mut received).expect("tickets");
    let renewed = (0..1_000).find_map(|_| {
        server.refresh_traffic_keys().expect("TLS 1.3 renews keys");
        open(&mut session, &mut take(&mut server)).err()
    });
    let sentence = renewed.expect("it is refused some time").to_string();
    assert!(sentence.contains("in a row hold no data"), "{sentence}");
}

#[test]
fn a_record_that_is_damaged_anywhere_is_refused() {
    for suite in SUITES {
        let (mut server, mut session, mut received) = connect(suite);
        open(&mut session, &mut received).expect("tickets");
        server.writer().write_all(b"records of some partition").expect("the server writes");
        let whole = take(&mut server);
        let is_tls13 = matches!(suite, SupportedCipherSuite::Tls13(_));
        // Nobody may look at the version in a record of TLS 1.3 (RFC 8446, 5.1).
        for place in (0..whole.len()).filter(|place| !(is_tls13 && (1..3).contains(place))) {
            for bit in 0..8 {
                let mut damaged = whole.clone();
                damaged[place] ^= 1 << bit;
                // A length that grew is not a whole record yet; nothing is taken for plaintext.
                let opened = open(&mut session, &mut damaged);
                assert!(opened.is_err() || opened == Ok(Vec::new()), "{suite:?} at {place}");
            }
        }
        for end in 0..whole.len() {
            assert_eq!(open(&mut session, &mut whole.clone()[..end]), Ok(Vec::new()));
        }
        let opened = open(&mut session, &mut whole.clone());
        assert_eq!(opened, Ok(b"records of some partition".to_vec()), "{suite:?}");
    }
}

proptest! {
    /// Whatever is changed, added or cut off: nothing comes out that the server has not written.
    #[test]
    fn records_that_were_tampered_with_give_nothing_that_was_not_sent(
        suite in select(&SUITES[..]),
        changes in vec((any::<Index>(), any::<u8>()), 0..6),
        added in vec(any::<u8>(), 0..40),
        kept in any::<Index>(),
    ) {
        let (mut server, mut session, mut received) = connect(suite);
        open(&mut session, &mut received).expect("tickets");
        let data = b"records of some partition".repeat(900);
        server.writer().write_all(&data).expect("the server writes");
        let mut records = take(&mut server);
        for (place, value) in changes {
            *place.get_mut(&mut records) = value;
        }
        records.truncate(kept.index(records.len() + 1));
        records.extend(added);
        if let Ok(opened) = open(&mut session, &mut records) {
            assert!(data.starts_with(&opened));
        }
    }
}

#[test]
fn files_that_are_no_regular_ones_or_too_long_are_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    secure::write_files(folder.path());
    let file = |name: &str| folder.path().join(name);
    mknodat(CWD, file("pipe"), FileType::Fifo, Mode::RUSR, 0).expect("a pipe can be made");
    std::fs::write(file("long"), vec![b'\n'; 2 << 20]).expect("it can be written");
    let sentence = |ca_file: PathBuf, client| {
        let options = TlsOptions { ca_file: Some(ca_file), client };
        client_config(&options).expect_err("it is refused").to_string()
    };
    let device = Path::new("/dev/zero").to_owned();
    for (path, why) in [
        (file("pipe"), "not a regular file"),
        (device, "not a regular file"),
        (file("long"), "longer"),
    ] {
        let found = sentence(path.clone(), None);
        assert!(found.contains(why), "{found}");
        let [certificate_file, key_file] = [&path, &file("client.pem")].map(Clone::clone);
        let client = ClientCertificate { certificate_file, key_file };
        let found = sentence(file("ca.pem"), Some(client));
        assert!(found.contains(why), "{found}");
        let client = ClientCertificate { certificate_file: file("client.pem"), key_file: path };
        let found = sentence(file("ca.pem"), Some(client));
        assert!(found.contains(why), "{found}");
    }
}
