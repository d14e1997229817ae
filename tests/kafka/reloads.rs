//! SIGHUP: what a running daemon, and a serving process, reads again, and what it refuses.

use crate::players::{events, produce};
use crate::verbs::huntd;
use huntd::edition::load_all;
use huntd::hunt::rules_file::BUILT_IN;
use huntd::hunt::state::TreasureHunt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use support::PATIENCE;
use support::accounts::{self, Follower, replay_by};
use support::daemon::{Huntd, Topics};
use support::kafka;
use support::notified::Systemd;
use support::scrape::get;
use support::serving::Serving;

const PARTITIONS: i32 = 2;

/// The rules as they are built in, other rules, and rules that no game can be played by.
fn write_rules(folder: &Path) -> [PathBuf; 3] {
    let others = BUILT_IN.replace("health = 100", "health = 90");
    let unplayable = BUILT_IN.replace("health = 100", "health = 0");
    let texts =
        [("rules.toml", BUILT_IN), ("rules-2.toml", &others), ("rules-3.toml", &unplayable)];
    texts.map(|(name, text)| {
        let file = folder.join(name);
        std::fs::write(&file, text).expect("the folder is writable");
        file
    })
}

/// Replaces a part of the daemon's configuration and asks it to read it again.
fn change(daemon: &Huntd, from: &str, to: &str) {
    let text = std::fs::read_to_string(daemon.config()).expect("it is there");
    assert!(text.contains(from), "{text}");
    std::fs::write(daemon.config(), text.replace(from, to)).expect("it is writable");
    daemon.signal("HUP");
}

/// What systemd hears of one reload, its first message.
fn hear_reload(systemd: &Systemd) -> Vec<String> {
    let begun = systemd.hear_until("RELOADING=1").pop().expect("it was heard");
    systemd.hear_until("READY=1");
    begun
}

fn known(daemon: &Huntd) -> u64 {
    daemon.metric("huntd_ruleset_known")
}

/// What is wrong or takes a restart is refused with its sentence, and with it all that is right.
fn assert_refuses(
    daemon: &mut Huntd,
    topics: &Topics,
    systemd: &Systemd,
    [first, second, unplayable]: [&PathBuf; 3],
) {
    let files = |files: [&PathBuf; 2]| format!("files = {files:?}");
    let (one, two) = (format!("files = {:?}", [first]), files([first, second]));
    let gone = first.with_file_name("gone.toml");
    let group = format!("group = \"{}\"", topics.group());
    for (from, to, words) in [
        (&one, format!("{two}\nfile = 1"), "there is no key rules.file"),
        (&one, format!("{two}\n[["), "write valid TOML here"),
        (&one, files([first, unplayable]), "actors.health"),
        (&one, files([second, first]), "keep its file first"),
        (&one, files([first, &gone]), "cannot read"),
        (&group, "group = \"another\"".to_owned(), "kafka.group has changed"),
    ] {
        change(daemon, from, &to);
        hear_reload(systemd);
        // The log's own thread writes it.
        daemon.wait_until(words, |huntd| {
            let log = huntd.log();
            let last = log.lines().rfind(|line| line.contains("reloaded"));
            let wanted = ["not reloaded, old settings kept", words];
            last.is_some_and(|line| wanted.iter().all(|part| line.contains(part)))
        });
        assert_eq!(known(daemon), 1, "{words}");
        assert_eq!(daemon.metric("huntd_reload_refused"), 1, "{words}");
        let text = std::fs::read_to_string(daemon.config()).expect("it is there");
        std::fs::write(daemon.config(), text.replace(&to, from)).expect("it is writable");
    }
}

/// Waits until all zones are served by these rules.
fn wait_until_served_by(serving: &Serving, ruleset: u32) {
    let end = Instant::now() + PATIENCE;
    let by = format!("\"ruleset\":{ruleset}");
    loop {
        let (_, zones) = get(serving.address(), "/v1/zones");
        if zones.matches(&by).count() == PARTITIONS as usize {
            return;
        }
        assert!(Instant::now() < end, "{by}: {zones}\n{}", serving.log());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn rules_and_log_level_are_read_again_while_the_game_goes_on_and_is_served_or_refused_as_a_whole() {
    let topics = Topics::create(kafka::shared(), "reloads", PARTITIONS);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let [first, second, unplayable] = write_rules(folder.path());
    let one = format!("files = {:?}", [&first]);
    let two = format!("files = {:?}", [&first, &second]);
    let systemd = Systemd::listen();
    let settings = [("rules", one.as_str())];
    let mut daemon = Huntd::start_under(&systemd.path, kafka::shared(), &topics, &settings);
    produce(kafka::shared(), &topics, &events(PARTITIONS, 20, 1..=10));
    let mut follower = Follower::new(kafka::shared(), &topics);
    accounts::wait_until_covered(kafka::shared(), &topics, &mut follower, &mut daemon);
    systemd.hear_until("READY=1");
    assert_eq!(known(&daemon), 1);

    let serving = Serving::start(&daemon);
    assert_refuses(&mut daemon, &topics, &systemd, [&first, &second, &unplayable]);
    change(&daemon, &one, &two);
    let begun = hear_reload(&systemd);
    assert!(begun.iter().any(|state| state.starts_with("MONOTONIC_USEC=")), "{begun:?}");
    assert_eq!(known(&daemon), 2);
    assert_eq!(daemon.metric("huntd_reload_refused"), 0);
    serving.reload();
    serving.wait_for("\"message\":\"reloaded\"");
    let (config, file) = (daemon.config(), second.to_str().expect("text"));
    let switched = huntd(&["rules", "--config", &config, "--switch-to", file]);
    assert_eq!(switched.code, 0, "{}", switched.errors);
    // Who joins now joins by the new rules.
    produce(kafka::shared(), &topics, &events(PARTITIONS, 30, 1..=10));
    accounts::wait_until_covered(kafka::shared(), &topics, &mut follower, &mut daemon);

    let rulebook =
        load_all::<TreasureHunt>(&[first.clone(), second.clone()]).expect("both are rules");
    let by_second = rulebook.rulesets().last().expect("there are two");
    wait_until_served_by(&serving, by_second);

    // Rules that zones play by cannot be taken away. A higher level than `info` hides the drain.
    change(&daemon, &two, &one);
    hear_reload(&systemd);
    assert_eq!(known(&daemon), 2);
    daemon.wait_until("a refusal", |huntd| huntd.log().contains("restore its file, or restart"));
    serving.reload();
    serving.wait_for("restore its file, or restart");
    change(&daemon, &one, &two);
    hear_reload(&systemd);
    change(&daemon, "[service]\n", "[service]\nlog_level = \"warn\"\n");
    hear_reload(&systemd);
    let ended = daemon.stop();
    assert!(ended.status.success(), "{}", ended.log);
    assert!(!ended.log.contains("drained"), "{}", ended.log);

    for (partition, story) in (0..).zip(follower.into_stories()) {
        let (replayed, _) = replay_by(kafka::shared(), &topics, partition, &[], &rulebook);
        assert!(story == replayed, "partition {partition}");
    }
}
