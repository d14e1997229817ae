//! Clients in other languages write events to a real topic, and read what a daemon makes of them.

use huntd::hunt::frames::encode;
use huntd::kit::update::Update;
use huntd::output::frame::{Chain, Format, FrameHeader, FrameKind};
use huntd::testing::frame_maker::FrameMaker;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader};
use std::iter;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};
use support::PATIENCE;
use support::accounts::{self, Follower, Story};
use support::daemon::{Huntd, Topics};
use support::kafka::{Cluster, Options};
use support::process::OwnedChild;
use support::{go_client, kafka, needs};

/// What a client prints for each update.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Printed {
    /// Its place, the number of its kind, and its player.
    Line,
    /// Its place and all of its fields, as a JSON object.
    Json,
}

/// Runs a client that ends by itself.
fn run(client: &Client, arguments: &[&str]) {
    let (is_done, errors) = client.outcome(arguments);
    assert!(is_done, "{errors}");
}

/// A client, by the words that start it.
struct Client {
    words: Vec<String>,
    printed: Printed,
    /// The forms of frames in which the two daemons publish.
    formats: [&'static str; 2],
    /// Whether it reads on at the end of the topic.
    is_endless: bool,
}

/// For a client that reads one form of frames only.
const BINARY: [&str; 2] = ["binary"; 2];

/// For a client that reads both, also one after the other.
const BOTH: [&str; 2] = ["json", "binary"];

impl Client {
    fn new(words: &[&str], printed: Printed, formats: [&'static str; 2]) -> Client {
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        Client { words, printed, formats, is_endless: false }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]).args(arguments);
        command
    }

    /// Whether it has succeeded, and what it has written to standard error.
    fn outcome(&self, arguments: &[&str]) -> (bool, String) {
        let output = self.command(arguments).output().expect("the client can be started");
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// To read a topic or write to a partition that does not exist is an error.
    fn assert_says_what_is_not_there(&self, brokers: &str, topics: &Topics) {
        let nowhere = format!("{}-nowhere", topics.output);
        for arguments in [&["read", brokers, &nowhere][..], &["write", brokers, &topics.input, "2"]]
        {
            let (is_done, errors) = self.outcome(arguments);
            assert!(!is_done && !errors.is_empty(), "{arguments:?}: {errors}");
        }
    }

    /// Writes, is started again and writes again, and reads what two daemons, one after the other,
    /// have made of it.
    fn assert_writes_and_reads(&self, name: &str) {
        let topics = Topics::create(kafka::shared(), name, 2);
        let brokers = kafka::shared().bootstrap();
        self.assert_says_what_is_not_there(&brokers, &topics);
        let write = || run(self, &["write", &brokers, &topics.input, "1"]);
        write();
        let settings = self.formats.map(|format| format!("format = \"{format}\""));
        let start = |form: &str| Huntd::start(kafka::shared(), &topics, &[("publish", form)]);
        let mut first = start(&settings[0]);
        let mut follower = Follower::new(kafka::shared(), &topics);
        accounts::wait_until_covered(kafka::shared(), &topics, &mut follower, &mut first);
        let ended = first.stop();
        assert!(ended.status.success(), "{}", ended.log);
        // Its seq goes on: a second join is refused, not ignored.
        write();
        let mut huntd = start(&settings[1]);
        accounts::wait_until_covered(kafka::shared(), &topics, &mut follower, &mut huntd);
        assert_eq!(huntd.metric("huntd_events_no_op_total"), 0);
        let ended = huntd.stop();
        assert!(ended.status.success(), "{}", ended.log);

        let stories = follower.into_stories();
        let mut expected: Vec<String> = (0..)
            .zip(&stories)
            .flat_map(|(partition, story)| self.expected(partition, story))
            .collect();
        assert!(expected.len() >= 6, "{expected:?}");
        let mut lines = self.read_in_parts(&brokers, &topics.output, expected.len());
        lines.sort_unstable();
        expected.sort_unstable();
        assert_eq!(lines, expected);
    }

    /// The lines that it prints of one partition.
    fn expected(&self, partition: i32, story: &Story) -> Vec<String> {
        let updates = story.updates.iter().zip(as_json(&story.updates));
        let line = |(number, (update, mut object)): (u64, (&Update, Value))| match self.printed {
            Printed::Line => {
                let (kind, player) = (update.words()[2] & 0xff, update.player_id());
                format!("{partition} {number} kind {kind} player {player}")
            }
            Printed::Json => {
                object["partition"] = json!(partition);
                object["number"] = json!(number);
                object.to_string()
            }
        };
        (0..).zip(updates).map(line).collect()
    }

    /// The updates that it prints in two runs: the first is killed at its first position, and the
    /// second begins from what the first has printed. `count` is the number of all updates.
    fn read_in_parts(&self, brokers: &str, topic: &str, count: usize) -> Vec<String> {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        let arguments = ["read", brokers, topic, file.path().to_str().expect("the path is text")];
        let mut updates = Vec::new();
        let mut printed = self.read_until(&arguments, |line| !self.is_update(line));
        // It was killed while it printed that position once more.
        let position = printed.last().expect("a position");
        let cut_off = &position[..position.len() - 2];
        let all = format!("{}\n{cut_off}", printed.join("\n"));
        fs::write(file.path(), all).expect("it is writable");
        updates.extend(printed.drain(..).filter(|line| self.is_update(line)));
        assert!((1..count).contains(&updates.len()), "it is stopped in the middle");
        let mut left = count - updates.len();
        let rest = self.read_until(&arguments, |line| {
            left -= usize::from(self.is_update(line));
            self.is_endless && left == 0
        });
        assert_eq!(rest[0], "", "what it prints begins with a line of its own");
        updates.extend(rest.into_iter().filter(|line| self.is_update(line)));
        updates.into_iter().map(|line| self.in_order(line)).collect()
    }

    /// The lines that it prints until `is_last` is true of one. There it is killed.
    fn read_until(&self, arguments: &[&str], mut is_last: impl FnMut(&str) -> bool) -> Vec<String> {
        let mut command = self.command(arguments);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the client can be started");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        let (printed, come) = mpsc::channel();
        thread::spawn(move || stdout.lines().map_while(|line| printed.send(line).ok()).count());
        let mut lines = Vec::new();
        let end = loop {
            match come.recv_timeout(PATIENCE) {
                Ok(line) => lines.push(line.expect("text")),
                Err(end) => break Some(end),
            }
            if is_last(&lines[lines.len() - 1]) {
                break None;
            }
        };
        if end != Some(RecvTimeoutError::Disconnected) {
            child.kill().expect("it is a child");
        }
        let status = child.wait().expect("it is a child");
        assert!(end.is_none() || status.success(), "{end:?}, {status}: {lines:?}");
        lines
    }

    /// Whether a line is an update; the others are positions.
    fn is_update(&self, line: &str) -> bool {
        line.contains(match self.printed {
            Printed::Line => " kind ",
            Printed::Json => "\"kind\"",
        })
    }

    /// A line with its fields in the order of this test.
    fn in_order(&self, line: String) -> String {
        match self.printed {
            Printed::Line => line,
            Printed::Json => {
                serde_json::from_str::<Value>(&line).expect("a JSON object a line").to_string()
            }
        }
    }
}

/// Updates as a frame has them in JSON.
fn as_json(updates: &[Update]) -> Vec<Value> {
    let header = FrameHeader {
        kind: FrameKind::Updates,
        owner_epoch: 1,
        first_update: 0,
        count: updates.len() as u32,
        next_offset: 0,
        ruleset: 0,
        chain: Chain::default(),
        fence_id: 0,
    };
    let mut bytes = Vec::new();
    encode(Format::Json, &header, updates, &mut bytes);
    let mut frame: Value = serde_json::from_slice(&bytes).expect("a frame is JSON");
    serde_json::from_value(frame["updates"].take()).expect("a list")
}

/// Whether a command succeeds.
fn succeeds(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

/// The Java client, compiled into a folder. The jars of the tests' broker contain Kafka's client.
fn java_client(folder: &Path) -> Client {
    let folder = folder.to_str().expect("the path is text");
    let jars = kafka::class_path();
    let mut compiler = Command::new("javac");
    compiler.args(["-cp", &jars, "-d", folder, "docs/clients/Huntd.java"]);
    assert!(succeeds(&mut compiler), "it does not compile");
    let classes = format!("{folder}:{jars}");
    let words = ["java", "-XX:TieredStopAtLevel=1", "-cp", &classes, "Huntd"];
    Client::new(&words, Printed::Line, BINARY)
}

/// The C++ client, compiled into a folder, if this machine has librdkafka's header.
fn cpp_client(folder: &Path) -> Option<Client> {
    let header = Path::new("/usr/include/librdkafka/rdkafka.h");
    if !needs::has("librdkafka-dev", header.exists()) || !needs::has_program("c++", "--version") {
        return None;
    }
    let program = folder.join("client");
    let built = Command::new("c++")
        .args(["-std=c++20", "-DWITH_LIBRDKAFKA", "docs/clients/huntd.cpp", "-lrdkafka", "-o"])
        .arg(&program)
        .status();
    assert!(built.expect("the compiler runs").success());
    let words = [program.to_str().expect("the path is text")];
    Some(Client::new(&words, Printed::Line, BINARY))
}

/// The JavaScript client in a folder, with its packages, if this machine can fetch them.
fn javascript_client(folder: &Path) -> Option<Client> {
    if !needs::has_minutes() {
        return None;
    }
    let mut install = Command::new("npm");
    install.args(["install", "--silent", "--no-save", "--no-audit", "--no-fund"]);
    // The version that the head of the file names.
    install.arg("@platformatic/kafka@1");
    // Modules are looked for beside the file that imports them.
    let file = folder.join("huntd.mjs");
    fs::copy("docs/clients/huntd.mjs", &file).expect("the client is part of the source");
    if !needs::has("@platformatic/kafka, by npm", succeeds(install.current_dir(folder))) {
        return None;
    }
    let words = ["node", file.to_str().expect("the path is text")];
    Some(Client::new(&words, Printed::Json, BOTH))
}

/// A frame with one update, the first of its partition.
fn first_frame() -> Vec<u8> {
    let frame = FrameMaker::new(0).frame(1);
    let mut bytes = Vec::new();
    encode(Format::Binary, &frame.header, frame.updates.as_slice(), &mut bytes);
    bytes
}

/// Records that are no frames, and take a client some time.
const MANY: usize = 256;
static LONG: [u8; 500_000] = [b'x'; 500_000];

#[test]
fn the_java_client_writes_events_and_reads_each_update_once_over_restarts() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    java_client(folder.path()).assert_writes_and_reads("java-client");
}

#[test]
fn the_java_client_ends_if_the_brokers_go_away_while_it_reads() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let client = java_client(folder.path());
    let mut cluster = Cluster::start(1, &Options::for_tests());
    cluster.client().create_topic("updates", 1, &[]);
    let frame = first_frame();
    let records = iter::once(&frame[..]).chain(iter::repeat_n(&LONG[..], MANY));
    cluster.client().produce("updates", records.map(|record| (0, &b""[..], record)));
    let mut command = client.command(&["read", &cluster.bootstrap(), "updates"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let mut child = OwnedChild::from(child.expect("the client can be started"));
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    assert!(client.is_update(&lines.next().expect("a line").expect("text")));
    cluster.broker_mut(0).kill9();
    let end = Instant::now() + PATIENCE;
    let status = loop {
        if let Some(status) = child.try_wait().expect("it is a child") {
            break status;
        }
        assert!(Instant::now() < end, "it waits for a broker that is gone");
        thread::sleep(Duration::from_millis(50));
    };
    assert!(!status.success(), "it has not read all");
}

#[test]
fn the_python_client_writes_events_and_reads_both_forms_each_update_once_over_restarts() {
    // The system's Python has the packages of the system.
    let imports =
        |python: &&str| succeeds(Command::new(python).args(["-c", "import confluent_kafka"]));
    let python = ["python3", "/usr/bin/python3"].into_iter().find(imports);
    if !needs::has("python3 with confluent-kafka", python.is_some()) {
        return;
    }
    let words = [python.expect("there is one"), "docs/clients/huntd.py"];
    Client::new(&words, Printed::Json, BOTH).assert_writes_and_reads("python-client");
}

#[test]
fn the_cpp_client_writes_events_and_reads_each_update_once_over_restarts() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let Some(client) = cpp_client(folder.path()) else { return };
    client.assert_writes_and_reads("cpp-client");
}

#[test]
fn the_cpp_client_reads_each_partition_to_its_end_while_another_one_grows() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let Some(client) = cpp_client(folder.path()) else { return };
    let topic = kafka::unique_name("growing");
    let kafka = kafka::shared().client();
    kafka.create_topic(&topic, 2, &[]);
    let frame = first_frame();
    let records = iter::repeat_n(&LONG[..], MANY).chain([&frame[..]]);
    kafka.produce(&topic, records.map(|record| (1, &b""[..], record)));
    let producer: BaseProducer = kafka.config().create().expect("the configuration is valid");
    let brokers = kafka::shared().bootstrap();
    let arguments = ["read", &brokers, &topic];
    let lines = thread::scope(|scope| {
        let reading = scope.spawn(|| client.read_until(&arguments, |_| false));
        while !reading.is_finished() {
            let record = BaseRecord::<(), [u8]>::to(&topic).partition(0).payload(b"no frame");
            assert!(producer.send(record).is_ok());
            producer.poll(Duration::from_millis(2));
        }
        reading.join().expect("it ends well")
    });
    assert_eq!(lines.iter().filter(|line| client.is_update(line)).count(), 1, "{lines:?}");
}

#[test]
fn the_go_client_writes_events_and_reads_each_update_once_over_restarts() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let Some(program) = go_client::build(folder.path()) else { return };
    let words = [program.to_str().expect("the path is text")];
    let client = Client { is_endless: true, ..Client::new(&words, Printed::Line, BINARY) };
    client.assert_writes_and_reads("go-client");
}

#[test]
fn the_javascript_client_writes_events_and_reads_both_forms_each_update_once_over_restarts() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let Some(client) = javascript_client(folder.path()) else { return };
    client.assert_writes_and_reads("javascript-client");
}

#[test]
fn the_javascript_client_ends_at_the_end_of_a_transaction() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let Some(client) = javascript_client(folder.path()) else { return };
    let topic = kafka::unique_name("transaction");
    let kafka = kafka::shared().client();
    kafka.create_topic(&topic, 1, &[]);
    kafka.produce(&topic, [(0, &b""[..], &first_frame()[..])]);
    let writer: BaseProducer =
        kafka.config().set("transactional.id", &topic).create().expect("it is valid");
    writer.init_transactions(PATIENCE).expect("the broker answers");
    writer.begin_transaction().expect("a transaction begins");
    let record = BaseRecord::<(), [u8]>::to(&topic).partition(0).payload(b"no frame");
    assert!(writer.send(record).is_ok());
    writer.commit_transaction(PATIENCE).expect("it ends");
    let lines = client.read_until(&["read", &kafka::shared().bootstrap(), &topic], |_| false);
    assert_eq!(lines.iter().filter(|line| client.is_update(line)).count(), 1, "{lines:?}");
}
