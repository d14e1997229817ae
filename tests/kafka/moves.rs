//! Brokers whose names have several addresses, and brokers whose addresses change.

use crate::players::{events, produce};
use std::path::Path;
use support::accounts::{self, Follower};
use support::daemon::{Huntd, Topics};
use support::kafka::broker::free_ports;
use support::kafka::{Cluster, Listener, Options};
use support::needs;

/// The broker's name.
const NAME: &str = "moving.test";

/// Addresses at which nothing listens. The resolver returns the IPv6 address first.
const NOWHERE: [&str; 2] = ["::1", "127.0.0.3"];

/// The broker's address, before and after it moves.
const BEFORE: &str = "127.0.0.4";
const AFTER: &str = "127.0.0.5";

/// Lets [`NAME`] resolve to these addresses and no others.
fn write_hosts(hosts: &Path, addresses: &[&str]) {
    let lines = addresses.iter().map(|address| format!("{address} {NAME}\n"));
    let text: String = lines.chain(["127.0.0.1 localhost\n".to_owned()]).collect();
    std::fs::write(hosts, text).expect("the folder is writable");
}

/// Makes the broker listen at [`AFTER`] from its next start on.
fn change_address(cluster: &Cluster) {
    let file = cluster[0].folder().join("server.properties");
    let text = std::fs::read_to_string(&file).expect("the broker has a configuration");
    assert!(text.contains(BEFORE), "{text}");
    std::fs::write(&file, text.replace(BEFORE, AFTER)).expect("the folder is writable");
}

#[test]
fn all_addresses_of_a_brokers_name_are_tried_and_another_one_is_found_after_it_was_down() {
    let is_root = rustix::process::geteuid().is_root();
    if !needs::has("to be root, for a mount of its own", is_root)
        || !needs::has_program("unshare", "--version")
    {
        return;
    }
    let port = free_ports(1)[0];
    let mut options = Options::for_tests();
    options.listeners.push(Listener {
        address: format!("{BEFORE}:{port}"),
        told: format!("{NAME}:{port}"),
        ..Listener::local("MOVING", "PLAINTEXT", port)
    });
    let mut cluster = Cluster::start(1, &options);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let hosts = folder.path().join("hosts");
    write_hosts(&hosts, &[NOWHERE[0], NOWHERE[1], BEFORE]);
    let topics = Topics::create(&cluster, "moves", 2);
    produce(&cluster, &topics, &events(2, 20, 1..=10));
    let mut huntd = Huntd::start_with_hosts(&hosts, &[&format!("{NAME}:{port}")], &topics);
    let mut follower = Follower::new(&cluster, &topics);
    accounts::wait_until_covered(&cluster, &topics, &mut follower, &mut huntd);

    cluster.broker_mut(0).stop();
    change_address(&cluster);
    write_hosts(&hosts, &[AFTER]);
    cluster.broker_mut(0).restart(1);
    produce(&cluster, &topics, &events(2, 20, 11..=60));
    accounts::wait_until_covered(&cluster, &topics, &mut follower, &mut huntd);
    huntd.wait_until("readiness", |huntd| huntd.metric("huntd_ready") == 1);
    // A reader may see a frame before its acknowledgement has reached the daemon.
    huntd.wait_until("no lag", |huntd| huntd.metric("huntd_lag_records") == 0);
    let ended = huntd.stop();
    assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
    accounts::assert_is_the_replay(&cluster, &topics, follower);
}
