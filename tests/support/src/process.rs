//! What the kernel counts of a process, and what one says.

use crate::needs;
use seccompiler::BpfProgram;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::ops::{Deref, DerefMut};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

/// Clock ticks of proc_pid_stat(5) a second, on every Linux that huntd runs on.
const TICKS_PER_S: u64 = 100;

/// Runs `start` on a thread with these seccomp filters, which each process that it starts inherits.
pub fn start_under<T: Send>(filters: &[BpfProgram], start: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let started = scope.spawn(|| {
            for filter in filters {
                seccompiler::apply_filter(filter).expect("the kernel has seccomp");
            }
            start()
        });
        started.join().expect("it only starts programs")
    })
}

/// Runs a program with nobody who reads what it prints, and returns its exit code.
pub fn run_unread(program: &str, arguments: &[&str]) -> Option<i32> {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let errors = writer.try_clone().expect("a descriptor");
    let status = Command::new(program).args(arguments).stdout(writer).stderr(errors).status();
    status.expect("the program is there").code()
}

/// A child process. Dropped, it is killed and waited for.
pub struct OwnedChild(Child);

impl From<Child> for OwnedChild {
    fn from(child: Child) -> OwnedChild {
        OwnedChild(child)
    }
}

impl Deref for OwnedChild {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for OwnedChild {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for OwnedChild {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Processor time that a process took, of all its threads.
pub fn cpu(pid: u32) -> Duration {
    let stat = read(pid, "stat");
    let (_, fields) = stat.rsplit_once(')').expect("the name stands in brackets");
    let ticks = |at: usize| fields.split_whitespace().nth(at)?.parse::<u64>().ok();
    let ticks = ticks(11).zip(ticks(12)).map(|(user, system)| user + system);
    Duration::from_millis(1_000 / TICKS_PER_S * ticks.expect("the kernel counts"))
}

/// A command that runs a program with the priority that these options of `chrt` give. The program
/// ends with the thread that starts it, because nothing else would be left to stop it. Without the
/// right to such a priority, it runs like any other.
pub fn before_others(options: &[&str]) -> Command {
    let dies_with_us = ["setpriv", "--pdeathsig", "KILL"];
    let mut command = Command::new("chrt");
    command.args(options).args(dies_with_us);
    let mut trial = Command::new("chrt");
    let may = trial.args(options).args(dies_with_us).arg("true").stderr(Stdio::null()).status();
    match may.is_ok_and(|status| status.success()) {
        true => command,
        false => Command::new("env"),
    }
}

/// Whether [`limited`] has what it takes.
pub fn can_be_limited() -> bool {
    needs::has("to be root, whose threads are counted apart", rustix::process::geteuid().is_root())
        && needs::has_program("prlimit", "--version")
        && needs::has_program("setpriv", "--version")
}

/// A command that runs a program with a limit, an option of `prlimit`, as a user without rights.
pub fn limited(limit: &str, program: impl AsRef<OsStr>) -> Command {
    // No other program has this user, so its threads are counted alone.
    let user = 200_000 + std::process::id();
    let mut command = Command::new("prlimit");
    command.args([limit, "setpriv", "--clear-groups"]);
    command.arg(format!("--reuid={user}")).arg(format!("--regid={user}")).arg(program);
    command
}

/// What `says` finds in a program's output, at the first line in which it finds something. Later
/// lines are read and dropped, so that the program never waits for a reader.
pub fn wait_for_line<T>(
    output: impl Read + Send + 'static,
    says: impl Fn(&str) -> Option<T>,
) -> Option<T> {
    let mut lines = BufReader::new(output).lines().map_while(Result::ok);
    let said = lines.find_map(|line| says(&line));
    std::thread::spawn(move || lines.for_each(drop));
    said
}

/// Bytes of memory that a process has.
pub fn resident_bytes(pid: u32) -> u64 {
    memory_bytes(pid, "VmRSS:")
}

/// The most that it has had.
pub fn resident_bytes_max(pid: u32) -> u64 {
    memory_bytes(pid, "VmHWM:")
}

fn memory_bytes(pid: u32, name: &str) -> u64 {
    let status = read(pid, "status");
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    1024 * kib.expect("the kernel counts")
}

fn read(pid: u32, file: &str) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/{file}")).expect("the process is there")
}
