//! The tools as a user calls them, against a real broker.

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use support::accounts::{self, Follower, logged_digest, read, replay};
use support::daemon::{Huntd, Topics};
use support::kafka::{self, unique_name};
use support::process;

/// What a verb left behind.
pub(crate) struct Ended {
    pub code: i32,
    pub output: String,
    pub errors: String,
}

/// Runs huntd with these arguments to its end.
pub(crate) fn huntd(arguments: &[&str]) -> Ended {
    let output = Command::new(env!("CARGO_BIN_EXE_huntd"))
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("huntd is started");
    let text = |bytes| String::from_utf8(bytes).expect("huntd prints text");
    Ended {
        code: output.status.code().expect("huntd exits by itself"),
        output: text(output.stdout),
        errors: text(output.stderr),
    }
}

pub(crate) fn bootstrap() -> String {
    kafka::shared().bootstrap()
}

/// A configuration that names three topics, in a folder of its own.
struct Setup {
    _folder: tempfile::TempDir,
    file: String,
    input: String,
}

impl Setup {
    fn new(what: &str) -> Setup {
        let input = unique_name(what);
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("huntd.toml");
        let text = format!(
            "[kafka]\nbrokers = [\"{}\"]\ninput_topic = \"{input}\"\n\
             output_topic = \"{input}-updates\"\ndead_letter_topic = \"{input}-dead\"\n\
             [service]\nlisten = \"127.0.0.1:0\"\n[serve]\nlisten = \"127.0.0.1:0\"\n",
            bootstrap()
        );
        std::fs::write(&file, text).expect("the configuration is written");
        let file = file.to_str().expect("the path is text").to_owned();
        Setup { _folder: folder, file, input }
    }

    fn create(&self, suffix: &str, partitions: i32, settings: &[(&str, &str)]) {
        let name = format!("{}{suffix}", self.input);
        kafka::shared().client().create_topic(&name, partitions, settings);
    }

    fn run(&self, arguments: &[&str]) -> Ended {
        huntd(&[arguments, &["--config", &self.file]].concat())
    }

    /// Everything wrong with the topics, in one sentence, and the exit code for topics.
    fn assert_refused(&self, wanted: &[&str]) {
        for verb in [&["topics", "--check"][..], &["topics"], &["check"]] {
            let ended = self.run(verb);
            assert_eq!(ended.code, 5, "{verb:?}: {}{}", ended.output, ended.errors);
            assert_eq!(ended.errors.lines().count(), 1, "{verb:?}: {}", ended.errors);
            for wanted in wanted {
                assert!(ended.errors.contains(wanted), "{verb:?}: {}", ended.errors);
            }
        }
    }
}

#[test]
fn topics_are_created_as_they_are_checked_and_are_only_checked_when_they_are_there() {
    let setup = Setup::new("topics");
    for verb in [&["topics", "--check"][..], &["check"]] {
        let ended = setup.run(verb);
        assert_eq!(ended.code, 5, "{}", ended.errors);
        let names = format!("create `{0}`, `{0}-updates`, `{0}-dead` with", setup.input);
        assert!(ended.errors.contains(&names), "{}", ended.errors);
        assert!(ended.errors.contains(" --partitions K --replicas N`: "), "{}", ended.errors);
        assert_eq!(ended.errors.lines().count(), 1, "{}", ended.errors);
    }
    let ended = setup.run(&["topics", "--partitions", "3"]);
    assert_eq!(ended.code, 0, "{}", ended.errors);
    assert_eq!(ended.output.matches("created  3 partitions").count(), 3, "{}", ended.output);
    assert!(ended.errors.contains("create them with `--replicas 3`"), "{}", ended.errors);
    // Another number would be for topics to create, and all of them exist.
    for verb in [&["topics", "--partitions", "7"][..], &["topics", "--check"], &["check"]] {
        let ended = setup.run(verb);
        assert_eq!(ended.code, 0, "{verb:?}: {}", ended.errors);
        assert_eq!(ended.output.matches("checked  3 partitions").count(), 3, "{}", ended.output);
        assert!(!ended.output.contains("created"), "{}", ended.output);
        let told = ended.errors.matches("--partitions 7 is for new topics").count();
        assert_eq!(told, if verb.contains(&"7") { 3 } else { 0 }, "{}", ended.errors);
    }
}

/// Runs huntd with nobody who reads what it prints, and returns its exit code.
pub(crate) fn unread(arguments: &[&str]) -> Option<i32> {
    process::run_unread(env!("CARGO_BIN_EXE_huntd"), arguments)
}

#[test]
fn a_verb_that_nobody_reads_does_all_that_it_does_and_gives_its_verdict() {
    let setup = Setup::new("unread");
    let of = ["--config", &setup.file];
    assert_eq!(unread(&[&["topics", "--partitions", "3"], &of[..]].concat()), Some(0));
    let ended = setup.run(&["topics", "--check"]);
    assert_eq!(ended.code, 0, "{}", ended.errors);
    let ruleset = setup.run(&["rules"]).output;
    let ruleset = ruleset.split_whitespace().next().expect("the built-in rules");
    assert_eq!(unread(&[&["rules", "--switch-to", ruleset], &of[..]].concat()), Some(0));
    assert_eq!(kafka::shared().client().ends(&setup.input, 3), [1; 3]);
    setup.create("-other", 2, &[]);
    let other = format!("kafka.output_topic={}-other", setup.input);
    for verb in [&["topics", "--check"][..], &["topics"], &["check"]] {
        let code = unread(&[verb, &of[..], &["--set", &other]].concat());
        assert_eq!(code, Some(5), "{verb:?}");
    }
}

#[test]
fn an_input_that_is_missing_beside_its_output_may_have_another_name() {
    let setup = Setup::new("misnamed");
    let ended = setup.run(&["topics", "--partitions", "3"]);
    assert_eq!(ended.code, 0, "{}", ended.errors);
    let other = format!("{}-misspelled", setup.input);
    for verb in [&["topics", "--check"][..], &["check"]] {
        let ended = setup.run(&[verb, &["--set", &format!("kafka.input_topic={other}")]].concat());
        assert_eq!(ended.code, 5, "{}", ended.errors);
        let wanted = format!("correct kafka.input_topic, or create `{other}` with ");
        assert!(ended.errors.contains(&wanted), "{}", ended.errors);
        assert!(!ended.errors.contains("must have"), "the output is blamed: {}", ended.errors);
    }
}

#[test]
fn created_topics_are_there_when_the_verb_has_ended() {
    // Whether a broker has heard of a topic by then is chance: more often than not it has not.
    for _ in 0..8 {
        let setup = Setup::new("at-once");
        let ended = setup.run(&["topics", "--partitions", "8"]);
        assert_eq!(ended.code, 0, "{}", ended.errors);
        let ended = setup.run(&["topics", "--check"]);
        assert_eq!(ended.code, 0, "{}{}", ended.output, ended.errors);
    }
}

#[test]
fn check_warns_of_what_may_go_well_or_fails_for_it() {
    let setup = Setup::new("warned");
    assert_eq!(setup.run(&["topics", "--partitions", "1"]).code, 0);
    let output = format!("{}-updates", setup.input);
    kafka::shared().client().produce(&output, [(0, &b""[..], &b"no frame"[..])]);
    let brokers = format!("kafka.brokers={},127.0.0.1:1", bootstrap());
    let single = format!(
        "huntd: these topics have one replica: `{0}`, `{output}`, `{0}-dead`: acknowledged",
        setup.input
    );
    let warnings = [
        &single,
        "huntd: another broker answers, but 127.0.0.1:1 cannot be reached (",
        "huntd: 1 of the last records of the output topic cannot be read, the first at offset 0 ",
    ];
    for (denied, code) in [(&[][..], 0), (&["--deny-warnings"], 3)] {
        let ended = setup.run(&[&["check", "--set", &brokers], denied].concat());
        assert_eq!(ended.code, code, "{}", ended.errors);
        assert_eq!(ended.errors.lines().count(), warnings.len(), "{}", ended.errors);
        for warning in warnings {
            assert!(ended.errors.contains(warning), "{}", ended.errors);
        }
    }
    assert_eq!(setup.run(&["rules", "--zones"]).errors.matches(warnings[2]).count(), 1);
}

#[test]
fn a_partition_count_that_is_not_the_inputs_is_refused() {
    let setup = Setup::new("counts");
    setup.create("", 4, &[("message.timestamp.after.max.ms", "60000")]);
    setup.create("-updates", 3, &[]);
    setup.create("-dead", 1, &[]);
    setup.assert_refused(&["has 3 partitions and must have 4, as the input topic has"]);
}

#[test]
fn settings_that_lose_or_change_records_are_refused_all_in_one_sentence() {
    let setup = Setup::new("settings");
    setup.create("", 2, &[("message.timestamp.type", "LogAppendTime")]);
    setup.create("-updates", 2, &[("cleanup.policy", "compact"), ("max.message.bytes", "1000")]);
    setup.create("-dead", 1, &[("max.message.bytes", "1048587")]);
    setup.assert_refused(&[
        "message.timestamp.type = LogAppendTime; set it to CreateTime",
        "cleanup.policy = compact; set it to delete",
        "max.message.bytes = 1000; set it to at least",
        // The longest letter is what a topic with default settings takes.
        "-dead` has max.message.bytes = 1048587; set it to at least 1048588",
    ]);
}

#[test]
fn topics_and_brokers_that_are_not_there_are_one_sentence_each() {
    let missing = unique_name("missing");
    for verb in ["load", "tap", "replay"] {
        let ended = huntd(&[verb, "--brokers", &bootstrap(), "--topic", &missing]);
        assert_eq!(ended.code, 5, "{verb}: {}", ended.errors);
        assert!(ended.errors.contains("does not exist; create it with `huntd topics`"));
        let ended = huntd(&[verb, "--brokers", &bootstrap(), "--topic", "no topic's name"]);
        assert_eq!(ended.code, 2, "{verb}: {}", ended.errors);
        // Port 1 is nobody's.
        let ended = huntd(&[verb, "--brokers", "127.0.0.1:1", "--topic", &missing]);
        assert_eq!(ended.code, 4, "{verb}: {}", ended.errors);
        assert_eq!(ended.errors.lines().count(), 1, "{verb}: {}", ended.errors);
    }
}

#[test]
fn a_load_has_its_rate_and_its_timestamps_must_not_be_in_the_future() {
    let topics = Topics::create(kafka::shared(), "rate", 2);
    let to = ["load", "--brokers", &bootstrap(), "--topic", &topics.input];
    let began = std::time::Instant::now();
    let ended = huntd(&[&to[..], &["--events", "500", "--rate", "500"]].concat());
    assert_eq!(ended.code, 0, "{}", ended.errors);
    assert!(ended.output.starts_with("500 events in 2 partitions"), "{}", ended.output);
    // The last event is due 499/500 of a second after the first: no load may be quicker.
    assert!(began.elapsed().as_millis() >= 998);
    let counts = |partition| kafka::shared().client().watermarks(&topics.input, partition).1;
    assert_eq!(counts(0) + counts(1), 500);
    let settings = [("message.timestamp.after.max.ms", "60000")];
    let strict = unique_name("strict");
    kafka::shared().client().create_topic(&strict, 1, &settings);
    let to = ["load", "--brokers", &bootstrap(), "--topic", &strict, "--events", "10"];
    let ended = huntd(&[&to[..], &["--base-ms", "4000000000000"]].concat());
    assert_eq!(ended.code, 5, "{}", ended.errors);
    assert!(ended.errors.contains("a time that is not in the future"), "{}", ended.errors);
}

/// One partition a codec: whatever the broker stores, the daemon and the tools read the same.
#[test]
fn every_codec_gives_the_same_digest_through_the_daemon_and_through_replay() {
    let mut digests = Vec::new();
    for codec in ["none", "gzip", "snappy", "lz4", "zstd"] {
        let topics = Topics::create(kafka::shared(), codec, 1);
        let to = ["load", "--brokers", &bootstrap(), "--topic", &topics.input];
        let what = ["--events", "20000", "--base-ms", "1767225600000", "--compression", codec];
        let ended = huntd(&[&to[..], &what].concat());
        assert_eq!(ended.code, 0, "{codec}: {}", ended.errors);
        let from = ["replay", "--brokers", &bootstrap(), "--topic", &topics.input, "--json"];
        let ended = huntd(&from);
        assert_eq!(ended.code, 0, "{codec}: {}", ended.errors);
        let report: Value = serde_json::from_str(&ended.output).expect("one JSON object");
        let digest = report["partitions"]["0"]["digest"].as_str().expect("a digest").to_owned();

        let (story, counts) = replay(kafka::shared(), &topics, 0);
        let mut daemon = Huntd::start(kafka::shared(), &topics, &[]);
        let mut follower = Follower::new(kafka::shared(), &topics);
        accounts::wait_until_covered(kafka::shared(), &topics, &mut follower, &mut daemon);
        let ended = daemon.stop();
        assert!(ended.status.success(), "{codec}: {}", ended.log);
        assert_eq!(read(kafka::shared(), &topics, 0), story, "{codec}");
        assert_eq!(logged_digest(&ended.log, 0), counts.digest, "{codec}");
        assert_eq!(digest, format!("{:016x}", counts.digest), "{codec}");
        assert_eq!(report["total"]["events"], 20_000);
        digests.push(digest);
    }
    assert!(digests.iter().all(|digest| *digest == digests[0]), "{digests:?}");
}

/// A topic of updates that a daemon made.
pub(crate) fn published(what: &str) -> (Topics, u64) {
    let topics = Topics::create(kafka::shared(), what, 2);
    let to = ["load", "--brokers", &bootstrap(), "--topic", &topics.input];
    let ended = huntd(&[&to[..], &["--events", "5000", "--players", "50"]].concat());
    assert_eq!(ended.code, 0, "{}", ended.errors);
    let wanted = [0, 1].map(|partition| replay(kafka::shared(), &topics, partition).0);
    let mut daemon = Huntd::start(kafka::shared(), &topics, &[]);
    let mut follower = Follower::new(kafka::shared(), &topics);
    accounts::wait_until_covered(kafka::shared(), &topics, &mut follower, &mut daemon);
    assert!(daemon.stop().status.success());
    let updates = wanted.iter().map(|story| story.updates.len() as u64).sum();
    (topics, updates)
}

#[test]
fn a_tap_prints_every_update_once_as_json_and_stops_where_it_is_told() {
    let (topics, updates) = published("tap");
    let bootstrap = bootstrap();
    let tap = |arguments: &[&str]| {
        let from = ["tap", "--brokers", &bootstrap, "--topic", &topics.output];
        let ended = huntd(&[&from[..], arguments].concat());
        assert_eq!(ended.code, 0, "{arguments:?}: {}", ended.errors);
        let parse = |line| serde_json::from_str(line).expect("every line is JSON");
        ended.output.lines().map(parse).collect::<Vec<Value>>()
    };
    let mut lines = tap(&["--from", "start", "--until-end"]);
    assert!(lines.iter().all(|line| line["kind"] != "clock"), "only if it is asked for");
    let of_one = lines.iter().filter(|line| line["partition"] == 1).count();
    let clocks = tap(&["--from", "start", "--until-end", "--kind", "clock"]);
    assert!(!clocks.is_empty() && clocks.iter().all(|line| line["kind"] == "clock"));
    lines.extend(clocks);
    lines.sort_by_key(|line| line["number"].as_u64());
    assert_eq!(lines.len() as u64, updates);
    let mut next = [0, 0];
    for line in &lines {
        let next = &mut next[line["partition"].as_u64().expect("a number") as usize];
        assert_eq!(line["number"], *next, "dense by number");
        assert!(line["kind"].is_string() && line["player_id"].is_string(), "{line}");
        *next += 1;
    }
    assert!(next[0] > 0 && next[1] > 0);
    assert_eq!(tap(&["--from", "start", "--count", "7"]).len(), 7);
    let one = tap(&["--from", "start", "--until-end", "--partition", "1"]);
    assert!(one.len() == of_one && one.iter().all(|line| line["partition"] == 1));
    // A reader that comes later takes what follows an owner's next fence, with the same numbers.
    let late = tap(&["--from", "1", "--until-end", "--partition", "1"]);
    assert!(one.ends_with(&late));
    // No owner takes a partition any more, so there is no further fence to begin at.
    assert!(tap(&["--from", "999999", "--until-end"]).is_empty());
    let raw = tap(&["--from", "start", "--until-end", "--raw", "--partition", "0"]);
    assert_eq!(raw[0]["kind"], "fence");
    let chain = read(kafka::shared(), &topics, 0).chain;
    // The owner says last that it has ended.
    let is_frame = |record: &&Value| record["kind"] != "fence";
    let last = raw.iter().rfind(is_frame).expect("there are frames");
    assert_eq!(last["chain"], format!("{chain:016x}"), "as in frames and replays");
    let counts = raw.iter().map(|line| line["count"].as_u64().expect("a number"));
    assert_eq!(counts.sum::<u64>(), next[0] as u64);
}

#[test]
fn a_tap_whose_reader_goes_away_ends_quietly() {
    let (topics, _) = published("pipe");
    let mut child = Command::new(env!("CARGO_BIN_EXE_huntd"))
        .args(["tap", "--brokers", &bootstrap(), "--topic", &topics.output, "--from", "start"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("huntd is started");
    let mut first = String::new();
    let mut pipe = BufReader::new(child.stdout.take().expect("a pipe"));
    pipe.read_line(&mut first).expect("a line comes");
    assert!(first.starts_with('{'), "{first}");
    drop(pipe);
    let output = child.wait_with_output().expect("huntd ends");
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn reading_a_topic_of_another_kind_says_so_and_does_not_end_well() {
    let topics = Topics::create(kafka::shared(), "mistaken", 1);
    let to = ["load", "--brokers", &bootstrap(), "--topic", &topics.input, "--events", "50"];
    assert_eq!(huntd(&to).code, 0);
    let from = ["tap", "--brokers", &bootstrap(), "--topic", &topics.input, "--from", "start"];
    // It does not wait for frames.
    let ended = huntd(&from);
    assert_eq!((ended.code, ended.output.as_str()), (5, ""));
    assert_eq!(ended.errors.lines().count(), 1, "{}", ended.errors);
    let sentence = "holds records, and the newest are no frames; name the output topic";
    assert!(ended.errors.contains(sentence), "{}", ended.errors);
    let letters = [(0, b"".as_slice(), b"no event".as_slice())];
    kafka::shared().client().produce(&topics.dead_letters, letters);
    let from = ["replay", "--brokers", &bootstrap(), "--topic", &topics.dead_letters];
    let ended = huntd(&from);
    assert_eq!(ended.code, 5, "{}", ended.errors);
    assert!(ended.errors.contains("none of them is an event; name the input topic"));
}

/// What each verb asks for at its start, and not more, is enough for one broker.
#[test]
fn verbs_that_have_the_room_they_ask_for_find_all_they_need() {
    if !process::can_be_limited() {
        return;
    }
    let setup = Setup::new("room");
    let with = |verb, further: &[&str]| {
        let arguments = [&[verb, "--config", &setup.file], further].concat();
        arguments.into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    for limit in ["--nofile=129", "--nproc=33"] {
        for arguments in [
            with("topics", &["--partitions", "2"]),
            with("check", &[]),
            with("load", &["--events", "2000", "--players", "50"]),
            with("replay", &["--topic", &setup.input]),
            with("rules", &["--zones"]),
            with("tap", &["--from", "start", "--until-end"]),
        ] {
            let program = env!("CARGO_BIN_EXE_huntd");
            let ended = process::limited(limit, program).args(&arguments).output();
            let ended = ended.expect("prlimit runs");
            let said = String::from_utf8_lossy(&ended.stderr);
            assert!(ended.status.success(), "{limit} {arguments:?}: {said}");
        }
    }
}
