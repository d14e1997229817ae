//! The program's command line: help, configuration errors, exit codes.

use clap::CommandFactory;
use huntd::service::cli::Cli;
use std::io::Write;
use std::process::Command;

/// Exit code, standard output and standard error.
fn huntd(arguments: &[&str], variables: &[(&str, &str)]) -> (Option<i32>, String, String) {
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
    let cli = Cli::command();
    let verbs: Vec<_> = cli.get_subcommands().map(|verb| verb.get_name().to_owned()).collect();
    let all = ["run", "check", "demo", "load", "replay", "rules", "snapshot", "tap", "topics"];
    assert_eq!(verbs, all);
    cli.debug_assert();
    for verb in verbs {
        let (code, help, _) = huntd(&[&verb, "--help"], &[]);
        assert_eq!(code, Some(0));
        assert!(help.contains(&format!("\n  huntd {verb} ")) || verb == "demo", "{help}");
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
    ] {
        let (code, _, error) = huntd(arguments, &[]);
        assert_eq!(code, Some(2), "{arguments:?}: {error}");
    }
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
