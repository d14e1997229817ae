//! The package of this build: installed into a root of its own, started from there, purged.

use rdkafka::mocking::MockCluster;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use support::needs;

/// Runs a program that must succeed, and gives what it prints.
fn run(command: &mut Command) -> String {
    let output = command.output().expect("the program is there");
    let printed = [output.stdout, output.stderr].concat();
    let printed = String::from_utf8_lossy(&printed).into_owned();
    assert!(output.status.success(), "{command:?}: {printed}");
    printed
}

/// Everything in a folder, by path.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry"));
    let paths = entries.map(|entry| entry.path());
    paths.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// The package's file with this ending.
fn built(folder: &Path, ending: &str) -> PathBuf {
    let found = files(folder).into_iter().find(|path| path.to_string_lossy().ends_with(ending));
    found.unwrap_or_else(|| panic!("package/build makes no {ending}"))
}

/// Starts the installed program with its installed configuration, and stops it once it is ready.
fn start_and_stop(root: &Path) {
    let cluster = MockCluster::new(1).expect("a mock cluster");
    for topic in ["hunt-events", "hunt-updates", "hunt-dead-letters"] {
        cluster.create_topic(topic, 1, 1).expect("a topic");
    }
    let mut daemon = Command::new(root.join("usr/bin/huntd"))
        .args(["run", "--config"])
        .arg(root.join("etc/huntd/huntd.toml"))
        .env("HUNTD_KAFKA__BROKERS", cluster.bootstrap_servers())
        .env("HUNTD_SERVICE__LISTEN", "127.0.0.1:0")
        .env("HUNTD_SERVICE__LOG_FORMAT", "text")
        .stderr(Stdio::piped())
        .spawn()
        .expect("the installed program starts");
    let log = BufReader::new(daemon.stderr.take().expect("piped"));
    let is_ready =
        |line: Result<String, _>| line.is_ok_and(|line| line.contains("ready: 1 shards"));
    assert!(log.lines().any(is_ready), "the daemon ended before it was ready");
    let pid = rustix::process::Pid::from_child(&daemon);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
    assert!(daemon.wait().expect("it ends").success());
}

/// Every link of a document to a file leads to one within the package.
fn assert_links_lead_somewhere(folder: &Path) {
    let is_document = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "md");
    let mut links = 0;
    for document in files(folder).into_iter().filter(is_document) {
        let text = fs::read_to_string(&document).expect("a document");
        let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
        let files = targets.filter_map(|(target, _)| target.split('#').next());
        for file in files.filter(|file| !file.is_empty() && !file.contains("://")) {
            let target = document.parent().expect("a folder").join(file);
            assert!(target.exists(), "{}: {file}", document.display());
            links += 1;
        }
    }
    assert!(links > 0, "{}", folder.display());
}

#[test]
fn the_package_is_installed_started_and_purged_and_leaves_nothing() {
    let programs = ["dpkg-deb", "dpkg", "objcopy", "strip", "gzip"];
    if !programs.iter().all(|program| needs::has_program(program, "--version")) {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (out, root) = (folder.path().join("out"), folder.path().join("root"));
    run(Command::new("package/build").arg(env!("CARGO_BIN_EXE_huntd")).arg(&out));
    let program = fs::metadata(env!("CARGO_BIN_EXE_huntd")).expect("it is built").len();
    let (deb, tarball) = (built(&out, ".deb"), built(&out, ".tar.gz"));
    assert!(fs::metadata(built(&out, ".debug")).expect("a file").len() > 0);
    assert!(fs::metadata(&tarball).expect("a file").len() < program, "it is stripped");

    fs::create_dir_all(root.join("var/lib/dpkg")).expect("a folder");
    let in_root = format!("--root={}", root.display());
    let dpkg = |arguments: &[&str]| {
        let forced = ["--force-not-root", "--force-depends", "--force-script-chrootless"];
        run(Command::new("dpkg").arg(&in_root).args(forced).args(arguments))
    };
    dpkg(&["--install", deb.to_str().expect("text")]);
    for (unit, verb) in
        [("huntd.service", "run"), ("huntd@.service", "run"), ("huntd-serve@.service", "serve")]
    {
        let unit = fs::read_to_string(root.join("lib/systemd/system").join(unit));
        let start = format!("\nExecStart=/usr/bin/huntd {verb} --config /etc/");
        assert!(unit.expect("a unit").contains(&start), "{start}");
    }
    assert_links_lead_somewhere(&root.join("usr/share/doc/huntd"));
    assert_links_lead_somewhere(&root.join("usr/share/huntd/clients"));
    for file in ["man/man1/huntd-run.1.gz", "huntd/prometheus-alerts.yml", "huntd/clients/huntd.py"]
    {
        assert!(root.join("usr/share").join(file).exists(), "{file}");
    }
    let listed = run(Command::new("tar").arg("--list").arg("--file").arg(&tarball));
    assert!(listed.contains("/usr/bin/huntd\n") && listed.contains("/etc/huntd/huntd.toml\n"));
    start_and_stop(&root);

    dpkg(&["--purge", "huntd"]);
    let left: Vec<PathBuf> =
        files(&root).into_iter().filter(|path| !path.starts_with(root.join("var"))).collect();
    assert!(left.is_empty(), "{left:?}");
}
