//! A broker that limits the rate of its clients.

use crate::players::{events, produce};
use std::ops::RangeInclusive;
use support::accounts::{self, Follower};
use support::daemon::{Huntd, Topics};
use support::kafka;
use support::kafka::quota::limit;

/// Milliseconds for which huntd waits for an answer to frames from a broker that does not throttle.
const ANSWER_MS_MAX: u32 = 15_000;

/// Bytes a second: what the tests send exceeds it for longer than an answer may take, and for
/// longer than it takes until a shard stands still.
const RATE: f64 = 400.0;

/// A daemon that a broker limits by its name, and what it publishes.
struct Limited {
    topics: Topics,
    client_id: &'static str,
    quota: &'static str,
    huntd: Huntd,
    follower: Follower,
}

impl Limited {
    /// It works, and has a limit from now on.
    fn start(client_id: &'static str, quota: &'static str) -> Limited {
        let cluster = kafka::shared();
        let topics = Topics::create(cluster, client_id, 1);
        let client = format!("client_id = \"{client_id}\"");
        let huntd = Huntd::start(cluster, &topics, &[("kafka", &client)]);
        let follower = Follower::new(cluster, &topics);
        let mut limited = Limited { topics, client_id, quota, huntd, follower };
        limited.produce(1..=2);
        limited.wait_until_covered();
        limit(&cluster.bootstrap(), client_id, quota, Some(RATE));
        limited
    }

    fn produce(&self, rounds: RangeInclusive<u64>) {
        produce(kafka::shared(), &self.topics, &events(1, 40, rounds));
    }

    fn wait_until_covered(&mut self) {
        let Limited { topics, huntd, follower, .. } = self;
        accounts::wait_until_covered(kafka::shared(), topics, follower, huntd);
    }

    /// Its only shard stands still, and everything that says so names the quota. Only what the
    /// quota is about was held up.
    fn wait_for_the_reason(&mut self, topic: &str, held_up: [&str; 2]) {
        let is_still = |huntd: &Huntd| huntd.metric("huntd_shards_still") == 1;
        self.huntd.wait_until("a shard that stands still", is_still);
        let quota = self.quota;
        let reason = format!(
            "a broker of the {topic} topic throttles huntd: raise this client's quotas, such as \
             {quota}"
        );
        let answer = self.huntd.get("/readyz");
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
        assert!(answer.contains(&format!("\npartition 0: {reason}")), "{answer}");
        let log = self.huntd.log();
        assert!(log.contains(&format!("the partition stands still: {reason}")), "{log}");
        let [throttled, free] = held_up.map(|what| self.throttled_s(what));
        assert!(throttled > 10.0, "{throttled} s are counted");
        assert_eq!(free, 0.0);
    }

    /// Seconds for which it was throttled, as the page of metrics has it.
    fn throttled_s(&self, what: &str) -> f64 {
        let page = self.huntd.get("/metrics");
        let name = format!("huntd_throttled_seconds_total{{partition=\"0\",what=\"{what}\"}} ");
        let line = page.lines().find_map(|line| line.strip_prefix(&name));
        line.expect("it is shown").parse().expect("a number")
    }

    /// Without the limit it publishes everything. What it has logged.
    fn finish(mut self) -> String {
        limit(&kafka::shared().bootstrap(), self.client_id, self.quota, None);
        self.wait_until_covered();
        let Limited { topics, huntd, follower, .. } = self;
        let ended = huntd.stop();
        assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
        accounts::assert_is_the_replay(kafka::shared(), &topics, follower);
        ended.log
    }
}

#[test]
fn a_broker_that_reads_no_frames_for_a_while_because_of_a_quota_is_waited_for_and_named() {
    let mut limited = Limited::start("limited-frames", "producer_byte_rate");
    let mut round = 3;
    let Limited { topics, huntd, .. } = &mut limited;
    huntd.wait_until("the broker throttles", |huntd| {
        produce(kafka::shared(), topics, &events(1, 40, round..=round + 20));
        round += 21;
        huntd.log().contains("throttles this client")
    });
    limited.produce(round..=round + 20);
    limited.wait_for_the_reason("output", ["frames", "fetch"]);
    let log = limited.finish();
    let trouble = log.lines().filter(|line| line.contains("frames cannot be sent now"));
    let trouble: Vec<&str> = trouble.collect();
    let (_, asked_ms) =
        trouble[0].split_once("throttles this client for ").expect("the first line says so");
    let asked_ms: u32 = asked_ms[..asked_ms.find(' ').expect("ms")].parse().expect("a number");
    assert!(asked_ms > ANSWER_MS_MAX, "{asked_ms} ms is no longer than an answer may take");
    assert!(trouble.iter().all(|line| line.contains("raise this client's quotas")), "{trouble:?}");
}

/// A broker answers such a Fetch with no records, and takes the next one when the throttle is over.
#[test]
fn a_broker_that_takes_no_fetch_for_a_while_because_of_a_quota_is_waited_for_and_named() {
    let mut limited = Limited::start("limited-fetches", "consumer_byte_rate");
    limited.produce(3..=6);
    limited.wait_for_the_reason("input", ["fetch", "frames"]);
    let log = limited.finish();
    assert!(log.contains("throttles this client"), "{log}");
    assert!(!log.contains("timed out"), "{log}");
}
