//! What the hot thread and the serving thread may ask of the kernel.

use huntd::queue::bell::Bell;
use huntd::runtime::confinement::{Confinement, confine_this_thread};
use huntd::runtime::ring_loop::RingLoop;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use support::daemon::program;

#[test]
fn a_confined_thread_opens_no_file_no_socket_and_starts_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let confined = |confinement: Confinement| {
        move || {
            confine_this_thread(confinement).expect("the kernel has seccomp");
            let refused = [
                ("a file", File::open("/etc/hostname").map(drop)),
                ("a connection", TcpStream::connect(address).map(drop)),
                ("a socket", UdpSocket::bind("127.0.0.1:0").map(drop)),
                ("a process", Command::new("/bin/true").spawn().map(drop)),
                ("a thread", thread::Builder::new().spawn(|| {}).map(drop)),
            ];
            refused.map(|(what, outcome)| (what, outcome.map_err(|error| error.kind())))
        }
    };
    for confinement in [Confinement::Hot, Confinement::Serving] {
        let confined = thread::spawn(confined(confinement));
        for (what, outcome) in confined.join().expect("it goes on after each refusal") {
            assert_eq!(outcome, Err(ErrorKind::PermissionDenied), "{confinement:?}: {what}");
        }
    }
    // The others go on as before.
    File::open("/etc/hostname").expect("this thread is free");
}

#[test]
fn a_confined_thread_turns_allocates_takes_signals_and_ends() {
    // What a signal's handler does on whichever thread it finds.
    let (mut signals, mut handler) = UnixStream::pair().expect("a socket pair");
    let confined = thread::spawn(move || {
        let bell = Arc::new(Bell::new().expect("a file descriptor"));
        let ring_loop = RingLoop::new(8, Duration::from_millis(1), bell).expect("io_uring");
        confine_this_thread(Confinement::Hot).expect("the kernel has seccomp");
        let turns = ring_loop.turns().clone();
        let root = async move {
            let memory = vec![1u8; 64 << 20];
            handler.write_all(b"signal").expect("it may write");
            let end = turns.now() + Duration::from_millis(5);
            turns.sleep_until(end).await;
            memory.iter().map(|byte| u64::from(*byte)).sum::<u64>()
        };
        ring_loop.run(root, |_| {}).expect("the ring works")
    });
    assert_eq!(confined.join().expect("nothing that it needs is refused"), 64 << 20);
    let mut written = String::new();
    signals.read_to_string(&mut written).expect("the other end is closed");
    assert_eq!(written, "signal");
}

/// Runs a program under the profile of `package/seccomp.json`, as a container would, which refuses
/// these calls in addition.
fn run_in_container(
    command: &mut Command,
    refused: &[&str],
) -> std::io::Result<std::process::Output> {
    let profile: Value = serde_json::from_str(include_str!("../../package/seccomp.json"))
        .expect("the profile is JSON");
    assert_eq!(profile["defaultAction"], "SCMP_ACT_ERRNO");
    let groups = profile["syscalls"].as_array().expect("a list");
    let names = groups.iter().flat_map(|group| group["names"].as_array().expect("a list"));
    let names = names.filter(|name| !refused.iter().any(|refused| *name == refused));
    let calls: Vec<_> = names.map(|name| json!({ "syscall": name })).collect();
    let filter = json!({"container": {
        "mismatch_action": {"errno": profile["defaultErrnoRet"]},
        "match_action": "allow",
        "filter": calls,
    }});
    let arch = std::env::consts::ARCH.try_into().expect("seccomp knows this processor");
    let programs = seccompiler::compile_from_json(filter.to_string().as_bytes(), arch);
    let programs = programs.expect("all names are calls of this kernel");
    // What is started inherits the filter of the thread that starts it.
    thread::scope(|scope| {
        let started = scope.spawn(|| {
            seccompiler::apply_filter(&programs["container"]).expect("the kernel has seccomp");
            command.output()
        });
        started.join().expect("it only starts a program")
    })
}

#[test]
fn the_profile_for_containers_lets_huntd_run_and_little_else() {
    let demo = ["demo", "--events", "20000", "--players", "100"];
    let ran = run_in_container(Command::new(program()).args(demo), &[]).expect("it starts");
    let said = [ran.stdout, ran.stderr].concat();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&said));
    let unshared = run_in_container(Command::new("unshare").args(["--mount", "true"]), &[]);
    assert!(!unshared.expect("it starts").status.success(), "a namespace of its own");
}

#[test]
fn check_finds_out_that_a_container_forbids_io_uring() {
    let mut check = Command::new(program());
    check.args(["check", "--offline", "--config", "config/huntd.toml"]);
    let ended = run_in_container(&mut check, &["io_uring_setup"]).expect("it starts");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(7), "{said}");
    assert!(said.contains("io_uring") && said.contains("seccomp"), "{said}");
}
