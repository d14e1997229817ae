//! The image of `package/Containerfile`: built, and run under the profile beside it.
//!
//! Its base images come from a registry of images, which a test does without: they are made of
//! Debian's packages here, and the one for building has a `cargo` that takes this build's program.

use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use support::daemon::Topics;
use support::{kafka, needs};

/// Stands in for cargo in `RUN cargo build`, and checks that the context is a checkout without its
/// `target` folder.
const CARGO: &str = "#!/bin/sh -e
[ \"$*\" = 'build --release --locked' ] && [ -f Cargo.lock ] && [ -f src/main.rs ]
for member in $(sed -n 's/^members = .\\(.*\\).$/\\1/p' Cargo.toml | tr -d '\",'); do
    [ -f \"$member/Cargo.toml\" ]
done
[ ! -e target ] && [ \"$HUNTD_REVISION\" = container ]
install -D /program target/release/huntd
";

/// Runs a program without the descriptors that other tests have open, such as librdkafka's pipes,
/// which a test's children inherit. mmdebstrap gives dash the next free numbers, and dash knows
/// none above 9.
const WITH_NOTHING_OPEN: &str = "for fd in /proc/$BASHPID/fd/*; do
    fd=${fd##*/}
    [ $fd -le 2 ] || eval \"exec $fd>&-\"
done
exec \"$@\"";

/// Runs a program that must succeed, and gives the last line that it prints.
fn run(command: &mut Command) -> String {
    let output = command.output().expect("the program is there");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    let printed = String::from_utf8_lossy(&output.stdout);
    printed.lines().last().unwrap_or_default().to_owned()
}

/// buildah, which keeps all that it makes in this folder.
fn buildah(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("buildah");
    let [root, run] = ["root", "run"].map(|name| folder.join(name));
    command.arg("--root").arg(root).arg("--runroot").arg(run);
    command.args(["--storage-driver", "vfs"]).args(arguments);
    command
}

/// Makes an image of this name from another one and some files: source and target.
fn make_image(folder: &Path, name: &str, from: &str, files: &[(&Path, &str)]) {
    let container = run(&mut buildah(folder, &["from", "--pull-never", from]));
    for (source, target) in files {
        run(buildah(folder, &["add", &container]).arg(source).arg(target));
    }
    run(&mut buildah(folder, &["commit", "--rm", &container, name]));
}

#[test]
fn the_image_is_built_and_runs_under_its_profile() {
    if !needs::has_minutes() {
        return;
    }
    let programs = [("buildah", "--version"), ("mmdebstrap", "--version")];
    let are_there = programs.iter().all(|(name, option)| needs::has_program(name, option));
    if !are_there || !needs::has("root", rustix::process::geteuid().is_root()) {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let folder = folder.path();
    let (debian, cargo) = (folder.join("debian.tar"), folder.join("cargo"));
    let make = ["-c", WITH_NOTHING_OPEN, "bash", "mmdebstrap", "--variant=minbase", "bookworm"];
    run(Command::new("bash").args(make).arg(&debian));
    let mut file = fs::File::create(&cargo).expect("the folder is writable");
    file.write_all(CARGO.as_bytes()).expect("the folder is writable");
    file.set_permissions(fs::Permissions::from_mode(0o755)).expect("it is ours");
    drop(file);
    let (slim, rust) =
        ("docker.io/library/debian:bookworm-slim", "docker.io/library/rust:1.95-bookworm");
    make_image(folder, slim, "scratch", &[(&debian, "/")]);
    let program = Path::new(env!("CARGO_BIN_EXE_huntd"));
    make_image(folder, rust, slim, &[(&cargo, "/usr/local/bin/cargo"), (program, "/program")]);

    let build = ["bud", "--isolation", "chroot", "--pull-never", "--layers=false"];
    run(buildah(folder, &build).args(["-f", "package/Containerfile", "-t", "huntd", "."]));
    let inspected = buildah(folder, &["inspect", "--type", "image", "huntd"]).output();
    let image: Value = serde_json::from_slice(&inspected.expect("it is there").stdout)
        .expect("buildah tells JSON");
    let image = &image["OCIv1"]["config"];
    assert_eq!((&image["User"], &image["StopSignal"]), (&"huntd".into(), &"SIGTERM".into()));

    let profile = format!("seccomp={}/package/seccomp.json", env!("CARGO_MANIFEST_DIR"));
    let from = ["from", "--pull-never", "--security-opt", &profile, "huntd"];
    let container = run(&mut buildah(folder, &from));
    // It is filtered, and what follows needs io_uring: no other profile allows that.
    let mut filtered = buildah(folder, &["run", "--isolation", "chroot", &container, "--"]);
    assert_eq!(run(filtered.args(["grep", "^Seccomp:", "/proc/self/status"])), "Seccomp:\t2");
    let words = ["Entrypoint", "Cmd"].map(|key| image[key].as_array().expect("words"));
    let words = words.into_iter().flatten().map(|word| word.as_str().expect("a word"));
    starts(folder, &container, &words.collect::<Vec<&str>>());
    plays_under_the_default_profile(folder);
}

/// The demo takes epoll where the profile of container runtimes forbids io_uring.
fn plays_under_the_default_profile(folder: &Path) {
    let container = run(&mut buildah(folder, &["from", "--pull-never", "huntd"]));
    let command = ["run", "--isolation", "chroot", &container, "--"];
    let demo = buildah(folder, &command).args(["huntd", "demo", "--events", "20000"]).output();
    let demo = demo.expect("buildah is there");
    let said = String::from_utf8_lossy(&demo.stderr);
    assert!(demo.status.success(), "{said}");
    assert!(said.contains("using epoll: io_uring is forbidden here"), "{said}");
}

/// The container's command becomes ready, with brokers on this host's loopback address.
fn starts(folder: &Path, container: &str, words: &[&str]) {
    let cluster = kafka::shared();
    let topics = Topics::create(cluster, "container", 1);
    let bootstrap = cluster.bootstrap();
    let settings = [
        ("KAFKA__BROKERS", bootstrap.as_str()),
        ("KAFKA__INPUT_TOPIC", topics.input.as_str()),
        ("KAFKA__OUTPUT_TOPIC", topics.output.as_str()),
        ("KAFKA__DEAD_LETTER_TOPIC", topics.dead_letters.as_str()),
        ("SERVICE__LISTEN", "127.0.0.1:0"),
    ];
    let settings = settings.map(|(key, value)| format!("--env=HUNTD_{key}={value}"));
    let mut daemon = buildah(folder, &["run", "--isolation", "chroot"])
        .args(settings)
        .args([container, "--"])
        .args(words)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("buildah is there");
    let log = BufReader::new(daemon.stderr.take().expect("piped"));
    let mut said = String::new();
    let is_ready = log.lines().map_while(Result::ok).any(|line| {
        said.push_str(&line);
        line.contains("ready: 1 shard")
    });
    let pid = rustix::process::Pid::from_child(&daemon);
    // buildah ends what it runs.
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
    daemon.wait().expect("it ends");
    assert!(is_ready, "{said}");
}
