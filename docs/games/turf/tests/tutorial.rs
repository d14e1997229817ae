//! docs/GAMES.md: its code is that of this package, and its commands do what it says.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the game looks at no clock and no file, but its tests do"
)]

use std::fs::{self, File};
use std::io::Read;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use support::PATIENCE;
use support::process::OwnedChild;
use support::scrape::get;

/// What stands before a command of the tutorial.
const CARGO: &str = "cargo run --release -- ";

fn package() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn tutorial() -> String {
    let page = fs::read_to_string(package().join("../../GAMES.md"));
    page.expect("the tutorial is part of the source")
}

/// The blocks of code in a page: the language, the line before the block, and the text.
fn blocks(page: &str) -> Vec<(&str, &str, &str)> {
    let mut blocks = Vec::new();
    let mut rest = page;
    while let Some((before, after)) = rest.split_once("\n```") {
        let (language, after) = after.split_once('\n').expect("a block has lines");
        let (text, after) = after.split_once("```\n").expect("a block ends");
        let introduction = before.trim_end().lines().last().unwrap_or_default();
        blocks.push((language, introduction, text));
        rest = after;
    }
    blocks
}

/// The path in a line that introduces a block: its last word in backquotes.
fn named(line: &str) -> Option<&str> {
    line.rsplit('`').nth(1)
}

#[test]
fn every_block_of_code_is_a_part_of_the_file_that_is_named_before_it() {
    let page = tutorial();
    let (mut checked, mut files) = (0, Vec::new());
    for (language, line, text) in blocks(&page) {
        if ["sh", "text"].contains(&language) {
            continue;
        }
        let path = named(line).unwrap_or_else(|| panic!("no file is named in {line:?}"));
        let source = fs::read_to_string(package().join(path));
        let source = source.unwrap_or_else(|error| panic!("{path}: {error}"));
        assert!(source.contains(text), "this is no part of {path}:\n{text}");
        files.push(path);
        checked += 1;
    }
    assert!(checked >= 12, "only {checked} blocks");
    for file in ["src/main.rs", "src/events.rs", "src/first.rs", "src/second.rs", "src/play.rs"] {
        assert!(files.contains(&file), "the tutorial shows nothing of {file}");
    }
}

/// The commands of the tutorial that need no broker.
fn commands(page: &str) -> Vec<Vec<&str>> {
    let shell = blocks(page).into_iter().filter(|(language, ..)| *language == "sh");
    let lines = shell.flat_map(|(_, _, text)| text.lines());
    let commands = lines.filter_map(|line| line.strip_prefix(CARGO));
    let commands = commands.map(|line| line.split_whitespace().collect::<Vec<_>>());
    commands.filter(|words| ["demo", "replay", "schema"].contains(&words[0])).collect()
}

fn turf(folder: &Path, arguments: &[&str]) -> Output {
    let turf =
        Command::new(env!("CARGO_BIN_EXE_turf")).current_dir(folder).args(arguments).output();
    turf.expect("the program runs")
}

fn succeeded(arguments: &[&str], output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// Writes the events of the tutorial, as it tells its reader to.
fn write_events(page: &str, folder: &Path) {
    let events = blocks(page).into_iter().find(|(_, line, _)| line.contains("`events.jsonl`"));
    let (.., events) = events.expect("the tutorial has events");
    fs::write(folder.join("events.jsonl"), events).expect("the folder is writable");
}

#[test]
fn the_commands_that_need_no_broker_work_and_a_demo_agrees_with_its_replay() {
    let page = tutorial();
    let folder = tempfile::tempdir().expect("a temporary folder");
    write_events(&page, folder.path());
    let mut verbs = Vec::new();
    for command in commands(&page) {
        verbs.push(command[0]);
        if command.contains(&"--stay") {
            continue;
        }
        let shown = succeeded(&command, &turf(folder.path(), &command));
        if command[0] == "demo" {
            let same = "nothing was lost, nothing came twice: a replay gives the same";
            assert!(shown.contains(same), "{shown}");
        }
    }
    verbs.dedup();
    assert_eq!(verbs, ["schema", "demo", "replay"]);
}

#[test]
fn each_version_replays_by_its_own_rules() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    write_events(&tutorial(), folder.path());
    let score = |edition: &str| {
        let replay = ["replay", "--updates", "--file", "events.jsonl", "--edition", edition];
        let shown = succeeded(&replay, &turf(folder.path(), &replay));
        let mut painted = shown.lines().filter(|line| line.contains("\"kind\":\"painted\""));
        let score = painted.next_back().and_then(|line| line.split_once("\"score\":"));
        score.expect("a field is painted").1.trim_end_matches('}').to_owned()
    };
    assert_eq!((score("1"), score("2")), ("3".to_owned(), "4".to_owned()));
    let unknown = turf(folder.path(), &["schema", "--edition", "3"]);
    assert_eq!(unknown.status.code(), Some(2));
    let shown = succeeded(&["--version"], &turf(folder.path(), &["--version"]));
    assert!(shown.ends_with(", turf of version 2 or 1\n"), "{shown}");
}

#[test]
fn the_last_event_of_the_tutorial_ends_the_round() {
    let (page, folder) = (tutorial(), tempfile::tempdir().expect("a temporary folder"));
    write_events(&page, folder.path());
    let replay = ["replay", "--updates", "--file", "events.jsonl"];
    let ends = || succeeded(&replay, &turf(folder.path(), &replay)).contains("\"kind\":\"ended\"");
    assert!(ends());
    let file = folder.path().join("events.jsonl");
    let events = fs::read_to_string(&file).expect("it was written");
    let (others, _) = events.trim_end().rsplit_once('\n').expect("it has lines");
    fs::write(&file, others).expect("the folder is writable");
    assert!(!ends());
}

/// A demo whose page stays.
struct Demo {
    _child: OwnedChild,
    log: PathBuf,
}

impl Demo {
    fn start(folder: &Path) -> Demo {
        let log = folder.join("log");
        let child = Command::new(env!("CARGO_BIN_EXE_turf"))
            .args(["demo", "--page", "--stay", "--events", "4000", "--players", "100"])
            .args(["--partitions", "2", "--rate", "0"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log).expect("the folder is writable"))
            .spawn()
            .expect("the program runs");
        Demo { _child: child.into(), log }
    }

    /// What follows these words in the log, up to the end of the line.
    fn wait_for(&self, words: &str) -> String {
        let end = Instant::now() + PATIENCE;
        loop {
            let mut log = String::new();
            let file = File::open(&self.log).and_then(|mut file| file.read_to_string(&mut log));
            file.expect("the log is text");
            if let Some((_, rest)) = log.split_once(words)
                && let Some((line, _)) = rest.split_once('\n')
            {
                return line.to_owned();
            }
            assert!(Instant::now() < end, "no {words:?}:\n{log}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

#[test]
fn the_page_the_cards_the_boards_and_the_query_of_a_demo_are_served() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let demo = Demo::start(folder.path());
    let address = demo.wait_for("page: http://");
    let address = address.trim_end_matches('/');
    demo.wait_for("the page stays");
    assert!(TcpStream::connect(address).is_ok());
    for (path, parts) in [
        ("/", &["<title>turf</title>"][..]),
        ("/page.js", &["/v1/zones/0/round"]),
        ("/v1/zones", &["\"players\":50"]),
        ("/v1/zones/0/round", &["\"round\":\"", "\"side\":32,", "\"teams\":["]),
        ("/v1/boards/0?count=3", &["\"rank\":1,\"player_id\":\"7656119"]),
        ("/v1/players/76561198000000000", &["\"team\":1,\"field\":", "\"score\":"]),
    ] {
        // The page follows the daemon, and may still be on its way.
        let end = Instant::now() + PATIENCE;
        loop {
            let (code, body) = get(address, path);
            assert!(code == 200 || path.contains("/players/"), "{path}: {body}");
            if parts.iter().all(|part| body.contains(part)) {
                break;
            }
            assert!(Instant::now() < end, "{path}: {parts:?} is not in {body}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}
