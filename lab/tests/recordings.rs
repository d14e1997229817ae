//! Recorded matches from outside: as events, and as lines.

#![allow(clippy::print_stdout, reason = "tests say what they measure")]

use huntd::decoder::{Decoder, RecordPosition};
use huntd::hunt::event::{Action, EVENTS};
use match_events::{MatchEvents, MatchFormat, MatchOptions, format_of};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use support::recordings::{self, BASE_MS};

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
    let mut decoder = Decoder::new(&EVENTS);
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
        let event = decoder.decode::<Action>(origin, Some(&value)).expect("every event is valid");
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
        (file("empty.jsonl", b""), "is empty; write a recording"),
        (file("cut.jsonl.zst", &whole[..whole.len() - 3]), "is cut short or damaged"),
        (file("other.jsonl.zst", b"{}"), "is cut short or damaged"),
        (file("text.jsonl", b"nothing\n"), "cannot detect the game"),
        (folder.path().to_owned(), "Is a directory"),
        (folder.path().join("missing"), "No such file"),
    ] {
        let printed = Command::new(env!("CARGO_BIN_EXE_match-events"))
            .arg(&file)
            .output()
            .expect("the binary runs");
        let error = String::from_utf8_lossy(&printed.stderr);
        assert_eq!(printed.status.code(), Some(2), "{}: {error}", file.display());
        assert!(error.contains(sentence) && error.lines().count() == 1, "{error}");
    }
}

#[test]
fn the_program_prints_the_events_as_huntd_reads_them() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("match.jsonl");
    let lines = [
        r#"{"ts_ms":0,"type":"match","fps":30.0}"#,
        r#"{"ts_ms":40,"type":"car_state","player":"p001","pos":[0,0,0],"rot":[0,0,0]}"#,
    ];
    std::fs::write(&file, lines.join("\n")).expect("the file can be written");
    let print = |more: &[&str]| {
        let printed = Command::new(env!("CARGO_BIN_EXE_match-events"))
            .arg(&file)
            .args(more)
            .output()
            .expect("the binary runs");
        assert!(printed.status.success(), "{}", String::from_utf8_lossy(&printed.stderr));
        String::from_utf8(printed.stdout).expect("it prints text")
    };
    let events = print(&["--partitions", "2", "--base-ms", "5000"]);
    let tick = "1\t5000\t{\"type\":\"tick\"";
    assert!(events.lines().any(|line| line.starts_with(tick)), "{events}");
    let join = events.lines().find(|line| line.contains("\"join\"")).expect("the player is seen");
    assert!(join.contains("\t5040\t{") && join.contains("\"ts_us\":5040000"), "{join}");
    let twice = print(&["--partitions", "2", "--base-ms", "5000", "--repeat", "2"]);
    assert!(twice.starts_with(&events) && twice.len() > events.len(), "{twice}");
    assert!(!print(&["--recent"]).contains("\t5040\t"));
}
