//! The package of this build: installed into a root of its own, started from there, purged.

use super::systemd::daemon;
use super::systemd::session::{Session, is_possible};
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
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

/// Starts the installed unit, with the installed configuration and an `environment` beside it,
/// under a systemd of its own. It must be ready, and stop well.
fn assert_starts_by_its_unit(root: &Path, folder: &Path) {
    let (cluster, port) = (daemon::cluster(), daemon::free_port());
    let etc = root.join("etc/huntd");
    let environment = format!(
        "HUNTD_KAFKA__BROKERS={}\nHUNTD_SERVICE__LISTEN=127.0.0.1:{port}\n",
        cluster.bootstrap_servers()
    );
    fs::write(etc.join("environment"), environment).expect("a file");
    let units = folder.join("config/systemd/user");
    fs::create_dir_all(&units).expect("a folder");
    let installed = root.join("usr/lib/systemd/system/huntd.service");
    let unit = daemon::unit_at(&installed, &root.join("usr/bin/huntd"), &etc);
    fs::write(units.join("huntd.service"), unit).expect("a file");

    let mut session = Session::start(folder);
    // It returns once READY was said.
    let (code, printed) = session.run("systemctl --user start huntd");
    assert_eq!(code, 0, "{printed}\n{}", session.run("systemctl --user status huntd").1);
    assert_eq!(session.property("huntd", "ActiveState"), "active");
    let main = session.property("huntd", "MainPID");
    let (_, program) = session.run(&format!("readlink /proc/{main}/exe"));
    assert_eq!(Path::new(&program), root.join("usr/bin/huntd"));
    assert!(daemon::get(port, "/readyz").starts_with("HTTP/1.1 200 "));
    let (code, printed) = session.run("systemctl --user stop huntd");
    assert_eq!(code, 0, "{printed}");
    fs::remove_file(etc.join("environment")).expect("only a purge by hand removes it");
}

/// Each shell loads the installed completions, and completes a verb or knows who does.
fn assert_shells_complete(root: &Path, home: &Path) {
    let share = |path: &str| root.join("usr/share").join(path).display().to_string();
    let (bash, zsh, fish) = (
        share("bash-completion/completions/huntd"),
        share("zsh/vendor-completions"),
        share("fish/vendor_completions.d/huntd.fish"),
    );
    let completed = "COMP_WORDS=(huntd snap) COMP_CWORD=1; _huntd huntd snap huntd";
    let scripts = [
        ("bash", format!("bash -n {bash} && . {bash} && {completed} && echo ${{COMPREPLY[0]}}")),
        (
            "zsh",
            format!(
                "fpath=({zsh} $fpath); autoload -Uz compinit; compinit -u -D; \
                 autoload +X $_comps[huntd] && zsh -n {zsh}/_huntd && grep -o snapshot {zsh}/_huntd"
            ),
        ),
        ("fish", format!("fish -n {fish}; and source {fish}; and complete -C 'huntd snap'")),
    ];
    for (shell, script) in scripts {
        if needs::has_program(shell, "--version") {
            let printed = run(Command::new(shell).args(["-c", &script]).env("HOME", home));
            assert!(printed.starts_with("snapshot"), "{shell}: {printed}");
        }
    }
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

/// The tarball brings its files to their places, and changes nothing else of a system, whose
/// `/lib` is a link.
fn assert_unpacks_over_a_system(tarball: &Path, system: &Path) {
    fs::create_dir_all(system.join("usr/lib")).expect("a folder");
    symlink("usr/lib", system.join("lib")).expect("a link");
    fs::set_permissions(system.join("usr"), Permissions::from_mode(0o711)).expect("a folder");
    run(Command::new("tar").args(["--strip-components=1", "--extract", "--file"]).args([
        tarball,
        Path::new("--directory"),
        system,
    ]));
    assert!(system.join("lib").is_symlink(), "a system without its libraries");
    let mode = fs::metadata(system.join("usr")).expect("a folder").permissions().mode();
    assert_eq!(mode & 0o777, 0o711);
    for file in ["usr/bin/huntd", "etc/huntd/huntd.toml", "lib/systemd/system/huntd.service"] {
        assert!(system.join(file).is_file(), "{file}");
    }
    assert_links_lead_somewhere(&system.join("usr/share/huntd/clients"));
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

    let depends = run(Command::new("dpkg-deb").arg("--field").arg(&deb).arg("Depends"));
    assert_eq!(depends.contains("libssl3"), !cfg!(feature = "vendored"), "{depends}");

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
        let unit = fs::read_to_string(root.join("usr/lib/systemd/system").join(unit));
        let start = format!("\nExecStart=/usr/bin/huntd {verb} --config /etc/");
        assert!(unit.expect("a unit").contains(&start), "{start}");
    }
    assert_links_lead_somewhere(&root.join("usr/share/doc/huntd"));
    assert_links_lead_somewhere(&root.join("usr/share/huntd/clients"));
    for file in ["man/man1/huntd-run.1.gz", "huntd/prometheus-alerts.yml", "huntd/clients/huntd.py"]
    {
        assert!(root.join("usr/share").join(file).exists(), "{file}");
    }
    assert_unpacks_over_a_system(&tarball, &folder.path().join("system"));
    assert_shells_complete(&root, folder.path());
    if is_possible() {
        assert_starts_by_its_unit(&root, folder.path());
    }

    if needs::has_program("systemctl", "--version") {
        let units = ["huntd.service", "huntd@2.service", "huntd-serve@1.service"];
        let in_root = format!("--root={}", root.display());
        run(Command::new("systemctl").args([&in_root, "enable"]).args(units));
        let links = files(&root.join("etc/systemd")).len();
        assert_eq!(links, units.len(), "an enabled unit is a link");
    }
    dpkg(&["--purge", "huntd"]);
    let left: Vec<PathBuf> =
        files(&root).into_iter().filter(|path| !path.starts_with(root.join("var"))).collect();
    assert!(left.is_empty(), "{left:?}");
}
