//! io_uring: submits operations, collects completions, and owns whatever the kernel may touch.
//!
//! Least kernel: Linux 6.1 (SINGLE_ISSUER and DEFER_TASKRUN, so that completions are taken only
//! when the hot thread asks for them). The ring takes each operation's buffer and handle along and
//! keeps them until the kernel lets go: nobody else can reach a buffer while the kernel writes to
//! it, and dropping a future cannot free it. It does no registered buffers, no multishot, no
//! polling thread: bulk TCP is bound by the copy.

#![allow(unsafe_code)]

use crate::runtime::operations::{Completed, Handle, Operations, Request, Task, Token};
use io_uring::register::Restriction;
use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode, squeue};
use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::AsRawFd;
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
    /// The kernel refuses a filter of system calls.
    #[error(
        "the hot thread cannot forbid itself what it does not need: allow seccomp in the filter of \
         the container or unit: {0}"
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

/// A thread's one ring.
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
    /// What the kernel reads or writes.
    buffer: Vec<u8>,
    /// Kept open until the completion, so that the number cannot name another file.
    _handle: Handle,
}

/// The user data of operations that nobody waits for.
const UNATTENDED: u64 = u64::MAX;

/// All operations that the ring takes. The kernel refuses any other one.
const OPCODES: [u8; 6] = [
    opcode::Recv::CODE,
    opcode::Send::CODE,
    opcode::PollAdd::CODE,
    opcode::Read::CODE,
    opcode::Write::CODE,
    opcode::AsyncCancel::CODE,
];

/// All flags that they may have.
const FLAGS: squeue::Flags = squeue::Flags::SKIP_SUCCESS.union(squeue::Flags::IO_LINK);

/// `IORING_REGISTER_IOWQ_AFF`, the one registration that a ring in use takes.
const REGISTER_IOWQ_AFF: u8 = 17;

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
            .setup_r_disabled()
            .build(entries)?;
        if !uring.params().is_feature_ext_arg() || !uring.params().is_feature_nodrop() {
            return Err(RingError::TooOld(io::Error::from_raw_os_error(libc::EINVAL)));
        }
        restrict(&uring)?;
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
            Request::Start(token, task) => {
                let before = entry_before(&task);
                let (entry, buffer, handle) = entry_of(task);
                inner.carry(Carried { token, buffer, _handle: handle });
                let entry = entry.user_data(token.to_bits());
                let (pair, alone);
                let entries: &[squeue::Entry] = match before {
                    Some(before) => {
                        pair = [before, entry];
                        &pair
                    }
                    None => {
                        alone = [entry];
                        &alone
                    }
                };
                // SAFETY: what the entry points to is on the heap, and was just put where it stays
                // until the completion has arrived, whatever becomes of the future. The entry
                // before it points to nothing.
                unsafe { self.push(inner, entries) };
            }
            Request::Cancel(token) => {
                let entry = opcode::AsyncCancel::new(token.to_bits()).build();
                // SAFETY: a cancel entry points to nothing.
                unsafe { self.push(inner, &[entry.user_data(UNATTENDED)]) };
            }
            Request::RingBell(bell) => {
                let one: *const u64 = &raw const ONE;
                let length = size_of::<u64>() as u32;
                let entry = opcode::Write::new(Fd(bell.as_raw_fd()), one.cast(), length).build();
                // A completion that nobody waits for would end the sleep that it is submitted with.
                let entry = entry.flags(squeue::Flags::SKIP_SUCCESS);
                // SAFETY: the kernel reads 8 bytes of a static that is never written.
                unsafe { self.push(inner, &[entry.user_data(UNATTENDED)]) };
            }
        }
    }

    /// Puts entries that belong together into the submission queue, making room if it is full.
    ///
    /// # Safety
    /// What the entries point to must stay valid, and untouched by others, until their completion.
    unsafe fn push(&self, inner: &mut Inner, entries: &[squeue::Entry]) {
        // SAFETY: the caller's promise is the one that is asked for here.
        while unsafe { inner.uring.submission().push_multiple(entries) }.is_err() {
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
            *ended += 1;
            self.operations.finish(token, Completed::new(result, carried.buffer));
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // The kernel ends what is under way after the ring is gone: until then it may write there.
        std::mem::forget(std::mem::take(&mut self.inner.get_mut().carried));
    }
}

/// Enables the ring, for these operations alone.
fn restrict(uring: &IoUring) -> Result<(), RingError> {
    let mut restrictions: Vec<_> = OPCODES.into_iter().map(Restriction::sqe_op).collect();
    restrictions.push(Restriction::sqe_flags_allowed(FLAGS.bits()));
    restrictions.push(Restriction::register_op(REGISTER_IOWQ_AFF));
    uring.submitter().register_restrictions(&mut restrictions)?;
    Ok(uring.submitter().register_enable_rings()?)
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

/// What has to end before a task: a bell is non-blocking, so that a ring can write to it at once,
/// and would be read at once too.
fn entry_before(task: &Task) -> Option<squeue::Entry> {
    let Task::ReadBell { bell, .. } = task else { return None };
    let entry = opcode::PollAdd::new(Fd(bell.as_raw_fd()), libc::POLLIN as u32).build();
    Some(entry.flags(FLAGS).user_data(UNATTENDED))
}

/// What tells the kernel to do a task, with what it points to.
fn entry_of(task: Task) -> (squeue::Entry, Vec<u8>, Handle) {
    let length = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
    match task {
        Task::Receive { socket, mut buffer, from } => {
            let room = &mut buffer[from..];
            let fd = Fd(socket.as_raw_fd());
            let entry = opcode::Recv::new(fd, room.as_mut_ptr(), length(room.len())).build();
            (entry, buffer, socket)
        }
        Task::ReceiveAll { socket, mut buffer, range } => {
            let room = &mut buffer[range];
            let fd = Fd(socket.as_raw_fd());
            let entry = opcode::Recv::new(fd, room.as_mut_ptr(), length(room.len()))
                .flags(libc::MSG_WAITALL)
                .build();
            (entry, buffer, socket)
        }
        Task::Send { socket, buffer, from } => {
            let rest = &buffer[from..];
            let fd = Fd(socket.as_raw_fd());
            let entry = opcode::Send::new(fd, rest.as_ptr(), length(rest.len()))
                .flags(libc::MSG_NOSIGNAL)
                .build();
            (entry, buffer, socket)
        }
        Task::ReadBell { bell, mut buffer } => {
            let (fd, length) = (Fd(bell.as_raw_fd()), length(buffer.len()));
            let entry = opcode::Read::new(fd, buffer.as_mut_ptr(), length).build();
            (entry, buffer, bell)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Operations, Ring};
    use io_uring::{opcode, squeue};

    /// What the kernel answers to an entry.
    fn answer(entry: squeue::Entry) -> i32 {
        let ring = Ring::new(Operations::new(), 8).expect("this kernel has io_uring");
        let mut inner = ring.inner.borrow_mut();
        // SAFETY: the entries of these tests point to nothing.
        unsafe { inner.uring.submission().push(&entry).expect("there is room") };
        inner.uring.submit_and_wait(1).expect("the ring takes entries");
        inner.uring.completion().next().expect("it waited for one").result()
    }

    #[test]
    fn operations_that_the_hot_thread_has_no_use_for_are_refused() {
        let cancel = opcode::AsyncCancel::new(1).build();
        assert_eq!(answer(cancel.clone()), -libc::ENOENT, "it is done: there is no such operation");
        assert_eq!(answer(opcode::Nop::new().build()), -libc::EACCES);
        let socket = opcode::Socket::new(libc::AF_INET, libc::SOCK_STREAM, 0).build();
        assert_eq!(answer(socket), -libc::EACCES);
        let flags = squeue::Flags::ASYNC;
        assert_eq!(answer(cancel.flags(flags)), -libc::EACCES, "a flag that is not used");
    }
}
