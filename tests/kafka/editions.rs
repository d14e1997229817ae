//! A running game goes to another version and back, and every player keeps what it has.
//!
//! The versions are two editions of a small game. They run in processes of their own: this test,
//! started again with the version in its environment.

use crate::campaign::number;
use huntd::edition::{Edition, built_in, edition};
use huntd::kit::rulebook::GameRules;
use huntd::output::encode::decode;
use huntd::output::event_json::write_event;
use huntd::output::frame::FrameHeader;
use huntd::output::reader::{Reader, Verdict};
use huntd::service::cli::{RehearseArgs, RunArgs};
use huntd::service::config_args::ConfigArgs;
use huntd::testing::turf::events::{TurfAction, TurfUpdate};
use huntd::testing::turf::{first, second};
use huntd::tools::{rehearse, run};
use rdkafka::Offset;
use rdkafka::message::Message;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use support::PATIENCE;
use support::daemon::{Huntd, Topics};
use support::kafka::{self, Cluster};
use tempfile::TempDir;

/// The test as which an instance is started.
const NAME: &str = "editions::a_running_game_goes_to_another_version_and_back_without_loss";
const EDITION: &str = "HUNTD_TEST_EDITION";
const CONFIG: &str = "HUNTD_TEST_CONFIG";

/// The log's words for a zone that another version plays.
const WAITS: &str = "of the game to stop: it plays the zone";

const PARTITIONS: i32 = 2;

/// Upgrades and returns in which an instance is killed. `HUNTD_CYCLES=200 cargo test --test kafka
/// kills_in -- --nocapture` has more.
const UPGRADES: usize = 2;
const PLAYERS: u64 = 6;

/// Output records of a partition that an edition publishes before it is stopped.
const RECORDS: i64 = 40;

fn edition_of(name: &str) -> Edition {
    match name {
        "first" => edition::<first::play::Turf>(),
        "second" => edition::<second::play::Turf>(),
        other => panic!("there is no edition {other}"),
    }
}

fn ruleset(name: &str) -> u32 {
    match name {
        "first" => built_in::<first::play::Turf>().hash(),
        _ => built_in::<second::play::Turf>().hash(),
    }
}

/// Plays an edition until a signal ends the process.
fn play(name: &str) -> ! {
    let file = std::env::var_os(CONFIG).expect("the test passes it").into();
    let config = ConfigArgs { file, set: Vec::new() };
    let args = RunArgs { config, genesis: false, skip: Vec::new() };
    let ended = run::run(&args, &edition_of(name));
    huntd::service::log::flush();
    let code = ended.err().map_or(0, |error| error.exit_code() as i32);
    std::process::exit(code)
}

/// Starts an instance of an edition on a host of its own.
fn start(edition: &str, topics: &Topics, (folder, replicas): (&TempDir, &str)) -> Huntd {
    let snapshots =
        format!("every_ms = 200\ntopic = {replicas:?}\ndirectory = {:?}", folder.path());
    start_on(kafka::shared(), edition, topics, &snapshots)
}

/// Starts an instance of an edition that takes these snapshots.
pub(crate) fn start_on(
    cluster: &Cluster,
    edition: &str,
    topics: &Topics,
    snapshots: &str,
) -> Huntd {
    let mut shell = Command::new("sh");
    let run = format!("{CONFIG}=\"$3\" exec \"$0\" {NAME} --exact --nocapture");
    shell.args(["-c", &run]).arg(std::env::current_exe().expect("it runs"));
    shell.env(EDITION, edition);
    Huntd::start_by(shell, cluster, topics, &[("snapshot", snapshots)])
}

/// Three pairs of players of two teams, each pair on a field that it paints by turns: each time
/// gives the painter points.
struct Painters {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

impl Painters {
    fn start(topics: &Topics) -> Painters {
        let config = kafka::shared().client().impatient_config();
        let producer: BaseProducer = config.clone().create().expect("it is valid");
        let stop = Arc::new(AtomicBool::new(false));
        let (topic, asked) = (topics.input.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            let send = |player_id: u64, seq: u64, action: TurfAction| {
                let mut text = Vec::new();
                write_event(&mut text, player_id, seq, 1_767_225_600_000_000, &action);
                for partition in 0..PARTITIONS {
                    let mut record: BaseRecord<'_, (), [u8]> =
                        BaseRecord::to(&topic).partition(partition).payload(&text);
                    // A busy broker takes its time.
                    while let Err((_, back)) = producer.send(record) {
                        record = back;
                        producer.poll(Duration::from_millis(10));
                    }
                }
            };
            for player_id in 1..=PLAYERS {
                send(player_id, 1, TurfAction::Join { field: (player_id as u32 - 1) / 2 });
            }
            // The round needs a clock, which needs some records.
            for seq in 2..5 {
                (1..=PLAYERS).for_each(|player_id| send(player_id, seq, TurfAction::Paint));
            }
            send(0, 0, TurfAction::Round { seconds: u16::MAX });
            let mut seq = 5;
            while !asked.load(Ordering::Relaxed) {
                (1..=PLAYERS).for_each(|player_id| send(player_id, seq, TurfAction::Paint));
                seq += 1;
                producer.poll(Duration::ZERO);
                std::thread::sleep(Duration::from_millis(10));
            }
            producer.flush(PATIENCE).expect("brokers acknowledge all records");
            seq - 2
        });
        Painters { stop, thread }
    }

    /// How often each player has painted in each zone.
    fn finish(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the painters end by themselves")
    }
}

/// What a reader makes of a partition.
#[derive(Default)]
struct Seen {
    reader: Reader,
    /// The offset of the record that is read next.
    next: i64,
    /// The rulesets of its frames, without repetitions.
    rulesets: Vec<u32>,
    scores: BTreeMap<u64, u64>,
    /// How often each player was told what became of its paint.
    answers: BTreeMap<u64, u64>,
    /// Times that a player got two points at once.
    doubles: u64,
    /// When the last updates were appended, in milliseconds.
    updated_at_ms: u64,
    /// Milliseconds from the last updates of an edition to the first of the next one.
    pauses_ms: Vec<u64>,
}

impl Seen {
    /// Reads a partition from its start to its end.
    fn read(topics: &Topics, partition: i32) -> Seen {
        let mut seen = Seen::default();
        seen.read_on(topics, partition);
        seen
    }

    /// Reads what has been appended to the partition since.
    fn read_on(&mut self, topics: &Topics, partition: i32) {
        let updates = edition_of("first").schema.game.updates;
        let from = Offset::Offset(self.next);
        kafka::shared().client().read(&topics.output, partition, from, |record| {
            self.next = record.offset() + 1;
            let payload = record.payload().expect("frames have a value");
            let (header, made) = decode(payload, updates).expect("frames can be read");
            let verdict = self.reader.fold(&header, &made);
            match verdict {
                Verdict::Fence => {}
                Verdict::Progress { is_at_next: true } => self.note_ruleset(&header),
                Verdict::Accepted { from } => {
                    // Only an empty frame may be the place of another version.
                    assert_eq!(self.rulesets.last().unwrap_or(&header.ruleset), &header.ruleset);
                    self.note_ruleset(&header);
                    let time = record.timestamp().to_millis().expect("brokers stamp it");
                    self.note_time(time.cast_unsigned());
                    made[from..].iter().for_each(|update| {
                        self.take(update.player_id(), update.change(), header.ruleset);
                    });
                }
                other => panic!("{other:?} of {header:?}"),
            }
        });
    }

    fn note_ruleset(&mut self, header: &FrameHeader) {
        if self.rulesets.last() != Some(&header.ruleset) {
            self.rulesets.push(header.ruleset);
        }
    }

    fn note_time(&mut self, now_ms: u64) {
        // The first updates of an edition.
        if self.pauses_ms.len() + 1 < self.rulesets.len() {
            self.pauses_ms.push(now_ms - self.updated_at_ms);
        }
        self.updated_at_ms = now_ms;
    }

    fn take(&mut self, player_id: u64, update: TurfUpdate, by: u32) {
        if let TurfUpdate::Painted { .. } | TurfUpdate::Refused { .. } = update {
            *self.answers.entry(player_id).or_default() += u64::from(player_id > 0);
        }
        let TurfUpdate::Painted { score, .. } = update else { return };
        let before = self.scores.insert(player_id, score).unwrap_or(0);
        let may_be_double = by == ruleset("second");
        let points = score.checked_sub(before);
        assert!(points == Some(1) || (points == Some(2) && may_be_double), "{before} to {score}");
        self.doubles += u64::from(points == Some(2));
    }
}

#[test]
fn a_running_game_goes_to_another_version_and_back_without_loss() {
    if let Ok(edition) = std::env::var(EDITION) {
        play(&edition);
    }
    let topics = Topics::create(kafka::shared(), "editions", PARTITIONS);
    let replicas = create_replicas(&topics);
    let painters = Painters::start(&topics);
    let folders = [(); 3].map(|()| tempfile::tempdir().expect("a temporary folder"));
    let mut running = start_first(&topics, (&folders[0], &replicas));
    let editions = ["first", "second", "first"];
    for (edition, folder) in editions.iter().zip(&folders).skip(1) {
        let mut next = start(edition, &topics, (folder, &replicas));
        // The zones that the group gives it are played until their owner stops.
        wait_behind(&mut next);
        stop(running);
        wait_for_more(&topics, &mut next);
        running = next;
    }
    for (partition, seen) in finish(&topics, painters, running).iter().enumerate() {
        assert_eq!(seen.rulesets, editions.map(ruleset));
        println!("zone {partition} stood still at each takeover for {:?} ms", seen.pauses_ms);
    }
}

/// An instance is killed while another version waits for its zones, and each new owner while it
/// takes them over.
#[test]
fn kills_in_the_middle_of_an_upgrade_lose_nothing_and_repeat_nothing() {
    let topics = Topics::create(kafka::shared(), "editions-killed", PARTITIONS);
    let replicas = create_replicas(&topics);
    let painters = Painters::start(&topics);
    let folders = [(); 3].map(|()| tempfile::tempdir().expect("a temporary folder"));
    let places = folders.each_ref().map(|folder| (folder, replicas.as_str()));
    let mut running = start_first(&topics, places[0]);
    let mut next = start("second", &topics, places[1]);
    wait_behind(&mut next);
    let waits = |huntd: &Huntd| huntd.log().matches(WAITS).count();
    let before = waits(&next);
    // Without a folder it stores no more states: its last one is behind what it has published, so
    // its version has to play once more.
    let away = folders[0].path().with_extension("away");
    fs::rename(folders[0].path(), &away).expect("the folder can be moved");
    File::create(folders[0].path()).expect("a file can be there");
    let failures = |running: &Huntd| running.metric("huntd_snapshots_failed_total");
    running.wait_until("a state that is not stored", |running| failures(running) > 0);
    wait_for_more(&topics, &mut running);
    running.kill9();
    fs::remove_file(folders[0].path()).expect("the file is there");
    fs::rename(&away, folders[0].path()).expect("the folder can be moved");
    let end = ends(&topics);
    next.wait_until("the other zone waits, too", |huntd| waits(huntd) > before);
    stop(next);
    assert_eq!(ends(&topics), end, "nobody goes on from a state that is behind");
    let mut running = start("first", &topics, places[0]);
    wait_for_more(&topics, &mut running);
    let cycles = number("HUNTD_CYCLES").map_or(UPGRADES, |cycles| cycles as usize);
    let versions = [("second", places[1]), ("first", places[2])].into_iter().cycle();
    let mut played = vec![ruleset("first")];
    for (edition, place) in versions.take(cycles) {
        played.push(ruleset(edition));
        let mut next = start(edition, &topics, place);
        wait_behind(&mut next);
        stop(running);
        let end = ends(&topics);
        next.wait_until("a frame of the next version", |_| ends(&topics) != end);
        next.kill9();
        running = start(edition, &topics, place);
        wait_for_more(&topics, &mut running);
    }
    for seen in finish(&topics, painters, running) {
        assert_eq!(seen.rulesets, played);
    }
}

/// Creates the topic for replicas of snapshots.
fn create_replicas(topics: &Topics) -> String {
    kafka::shared().client().set_topic(&topics.output, "message.timestamp.type", "LogAppendTime");
    let replicas = format!("{}-snapshots", topics.input);
    let compacted = [("cleanup.policy", "compact")];
    kafka::shared().client().create_topic(&replicas, PARTITIONS, &compacted);
    replicas
}

/// Starts the first edition, and waits until it plays and its snapshots are replicated.
fn start_first(topics: &Topics, place: (&TempDir, &str)) -> Huntd {
    let mut running = start("first", topics, place);
    running.wait_for_address();
    running.wait_until("a replica of each zone's snapshot", |huntd| {
        huntd.metric("huntd_snapshot_replicas_stored_total") >= PARTITIONS as u64
    });
    wait_for_more(topics, &mut running);
    running
}

/// Where the output ends.
fn ends(topics: &Topics) -> Vec<i64> {
    kafka::shared().client().ends(&topics.output, PARTITIONS)
}

/// Waits until each zone is played on.
fn wait_for_more(topics: &Topics, huntd: &mut Huntd) {
    let before = ends(topics);
    huntd.wait_until("records of each zone", |_| {
        ends(topics).iter().zip(&before).all(|(end, before)| *end >= before + RECORDS)
    });
}

/// Waits until an instance waits for a zone that another version plays.
fn wait_behind(next: &mut Huntd) {
    next.wait_until("a zone that waits", |huntd| huntd.log().contains(WAITS));
}

/// Lets the players stop and the instance catch up. Everybody was told once what became of each of
/// its paints, and the second edition has given points twice.
fn finish(topics: &Topics, painters: Painters, mut running: Huntd) -> Vec<Seen> {
    let painted = painters.finish();
    let inputs = kafka::shared().client().ends(&topics.input, PARTITIONS);
    let mut all: Vec<Seen> = inputs.iter().map(|_| Seen::default()).collect();
    running.wait_until("the end of the input", |_| {
        (0..).zip(&mut all).zip(&inputs).all(|((partition, seen), end)| {
            seen.read_on(topics, partition);
            seen.reader.position().next_offset == *end
        })
    });
    stop(running);
    for (partition, seen) in (0..).zip(&mut all) {
        seen.read_on(topics, partition);
        let players = (1..=PLAYERS).map(|player_id| seen.answers[&player_id]);
        let lost: u64 = players.clone().map(|answers| painted.saturating_sub(answers)).sum();
        let twice: u64 = players.map(|answers| answers.saturating_sub(painted)).sum();
        println!("{} paints, {lost} lost, {twice} twice", painted * PLAYERS);
        assert_eq!((lost, twice), (0, 0));
        assert_eq!(seen.scores.len() as u64, PLAYERS, "everybody has painted");
        assert!(seen.doubles > 0, "the second edition has given no bonus");
    }
    all
}

const REHEARSAL: &str = "editions::the_next_version_is_rehearsed_beside_the_one_that_plays";

/// Rehearses the second edition up to the present end of the input.
pub(crate) fn rehearse_by(config: &str) -> Output {
    Command::new(std::env::current_exe().expect("it runs"))
        .args([REHEARSAL, "--exact", "--nocapture"])
        .env(CONFIG, config)
        .output()
        .expect("it is started")
}

/// The report of a rehearsal.
fn rehearse(playing: &Huntd) -> Value {
    let rehearsed = rehearse_by(&playing.config());
    let text = String::from_utf8_lossy(&rehearsed.stdout).into_owned();
    assert!(rehearsed.status.success(), "{text}\n{}", String::from_utf8_lossy(&rehearsed.stderr));
    let report = text.lines().find(|line| line.starts_with('{')).expect("a report");
    serde_json::from_str(report).expect("an object")
}

#[test]
fn the_next_version_is_rehearsed_beside_the_one_that_plays() {
    if let Some(file) = std::env::var_os(CONFIG) {
        let config = ConfigArgs { file: file.into(), set: Vec::new() };
        let (rules, skip) = (Vec::new(), Vec::new());
        let args = RehearseArgs { config, rules, skip, once: true, json: true };
        let editions = ["second", "first"].map(edition_of);
        let ended = rehearse::run(&args, &editions[0], &editions);
        std::process::exit(ended.map_or_else(
            |error| {
                println!("{error}");
                error.exit_code() as i32
            },
            |()| 0,
        ))
    }
    let topics = Topics::create(kafka::shared(), "rehearsal", PARTITIONS);
    let replicas = format!("{}-snapshots", topics.input);
    kafka::shared().client().create_topic(&replicas, PARTITIONS, &[("cleanup.policy", "compact")]);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let painters = Painters::start(&topics);
    let mut playing = start("first", &topics, (&folder, &replicas));
    playing.wait_for_address();
    playing.wait_until("a snapshot of each zone", |huntd| {
        huntd.metric("huntd_snapshot_replicas_stored_total") >= PARTITIONS as u64
    });
    let mut report = Value::Null;
    playing.wait_until("a difference", |huntd| {
        report = rehearse(huntd);
        !report["first"].is_null()
    });
    painters.finish();
    let first = &report["first"];
    assert_eq!(first["versions"], serde_json::json!([1, 2]), "{report}");
    let score = |by: &str| first[by]["updates"][0]["score"].as_u64().expect("it paints");
    assert_eq!(score("rehearsed"), score("played") + 1, "{report}");
    // Where every player is about to get its bonus, each event differs.
    assert!(report["events"].as_u64() >= report["other_updates"].as_u64(), "{report}");
    assert_eq!(report["other_outcomes"], 0, "{report}");
    stop(playing);
    let seen = Seen::read(&topics, 0);
    assert_eq!((seen.rulesets, seen.doubles), (vec![ruleset("first")], 0), "nothing is published");
}

fn stop(huntd: Huntd) {
    let ended = huntd.stop();
    assert!(ended.status.success(), "{}:\n{}", ended.status, ended.log);
}
