//! A broker with listeners of every kind, and what it takes to reach them: certificates, users,
//! secrets, as files of a temporary folder.

use super::broker::free_ports;
use super::proxy::Proxy;
use super::{Cluster, Listener, Options};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SigningKey, date_time_ymd,
};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::SystemTime;
use tempfile::TempDir;

/// The user that the broker knows.
pub const USER: &str = "hunt";

/// The user's password.
pub const PASSWORD: &str = "a secret with spaces";

/// What a listener of the broker asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// TLS.
    Tls,
    /// TLS with a client certificate.
    Mutual,
    /// TLS with SASL.
    Sasl,
    /// TLS with a certificate that has expired.
    Expired,
    /// SASL without TLS.
    PlainSasl,
    /// TLS with SASL by a token.
    Token,
    /// TLS, in no version above 1.2.
    OldTls,
    /// TLS with SASL; what SCRAM-SHA-512 has proved expires after [`EXPIRING_MS`].
    Expiring,
}

/// How long an authentication at a listener of [`Kind::Expiring`] counts, in milliseconds.
const EXPIRING_MS: u32 = 3_000;

/// Listeners with TLS and SASL by SCRAM-SHA-512 that clients reach through a proxy alone: one for
/// each test on a broker that wants one.
const PROXIED: [&str; 6] = ["P1", "P2", "P3", "P4", "P5", "P6"];

/// The host name that the broker's certificate has.
pub const HOST: &str = "localhost";

const KINDS: [(Kind, &str, &str); 8] = [
    (Kind::Tls, "TLS", "SSL"),
    (Kind::Mutual, "MUTUAL", "SSL"),
    (Kind::Sasl, "LOGIN", "SASL_SSL"),
    (Kind::Expired, "EXPIRED", "SSL"),
    (Kind::PlainSasl, "OPENLOGIN", "SASL_PLAINTEXT"),
    (Kind::Token, "TOKEN", "SASL_SSL"),
    (Kind::OldTls, "OLDTLS", "SSL"),
    (Kind::Expiring, "EXPIRING", "SASL_SSL"),
];

/// The broker, and the folder with the files.
pub struct SecureCluster {
    pub cluster: Cluster,
    folder: TempDir,
    ports: Vec<u16>,
    /// Of each of [`PROXIED`]: where clients are told that it listens, and where it does.
    proxied: Vec<[u16; 2]>,
    proxies: AtomicUsize,
}

impl SecureCluster {
    /// Starts the broker. `properties` are further lines of its configuration, `java` options of
    /// its JVM.
    pub fn start(properties: &[(&'static str, String)], java: &[&str]) -> SecureCluster {
        SecureCluster::start_as(Options::for_tests(), properties, java)
    }

    /// Like [`SecureCluster::start`], with other options that have neither listeners nor
    /// properties.
    pub fn start_as(
        mut options: Options,
        properties: &[(&'static str, String)],
        java: &[&str],
    ) -> SecureCluster {
        let folder = tempfile::tempdir().expect("a temporary folder");
        write_files(folder.path());
        let mut ports = free_ports(KINDS.len() + 2 * PROXIED.len());
        let proxied = ports.split_off(KINDS.len());
        let proxied: Vec<[u16; 2]> = proxied.as_chunks().0.to_vec();
        for ((kind, name, protocol), port) in KINDS.iter().zip(&ports) {
            let settings = match kind {
                Kind::OldTls => ["ssl.enabled.protocols", "ssl.protocol"]
                    .map(|name| (name, "TLSv1.2".to_owned()))
                    .to_vec(),
                Kind::Expiring => {
                    let expiry = "scram-sha-512.connections.max.reauth.ms";
                    [by_scram(), vec![(expiry, EXPIRING_MS.to_string())]].concat()
                }
                _ => Vec::new(),
            };
            let listener = Listener::local(name, protocol, *port);
            options.listeners.push(Listener { settings, ..listener });
        }
        for (name, [told, port]) in PROXIED.iter().zip(&proxied) {
            let listener = Listener::local(name, "SASL_SSL", *port).told_at(*told);
            options.listeners.push(Listener { settings: by_scram(), ..listener });
        }
        options.java = java.iter().map(|option| (*option).to_owned()).collect();
        for hash in ["SCRAM-SHA-256", "SCRAM-SHA-512"] {
            options.scram.push(format!("{hash}=[name={USER},password=\"{PASSWORD}\"]"));
        }
        options.properties = broker_properties(folder.path());
        options.properties.extend(properties.iter().cloned());
        let cluster = Cluster::start(1, &options);
        SecureCluster { cluster, folder, ports, proxied, proxies: AtomicUsize::new(0) }
    }

    /// Starts the proxy of a listener with TLS and SASL by SCRAM-SHA-512 that no other caller has:
    /// the proxy, and where it is reached.
    pub fn proxy(&self) -> (Proxy, String) {
        let place = self.proxied.get(self.proxies.fetch_add(1, Ordering::Relaxed));
        let [told, port] = *place.expect("one more is needed in PROXIED");
        (Proxy::start(told, port), format!("{HOST}:{told}"))
    }

    /// Where a listener of this kind is reached, under a name that its certificate has.
    pub fn address(&self, kind: Kind) -> String {
        format!("{HOST}:{}", self.port(kind))
    }

    /// Where a listener of this kind is reached, under a name that its certificate does not have.
    pub fn address_by_number(&self, kind: Kind) -> String {
        format!("127.0.0.1:{}", self.port(kind))
    }

    fn port(&self, kind: Kind) -> u16 {
        let place = KINDS.iter().position(|(of, ..)| *of == kind).expect("every kind is listed");
        self.ports[place]
    }

    /// A file of the folder: `ca.pem`, `other-ca.pem`, `password`, `wrong-password`, `token`, and
    /// `client`, `expired-client` and `other-client`, which the other authority has signed, as
    /// `.pem` and `.key`. The listener that asks for one trusts `trusted-by-mutual.pem`.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

/// Brokers of one cluster, each of which also has a listener of [`Kind::Sasl`] that knows the user
/// by PLAIN: their options, and where those listeners are. Their files stand in this folder, as
/// [`write_files`] writes them.
pub fn brokers_with_login(folder: &Path, broker_count: usize) -> Vec<(Options, String)> {
    write_files(folder);
    let with_listener = |port| {
        let (mut options, address) = (Options::for_tests(), format!("{HOST}:{port}"));
        options.listeners.push(Listener::local("LOGIN", "SASL_SSL", port));
        options.properties = broker_properties(folder);
        (options, address)
    };
    free_ports(broker_count).into_iter().map(with_listener).collect()
}

/// A token for [`USER`] that is valid from a minute ago on, for this many seconds from now. It is
/// not signed (RFC 7515, appendix A.5): the broker has no keys.
pub fn token(valid_s: i64) -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("it is past 1970");
    let now = now.as_secs() as i64;
    let claims = format!(r#"{{"sub":"{USER}","iat":{},"exp":{}}}"#, now - 60, now + valid_s);
    let [header, claims] = [r#"{"alg":"none"}"#, &claims].map(|text| URL_SAFE_NO_PAD.encode(text));
    format!("{header}.{claims}.")
}

/// Writes all files of [`SecureCluster::file`], and the broker's own.
pub fn write_files(folder: &Path) {
    let write = |name: &str, text: &str| {
        std::fs::write(folder.join(name), text).expect("the folder is writable");
        // Nobody else may read secrets.
        let only_ours = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(folder.join(name), only_ours).expect("the file is ours");
    };
    let (ca, ca_pem) = authority("huntd's tests");
    write("ca.pem", &ca_pem);
    let (other, other_pem) = authority("somebody else");
    write("other-ca.pem", &other_pem);
    write("trusted-by-mutual.pem", &ca_pem);
    let localhost = || CertificateParams::new([HOST.to_owned()]).expect("a valid name");
    let (chain, key) = certificate(localhost(), &ca);
    write("broker.pem", &format!("{key}{chain}"));
    let (chain, key) = certificate(expired(localhost()), &ca);
    write("expired.pem", &format!("{key}{chain}"));
    let client = || {
        let mut params = CertificateParams::new([]).expect("no names");
        params.distinguished_name.push(DnType::CommonName, USER);
        params
    };
    for (name, (chain, key)) in [
        ("client", certificate(client(), &ca)),
        ("expired-client", certificate(expired(client()), &ca)),
        ("other-client", certificate(client(), &other)),
    ] {
        write(&format!("{name}.pem"), &chain);
        write(&format!("{name}.key"), &key);
    }
    write("password", &format!("{PASSWORD}\n"));
    write("wrong-password", "something else");
    write("token", &token(3_600));
}

/// The same certificate, of long ago.
fn expired(mut params: CertificateParams) -> CertificateParams {
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2021, 1, 1);
    params
}

/// A certificate authority, and its certificate.
fn authority(name: &str) -> (Issuer<'static, KeyPair>, String) {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new([]).expect("no names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::OrganizationName, name);
    let pem = params.self_signed(&key).expect("a certificate").pem();
    (Issuer::new(params, key), pem)
}

/// A certificate signed by an authority, and its key.
fn certificate(params: CertificateParams, ca: &Issuer<'_, impl SigningKey>) -> (String, String) {
    let key = KeyPair::generate().expect("a key");
    let certificate = params.signed_by(&key, ca).expect("a certificate");
    (certificate.pem(), key.serialize_pem())
}

const SCRAM: &str = "org.apache.kafka.common.security.scram.ScramLoginModule required;";

/// Settings of a listener that takes users by SCRAM-SHA-512 alone.
fn by_scram() -> Vec<(&'static str, String)> {
    vec![
        ("sasl.enabled.mechanisms", "SCRAM-SHA-512".to_owned()),
        ("scram-sha-512.sasl.jaas.config", SCRAM.to_owned()),
    ]
}

fn broker_properties(folder: &Path) -> Vec<(&'static str, String)> {
    let file = |name: &str| folder.join(name).display().to_string();
    let plain = "org.apache.kafka.common.security.plain.PlainLoginModule required";
    let bearer = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required";
    let bearer = format!("{bearer} unsecuredLoginStringClaim_sub=\"broker\";");
    let plain = format!("{plain} user_{USER}=\"{PASSWORD}\";");
    vec![
        ("ssl.keystore.type", "PEM".to_owned()),
        ("ssl.keystore.location", file("broker.pem")),
        ("ssl.truststore.type", "PEM".to_owned()),
        ("ssl.truststore.location", file("ca.pem")),
        ("listener.name.expired.ssl.keystore.type", "PEM".to_owned()),
        ("listener.name.expired.ssl.keystore.location", file("expired.pem")),
        ("listener.name.mutual.ssl.client.auth", "required".to_owned()),
        ("listener.name.mutual.ssl.truststore.type", "PEM".to_owned()),
        ("listener.name.mutual.ssl.truststore.location", file("trusted-by-mutual.pem")),
        ("sasl.enabled.mechanisms", "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512".to_owned()),
        ("listener.name.openlogin.sasl.enabled.mechanisms", "SCRAM-SHA-256".to_owned()),
        ("listener.name.openlogin.scram-sha-256.sasl.jaas.config", SCRAM.to_owned()),
        ("listener.name.token.sasl.enabled.mechanisms", "OAUTHBEARER".to_owned()),
        ("listener.name.token.oauthbearer.sasl.jaas.config", bearer),
        ("listener.name.login.plain.sasl.jaas.config", plain),
        ("listener.name.login.scram-sha-256.sasl.jaas.config", SCRAM.to_owned()),
        ("listener.name.login.scram-sha-512.sasl.jaas.config", SCRAM.to_owned()),
    ]
}
