//! The rules of a game that is under way are changed.

use crate::players::{events, produce};
use crate::snapshots::{assert_halts, settings, start, start_offsets, stop, wait_for_snapshots};
use crate::verbs::huntd;
use huntd::edition::load_all;
use huntd::hunt::change::Change;
use huntd::hunt::frames::decode_frame;
use huntd::hunt::rules_file::BUILT_IN;
use huntd::hunt::state::TreasureHunt;
use huntd::kit::update::Update;
use rdkafka::message::Message;
use std::path::{Path, PathBuf};
use support::accounts::{self, Follower, logged_digest, read, replay_by, replay_without};
use support::daemon::Topics;
use support::kafka;

#[test]
fn a_game_goes_on_by_other_rules_and_so_does_every_replay_of_it() {
    let topics = Topics::create(kafka::shared(), "changing-rules", 2);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let files = [folder.path().join("rules.toml"), folder.path().join("rules-2.toml")];
    std::fs::write(&files[0], BUILT_IN).expect("the folder is writable");
    let text = BUILT_IN.replace("health = 100", "health = 90");
    std::fs::write(&files[1], text).expect("the folder is writable");
    let rulebook = load_all::<TreasureHunt>(&files).expect("both are rules");
    let rulesets: Vec<u32> = rulebook.rulesets().collect();
    let with = |files: &[PathBuf]| {
        let mut settings = settings(folder.path());
        settings.push(("rules", format!("files = {files:?}")));
        settings
    };

    produce(kafka::shared(), &topics, &events(2, 20, 1..=30));
    let mut daemon = start(&topics, &with(&files), &[]);
    let mut follower = Follower::new(kafka::shared(), &topics);
    accounts::wait_until_covered(kafka::shared(), &topics, &mut follower, &mut daemon);
    let config = daemon.config();
    let listed = huntd(&["rules", "--config", &config]).output;
    for (ruleset, file) in rulesets.iter().zip(&files) {
        assert!(listed.contains(&format!("{ruleset:<10}  {}", file.display())), "{listed}");
    }
    assert_zones_play_by(&config, &[(rulesets[0], &files[0]); 2]);
    let unknown = huntd(&["rules", "--config", &config, "--switch-to", "7"]);
    assert_eq!(unknown.code, 2, "{}", unknown.errors);
    let second = files[1].to_str().expect("text");
    let changed = huntd(&["rules", "--config", &config, "--switch-to", second]);
    assert_eq!(changed.code, 0, "{}", changed.errors);
    assert!(changed.output.contains(&rulesets[1].to_string()), "{}", changed.output);
    // Who joins now joins by the new rules.
    produce(kafka::shared(), &topics, &events(2, 30, 1..=10));
    accounts::wait_until_covered(kafka::shared(), &topics, &mut follower, &mut daemon);
    assert_zones_play_by(&config, &[(rulesets[1], &files[1]); 2]);
    wait_for_snapshots(&mut daemon, 2);
    daemon.kill9();

    // A start without snapshots goes through the change again; one with them begins behind it.
    let elsewhere = tempfile::tempdir().expect("a temporary folder");
    for (settings_of, is_new) in [(elsewhere.path(), true), (folder.path(), false)] {
        let mut settings = settings(settings_of);
        settings.push(("rules", format!("files = {files:?}")));
        produce(kafka::shared(), &topics, &events(2, 20, 31..=32));
        let mut daemon = start(&topics, &settings, &[]);
        accounts::wait_until_covered(kafka::shared(), &topics, &mut follower, &mut daemon);
        let log = stop(daemon);
        assert!(start_offsets(&log).iter().all(|start| (*start == 0) == is_new), "{log}");
        for partition in 0..2 {
            let (_, counts) = replay_by(kafka::shared(), &topics, partition, &[], &rulebook);
            assert_eq!(logged_digest(&log, partition), counts.digest, "partition {partition}");
        }
    }
    for (partition, story) in (0..).zip(follower.into_stories()) {
        let (replayed, _) = replay_by(kafka::shared(), &topics, partition, &[], &rulebook);
        assert!(story == replayed, "partition {partition}");
        assert_changed(&story.updates, rulesets[1]);
        let records = kafka::shared().client().consume(&topics.output, partition);
        let headers = records.iter().map(|record| {
            decode_frame(record.payload().expect("a frame")).expect("it can be read").0
        });
        // An owner that has ended says so after its frames.
        let last = headers.rev().find(|header| header.next_offset >= 0);
        assert_eq!(last.expect("the output has frames").ruleset, rulesets[1]);
    }

    // Without the new rules a daemon does not guess, whether a snapshot or the input asks for them.
    assert_halts(&topics, &with(&files[..1]), "was made by ruleset");
}

/// `huntd rules --zones` names the rules of each zone, and the file that has them.
fn assert_zones_play_by(config: &str, expected: &[(u32, &PathBuf)]) {
    let listed = huntd(&["rules", "--config", config, "--zones"]);
    assert_eq!(listed.code, 0, "{}", listed.errors);
    let zones: Vec<&str> = listed.output.lines().filter(|line| line.starts_with("zone ")).collect();
    let expected: Vec<String> = (0..)
        .zip(expected)
        .map(|(zone, (ruleset, file)): (u16, _)| {
            format!("zone {zone}: {ruleset:<10}  {}", file.display())
        })
        .collect();
    assert_eq!(zones, expected);
}

/// Players who joined before the change have the health of the first rules. Those who joined after
/// it have the health of the second.
fn assert_changed(updates: &[Update], ruleset: u32) {
    let (mut health_now, mut joined) = (100, [0, 0]);
    for update in updates {
        match update.change() {
            Change::RulesChanged { ruleset: told } => {
                assert_eq!((told, health_now), (ruleset, 100), "it is told once");
                health_now = 90;
            }
            Change::Joined { health, .. } => {
                assert_eq!(health, health_now);
                joined[usize::from(health_now == 90)] += 1;
            }
            _ => {}
        }
    }
    assert_eq!(joined, [10, 5]);
}

/// An input that asks at offset 600 for rules that are in `rules-2.toml` of the folder.
fn input_that_changes(what: &str, folder: &Path) -> (Topics, PathBuf) {
    let topics = Topics::create(kafka::shared(), what, 1);
    let file = folder.join("rules-2.toml");
    let text = BUILT_IN.replace("health = 100", "health = 90");
    std::fs::write(&file, text).expect("the folder is writable");
    let rulebook = load_all::<TreasureHunt>(std::slice::from_ref(&file)).expect("rules");
    let ruleset = rulebook.rulesets().next().expect("a book begins with rules");
    produce(kafka::shared(), &topics, &events(1, 20, 1..=30));
    let change = format!("{{\"type\":\"rules_change\",\"ts_us\":1,\"ruleset\":{ruleset}}}");
    produce(kafka::shared(), &topics, &[(0, change)]);
    produce(kafka::shared(), &topics, &events(1, 20, 31..=32));
    let sentence = format!("the input asks at offset 600 for ruleset {ruleset}");
    assert_halts(&topics, &settings(folder), &sentence);
    // What came before it may be published, and nothing that came after it is.
    assert!(read(kafka::shared(), &topics, 0).next_offset <= 600);
    (topics, file)
}

#[test]
fn a_daemon_that_has_not_got_the_new_rules_halts_where_they_begin_and_goes_on_once_it_has() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (topics, file) = input_that_changes("missing-rules", folder.path());
    let first = folder.path().join("rules.toml");
    std::fs::write(&first, BUILT_IN).expect("the folder is writable");
    let mut known = settings(folder.path());
    known.push(("rules", format!("files = {:?}", [&first, &file])));
    let mut daemon = start(&topics, &known, &[]);
    let mut follower = Follower::new(kafka::shared(), &topics);
    accounts::wait_until_covered(kafka::shared(), &topics, &mut follower, &mut daemon);
    stop(daemon);
    let rulebook = load_all::<TreasureHunt>(&[first, file]).expect("both are rules");
    let (replayed, _) = replay_by(kafka::shared(), &topics, 0, &[], &rulebook);
    assert!(follower.into_stories().remove(0) == replayed);
}

#[test]
fn a_change_to_rules_that_nobody_has_can_be_skipped_for_good() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (topics, _) = input_that_changes("skipped-rules", folder.path());
    let mut daemon = start(&topics, &settings(folder.path()), &["--skip", "0:600"]);
    let mut follower = Follower::new(kafka::shared(), &topics);
    accounts::wait_until_covered(kafka::shared(), &topics, &mut follower, &mut daemon);
    stop(daemon);
    // From then on every owner passes it over, even without the option.
    let elsewhere = tempfile::tempdir().expect("a temporary folder");
    produce(kafka::shared(), &topics, &events(1, 20, 33..=34));
    let mut daemon = start(&topics, &settings(elsewhere.path()), &[]);
    accounts::wait_until_covered(kafka::shared(), &topics, &mut follower, &mut daemon);
    stop(daemon);
    let (replayed, _) = replay_without(kafka::shared(), &topics, 0, &[600]);
    assert!(follower.into_stories().remove(0) == replayed);
    let brokers = kafka::shared().bootstrap();
    let source = ["replay", "--brokers", &brokers, "--topic", &topics.input, "--json"];
    let stopped = huntd(&source);
    assert_eq!(stopped.code, 3, "{}", stopped.errors);
    let passed = huntd(&[&source[..], &["--skip", "0:600"]].concat());
    assert_eq!(passed.code, 0, "{}", passed.errors);
    assert!(passed.output.contains("\"rejects_by_reason\":{\"skipped\":1}"), "{}", passed.output);
    let letter = kafka::shared().client().consume(&topics.dead_letters, 0).remove(0);
    assert_eq!(letter.key(), Some(format!("{}/0/600", topics.input).as_bytes()));
}
