//! A daemon that cannot start says why in one sentence, and with an exit code from the list.

use std::net::TcpListener;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};
use support::PATIENCE;
use support::daemon::{Huntd, Topics};
use support::kafka::acl::{self, Resource};
use support::kafka::{self, Cluster, Options, unique_name};
use support::process;

/// Waits for the daemon's end: its status and its sentence.
fn ending(huntd: Huntd) -> (ExitStatus, String) {
    let ended = huntd.wait();
    let sentences: Vec<&str> =
        ended.log.lines().filter(|line| line.starts_with("huntd: ")).collect();
    assert_eq!(sentences.len(), 1, "one sentence: {}", ended.log);
    (ended.status, sentences[0].to_owned())
}

pub(crate) fn assert_ends(huntd: Huntd, code: i32, words: &str) {
    let (status, sentence) = ending(huntd);
    assert_eq!(status.code(), Some(code), "{status}: {sentence}");
    assert!(sentence.contains(words), "`{words}` is not in: {sentence}");
}

#[test]
fn a_broker_whose_name_is_unknown_ends_the_daemon_with_code_4() {
    let topics = Topics::create(kafka::shared(), "unknown-broker", 1);
    let huntd = Huntd::start_with(&["no-such-host.invalid:9092"], &topics, &[]);
    assert_ends(huntd, 4, "no-such-host.invalid:9092");
}

#[test]
fn a_broker_that_is_not_there_is_waited_for_until_a_stop() {
    let topics = Topics::create(kafka::shared(), "no-broker", 1);
    let mut huntd = Huntd::start_with(&["127.0.0.1:1"], &topics, &[]);
    huntd
        .wait_until("a line that says so", |huntd| huntd.log().contains("waiting for the brokers"));
    assert!(huntd.get("/readyz").contains("huntd waits for a broker that answers"));
    let ended = huntd.stop();
    assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
}

#[test]
fn a_broker_that_takes_connections_and_says_nothing_is_named_while_it_is_waited_for() {
    let topics = Topics::create(kafka::shared(), "silent-broker", 1);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it listens").to_string();
    let mut huntd = Huntd::start_with(&[&address], &topics, &[]);
    // The try itself ends much later.
    huntd.wait_until("a line about it", |huntd| huntd.log().contains("for 4 s they have owed"));
    assert!(huntd.log().contains(&format!("(asked first: {address})")), "{}", huntd.log());
    assert!(!huntd.log().contains("does not answer"), "{}", huntd.log());
    let ended = huntd.stop();
    assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
}

#[test]
fn a_missing_topic_ends_the_daemon_with_code_5() {
    type Rename = fn(&mut Topics, String);
    let renames: [Rename; 3] = [
        |topics, name| topics.input = name,
        |topics, name| topics.output = name,
        |topics, name| topics.dead_letters = name,
    ];
    for rename in renames {
        let mut topics = Topics::create(kafka::shared(), "missing", 1);
        let name = unique_name("nowhere");
        rename(&mut topics, name.clone());
        assert_ends(Huntd::start(kafka::shared(), &topics, &[]), 5, &name);
    }
}

#[test]
fn partition_counts_that_differ_end_the_daemon_with_code_5() {
    let mut topics = Topics::create(kafka::shared(), "counts", 2);
    topics.output.push_str("-three");
    kafka::shared().client().create_topic(&topics.output, 3, &[]);
    let huntd = Huntd::start(kafka::shared(), &topics, &[]);
    assert_ends(huntd, 5, "has 3 partitions");
}

#[test]
fn a_topic_whose_records_go_by_their_keys_ends_the_daemon_with_code_5() {
    type Name = fn(&mut Topics) -> &mut String;
    let names: [(Name, i32); 3] = [
        (|topics| &mut topics.input, 2),
        (|topics| &mut topics.output, 2),
        (|topics| &mut topics.dead_letters, 1),
    ];
    for (name, partitions) in names {
        let mut topics = Topics::create(kafka::shared(), "compacted", 2);
        let name = name(&mut topics);
        name.push_str("-by-key");
        let compacted = [("cleanup.policy", "compact")];
        kafka::shared().client().create_topic(name, partitions, &compacted);
        let words = format!("`{name}` has cleanup.policy = compact; set it to delete");
        assert_ends(Huntd::start(kafka::shared(), &topics, &[]), 5, &words);
    }
}

#[test]
fn a_right_that_is_missing_ends_the_daemon_with_code_6() {
    let options = Options { properties: acl::properties(), ..Options::for_tests() };
    let cluster = Cluster::start(1, &options);
    type Name = fn(&Topics) -> String;
    let denied: [(Resource, Name); 4] = [
        (Resource::Topic, |topics| topics.input.clone()),
        (Resource::Topic, |topics| topics.output.clone()),
        (Resource::Topic, |topics| topics.dead_letters.clone()),
        (Resource::Group, |topics| topics.group().to_owned()),
    ];
    for (resource, name) in denied {
        let topics = Topics::create(&cluster, "denied", 1);
        let name = name(&topics);
        acl::deny(&cluster.bootstrap(), resource, &name);
        assert_ends(Huntd::start(&cluster, &topics, &[]), 6, &format!("`{name}`"));
    }
}

/// Starts the daemon with more and more of something, until it is enough. Before that each start
/// ends with one sentence and code 11.
fn assert_ends_with_code_11_below_some_number(
    numbers: impl Iterator<Item = u32>,
    mut start: impl FnMut(u32) -> Huntd,
) {
    for (ends, number) in numbers.enumerate() {
        let mut huntd = start(number);
        let end = Instant::now() + PATIENCE;
        while !huntd.has_ended() && !huntd.log().contains("\"live\"") {
            assert!(Instant::now() < end, "{number} of them:\n{}", huntd.log());
            std::thread::sleep(Duration::from_millis(20));
        }
        if !huntd.has_ended() {
            assert!(ends > 0, "some number must be too few");
            return;
        }
        let (status, sentence) = ending(huntd);
        assert_eq!(status.code(), Some(11), "{number} of them: {sentence}");
    }
    panic!("no number is enough");
}

/// Once it plays, it would wait for a connection for which it has no descriptor.
#[test]
fn too_few_file_descriptors_end_the_daemon_with_code_11_before_it_plays() {
    let topics = Topics::create(kafka::shared(), "descriptors", 1);
    assert_ends_with_code_11_below_some_number((8..200).step_by(3), |descriptors| {
        Huntd::start_with_descriptors(kafka::shared(), &topics, descriptors)
    });
}

#[test]
fn too_few_threads_end_the_daemon_with_code_11_wherever_they_run_out() {
    if !process::can_be_limited() {
        return;
    }
    let topics = Topics::create(kafka::shared(), "threads", 1);
    assert_ends_with_code_11_below_some_number(1..80, |threads| {
        Huntd::start_with_threads(kafka::shared(), &topics, threads)
    });
}

#[test]
fn a_wrong_configuration_ends_the_daemon_with_code_3() {
    let topics = Topics::create(kafka::shared(), "config", 1);
    let huntd = Huntd::start(kafka::shared(), &topics, &[("snapshot", "kepe = 5")]);
    assert_ends(huntd, 3, "kepe");
    let huntd = Huntd::start(kafka::shared(), &topics, &[("snapshot", "keep = 0")]);
    assert_ends(huntd, 3, "snapshot.keep");
}

#[test]
fn a_wrong_command_line_ends_with_code_2() {
    let ended = Command::new(env!("CARGO_BIN_EXE_huntd")).args(["run", "--confg"]).output();
    let ended = ended.expect("the daemon is started");
    assert_eq!(ended.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&ended.stderr).contains("--confg"));
}
