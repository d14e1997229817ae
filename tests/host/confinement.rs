//! What the hot thread and the serving thread may ask of the kernel.

use huntd::queue::bell::Bell;
use huntd::runtime::confinement::{Confinement, confine_this_thread};
use huntd::runtime::ring::RingKind;
use huntd::runtime::ring_loop::RingLoop;
use seccompiler::BpfProgram;
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
use support::process::start_under;

#[test]
fn a_confined_thread_opens_no_file_no_socket_and_starts_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let confined = |confinement: Confinement, ring: RingKind| {
        move || {
            confine_this_thread(confinement, ring).expect("the kernel has seccomp");
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
        for ring in [RingKind::IoUring, RingKind::Epoll] {
            let confined = thread::spawn(confined(confinement, ring));
            for (what, outcome) in confined.join().expect("it goes on after each refusal") {
                let name = format!("{confinement:?}, {ring:?}: {what}");
                assert_eq!(outcome, Err(ErrorKind::PermissionDenied), "{name}");
            }
        }
    }
    // The others go on as before.
    File::open("/etc/hostname").expect("this thread is free");
}

#[test]
fn a_confined_thread_turns_allocates_takes_signals_and_ends() {
    for kind in [RingKind::IoUring, RingKind::Epoll] {
        // Stands in for a signal handler, which writes on any thread.
        let (mut signals, mut handler) = UnixStream::pair().expect("a socket pair");
        let (socket, mut broker) = UnixStream::pair().expect("a socket pair");
        let confined = thread::spawn(move || {
            let bell = Arc::new(Bell::new().expect("a file descriptor"));
            let park_max = Duration::from_millis(1);
            let ring_loop = RingLoop::new(kind, 8, park_max, bell).expect("this kernel has both");
            confine_this_thread(Confinement::Hot, kind).expect("the kernel has seccomp");
            let turns = ring_loop.turns().clone();
            let socket = Arc::new(socket.into());
            let root = async move {
                let memory = vec![1u8; 64 << 20];
                handler.write_all(b"signal").expect("it may write");
                let end = turns.now() + Duration::from_millis(5);
                turns.sleep_until(end).await;
                let sent = turns.operations().send(&socket, b"question".to_vec(), 0).await;
                assert_eq!(sent.result.expect("it may send"), 8);
                let received = turns.operations().receive(&socket, vec![0; 8], 0).await;
                assert_eq!(received.result.expect("it may receive"), 6);
                memory.iter().map(|byte| u64::from(*byte)).sum::<u64>()
            };
            ring_loop.run(root, |_| {}).expect("the ring works")
        });
        let mut question = [0; 8];
        broker.read_exact(&mut question).expect("the thread sends it");
        broker.write_all(b"answer").expect("the thread waits for it");
        assert_eq!(confined.join().expect("nothing that it needs is refused"), 64 << 20);
        let mut written = String::new();
        signals.read_to_string(&mut written).expect("the other end is closed");
        assert_eq!(written, "signal");
    }
}

/// The calls of one group of the profile, with its conditions on their arguments.
fn rules(group: &Value) -> Vec<Value> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let conditions = list(&group["args"]).into_iter().map(|condition| {
        assert_eq!(condition["op"], "SCMP_CMP_MASKED_EQ");
        let (mask, value) = (&condition["value"], &condition["valueTwo"]);
        let op = json!({ "masked_eq": mask });
        json!({ "index": condition["index"], "type": "qword", "op": op, "val": value })
    });
    let conditions: Vec<_> = conditions.collect();
    let rule = |name: Value| match conditions.is_empty() {
        true => json!({ "syscall": name }),
        false => json!({ "syscall": name, "args": conditions }),
    };
    list(&group["names"]).into_iter().map(rule).collect()
}

/// The filters that do what `package/seccomp.json` says, and refuse these calls in addition: one
/// for all that is allowed, and one for each group that is refused with an error of its own.
fn filters(refused: &[&str]) -> Vec<BpfProgram> {
    let profile: Value = serde_json::from_str(include_str!("../../package/seccomp.json"))
        .expect("the profile is JSON");
    assert_eq!(profile["defaultAction"], "SCMP_ACT_ERRNO");
    let groups = profile["syscalls"].as_array().expect("a list");
    let mut passed: Vec<_> = groups.iter().flat_map(rules).collect();
    passed.retain(|rule| !refused.iter().any(|refused| rule["syscall"] == *refused));
    let refusal = json!({ "errno": profile["defaultErrnoRet"] });
    let mut filters = vec![filter(&refusal, &json!("allow"), &passed)];
    let refusals = groups.iter().filter(|group| group["action"] == "SCMP_ACT_ERRNO");
    filters.extend(refusals.map(|group| {
        let refusal = json!({ "errno": group["errnoRet"] });
        filter(&json!("allow"), &refusal, &rules(group))
    }));
    filters
}

fn filter(otherwise: &Value, action: &Value, rules: &[Value]) -> BpfProgram {
    let filter = json!({ "container": {
        "mismatch_action": otherwise,
        "match_action": action,
        "filter": rules,
    }});
    let arch = std::env::consts::ARCH.try_into().expect("seccomp knows this processor");
    let programs = seccompiler::compile_from_json(filter.to_string().as_bytes(), arch);
    programs.expect("all names are calls of this kernel").remove("container").expect("it is there")
}

/// Runs a program under the profile, as a container would, which refuses these calls in addition.
fn run_in_container(
    command: &mut Command,
    refused: &[&str],
) -> std::io::Result<std::process::Output> {
    start_under(&filters(refused), || command.output())
}

#[test]
fn the_profile_for_containers_lets_huntd_run_and_little_else() {
    let demo = ["demo", "--events", "20000", "--players", "100"];
    let ran = run_in_container(Command::new(program()).args(demo), &[]).expect("it starts");
    let said = [ran.stdout, ran.stderr].concat();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&said));
    let unshared = run_in_container(Command::new("unshare").args(["--mount", "true"]), &[]);
    assert!(!unshared.expect("it starts").status.success(), "a namespace of its own");
    let flags = libc::CLONE_NEWUSER | libc::SIGCHLD;
    assert_eq!(clone_in_container(libc::SIGCHLD), "cloned");
    assert_eq!(clone_in_container(flags), libc::EPERM.to_string(), "a namespace of its own");
}

/// What comes of a process that is cloned with these flags: the number of an error, if one does.
fn clone_in_container(flags: i32) -> String {
    let clone = libc::SYS_clone;
    let script = format!(
        "my $pid = syscall({clone}, {flags}, 0, 0, 0, 0); exit if $pid == 0; \
         print $pid < 0 ? int($!) : 'cloned'"
    );
    let ran = run_in_container(Command::new("perl").args(["-e", &script]), &[]);
    String::from_utf8(ran.expect("it starts").stdout).expect("a word or a number")
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
