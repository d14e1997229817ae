//! Cores: the hot thread has its own, all other threads share the rest.
//!
//! A new thread inherits the allowed cores of its creator, and libraries start threads themselves.
//! So the whole process is restricted to the helper cores first, then the threads are started, the
//! hot thread is pinned last, and finally every task of the process is checked.

use super::RuntimeOptions;

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::collections::BTreeSet;
use std::io;

/// Number of cores in the sets of the kernel's affinity calls, as in the C library.
pub(crate) const CORES_MAX: usize = 1024;

/// Which threads run on which cores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// The hot thread has its own core.
    Pinned {
        /// The core of the hot thread.
        hot_core: usize,
        /// The cores of all other threads.
        helper_cores: Vec<usize>,
    },
    /// Only one core is allowed, so all threads share it and none is pinned.
    Shared {
        /// The core.
        core: usize,
    },
}

/// Why the hot thread cannot have a core of its own.
#[derive(Debug, thiserror::Error)]
pub enum CpuError {
    /// A configured core is not among the allowed ones.
    #[error(
        "core {core} of {key} is not among the allowed cores {allowed}: \
         choose one of them, or change CPUAffinity= or the cpuset"
    )]
    NotAllowed {
        /// The core.
        core: usize,
        /// The configuration key.
        key: &'static str,
        /// The allowed cores as a list.
        allowed: String,
    },
    /// No core is left for the other threads.
    #[error("no core is left for the helper threads: name others in cpu.helper_cores")]
    NoHelpers,
    /// The kernel refused to read or set allowed cores.
    #[error("the kernel refuses to set allowed cores ({0}): allow sched_setaffinity")]
    Refused(#[source] io::Error),
    /// A thread may run on a forbidden core.
    #[error(
        "task {task} ({name}) may run on cores {cores} although the hot core is {hot_core}: \
         keep other programs from changing huntd's affinity"
    )]
    Misplaced {
        /// The thread.
        task: u32,
        /// Its name.
        name: String,
        /// The cores that it may run on.
        cores: String,
        /// The core of the hot thread.
        hot_core: usize,
    },
}

/// Parses a list in the kernel's format: `0-2,5`. `None` if it is malformed, names a core twice, or
/// names a core beyond the limit.
pub fn parse_list(text: &str) -> Option<Vec<usize>> {
    let mut cores = BTreeSet::new();
    for range in text.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let first: usize = first.trim().parse().ok()?;
        let last: usize = last.trim().parse().ok()?;
        if first > last || last >= CORES_MAX {
            return None;
        }
        for core in first..=last {
            if !cores.insert(core) {
                return None;
            }
        }
    }
    Some(cores.into_iter().collect())
}

/// Formats a list in the kernel's format, `0-2,5`.
pub fn list(cores: &[usize]) -> String {
    let ranges = cores.chunk_by(|a, b| a + 1 == *b).map(|run| match run {
        [one] => one.to_string(),
        [first, .., last] => format!("{first}-{last}"),
        [] => unreachable!("chunks are not empty"),
    });
    ranges.collect::<Vec<_>>().join(",")
}

/// The cores that the calling thread may run on: those set by the supervisor, unless the thread has
/// been restricted.
pub fn allowed_cores() -> Result<Vec<usize>, CpuError> {
    let set = sched_getaffinity(None).map_err(|error| CpuError::Refused(error.into()))?;
    Ok((0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect())
}

/// The cores that share execution units with `core`, including itself; only itself if unknown.
pub fn siblings(core: usize) -> Vec<usize> {
    let path = format!("/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list");
    let text = std::fs::read_to_string(path).ok();
    text.and_then(|text| parse_list(&text)).unwrap_or_else(|| vec![core])
}

/// Decides which threads run where. `siblings` is [`siblings`], or a test's.
///
/// Unless configured, the hot thread gets the last allowed core, because the first ones serve most
/// interrupts, and its siblings stay idle if any other core is left.
pub fn plan(
    options: &RuntimeOptions,
    allowed: &[usize],
    siblings: impl Fn(usize) -> Vec<usize>,
) -> Result<Plan, CpuError> {
    let check = |core: usize, key: &'static str| match allowed.contains(&core) {
        true => Ok(core),
        false => Err(CpuError::NotAllowed { core, key, allowed: list(allowed) }),
    };
    let helpers = options.helper_cores.as_deref().unwrap_or_default();
    for core in helpers {
        check(*core, "cpu.helper_cores")?;
    }
    if let Some(core) = options.hot_core {
        check(core, "cpu.hot_core")?;
    }
    if let [core] = allowed {
        return Ok(Plan::Shared { core: *core });
    }
    let free = |core: &&usize| !helpers.contains(core);
    let hot_core = match options.hot_core {
        Some(core) => core,
        None => *allowed.iter().rfind(free).ok_or(CpuError::NoHelpers)?,
    };
    let helper_cores = match &options.helper_cores {
        Some(cores) => cores.clone(),
        None => {
            let others = || allowed.iter().copied().filter(|core| *core != hot_core);
            let close = siblings(hot_core);
            let apart: Vec<_> = others().filter(|core| !close.contains(core)).collect();
            if apart.is_empty() { others().collect() } else { apart }
        }
    };
    if helper_cores.is_empty() || helper_cores.contains(&hot_core) {
        return Err(CpuError::NoHelpers);
    }
    Ok(Plan::Pinned { hot_core, helper_cores })
}

/// Restricts every existing thread, and by inheritance later ones, to the helper cores.
pub fn restrict_process(plan: &Plan) -> Result<(), CpuError> {
    let Plan::Pinned { helper_cores, .. } = plan else {
        return Ok(());
    };
    let mut set = CpuSet::new();
    for core in helper_cores {
        set.set(*core);
    }
    // A thread that was not restricted yet may have started another: repeat until there is no new
    // one.
    let mut restricted = BTreeSet::new();
    loop {
        let tasks = tasks().map_err(CpuError::Refused)?;
        let new: Vec<_> = tasks.into_iter().filter(|task| restricted.insert(*task)).collect();
        if new.is_empty() {
            return Ok(());
        }
        for task in new {
            let pid = i32::try_from(task).ok().and_then(Pid::from_raw);
            match sched_setaffinity(Some(pid.expect("task ids are positive")), &set) {
                // The thread has ended in the meantime.
                Ok(()) | Err(rustix::io::Errno::SRCH) => {}
                Err(error) => return Err(CpuError::Refused(error.into())),
            }
        }
    }
}

/// Pins the calling thread, the hot thread, to the hot core.
pub fn pin_this_thread(plan: &Plan) -> Result<(), CpuError> {
    let Plan::Pinned { hot_core, .. } = plan else {
        tracing::warn!("only one core is allowed: the hot thread shares it with the others");
        return Ok(());
    };
    if !core_affinity::set_for_current(core_affinity::CoreId { id: *hot_core }) {
        return Err(CpuError::Refused(io::Error::last_os_error()));
    }
    Ok(())
}

/// The calling thread's id, for [`verify`].
pub fn this_task() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()
}

/// Checks every task of the process, including io_uring's workers: only the task `hot` may run on
/// the hot core, and it may run nowhere else.
pub fn verify(plan: &Plan, hot: u32) -> Result<(), CpuError> {
    let Plan::Pinned { hot_core, .. } = plan else {
        return Ok(());
    };
    for task in tasks().map_err(CpuError::Refused)? {
        // A thread that has just ended has no status file.
        let path = format!("/proc/self/task/{task}/status");
        let Ok(status) = std::fs::read_to_string(path) else {
            continue;
        };
        let field = |name: &str| {
            status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim()
        };
        let cores = field("Cpus_allowed_list:");
        let in_place = parse_list(cores).is_some_and(|cores| match task == hot {
            true => cores == [*hot_core],
            false => !cores.contains(hot_core),
        });
        if !in_place {
            let (name, cores) = (field("Name:").to_owned(), cores.to_owned());
            return Err(CpuError::Misplaced { task, name, cores, hot_core: *hot_core });
        }
    }
    Ok(())
}

/// The ids of all tasks of this process.
fn tasks() -> io::Result<Vec<u32>> {
    let mut tasks = Vec::new();
    for entry in std::fs::read_dir("/proc/self/task")? {
        let name = entry?.file_name();
        tasks.extend(name.to_str().and_then(|name| name.parse::<u32>().ok()));
    }
    Ok(tasks)
}
