//! The clients in other languages come to the verdicts of `docs/vectors`.

use huntd::hunt::frames::{decode_frame, encode};
use huntd::output::frame::Format;
use serde_json::Value;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use support::{go_client, kafka, needs};

/// Which form of the frames a client is given.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Json,
    Binary,
}

/// What a client is told, and what it must answer, line by line.
#[derive(Default)]
struct Script {
    lines: String,
    answers: Vec<Answer>,
}

struct Answer {
    /// What it is about.
    about: String,
    text: String,
}

impl Script {
    fn tell(&mut self, line: &str) {
        writeln!(self.lines, "{line}").expect("a string takes it");
    }

    fn ask(&mut self, about: &str, line: &str, answer: &str) {
        self.tell(line);
        self.answers.push(Answer { about: about.to_owned(), text: answer.to_owned() });
    }
}

fn vectors(file: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(format!("docs/vectors/{file}"));
    serde_json::from_str(&text.expect("the repository has it")).expect("JSON")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").expect("a string takes it");
        hex
    })
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().expect("a text")
}

/// A frame of the vectors, which have it as JSON, in hexadecimal.
fn frame(json: &str, form: Form) -> String {
    if form == Form::Json {
        return hex(json.as_bytes());
    }
    let (header, updates) = decode_frame(json.as_bytes()).expect("the vectors have frames");
    let mut bytes = Vec::new();
    encode(Format::Binary, &header, &updates, &mut bytes);
    hex(&bytes)
}

fn script(form: Form) -> Script {
    let mut script = Script::default();
    for history in vectors("reader.json") {
        let begins_at_the_start = text(&history, "begins") == "at the start";
        script.tell(if begins_at_the_start { "start" } else { "join" });
        for step in history["frames"].as_array().expect("frames") {
            let frame = frame(text(step, "frame"), form);
            script.ask(text(&history, "name"), &frame, text(step, "verdict"));
        }
        let end = &history["end"];
        let number = |key: &str| end[key].to_string();
        let answer = format!(
            "{} {} {} {} {}",
            number("epoch"),
            number("next_update"),
            number("next_offset"),
            text(end, "chain"),
            number("gaps")
        );
        script.ask(text(&history, "name"), "position", &answer);
    }
    script.ask("the next numbers of a player", "seqs", "5 6 7 9");
    script.tell("start");
    // Also in the form that a client does not read: it must notice that these are frames.
    let is_asked = |damaged: &&Value| text(damaged, "reader") != "may stop";
    for damaged in vectors("damaged.json").iter().filter(is_asked) {
        let record = match damaged["json"].as_str() {
            Some(json) => hex(json.as_bytes()),
            None => text(damaged, "binary").to_owned(),
        };
        if !record.is_empty() {
            script.ask(text(damaged, "name"), &record, text(damaged, "reader"));
        }
    }
    // Every kind and every name: not even the last one of a list stops a client.
    for vector in vectors("frames.json") {
        let json = text(&vector, "json");
        let header: Value = serde_json::from_str(json).expect("JSON");
        let joins = header["kind"] == "fence" && header["next_offset"] != -1;
        let about = format!(
            "{} (its constants: the highest kind, how many actions, how many names of each list)",
            text(&vector, "name")
        );
        script.tell("join");
        script.ask(&about, &frame(json, form), if joins { "joined" } else { "waiting" });
    }
    let mut many = vec![0; 64 + 32 * 4097];
    many[..6].copy_from_slice(b"HNTF\x02\x01");
    many[24..28].copy_from_slice(&4097_u32.to_le_bytes());
    many[64..].chunks_exact_mut(32).for_each(|update| update[16] = 6);
    script.ask("a frame that is too long", &hex(&many), "stops");
    many.resize(921_601, 0);
    script.ask("a frame that is too long", &hex(&many), "stops");
    script
}

/// Lets the client with this source verify the vectors. Its answers are compared one by one.
fn assert_verifies(source: &str, client: &mut Command, form: Form) {
    let Script { lines, answers } = script(form);
    let mut child = client
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the client's program is there");
    let mut stdin = child.stdin.take().expect("piped");
    let writer = std::thread::spawn(move || stdin.write_all(lines.as_bytes()));
    let output = child.wait_with_output().expect("it ends");
    writer.join().expect("no panic").expect("the client reads all lines");
    assert!(output.status.success());
    let printed = String::from_utf8(output.stdout).expect("text");
    let printed: Vec<&str> = printed.lines().collect();
    for (printed, Answer { about, text }) in printed.iter().zip(&answers) {
        assert_eq!(printed, text, "what {source} says to: {about}");
    }
    assert_eq!(printed.len(), answers.len());
}

#[test]
fn the_python_client_agrees_with_the_vectors_in_both_forms() {
    if !needs::has_program("python3", "--version") {
        return;
    }
    for form in [Form::Json, Form::Binary] {
        let (mut client, source) = (Command::new("python3"), "docs/clients/huntd.py");
        assert_verifies(source, client.args([source, "verify"]), form);
    }
}

#[test]
fn the_javascript_client_agrees_with_the_vectors_in_both_forms() {
    if !needs::has_program("node", "--version") {
        return;
    }
    for form in [Form::Json, Form::Binary] {
        let (mut client, source) = (Command::new("node"), "docs/clients/huntd.mjs");
        assert_verifies(source, client.args([source, "verify"]), form);
    }
}

#[test]
fn the_browser_client_does_what_it_promises_whatever_a_server_answers() {
    if !needs::has_program("node", "--version") {
        return;
    }
    let mut client = Command::new("node");
    let played = client.args(["--test", "tests/host/browser_client.mjs"]).output();
    let played = played.expect("node runs");
    assert!(played.status.success(), "{}", String::from_utf8_lossy(&played.stdout));
}

#[test]
fn typescript_finds_nothing_wrong_with_the_types_of_the_javascript_clients() {
    if !needs::has_minutes() || !needs::has_program("node", "--version") {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    // The packages bring types; what they would build is not run.
    let packages = ["@platformatic/kafka@1", "typescript@5", "@types/node@20"];
    let mut install = Command::new("npm");
    install.args(["install", "--silent", "--no-save", "--no-audit", "--no-fund"]);
    install.arg("--ignore-scripts").args(packages).current_dir(&folder);
    let is_installed = install.output().is_ok_and(|output| output.status.success());
    if !needs::has("TypeScript and @platformatic/kafka, by npm", is_installed) {
        return;
    }
    let files = [
        ("docs/clients/huntd.mjs", ("BigInt(words.length)", "words.length")),
        ("docs/clients/browser/huntd-browser.mjs", ("(key, String(seq))", "(key, seq)")),
    ];
    for (path, (right, wrong)) in files {
        let source = std::fs::read_to_string(path).expect("the repository has it");
        let line = source.split_once("`tsc ").and_then(|(_, rest)| rest.split_once('`'));
        let options = line.expect("its head says how to check it").0.replace("\n//", "");
        assert!(source.contains(right), "{path}");
        let name = path.rsplit('/').next().expect("a path ends with a name");
        for (text, is_right) in [(&source, true), (&source.replace(right, wrong), false)] {
            std::fs::write(folder.path().join(name), text).expect("a file");
            let mut check = Command::new("node");
            check.arg("node_modules/typescript/bin/tsc").args(options.split_whitespace());
            let checked = check.current_dir(&folder).output().expect("node runs");
            let printed = String::from_utf8_lossy(&checked.stdout);
            assert_eq!(checked.status.success(), is_right, "{options}: {printed}");
        }
    }
}

#[test]
fn the_python_and_javascript_clients_name_every_field_of_an_update_as_huntd_does() {
    let programs = [("python3", "docs/clients/huntd.py"), ("node", "docs/clients/huntd.mjs")];
    for (program, file) in programs {
        if !needs::has_program(program, "--version") {
            continue;
        }
        for vector in vectors("frames.json") {
            let raw: Value = serde_json::from_str(text(&vector, "json")).expect("JSON");
            let line = format!("updates {}", text(&vector, "binary"));
            let output = Command::new("sh")
                .args(["-c", &format!("printf '%s\\n' '{line}' | {program} {file} verify")])
                .output()
                .expect("a shell");
            let printed: Result<Vec<Value>, _> =
                serde_json::Deserializer::from_slice(&output.stdout).into_iter().collect();
            let printed = Value::Array(printed.expect("updates in JSON"));
            assert_eq!(printed, raw["updates"], "{file}");
        }
    }
}

#[test]
fn the_go_client_agrees_with_the_vectors() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let Some(program) = go_client::build(folder.path()) else { return };
    assert_verifies("docs/clients/go/main.go", Command::new(program).arg("verify"), Form::Binary);
}

#[test]
fn the_documents_name_the_version_of_go_that_the_client_wants() {
    let wanted = go_client::wanted_version();
    let (version, _patch) = wanted.rsplit_once('.').expect("a version has three numbers");
    for document in ["docs/clients/README.md", "docs/HACKING.md"] {
        let text = std::fs::read_to_string(document).expect("the repository has it");
        assert!(text.contains(&format!("Go {version}")), "{document}: Go {version}");
    }
}

#[test]
fn the_cpp_client_agrees_with_the_vectors() {
    if !needs::has_program("c++", "--version") {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = folder.path().join("client");
    let flags = ["-std=c++20", "-Wall", "-Wextra", "-Werror", "docs/clients/huntd.cpp", "-o"];
    let built = Command::new("c++").args(flags).arg(&program).status().expect("it runs");
    assert!(built.success() && Path::new(&program).exists());
    assert_verifies("docs/clients/huntd.hpp", Command::new(program).arg("verify"), Form::Binary);
}

#[test]
fn the_java_client_agrees_with_the_vectors() {
    if !needs::has_program("javac", "-version") {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let jars = kafka::class_path();
    let mut compiler = Command::new("javac");
    compiler.args(["-cp", &jars, "-d"]).arg(folder.path()).arg("docs/clients/Huntd.java");
    assert!(compiler.status().expect("it runs").success());
    let classes = format!("{}:{jars}", folder.path().display());
    let mut client = Command::new("java");
    client.args(["-cp", &classes, "Huntd", "verify"]);
    assert_verifies("docs/clients/Huntd.java", &mut client, Form::Binary);
}
