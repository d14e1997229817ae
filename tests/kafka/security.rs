//! Brokers that ask for TLS and SASL: reached with the right files, and refused with a sentence and
//! an exit code with any wrong one.

use crate::exits::assert_ends;
use crate::players::{Load, events, produce};
use crate::rights::configuration;
use crate::verbs::{self, Ended};
use crate::while_used::WhileUsed;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::PATIENCE;
use support::accounts::{self, Follower, logged_digest};
use support::daemon::{Huntd, Topics};
use support::kafka::Cluster;
use support::kafka::proxy::Way;
use support::kafka::secure::{self, Kind, SecureCluster, USER};
use support::scrape::Page;

/// The broker that the tests with TLS share, unless they change it.
pub(crate) fn shared() -> Arc<SecureCluster> {
    static SHARED: WhileUsed<SecureCluster> = WhileUsed::unused();
    SHARED.get(|| SecureCluster::start(&[], &[]))
}

pub(crate) fn tls(ca: &Path) -> String {
    format!("enabled = true\nca_file = {ca:?}")
}

pub(crate) fn mutual(secure: &SecureCluster) -> String {
    let (certificate, key) = (secure.file("client.pem"), secure.file("client.key"));
    let tls = tls(&secure.file("ca.pem"));
    format!("{tls}\ncertificate_file = {certificate:?}\nkey_file = {key:?}")
}

pub(crate) fn sasl(mechanism: &str, secret: &Path) -> String {
    format!("mechanism = \"{mechanism}\"\nuser = \"{USER}\"\nsecret_file = {secret:?}")
}

fn bearer(token: &Path) -> String {
    format!("mechanism = \"OAUTHBEARER\"\ntoken_file = {token:?}")
}

/// A daemon at a listener of this kind.
pub(crate) fn start(
    secure: &SecureCluster,
    topics: &Topics,
    kind: Kind,
    tls: &str,
    sasl: &str,
) -> Huntd {
    start_at(&secure.address(kind), topics, tls, sasl)
}

/// A daemon at the listener with this address.
fn start_at(address: &str, topics: &Topics, tls: &str, sasl: &str) -> Huntd {
    Huntd::start_with(&[address], topics, &[("kafka.tls", tls), ("kafka.sasl", sasl)])
}

/// The daemon publishes what a replay of the input makes, and logs its digests, with no allocation
/// on the hot thread.
fn assert_works(secure: &SecureCluster, kind: Kind, tls: &str, sasl: &str) {
    let topics = Topics::create(&secure.cluster, "secure", 2);
    produce(&secure.cluster, &topics, &events(2, 20, 1..=30));
    let huntd = start(secure, &topics, kind, tls, sasl);
    for (partition, digest) in (0..).zip(digests(&secure.cluster, &topics, huntd)) {
        let (_, counts) = accounts::replay(&secure.cluster, &topics, partition);
        assert_eq!(digest, counts.digest, "partition {partition}");
    }
}

#[test]
fn every_kind_of_listener_is_read_like_a_plaintext_one() {
    let secure = &*shared();
    let ca = tls(&secure.file("ca.pem"));
    assert_works(secure, Kind::Tls, &ca, "");
    assert_works(secure, Kind::Mutual, &mutual(secure), "");
    let password = secure.file("password");
    for mechanism in ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] {
        assert_works(secure, Kind::Sasl, &ca, &sasl(mechanism, &password));
    }
    assert_works(secure, Kind::PlainSasl, "", &sasl("SCRAM-SHA-256", &password));
    assert_works(secure, Kind::Token, &ca, &bearer(&secure.file("token")));
}

#[test]
fn a_listener_of_another_kind_is_passed_over_if_another_broker_answers() {
    let secure = &*shared();
    let topics = Topics::create(&secure.cluster, "passed-over", 1);
    // The first two tries of a start begin with these.
    let [first, second] = [secure.address(Kind::Tls), secure.address_by_number(Kind::Tls)];
    let brokers = [first, second, secure.cluster.bootstrap()];
    let mut huntd = Huntd::start_with(&brokers.each_ref().map(|at| at.as_str()), &topics, &[]);
    let mut follower = Follower::new(&secure.cluster, &topics);
    produce(&secure.cluster, &topics, &events(1, 20, 1..=5));
    accounts::wait_until_covered(&secure.cluster, &topics, &mut follower, &mut huntd);
    let ended = huntd.stop();
    assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
    accounts::assert_is_the_replay(&secure.cluster, &topics, follower);
}

/// With every line that there is, of a daemon that works, of one that is refused, and of `check`.
#[test]
fn passwords_and_tokens_stand_in_no_log_and_in_no_output_of_check() {
    let secure = &*shared();
    let ca = tls(&secure.file("ca.pem"));
    let token = secure.file("token");
    let expired = secure.file("token-over");
    std::fs::write(&expired, secure::token(-30)).expect("the folder is writable");
    let scram = |file: &str| (Kind::Sasl, sasl("SCRAM-SHA-512", &secure.file(file)));
    let plain = |file: &str| (Kind::Sasl, sasl("PLAIN", &secure.file(file)));
    let cases = [
        (scram("password"), secure.file("password")),
        (scram("wrong-password"), secure.file("wrong-password")),
        (plain("password"), secure.file("password")),
        (plain("wrong-password"), secure.file("wrong-password")),
        ((Kind::Token, bearer(&token)), token.clone()),
        ((Kind::Token, bearer(&expired)), expired),
    ];
    for ((kind, sasl), file) in cases {
        let topics = Topics::create(&secure.cluster, "secret", 1);
        let settings = [
            ("kafka.tls", ca.as_str()),
            ("kafka.sasl", sasl.as_str()),
            ("service", "log_level = \"trace\""),
        ];
        let mut huntd = Huntd::start_with(&[&secure.address(kind)], &topics, &settings);
        let end = Instant::now() + PATIENCE;
        while !huntd.has_ended() && !huntd.log().contains("\"live\"") {
            assert!(Instant::now() < end, "it neither works nor ends:\n{}", huntd.log());
            std::thread::sleep(Duration::from_millis(20));
        }
        let config = huntd.config();
        let checks = [vec![], vec!["--offline"]].map(|arguments| {
            let arguments = [vec!["check", "--config", &config], arguments].concat();
            let Ended { output, errors, .. } = verbs::huntd(&arguments);
            output + &errors
        });
        let said = checks.concat() + &huntd.log();
        assert!(said.contains(&topics.input), "{said}");
        let secret = std::fs::read_to_string(&file).expect("it was written");
        assert!(!said.contains(secret.trim()), "{file:?}:\n{said}");
    }
}

/// A daemon with something wrong ends with this code and these words.
fn assert_refused(kind: Kind, tls: &str, sasl: &str, code: i32, words: &str) {
    let secure = &*shared();
    let topics = Topics::create(&secure.cluster, "refused", 1);
    assert_ends(start(secure, &topics, kind, tls, sasl), code, words);
}

#[test]
fn a_broker_that_cannot_be_trusted_ends_the_daemon_with_code_12() {
    let secure = &*shared();
    let ca = tls(&secure.file("ca.pem"));
    let other = tls(&secure.file("other-ca.pem"));
    assert_refused(Kind::Tls, &other, "", 12, "no trusted authority has signed");
    assert_refused(Kind::Expired, &ca, "", 12, "has expired");
    assert_refused(Kind::Mutual, &ca, "", 12, "a client certificate");
    let topics = Topics::create(&secure.cluster, "refused", 1);
    let settings = [("kafka.tls", ca.as_str())];
    let huntd = Huntd::start_with(&[&secure.address_by_number(Kind::Tls)], &topics, &settings);
    assert_ends(huntd, 12, "is not valid for the name 127.0.0.1");
}

#[test]
fn a_user_that_is_refused_ends_the_daemon_with_code_13() {
    let secure = &*shared();
    let ca = tls(&secure.file("ca.pem"));
    let wrong = secure.file("wrong-password");
    for mechanism in ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] {
        let words = format!("the broker refuses the user {USER} ({mechanism})");
        assert_refused(Kind::Sasl, &ca, &sasl(mechanism, &wrong), 13, &words);
    }
    let expired = secure.file("expired-token");
    std::fs::write(&expired, secure::token(-30)).expect("the folder is writable");
    let words = "the broker refuses the token (OAUTHBEARER)";
    assert_refused(Kind::Token, &ca, &bearer(&expired), 13, words);
    let plain = sasl("PLAIN", &secure.file("password"));
    let words = "does not offer PLAIN, it offers SCRAM-SHA-256";
    assert_refused(Kind::PlainSasl, "", &plain, 13, words);
}

#[test]
fn a_listener_of_another_kind_ends_the_daemon_with_code_14() {
    let secure = &*shared();
    let ca = tls(&secure.file("ca.pem"));
    let scram = sasl("SCRAM-SHA-256", &secure.file("password"));
    assert_refused(Kind::Tls, "", "", 14, "the listener speaks TLS: set [kafka.tls]");
    assert_refused(Kind::PlainSasl, &ca, &scram, 14, "the listener does not speak TLS");
    assert_refused(Kind::Sasl, &ca, "", 14, "does not authenticate: set [kafka.sasl]");
    assert_refused(Kind::Tls, &ca, &scram, 14, "does not use SASL");
}

#[test]
fn every_other_verb_ends_with_the_code_and_the_words_of_the_daemon() {
    let secure = &*shared();
    let topics = Topics::create(&secure.cluster, "verbs-refused", 1);
    let [ca, other] = ["ca.pem", "other-ca.pem"].map(|file| tls(&secure.file(file)));
    let scram = sasl("SCRAM-SHA-256", &secure.file("password"));
    let plain = sasl("PLAIN", &secure.file("password"));
    let wrong = sasl("PLAIN", &secure.file("wrong-password"));
    let late = secure.file("token-of-yesterday");
    std::fs::write(&late, secure::token(-30)).expect("the folder is writable");
    let late = bearer(&late);
    let at = |kind| secure.address(kind);
    let cases = [
        (at(Kind::Sasl), &*other, &*scram, 12, "no trusted authority has signed"),
        (secure.address_by_number(Kind::Sasl), &ca, &scram, 12, "for the name 127.0.0.1"),
        (at(Kind::Mutual), &ca, "", 12, "for a client certificate"),
        (at(Kind::PlainSasl), &ca, &scram, 14, "the listener does not speak TLS"),
        (at(Kind::Sasl), "", "", 14, "the listener speaks TLS: set [kafka.tls]"),
        (at(Kind::Sasl), &ca, "", 14, "does not authenticate: set [kafka.sasl]"),
        (at(Kind::Sasl), &ca, &wrong, 13, "the broker refuses the user"),
        (at(Kind::PlainSasl), "", &plain, 13, "does not offer PLAIN"),
        (at(Kind::Token), &ca, &late, 13, "the broker refuses the token"),
    ];
    let verbs: [&[&str]; 6] = [
        &["check"],
        &["serve", "--set", "serve.listen=127.0.0.1:0"],
        &["load", "--events", "10", "--players", "5"],
        &["tap", "--from", "start", "--until-end"],
        &["rules", "--zones"],
        &["replay", "--topic", &topics.input],
    ];
    for (address, tls, sasl, code, words) in cases {
        let sections = [("tls", tls), ("sasl", sasl)].map(|(name, keys)| match keys {
            "" => String::new(),
            keys => format!("[kafka.{name}]\n{keys}\n"),
        });
        let (_folder, file) = configuration(&address, &sections.concat(), &topics);
        for verb in verbs {
            let ended = verbs::huntd(&[verb, &["--config", &file]].concat());
            let what = format!("{verb:?} where {words}:\n{}{}", ended.output, ended.errors);
            assert_eq!(ended.code, code, "{what}");
            assert_eq!(ended.errors.matches(words).count(), 1, "{what}");
            assert!(!ended.errors.contains("BrokerTransportFailure"), "{what}");
        }
    }
}

#[test]
fn files_that_cannot_be_used_end_the_daemon_with_code_3() {
    let secure = &*shared();
    let ca = tls(&secure.file("ca.pem"));
    let none = secure.file("nowhere");
    assert_refused(Kind::Tls, &tls(&none), "", 3, "nowhere");
    assert_refused(Kind::Sasl, &ca, &sasl("PLAIN", &none), 3, "nowhere");
}

#[test]
fn keys_that_the_broker_renews_all_the_time_lose_nothing() {
    // JSSE sends a KeyUpdate, and asks for one, after this many bytes. It is told by a security
    // property: a system property of this name does nothing.
    let limits = "AES/GCM/NoPadding KeyUpdate 2^20, ChaCha20-Poly1305 KeyUpdate 2^20";
    let properties = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(properties.path(), format!("jdk.tls.keyLimits={limits}\n"))
        .expect("it can be written");
    let java = format!("-Djava.security.properties={}", properties.path().display());
    let secure = SecureCluster::start(&[], &[&java]);
    let topics = Topics::create(&secure.cluster, "renewed", 2);
    produce(&secure.cluster, &topics, &events(2, 200, 1..=300));
    let ca = tls(&secure.file("ca.pem"));
    let (proxy, address) = secure.proxy();
    let scram = sasl("SCRAM-SHA-512", &secure.file("password"));
    let mut huntd = start_at(&address, &topics, &ca, &scram);
    let mut follower = Follower::new(&secure.cluster, &topics);
    accounts::wait_until_covered(&secure.cluster, &topics, &mut follower, &mut huntd);
    // huntd answers with its next request, and one answer is for all that came before.
    let (received, answered) = (huntd.metric("huntd_received_bytes_total"), proxy.key_updates());
    println!("{answered} answers to new keys of the broker for {received} bytes");
    assert!(answered >= 3, "{answered} answers for {received} bytes");
    // No connection was lost for it.
    assert_eq!(huntd.metric("huntd_connections_opened_total"), 1);
    let ended = huntd.stop();
    assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
    accounts::assert_is_the_replay(&secure.cluster, &topics, follower);
}

/// A listener without TLS breaks off every handshake, a broker that is stopping only one.
#[test]
fn a_start_whose_first_handshake_is_broken_off_shakes_hands_again() {
    let secure = &*shared();
    let topics = Topics::create(&secure.cluster, "broken-off", 1);
    produce(&secure.cluster, &topics, &events(1, 20, 1..=5));
    let (proxy, address) = secure.proxy();
    proxy.cut(Way::FromBroker, 1);
    let ca = tls(&secure.file("ca.pem"));
    let scram = sasl("SCRAM-SHA-512", &secure.file("password"));
    let mut huntd = start_at(&address, &topics, &ca, &scram);
    let mut follower = Follower::new(&secure.cluster, &topics);
    accounts::wait_until_covered(&secure.cluster, &topics, &mut follower, &mut huntd);
    let ended = huntd.stop();
    assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
    let words = "it closes the connection instead of answering";
    assert!(ended.log.contains(words), "{}", ended.log);
}

/// A daemon with topics of its own publishes all of its input: the digest of each shard.
fn digests(cluster: &Cluster, topics: &Topics, mut huntd: Huntd) -> Vec<u64> {
    let mut follower = Follower::new(cluster, topics);
    accounts::wait_until_covered(cluster, topics, &mut follower, &mut huntd);
    let ended = huntd.stop();
    assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
    accounts::assert_is_the_replay(cluster, topics, follower);
    (0..topics.partitions).map(|partition| logged_digest(&ended.log, partition)).collect()
}

#[test]
fn a_broker_that_speaks_no_tls_above_1_2_gives_the_digest_of_a_plaintext_one() {
    let secure = &*shared();
    let topics = Topics::create(&secure.cluster, "tls-1-2", 2);
    produce(&secure.cluster, &topics, &events(2, 200, 1..=100));
    let ca = tls(&secure.file("ca.pem"));
    let huntd = start(secure, &topics, Kind::OldTls, &ca, "");
    let encrypted = digests(&secure.cluster, &topics, huntd);
    let again = topics.again(&secure.cluster);
    let huntd = Huntd::start(&secure.cluster, &again, &[]);
    assert_eq!(encrypted, digests(&secure.cluster, &again, huntd));
}

#[test]
fn an_authentication_that_expires_is_renewed_between_two_fetches_under_load() {
    const RENEWALS: u64 = 6;
    let secure = &*shared();
    let topics = Topics::create(&secure.cluster, "expiring", 2);
    let ca = tls(&secure.file("ca.pem"));
    let scram = sasl("SCRAM-SHA-512", &secure.file("password"));
    let mut huntd = start(secure, &topics, Kind::Expiring, &ca, &scram);
    let mut follower = Follower::new(&secure.cluster, &topics);
    let load = Load::start(&secure.cluster, &topics);
    huntd.wait_for_address();
    huntd.wait_until("further connections", |huntd| {
        huntd.metric("huntd_connections_opened_total") > RENEWALS
    });
    let events = load.finish();
    accounts::wait_until_covered(&secure.cluster, &topics, &mut follower, &mut huntd);
    let page = Page::of(&huntd.address());
    assert_eq!(page.value("huntd_records_received_total"), events);
    assert_eq!(page.events(), events);
    assert_eq!(page.value("huntd_deliveries_failed_total"), 0);
    let ended = huntd.stop();
    assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
    // The broker never had to close one.
    assert!(!ended.log.contains("it has closed the connection;"), "{}", ended.log);
    for partition in 0..topics.partitions {
        let (_, counts) = accounts::replay(&secure.cluster, &topics, partition);
        assert_eq!(logged_digest(&ended.log, partition), counts.digest, "partition {partition}");
    }
    accounts::assert_is_the_replay(&secure.cluster, &topics, follower);
}

/// Who keeps the file fresh replaces the token before it expires: all connections go on with the
/// new one, and none of them is asked for the old one.
#[test]
fn a_token_that_expires_is_replaced_by_the_one_in_the_file() {
    const VALID_S: i64 = 25;
    let secure = &*shared();
    let topics = Topics::create(&secure.cluster, "tokens", 1);
    let file = secure.file("short-token");
    let write = |valid_s| {
        let draft = file.with_extension("draft");
        std::fs::write(&draft, secure::token(valid_s)).expect("the folder is writable");
        std::fs::rename(&draft, &file).expect("the folder is writable");
    };
    write(VALID_S);
    let begun = Instant::now();
    let ca = tls(&secure.file("ca.pem"));
    let mut huntd = start(secure, &topics, Kind::Token, &ca, &bearer(&file));
    let mut follower = Follower::new(&secure.cluster, &topics);
    produce(&secure.cluster, &topics, &events(1, 20, 1..=5));
    accounts::wait_until_covered(&secure.cluster, &topics, &mut follower, &mut huntd);
    write(3_600);
    let mut round = 6;
    let expired = Duration::from_secs(VALID_S as u64 + 3);
    huntd.wait_until("the first token's end", |_| {
        produce(&secure.cluster, &topics, &events(1, 20, round..=round));
        round += 1;
        begun.elapsed() > expired
    });
    accounts::wait_until_covered(&secure.cluster, &topics, &mut follower, &mut huntd);
    assert!(huntd.metric("huntd_connections_opened_total") > 1, "no connection was replaced");
    let ended = huntd.stop();
    assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
    assert!(!ended.log.contains("it has closed the connection;"), "{}", ended.log);
    accounts::assert_is_the_replay(&secure.cluster, &topics, follower);
}

/// The key of a group session that outlasts any restart of the broker.
pub(crate) const LONG_SESSION: &str = "session_timeout_ms = 300000";

/// The key of the shortest group session that a broker accepts.
pub(crate) const SHORT_SESSION: &str = "session_timeout_ms = 6000";

/// The broker takes another password from its restart on, which ends all connections, too.
fn change_password(secure: &mut SecureCluster, password: &str) {
    let settings = secure.cluster[0].folder().join("server.properties");
    let text = std::fs::read_to_string(&settings).expect("the broker has a configuration");
    let before = std::fs::read_to_string(secure.file("password")).expect("it is there");
    let quoted = |password: &str| format!("=\"{password}\"");
    let changed = text.replace(&quoted(before.trim_end()), &quoted(password));
    assert_ne!(text, changed, "the broker has the password");
    secure.cluster.broker_mut(0).stop();
    std::fs::write(settings, changed).expect("the folder is writable");
    std::fs::write(secure.file("password"), password).expect("the folder is writable");
    secure.cluster.broker_mut(0).restart(1);
}

/// librdkafka goes on with the password that it began with, so the group gives the daemon up when
/// its group session times out: see decision 040.
#[test]
fn a_changed_password_is_used_to_fetch_and_publish_at_once_and_for_the_group_by_the_next_start() {
    let mut secure = SecureCluster::start(&[], &[]);
    let topics = Topics::create(&secure.cluster, "changed", 2);
    let [ca, plain] = [tls(&secure.file("ca.pem")), sasl("PLAIN", &secure.file("password"))];
    let address = secure.address(Kind::Sasl);
    let start = |session: &str| {
        let settings = [("kafka.tls", &*ca), ("kafka.sasl", &plain), ("kafka", session)];
        Huntd::start_with(&[&address], &topics, &settings)
    };
    let words = "a broker refuses the secret that was read when huntd started";
    let mut follower = Follower::new(&secure.cluster, &topics);

    let mut huntd = start(SHORT_SESSION);
    produce(&secure.cluster, &topics, &events(2, 20, 1..=10));
    accounts::wait_until_covered(&secure.cluster, &topics, &mut follower, &mut huntd);
    change_password(&mut secure, "another secret");
    assert_ends(huntd, 13, words);

    let mut huntd = start(LONG_SESSION);
    produce(&secure.cluster, &topics, &events(2, 20, 11..=20));
    accounts::wait_until_covered(&secure.cluster, &topics, &mut follower, &mut huntd);
    change_password(&mut secure, "a third one");
    produce(&secure.cluster, &topics, &events(2, 20, 21..=30));
    accounts::wait_until_covered(&secure.cluster, &topics, &mut follower, &mut huntd);
    huntd.wait_until("a line about it", |huntd| huntd.log().contains(words));
    let ended = huntd.stop();
    assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
    accounts::assert_is_the_replay(&secure.cluster, &topics, follower);
}
