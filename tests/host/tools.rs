//! The tools from outside: recorded matches as events, and events into a broker.

#![allow(clippy::print_stdout, reason = "tests say what they measure")]

use huntd::decoder::{Decoder, RecordPosition};
use huntd::hunt::event::Action;
use huntd::service::cli::MatchFormat;
use huntd::tools::matches::{MatchEvents, MatchOptions, format_of};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use support::recordings;

const BASE_MS: i64 = 1_767_225_600_000;

/// What the events of one recording come to.
#[derive(Default)]
struct Tally {
    events: u64,
    kinds: BTreeMap<&'static str, u64>,
}

/// Reads a recording through, and checks what holds for every one.
fn check_recording(file: PathBuf, zones: u16) -> Tally {
    let format = format_of(&file, None).expect("the first line tells the game");
    let options = MatchOptions { file, format, zones, repeat: 1, base_ms: BASE_MS };
    let mut events = MatchEvents::open(options).expect("the recording is there");
    let mut decoder = Decoder::new();
    let mut tally = Tally::default();
    let mut last = vec![(-1, i64::MIN); usize::from(zones)];
    // Where each player is, and its last number.
    let mut players: BTreeMap<u64, (Option<u16>, u64)> = BTreeMap::new();
    while let Some(record) = events.next_record().expect("the recording is fine") {
        let (offset, time_ms) = last[usize::from(record.partition)];
        assert_eq!(record.offset, offset + 1);
        assert!(record.time_ms >= time_ms, "time runs forwards");
        last[usize::from(record.partition)] = (record.offset, record.time_ms);
        let origin = RecordPosition { offset: record.offset, time_ms: record.time_ms };
        let value = record.value.expect("an event has a value").to_vec();
        let event = decoder.decode(origin, Some(&value)).expect("every event is valid");
        tally.events += 1;
        *tally.kinds.entry(kind(&event.action)).or_default() += 1;
        if event.player_id == 0 {
            continue;
        }
        let (place, seq) = players.entry(event.player_id).or_default();
        assert_eq!(event.seq, *seq + 1, "player {}", event.player_id);
        *seq = event.seq;
        match event.action {
            Action::Join { x, y } => {
                assert_eq!(*place, None, "player {} joins twice", event.player_id);
                assert!(x >= 0 && y >= 0);
                *place = Some(record.partition);
            }
            Action::Leave { .. } => {
                assert_eq!(*place, Some(record.partition), "player {}", event.player_id);
                *place = None;
            }
            _ => assert_eq!(*place, Some(record.partition), "player {}", event.player_id),
        }
    }
    assert!(players.values().all(|(place, _)| place.is_none()), "everybody leaves at the end");
    tally
}

fn kind(action: &Action) -> &'static str {
    match action {
        Action::Leave { to_zone: Some(_) } => "cross",
        _ => action.kind().spec().type_name,
    }
}

#[test]
fn every_recorded_match_is_a_valid_game_in_one_zone_and_in_many() {
    let Some(files) = recordings::all() else {
        return;
    };
    for file in files {
        let name = file.file_name().expect("a file has a name").to_string_lossy().into_owned();
        let whole = check_recording(file.clone(), 1);
        let parts = check_recording(file, 4);
        println!("{name}: {} events, {:?}", whole.events, whole.kinds);
        println!("{name} in 4 zones: {} events, {:?}", parts.events, parts.kinds);
        for kind in ["rotate", "shoot", "loot"] {
            assert_eq!(whole.kinds.get(kind), parts.kinds.get(kind), "{kind}s are in some zone");
        }
        let seen = |tally: &Tally| {
            let count = |kind| tally.kinds.get(kind).copied().unwrap_or(0);
            // A handoff is a leave and a join instead of a move.
            count("move") + count("join")
        };
        assert_eq!(seen(&whole), seen(&parts));
        if name.contains("black_gold") {
            assert!(whole.events >= 600_000, "{} events", whole.events);
        }
    }
}

#[test]
fn the_first_line_tells_the_game_and_a_name_overrules_it() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let file = folder.path().join("match.jsonl");
    for (line, expected) in [
        (r#"{"ts_ms":0,"type":"server_details","sec_per_tick":0.3}"#, MatchFormat::Prbf2),
        (r#"{"ts_ms":0,"time":"2018-02-24T18:06:04Z","type":"world"}"#, MatchFormat::Csgo),
        (r#"{"ts_ms":0,"type":"match","fps":30.0}"#, MatchFormat::RocketLeague),
    ] {
        std::fs::write(&file, line).expect("the file can be written");
        assert_eq!(format_of(&file, None).expect("the line tells"), expected);
        let named = format_of(&file, Some(MatchFormat::Csgo));
        assert_eq!(named.is_ok(), expected == MatchFormat::Csgo, "no adapter reads other games");
    }
    std::fs::write(&file, r#"{"type":"tick","seq":1,"ts_us":5}"#).expect("it can be written");
    assert!(format_of(&file, None).is_err());
    let named = format_of(&file, Some(MatchFormat::Csgo)).expect("the line tells nothing else");
    assert_eq!(named, MatchFormat::Csgo);
    std::fs::write(&file, "").expect("it can be written");
    assert!(format_of(&file, Some(MatchFormat::Csgo)).is_err(), "an empty file is no match");
}

#[test]
fn a_demo_with_partitions_that_get_no_event_closes_its_accounts() {
    let demo = Command::new(env!("CARGO_BIN_EXE_huntd"))
        .args(["demo", "--events", "1", "--partitions", "8"])
        .output()
        .expect("the binary runs");
    assert!(demo.status.success(), "{}", String::from_utf8_lossy(&demo.stderr));
}

#[test]
fn a_file_that_holds_no_match_is_a_sentence_that_says_what_to_do() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = |name: &str, content: &[u8]| {
        let file = folder.path().join(name);
        std::fs::write(&file, content).expect("the file can be written");
        file
    };
    let whole = zstd::encode_all(&b"{\"ts_ms\":0,\"sec_per_tick\":0.3}\n"[..], 1);
    let whole = whole.expect("memory takes it");
    for (file, sentence) in [
        (file("empty.jsonl", b""), "is empty; write events"),
        (file("cut.jsonl.zst", &whole[..whole.len() - 3]), "is cut short or damaged"),
        (file("other.jsonl.zst", b"{}"), "is cut short or damaged"),
        (file("text.jsonl", b"nothing\n"), "line 1 of"),
        (folder.path().to_owned(), "Is a directory"),
        (folder.path().join("missing"), "No such file"),
    ] {
        let replay = Command::new(env!("CARGO_BIN_EXE_huntd"))
            .args(["replay", "--match"])
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
    let file = file.to_str().expect("the path is text");
    let report = report_of(&demo(&["--partitions", "2", "--match", file]));
    assert_eq!((&report["events"], &report["lost"]), (&20_000.into(), &0.into()), "{report}");
    assert_eq!((&report["rejects"], &report["duplicated"]), (&0.into(), &0.into()), "{report}");
}

#[test]
fn a_match_that_plays_in_its_own_time_comes_out_as_at_once() {
    let Some(file) = recordings::one("rl-419a-20180830.jsonl.zst") else {
        return;
    };
    let file = file.to_str().expect("the path is text");
    let digest = |pace: &[&str]| {
        let demo = Command::new(env!("CARGO_BIN_EXE_huntd"))
            .args(["demo", "--events", "5000", "--json", "--partitions", "2", "--match", file])
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
