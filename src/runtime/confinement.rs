//! A seccomp filter that limits the system calls of a thread with untrusted input.
//!
//! The hot thread reads records and answers of brokers, and gets its sockets from the dialler. The
//! serving thread reads requests, and gets its sockets from its ring. Neither needs files,
//! connections or processes. A call that is not listed fails with EPERM, and the thread continues.

use crate::runtime::ring::RingKind;
use crate::runtime::ring_error::RingError;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};
use std::collections::BTreeMap;
use std::io;

/// Calls that both threads need.
const CALLS: [i64; 24] = [
    // The ring, and closing handles.
    libc::SYS_io_uring_enter,
    libc::SYS_close,
    // Memory.
    libc::SYS_brk,
    libc::SYS_madvise,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munmap,
    // Time, where the kernel has no vDSO clock.
    libc::SYS_clock_gettime,
    libc::SYS_gettimeofday,
    // Locks and hash keys.
    libc::SYS_futex,
    libc::SYS_getrandom,
    libc::SYS_sched_yield,
    // Bells and panic messages; signal handlers.
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    // Ending the thread or the process.
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_sigaltstack,
    libc::SYS_tgkill,
    libc::SYS_restart_syscall,
];

/// Calls that only the serving thread needs.
const SERVING_CALLS: [i64; 5] = [
    // Ending the stream to a client.
    libc::SYS_shutdown,
    // The signal pipe, which async-io watches, and librdkafka's wake-ups.
    libc::SYS_epoll_ctl,
    libc::SYS_read,
    libc::SYS_recvfrom,
    // A client of librdkafka waits for its threads when it ends.
    libc::SYS_clock_nanosleep,
];

/// Calls that a thread needs to use epoll in place of io_uring. rustix waits by `epoll_pwait2` if a
/// crate enables its feature `linux_5_11`.
const EPOLL_CALLS: [i64; 6] = [
    libc::SYS_accept4,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_read,
    libc::SYS_recvfrom,
];

/// Which thread's calls are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confinement {
    /// The hot thread's.
    Hot,
    /// The serving thread's.
    Serving,
}

/// Irrevocably forbids the calling thread every system call that neither a thread of its kind nor
/// its ring needs.
pub fn confine_this_thread(confinement: Confinement, ring: RingKind) -> Result<(), RingError> {
    let no_rules = |call: i64| (call, Vec::new());
    let more: &[i64] = match confinement {
        Confinement::Hot => &[],
        Confinement::Serving => &SERVING_CALLS,
    };
    let epoll: &[i64] = match ring {
        RingKind::IoUring => &[],
        RingKind::Epoll => &EPOLL_CALLS,
    };
    let calls = CALLS.into_iter().chain(more.iter().chain(epoll).copied());
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = calls.map(no_rules).collect();
    // A signal handler writes to its pipe, a socket pair, without an address.
    rules.insert(libc::SYS_sendto, vec![argument(4, 0)]);
    // Debug builds check that a handle is open before they close it.
    rules.insert(libc::SYS_fcntl, vec![argument(1, libc::F_GETFD as u64)]);
    // The allocator names its memory.
    rules.insert(libc::SYS_prctl, vec![argument(0, libc::PR_SET_VMA as u64)]);
    let (otherwise, listed) = (SeccompAction::Errno(libc::EPERM as u32), SeccompAction::Allow);
    let arch = TargetArch::try_from(std::env::consts::ARCH).expect("seccomp knows this processor");
    let filter = SeccompFilter::new(rules, otherwise, listed, arch).expect("the rules are whole");
    let program = BpfProgram::try_from(filter).expect("the rules fit into a filter");
    seccompiler::apply_filter(&program).map_err(|error| match error {
        seccompiler::Error::Prctl(error) | seccompiler::Error::Seccomp(error) => {
            RingError::Unconfined(error)
        }
        error => RingError::Unconfined(io::Error::other(error)),
    })
}

/// A rule that an argument must have this value.
fn argument(index: u8, value: u64) -> SeccompRule {
    let is_value = SeccompCondition::new(index, SeccompCmpArgLen::Qword, SeccompCmpOp::Eq, value);
    SeccompRule::new(vec![is_value.expect("a call has six arguments")]).expect("one condition")
}
