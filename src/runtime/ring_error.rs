//! Why there is no io_uring, or none any more.

use std::io;

/// Why there is no ring. Each says what an operator can do.
#[derive(Debug, thiserror::Error)]
pub enum RingError {
    /// The kernel refuses io_uring to this process.
    #[error(
        "io_uring is forbidden here: set sysctl kernel.io_uring_disabled to 0, or allow \
         io_uring_setup in the seccomp filter of the container or unit"
    )]
    Forbidden(#[source] io::Error),
    /// The kernel has no io_uring, or lacks what the ring is built on.
    #[error("this kernel's io_uring is too old: huntd needs Linux 6.1 or newer")]
    TooOld(#[source] io::Error),
    /// Locked memory ran out.
    #[error("no memory for the io_uring: raise LimitMEMLOCK (ulimit -l) for huntd")]
    NoMemory(#[source] io::Error),
    /// The process may open no more files.
    #[error("no file descriptor is left for the io_uring: raise LimitNOFILE (ulimit -n) for huntd")]
    NoDescriptors(#[source] io::Error),
    /// The kernel refuses a filter of system calls.
    #[error(
        "a thread cannot forbid itself what it does not need: allow seccomp in the filter of the \
         container or unit: {0}"
    )]
    Unconfined(#[source] io::Error),
    /// Anything else that the kernel answered.
    #[error("io_uring failed: {0}; this is not expected on any supported kernel, please report it")]
    Unexpected(#[source] io::Error),
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
