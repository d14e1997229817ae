//! The runtime of a thread with a ring: turns, operations, the ring, its core, its confinement, the
//! allocator. Also the sockets of the serving thread, which have a ring of their own.

pub mod turns;
pub mod operations;
pub mod ring_loop;
pub mod ring;
pub mod io_uring_ring;
pub mod epoll_ring;
pub mod ring_error;
pub(crate) mod socket_ring;
pub(crate) mod io_uring_sockets;
pub(crate) mod epoll_sockets;
pub(crate) mod sockets;
pub mod confinement;
pub mod allocator;
pub mod cpu;
pub(crate) mod prefetch;
pub(crate) mod end;
pub mod regular_file;
pub mod resources;
pub(crate) mod wall_clock;

use crate::runtime::ring::RingKind;

/// Validated options of the runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeOptions {
    /// The core for the hot thread; `None` lets the daemon choose.
    pub hot_core: Option<usize>,
    /// The cores for all other threads; `None` lets the daemon choose.
    pub helper_cores: Option<Vec<usize>>,
    /// How threads ask the kernel for their operations.
    pub ring: RingKind,
}
