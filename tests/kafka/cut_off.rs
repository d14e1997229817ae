//! A broker that the controller does not reach any more, and clients do.

use crate::players::events;
use huntd::kafka::message;
use std::fs;
use std::net::Ipv4Addr;
use std::thread;
use std::time::{Duration, Instant};
use support::PATIENCE;
use support::accounts::{self, Follower};
use support::daemon::{Huntd, Topics};
use support::kafka::broker::Place;
use support::kafka::client::Client;
use support::kafka::proxy::{Proxy, Way};
use support::kafka::{Cluster, Options};
use support::scrape::Page;
use support::wire::Connection;
use tempfile::TempDir;

/// Broker 2 leads, until broker 1 does, which is the controller.
const REPLICAS: &[&[i32]] = &[&[2, 1]];

/// All that huntd appends to is cut off, too.
#[test]
fn a_zone_whose_leader_is_cut_off_from_the_controller_goes_on_at_the_next_leader() {
    let (cluster, to_controller, _hosts) = start();
    let topics = create(&cluster);
    produce(&cluster[0].address(), &topics, 1..=10);
    let mut huntd = Huntd::start(&cluster, &topics, &[("input", "tick_every_ms = 1000")]);
    let mut follower = Follower::new(&cluster, &topics);
    accounts::wait_until_covered(&cluster, &topics, &mut follower, &mut huntd);

    // A broker that has just started may give no producer id yet. A second line about frames is
    // withheld for ten seconds.
    if huntd.log().contains("frames cannot be sent now") {
        thread::sleep(Duration::from_secs(11));
    }
    let ways = [Way::ToBroker, Way::FromBroker];
    let cut = |count| ways.into_iter().for_each(|way| to_controller.cut(way, count));
    cut(usize::MAX);
    wait_until_led_by(1, &cluster[0].address(), &topics.input);
    produce(&cluster[0].address(), &topics, 11..=20);
    assert_eq!(leader_by(&cluster[1].address(), &topics.input), Some(2), "it does not know");
    let end = Connection::open(&cluster[0].address()).ends(&topics.input, 1)[0] as u64;
    let acked = |huntd: &Huntd| Page::of(&huntd.address()).progress("acked");
    huntd.wait_until("the events behind the cut", |huntd| acked(huntd) >= end);
    let log = huntd.log();
    let is_superseded = log.contains("does not answer, and another broker now leads");
    assert!(is_superseded && !log.contains("REQUEST_TIMED_OUT"), "{log}");
    assert!(!log.contains("halted"), "{log}");

    cut(0);
    wait_until_led_by(1, &cluster[1].address(), &topics.input);
    accounts::wait_until_covered(&cluster, &topics, &mut follower, &mut huntd);
    let ended = huntd.stop();
    assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
    // The last tick may have come too late for the output.
    accounts::assert_begins_the_replay(&cluster, &topics, follower);
}

/// Broker 1, which is the controller, and broker 2, which reaches it through the proxy. Both know
/// it by a name, which has another address for broker 2: brokers tell each other where the
/// controller listens.
fn start() -> (Cluster, Proxy, TempDir) {
    let places = Place::reserve(2);
    let controller = format!("controller:{}", places[0].controller_port);
    let folder = tempfile::tempdir().expect("the temporary folder can be written");
    let options = |properties: &[(&'static str, String)], address: Ipv4Addr| {
        let hosts = folder.path().join(address.to_string());
        let names = format!("127.0.0.1 localhost\n{address} controller\n");
        fs::write(&hosts, names).expect("the temporary folder can be written");
        let voters = ("controller.quorum.voters", format!("1@{controller}"));
        Options {
            properties: [properties, &[voters]].concat(),
            java: vec![format!("-Djdk.net.hosts.file={}", hosts.display())],
            ..Options::for_tests()
        }
    };
    let clients = |place: &Place| format!("CLIENTS://127.0.0.1:{}", place.port);
    let told = format!("{},CONTROLLERS://{controller}", clients(&places[0]));
    let near = options(&[("advertised.listeners", told)], Ipv4Addr::LOCALHOST);
    let listeners = ("listeners", clients(&places[1]));
    let behind = Ipv4Addr::new(127, 0, 0, 2);
    let far = options(&[("process.roles", "broker".to_owned()), listeners], behind);
    let port = places[0].controller_port;
    let to_controller = Proxy::start_at((behind, port), port);
    (Cluster::start_at(&places, &[&near, &far]), to_controller, folder)
}

/// Topics of broker 2, and groups of broker 1.
fn create(cluster: &Cluster) -> Topics {
    let (topics, client) = (Topics::named("cut-off", 1), cluster.client());
    client.create_topic_on("__consumer_offsets", &[1], &[("cleanup.policy", "compact")]);
    for topic in [&topics.input, &topics.output, &topics.dead_letters] {
        client.create_replicated_topic(topic, REPLICAS, &[("retention.ms", "-1")]);
    }
    topics
}

/// Appends to the input what 20 players do, as the broker of this address says where to.
fn produce(address: &str, topics: &Topics, rounds: std::ops::RangeInclusive<u64>) {
    let events = events(1, 20, rounds);
    let records = events.iter().map(|(p, text)| (*p, b"".as_slice(), text.as_bytes()));
    Client::new(address).produce(&topics.input, records);
}

/// Who leads the topic, as the broker of this address says: a client library could ask another one.
fn leader_by(address: &str, topic: &str) -> Option<i32> {
    let mut request = Vec::new();
    message::metadata_request(0, "test", topic, &mut request);
    let mut connection = Connection::open(address);
    connection.send(&request);
    let answer = message::parse_metadata(connection.receive(), 0, topic);
    answer.expect("the broker answers what was asked").partitions[0].leader
}

fn wait_until_led_by(leader: i32, address: &str, topic: &str) {
    let end = Instant::now() + PATIENCE;
    while leader_by(address, topic) != Some(leader) {
        assert!(Instant::now() < end, "broker {leader} does not lead the partition");
        thread::sleep(Duration::from_millis(50));
    }
}
