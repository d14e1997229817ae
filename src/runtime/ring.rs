//! The ring of one thread: executes the operations that its stages start, and sleeps until one of
//! them has ended.
//!
//! Where a host forbids io_uring, as most containers do, the same operations are executed by plain
//! system calls as soon as epoll reports that a socket is ready.

use crate::runtime::epoll_ring::EpollRing;
use crate::runtime::io_uring_ring::IoUringRing;
use crate::runtime::operations::Operations;
use crate::runtime::ring_error::RingError;
use std::rc::Rc;
use std::time::Duration;
/// Entries of the hot thread's submission queue: a few per connection, flushed once per turn.
pub(crate) const RING_ENTRIES: u32 = 256;

/// Submissions that a ring has room for if it is only created to see whether the kernel allows it.
const PROBE_ENTRIES: u32 = 1;

/// How a thread asks the kernel for its operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingKind {
    /// Batches of operations, by one system call.
    IoUring,
    /// A system call for each operation, when its socket is ready.
    Epoll,
}

/// Each kind by the name that the configuration has for it.
pub(crate) const RING_KINDS: [(&str, RingKind); 2] =
    [("io_uring", RingKind::IoUring), ("epoll", RingKind::Epoll)];

impl RingKind {
    /// Returns this kind, or epoll where this process may not use io_uring. `warn` is told why.
    pub(crate) fn or_epoll(self, warn: impl FnOnce(String)) -> Result<RingKind, RingError> {
        if self == RingKind::Epoll {
            return Ok(RingKind::Epoll);
        }
        match IoUringRing::new(Operations::new(), PROBE_ENTRIES) {
            Ok(_) => Ok(RingKind::IoUring),
            Err(error @ (RingError::Forbidden(_) | RingError::TooOld(_))) => {
                warn(format!("using epoll: {error}"));
                Ok(RingKind::Epoll)
            }
            Err(error) => Err(error),
        }
    }
}

/// The ring of one thread.
#[expect(clippy::large_enum_variant, reason = "there is one for each thread")]
pub enum Ring {
    /// On io_uring.
    IoUring(IoUringRing),
    /// On epoll.
    Epoll(EpollRing),
}

impl Ring {
    /// Creates a ring for the calling thread, which alone may use it. io_uring has room for
    /// `entries` submissions.
    pub fn new(
        kind: RingKind,
        operations: Rc<Operations>,
        entries: u32,
    ) -> Result<Ring, RingError> {
        Ok(match kind {
            RingKind::IoUring => Ring::IoUring(IoUringRing::new(operations, entries)?),
            RingKind::Epoll => Ring::Epoll(EpollRing::new(operations)?),
        })
    }

    /// How it asks the kernel.
    pub(crate) fn kind(&self) -> RingKind {
        match self {
            Ring::IoUring(_) => RingKind::IoUring,
            Ring::Epoll(_) => RingKind::Epoll,
        }
    }

    /// Restricts the kernel's worker threads of this ring to these cores. epoll has none.
    pub(crate) fn confine_workers(&self, cores: &[usize]) -> Result<(), RingError> {
        match self {
            Ring::IoUring(ring) => ring.confine_workers(cores),
            Ring::Epoll(_) => Ok(()),
        }
    }

    /// Number of calls that submit or wait: `io_uring_enter`, or `epoll_pwait`.
    pub fn enters(&self) -> u64 {
        match self {
            Ring::IoUring(ring) => ring.enters(),
            Ring::Epoll(ring) => ring.enters(),
        }
    }

    /// Returns whether an enter has something to do, as far as is known without a system call:
    /// requests to submit, or completions to fetch.
    pub(crate) fn has_work(&self) -> bool {
        match self {
            Ring::IoUring(ring) => ring.has_work(),
            // Only a call shows if a socket is ready, or the bell.
            Ring::Epoll(_) => true,
        }
    }

    /// Submits the requests, waits at most `wait` for a completion (`None`: does not wait), and
    /// finishes all operations that have ended.
    pub(crate) fn enter(&self, wait: Option<Duration>) -> Result<(), RingError> {
        match self {
            Ring::IoUring(ring) => ring.enter(wait),
            Ring::Epoll(ring) => ring.enter(wait),
        }
    }
}
