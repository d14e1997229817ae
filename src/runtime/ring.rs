//! io_uring: submits operations, collects completions, and owns whatever the kernel may touch.
//!
//! Least kernel: Linux 6.1 (SINGLE_ISSUER and DEFER_TASKRUN, so that completions are taken only
//! when the hot thread asks for them). Buffers go in by value and come back with the completion:
//! nobody else can reach a buffer while the kernel writes to it, and dropping a future cannot free
//! it. The ring never calls back into a stage: a completion waits in its slot until its future is
//! polled. It does no registered buffers, no multishot, no polling thread: bulk TCP is bound by the
//! copy.

#![allow(unsafe_code)]

use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode, squeue};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

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

/// A socket or eventfd that operations are done on. The number stays open while one is under way.
pub type Handle = Rc<OwnedFd>;

/// The hot thread's one ring.
pub struct Ring {
    inner: RefCell<Inner>,
    enters: Cell<u64>,
}

struct Inner {
    uring: IoUring,
    slots: Vec<Slot>,
    free: Vec<u32>,
}

/// An operation under way, or its result that nobody has asked for yet.
struct Slot {
    /// Tells this operation from earlier ones in the same slot.
    generation: u32,
    state: SlotState,
    payload: Payload,
    /// Kept open until the completion, so that the number cannot name another file.
    handle: Option<Handle>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SlotState {
    Free,
    Busy,
    /// The future was dropped; the payload waits for the kernel to let go.
    Abandoned,
    Done(i32),
}

/// What the kernel reads or writes during an operation.
enum Payload {
    None,
    Bytes(Vec<u8>),
    Address(#[expect(dead_code, reason = "the kernel reads it")] Box<SocketAddress>),
}

/// A socket address as the kernel reads it.
union SocketAddress {
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

/// The user data of operations that nobody waits for.
const UNATTENDED: u64 = u64::MAX;

/// What a bell's eventfd is told: one more.
static ONE: u64 = 1;

impl Ring {
    /// A ring for the calling thread, which alone may use it, with room for `entries` submissions.
    pub fn new(entries: u32) -> Result<Rc<Ring>, RingError> {
        let uring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_submit_all()
            .build(entries)?;
        if !uring.params().is_feature_ext_arg() || !uring.params().is_feature_nodrop() {
            return Err(RingError::TooOld(io::Error::from_raw_os_error(libc::EINVAL)));
        }
        let inner = Inner { uring, slots: Vec::new(), free: Vec::with_capacity(entries as usize) };
        Ok(Rc::new(Ring { inner: RefCell::new(inner), enters: Cell::new(0) }))
    }

    /// Keeps the kernel's worker threads of this ring on these cores.
    pub fn confine_workers(&self, cores: &[usize]) -> Result<(), RingError> {
        // SAFETY: an all-zero cpu_set_t is the empty set.
        let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        for core in cores {
            assert!(*core < libc::CPU_SETSIZE as usize);
            // SAFETY: the core number is within the set, as checked above.
            unsafe { libc::CPU_SET(*core, &mut set) };
        }
        Ok(self.inner.borrow().uring.submitter().register_iowq_aff(&set)?)
    }

    /// `io_uring_enter` calls so far.
    pub fn enters(&self) -> u64 {
        self.enters.get()
    }

    /// Connects a socket.
    pub fn connect(self: &Rc<Ring>, socket: &Handle, address: SocketAddr) -> Operation {
        let (address, length) = SocketAddress::new(address);
        let address = Box::new(address);
        let pointer: *const SocketAddress = &*address;
        let entry = opcode::Connect::new(Fd(socket.as_raw_fd()), pointer.cast(), length).build();
        self.start(entry, Payload::Address(address), Some(socket.clone()))
    }

    /// Receives into `buffer[from..]`; the result is the number of bytes, 0 at the end of stream.
    pub fn receive(
        self: &Rc<Ring>,
        socket: &Handle,
        mut buffer: Vec<u8>,
        from: usize,
    ) -> Operation {
        let room = &mut buffer[from..];
        let length = u32::try_from(room.len()).unwrap_or(u32::MAX);
        let entry = opcode::Recv::new(Fd(socket.as_raw_fd()), room.as_mut_ptr(), length).build();
        self.start(entry, Payload::Bytes(buffer), Some(socket.clone()))
    }

    /// Receives until `range` of the buffer is filled; less only at the end of stream or an error.
    pub fn receive_all(
        self: &Rc<Ring>,
        socket: &Handle,
        mut buffer: Vec<u8>,
        range: Range<usize>,
    ) -> Operation {
        let room = &mut buffer[range];
        let length = u32::try_from(room.len()).unwrap_or(u32::MAX);
        let entry = opcode::Recv::new(Fd(socket.as_raw_fd()), room.as_mut_ptr(), length)
            .flags(libc::MSG_WAITALL)
            .build();
        self.start(entry, Payload::Bytes(buffer), Some(socket.clone()))
    }

    /// Sends `buffer[from..]`; the result is the number of bytes that were taken.
    pub fn send(self: &Rc<Ring>, socket: &Handle, buffer: Vec<u8>, from: usize) -> Operation {
        let rest = &buffer[from..];
        let length = u32::try_from(rest.len()).unwrap_or(u32::MAX);
        let entry = opcode::Send::new(Fd(socket.as_raw_fd()), rest.as_ptr(), length)
            .flags(libc::MSG_NOSIGNAL)
            .build();
        self.start(entry, Payload::Bytes(buffer), Some(socket.clone()))
    }

    /// Reads an eventfd into `buffer`, 8 bytes, which resets it; the result is 8.
    pub fn read_bell(self: &Rc<Ring>, bell: &Handle, mut buffer: Vec<u8>) -> Operation {
        assert!(buffer.len() == size_of::<u64>());
        let entry =
            opcode::Read::new(Fd(bell.as_raw_fd()), buffer.as_mut_ptr(), buffer.len() as u32)
                .build();
        self.start(entry, Payload::Bytes(buffer), Some(bell.clone()))
    }

    /// Rings another thread's eventfd with the next enter. Nobody waits for the result: an eventfd
    /// write fails only at a count of 2^64 - 1. The eventfd must be non-blocking, or the kernel
    /// would leave the write to a worker thread, and it must outlive the ring.
    pub fn ring_bell(&self, bell: &Handle) {
        let one: *const u64 = &raw const ONE;
        let entry =
            opcode::Write::new(Fd(bell.as_raw_fd()), one.cast(), size_of::<u64>() as u32).build();
        // SAFETY: the kernel reads 8 bytes of a static that is never written.
        unsafe { self.inner.borrow_mut().push(&entry.user_data(UNATTENDED), &self.enters) };
    }

    fn start(
        self: &Rc<Ring>,
        entry: squeue::Entry,
        payload: Payload,
        handle: Option<Handle>,
    ) -> Operation {
        let mut inner = self.inner.borrow_mut();
        let slot = inner.take_slot(payload, handle);
        let generation = inner.slots[slot as usize].generation;
        let entry = entry.user_data(u64::from(generation) << 32 | u64::from(slot));
        // SAFETY: what the entry points to is owned by the slot, on the heap, and the slot keeps it
        // until the completion has arrived, whatever becomes of the future.
        unsafe { inner.push(&entry, &self.enters) };
        drop(inner);
        Operation { ring: self.clone(), slot, finished: false }
    }

    /// Whether an enter has something to do: entries to submit, or completions to fetch.
    pub fn has_work(&self) -> bool {
        let mut inner = self.inner.borrow_mut();
        let submission = inner.uring.submission();
        !submission.is_empty() || submission.taskrun() || submission.cq_overflow()
    }

    /// Submits what was started, waits at most `wait` for a completion (`None`: not at all), and
    /// stores all results that are there.
    pub fn enter(&self, wait: Option<Duration>) -> Result<(), RingError> {
        let mut inner = self.inner.borrow_mut();
        self.enters.set(self.enters.get() + 1);
        let timeout = Timespec::from(wait.unwrap_or_default());
        let arguments = SubmitArgs::new().timespec(&timeout);
        let want = usize::from(wait.is_some());
        match inner.uring.submitter().submit_with_args(want, &arguments) {
            Ok(_) => {}
            Err(error) if passes(&error) => {}
            Err(error) => return Err(RingError::Unexpected(error)),
        }
        inner.collect();
        Ok(())
    }
}

/// ETIME: the wait is over. EINTR: a signal. EBUSY and EAGAIN: completions have to be taken first.
fn passes(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN))
}

impl Inner {
    fn take_slot(&mut self, payload: Payload, handle: Option<Handle>) -> u32 {
        let index = self.free.pop().unwrap_or_else(|| {
            let state = SlotState::Free;
            self.slots.push(Slot { generation: 0, state, payload: Payload::None, handle: None });
            u32::try_from(self.slots.len() - 1).expect("operations are few")
        });
        let slot = &mut self.slots[index as usize];
        assert!(slot.state == SlotState::Free);
        slot.generation = slot.generation.wrapping_add(1) & 0x7fff_ffff;
        slot.state = SlotState::Busy;
        slot.payload = payload;
        slot.handle = handle;
        index
    }

    /// Puts an entry into the submission queue, making room if it is full.
    ///
    /// # Safety
    /// What the entry points to must stay valid, and untouched by others, until its completion.
    unsafe fn push(&mut self, entry: &squeue::Entry, enters: &Cell<u64>) {
        // SAFETY: the caller's promise is the one that is asked for here.
        while unsafe { self.uring.submission().push(entry) }.is_err() {
            enters.set(enters.get() + 1);
            match self.uring.submit() {
                Ok(_) => {}
                Err(error) if passes(&error) => {}
                Err(error) => panic!("a full submission queue can be submitted: {error}"),
            }
            self.collect();
        }
    }

    fn collect(&mut self) {
        let Inner { uring, slots, free } = self;
        for completion in uring.completion() {
            if completion.user_data() == UNATTENDED {
                continue;
            }
            let index = completion.user_data() as u32;
            let slot = &mut slots[index as usize];
            assert!(slot.generation == (completion.user_data() >> 32) as u32);
            slot.handle = None;
            match slot.state {
                SlotState::Busy => slot.state = SlotState::Done(completion.result()),
                SlotState::Abandoned => {
                    slot.payload = Payload::None;
                    slot.state = SlotState::Free;
                    free.push(index);
                }
                SlotState::Free | SlotState::Done(_) => unreachable!("one completion each"),
            }
        }
    }
}

/// One operation under way. Dropped early, it is cancelled.
///
/// No waker is kept: the driver polls its root future after each enter, and that polls its stages.
pub struct Operation {
    ring: Rc<Ring>,
    slot: u32,
    finished: bool,
}

/// An operation's end.
pub struct Completed {
    /// What the kernel answered: a count, or an error.
    pub result: io::Result<usize>,
    /// The buffer that was given with the operation; empty where none was.
    pub buffer: Vec<u8>,
}

impl Future for Operation {
    type Output = Completed;

    fn poll(mut self: Pin<&mut Operation>, _context: &mut Context<'_>) -> Poll<Completed> {
        assert!(!self.finished);
        let ring = self.ring.clone();
        let mut inner = ring.inner.borrow_mut();
        let slot = &mut inner.slots[self.slot as usize];
        let SlotState::Done(result) = slot.state else { return Poll::Pending };
        slot.state = SlotState::Free;
        let buffer = match std::mem::replace(&mut slot.payload, Payload::None) {
            Payload::Bytes(buffer) => buffer,
            Payload::None | Payload::Address(_) => Vec::new(),
        };
        inner.free.push(self.slot);
        drop(inner);
        self.finished = true;
        let result = usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result));
        Poll::Ready(Completed { result, buffer })
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        let mut inner = self.ring.inner.borrow_mut();
        let slot = &mut inner.slots[self.slot as usize];
        if let SlotState::Done(_) = slot.state {
            slot.state = SlotState::Free;
            slot.payload = Payload::None;
            inner.free.push(self.slot);
            return;
        }
        slot.state = SlotState::Abandoned;
        let target = u64::from(slot.generation) << 32 | u64::from(self.slot);
        let entry = opcode::AsyncCancel::new(target).build().user_data(UNATTENDED);
        // SAFETY: a cancel entry points to nothing.
        unsafe { inner.push(&entry, &self.ring.enters) };
    }
}

impl SocketAddress {
    fn new(address: SocketAddr) -> (SocketAddress, libc::socklen_t) {
        match address {
            SocketAddr::V4(v4) => {
                let v4 = libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: v4.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from(*v4.ip()).to_be() },
                    sin_zero: [0; 8],
                };
                (SocketAddress { v4 }, size_of::<libc::sockaddr_in>() as libc::socklen_t)
            }
            SocketAddr::V6(v6) => {
                let v6 = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: v6.port().to_be(),
                    sin6_flowinfo: v6.flowinfo(),
                    sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                    sin6_scope_id: v6.scope_id(),
                };
                (SocketAddress { v6 }, size_of::<libc::sockaddr_in6>() as libc::socklen_t)
            }
        }
    }
}
