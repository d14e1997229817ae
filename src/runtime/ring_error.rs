//! Why a thread has no ring.

use rustix::io::Errno;
use std::io;

/// Why there is no ring. Each sentence says what an operator can do.
#[derive(Debug, thiserror::Error)]
pub enum RingError {
    /// The kernel refuses io_uring to this process.
    #[error(
        "io_uring is forbidden here: set sysctl kernel.io_uring_disabled to 0, or allow \
         io_uring_setup in the seccomp filter of the container or unit; or set runtime.ring to \
         \"epoll\""
    )]
    Forbidden(#[source] io::Error),
    /// The kernel has no io_uring, or lacks a required feature.
    #[error(
        "this kernel's io_uring is too old: use Linux 6.1 or newer, or set runtime.ring to \
         \"epoll\""
    )]
    TooOld(#[source] io::Error),
    /// Locked memory ran out.
    #[error("no memory for the io_uring: raise LimitMEMLOCK (ulimit -l) for huntd")]
    NoMemory(#[source] io::Error),
    /// The process has reached its limit of open files.
    #[error("no file descriptor is left for a ring: raise LimitNOFILE (ulimit -n) for huntd")]
    NoDescriptors(#[source] io::Error),
    /// The kernel refuses the seccomp filter.
    #[error(
        "a thread cannot restrict its system calls: allow seccomp in the filter of the \
         container or unit: {0}"
    )]
    Unconfined(#[source] io::Error),
    /// Any other error from the kernel.
    #[error("io_uring failed: {0}; this is not expected on any supported kernel, please report it")]
    Unexpected(#[source] io::Error),
    /// Epoll watches as many sockets as it may.
    #[error("no more sockets can be watched: raise sysctl fs.epoll.max_user_watches")]
    NoWatches(#[source] io::Error),
    /// Any other error of epoll.
    #[error("epoll failed: {0}; this is not expected on any supported kernel, please report it")]
    Epoll(#[source] io::Error),
}

impl RingError {
    /// Classifies an error of epoll.
    pub(super) fn of_epoll(error: Errno) -> RingError {
        match error {
            Errno::MFILE | Errno::NFILE => RingError::NoDescriptors(error.into()),
            Errno::NOSPC => RingError::NoWatches(error.into()),
            _ => RingError::Epoll(error.into()),
        }
    }
}

impl From<io::Error> for RingError {
    fn from(error: io::Error) -> RingError {
        match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES | libc::ENOSYS) => RingError::Forbidden(error),
            Some(libc::EINVAL) => RingError::TooOld(error),
            Some(libc::ENOMEM) => RingError::NoMemory(error),
            Some(libc::EMFILE | libc::ENFILE) => RingError::NoDescriptors(error),
            _ => RingError::Unexpected(error),
        }
    }
}
