//! The unit files themselves.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use support::needs;

const UNITS: [&str; 3] =
    ["systemd/huntd.service", "systemd/huntd@.service", "systemd/huntd-serve@.service"];

/// The most that `systemd-analyze security` may find.
const EXPOSURE_MAX: f64 = 1.5;

fn read(unit: &str) -> String {
    std::fs::read_to_string(unit).expect("the repository has it")
}

/// Assignments in order, without comments.
fn settings(unit: &str) -> Vec<String> {
    let text = read(unit);
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with(['#', '[']));
    lines.map(str::to_owned).collect()
}

fn systemd_analyze(arguments: &[&str]) -> Option<String> {
    if !needs::has_program("systemd-analyze", "--version") {
        return None;
    }
    let output = Command::new("systemd-analyze").args(arguments).output().expect("it runs");
    let printed = [output.stdout, output.stderr].concat();
    Some(String::from_utf8(printed).expect("it prints text"))
}

#[test]
fn the_units_are_hardened() {
    for unit in UNITS {
        let Some(printed) = systemd_analyze(&["security", "--offline=true", unit]) else {
            return;
        };
        let exposure = printed.lines().find_map(|line| line.split("exposure level for ").nth(1));
        let exposure = exposure.and_then(|line| line.split(": ").nth(1)?.split(' ').next());
        let exposure: f64 = exposure.and_then(|level| level.parse().ok()).expect("a level");
        assert!(exposure <= EXPOSURE_MAX, "{unit}: {exposure}\n{printed}");
    }
}

/// The real-time priority of a thread of this process, and 0 if it has none.
fn real_time_priority(tid: &str) -> u32 {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{tid}/stat")).expect("it runs");
    // proc(5): the 40th field is rt_priority, and the name in the second may have spaces.
    let mut fields = stat.rsplit(')').next().expect("a name").split_whitespace();
    fields.nth(37).and_then(|priority| priority.parse().ok()).expect("rt_priority")
}

#[test]
fn the_real_time_priority_is_off_and_goes_to_the_hot_thread_alone_once_it_is_on() {
    let may = Command::new("chrt").args(["--fifo", "1", "true"]).status();
    if !needs::has("a real-time priority", may.is_ok_and(|status| status.success())) {
        return;
    }
    for unit in &UNITS[..2] {
        let start = "ExecStartPost=";
        assert!(!settings(unit).iter().any(|line| line.starts_with(start)), "{unit}");
        let text = read(unit).replace("#ExecStartPost=", start);
        let lines: Vec<&str> = text.lines().filter(|line| line.starts_with(start)).collect();
        let [line] = lines[..] else { panic!("{unit} has one such line: {lines:?}") };
        // systemd turns two dollar signs into one and takes the quotes off.
        let script = line.strip_prefix("ExecStartPost=+/bin/sh -c '").expect("a script");
        let script = script.strip_suffix('\'').expect("quoted").replace("$$", "$");
        let (told, tids) = mpsc::channel();
        let threads = ["hot", "hot-not"].map(|name| {
            let (told, (done, until_done)) = (told.clone(), mpsc::channel::<()>());
            let thread = thread::Builder::new().name(name.to_owned()).spawn(move || {
                told.send((name, rustix::thread::gettid())).expect("the test waits");
                until_done.recv().expect_err("nothing is sent");
            });
            (thread.expect("a thread starts"), done)
        });
        let tids: BTreeMap<_, _> = tids.iter().take(threads.len()).collect();
        let status = Command::new("/bin/sh")
            .args(["-c", &script])
            .env("MAINPID", std::process::id().to_string())
            .status();
        assert!(status.expect("a shell is there").success(), "{script}");
        let priority = |name| real_time_priority(&tids[name].as_raw_nonzero().to_string());
        assert_eq!((priority("hot"), priority("hot-not")), (1, 0), "{script}");
        for (thread, done) in threads {
            drop(done);
            thread.join().expect("it only waits");
        }
    }
}

#[test]
fn the_system_call_filters_let_io_uring_pinning_and_confinement_through() {
    // The order of the lines decides: the last one that names a call wins.
    let filters: Vec<_> = settings(UNITS[0])
        .iter()
        .filter_map(|line| line.strip_prefix("SystemCallFilter=").map(str::to_owned))
        .collect();
    assert_eq!(filters.last().map(String::as_str), Some("sched_setaffinity seccomp"));
    assert_eq!(filters[0], "@system-service");
    assert!(!filters[1].contains("@aio"), "@aio has io_uring");
    let serving = settings(UNITS[2]);
    let last = serving.iter().rfind(|line| line.starts_with("SystemCallFilter="));
    assert_eq!(last.map(String::as_str), Some("SystemCallFilter=seccomp"), "it confines itself");
    let Some(aio) = systemd_analyze(&["syscall-filter", "@aio"]) else {
        return;
    };
    for call in ["io_uring_setup", "io_uring_enter", "io_uring_register"] {
        assert!(aio.contains(call), "{call}");
    }
    let service = systemd_analyze(&["syscall-filter", "@system-service"]).expect("it is there");
    assert!(service.contains("@aio") && service.contains("@resources"), "{service}");
}

#[test]
fn the_template_differs_only_in_what_an_instance_has_of_its_own() {
    let (unit, template) = (settings(UNITS[0]), settings(UNITS[1]));
    let only = |a: &[String], b: &[String]| -> Vec<String> {
        a.iter().filter(|line| !b.contains(line)).cloned().collect()
    };
    assert_eq!(
        only(&template, &unit),
        [
            "Description=huntd on core %i, a Kafka state engine for real-time games",
            "Environment=HUNTD_CPU__HOT_CORE=%i",
            "Environment=HUNTD_KAFKA__GROUP_INSTANCE_ID=%H-%i",
            "Environment=HUNTD_SERVICE__LISTEN=127.0.1.%i:9464",
            "StateDirectory=huntd/%i",
        ]
    );
    assert_eq!(
        only(&unit, &template),
        [
            "Description=huntd, a Kafka state engine for real-time games",
            "Environment=HUNTD_KAFKA__GROUP_INSTANCE_ID=%H",
            "StateDirectory=huntd",
        ]
    );
}
