//! A broker that limits the rate of its clients.

use crate::players::{events, produce};
use support::accounts::{self, Follower};
use support::daemon::{Huntd, Topics};
use support::kafka;
use support::kafka::quota::limit;

const CLIENT_ID: &str = "limited";

/// Milliseconds for which huntd waits for an answer to frames from a broker that does not throttle.
const ANSWER_MS_MAX: u32 = 15_000;

/// Bytes a second: the frames of the test exceed it for longer than an answer may take.
const RATE: f64 = 400.0;

#[test]
fn a_broker_that_reads_no_frames_for_a_while_because_of_a_quota_is_waited_for() {
    let cluster = kafka::shared();
    let topics = Topics::create(cluster, "quota", 1);
    let client = format!("client_id = \"{CLIENT_ID}\"");
    let mut huntd = Huntd::start(cluster, &topics, &[("kafka", &client)]);
    let mut follower = Follower::new(cluster, &topics);
    produce(cluster, &topics, &events(1, 40, 1..=2));
    accounts::wait_until_covered(cluster, &topics, &mut follower, &mut huntd);

    let address = cluster.bootstrap();
    limit(&address, CLIENT_ID, "producer_byte_rate", Some(RATE));
    let mut round = 3;
    huntd.wait_until("the broker throttles", |huntd| {
        produce(cluster, &topics, &events(1, 40, round..=round + 20));
        round += 21;
        huntd.log().contains("wants to be left alone")
    });
    limit(&address, CLIENT_ID, "producer_byte_rate", None);
    produce(cluster, &topics, &events(1, 40, round..=round + 20));
    accounts::wait_until_covered(cluster, &topics, &mut follower, &mut huntd);
    let ended = huntd.stop();
    assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
    let trouble = ended.log.lines().filter(|line| line.contains("frames cannot be sent now"));
    let trouble: Vec<&str> = trouble.collect();
    let (_, asked_ms) = trouble[0].split_once("left alone for ").expect("the first line says so");
    let asked_ms: u32 = asked_ms[..asked_ms.find(' ').expect("ms")].parse().expect("a number");
    assert!(asked_ms > ANSWER_MS_MAX, "{asked_ms} ms is no longer than an answer may take");
    assert!(trouble.iter().all(|line| line.contains("raise this client's quotas")), "{trouble:?}");
    accounts::assert_is_the_replay(cluster, &topics, follower);
}
