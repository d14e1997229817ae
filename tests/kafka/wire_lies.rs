//! What one connection says and would halt a shard is asked again on another one, which tells the
//! truth: nothing halts, whatever it was.

use crate::players::{events, produce};
use crate::wire_faults::{FETCH, METADATA, PRODUCE, Proxied};
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};
use support::accounts::{self, Follower};
use support::daemon::{Huntd, Topics};
use support::kafka::proxy::Way;
use support::wire::Connection;

/// The end of a log line about a claim that is asked about again.
const ASKED_AGAIN: &str = "confirming over another connection";

/// A daemon that some connections lie to.
struct Victim<'a> {
    proxied: &'a Proxied<'static>,
    topics: Topics,
    huntd: Huntd,
    follower: Follower,
    rounds: RangeInclusive<u64>,
}

impl Victim<'_> {
    fn of<'a>(proxied: &'a Proxied<'static>, what: &str) -> Victim<'a> {
        let (topics, huntd, follower) = proxied.daemon(what);
        Victim { proxied, topics, huntd, follower, rounds: 1..=5 }
    }

    fn id(&self, topic: &str) -> [u8; 16] {
        let mut connection = Connection::open(&self.proxied.cluster[0].address());
        connection.topic_id(topic).to_be_bytes()
    }

    fn input_id(&self) -> [u8; 16] {
        self.id(&self.topics.input)
    }

    /// Where the shard's log ends.
    fn end(&self) -> i64 {
        self.follower.next_offset(0)
    }

    /// The lie is told, the log doubts it with these words, and it costs nothing.
    fn outlives(&mut self, api: i16, truth: Vec<u8>, lie: Vec<u8>, words: &str) {
        let proxy = &self.proxied.proxy;
        proxy.lie(api, truth, lie);
        self.asks_again(words);
        assert!(proxy.lies_told() > 0);
        self.goes_on();
    }

    /// A log line with these words says that the claim is asked about again.
    fn asks_again(&mut self, words: &str) {
        self.huntd.wait_until(&format!("a line about {words}"), |huntd| doubts(huntd, words));
    }

    /// Like [`Victim::outlives`], of Metadata that is asked for on a new connection if the last
    /// answer did not help. One connection lies, until it is one whose lie is doubted with these
    /// words.
    fn outlives_on_a_new_connection(&mut self, truth: &[u8], lie: &[u8], words: &str) {
        let proxy = &self.proxied.proxy;
        let id = self.input_id();
        let next_lies = || {
            proxy.lie_after(0, METADATA, truth.to_vec(), lie.to_vec());
            let refused = partition(id, NOT_LEADER_OR_FOLLOWER);
            proxy.replace(Way::FromBroker, &partition(id, 0), &refused);
        };
        next_lies();
        let (mut told, mut since) = (0, Instant::now());
        self.huntd.wait_until(&format!("a line about {words}"), |huntd| {
            if proxy.lies_told() > told {
                (told, since) = (proxy.lies_told(), Instant::now());
            }
            let is_doubted = doubts(huntd, words);
            if !is_doubted && since.elapsed() > DOUBTED_WITHIN {
                next_lies();
                (told, since) = (0, Instant::now());
            }
            is_doubted
        });
        self.goes_on();
    }

    fn goes_on(&mut self) {
        let Victim { proxied, topics, huntd, follower, rounds } = self;
        *rounds = rounds.end() + 1..=rounds.end() + 5;
        proxied.assert_published(topics, huntd, follower, rounds.clone());
    }

    fn finish(self) {
        self.proxied.finish(&self.topics, self.huntd, self.follower);
    }
}

/// How soon a connection is asked that lies, and then how soon it is doubted and another one has
/// told the truth.
const DOUBTED_WITHIN: Duration = Duration::from_secs(4);

/// Which a Fetch that is answered so makes huntd ask.
const NOT_LEADER_OR_FOLLOWER: i16 = 6;

fn doubts(huntd: &Huntd, words: &str) -> bool {
    let log = huntd.log();
    log.lines().any(|line| line.contains(words) && line.contains(ASKED_AGAIN))
}

/// The start of a Fetch response, behind its correlation id, up to its topic's id.
fn head(throttle_ms: i32, error: i16, topic_id: [u8; 16]) -> Vec<u8> {
    let (throttle, error) = (throttle_ms.to_be_bytes(), error.to_be_bytes());
    // No tagged fields, no session, one topic.
    [&[0], &throttle[..], &error, &[0; 4], &[2], &topic_id].concat()
}

/// The only partition of a Fetch response, from the topic's id to an error.
fn partition(topic_id: [u8; 16], error: i16) -> Vec<u8> {
    [&topic_id[..], &[2], &0_i32.to_be_bytes(), &error.to_be_bytes()].concat()
}

/// What follows the error in a Fetch response whose log ends at this offset: with no records, and
/// with these tagged fields.
fn no_records(end: i64, tagged: &[u8]) -> Vec<u8> {
    no_records_but(end, -1, tagged)
}

/// Like [`no_records`], with a replica to fetch from instead.
fn no_records_but(end: i64, replica: i32, tagged: &[u8]) -> Vec<u8> {
    let (end, start) = (end.to_be_bytes(), 0_i64.to_be_bytes());
    // No aborted transactions, no bytes of records.
    [&end[..], &end, &start, &[1], &replica.to_be_bytes(), &[1], tagged].concat()
}

#[test]
fn an_error_that_one_fetch_is_answered_with_is_asked_for_again() {
    let proxied = Proxied::shared();
    let mut victim = Victim::of(&proxied, "errors");
    let id = victim.input_id();
    for (code, words) in [
        (2, "CORRUPT_MESSAGE (2)"),
        (42, "INVALID_REQUEST (42)"),
        (76, "UNSUPPORTED_COMPRESSION_TYPE (76)"),
        (1234, "UNLISTED (1234)"),
        (1, "is not in its log"),
    ] {
        victim.outlives(FETCH, partition(id, 0), partition(id, code), words);
    }
    victim.outlives(FETCH, head(0, 0, id), head(0, 87, id), "INVALID_RECORD (87)");
    victim.finish();
}

/// Twelve days.
const THROTTLE_MS: i32 = 1 << 30;

#[test]
fn a_broker_that_wants_to_be_left_alone_for_days_is_asked_again_within_seconds() {
    let proxied = Proxied::shared();
    let mut victim = Victim::of(&proxied, "throttled");
    let id = victim.input_id();
    let [truth, lie] = [0, THROTTLE_MS].map(|throttle_ms| head(throttle_ms, 0, id));
    proxied.proxy.replace(Way::FromBroker, &truth, &lie);
    let words = format!("throttles this client for {THROTTLE_MS} ms");
    victim.huntd.wait_until("the lie", |_| proxied.proxy.is_done());
    victim.goes_on();
    assert!(victim.huntd.log().contains(&words), "{}", victim.huntd.log());
    victim.finish();
}

#[test]
fn a_truncation_that_one_fetch_is_answered_with_is_asked_for_again() {
    let proxied = Proxied::shared();
    let mut victim = Victim::of(&proxied, "diverging");
    let (found, end) = (partition(victim.input_id(), 0), victim.end());
    // Epoch 0 ends at offset 7.
    let epoch_end = [&0_i32.to_be_bytes()[..], &7_i64.to_be_bytes(), &[0]].concat();
    let diverging = [&[1, 0, epoch_end.len() as u8], &epoch_end[..]].concat();
    let truth = [found.clone(), no_records(end, &[0])].concat();
    let lie = [found, no_records(end, &diverging)].concat();
    victim.outlives(FETCH, truth, lie, "was truncated to offset 7");
    victim.finish();
}

/// No checksum covers it. A batch that is put further back seems to leave records out, and one that
/// is put further ahead seems to repeat some.
#[test]
fn a_batch_that_one_connection_puts_at_another_offset_is_asked_for_again() {
    let proxied = Proxied::shared();
    let mut victim = Victim::of(&proxied, "moved");
    let opened = |huntd: &Huntd| huntd.metric("huntd_connections_opened_total");
    for lie in [|end| end + 1, |end| end | 1 << 40, |end| end - 1] {
        let (end, opened_before) = (victim.end(), opened(&victim.huntd));
        proxied.proxy.lie_about_offset(end, lie(end));
        victim.goes_on();
        assert!(proxied.proxy.lies_told() > 0);
        assert!(opened(&victim.huntd) > opened_before, "another connection is asked");
    }
    // A second line about gaps is withheld.
    victim.asks_again("input partition 0 continues at offset 1001 instead of 1000");
    victim.asks_again("the batch at offset 2999 cannot be read");
    victim.finish();
}

/// No checksum covers it either. From it the broker could tell that its log was truncated, on every
/// connection: the next Fetch repeats it.
#[test]
fn a_batch_of_a_leader_epoch_that_nobody_has_had_is_no_truncation() {
    let proxied = Proxied::shared();
    let mut victim = Victim::of(&proxied, "epoch");
    for lie in [1, 1 << 20, i32::MIN, -1] {
        proxied.proxy.lie_about_epoch(victim.end(), lie);
        victim.goes_on();
        assert!(proxied.proxy.lies_told() > 0);
        victim.goes_on();
    }
    victim.finish();
}

#[test]
fn another_input_topic_that_one_answer_tells_of_is_asked_for_again() {
    let proxied = Proxied::shared();
    let mut victim = Victim::of(&proxied, "input");
    let id = victim.input_id();
    let another = id.map(|byte| byte ^ 1);
    let words = "the input topic was deleted and created again";
    victim.outlives_on_a_new_connection(&id, &another, words);
    victim.finish();
}

/// The partitions of a Metadata answer, from the topic's id on: on the only broker, which has led
/// them from the start.
fn partitions(topic_id: [u8; 16], count: u8) -> Vec<u8> {
    let alone = [&[2], &1_i32.to_be_bytes()[..]].concat();
    let partition = |index: u8| {
        let (leader, epoch) = (1_i32.to_be_bytes(), 0_i32.to_be_bytes());
        // No error; replicas, those in sync, none offline; no tagged fields.
        [&[0; 5], &[index][..], &leader, &epoch, &alone, &alone, &[1, 0]].concat()
    };
    let of_each: Vec<u8> = (0..count).flat_map(partition).collect();
    // The topic is not internal.
    [&topic_id[..], &[0, count + 1], &of_each].concat()
}

#[test]
fn more_partitions_of_the_input_that_one_answer_tells_of_are_asked_for_again() {
    let proxied = Proxied::shared();
    let mut victim = Victim::of(&proxied, "grown");
    let id = victim.input_id();
    let words = "the input topic has 2 partitions instead of 1";
    victim.outlives_on_a_new_connection(&partitions(id, 1), &partitions(id, 2), words);
    victim.finish();
}

/// A thread of its own asks about the topics now and then.
#[test]
fn more_partitions_of_the_input_that_the_watch_of_the_topics_hears_of_are_asked_for_again() {
    let proxied = Proxied::shared();
    let mut victim = Victim::of(&proxied, "watched");
    let id = victim.input_id();
    let words = format!("the topic `{}` has 2 partitions instead of 1", victim.topics.input);
    victim.outlives(METADATA, partitions(id, 1), partitions(id, 2), &words);
    let words = "the input topic has 2 partitions instead of 1";
    victim.outlives_on_a_new_connection(&partitions(id, 1), &partitions(id, 2), words);
    victim.finish();
}

#[test]
fn another_output_topic_that_one_answer_tells_of_is_asked_for_again() {
    let proxied = Proxied::shared();
    let mut victim = Victim::of(&proxied, "output");
    let id = victim.id(&victim.topics.output);
    let another = id.map(|byte| byte ^ 1);
    let words = format!("a broker says that the topic `{}` is another one", victim.topics.output);
    victim.outlives(METADATA, id.to_vec(), another.to_vec(), &words);
    victim.finish();
}

/// Several threads of a daemon ask about the input when it starts. Each of them is told something
/// else once: by the first connection, by the second, and so on.
/// Connections that ask about the input while a daemon starts, about; those that may.
const ASKING_AT_START: usize = 6;
const ASKING_MAX: usize = 30;

#[test]
fn what_one_connection_says_of_the_input_at_a_start_is_asked_again() {
    let proxied = Proxied::shared();
    let (topics, huntd, mut follower) = proxied.daemon("first");
    assert!(huntd.stop().status.success());
    let mut connection = Connection::open(&proxied.cluster[0].address());
    let id = connection.topic_id(&topics.input).to_be_bytes();
    let another = id.map(|byte| byte ^ 1);
    let mut round = 5;
    for (truth, lie) in [(id.to_vec(), another.to_vec()), (partitions(id, 1), partitions(id, 2))] {
        let (mut skipped, mut doubts) = (0, 0);
        // The hot thread opens its connections before or after other threads open theirs.
        while skipped < ASKING_AT_START || doubts == 0 {
            assert!(skipped < ASKING_MAX, "the hot thread was told the truth");
            proxied.proxy.lie_after(skipped, METADATA, truth.clone(), lie.clone());
            skipped += 1;
            let mut huntd = proxied.start_daemon(&topics);
            round += 1;
            proxied.assert_published(&topics, &mut huntd, &mut follower, round..=round);
            let ended = huntd.stop();
            assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
            assert!(!ended.log.contains("the shard has halted"), "{}", ended.log);
            doubts += usize::from(ended.log.contains("two connections disagree"));
        }
    }
    accounts::assert_is_the_replay(proxied.cluster, &topics, follower);
}

/// A broker that the cluster does not have.
const NO_BROKER: i32 = 77;

/// How often huntd asks a leader that names another broker, although each answer comes at once.
const ANSWERS_PER_S_MAX: f64 = 4.0;

#[test]
fn a_leader_that_names_a_follower_is_asked_again_now_and_then_and_the_log_says_so_once() {
    let proxied = Proxied::shared();
    let mut victim = Victim::of(&proxied, "no-replica");
    let (found, end) = (partition(victim.input_id(), 0), victim.end());
    let truth = [found.clone(), no_records(end, &[0])].concat();
    let lie = [found, no_records_but(end, NO_BROKER, &[0])].concat();
    let begun = Instant::now();
    proxied.proxy.replace_each(Way::FromBroker, &truth, &lie);
    victim.huntd.wait_until("some answers", |_| proxied.proxy.replaced(Way::FromBroker) >= 10);
    let answers = proxied.proxy.replaced(Way::FromBroker) as f64;
    let seconds = begun.elapsed().as_secs_f64();
    // Two of them may stand for each search.
    assert!(answers <= 2.0 + ANSWERS_PER_S_MAX * seconds, "{answers} in {seconds} s");
    let words = "huntd fetches from leaders only";
    assert_eq!(victim.huntd.log().matches(words).count(), 1, "{}", victim.huntd.log());
    proxied.proxy.replace_none(Way::FromBroker);
    victim.goes_on();
    victim.finish();
}

/// What an answer says of the batch of partition 0.
fn produced(error: i16, base_offset: i64) -> Vec<u8> {
    [&0_i32.to_be_bytes()[..], &error.to_be_bytes(), &base_offset.to_be_bytes()].concat()
}

/// The batch is in the log each time. After some answers it is sent again, as the same bytes, and
/// the broker takes nothing twice. After the others the shard is acquired again, and its replay
/// repeats nothing that is published.
#[test]
fn what_an_answer_says_falsely_of_a_published_batch_loses_nothing_and_publishes_nothing_twice() {
    let proxied = Proxied::shared();
    let mut victim = Victim::of(&proxied, "produced");
    let output_end =
        |victim: &Victim<'_>| proxied.cluster.client().ends(&victim.topics.output, 1)[0];
    let acquired = |huntd: &Huntd| huntd.log().matches("\"message\":\"acquired\"").count();
    let resent = [7, 6].map(|error| (error, Some(-1), false));
    let given_up = [45, 47, 59, 87, -1].map(|error| (error, Some(-1), true));
    // At an offset that other frames have, and at one that no log reaches.
    let elsewhere = [(0, None, true), (0, Some(i64::MAX), false)];
    for (error, lie, fails) in resent.into_iter().chain(given_up).chain(elsewhere) {
        let end = output_end(&victim);
        // The connection that publishes may be opened later than now.
        let (truth, lie_told) = (produced(0, end), produced(error, lie.unwrap_or(end - 1)));
        proxied.proxy.lie_always(PRODUCE, truth, lie_told);
        let Victim { proxied, topics, huntd, follower, rounds } = &mut victim;
        *rounds = rounds.end() + 1..=rounds.end() + 5;
        let before = acquired(huntd);
        produce(proxied.cluster, topics, &events(1, 200, rounds.clone()));
        huntd.wait_until("the lie", |_| proxied.proxy.lies_told() > 0);
        proxied.proxy.tell_the_truth();
        if fails {
            huntd.wait_until(&format!("a fence after {error}"), |huntd| acquired(huntd) > before);
        }
        accounts::wait_until_covered(proxied.cluster, topics, follower, huntd);
        assert_eq!(acquired(huntd), before + usize::from(fails), "after {error}, {lie:?}");
    }
    let read = accounts::read(proxied.cluster, &victim.topics, 0);
    assert_eq!(read, victim.follower.stories()[0]);
    victim.finish();
}
