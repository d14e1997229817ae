//! The program's command line: help, configuration errors, exit codes.

use huntd::edition::edition;
use huntd::hunt::state::TreasureHunt;
use huntd::service::cli::Cli;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::ffi::OsStr;
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;
use support::process;

/// Exit code, standard output and standard error.
pub(super) fn huntd(
    arguments: &[&str],
    variables: &[(&str, &str)],
) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_huntd"))
        .args(arguments)
        .envs(variables.iter().copied())
        .output()
        .expect("the program runs");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn every_verb_has_a_help_with_an_example() {
    let cli = Cli::of_program(&[edition::<TreasureHunt>()]);
    let verbs: Vec<_> = cli.get_subcommands().map(|verb| verb.get_name().to_owned()).collect();
    let all = [
        "run", "check", "demo", "load", "replay", "explain", "rehearse", "rules", "serve",
        "snapshot", "tap", "topics", "zones",
    ];
    assert_eq!(verbs, [&all[..], &["config", "schema", "completions", "man"]].concat());
    cli.debug_assert();
    for verb in verbs {
        let (code, help, _) = huntd(&[&verb, "--help"], &[]);
        assert_eq!(code, Some(0));
        // A program with two versions of a game has another name.
        let program = if verb == "rehearse" { "mygame" } else { "huntd" };
        assert!(help.contains(&format!("\n  {program} {verb} ")) || verb == "demo", "{help}");
        assert!(help.contains("Example"), "{help}");
    }
}

#[test]
fn a_wrong_command_line_ends_with_the_usage_code() {
    for arguments in [
        &["fly"][..],
        &[],
        &["run"],
        &["check", "--config"],
        &["demo", "--fast"],
        &["run", "--config", "huntd.toml", "--skip", "3"],
        &["load", "--brokers", "::1:9092"],
        &["tap", "--brokers", "kafka-1"],
    ] {
        let (code, _, error) = huntd(arguments, &[]);
        assert_eq!(code, Some(2), "{arguments:?}: {error}");
    }
}

#[test]
fn a_variable_that_is_no_text_and_a_pipe_of_rules_are_refused_and_not_passed_over() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (file, pipe) = (folder.path().join("huntd.toml"), folder.path().join("rules"));
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
    let check = |text: &str, variables: &[(&OsStr, &OsStr)]| {
        std::fs::write(&file, text).expect("it can be written");
        let ended = Command::new(env!("CARGO_BIN_EXE_huntd"))
            .args(["check", "--offline", "--config"])
            .arg(&file)
            .envs(variables.iter().copied())
            .output()
            .expect("the program runs");
        assert_eq!(ended.status.code(), Some(3));
        String::from_utf8(ended.stderr).expect("text")
    };
    let [name, text] = [OsStr::new("HUNTD_KAFKA__GROUP"), OsStr::from_bytes(b"g\xff")];
    let error = check("", &[(name, text)]);
    assert!(error.contains("HUNTD_KAFKA__GROUP: is not UTF-8"), "{error}");
    let others = [(OsStr::from_bytes(b"OTHER\xff"), text), (OsStr::new("OTHER"), text)];
    let ours = (OsStr::from_bytes(b"HUNTD_KAFKA__GROUP\xff"), OsStr::new("mine"));
    let error = check("", &[&others[..], &[ours]].concat());
    assert!(error.contains("HUNTD_KAFKA__GROUP\u{fffd}: the name is not UTF-8"), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    let error = check(&format!("[rules]\nfiles = [{pipe:?}]"), &[]);
    assert!(error.contains("not a regular file"), "{error}");
}

#[test]
fn a_configuration_that_is_a_pipe_or_has_no_end_is_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (pipe, long) = (folder.path().join("pipe"), folder.path().join("long"));
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
    std::fs::write(&long, "#\n".repeat(1 << 20)).expect("it can be written");
    for (file, why) in [
        (pipe.as_path(), "not a regular file"),
        (Path::new("/dev/zero"), "not a regular file"),
        (&long, "longer than 1048576 bytes"),
    ] {
        let file = file.to_str().expect("text");
        for verb in [&["check", "--offline"][..], &["run"], &["serve"]] {
            let (code, _, error) = huntd(&[verb, &["--config", file]].concat(), &[]);
            assert_eq!(code, Some(3), "{error}");
            assert!(error.contains(why) && error.contains("--config"), "{error}");
        }
    }
}

#[test]
fn a_file_of_kafka_tls_that_is_missing_is_named_once_although_a_broker_listens() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let brokers = format!("kafka.brokers={}", listener.local_addr().expect("it is bound"));
    let mut arguments = vec!["check", "--config", "config/huntd.toml"];
    for setting in [&*brokers, "kafka.tls.enabled=true", "kafka.tls.ca_file=/nowhere/ca.pem"] {
        arguments.extend(["--set", setting]);
    }
    let (code, _, error) = huntd(&arguments, &[]);
    assert_eq!(code, Some(3), "{error}");
    assert_eq!(error.matches("/nowhere/ca.pem").count(), 1, "{error}");
}

#[test]
fn a_mistyped_verb_is_answered_with_the_one_that_was_meant() {
    for (wrong, meant) in [("checkk", "check"), ("topcis", "topics"), ("repaly", "replay")] {
        let (code, _, error) = huntd(&[wrong], &[]);
        assert_eq!(code, Some(2));
        assert!(error.contains(&format!("a similar subcommand exists: '{meant}'")), "{error}");
    }
    let (_, _, error) = huntd(&["fly"], &[]);
    assert!(!error.contains("similar"), "{error}");
}

#[test]
fn the_version_names_the_revision_and_the_game() {
    let (code, version, _) = huntd(&["--version"], &[]);
    assert_eq!(code, Some(0));
    let revision = version
        .strip_prefix(concat!("huntd ", env!("CARGO_PKG_VERSION"), " ("))
        .and_then(|rest| rest.split_once("), "));
    let (revision, game) = revision.expect("the revision, then the game");
    assert!(!revision.trim().is_empty(), "{version:?}");
    let of_version = format!("treasure hunt of version {}\n", edition::<TreasureHunt>().version);
    assert_eq!(game, of_version);
}

#[test]
fn a_program_with_one_version_may_be_told_which_but_has_none_to_rehearse_it_with() {
    let version = edition::<TreasureHunt>().version;
    assert_eq!(huntd(&["schema", "--edition", &version.to_string()], &[]).0, Some(0));
    let (code, _, error) = huntd(&["schema", "--edition", "1"], &[]);
    assert_eq!(code, Some(2));
    assert!(error.contains(&format!("this program has version {version}")), "{error}");
    let (code, _, error) = huntd(&["rehearse", "--config", "config/huntd.toml"], &[]);
    assert_eq!(code, Some(2));
    assert!(error.contains(&format!("this program has version {version} of the game only")));
    assert!(!huntd(&["run", "--help"], &[]).1.contains("--edition"));
}

#[test]
fn a_key_can_be_set_on_the_command_line() {
    let arguments = ["check", "--offline", "--config", "config/huntd.toml", "--set"];
    // The argument wins over the variable.
    let variable = ("HUNTD_KAFKA__GROUP", "theirs");
    let (code, summary, error) =
        huntd(&[&arguments[..], &["kafka.group=mine"]].concat(), &[variable]);
    assert_eq!(code, Some(0), "{error}");
    assert!(summary.contains("group: mine through"), "{summary}");
    for (wrong, sentence) in [
        ("snapshot.keep=0", "--set snapshot.keep=0: snapshot.keep = 0: choose 3 to 64"),
        ("snapshot.kep=5", "there is no key snapshot.kep: did you mean keep?"),
        ("keep", "write section.key=value, as in snapshot.keep=5"),
    ] {
        let (code, _, error) = huntd(&[&arguments[..], &[wrong]].concat(), &[]);
        assert_eq!(code, Some(3), "{error}");
        assert!(error.contains(sentence), "{error}");
    }
}

#[test]
fn a_key_can_be_set_for_verbs_that_can_do_without_a_configuration() {
    let verbs = [&["load"][..], &["tap"], &["replay", "--topic", "hunt-events"]];
    for verb in verbs {
        // No broker is asked: that key is wrong first.
        let arguments = ["--config", "config/huntd.toml", "--set", "snapshot.keep=0"];
        let (code, _, error) = huntd(&[verb, &arguments].concat(), &[]);
        assert_eq!(code, Some(3), "{verb:?}: {error}");
        assert!(error.contains("--set snapshot.keep=0: snapshot.keep = 0: "), "{error}");
        let (code, _, error) = huntd(&[verb, &["--set", "snapshot.keep=5"]].concat(), &[]);
        assert_eq!(code, Some(2), "{verb:?}: {error}");
        assert!(error.contains("--config"), "{error}");
    }
}

#[test]
fn what_is_generated_knows_every_verb_and_key() {
    let cli = Cli::of_program(&[edition::<TreasureHunt>()]);
    let verbs: Vec<_> = cli.get_subcommands().map(|verb| verb.get_name()).collect();
    for shell in ["bash", "zsh", "fish"] {
        let (code, script, error) = huntd(&["completions", shell], &[]);
        assert_eq!(code, Some(0), "{error}");
        for word in verbs.iter().chain(&["until-end"]) {
            assert!(script.contains(word), "{shell} does not complete {word}");
        }
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().to_str().expect("text");
    assert_eq!(huntd(&["man", "--directory", path], &[]).0, Some(0));
    for verb in verbs {
        let page = std::fs::read_to_string(folder.path().join(format!("huntd-{verb}.1")));
        assert!(page.expect("a page for each verb").contains(".TH"), "{verb}");
    }
    let (_, page, _) = huntd(&["man"], &[]);
    let named: Vec<&str> = page.lines().filter(|line| line.ends_with("(1)")).collect();
    assert!(named.contains(&"huntd\\-topics(1)"), "{page}");
    for name in named {
        let file = name.replace('\\', "").replace("(1)", ".1");
        assert!(folder.path().join(&file).is_file(), "there is no {file}");
    }
    let (_, defaults, _) = huntd(&["config"], &[]);
    assert_eq!(defaults, huntd::service::settings::DEFAULTS);
    let (_, schema, _) = huntd(&["config", "--schema"], &[]);
    let schema: serde_json::Value = serde_json::from_str(&schema).expect("JSON");
    assert_eq!(schema["properties"]["snapshot"]["properties"]["keep"]["minimum"], 3);
}

#[test]
fn bash_accepts_its_completions() {
    if !support::needs::has_program("bash", "--version") {
        return;
    }
    let (_, script, _) = huntd(&["completions", "bash"], &[]);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("huntd");
    std::fs::write(&file, script).expect("a file");
    let command = format!(
        "source {}; COMP_WORDS=(huntd to); COMP_CWORD=1; _huntd huntd to huntd; \
         echo ${{COMPREPLY[@]}}",
        file.display()
    );
    let output = Command::new("bash").args(["-c", &command]).output().expect("it runs");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "topics");
}

#[test]
fn a_valid_configuration_is_summed_up() {
    let arguments = ["check", "--offline", "--config", "config/huntd.toml"];
    let (code, summary, error) = huntd(&arguments, &[]);
    assert_eq!(code, Some(0), "{error}");
    assert!(summary.starts_with("configuration: valid\ncores: "), "{summary}");
    assert!(summary.contains("hunt-events -> hunt-updates"), "{summary}");
}

#[test]
fn each_rules_file_that_is_wrong_is_named() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let at = |name: &str| folder.path().join(name).display().to_string();
    let built_in = std::fs::read_to_string("config/rules.toml").expect("it is there");
    let rules = [
        ("none.toml", built_in.replace("health = 100", "health = 0")),
        ("good.toml", built_in.clone()),
        ("text.toml", "no rules".to_owned()),
        ("map.toml", built_in.replace("tiles_per_side = 256", "tiles_per_side = 128")),
    ];
    for (name, text) in &rules {
        assert!(*name == "good.toml" || *text != built_in);
        std::fs::write(at(name), text).expect("the folder is writable");
    }
    let files: Vec<String> = rules.iter().map(|(name, _)| at(name)).collect();
    let files = format!("rules.files={},{}", files.join(","), at("away.toml"));
    let arguments = ["check", "--offline", "--config", "config/huntd.toml", "--set", &files];
    let (code, _, error) = huntd(&arguments, &[]);
    assert_eq!((code, error.lines().count()), (Some(3), 4), "{error}");
    for wrong in ["none.toml", "text.toml", "map.toml", "away.toml"] {
        assert!(error.contains(&at(wrong)), "{error}");
    }
    assert!(!error.contains("good.toml"), "{error}");
}

#[test]
fn an_invalid_configuration_ends_with_one_sentence_and_its_code() {
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.write_all(b"[snapshot]\nkep = 3\n").expect("it is written");
    let path = file.path().to_str().expect("text");
    let (code, _, error) = huntd(&["check", "--offline", "--config", path], &[]);
    let sentence = format!("huntd: {path}:2: there is no key snapshot.kep: did you mean keep?\n");
    assert_eq!((code, error), (Some(3), sentence));

    let arguments = ["check", "--offline", "--config", "config/huntd.toml"];
    let (code, _, error) = huntd(&arguments, &[("HUNTD_SNAPSHOT__KEEP", "0")]);
    let sentence =
        "huntd: environment variable HUNTD_SNAPSHOT__KEEP: snapshot.keep = 0: choose 3 to 64\n";
    assert_eq!((code, error.as_str()), (Some(3), sentence));

    let (code, _, error) = huntd(&arguments, &[("HUNTD_CPU__HOT_CORE", "1023")]);
    assert_eq!(code, Some(8), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
}

#[test]
fn a_verb_with_a_verdict_gives_it_although_nobody_reads_and_others_end_well() {
    let unread = |arguments: &[&str]| process::run_unread(env!("CARGO_BIN_EXE_huntd"), arguments);
    let other = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let listen = format!("service.listen={}", other.local_addr().expect("it listens"));
    let check = ["check", "--offline", "--config", "config/huntd.toml", "--set", &listen];
    assert_eq!(unread(&check), Some(0));
    assert_eq!(unread(&[&check[..], &["--deny-warnings"]].concat()), Some(3));
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("shard-0000-0000000001.snapshot"), "no snapshot")
        .expect("it can be written");
    let directory = format!("snapshot.directory={}", folder.path().display());
    let of = ["--config", "config/huntd.toml", "--set", &directory];
    let verify = [&["snapshot", "verify"], &of[..]].concat();
    let (code, printed, error) = huntd(&verify, &[]);
    assert_eq!((code, printed.lines().count()), (Some(9), 1), "{error}");
    assert_eq!(unread(&verify), Some(9));
    assert_eq!(unread(&["config"]), Some(0));
}

#[test]
fn snapshots_are_not_looked_for_in_a_folder_that_is_not_there_and_it_is_not_made() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let missing = folder.path().join("missing");
    let snapshot = |verb: &str, directory: &Path, more: &[&str]| {
        let directory = format!("snapshot.directory={}", directory.display());
        let of = ["snapshot", verb, "--config", "config/huntd.toml", "--set", &directory];
        let (code, printed, error) = huntd(&[&of[..], more].concat(), &[]);
        assert_eq!((printed.as_str(), error.lines().count()), ("", 1), "{printed}{error}");
        (code, error)
    };
    for verb in ["list", "verify", "drop"] {
        let (code, error) = snapshot(verb, &missing, &[]);
        assert_eq!(code, Some(3), "{error}");
        let sentence = format!("the state directory {} cannot be used: ", missing.display());
        assert!(error.contains(&sentence) && error.contains("set snapshot.directory"), "{error}");
    }
    assert!(!missing.exists());
    std::fs::write(folder.path().join("shard-0000-0000000001.snapshot"), "no snapshot")
        .expect("it can be written");
    for (verb, code) in [("list", 0), ("verify", 9), ("drop", 0)] {
        let (ended, error) = snapshot(verb, folder.path(), &["--partition", "5"]);
        assert_eq!(ended, Some(code), "{error}");
        assert!(error.contains("no snapshots of partition 5 in "), "{error}");
        assert_eq!(error.contains("nothing is removed"), verb == "drop", "{error}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).expect("it is there").count(), 1);
}

#[test]
fn a_list_of_zones_wants_the_name_of_the_instance_that_is_checked() {
    let list = "kafka.assignment=host-a: 0-3";
    let check = ["check", "--offline", "--config", "config/huntd.toml", "--set", list];
    for (name, code, wanted) in [
        ("", Some(3), "this one has none: set kafka.group_instance_id"),
        ("host-b", Some(3), "has no line for this instance, kafka.group_instance_id `host-b`"),
        ("host-a", Some(0), ""),
    ] {
        let (ended, _, error) = huntd(&check, &[("HUNTD_KAFKA__GROUP_INSTANCE_ID", name)]);
        assert_eq!(ended, code, "{error}");
        assert!(error.contains(wanted), "{error}");
    }
}

#[test]
fn arguments_for_generated_events_are_refused_with_a_file_of_events() {
    for verb in ["load", "demo"] {
        for argument in ["--seed", "--players"] {
            let (code, _, error) = huntd(&[verb, "--file", "events.txt", argument, "7"], &[]);
            assert_eq!(code, Some(2), "{error}");
            assert!(error.contains("cannot be used with"), "{error}");
        }
    }
}

/// Addresses that are free on every host.
const FREE_PORTS: [(&str, &str); 2] =
    [("HUNTD_SERVICE__LISTEN", "127.0.0.1:0"), ("HUNTD_SERVE__LISTEN", "127.0.0.1:0")];

#[test]
fn an_address_that_another_program_listens_on_is_warned_of_or_denied() {
    let other = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = other.local_addr().expect("it listens").to_string();
    let away = "192.0.2.1:9464";
    let check = |key: &str, address: &str, arguments: &[&str]| {
        let set = format!("{key}={address}");
        let verb = ["check", "--offline", "--config", "config/huntd.toml", "--set", &set];
        let (code, _, error) = huntd(&[&verb, arguments].concat(), &FREE_PORTS);
        (code, error)
    };
    for key in ["service.listen", "serve.listen"] {
        let begin = format!("huntd: {key}: nothing more can listen on {address} (");
        for (denied, code) in [(&[][..], 0), (&["--deny-warnings"], 3)] {
            let (ended, error) = check(key, &address, denied);
            assert_eq!((ended, error.lines().count()), (Some(code), 1), "{error}");
            assert!(error.starts_with(&begin) && error.contains("choose another"), "{error}");
        }
    }
    let (code, error) = check("service.listen", away, &[]);
    assert!(code == Some(0) && error.contains("choose an address of this host"), "{error}");
    drop(other);
    let free = check("service.listen", &address, &["--deny-warnings"]);
    assert_eq!(free, (Some(0), String::new()));
}

/// The units start a process again that ends with this code.
#[test]
fn a_daemon_that_cannot_listen_yet_ends_with_a_code_that_is_worth_a_restart() {
    let other = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let taken = other.local_addr().expect("it listens").to_string();
    for address in [taken.as_str(), "192.0.2.1:9464"] {
        let set = format!("service.listen={address}");
        let (code, _, error) = huntd(&["run", "--config", "config/huntd.toml", "--set", &set], &[]);
        assert_eq!(code, Some(11), "{error}");
        assert!(error.contains(&format!("cannot listen on {address}")), "{error}");
    }
}

#[test]
fn a_secret_that_is_sent_in_clear_text_is_warned_of_or_denied() {
    let mut secret = tempfile::NamedTempFile::new().expect("a temporary file");
    secret.write_all(b"secret").expect("it is written");
    let path = secret.path().to_str().expect("text");
    let password = ["user=hunt".to_owned(), format!("secret_file={path}")];
    let token = [format!("token_file={path}")];
    let check = |mechanism: &str, keys: &[String], arguments: &[&str]| {
        let mechanism = format!("kafka.sasl.mechanism={mechanism}");
        let keys = keys.iter().map(|key| format!("kafka.sasl.{key}"));
        let set: Vec<String> =
            keys.chain([mechanism]).flat_map(|key| ["--set".to_owned(), key]).collect();
        let set: Vec<&str> = set.iter().map(String::as_str).collect();
        let verb = ["check", "--offline", "--config", "config/huntd.toml"];
        let (code, _, error) = huntd(&[&verb, &set[..], arguments].concat(), &FREE_PORTS);
        (code, error)
    };
    for (mechanism, keys, secret) in
        [("PLAIN", &password[..], "password"), ("OAUTHBEARER", &token, "token")]
    {
        let sentence = format!(
            "huntd: kafka.sasl.mechanism = \"{mechanism}\" without TLS sends the {secret} in clear \
             text: set kafka.tls.enabled = true\n"
        );
        assert_eq!(check(mechanism, keys, &[]), (Some(0), sentence.clone()));
        assert_eq!(check(mechanism, keys, &["--deny-warnings"]), (Some(3), sentence));
        let tls = ["--set", "kafka.tls.enabled=true", "--deny-warnings"];
        assert_eq!(check(mechanism, keys, &tls), (Some(0), String::new()));
    }
    let scram = check("SCRAM-SHA-512", &password, &["--deny-warnings"]);
    assert_eq!(scram, (Some(0), String::new()));
}

/// `huntd` with a limit of `prlimit`: its exit code and what it said.
fn limited(limit: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let output = process::limited(limit, env!("CARGO_BIN_EXE_huntd")).args(arguments).output();
    let output = output.expect("prlimit runs");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_verb_that_may_have_too_little_says_what_and_ends_with_code_11() {
    if !process::can_be_limited() {
        return;
    }
    let tools = [
        &["check", "--config", "/nothing/is/there"][..],
        &["load", "--config", "/nothing/is/there"],
        &["replay", "--file", "/nothing/is/there"],
        &["rules", "--config", "/nothing/is/there"],
        &["snapshot", "verify", "--config", "/nothing/is/there"],
        &["tap", "--config", "/nothing/is/there"],
        &["topics", "--config", "/nothing/is/there"],
    ];
    let servers = [&["serve", "--config", "/nothing/is/there"][..], &["demo", "--events", "1"]];
    let tools = tools.map(|arguments| (arguments, ["--nofile=128", "--nofile=129"]));
    let servers = servers.map(|arguments| (arguments, ["--nofile=256", "--nofile=257"]));
    for (arguments, [too_few, enough]) in tools.into_iter().chain(servers) {
        for (limit, word) in [
            ("--nofile=5", "LimitNOFILE="),
            (too_few, "LimitNOFILE="),
            ("--nproc=1", "TasksMax="),
            ("--nproc=32", "TasksMax="),
        ] {
            let (code, said) = limited(limit, arguments);
            assert_eq!(code, Some(11), "{limit} {arguments:?}: {said}");
            assert!(said.contains(word) && said.lines().count() == 1, "{limit}: {said}");
        }
        for limit in [enough, "--nproc=72"] {
            let (code, said) = limited(limit, arguments);
            assert!(code.is_some() && code != Some(11), "{limit} {arguments:?}: {said}");
        }
    }
}
