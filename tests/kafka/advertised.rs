//! A broker that answers where the configuration says, and sends clients to an address where it
//! cannot be used.

use crate::exits::assert_ends;
use crate::players::{events, produce};
use crate::rights::configuration;
use crate::security::tls;
use crate::verbs;
use crate::while_used::WhileUsed;
use std::sync::Arc;
use support::accounts::{self, Follower};
use support::daemon::{Huntd, Topics};
use support::kafka::broker::free_ports;
use support::kafka::proxy::Proxy;
use support::kafka::secure::{HOST, SecureCluster};
use support::kafka::{Cluster, Listener, Options};

/// A broker with four listeners, and the ports of each.
struct Misled {
    secure: SecureCluster,
    /// With TLS; advertised under a name that its certificate does not have.
    misnamed: u16,
    /// Advertised under a name that nobody knows.
    unknown: u16,
    /// Advertised at the second port, where nobody listens.
    closed: [u16; 2],
    /// The same, but somebody may come.
    away: [u16; 2],
}

const UNKNOWN: &str = "no-such-host.invalid";

/// The broker that the tests of this file share.
fn shared() -> Arc<Misled> {
    static SHARED: WhileUsed<Misled> = WhileUsed::unused();
    SHARED.get(|| {
        let ports = free_ports(6);
        let [misnamed, unknown, closed, told, away, told_away] = ports[..] else {
            panic!("six are asked for")
        };
        let mut options = Options::for_tests();
        options.listeners = vec![
            Listener {
                told: format!("127.0.0.1:{misnamed}"),
                ..Listener::local("MISNAMED", "SSL", misnamed)
            },
            Listener {
                told: format!("{UNKNOWN}:{unknown}"),
                ..Listener::local("UNKNOWN", "PLAINTEXT", unknown)
            },
            Listener::local("CLOSED", "PLAINTEXT", closed).told_at(told),
            Listener::local("AWAY", "PLAINTEXT", away).told_at(told_away),
        ];
        let secure = SecureCluster::start_as(options, &[], &[]);
        Misled { secure, misnamed, unknown, closed: [closed, told], away: [away, told_away] }
    })
}

impl Misled {
    fn ca(&self) -> String {
        tls(&self.secure.file("ca.pem"))
    }
}

/// What is said of an advertised address.
fn advertises(address: &str) -> String {
    format!("broker 1 advertises {address}, where huntd cannot use it: ")
}

#[test]
fn topics_are_not_fine_if_a_broker_cannot_be_used_at_its_advertised_address() {
    let misled = shared();
    let topics = Topics::named("misled", 1);
    let (_folder, file) = configuration(&misled.secure.cluster.bootstrap(), "", &topics);
    let created = verbs::huntd(&["topics", "--config", &file, "--partitions", "1"]);
    assert_eq!(created.code, 0, "{}", created.errors);
    let Misled { misnamed, unknown, closed: [listening, told], .. } = &*misled;
    let section = format!("[kafka.tls]\n{}", misled.ca());
    let cases = [
        (misnamed, &*section, format!("127.0.0.1:{misnamed}"), 12, "not valid for the name 127"),
        (unknown, "", format!("{UNKNOWN}:{unknown}"), 4, "cannot be resolved"),
        (listening, "", format!("{HOST}:{told}"), 4, "Connection refused"),
    ];
    for (port, section, address, code, reason) in cases {
        let (_folder, file) = configuration(&format!("{HOST}:{port}"), section, &topics);
        for verb in [&["topics", "--check"][..], &["check"]] {
            let ended = verbs::huntd(&[verb, &["--config", &file]].concat());
            let what = format!("{verb:?}, {address}: {}{}", ended.output, ended.errors);
            assert_eq!(ended.code, code, "{what}");
            assert_eq!(ended.errors.lines().count(), 1, "{what}");
            for words in [&*advertises(&address), reason, "correct `advertised.listeners` of "] {
                assert!(ended.errors.contains(words), "{what}");
            }
        }
    }
}

#[test]
fn a_certificate_without_the_advertised_name_ends_a_start() {
    let misled = shared();
    let topics = Topics::create(&misled.secure.cluster, "misnamed", 1);
    let settings = [("kafka.tls", &*misled.ca())];
    let huntd = Huntd::start_with(&[&format!("{HOST}:{}", misled.misnamed)], &topics, &settings);
    assert_ends(huntd, 12, &advertises(&format!("127.0.0.1:{}", misled.misnamed)));
}

/// The other broker leads all that huntd needs.
#[test]
fn a_start_goes_on_without_one_broker_of_two_and_the_checks_name_it() {
    let misled = shared();
    let ports = free_ports(2);
    let listener = |place: usize| Listener::local("HUNTD", "PLAINTEXT", ports[place]);
    // The address of a listener that speaks TLS: that cannot pass by itself.
    let listeners = [listener(0), listener(1).told_at(misled.misnamed)];
    let [usable, unusable] =
        listeners.map(|listener| Options { listeners: vec![listener], ..Options::for_tests() });
    let cluster = Cluster::start_each(&[&usable, &unusable]);
    let topics = Topics::led_by(&cluster, "one-of-two", 2, 1);
    let words = format!("broker 2 advertises {HOST}:{}, where", misled.misnamed);
    let bootstrap = format!("{HOST}:{}", ports[0]);
    let (_folder, file) = configuration(&bootstrap, "", &topics);
    for verb in [&["topics", "--check"][..], &["check"]] {
        let ended = verbs::huntd(&[verb, &["--config", &file]].concat());
        assert_eq!(ended.code, 14, "{verb:?}: {}", ended.errors);
        assert!(ended.errors.contains(&words), "{verb:?}: {}", ended.errors);
        assert!(!ended.errors.contains("broker 1"), "{verb:?}: {}", ended.errors);
    }
    produce(&cluster, &topics, &events(2, 20, 1..=10));
    let mut huntd = Huntd::start_with(&[&bootstrap], &topics, &[]);
    let mut follower = Follower::new(&cluster, &topics);
    accounts::wait_until_covered(&cluster, &topics, &mut follower, &mut huntd);
    let ended = huntd.stop();
    assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
    assert_eq!(ended.log.matches(&words).count(), 1, "{}", ended.log);
    assert!(!ended.log.contains("broker 1 advertises"), "{}", ended.log);
    accounts::assert_is_the_replay(&cluster, &topics, follower);
}

#[test]
fn a_broker_that_is_away_at_its_advertised_address_is_named_once_and_waited_for() {
    let misled = shared();
    let topics = Topics::create(&misled.secure.cluster, "away", 1);
    let [listening, told] = misled.away;
    let mut huntd = Huntd::start_with(&[&format!("{HOST}:{listening}")], &topics, &[]);
    let words = advertises(&format!("{HOST}:{told}"));
    huntd.wait_until("a line about the port", |huntd| huntd.log().contains(&words));
    let _proxy = Proxy::start(told, listening);
    let mut follower = Follower::new(&misled.secure.cluster, &topics);
    produce(&misled.secure.cluster, &topics, &events(1, 20, 1..=5));
    accounts::wait_until_covered(&misled.secure.cluster, &topics, &mut follower, &mut huntd);
    let ended = huntd.stop();
    assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
    assert_eq!(ended.log.matches(&words).count(), 1, "{}", ended.log);
    accounts::assert_is_the_replay(&misled.secure.cluster, &topics, follower);

    // The start is tried again until the topics are there, and would dial again each time.
    let unknown = format!("{HOST}:{}", misled.unknown);
    let late = Topics::named("late", 1);
    let mut lost = Huntd::start_with(&[&unknown], &late, &[]);
    let words = advertises(&format!("{UNKNOWN}:{}", misled.unknown));
    let missing = format!("the topic `{}` does not exist", late.input);
    lost.wait_until("a line about the name", |lost| lost.log().contains(&words));
    lost.wait_until("a try that fails", |lost| lost.log().contains(&missing));
    late.create_on(&misled.secure.cluster);
    lost.wait_until("a start", |lost| lost.log().contains("no broker answers at"));
    let ended = lost.stop();
    assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
    assert_eq!(ended.log.matches(&words).count(), 1, "{}", ended.log);
}
