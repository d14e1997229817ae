//! Faults on the way to and from a broker: bytes are late, in pieces, cut off, changed, or do not
//! arrive. No record is lost, and no shard halts.

use crate::damage::assert_halts;
use crate::players::{events, produce};
use crate::security;
use std::os::unix::process::ExitStatusExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use support::PATIENCE;
use support::accounts::{self, Follower, read};
use support::daemon::{Huntd, Topics};
use support::kafka::broker::free_ports;
use support::kafka::proxy::{Frozen, Pace, Proxy, Way};
use support::kafka::secure::SecureCluster;
use support::kafka::{Cluster, Listener, Options};
use support::serving::Serving;

/// Kafka's numbers of requests.
pub(crate) const PRODUCE: i16 = 0;
pub(crate) const FETCH: i16 = 1;
const LIST_OFFSETS: i16 = 2;
pub(crate) const METADATA: i16 = 3;

/// A listener of a broker that clients reach through a proxy alone.
pub(crate) struct Proxied<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) proxy: Proxy,
    address: String,
    encryption: Option<Encryption>,
}

/// Where a listener is, and where clients are told that it is.
#[derive(Clone, Copy)]
pub(crate) struct Places {
    port: u16,
    told: u16,
}

/// Listeners of the broker that the tests share, one for each test that needs no other broker.
/// These tests are in `wire_*.rs`, because tests begin in the order of their names: the first one
/// starts the broker, and it ends with the process.
const SHARED_LISTENERS: [&str; 25] = [
    "P1", "P2", "P3", "P4", "P5", "P6", "P7", "P8", "P9", "P10", "P11", "P12", "P13", "P14", "P15",
    "P16", "P17", "P18", "P19", "P20", "P21", "P22", "P23", "P24", "P25",
];

/// How a daemon reaches the listener if it is one with TLS and SASL.
struct Encryption {
    tls: String,
    sasl: String,
}

impl<'a> Proxied<'a> {
    /// A listener of the shared broker, which no other test has.
    pub(crate) fn shared() -> Proxied<'static> {
        static SHARED: OnceLock<(Cluster, Vec<Places>)> = OnceLock::new();
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let start = || Proxied::cluster(Options::for_tests(), &SHARED_LISTENERS);
        let (cluster, listeners) = SHARED.get_or_init(start);
        let place = listeners.get(NEXT.fetch_add(1, Ordering::Relaxed));
        Proxied::of(cluster, *place.expect("one more is needed in SHARED_LISTENERS"))
    }

    /// A broker with these options and these listeners, which await their proxies.
    pub(crate) fn cluster(
        mut options: Options,
        listeners: &[&'static str],
    ) -> (Cluster, Vec<Places>) {
        let ports = free_ports(2 * listeners.len());
        let places = ports.chunks_exact(2).map(|pair| Places { port: pair[0], told: pair[1] });
        let places: Vec<Places> = places.collect();
        for (name, Places { port, told }) in listeners.iter().zip(&places) {
            options.listeners.push(Listener::local(name, "PLAINTEXT", *port).told_at(*told));
        }
        (Cluster::start(1, &options), places)
    }

    /// Starts the proxy of one of these listeners.
    pub(crate) fn of(cluster: &'a Cluster, Places { port, told }: Places) -> Proxied<'a> {
        let (proxy, address) = (Proxy::start(told, port), format!("127.0.0.1:{told}"));
        Proxied { cluster, proxy, address, encryption: None }
    }

    /// A proxy that sees nothing but TLS records.
    fn encrypted(secure: &'a SecureCluster) -> Proxied<'a> {
        let (proxy, address) = secure.proxy();
        let tls = security::tls(&secure.file("ca.pem"));
        let sasl = security::sasl("SCRAM-SHA-512", &secure.file("password"));
        let encryption = Some(Encryption { tls, sasl });
        Proxied { cluster: &secure.cluster, proxy, address, encryption }
    }

    pub(crate) fn start_daemon(&self, topics: &Topics) -> Huntd {
        let encryption = self.encryption.as_ref();
        let settings = encryption.map_or(vec![], |Encryption { tls, sasl, .. }| {
            vec![("kafka.tls", tls.as_str()), ("kafka.sasl", sasl.as_str())]
        });
        Huntd::start_with(&[&self.address], topics, &settings)
    }

    /// A daemon behind the proxy that has published what is in its input so far.
    pub(crate) fn daemon(&self, what: &str) -> (Topics, Huntd, Follower) {
        let topics = Topics::create(self.cluster, what, 1);
        produce(self.cluster, &topics, &events(1, 200, 1..=5));
        let mut huntd = self.start_daemon(&topics);
        let mut follower = Follower::new(self.cluster, &topics);
        accounts::wait_until_covered(self.cluster, &topics, &mut follower, &mut huntd);
        (topics, huntd, follower)
    }

    /// Rounds of events are published whatever is done meanwhile.
    pub(crate) fn assert_published(
        &self,
        topics: &Topics,
        huntd: &mut Huntd,
        follower: &mut Follower,
        rounds: std::ops::RangeInclusive<u64>,
    ) {
        produce(self.cluster, topics, &events(1, 200, rounds));
        huntd.wait_until("what was ordered", |_| self.proxy.is_done());
        accounts::wait_until_covered(self.cluster, topics, follower, huntd);
    }

    pub(crate) fn finish(&self, topics: &Topics, huntd: Huntd, follower: Follower) {
        let ended = huntd.stop();
        assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
        assert!(!ended.log.contains("the shard has halted"), "{}", ended.log);
        accounts::assert_is_the_replay(self.cluster, topics, follower);
        let (_, replayed) = accounts::replay(self.cluster, topics, 0);
        assert_eq!(accounts::logged_digest(&ended.log, 0), replayed.digest);
    }
}

#[test]
fn bits_that_flip_on_the_way_are_fetched_again_before_a_shard_halts() {
    Proxied::shared().assert_flips_cost_nothing();
}

impl Proxied<'_> {
    /// Bits flip in what is fetched, and in what is published.
    pub(crate) fn assert_flips_cost_nothing(&self) {
        let (topics, mut huntd, mut follower) = self.daemon("flipped");
        for round in 1..4 {
            self.proxy.flip(Way::FromBroker, 1);
            let rounds = 5 * round + 1..=5 * round + 5;
            self.assert_published(&topics, &mut huntd, &mut follower, rounds);
        }
        assert!(huntd.metric("huntd_connections_opened_total") > 1, "no flip was noticed");
        for round in 1..4 {
            self.proxy.flip(Way::ToBroker, 1);
            let rounds = 20 * round + 1..=20 * round + 20;
            self.assert_published(&topics, &mut huntd, &mut follower, rounds);
        }
        self.finish(&topics, huntd, follower);
    }
}

/// Rounds of 200 events: more than the frames and blocks of a shard hold.
const HELD_UP_ROUNDS: u64 = 400;

/// No Fetch of a shard that waits for its output is under way, as of one that sleeps.
#[test]
fn a_shard_whose_input_is_replaced_while_its_output_is_away_halts_before_it_applies_a_record() {
    let proxied = Proxied::shared();
    let (topics, mut huntd, _) = proxied.daemon("created-again-held-up");
    proxied.proxy.freeze(Frozen::AskedLast(PRODUCE));
    produce(proxied.cluster, &topics, &events(1, 200, 6..=HELD_UP_ROUNDS));
    let (old, _) = accounts::replay(proxied.cluster, &topics, 0);
    let received = |huntd: &Huntd| huntd.metric("huntd_records_received_total");
    huntd.wait_until("a shard that reads no more", |huntd| {
        let before = received(huntd);
        std::thread::sleep(Duration::from_millis(500));
        before > 1_000 && received(huntd) == before
    });
    assert!(received(&huntd) < 200 * HELD_UP_ROUNDS, "nothing holds it up");
    let client = proxied.cluster.client();
    client.delete_topic(&topics.input);
    client.create_topic(&topics.input, topics.partitions, &[("retention.ms", "-1")]);
    produce(proxied.cluster, &topics, &events(1, 100, 1..=3 * HELD_UP_ROUNDS));
    let ended = huntd.stop_halted();
    assert!(ended.log.contains("the input topic was deleted and created again"), "{}", ended.log);
    let published = read(proxied.cluster, &topics, 0).updates;
    assert!(old.updates.starts_with(&published), "something of the new input was published");
}

/// The broker is asked for an offset far behind its log, and says so. A client that believes it
/// halts.
#[test]
fn an_offset_that_changes_on_the_way_to_the_broker_is_asked_for_again_before_a_shard_halts() {
    let proxied = Proxied::shared();
    let (topics, mut huntd, mut follower) = proxied.daemon("offset");
    let offset = follower.next_offset(0);
    let wrong = offset | 1 << 40;
    // Requests to commit offsets name it, too.
    proxied.proxy.replace_in_request(FETCH, &offset.to_be_bytes(), &wrong.to_be_bytes());
    huntd.wait_until("the wrong offset", |_| proxied.proxy.is_done());
    let words = "confirming over another connection";
    huntd.wait_until("a line about it", |huntd| huntd.log().contains(words));
    proxied.assert_published(&topics, &mut huntd, &mut follower, 6..=10);
    proxied.finish(&topics, huntd, follower);
}

#[test]
fn lengths_that_no_connection_states_right_halt_the_shard() {
    let proxied = Proxied::shared();
    let (_, huntd, _) = proxied.daemon("lengths");
    proxied.proxy.flip_lengths(usize::MAX);
    assert_halts(huntd, "announces a response of");
}

#[test]
fn a_length_that_one_connection_states_wrong_is_asked_for_again_and_all_goes_on() {
    let proxied = Proxied::shared();
    let (topics, mut huntd, mut follower) = proxied.daemon("length");
    for round in 1..4 {
        let before = huntd.metric("huntd_connections_opened_total");
        proxied.proxy.flip_lengths(1);
        let rounds = 5 * round + 1..=5 * round + 5;
        proxied.assert_published(&topics, &mut huntd, &mut follower, rounds);
        assert!(huntd.metric("huntd_connections_opened_total") > before, "it was not noticed");
    }
    proxied.finish(&topics, huntd, follower);
}

#[test]
fn bytes_that_are_late_in_pieces_or_cut_off_lose_nothing() {
    Proxied::shared().assert_pieces_lose_nothing();
}

impl Proxied<'_> {
    /// Bytes are late, come one by one, or not to their end.
    fn assert_pieces_lose_nothing(&self) {
        let (topics, mut huntd, mut follower) = self.daemon("late");
        let late = Pace::Delayed(Duration::from_millis(300));
        let mut round = 6;
        for way in [Way::ToBroker, Way::FromBroker] {
            for pace in [late, Pace::Dribbled, Pace::Whole] {
                self.proxy.pace(way, pace);
                if pace == Pace::Whole {
                    self.proxy.cut(way, 3);
                }
                let rounds = round..=round + 4;
                self.assert_published(&topics, &mut huntd, &mut follower, rounds);
                round += 5;
            }
        }
        self.finish(&topics, huntd, follower);
    }
}

/// A link of half a megabit a second takes longer for a full answer than a silent broker is waited
/// for. A client that gives up asks for the same again, for ever.
#[test]
fn an_answer_that_takes_a_slow_link_longer_than_a_silent_broker_is_waited_for_is_received() {
    Proxied::shared().assert_a_slow_link_is_waited_for();
}

#[test]
fn an_answer_in_tls_records_on_a_slow_link_is_received() {
    Proxied::encrypted(&security::shared()).assert_a_slow_link_is_waited_for();
}

impl Proxied<'_> {
    /// Answers of up to a megabyte come at 64 KiB a second.
    fn assert_a_slow_link_is_waited_for(&self) {
        let (topics, mut huntd, mut follower) = self.daemon("slow");
        let before = huntd.metric("huntd_connections_opened_total");
        self.proxy.pace(Way::FromBroker, Pace::Delayed(Duration::from_secs(1)));
        self.assert_published(&topics, &mut huntd, &mut follower, 6..=70);
        assert_eq!(huntd.metric("huntd_connections_opened_total"), before, "it was given up");
        self.proxy.pace(Way::FromBroker, Pace::Whole);
        self.finish(&topics, huntd, follower);
    }
}

/// The connection stays open, and the kernel of the other side acknowledges what it is sent; but
/// nothing is answered any more.
#[test]
fn a_broker_that_falls_silent_is_asked_on_another_connection() {
    Proxied::shared().assert_silence_ends(Frozen::AskedLast(FETCH));
}

impl Proxied<'_> {
    /// Connections of this kind fall silent.
    fn assert_silence_ends(&self, which: Frozen) {
        let (topics, mut huntd, mut follower) = self.daemon("silent");
        let before = huntd.metric("huntd_connections_opened_total");
        self.proxy.freeze(which);
        self.assert_published(&topics, &mut huntd, &mut follower, 6..=10);
        assert!(huntd.metric("huntd_connections_opened_total") > before);
        self.finish(&topics, huntd, follower);
    }
}

#[test]
fn a_flipped_bit_of_a_tls_record_costs_a_connection_and_nothing_else() {
    Proxied::encrypted(&security::shared()).assert_flips_cost_nothing();
}

#[test]
fn tls_records_that_are_late_in_pieces_or_cut_off_lose_nothing() {
    Proxied::encrypted(&security::shared()).assert_pieces_lose_nothing();
}

#[test]
fn a_broker_that_falls_silent_on_tls_connections_is_asked_on_others() {
    Proxied::encrypted(&security::shared()).assert_silence_ends(Frozen::HaveRead);
}

/// The header, the longest other part before the plaintext, a short answer, and the tag.
const SPLIT_PLACES: usize = 150;

#[test]
fn tls_records_that_arrive_in_two_parts_are_opened_wherever_they_are_split() {
    let secure = security::shared();
    let proxied = Proxied::encrypted(&secure);
    let (topics, mut huntd, mut follower) = proxied.daemon("split");
    let before = huntd.metric("huntd_connections_opened_total");
    proxied.proxy.pace(Way::FromBroker, Pace::Split);
    let end = Instant::now() + PATIENCE;
    let mut round = 5;
    while proxied.proxy.split_places() < SPLIT_PLACES {
        assert!(Instant::now() < end, "too few answers:\n{}", huntd.log());
        round += 1;
        proxied.assert_published(&topics, &mut huntd, &mut follower, round..=round);
    }
    assert_eq!(huntd.metric("huntd_connections_opened_total"), before, "a record was refused");
    proxied.finish(&topics, huntd, follower);
}

/// A listener with SASL answers no client that does not authenticate; a broker that is stopping
/// leaves only one question without an answer.
#[test]
fn a_start_whose_first_question_is_not_answered_asks_again() {
    let proxied = Proxied::shared();
    proxied.proxy.withhold(METADATA, 1);
    let (topics, huntd, follower) = proxied.daemon("unanswered");
    assert!(proxied.proxy.is_done());
    proxied.finish(&topics, huntd, follower);
}

#[test]
fn a_zone_whose_ends_nobody_names_when_pages_begin_is_shown_once_somebody_does() {
    let proxied = Proxied::shared();
    let (topics, huntd, follower) = proxied.daemon("ends");
    proxied.proxy.withhold(LIST_OFFSETS, usize::MAX);
    let serving = Serving::start(&huntd);
    serving.wait_for("waiting for the brokers to say where");
    proxied.proxy.withhold(LIST_OFFSETS, 0);
    serving.wait_for("loaded: 1 of 1");
    drop(serving);
    proxied.finish(&topics, huntd, follower);
}

/// librdkafka 2.12.1 reads beyond such answers, and the process crashes: see decision 031. Nothing
/// is lost by that.
#[test]
fn a_daemon_that_malformed_answers_have_ended_goes_on_with_its_next_start() {
    let proxied = Proxied::shared();
    let zeros = |_: &Topics| proxied.proxy.zero_answers(Some(METADATA));
    proxied.assert_outlived_by_the_next_start("zeros", zeros, || proxied.proxy.zero_answers(None));
    let unnamed = |topics: &Topics| {
        let (named, unnamed) = questions(&topics.output);
        proxied.proxy.replace_each(Way::ToBroker, &named, &unnamed);
    };
    let no_more = || proxied.proxy.replace_none(Way::ToBroker);
    proxied.assert_outlived_by_the_next_start("unnamed", unnamed, no_more);
}

/// A topic in a Metadata request of version 12: by its name, and by an id that no topic has. The
/// name's bytes are in a tagged field then, which brokers pass over. The answer has no name.
fn questions(topic: &str) -> (Vec<u8>, Vec<u8>) {
    let length = u8::try_from(topic.len()).expect("a short name");
    let named = [&[0; 16], &[length + 1][..], topic.as_bytes(), &[0]].concat();
    let tagged = [0, 1, 9, length - 2];
    let rest = &named[16 + tagged.len()..];
    let unnamed = [&[7; 16], &tagged[..], rest].concat();
    (named, unnamed)
}

impl Proxied<'_> {
    /// The harm to answers ends the daemon. Its next start, without the harm, goes on.
    fn assert_outlived_by_the_next_start(
        &self,
        what: &str,
        harm: impl Fn(&Topics),
        end_harm: impl Fn(),
    ) {
        let (topics, mut huntd, mut follower) = self.daemon(what);
        harm(&topics);
        produce(self.cluster, &topics, &events(1, 200, 6..=10));
        let end = Instant::now() + PATIENCE;
        while !huntd.has_ended() {
            assert!(Instant::now() < end, "librdkafka stands it: change this and decision 031");
            std::thread::sleep(Duration::from_millis(50));
        }
        let ended = huntd.wait();
        assert!(ended.status.signal().is_some(), "{}:\n{}", ended.status, ended.log);
        end_harm();
        let mut huntd = self.start_daemon(&topics);
        self.assert_published(&topics, &mut huntd, &mut follower, 11..=15);
        self.finish(&topics, huntd, follower);
    }
}

/// Until then only huntd's own clients have asked, and they do not read beyond the end of an
/// answer.
#[test]
fn a_start_waits_for_answers_that_are_well_formed() {
    let proxied = Proxied::shared();
    let topics = Topics::create(proxied.cluster, "zeros-at-start", 1);
    produce(proxied.cluster, &topics, &events(1, 200, 1..=5));
    proxied.proxy.zero_answers(Some(METADATA));
    let mut huntd = proxied.start_daemon(&topics);
    let mut follower = Follower::new(proxied.cluster, &topics);
    huntd.wait_until("a line about it", |huntd| {
        let log = huntd.log();
        log.contains("waiting for the brokers") && log.contains("Metadata answer is malformed")
    });
    // Meanwhile the threads that ask repeatedly ask a few times more.
    std::thread::sleep(Duration::from_secs(3));
    assert!(huntd.get("/readyz").contains("huntd waits for a broker that answers"));
    proxied.proxy.zero_answers(None);
    accounts::wait_until_covered(proxied.cluster, &topics, &mut follower, &mut huntd);
    proxied.finish(&topics, huntd, follower);
}
