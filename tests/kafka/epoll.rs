//! Hosts that forbid io_uring, as the default profiles of most containers do.

use crate::exits::assert_ends;
use crate::players::{events, produce};
use crate::security::{self, sasl, tls};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};
use std::collections::BTreeMap;
use std::process::Command;
use support::accounts::{self, Follower, assert_is_the_replay};
use support::daemon::{Huntd, Topics};
use support::kafka::secure::Kind;
use support::kafka::{self, Cluster};
use support::process::start_under;
use support::serving::Serving;

/// Runs what starts programs to which the kernel refuses io_uring, as a container's filter does.
fn where_it_is_forbidden<T: Send>(start: impl FnOnce() -> T + Send) -> T {
    let refusal = SeccompAction::Errno(libc::EPERM as u32);
    let rules = BTreeMap::from([(libc::SYS_io_uring_setup, Vec::new())]);
    let arch = TargetArch::try_from(std::env::consts::ARCH).expect("seccomp knows this processor");
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refusal, arch);
    let filter = BpfProgram::try_from(filter.expect("the rules are whole"));
    let filter = filter.expect("they fit into a filter");
    start_under(&[filter], start)
}

#[test]
fn a_kernel_that_refuses_io_uring_ends_the_daemon_with_code_7() {
    let topics = Topics::create(kafka::shared(), "forbidden", 1);
    let huntd = where_it_is_forbidden(|| Huntd::start(kafka::shared(), &topics, &[]));
    assert_ends(huntd, 7, "set runtime.ring to \"epoll\"");
}

/// Starts a daemon and `huntd serve` where io_uring is forbidden, and compares what they do with a
/// replay, over a stop.
fn assert_plays(cluster: &Cluster, address: &str, topics: &Topics, settings: &[(&str, &str)]) {
    let settings = [settings, &[("runtime", "ring = \"epoll\"")]].concat();
    let start = || where_it_is_forbidden(|| Huntd::start_with(&[address], topics, &settings));
    let mut follower = Follower::new(cluster, topics);
    for rounds in [1..=100, 101..=200] {
        let mut huntd = start();
        produce(cluster, topics, &events(2, 20, rounds));
        accounts::wait_until_covered(cluster, topics, &mut follower, &mut huntd);
        let ended = huntd.stop();
        assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
    }
    assert_is_the_replay(cluster, topics, follower);
}

#[test]
fn with_epoll_the_updates_are_those_of_a_replay() {
    let cluster = kafka::shared();
    let topics = Topics::create(cluster, "epoll", 2);
    assert_plays(cluster, &cluster.bootstrap(), &topics, &[]);
}

#[test]
fn with_epoll_and_tls_the_updates_are_those_of_a_replay() {
    let secure = security::shared();
    let topics = Topics::create(&secure.cluster, "epoll-tls", 2);
    let [ca, plain] = [tls(&secure.file("ca.pem")), sasl("PLAIN", &secure.file("password"))];
    let settings = [("kafka.tls", &*ca), ("kafka.sasl", &plain)];
    assert_plays(&secure.cluster, &secure.address(Kind::Sasl), &topics, &settings);
}

#[test]
fn serve_takes_epoll_by_itself_and_says_so() {
    let cluster = kafka::shared();
    let topics = Topics::create(cluster, "epoll-serve", 2);
    let mut huntd = Huntd::start(cluster, &topics, &[]);
    let mut follower = Follower::new(cluster, &topics);
    produce(cluster, &topics, &events(2, 20, 1..=50));
    accounts::wait_until_covered(cluster, &topics, &mut follower, &mut huntd);
    let ends = cluster.client().ends(&topics.input, 2);
    let usual = Serving::start(&huntd);
    let forbidden = where_it_is_forbidden(|| Serving::start(&huntd));
    assert!(forbidden.log().contains("using epoll: io_uring is forbidden here"));
    assert!(!usual.log().contains("using epoll"), "{}", usual.log());
    for path in ["/v1/boards/world?count=100", "/v1/players/7", "/v1/zones/1/tiles"] {
        assert_eq!(forbidden.body_at(&ends, path), usual.body_at(&ends, path), "{path}");
    }
    assert_eq!(forbidden.players(20), usual.players(20));
    let ended = huntd.stop();
    assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
}

#[test]
fn the_demo_takes_epoll_by_itself_and_accounts_for_every_event() {
    let output = where_it_is_forbidden(|| {
        let mut demo = Command::new(env!("CARGO_BIN_EXE_huntd"));
        demo.args(["demo", "--events", "20000"]).output().expect("it is started")
    });
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("using epoll: io_uring is forbidden here"), "{said}");
    let report = String::from_utf8_lossy(&output.stdout);
    assert!(report.contains("nothing was lost, nothing came twice"), "{report}");
}
