//! The tools from outside: files of events, and events into a broker.

use std::process::{Command, Stdio};
use support::recordings;

#[test]
fn a_demo_with_partitions_that_get_no_event_closes_its_accounts() {
    let demo = Command::new(env!("CARGO_BIN_EXE_huntd"))
        .args(["demo", "--events", "1", "--partitions", "8"])
        .output()
        .expect("the binary runs");
    assert!(demo.status.success(), "{}", String::from_utf8_lossy(&demo.stderr));
}

#[test]
fn a_file_that_holds_no_events_is_a_sentence_that_says_what_to_do() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = |name: &str, content: &[u8]| {
        let file = folder.path().join(name);
        std::fs::write(&file, content).expect("the file can be written");
        file
    };
    for (file, sentence) in [
        (file("empty.jsonl", b""), "is empty; write events"),
        (file("text.jsonl", b"nothing\n"), "line 1 of"),
        (file("far.jsonl", b"1024\t1\t{}\n"), "is for partition 1024, but there are only 1024"),
        (folder.path().to_owned(), "Is a directory"),
        (folder.path().join("missing"), "No such file"),
    ] {
        let replay = Command::new(env!("CARGO_BIN_EXE_huntd"))
            .args(["replay", "--file"])
            .arg(&file)
            .output()
            .expect("the binary runs");
        let error = String::from_utf8_lossy(&replay.stderr);
        assert_eq!(replay.status.code(), Some(2), "{}: {error}", file.display());
        assert!(error.contains(sentence) && error.lines().count() == 1, "{error}");
    }
}

#[test]
fn a_replay_of_a_file_rejects_a_first_line_that_is_not_utf8_as_any_other() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("events.txt");
    for first in
        [&b"{\"type\":\"\xff\"}"[..], b"0\t1\t{\"type\":\"\xff\"}", b"0\t1\t\xfe\xff", b"\xff"]
    {
        let lines = [first, b"{\"type\":\"tick\",\"seq\":1,\"ts_us\":1000}", first, b""];
        std::fs::write(&file, lines.join(&b'\n')).expect("the file can be written");
        let replay = Command::new(env!("CARGO_BIN_EXE_huntd"))
            .args(["replay", "--json", "--file"])
            .arg(&file)
            .output()
            .expect("the binary runs");
        assert!(replay.status.success(), "{}", String::from_utf8_lossy(&replay.stderr));
        let report: serde_json::Value = serde_json::from_slice(&replay.stdout).expect("JSON");
        let total = &report["total"];
        assert_eq!((&total["events"], &total["applied"]), (&3.into(), &1.into()), "{total}");
        assert_eq!(total["rejects_by_reason"]["not_utf8"], 2, "{total}");
    }
}

#[test]
fn a_replay_of_a_file_names_the_line_of_the_first_rejects_and_counts_the_others() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("events.txt");
    let tick = |seq: &str| format!("0\t1\t{{\"type\":\"tick\",\"seq\":{seq},\"ts_us\":1000}}\n");
    let events = [tick("1"), tick("\"two\""), tick("3"), tick("-4").repeat(11)].concat();
    std::fs::write(&file, events).expect("the file can be written");
    let replay = Command::new(env!("CARGO_BIN_EXE_huntd"))
        .args(["replay", "--json", "--file"])
        .arg(&file)
        .output()
        .expect("the binary runs");
    assert!(replay.status.success());
    let said = String::from_utf8(replay.stderr).expect("text");
    let said: Vec<&str> = said.lines().collect();
    assert_eq!(said.len(), 11, "{said:?}");
    assert_eq!(said[0], "huntd: line 2: wrong_type: a field's value has the wrong type: `seq`");
    assert!(said[1].starts_with("huntd: line 4: out_of_range: ") && said[1].ends_with("`seq`"));
    assert!(said[9].starts_with("huntd: line 12: "), "{said:?}");
    assert!(said[10].starts_with("huntd: and 2 more rejects"), "{said:?}");
}

#[test]
fn a_replay_of_a_file_carries_players_to_other_zones_where_it_is_asked_to() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("events.txt");
    let event = |zone: u16, seq: u64, what: &str| {
        let who = format!("\"player_id\":42,\"seq\":{seq},\"ts_us\":{seq}000");
        format!("{zone}\t{seq}\t{{{who},\"type\":{what}}}\n")
    };
    let events = [
        event(0, 1, "\"join\",\"x\":500,\"y\":500"),
        event(0, 2, "\"leave\",\"to_zone\":1"),
        event(1, 3, "\"rotate\",\"heading\":9000"),
    ];
    std::fs::write(&file, events.concat()).expect("the file can be written");
    let replay = |more: &[&str]| -> serde_json::Value {
        let replay = Command::new(env!("CARGO_BIN_EXE_huntd"))
            .args(["replay", "--json", "--file"])
            .arg(&file)
            .args(more)
            .output()
            .expect("the binary runs");
        assert!(replay.status.success(), "{}", String::from_utf8_lossy(&replay.stderr));
        let report: serde_json::Value = serde_json::from_slice(&replay.stdout).expect("JSON");
        report["partitions"]["1"].clone()
    };
    let alone = replay(&[]);
    assert_eq!((&alone["events"], &alone["refusals"]), (&1.into(), &1.into()), "{alone}");
    let carried = replay(&["--carry-players"]);
    assert_eq!((&carried["events"], &carried["applied"]), (&2.into(), &2.into()), "{carried}");
}

/// What the demo reports when it is run with these arguments.
fn demo(arguments: &[&str]) -> String {
    let demo = Command::new(env!("CARGO_BIN_EXE_huntd"))
        .args(["demo", "--events", "20000", "--rate", "0", "--json"])
        .args(arguments)
        .output()
        .expect("the binary runs");
    let text = String::from_utf8_lossy(&demo.stdout);
    assert!(demo.status.success(), "{text}{}", String::from_utf8_lossy(&demo.stderr));
    text.into_owned()
}

fn report_of(text: &str) -> serde_json::Value {
    let last = text.lines().last().expect("the report is there");
    serde_json::from_str(last).expect("the last line is the JSON object")
}

#[test]
fn a_demo_of_a_recorded_match_closes_its_accounts() {
    let Some(file) = recordings::one("rl-419a-20180830.jsonl.zst") else {
        return;
    };
    let events = recordings::events(&file, Some(2));
    let file = events.path().to_str().expect("the path is text");
    let report = report_of(&demo(&["--partitions", "2", "--file", file]));
    assert_eq!((&report["events"], &report["lost"]), (&20_000.into(), &0.into()), "{report}");
    assert_eq!((&report["rejects"], &report["duplicated"]), (&0.into(), &0.into()), "{report}");
}

#[test]
fn a_match_that_plays_in_its_own_time_comes_out_as_at_once() {
    let Some(file) = recordings::one("rl-419a-20180830.jsonl.zst") else {
        return;
    };
    let events = recordings::events(&file, Some(2));
    let file = events.path().to_str().expect("the path is text");
    let digest = |pace: &[&str]| {
        let demo = Command::new(env!("CARGO_BIN_EXE_huntd"))
            .args(["demo", "--events", "5000", "--json", "--partitions", "2", "--file", file])
            .args(pace)
            .output()
            .expect("the binary runs");
        assert!(demo.status.success(), "{}", String::from_utf8_lossy(&demo.stderr));
        report_of(&String::from_utf8_lossy(&demo.stdout))["digest"].clone()
    };
    assert_eq!(digest(&["--speed", "50"]), digest(&["--rate", "0"]));
}

/// What huntd writes to a terminal.
fn on_terminal(arguments: &str, environment: [(&str, &str); 2]) -> String {
    let command = format!("{} {arguments}", env!("CARGO_BIN_EXE_huntd"));
    let mut script = Command::new("script");
    script.args(["--quiet", "--command", &command, "/dev/null"]).stdin(Stdio::null());
    let output = script.envs(environment).output().expect("every Debian has it");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_terminal_gets_colours_and_a_bar_only_if_it_and_its_user_want_them() {
    let demo = "demo --events 20000 --players 100 --partitions 1";
    // The name is nobody's, so the log says it and huntd ends.
    let run = "run --config config/huntd.toml --set kafka.brokers=no-such-host.invalid:9092 \
               --set service.listen=127.0.0.1:0";
    for (arguments, term, no_color, is_plain) in [
        (demo, "xterm", "", false),
        (demo, "dumb", "", true),
        (run, "xterm", "", false),
        (run, "xterm", "1", true),
        (run, "dumb", "", true),
    ] {
        let written = on_terminal(arguments, [("TERM", term), ("NO_COLOR", no_color)]);
        assert!(written.lines().count() > 1, "{written}");
        assert_eq!(!written.contains('\u{1b}'), is_plain, "{arguments} {term}: {written:?}");
    }
}

#[test]
fn the_demo_accounts_for_every_event_and_its_seed_decides_the_digest() {
    let play = |seed| demo(&["--players", "200", "--partitions", "3", "--seed", seed]);
    let run = |seed| report_of(&play(seed));
    let text = play("1");
    let report = report_of(&text);
    let winner = text.lines().find(|line| line.starts_with("1. player "));
    assert!(winner.is_some_and(|line| line.contains(" points in zone ")), "{text}");
    let number = |key: &str| report[key].as_u64().expect("the key is there");
    assert_eq!(number("events"), 20_000);
    assert_eq!((number("lost"), number("duplicated"), number("rejects")), (0, 0, 0));
    assert!(number("updates") > 0 && number("refusals") > 0);
    assert!(report["latency_us"]["p999"].as_u64() >= report["latency_us"]["p50"].as_u64());
    assert_eq!(run("1")["digest"], report["digest"]);
    assert_ne!(run("2")["digest"], report["digest"]);
}
