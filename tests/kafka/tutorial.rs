//! docs/TUTORIAL.md, command by command, with the services of its compose file as processes.

use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use support::PATIENCE;
use support::daemon::program;
use support::kafka::broker::free_ports;
use support::kafka::{self, unique_name};
use support::needs;
use support::process::OwnedChild;

const PAGE: &str = include_str!("../../docs/TUTORIAL.md");
const COMPOSE: &str = "docs/tutorial/compose.yaml";

/// The services by their names, as a parser of YAML reads them.
fn services() -> Option<Value> {
    let python = |code: &str, input: Stdio| -> Option<Output> {
        Command::new("python3").args(["-c", code]).stdin(input).output().ok()
    };
    let has_yaml = python("import yaml", Stdio::null()).is_some_and(|it| it.status.success());
    if !needs::has("python3 with yaml, and curl", has_yaml && needs::has_program("curl", "-V")) {
        return None;
    }
    let file = File::open(COMPOSE).expect("the repository has it");
    let to_json = "import json, sys, yaml; print(json.dumps(yaml.safe_load(sys.stdin)))";
    let read = python(to_json, file.into()).expect("python runs");
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    let compose: Value = serde_json::from_slice(&read.stdout).expect("it is JSON");
    Some(compose["services"].clone())
}

/// The host of the tutorial: its names, ports and configuration are of this test alone.
struct Host {
    services: Value,
    folder: tempfile::TempDir,
    prefix: String,
    ports: Vec<u16>,
    running: BTreeMap<&'static str, OwnedChild>,
}

impl Host {
    fn new(services: Value) -> Host {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (prefix, ports) = (unique_name("tutorial"), free_ports(2));
        let text = format!(
            "[kafka]\nbrokers = [{:?}]\ngroup = \"{prefix}\"\ninput_topic = \"{prefix}-events\"\n\
             output_topic = \"{prefix}-updates\"\ndead_letter_topic = \"{prefix}-dead-letters\"\n\
             [serve]\nlisten = \"127.0.0.1:{}\"\n",
            kafka::shared().bootstrap(),
            ports[1]
        );
        fs::write(folder.path().join("huntd.toml"), text).expect("the folder is ours");
        let programs = folder.path().join("bin");
        fs::create_dir(&programs).expect("the folder is ours");
        std::os::unix::fs::symlink(program(), programs.join("huntd")).expect("the folder is ours");
        Host { services, folder, prefix, ports, running: BTreeMap::new() }
    }

    /// Returns the tutorial's words with the names, ports and files of this test.
    fn named_here(&self, words: &str) -> String {
        let config = self.folder.path().join("huntd.toml");
        words
            .replace("/etc/huntd/huntd.toml", config.to_str().expect("a path is text"))
            .replace("hunt-", &format!("{}-", self.prefix))
            .replace(":9464", &format!(":{}", self.ports[0]))
            .replace(":9465", &format!(":{}", self.ports[1]))
    }

    /// Returns the variables that the compose file sets for every process of huntd.
    fn environment(&self) -> BTreeMap<&str, String> {
        let set = self.services["huntd"]["environment"].as_object().expect("an environment");
        let here = |value: &Value| self.named_here(value.as_str().expect("a value is text"));
        set.iter().map(|(key, value)| (key.as_str(), here(value))).collect()
    }

    /// A service's program.
    fn service(&self, name: &str) -> Command {
        let service = &self.services[name];
        let mut command = Command::new(program());
        for word in service["command"].as_array().expect("a service of huntd has a command") {
            command.arg(self.named_here(word.as_str().expect("a word")));
        }
        command.envs(self.environment());
        let state = self.folder.path().join(name);
        fs::create_dir_all(&state).expect("the folder is ours");
        let log = File::create(state.join("log")).expect("the folder is ours");
        command.env("STATE_DIRECTORY", state).stdin(Stdio::null()).stderr(log);
        command
    }

    fn start(&mut self, name: &'static str) {
        let child = self.service(name).spawn().expect("huntd is started");
        self.running.insert(name, child.into());
    }

    /// Runs these lines in a shell, and returns what it prints. The tutorial's loops wait for as
    /// long as it takes, and this test for minutes.
    fn run(&self, lines: &str) -> String {
        let path = std::env::var("PATH").expect("there is one");
        let shell = Command::new("timeout")
            .args(["--kill-after=1", &PATIENCE.as_secs().to_string()])
            .args(["bash", "-e", "-c", &self.named_here(lines)])
            .envs(self.environment())
            .env("PATH", format!("{}/bin:{path}", self.folder.path().display()))
            .stdin(Stdio::null())
            .output();
        let Output { status, stdout, stderr } = shell.expect("bash runs");
        let said = String::from_utf8_lossy(&stderr);
        assert!(status.success(), "{lines}: {status}: {said}{}", self.logs());
        String::from_utf8(stdout).expect("it prints text").replace(&self.prefix, "hunt")
    }

    fn logs(&self) -> String {
        let log = |name: &&str| fs::read_to_string(self.folder.path().join(name).join("log"));
        ["huntd", "serve"].iter().filter_map(|name| log(name).ok()).collect()
    }
}

/// Text with each number as one digit and each run of blanks as one.
fn without_numbers(text: &str) -> Vec<String> {
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let digits = |c: char| if c.is_ascii_digit() { '0' } else { c };
    let mut lines: Vec<String> =
        text.lines().map(|line| words(line).chars().map(digits).collect()).collect();
    for line in &mut lines {
        while line.contains("00") {
            *line = line.replace("00", "0");
        }
    }
    lines
}

#[test]
fn every_command_of_the_tutorial_does_what_the_page_says() {
    let Some(services) = services() else { return };
    let image = format!("apache/kafka:{}", kafka::VERSION);
    assert_eq!(services["kafka"]["image"], image, "the tests' version of Kafka");
    let beside = Path::new(COMPOSE).parent().expect("a folder");
    let build = &services["huntd"]["build"];
    let context = beside.join(build["context"].as_str().expect("a folder"));
    assert!(context.join(build["dockerfile"].as_str().expect("a file")).is_file());
    let profile = services["huntd"]["security_opt"][0].as_str().expect("an option");
    assert!(beside.join(profile.strip_prefix("seccomp=").expect("a profile")).is_file());
    let mut host = Host::new(services);
    let (mut printed, mut counts) = (String::new(), Vec::new());
    for block in PAGE.split("\n```").skip(1).step_by(2) {
        let (kind, text) = block.split_once('\n').expect("a block has lines");
        if kind == "text" {
            assert_eq!(without_numbers(text), without_numbers(&printed), "{printed}");
            continue;
        }
        assert_eq!(kind, "sh");
        printed.clear();
        let mut lines = String::new();
        for line in text.lines().chain(["docker compose"]) {
            let Some(command) = line.strip_prefix("docker compose") else {
                let is_of_containers = line.starts_with("cd ") || line.starts_with("huntd() ");
                lines += &if is_of_containers { String::new() } else { format!("{line}\n") };
                continue;
            };
            let output = host.run(&std::mem::take(&mut lines));
            counts.extend(output.lines().filter_map(|line| line.parse::<u64>().ok()));
            printed = output.lines().filter(|line| *line != "ready").collect::<Vec<_>>().join("\n");
            match command.trim() {
                "" => {}
                "up --build --detach" => {
                    let created = host.service("topics").stdout(Stdio::null()).status();
                    assert!(created.expect("huntd is started").success(), "{}", host.logs());
                    host.start("huntd");
                    host.start("serve");
                }
                "kill huntd" => drop(host.running.remove("huntd")),
                "start huntd" => host.start("huntd"),
                "down" => host.running.clear(),
                other => panic!("docker compose {other}"),
            }
        }
    }
    assert_eq!(counts.len(), 3, "moves before the kill, after it, and in a replay: {counts:?}");
    assert!(counts[0] > 0 && counts.iter().all(|count| *count == counts[0]), "{counts:?}");
}
