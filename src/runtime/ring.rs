//! io_uring: submits operations, collects completions, and owns whatever the kernel may touch.
//!
//! Least kernel: Linux 6.1 (SINGLE_ISSUER and DEFER_TASKRUN, so that completions are taken only
//! when the hot thread asks for them). The ring takes each operation's buffer and handle along and
//! keeps them until the kernel lets go: nobody else can reach a buffer while the kernel writes to
//! it, and dropping a future cannot free it. It does no registered buffers, no multishot, no
//! polling thread: bulk TCP is bound by the copy.

#![allow(unsafe_code)]

use crate::runtime::operations::{Completed, Handle, Operations, Request, Task, Token};
use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode, squeue};
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, sockopt};
use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

/// Entries of the hot thread's submission queue: a few per connection, flushed once a turn.
pub(crate) const RING_ENTRIES: u32 = 256;

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

/// The hot thread's one ring.
pub struct Ring {
    operations: Rc<Operations>,
    inner: RefCell<Inner>,
    enters: Cell<u64>,
}

struct Inner {
    uring: IoUring,
    /// What the kernel has, by the operation's slot.
    carried: Vec<Option<Carried>>,
    /// Operations that have ended and are not reported yet.
    ended: usize,
}

/// An operation that the kernel has.
struct Carried {
    token: Token,
    payload: Payload,
    /// Kept open until the completion, so that the number cannot name another file.
    handle: Handle,
}

/// What the kernel reads or writes during an operation.
enum Payload {
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

/// What is written to a bell's eventfd.
static ONE: u64 = 1;

impl Ring {
    /// A ring for the calling thread, which alone may use it, with room for `entries` submissions.
    pub fn new(operations: Rc<Operations>, entries: u32) -> Result<Ring, RingError> {
        let uring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_submit_all()
            .build(entries)?;
        if !uring.params().is_feature_ext_arg() || !uring.params().is_feature_nodrop() {
            return Err(RingError::TooOld(io::Error::from_raw_os_error(libc::EINVAL)));
        }
        let inner = Inner { uring, carried: Vec::with_capacity(entries as usize), ended: 0 };
        Ok(Ring { operations, inner: RefCell::new(inner), enters: Cell::new(0) })
    }

    /// Keeps the kernel's worker threads of this ring on these cores.
    pub(crate) fn confine_workers(&self, cores: &[usize]) -> Result<(), RingError> {
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

    /// Whether an enter has something to do: orders to carry out, or completions to fetch.
    pub(crate) fn has_work(&self) -> bool {
        let mut inner = self.inner.borrow_mut();
        let submission = inner.uring.submission();
        self.operations.has_orders() || submission.taskrun() || submission.cq_overflow()
    }

    /// Submits what was ordered, waits at most `wait` for a completion (`None`: not at all), and
    /// finishes all operations that have ended.
    pub(crate) fn enter(&self, wait: Option<Duration>) -> Result<(), RingError> {
        let mut inner = self.inner.borrow_mut();
        while let Some(order) = self.operations.take_order() {
            self.carry_out(&mut inner, order);
        }
        self.enters.set(self.enters.get() + 1);
        let timeout = Timespec::from(wait.unwrap_or_default());
        let arguments = SubmitArgs::new().timespec(&timeout);
        // What ended while the orders were carried out has to be seen before anybody waits.
        let want = usize::from(wait.is_some() && inner.ended == 0);
        match inner.uring.submitter().submit_with_args(want, &arguments) {
            Ok(_) => {}
            Err(error) if passes(&error) => {}
            Err(error) => return Err(RingError::Unexpected(error)),
        }
        self.collect(&mut inner);
        inner.ended = 0;
        Ok(())
    }

    fn carry_out(&self, inner: &mut Inner, order: Request) {
        match order {
            Request::Start(token, task) => match entry_of(task) {
                Ok((entry, payload, handle)) => {
                    inner.carry(Carried { token, payload, handle });
                    // SAFETY: what the entry points to is on the heap, and was just put where it
                    // stays until the completion has arrived, whatever becomes of the future.
                    unsafe { self.push(inner, &entry.user_data(token.to_bits())) };
                }
                Err(error) => {
                    inner.ended += 1;
                    self.operations.finish(token, Completed::new(Err(error), Vec::new()));
                }
            },
            Request::Cancel(token) => {
                let entry = opcode::AsyncCancel::new(token.to_bits()).build();
                // SAFETY: a cancel entry points to nothing.
                unsafe { self.push(inner, &entry.user_data(UNATTENDED)) };
            }
            Request::RingBell(bell) => {
                let one: *const u64 = &raw const ONE;
                let length = size_of::<u64>() as u32;
                let entry = opcode::Write::new(Fd(bell.as_raw_fd()), one.cast(), length).build();
                // A completion that nobody waits for would end the sleep that it is submitted with.
                let entry = entry.flags(squeue::Flags::SKIP_SUCCESS);
                // SAFETY: the kernel reads 8 bytes of a static that is never written.
                unsafe { self.push(inner, &entry.user_data(UNATTENDED)) };
            }
        }
    }

    /// Puts an entry into the submission queue, making room if it is full.
    ///
    /// # Safety
    /// What the entry points to must stay valid, and untouched by others, until its completion.
    unsafe fn push(&self, inner: &mut Inner, entry: &squeue::Entry) {
        // SAFETY: the caller's promise is the one that is asked for here.
        while unsafe { inner.uring.submission().push(entry) }.is_err() {
            self.enters.set(self.enters.get() + 1);
            match inner.uring.submit() {
                Ok(_) => {}
                Err(error) if passes(&error) => {}
                Err(error) => panic!("a full submission queue can be submitted: {error}"),
            }
            self.collect(inner);
        }
    }

    fn collect(&self, inner: &mut Inner) {
        let Inner { uring, carried, ended } = inner;
        for completion in uring.completion() {
            if completion.user_data() == UNATTENDED {
                continue;
            }
            let token = Token::from_bits(completion.user_data());
            let carried = carried[token.slot as usize].take().expect("one completion each");
            assert!(carried.token == token);
            let result = usize::try_from(completion.result())
                .map_err(|_| io::Error::from_raw_os_error(-completion.result()));
            let completed = match carried.payload {
                Payload::Bytes(buffer) => Completed::new(result, buffer),
                Payload::Address(_) => {
                    let socket = Some(carried.handle);
                    Completed { result, buffer: Vec::new(), socket }
                }
            };
            *ended += 1;
            self.operations.finish(token, completed);
        }
    }
}

/// ETIME: the wait is over. EINTR: a signal. EBUSY and EAGAIN: completions have to be taken first.
fn passes(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN))
}

impl Inner {
    fn carry(&mut self, carried: Carried) {
        let index = carried.token.slot as usize;
        if index >= self.carried.len() {
            self.carried.resize_with(index + 1, || None);
        }
        assert!(self.carried[index].is_none());
        self.carried[index] = Some(carried);
    }
}

/// The submission entry of a task, with what it points to. An error: there is no socket.
fn entry_of(task: Task) -> io::Result<(squeue::Entry, Payload, Handle)> {
    let length = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
    Ok(match task {
        Task::Connect(address) => {
            let socket = Rc::new(socket_for(address)?);
            let (address, length) = SocketAddress::new(address);
            let address = Box::new(address);
            let pointer: *const SocketAddress = &*address;
            let fd = Fd(socket.as_raw_fd());
            let entry = opcode::Connect::new(fd, pointer.cast(), length).build();
            (entry, Payload::Address(address), socket)
        }
        Task::Receive { socket, mut buffer, from } => {
            let room = &mut buffer[from..];
            let fd = Fd(socket.as_raw_fd());
            let entry = opcode::Recv::new(fd, room.as_mut_ptr(), length(room.len())).build();
            (entry, Payload::Bytes(buffer), socket)
        }
        Task::ReceiveAll { socket, mut buffer, range } => {
            let room = &mut buffer[range];
            let fd = Fd(socket.as_raw_fd());
            let entry = opcode::Recv::new(fd, room.as_mut_ptr(), length(room.len()))
                .flags(libc::MSG_WAITALL)
                .build();
            (entry, Payload::Bytes(buffer), socket)
        }
        Task::Send { socket, buffer, from } => {
            let rest = &buffer[from..];
            let fd = Fd(socket.as_raw_fd());
            let entry = opcode::Send::new(fd, rest.as_ptr(), length(rest.len()))
                .flags(libc::MSG_NOSIGNAL)
                .build();
            (entry, Payload::Bytes(buffer), socket)
        }
        Task::ReadBell { bell, mut buffer } => {
            let (fd, length) = (Fd(bell.as_raw_fd()), length(buffer.len()));
            let entry = opcode::Read::new(fd, buffer.as_mut_ptr(), length).build();
            (entry, Payload::Bytes(buffer), bell)
        }
    })
}

fn socket_for(address: SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    // A request is one small write: waiting to fill a segment would only delay it.
    sockopt::set_tcp_nodelay(&socket, true)?;
    Ok(socket)
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
