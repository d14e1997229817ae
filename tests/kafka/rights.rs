//! The rights that docs/REFERENCE.md lists for each verb: these suffice, and none can be left out.

use crate::editions;
use crate::players::{events, produce};
use crate::snapshots::stop;
use crate::verbs::huntd;
use crate::while_used::WhileUsed;
use std::path::Path;
use std::process::Output;
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::PATIENCE;
use support::daemon::{Huntd, Topics};
use support::kafka::acl::{self, Operation, Resource};
use support::kafka::secure::{Kind, SecureCluster, USER};
use support::scrape::Page;
use support::serving::Serving;
use tempfile::TempDir;

/// The broker that the tests of this file share. It grants only rights that were given, and each
/// test gives those on its own topics and groups.
fn strict() -> Arc<SecureCluster> {
    static STRICT: WhileUsed<SecureCluster> = WhileUsed::unused();
    STRICT.get(|| SecureCluster::start(&acl::strict_properties(), &[]))
}

/// One right: to do what, on which kind of resource, by the name in the document.
type Right = (Operation, Resource, String);

/// The rights that the document lists for a verb.
fn documented(verb: &str) -> Vec<Right> {
    let document = include_str!("../../docs/REFERENCE.md");
    let (_, section) = document.split_once("\n## Rights\n").expect("a section about rights");
    let mut lines = section.lines().skip_while(|line| {
        let title = line.strip_prefix("# ").unwrap_or_default();
        title.split([':', ',']).all(|name| name.trim() != verb)
    });
    lines.next();
    let commands: Vec<&str> = lines.map_while(|line| line.strip_prefix("allow ")).collect();
    assert!(!commands.is_empty(), "no rights are listed for {verb}");
    commands.into_iter().flat_map(rights).collect()
}

/// The rights that one command gives.
fn rights(command: &str) -> Vec<Right> {
    let words: Vec<&str> = command.split_whitespace().collect();
    let pairs = words.chunks_exact(2);
    let (mut operations, mut resource) = (Vec::new(), None);
    for pair in pairs {
        match (pair[0], pair[1]) {
            ("--operation", "Read") => operations.push(Operation::Read),
            ("--operation", "Write") => operations.push(Operation::Write),
            ("--operation", "Create") => operations.push(Operation::Create),
            ("--operation", "Describe") => operations.push(Operation::Describe),
            ("--operation", "DescribeConfigs") => operations.push(Operation::DescribeConfigs),
            ("--topic", name) => resource = Some((Resource::Topic, name)),
            ("--group", name) => resource = Some((Resource::Group, name)),
            other => panic!("{other:?} in {command}"),
        }
    }
    let (kind, name) = resource.expect("a topic or a group");
    operations.into_iter().map(|operation| (operation, kind, name.to_owned())).collect()
}

/// The topic for replicas of snapshots that belongs to these topics.
fn snapshot_topic(topics: &Topics) -> String {
    format!("{}-replicas", topics.input)
}

/// What the document calls so is called so here.
fn name_here(topics: &Topics, name: &str) -> String {
    match name {
        "hunt-events" => topics.input.clone(),
        "hunt-updates" => topics.output.clone(),
        "hunt-dead-letters" => topics.dead_letters.clone(),
        "hunt-snapshots" => snapshot_topic(topics),
        "huntd" => topics.group().to_owned(),
        other => panic!("no test has `{other}`"),
    }
}

/// What a verb said, and whether it did its work.
struct Attempt {
    has_worked: bool,
    said: String,
}

/// How huntd names what is missing.
fn name_in_acls(operation: Operation) -> &'static str {
    match operation {
        Operation::Read => "READ",
        Operation::Write => "WRITE",
        Operation::Create => "CREATE",
        Operation::Describe => "DESCRIBE",
        Operation::DescribeConfigs => "DESCRIBE_CONFIGS",
        other => panic!("no verb needs {other:?}"),
    }
}

/// A verb works with the rights that are documented for it, and without any one of them it names
/// what is missing, and no more.
fn assert_exact(
    secure: &SecureCluster,
    verb: &str,
    topics: impl Fn() -> Topics,
    attempt: impl Fn(&Topics) -> Attempt,
) {
    assert_exact_beside(secure, &[], verb, topics, attempt);
}

/// Like `assert_exact`, for the rights that a block adds to those of other blocks.
fn assert_exact_beside(
    secure: &SecureCluster,
    others: &[&str],
    verb: &str,
    topics: impl Fn() -> Topics,
    attempt: impl Fn(&Topics) -> Attempt,
) {
    let given: Vec<Right> = others.iter().flat_map(|other| documented(other)).collect();
    let rights = documented(verb);
    let whole = rights.len();
    for missing in (0..rights.len()).chain([whole]) {
        let topics = topics();
        let those = rights.iter().enumerate().filter(|(number, _)| *number != missing);
        let those = those.map(|(_, right)| right);
        for (operation, resource, name) in given.iter().chain(those) {
            let name = name_here(&topics, name);
            acl::allow(&secure.cluster.bootstrap(), USER, *operation, *resource, &name);
        }
        let Attempt { has_worked, said } = attempt(&topics);
        let Some((operation, resource, name)) = rights.get(missing) else {
            assert!(has_worked, "{verb} wants more than is documented:\n{said}");
            continue;
        };
        let what = format!("{verb} without {operation:?} on {resource:?} {name}");
        assert!(!has_worked, "{what} works:\n{said}");
        let name = format!("`{}`", name_here(&topics, name));
        let names = |line: &str| line.contains(&name) && line.contains("authoris");
        let granted = format!("grant {} on it", name_in_acls(*operation));
        let lines: Vec<&str> = said.lines().filter(|line| names(line)).collect();
        assert!(!lines.is_empty(), "{what} does not say so:\n{said}");
        assert!(lines.iter().all(|line| line.contains(&granted)), "{what}:\n{said}");
    }
}

/// How the user logs in.
fn sasl(secure: &SecureCluster) -> String {
    let secret = secure.file("password");
    format!("mechanism = \"SCRAM-SHA-256\"\nuser = \"{USER}\"\nsecret_file = {secret:?}")
}

/// A daemon that plays, refuses a record, ticks, commits, and replicates snapshots if these further
/// settings say so.
fn run(secure: &SecureCluster, topics: &Topics, further: &[(&str, &str)]) -> Attempt {
    let mut events = events(1, 5, 1..=10);
    events.push((0, "no event".to_owned()));
    produce(&secure.cluster, topics, &events);
    let sasl = sasl(secure);
    let mut settings = vec![("kafka.sasl", sasl.as_str()), ("input", "tick_every_ms = 200")];
    settings.extend(further);
    let replicates = further.iter().any(|(section, _)| *section == "snapshot");
    let mut huntd = Huntd::start_with(&[&secure.address(Kind::PlainSasl)], topics, &settings);
    // Beyond what was produced, there are ticks.
    let is_done = |page: &Page| {
        let is_replicated = || page.value("huntd_snapshot_replicas_stored_total") > 0;
        page.progress("acked") > events.len() as u64 && (!replicates || is_replicated())
    };
    let ended = Instant::now() + PATIENCE;
    loop {
        let said = huntd.log();
        if said.contains("authoris") || huntd.has_ended() {
            return Attempt { has_worked: false, said };
        }
        let is_known = said.contains("\"address\":\"");
        // A daemon that has ended meanwhile has no page.
        let page = is_known.then(|| Page::try_of(&huntd.address())).flatten();
        if page.is_some_and(|page| is_done(&page)) {
            let ended = huntd.stop();
            return Attempt { has_worked: ended.status.success(), said: ended.log };
        }
        assert!(Instant::now() < ended, "nothing comes of it:\n{said}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A configuration for these brokers.
pub(crate) fn configuration(address: &str, further: &str, topics: &Topics) -> (TempDir, String) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("huntd.toml");
    let Topics { input, output, dead_letters, .. } = topics;
    let text = format!(
        "[kafka]\nbrokers = [{address:?}]\ngroup = {:?}\ninput_topic = {input:?}\n\
         output_topic = {output:?}\ndead_letter_topic = {dead_letters:?}\n{further}\n",
        topics.group(),
    );
    std::fs::write(&file, text).expect("the configuration is written");
    let file = file.to_str().expect("the path is text").to_owned();
    (folder, file)
}

/// A verb that ends by itself.
fn tool(secure: &SecureCluster, topics: &Topics, verb: &[&str], further: &[&str]) -> Attempt {
    let login = format!("[kafka.sasl]\n{}", sasl(secure));
    let (_folder, file) = configuration(&secure.address(Kind::PlainSasl), &login, topics);
    let ended = huntd(&[verb, &["--config", &file], further].concat());
    Attempt { has_worked: ended.code == 0, said: ended.output + &ended.errors }
}

/// The argument that names the topic for replicas of snapshots.
fn set_copies(topics: &Topics) -> String {
    format!("snapshot.topic={}", snapshot_topic(topics))
}

/// Topics as `huntd topics` makes them.
fn well_made(secure: &SecureCluster) -> Topics {
    let topics = Topics::named("rights", 1);
    let (_folder, file) = configuration(&secure.cluster.bootstrap(), "", &topics);
    let ended = huntd(&["topics", "--config", &file, "--set", &set_copies(&topics)]);
    assert_eq!(ended.code, 0, "{}", ended.errors);
    topics
}

/// Topics with a dead letter.
fn with_a_letter(secure: &SecureCluster) -> Topics {
    let topics = Topics::create(&secure.cluster, "rights", 1);
    produce(&secure.cluster, &topics, &[(0, "no event".to_owned())]);
    let mut huntd = Huntd::start(&secure.cluster, &topics, &[]);
    huntd.wait_until("a dead letter", |_| {
        secure.cluster.client().ends(&topics.dead_letters, 1) == [1]
    });
    assert!(huntd.stop().status.success());
    topics
}

#[test]
fn a_daemon_needs_the_rights_that_are_documented_and_no_others() {
    let secure = strict();
    let topics = || Topics::create(&secure.cluster, "rights", 1);
    for protocol in ["classic", "consumer"] {
        let protocol = format!("group_protocol = {protocol:?}");
        assert_exact(&secure, "run", topics, |topics| {
            run(&secure, topics, &[("kafka", &protocol)])
        });
    }
    let topics = || with_snapshot_topic(&secure, topics());
    assert_exact_beside(&secure, &["run"], "run with snapshot.topic", topics, |topics| {
        // A replica that is there already has to be read.
        let [folder, other] = [(); 2].map(|()| tempfile::tempdir().expect("a temporary folder"));
        stop(replicating(&secure, topics, &snapshots(topics, other.path())));
        run(&secure, topics, &[("snapshot", &snapshots(topics, folder.path()))])
    });
}

#[test]
fn ticks_that_are_refused_are_in_the_log() {
    let secure = strict();
    let topics = Topics::create(&secure.cluster, "ticks", 1);
    for (operation, resource, name) in documented("run") {
        if (operation, &*name) != (Operation::Write, "hunt-events") {
            let name = name_here(&topics, &name);
            acl::allow(&secure.cluster.bootstrap(), USER, operation, resource, &name);
        }
    }
    let Attempt { said, .. } = run(&secure, &topics, &[]);
    assert!(said.contains("a tick was not appended"), "{said}");
}

/// These topics, and the topic for replicas of snapshots.
fn with_snapshot_topic(secure: &SecureCluster, topics: Topics) -> Topics {
    let compacted = [("cleanup.policy", "compact")];
    secure.cluster.client().create_topic(&snapshot_topic(&topics), topics.partitions, &compacted);
    topics
}

/// The configuration for snapshots that are taken often and replicated.
fn snapshots(topics: &Topics, folder: &Path) -> String {
    format!("directory = {folder:?}\ntopic = {:?}\nevery_ms = 200", snapshot_topic(topics))
}

/// A daemon of the tests' own that has replicated a snapshot.
fn replicating(secure: &SecureCluster, topics: &Topics, snapshots: &str) -> Huntd {
    let mut huntd = Huntd::start(&secure.cluster, topics, &[("snapshot", snapshots)]);
    produce(&secure.cluster, topics, &events(1, 5, 1..=5));
    huntd.wait_for_address();
    huntd.wait_until("a replica", |huntd| huntd.metric("huntd_snapshot_replicas_stored_total") > 0);
    huntd
}

/// A process that serves a daemon's zones, and posts a command.
fn serve(secure: &SecureCluster, topics: &Topics) -> Attempt {
    serve_world_of(&Huntd::start(&secure.cluster, topics, &[]), secure, topics)
}

/// Like this, but the view begins with the replica of a snapshot.
fn serve_copies(secure: &SecureCluster, topics: &Topics) -> Attempt {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let huntd = replicating(secure, topics, &snapshots(topics, folder.path()));
    let Attempt { has_worked, said } = serve_world_of(&huntd, secure, topics);
    Attempt { has_worked: has_worked && said.contains("began with a snapshot"), said }
}

/// A serving process of the user's, on another host: it has no file of the daemon.
fn try_serving(
    huntd: &Huntd,
    secure: &SecureCluster,
    arguments: &[&str],
) -> Result<Serving, Attempt> {
    let address = secure.address(Kind::PlainSasl);
    let secret = secure.file("password");
    let environment = [
        ("HUNTD_SNAPSHOT__DIRECTORY", ""),
        ("HUNTD_KAFKA__BROKERS", &address),
        ("HUNTD_KAFKA__SASL__MECHANISM", "SCRAM-SHA-256"),
        ("HUNTD_KAFKA__SASL__USER", USER),
        ("HUNTD_KAFKA__SASL__SECRET_FILE", secret.to_str().expect("the path is text")),
    ];
    Serving::try_start(huntd, arguments, "127.0.0.1:0", &environment)
        .map_err(|said| Attempt { has_worked: false, said })
}

/// A process that shows a zone as it was.
fn serve_at(huntd: &Huntd, secure: &SecureCluster) -> Attempt {
    match try_serving(huntd, secure, &["--at", "0:0"]) {
        Err(attempt) => attempt,
        Ok(serving) => {
            serving.body_at(&[1], "/v1/zones");
            Attempt { has_worked: true, said: serving.log() }
        }
    }
}

fn serve_world_of(huntd: &Huntd, secure: &SecureCluster, topics: &Topics) -> Attempt {
    produce(&secure.cluster, topics, &events(1, 5, 1..=10));
    let serving = match try_serving(huntd, secure, &[]) {
        Ok(serving) => serving,
        Err(attempt) => return attempt,
    };
    let event = r#"{"type":"rotate","player_id":1,"seq":50,"heading":100}"#;
    let ended = Instant::now() + PATIENCE;
    loop {
        let (status, body) = serving.post("/v1/events", event);
        let said = serving.log() + &body;
        if status == "200" || said.contains("authoris") {
            return Attempt { has_worked: status == "200", said };
        }
        assert!(Instant::now() < ended, "nothing comes of it:\n{status} {said}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn each_other_verb_needs_the_rights_that_are_documented_and_no_others() {
    let secure = strict();
    let topics = || Topics::create(&secure.cluster, "rights", 1);
    let tool = |topics: &Topics, verb: &[&str], more: &[&str]| tool(&secure, topics, verb, more);
    assert_exact(&secure, "serve", topics, |topics| serve(&secure, topics));
    assert_exact(&secure, "check", || well_made(&secure), |topics| tool(topics, &["check"], &[]));
    let none = || Topics::named("rights", 1);
    assert_exact(&secure, "topics", none, |topics| tool(topics, &["topics"], &[]));
    let load = ["load", "--events", "10", "--players", "5"];
    assert_exact(&secure, "load", topics, |topics| tool(topics, &load, &[]));
    assert_exact(&secure, "rules --switch-to", topics, |topics| {
        let listed = tool(topics, &["rules"], &[]).said;
        let ruleset = listed.split_whitespace().next().expect("the built-in rules are listed");
        tool(topics, &["rules"], &["--switch-to", ruleset])
    });
    assert_exact(&secure, "rules --zones", topics, |topics| tool(topics, &["rules"], &["--zones"]));
    assert_exact(&secure, "zones", topics, |topics| tool(topics, &["zones"], &[]));
    let tap = ["tap", "--from", "start", "--until-end"];
    assert_exact(&secure, "tap", topics, |topics| tool(topics, &tap, &[]));
    let letters = ["tap", "--dead-letters", "--resend"];
    assert_exact(
        &secure,
        "tap --dead-letters --resend",
        || with_a_letter(&secure),
        |topics| tool(topics, &letters, &[]),
    );
    assert_exact(&secure, "replay --topic", topics, |topics| {
        tool(topics, &["replay", "--topic", &topics.input], &[])
    });
    let with_an_event = || {
        let topics = topics();
        produce(&secure.cluster, &topics, &events(1, 1, 1..=1));
        topics
    };
    assert_exact(&secure, "explain", with_an_event, |topics| {
        tool(topics, &["explain", "0:0"], &[])
    });
    assert_exact(&secure, "replay --until", with_an_event, |topics| {
        tool(topics, &["replay", "--until", "0:0"], &[])
    });
    assert_exact(&secure, "serve --at", with_an_event, |topics| {
        serve_at(&Huntd::start(&secure.cluster, topics, &[]), &secure)
    });
    assert_exact(&secure, "rehearse", topics, |topics| {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let directory = format!("directory = {:?}", folder.path());
        rehearse(&secure, topics, &format!("{directory}\nevery_ms = 200"), &directory)
    });
}

/// A rehearsal of the user's. The running version has stored a snapshot in one place, and it is
/// found in another one.
fn rehearse(secure: &SecureCluster, topics: &Topics, stored: &str, found: &str) -> Attempt {
    let join = r#"{"type":"join","player_id":7,"seq":1,"ts_us":1767225606000000,"field":5}"#;
    produce(&secure.cluster, topics, &[(0, join.to_owned())]);
    let mut playing = editions::start_on(&secure.cluster, "first", topics, stored);
    playing.wait_for_address();
    playing.wait_until("the event", |playing| playing.metric("huntd_events_applied_total") > 0);
    // It stores its state at its end.
    stop(playing);
    let further = format!("[kafka.sasl]\n{}\n[snapshot]\n{found}", sasl(secure));
    let (_folder, file) = configuration(&secure.address(Kind::PlainSasl), &further, topics);
    let Output { status, stdout, stderr } = editions::rehearse_by(&file);
    let said = [stdout, stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    Attempt { has_worked: status.success(), said }
}

#[test]
fn each_other_verb_needs_the_rights_that_are_documented_for_a_snapshot_topic_and_no_others() {
    let secure = strict();
    let tool = |topics: &Topics, verb: &[&str]| {
        tool(&secure, topics, verb, &["--set", &set_copies(topics)])
    };
    let topics = || with_snapshot_topic(&secure, Topics::create(&secure.cluster, "rights", 1));
    let serve = |topics: &Topics| serve_copies(&secure, topics);
    assert_exact_beside(&secure, &["serve"], "serve with snapshot.topic", topics, serve);
    let explain = |topics: &Topics| tool(topics, &["explain", "0:0"]);
    let with_an_event = || {
        let topics = topics();
        produce(&secure.cluster, &topics, &events(1, 1, 1..=1));
        topics
    };
    assert_exact_beside(
        &secure,
        &["explain"],
        "explain with snapshot.topic",
        with_an_event,
        explain,
    );
    let until = |topics: &Topics| tool(topics, &["replay", "--until", "0:0"]);
    let verb = "replay --until with snapshot.topic";
    assert_exact_beside(&secure, &["replay --until"], verb, with_an_event, until);
    let verb = "rehearse with snapshot.topic";
    assert_exact_beside(&secure, &["rehearse"], verb, topics, |topics| {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let found = format!("topic = {:?}", snapshot_topic(topics));
        rehearse(&secure, topics, &snapshots(topics, folder.path()), &found)
    });
    let verb = "serve --at with snapshot.topic";
    assert_exact_beside(&secure, &["serve --at"], verb, topics, |topics| {
        let folder = tempfile::tempdir().expect("a temporary folder");
        serve_at(&replicating(&secure, topics, &snapshots(topics, folder.path())), &secure)
    });
    let check = |topics: &Topics| tool(topics, &["check"]);
    let made = || well_made(&secure);
    assert_exact_beside(&secure, &["check"], "check with snapshot.topic", made, check);
    // It creates the topics, and checks them once their broker knows them.
    let topics = |topics: &Topics| {
        let created = tool(topics, &["topics"]);
        let begun = Instant::now();
        let checked = loop {
            let checked = tool(topics, &["topics"]);
            if !(checked.has_worked && checked.said.contains(" created ")) {
                break checked;
            }
            assert!(begun.elapsed() < PATIENCE, "topics are created again and again");
        };
        let has_worked = created.has_worked && checked.has_worked;
        Attempt { has_worked, said: created.said + &checked.said }
    };
    let none = || Topics::named("rights", 1);
    assert_exact_beside(&secure, &["topics", "check"], "topics with snapshot.topic", none, topics);
}
