//! The standard process metrics of Prometheus clients, under their usual names.

use std::fs::{self, File};
use std::sync::LazyLock;
use std::{io, thread};

/// File descriptors that a daemon with one broker needs, plus a reserve. If they run out during a
/// start, a library panics or reports something else.
const DESCRIPTORS_MIN: usize = 64;

/// Checks that enough file descriptors are left for a start.
pub(crate) fn check_descriptors() -> io::Result<()> {
    let spare: io::Result<Vec<File>> =
        (0..DESCRIPTORS_MIN).map(|_| File::open("/dev/null")).collect();
    spare.map(drop)
}

/// Threads of a daemon with one broker, including those of librdkafka's clients, plus a reserve.
const THREADS_MIN: usize = 48;

/// Checks that enough threads are left for a start. Without one, libraries panic, or wait for the
/// missing thread forever.
pub(crate) fn check_threads() -> io::Result<()> {
    thread::scope(|scope| {
        let start = |_| thread::Builder::new().spawn_scoped(scope, thread::park);
        let spare: Vec<io::Result<_>> = (0..THREADS_MIN).map(start).collect();
        spare.iter().flatten().for_each(|waiting| waiting.thread().unpark());
        spare.into_iter().find_map(Result::err).map_or(Ok(()), Err)
    })
}

/// A process's values from the kernel; `None` if unavailable.
#[derive(Clone, Copy, Debug)]
pub(super) struct Process {
    /// CPU time of all threads, in milliseconds.
    pub(super) cpu_ms: u64,
    /// Resident memory, in bytes.
    pub(super) resident_bytes: u64,
    /// Virtual memory, in bytes.
    pub(super) virtual_bytes: u64,
    /// Start time, in seconds since the Unix epoch.
    pub(super) start_time_s: u64,
    /// Open file descriptors; `None` if they cannot be listed.
    pub(super) open_fds: Option<u64>,
    /// Limit of open file descriptors; `None` if unlimited.
    pub(super) max_fds: Option<u64>,
}

impl Process {
    /// Reads the values of this process.
    pub(super) fn this() -> Option<Process> {
        // The name in brackets may contain blanks; proc_pid_stat(5) counts its fields from 1.
        let stat = fs::read_to_string("/proc/self/stat").ok()?;
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        let ticks_per_s = rustix::param::clock_ticks_per_second().max(1);
        let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        Some(Process {
            cpu_ms: (field(14)? + field(15)?) * 1000 / ticks_per_s,
            resident_bytes: field(24)? * rustix::param::page_size() as u64,
            virtual_bytes: field(23)?,
            start_time_s: (*BOOT_TIME_S)? + field(22)? / ticks_per_s,
            open_fds: fs::read_dir("/proc/self/fd").ok().map(|fds| fds.count() as u64),
            max_fds: descriptors.current,
        })
    }
}

/// Boot time of the host, in seconds since the Unix epoch. Read once: the kernel counts all
/// interrupts for each answer.
static BOOT_TIME_S: LazyLock<Option<u64>> = LazyLock::new(|| {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
});

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;

    #[test]
    fn this_process_has_begun_lately_and_has_memory_and_files() {
        let process = Process::this().expect("the kernel says");
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("it is later");
        assert!(process.start_time_s <= now.as_secs() + 1);
        assert!(process.start_time_s + 24 * 60 * 60 > now.as_secs());
        assert!(process.virtual_bytes > process.resident_bytes && process.resident_bytes > 100_000);
        assert!(process.open_fds.is_some_and(|open| open >= 3));
    }
}
