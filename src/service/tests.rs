//! The configuration: what is accepted, and how errors say what to do.

#![allow(clippy::print_stdout, reason = "a random test shows its seed")]

use crate::kafka::group::GroupProtocol;
use crate::output::frame::{Compression, Format};
use crate::service::config::{Config, parse};
use crate::service::settings::{ConfigErrors, DEFAULTS, SettingSource, Settings};
use std::collections::BTreeSet;
use std::time::Duration;

fn from_text(text: &str) -> Result<Config, ConfigErrors> {
    parse("huntd.toml", text, std::iter::empty())
}

fn from_variable(name: &str, text: &str) -> Result<Config, ConfigErrors> {
    parse("huntd.toml", "", [(name.to_owned(), text.to_owned())].into_iter())
}

fn refusal(text: &str) -> String {
    from_text(text).expect_err("the text must be refused").to_string()
}

#[test]
fn the_shipped_file_is_the_defaults() {
    let shipped = std::fs::read_to_string("config/huntd.toml").expect("the repository has it");
    assert_eq!(shipped, DEFAULTS);
    let config = from_text(&shipped).expect("the shipped file is valid");
    assert_eq!(config, from_text("").expect("an empty file is valid"));
    assert_eq!(config.group.client.brokers, ["127.0.0.1:9092"]);
    assert_eq!(config.group.protocol, GroupProtocol::Classic);
    assert_eq!(config.group.instance_id, None);
    assert_eq!(config.fetch.fetch_wait_ms_max, 100);
    assert_eq!(config.publisher.format, Format::Json);
    assert_eq!(config.publisher.compression, Compression::Lz4);
    assert_eq!(config.shards.linger, Duration::from_micros(500));
    assert_eq!(config.shards.frames_per_shard, 5);
    assert_eq!(config.runtime.hot_core, None);
    assert!(config.rules_files.is_empty());
    assert!(config.service.listen.ip().is_loopback());
}

#[test]
fn frames_are_compressed_only_where_it_saves_time_unless_the_operator_says_so() {
    let compression = |lines: &str| {
        from_text(&format!("[publish]\n{lines}")).expect("it is valid").publisher.compression
    };
    assert_eq!(compression("format = \"binary\""), Compression::None);
    assert_eq!(compression("format = \"binary\"\ncompression = \"lz4\""), Compression::Lz4);
    assert_eq!(compression("format = \"json\"\ncompression = \"none\""), Compression::None);
}

#[test]
fn a_list_of_zones_is_read_by_all_verbs_and_refused_if_nobody_would_take_over() {
    let read = |lines: &str| from_text(&format!("[kafka]\n{lines}"));
    // `huntd zones` and `huntd serve` are no instances.
    let listed = read("assignment = [\"a: 0-3\", \"b: 4\"]").expect("it is valid");
    assert!(listed.group.assignment.is_some() && listed.standby.is_without_group);
    assert!(read("").expect("it is valid").group.assignment.is_none());
    for (lines, words) in [
        ("assignment = [\"a: 0-x\"]", "write zones from 0 to 1023 as `4` or `0-3`"),
        ("assignment = [\"a: 0\"]\n[standby]\nsilence_ms = 0", "choose at least 150"),
    ] {
        let refused = read(lines).expect_err(lines).to_string();
        assert!(refused.contains(words), "{refused}");
    }
}

#[test]
fn every_key_of_the_shipped_files_has_a_comment_above_it() {
    for file in ["config/huntd.toml", "config/test.toml"] {
        let text = std::fs::read_to_string(file).expect("the repository has it");
        let lines: Vec<_> = text.lines().collect();
        for pair in lines.windows(2) {
            let is_key = pair[1].starts_with(|c: char| c.is_ascii_lowercase());
            assert!(!is_key || pair[0].starts_with("# "), "{file}: no comment above: {}", pair[1]);
        }
    }
}

#[test]
fn the_limits_of_the_test_configuration_are_tiny_and_valid() {
    let text = std::fs::read_to_string("config/test.toml").expect("the repository has it");
    let config = from_text(&text).expect("the test configuration is valid");
    assert_eq!(config.shards.frames_per_shard, 2);
}

#[test]
fn every_key_can_be_overridden_by_its_variable() {
    for (section, keys) in Settings::defaults().values() {
        for (key, default) in keys.as_table().expect("sections only") {
            let text = match default {
                toml::Value::Array(items) => {
                    let items: Vec<_> = items.iter().filter_map(toml::Value::as_str).collect();
                    items.join(",")
                }
                toml::Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            let section = section.to_uppercase().replace('.', "__");
            let name = format!("HUNTD_{section}__{}", key.to_uppercase());
            let same = from_variable(&name, &text).expect("the default is valid in a variable");
            assert_eq!(same, from_text("").expect("valid"), "{name}={text}");
        }
    }
    let config = from_variable("HUNTD_KAFKA__BROKERS", "a:1, [::1]:2").expect("valid");
    assert_eq!(config.group.client.brokers, ["a:1", "[::1]:2"]);
    assert_eq!(config.publisher.client.brokers, config.group.client.brokers);
    let config = from_variable("HUNTD_FETCH__READ_COMMITTED", "false").expect("valid");
    assert!(!config.fetch.read_committed);
    let config = from_variable("HUNTD_CPU__HELPER_CORES", "0-1,4").expect("valid");
    assert_eq!(config.runtime.helper_cores, Some(vec![0, 1, 4]));
}

#[test]
fn a_variable_wins_over_the_file() {
    let variables = [("HUNTD_SNAPSHOT__KEEP".to_owned(), "7".to_owned())];
    let config = parse("f", "[snapshot]\nkeep = 5", variables.into_iter()).expect("valid");
    assert_eq!(config.snapshot.keep, 7);
}

#[test]
fn snapshots_go_where_the_file_says_or_else_where_systemd_does() {
    let directory = |text: &str, state: Option<&str>| {
        let state = state.map(|state| ("STATE_DIRECTORY".to_owned(), state.to_owned()));
        let config = parse("f", text, state.into_iter()).expect("valid");
        config.snapshot.directory.map(|path| path.display().to_string())
    };
    assert_eq!(directory("", None), None);
    assert_eq!(directory("", Some("")), None);
    assert_eq!(directory("", Some("/a/huntd")).as_deref(), Some("/a/huntd"));
    assert_eq!(directory("", Some("/a/huntd:/a/b")).as_deref(), Some("/a/huntd"));
    let file = "[snapshot]\ndirectory = \"/c\"";
    assert_eq!(directory(file, Some("/a/huntd")).as_deref(), Some("/c"));
}

#[test]
fn a_topic_for_replicas_is_no_other_keys_topic() {
    let text = "[snapshot]\ntopic = \"hunt-events\"";
    assert_eq!(
        refusal(text),
        "huntd.toml:2: snapshot.topic = \"hunt-events\": choose a topic that no other key names"
    );
    assert_eq!(from_text("").expect("valid").snapshot.topic, None);
    let config = from_text("[snapshot]\ntopic = \"replicas\"").expect("valid");
    assert_eq!(config.snapshot.topic.as_deref(), Some("replicas"));
    assert!(refusal("[snapshot]\nkeep = 2").contains("choose 3 to 64"));
}

#[test]
fn other_variables_are_ignored() {
    for name in ["HUNTD_DATA", "PATH", "HUNTD_", "XHUNTD_SNAPSHOT__KEEP"] {
        assert_eq!(from_variable(name, "0"), from_text(""));
    }
}

#[test]
fn a_variable_that_lacks_an_underscore_is_refused_and_the_right_one_is_named() {
    for (name, meant) in [
        ("HUNTD_KAFKA_BROKERS", "HUNTD_KAFKA__BROKERS"),
        ("HUNTD_KAFKA_TLS_CA_FILE", "HUNTD_KAFKA__TLS__CA_FILE"),
        ("HUNTD_FETCH_WAIT_MS_MAX", "HUNTD_FETCH__WAIT_MS_MAX"),
    ] {
        let error = from_variable(name, "1").expect_err("it would be ignored");
        let sentence = format!(
            "environment variable {name}: huntd ignores it: write {meant}, with two underscores"
        );
        assert_eq!(error.to_string(), sentence);
    }
}

#[test]
fn an_unknown_key_names_its_line_and_the_nearest_key() {
    assert_eq!(
        refusal("# mine\n[fetch]\nwait_ms_max = 5\nbyte_max = 1"),
        "huntd.toml:4: there is no key fetch.byte_max: did you mean bytes_max?"
    );
    assert_eq!(
        refusal("[kafak]\n"),
        "huntd.toml:1: there is no section [kafak]: did you mean [kafka]?"
    );
    assert_eq!(
        refusal("[snapshot]\ndir = \"/s\""),
        "huntd.toml:2: there is no key snapshot.dir: did you mean directory?"
    );
    let error = from_variable("HUNTD_SNAPSHOT__KEP", "1").expect_err("no such key");
    assert_eq!(
        error.to_string(),
        "environment variable HUNTD_SNAPSHOT__KEP: there is no key snapshot.kep: \
         did you mean keep?"
    );
}

#[test]
fn a_key_that_huntd_had_once_is_refused_with_what_to_do() {
    assert_eq!(
        refusal("[publish]\nclient = \"native\""),
        "huntd.toml:2: delete publish.client, which was removed: huntd sends frames itself"
    );
    assert_eq!(
        refusal("[kafka]\nrack = \"a\""),
        "huntd.toml:2: delete kafka.rack, which was removed: huntd fetches from leaders \
         only"
    );
}

#[test]
fn a_key_that_resembles_none_gets_no_suggestion() {
    let see = "`huntd config` prints all of them";
    for (text, wrong) in [
        ("brokers = []", "huntd.toml:1: there is no section [brokers]"),
        ("[foo]", "huntd.toml:1: there is no section [foo]"),
        ("[kafka]\nfoo = 1", "huntd.toml:2: there is no key kafka.foo"),
        ("[kafka]\nxyz = 1", "huntd.toml:2: there is no key kafka.xyz"),
    ] {
        assert_eq!(refusal(text), format!("{wrong}: {see}"));
    }
}

#[test]
fn all_that_is_wrong_is_said_at_once() {
    let text = "[kafka]\ngruop = \"a\"\ninput_topic = \"a b\"\n[snapshot]\nkeep = 0\nevery_ms = 1\n\
                [publish]\nformat = \"jsno\"\n[fetch]\nbytes_max = 3000000\n[kafak]\n";
    let sentences = refusal(text);
    let lines: Vec<&str> = sentences.lines().collect();
    assert_eq!(lines.len(), 7, "{sentences}");
    for start in [
        "huntd.toml:2: there is no key kafka.gruop",
        "huntd.toml:3: kafka.input_topic = \"a b\"",
        "huntd.toml:5: snapshot.keep = 0",
        "huntd.toml:6: snapshot.every_ms = 1",
        "huntd.toml:8: publish.format = \"jsno\"",
        "huntd.toml:10: fetch.bytes_max = 3000000",
        "huntd.toml:11: there is no section [kafak]",
    ] {
        assert!(lines.iter().any(|line| line.starts_with(start)), "{start} is not in {sentences}");
    }
}

#[test]
fn broken_toml_names_its_line() {
    let sentence = refusal("[snapshot]\nkeep = = 3\n");
    assert!(sentence.starts_with("huntd.toml:2: write valid TOML here: "), "{sentence}");
}

#[test]
fn a_value_of_the_wrong_type_is_shown_the_right_form() {
    let cases = [
        (
            "[snapshot]\nkeep = \"many\"",
            "huntd.toml:2: write snapshot.keep as a whole number, as in: keep = 3",
        ),
        (
            "[kafka]\nbrokers = \"a:1\"",
            "huntd.toml:2: write kafka.brokers as a list of texts, as in: \
             brokers = [\"127.0.0.1:9092\"]",
        ),
        (
            "[kafka]\nbrokers = [1]",
            "huntd.toml:2: write kafka.brokers as a list of texts, as in: \
             brokers = [\"127.0.0.1:9092\"]",
        ),
        (
            "[cpu]\nhot_core = 3",
            "huntd.toml:2: write cpu.hot_core as a text in quotes, as in: hot_core = \"auto\"",
        ),
        (
            "[snapshot]\nkeep = 1.5",
            "huntd.toml:2: write snapshot.keep as a whole number, as in: keep = 3",
        ),
        (
            "[snapshot]\nkeep = 99999999999999999999",
            "huntd.toml:2: write snapshot.keep as a whole number, as in: keep = 3",
        ),
        (
            "[fetch.read_committed]\nx = 1",
            "huntd.toml:1: write fetch.read_committed as true or false, as in: \
             read_committed = true",
        ),
        ("snapshot = 5", "huntd.toml:1: write [snapshot] as a section with keys"),
    ];
    for (text, expected) in cases {
        assert_eq!(refusal(text), expected);
    }
}

#[test]
fn every_number_is_held_to_its_limits() {
    let defaults: toml::Table = DEFAULTS.parse().expect("the defaults are TOML");
    let mut numbers = 0;
    for (section, keys) in &defaults {
        let keys = keys.as_table().expect("sections only");
        for (key, _) in keys.iter().filter(|(_, default)| default.is_integer()) {
            numbers += 1;
            for wrong in [-1, i64::MAX, i64::MIN] {
                let sentence = refusal(&format!("[{section}]\n{key} = {wrong}"));
                let expected = format!("huntd.toml:2: {section}.{key} = {wrong}: choose ");
                assert!(sentence.starts_with(&expected), "{sentence}");
            }
        }
    }
    assert!(numbers >= 11, "only {numbers} numbers were tried");
}

#[test]
fn what_no_daemon_could_run_with_is_refused_with_advice() {
    let cases = [
        ("[snapshot]\nkeep = 0", "snapshot.keep = 0: choose 3 to 64"),
        ("[fetch]\nreceive_buffer_bytes = 4194305", "choose a multiple of 65536"),
        ("[fetch]\nbytes_max = 3000000", "choose at most half of fetch.receive_buffer_bytes"),
        ("[fetch]\nbytes_max = 2048", "choose at most fetch.bytes_max, 2048"),
        (
            "[kafka]\ngroup_protocol = \"both\"",
            "choose one of \"classic\", \"eager\", \"consumer\"",
        ),
        ("[publish]\nformat = \"xml\"", "choose one of \"json\", \"binary\""),
        ("[publish]\ncompression = \"gzip\"", "choose one of \"auto\", \"none\", \"lz4\""),
        ("[kafka]\ninput_topic = \"a/b\"", "choose 1 to 249 letters"),
        ("[kafka]\ninput_topic = \"..\"", "choose 1 to 249 letters"),
        ("[kafka]\noutput_topic = \"hunt-events\"", "choose a topic that no other key names"),
        ("[kafka]\ninput_topic = \"hunt-updates\"", "choose a topic that no other key names"),
        ("[kafka]\nbrokers = []", "has 0 entries: name 1 to 64"),
        ("[kafka]\nbrokers = [\"kafka\"]", "write host:port"),
        ("[kafka]\nbrokers = [\"kafka:0\"]", "write host:port"),
        ("[kafka]\nbrokers = [\"kafka:99999\"]", "write host:port"),
        ("[kafka]\nbrokers = [\":9092\"]", "write host:port"),
        ("[kafka]\nbrokers = [\"a:1,b:2\"]", "write host:port"),
        ("[kafka]\nbrokers = [\"::1:9092\"]", "or \"[2001:db8::1]:9092\""),
        ("[kafka]\ngroup = \"\"", "choose 1 to 255 printable"),
        ("[kafka]\nclient_id = \"a b\"", "choose 1 to 255 printable"),
        ("[cpu]\nhot_core = \"many\"", "write \"auto\" or one core"),
        ("[cpu]\nhot_core = \"9999\"", "write \"auto\" or one core"),
        ("[cpu]\nhelper_cores = \"3-1\"", "write \"auto\" or a list of cores"),
        ("[cpu]\nhelper_cores = \"0,0\"", "write \"auto\" or a list of cores"),
        ("[cpu]\nhot_core = \"1\"\nhelper_cores = \"0-3\"", "leave it out of the list"),
        ("[service]\nlisten = \"localhost\"", "write an IP address and a port"),
        ("[service]\nlog_level = \"loud\"", "choose one of \"error\""),
    ];
    for (text, expected) in cases {
        let sentence = refusal(text);
        assert!(sentence.contains(expected), "{text}\n{sentence}");
        assert!(sentence.starts_with("huntd.toml:"), "{text}\n{sentence}");
    }
}

#[test]
fn a_missing_file_is_named() {
    let file = std::path::Path::new("config/no-such-file.toml");
    let error = crate::service::config::load(file, &[]).expect_err("there is none");
    assert_eq!(error.0[0].place, SettingSource::File("config/no-such-file.toml".to_owned()));
    assert!(error.0[0].sentence.contains("--config"), "{error}");
}

/// Seeds a random test, new for each run unless it is given. A failing test shows the line.
fn seed() -> u64 {
    let given = std::env::var("HUNTD_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or(std::process::id().into());
    println!("to run this again: HUNTD_TEST_SEED={seed}");
    seed
}

#[test]
fn no_bytes_make_the_configuration_panic() {
    let seed = seed();
    let mut state = seed;
    let mut random = |bound: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % bound
    };
    let lines: Vec<_> = DEFAULTS.lines().filter(|line| !line.starts_with('#')).collect();
    let mut accepted = BTreeSet::new();
    for round in 0..2_000 {
        let mut text: Vec<u8> = lines.join("\n").into_bytes();
        for _ in 0..=random(3) {
            let at = random(text.len());
            match random(3) {
                0 => drop(text.remove(at)),
                1 => text.insert(at, b"\"[]=.#\n09-x\\{}"[random(14)]),
                _ => text.truncate(at.max(4)),
            }
        }
        if let Ok(text) = String::from_utf8(text) {
            let outcome = std::panic::catch_unwind(|| from_text(&text).is_ok());
            accepted
                .insert(outcome.unwrap_or_else(|_| panic!("seed={seed} round={round}\n{text}")));
        }
    }
    assert_eq!(accepted.len(), 2, "the texts must be partly valid, partly not: seed={seed}");
}

#[test]
fn tls_and_sasl_are_whole_or_refused_with_what_to_do() {
    use crate::kafka::security::{Mechanism, SaslOptions, TlsOptions};
    let plaintext = from_text("").expect("valid").group.client.security;
    assert_eq!((plaintext.tls, plaintext.sasl), (None, None));
    let text = "[kafka.tls]\nenabled = true\nca_file = \"/ca\"\n[kafka.sasl]\n\
                mechanism = \"SCRAM-SHA-512\"\nuser = \"hunt\"\nsecret_file = \"/secret\"\n";
    let config = from_text(text).expect("valid");
    let security = config.group.client.security;
    assert_eq!(security.tls, Some(TlsOptions { ca_file: Some("/ca".into()), client: None }));
    let (user, secret_file) = ("hunt".to_owned(), "/secret".into());
    let sasl = SaslOptions { mechanism: Mechanism::ScramSha512, user, secret_file };
    assert_eq!(security.sasl, Some(sasl));
    assert_eq!(config.publisher.client.security, from_text(text).unwrap().group.client.security);

    let says = |text: &str, words: &str| {
        let sentence = refusal(text);
        assert!(sentence.contains(words), "`{words}` is not in: {sentence}");
    };
    says("[kafka.tls]\nca_file = \"/ca\"", "huntd.toml:2: kafka.tls.ca_file is set, but TLS");
    says("[kafka.tls]\nenabled = true\nkey_file = \"/key\"", "set kafka.tls.certificate_file too");
    says("[kafka.sasl]\nuser = \"hunt\"", "choose a mechanism");
    for kerberos in ["GSSAPI", "gssapi"] {
        let text = format!("[kafka.sasl]\nmechanism = \"{kerberos}\"");
        says(&text, "use \"SCRAM-SHA-512\" with TLS");
    }
    says("[kafka.sasl]\nmechanism = \"MD5\"", "choose one of \"PLAIN\"");
    says("[kafka.sasl]\nmechanism = \"PLAIN\"", "PLAIN needs a user");
    let no_secret = "[kafka.sasl]\nmechanism = \"PLAIN\"\nuser = \"hunt\"";
    says(no_secret, "name the file with the password");
    let token = "[kafka.sasl]\nmechanism = \"OAUTHBEARER\"\n";
    says(token, "name the file with the token");
    says(&format!("{token}user = \"hunt\""), "set kafka.sasl.token_file alone");
    let with_token = format!("{no_secret}\ntoken_file = \"/token\"");
    says(&with_token, "PLAIN takes a password: set kafka.sasl.secret_file");
    let config = from_text(&format!("{token}token_file = \"/token\"")).expect("valid");
    let (mechanism, user) = (Mechanism::OauthBearer, String::new());
    let sasl = SaslOptions { mechanism, user, secret_file: "/token".into() };
    assert_eq!(config.group.client.security.sasl, Some(sasl));
    says("[kafka.tlss]\nenabled = true", "kafka.tlss");
    says("[kafka.tls]\npassword = \"secret\"", "there is no key kafka.tls.password");
}

#[test]
fn origins_are_written_as_browsers_write_them_and_all_of_them_only_without_keys() {
    let serve = |lines: &str| format!("[serve]\n{lines}\n");
    for origins in [
        "",
        "\"https://game.example\"",
        "\"http://localhost:8080\", \"http://[::1]:3000\", \"capacitor://localhost\"",
        "\"*\"",
    ] {
        let parsed = from_text(&serve(&format!("origins = [{origins}]")));
        parsed.unwrap_or_else(|error| panic!("{origins}: {error}"));
    }
    for origins in [
        "\"game.example\"",
        "\"https://game.example/\"",
        "\"https://Game.example\"",
        "\"https://game.example:443\"",
        "\"https://*.game.example\"",
        "\"https://\"",
        "\"null\"",
        "\"https://game.example\", \"*\"",
    ] {
        let sentence = refusal(&serve(&format!("origins = [{origins}]")));
        assert!(sentence.contains("write scheme and host as browsers do"), "{sentence}");
    }
    let sentence = refusal(&serve("origins = [\"*\"]\nkeys = \"/etc/huntd/keys.json\""));
    assert!(sentence.contains("list the origins of your pages"), "{sentence}");
    let sentence = refusal(&serve("audience = \"\""));
    assert!(sentence.contains("`aud`"), "{sentence}");
    let sentence = refusal(&serve("listen = \"0.0.0.0:9465\""));
    assert!(sentence.contains("write serve.keys, too"), "{sentence}");
}
