//! Client certificates that change while a daemon runs: its own connections show what is in the
//! files, librdkafka's what they held at the start.

use crate::exits::assert_ends;
use crate::players::{events, produce};
use crate::security::{LONG_SESSION, SHORT_SESSION, mutual};
use std::fs;
use support::accounts::{self, Follower};
use support::daemon::{Huntd, Topics};
use support::kafka::secure::{Kind, SecureCluster};

/// What a dial says about a broker that does not take the certificate.
const REFUSED: &str = "it asks for a client certificate that it accepts";

/// The files that the daemon is told of hold those of this name now.
fn show(secure: &SecureCluster, name: &str) {
    for kind in ["pem", "key"] {
        let [shown, draft] = ["client", "draft"].map(|file| secure.file(&format!("{file}.{kind}")));
        fs::copy(secure.file(&format!("{name}.{kind}")), &draft).expect("the folder is writable");
        fs::rename(draft, shown).expect("the folder is writable");
    }
}

/// A daemon that shows a certificate, and what it publishes.
struct Shown {
    topics: Topics,
    huntd: Huntd,
    follower: Follower,
    round: u64,
}

impl Shown {
    /// It works.
    fn start(secure: &SecureCluster, session: &str) -> Shown {
        let topics = Topics::create(&secure.cluster, "shown", 1);
        let huntd = Shown::start_on(secure, &topics, session);
        let follower = Follower::new(&secure.cluster, &topics);
        let mut shown = Shown { topics, huntd, follower, round: 0 };
        shown.goes_on(secure);
        shown
    }

    fn start_on(secure: &SecureCluster, topics: &Topics, session: &str) -> Huntd {
        let settings = [("kafka.tls", &*mutual(secure)), ("kafka", session)];
        Huntd::start_with(&[&secure.address(Kind::Mutual)], topics, &settings)
    }

    fn goes_on(&mut self, secure: &SecureCluster) {
        let Shown { topics, huntd, follower, round } = self;
        *round += 1;
        produce(&secure.cluster, topics, &events(1, 20, *round..=*round));
        accounts::wait_until_covered(&secure.cluster, topics, follower, huntd);
    }

    fn says(&mut self, words: &str) {
        self.huntd.wait_until(&format!("a line that {words}"), |huntd| huntd.log().contains(words));
    }

    /// Waits for one more line with these words.
    fn says_again(&mut self, words: &str) {
        let count = |huntd: &Huntd| huntd.log().matches(words).count();
        let before = count(&self.huntd);
        self.huntd.wait_until(&format!("another line that {words}"), |huntd| count(huntd) > before);
    }
}

/// From its next start on, the broker takes the certificates of another authority alone.
fn trust_another_authority(secure: &SecureCluster) {
    fs::copy(secure.file("other-ca.pem"), secure.file("trusted-by-mutual.pem"))
        .expect("the folder is writable");
}

/// The broker ends all connections, which have to be dialled again.
fn restart(secure: &mut SecureCluster) {
    secure.cluster.broker_mut(0).stop();
    secure.cluster.broker_mut(0).restart(1);
}

#[test]
fn a_client_certificate_that_is_gone_or_has_expired_is_named_until_a_good_one_is_there() {
    let mut secure = SecureCluster::start(&[], &[]);
    for kind in ["pem", "key"] {
        let [good, client] = ["good", "client"].map(|name| secure.file(&format!("{name}.{kind}")));
        fs::copy(client, good).expect("the folder is writable");
    }
    let mut shown = Shown::start(&secure, LONG_SESSION);
    fs::remove_file(secure.file("client.pem")).expect("it is there");
    restart(&mut secure);
    shown.says("client.pem: cannot be read");
    show(&secure, "good");
    shown.goes_on(&secure);

    show(&secure, "expired-client");
    restart(&mut secure);
    shown.says(REFUSED);
    show(&secure, "good");
    shown.goes_on(&secure);

    trust_another_authority(&secure);
    restart(&mut secure);
    shown.says_again(REFUSED);
    show(&secure, "other-client");
    shown.goes_on(&secure);

    let Shown { topics, huntd, follower, .. } = shown;
    let ended = huntd.stop();
    assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
    accounts::assert_is_the_replay(&secure.cluster, &topics, follower);
}

/// Nobody knows whether librdkafka could use its files as long as no broker answers.
#[test]
fn an_outage_after_a_renewal_is_waited_for_however_long_it_takes() {
    let mut secure = SecureCluster::start(&[], &[]);
    let mut shown = Shown::start(&secure, SHORT_SESSION);
    let renewed = fs::read_to_string(secure.file("client.pem")).expect("it is there") + "\n";
    fs::write(secure.file("client.pem"), renewed).expect("the folder is writable");
    secure.cluster.broker_mut(0).stop();
    shown.says("no broker answers at");
    shown.says("lost: the group has taken them away");
    secure.cluster.broker_mut(0).restart(1);
    shown.goes_on(&secure);
    let Shown { topics, huntd, follower, .. } = shown;
    let ended = huntd.stop();
    assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
    assert!(!ended.log.contains("they have changed since"), "{}", ended.log);
    accounts::assert_is_the_replay(&secure.cluster, &topics, follower);
}

/// librdkafka goes on with the certificate that it began with, so the group gives the daemon up
/// when its group session times out: see decision 040.
#[test]
fn a_certificate_that_is_trusted_no_more_is_replaced_by_the_next_start() {
    let mut secure = SecureCluster::start(&[], &[]);
    let mut shown = Shown::start(&secure, SHORT_SESSION);
    trust_another_authority(&secure);
    restart(&mut secure);
    shown.says(REFUSED);
    shown.says("lost: the group has taken them away");
    show(&secure, "other-client");
    let Shown { topics, huntd, follower, round } = shown;
    assert_ends(huntd, 12, "they have changed since: restart huntd");

    let huntd = Shown::start_on(&secure, &topics, SHORT_SESSION);
    let mut shown = Shown { topics, huntd, follower, round };
    shown.goes_on(&secure);
    let Shown { topics, huntd, follower, .. } = shown;
    let ended = huntd.stop();
    assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
    accounts::assert_is_the_replay(&secure.cluster, &topics, follower);
}
