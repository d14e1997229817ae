//! io_uring: submits operations, collects completions, and owns all memory that the kernel may
//! touch.
//!
//! The oldest supported kernel is Linux 6.1, because of SINGLE_ISSUER and DEFER_TASKRUN, with which
//! completions arrive only when the thread asks for them. The ring takes ownership of each
//! operation's buffer and handle until the kernel is done: no other code can reach a buffer while
//! the kernel writes to it, and dropping a future cannot free it. It uses no registered buffers, no
//! multishot operations and no polling thread: bulk TCP is limited by copying.

#![allow(unsafe_code)]

use crate::runtime::operations::{Completed, Handle, Operations, Request, Task, UserData};
use crate::runtime::ring_error::RingError;
use io_uring::register::Restriction;
use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode, squeue};
use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::rc::Rc;
use std::time::Duration;

/// A ring on io_uring.
pub struct IoUringRing {
    operations: Rc<Operations>,
    inner: RefCell<RingState>,
    enters: Cell<u64>,
}

struct RingState {
    uring: IoUring,
    /// The operations in the kernel, by slot.
    carried: Vec<Option<Carried>>,
    /// Number of operations that have ended and are not reported yet.
    ended: usize,
}

/// An operation in the kernel.
struct Carried {
    user_data: UserData,
    /// The memory that the kernel reads or writes.
    buffer: Vec<u8>,
    /// Kept open until the completion, so that the descriptor cannot be reused for another file.
    _handle: Handle,
}

/// The `user_data` of entries whose completions are ignored.
pub(super) const UNATTENDED: u64 = u64::MAX;

/// All operations that the ring accepts. The kernel refuses any other.
const OPCODES: [u8; 6] = [
    opcode::Recv::CODE,
    opcode::Send::CODE,
    opcode::PollAdd::CODE,
    opcode::Read::CODE,
    opcode::Write::CODE,
    opcode::AsyncCancel::CODE,
];

/// All flags that these operations may have.
pub(super) const FLAGS: squeue::Flags = squeue::Flags::SKIP_SUCCESS.union(squeue::Flags::IO_LINK);

/// `IORING_REGISTER_IOWQ_AFF`, the only registration that an enabled ring accepts.
const REGISTER_IOWQ_AFF: u8 = 17;

/// The value written to a bell's eventfd.
static ONE: u64 = 1;

impl IoUringRing {
    /// Creates a ring for the calling thread, which alone may use it, with room for `entries`
    /// submissions.
    pub(super) fn new(operations: Rc<Operations>, entries: u32) -> Result<IoUringRing, RingError> {
        let uring = build(entries, 2 * entries)?;
        let flags = Restriction::sqe_flags_allowed(FLAGS.bits());
        enable(&uring, &OPCODES, vec![flags, Restriction::register_op(REGISTER_IOWQ_AFF)])?;
        let inner = RingState { uring, carried: Vec::with_capacity(entries as usize), ended: 0 };
        Ok(IoUringRing { operations, inner: RefCell::new(inner), enters: Cell::new(0) })
    }

    /// Restricts the kernel's worker threads of this ring to these cores.
    pub(super) fn confine_workers(&self, cores: &[usize]) -> Result<(), RingError> {
        // SAFETY: an all-zero cpu_set_t is the empty set.
        let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        for core in cores {
            assert!(*core < libc::CPU_SETSIZE as usize);
            // SAFETY: the core number is within the set, as checked above.
            unsafe { libc::CPU_SET(*core, &mut set) };
        }
        Ok(self.inner.borrow().uring.submitter().register_iowq_aff(&set)?)
    }

    /// Number of `io_uring_enter` calls.
    pub(super) fn enters(&self) -> u64 {
        self.enters.get()
    }

    /// Returns whether an enter has something to do: requests to submit, or completions to fetch.
    pub(super) fn has_work(&self) -> bool {
        let mut inner = self.inner.borrow_mut();
        let submission = inner.uring.submission();
        self.operations.has_orders() || submission.taskrun() || submission.cq_overflow()
    }

    /// Submits the requests, waits at most `wait` for a completion (`None`: does not wait), and
    /// finishes all operations that have ended.
    pub(super) fn enter(&self, wait: Option<Duration>) -> Result<(), RingError> {
        let mut inner = self.inner.borrow_mut();
        while let Some(order) = self.operations.take_order() {
            self.carry_out(&mut inner, order);
        }
        self.enters.set(self.enters.get() + 1);
        // Completions that were collected meanwhile have to be processed before waiting.
        submit(&inner.uring, wait.filter(|_| inner.ended == 0))?;
        self.collect(&mut inner);
        inner.ended = 0;
        Ok(())
    }

    fn carry_out(&self, inner: &mut RingState, order: Request) {
        match order {
            Request::Start(user_data, task) => {
                let before = entry_before(&task);
                let (entry, buffer, handle) = entry_of(task);
                let slot = user_data.slot as usize;
                if slot >= inner.carried.len() {
                    inner.carried.resize_with(slot + 1, || None);
                }
                let carried = Carried { user_data, buffer, _handle: handle };
                assert!(inner.carried[slot].replace(carried).is_none());
                let entry = entry.user_data(user_data.to_bits());
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
                // SAFETY: what the entry points to is on the heap, and stays in its slot until the
                // completion has arrived, even if the future is dropped. The entry before it points
                // to nothing.
                unsafe { self.push(inner, entries) };
            }
            Request::Cancel(user_data) => {
                let entry = opcode::AsyncCancel::new(user_data.to_bits()).build();
                // SAFETY: a cancel entry points to nothing.
                unsafe { self.push(inner, &[entry.user_data(UNATTENDED)]) };
            }
            Request::RingBell(bell) => {
                let one: *const u64 = &raw const ONE;
                let length = size_of::<u64>() as u32;
                let entry = opcode::Write::new(Fd(bell.as_raw_fd()), one.cast(), length).build();
                // Without this flag, its completion would end the sleep that it is submitted with.
                let entry = entry.flags(squeue::Flags::SKIP_SUCCESS);
                // SAFETY: the kernel reads 8 bytes of a static that is never written.
                unsafe { self.push(inner, &[entry.user_data(UNATTENDED)]) };
            }
        }
    }

    /// Pushes linked entries to the submission queue, making room if it is full.
    ///
    /// # Safety
    /// The memory that the entries point to must stay valid, and nothing may access it, until their
    /// completion.
    unsafe fn push(&self, inner: &mut RingState, entries: &[squeue::Entry]) {
        // SAFETY: the caller's promise is the one that this call requires.
        while unsafe { inner.uring.submission().push_multiple(entries) }.is_err() {
            self.enters.set(self.enters.get() + 1);
            submit(&inner.uring, None).expect("a full submission queue can be submitted");
            self.collect(inner);
        }
    }

    fn collect(&self, inner: &mut RingState) {
        let RingState { uring, carried, ended } = inner;
        for completion in uring.completion() {
            if completion.user_data() == UNATTENDED {
                continue;
            }
            let user_data = UserData::from_bits(completion.user_data());
            let carried = carried[user_data.slot as usize].take().expect("one completion each");
            assert!(carried.user_data == user_data);
            let result = usize::try_from(completion.result())
                .map_err(|_| io::Error::from_raw_os_error(-completion.result()));
            *ended += 1;
            self.operations.finish(user_data, Completed::new(result, carried.buffer));
        }
    }
}

impl Drop for IoUringRing {
    fn drop(&mut self) {
        // The kernel ends operations only after the ring is gone; until then it may write to their
        // memory.
        std::mem::forget(std::mem::take(&mut self.inner.get_mut().carried));
    }
}

/// Builds a ring that is not enabled yet.
pub(super) fn build(entries: u32, completions: u32) -> Result<IoUring, RingError> {
    let uring = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag()
        .setup_submit_all()
        .setup_r_disabled()
        .setup_cqsize(completions)
        .build(entries)?;
    if !uring.params().is_feature_ext_arg() || !uring.params().is_feature_nodrop() {
        return Err(RingError::TooOld(io::Error::from_raw_os_error(libc::EINVAL)));
    }
    Ok(uring)
}

/// Enables a ring that accepts these operations, what the other restrictions allow, and nothing
/// else.
pub(super) fn enable(
    uring: &IoUring,
    opcodes: &[u8],
    others: Vec<Restriction>,
) -> Result<(), RingError> {
    let opcodes = opcodes.iter().copied().map(Restriction::sqe_op);
    let mut restrictions: Vec<_> = opcodes.chain(others).collect();
    uring.submitter().register_restrictions(&mut restrictions)?;
    Ok(uring.submitter().register_enable_rings()?)
}

/// Submits, and waits at most `wait` for a completion; `None`: does not wait.
pub(super) fn submit(uring: &IoUring, wait: Option<Duration>) -> Result<(), RingError> {
    let timeout = Timespec::from(wait.unwrap_or_default());
    let arguments = SubmitArgs::new().timespec(&timeout);
    let submitted = uring.submitter().submit_with_args(usize::from(wait.is_some()), &arguments);
    let Err(error) = submitted else { return Ok(()) };
    match error.raw_os_error() {
        // The wait is over; a signal arrived; or completions have to be taken first.
        Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN) => Ok(()),
        _ => Err(RingError::Unexpected(error)),
    }
}

/// The entry that has to complete before a task.
fn entry_before(task: &Task) -> Option<squeue::Entry> {
    let Task::ReadBell { bell, .. } = task else { return None };
    Some(bell_rings(bell.as_fd()))
}

/// An entry that completes when a bell is rung. A bell is non-blocking so that a ring can write to
/// it at once; without this entry, a read would fail at once, too.
pub(super) fn bell_rings(bell: BorrowedFd) -> squeue::Entry {
    let entry = opcode::PollAdd::new(Fd(bell.as_raw_fd()), libc::POLLIN as u32).build();
    entry.flags(FLAGS).user_data(UNATTENDED)
}

/// The entry that makes the kernel execute a task, with the memory that it points to.
fn entry_of(task: Task) -> (squeue::Entry, Vec<u8>, Handle) {
    let length = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
    match task {
        Task::Receive { socket, mut buffer, from } => {
            (receive_entry(&socket, &mut buffer[from..], 0), buffer, socket)
        }
        Task::ReceiveAll { socket, mut buffer, range } => {
            (receive_entry(&socket, &mut buffer[range], libc::MSG_WAITALL), buffer, socket)
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

fn receive_entry(socket: &Handle, room: &mut [u8], flags: i32) -> squeue::Entry {
    let length = u32::try_from(room.len()).unwrap_or(u32::MAX);
    opcode::Recv::new(Fd(socket.as_raw_fd()), room.as_mut_ptr(), length).flags(flags).build()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The kernel's result for an entry, which points to nothing.
    fn answer(uring: &mut IoUring, entry: squeue::Entry) -> i32 {
        // SAFETY: the entry points to nothing.
        unsafe { uring.submission().push(&entry).expect("there is room") };
        uring.submit_and_wait(1).expect("the ring takes entries");
        uring.completion().next().expect("it waited for one").result()
    }

    /// Asserts that a ring accepts only cancels of these operations, which all rings accept.
    pub(in crate::runtime) fn assert_refuses_what_has_no_use(uring: &mut IoUring) {
        let cancel = opcode::AsyncCancel::new(1).build();
        let answers = answer(uring, cancel.clone());
        assert_eq!(answers, -libc::ENOENT, "it is done: there is no such operation");
        assert_eq!(answer(uring, opcode::Nop::new().build()), -libc::EACCES);
        let socket = opcode::Socket::new(libc::AF_INET, libc::SOCK_STREAM, 0).build();
        assert_eq!(answer(uring, socket), -libc::EACCES);
        let unused = cancel.flags(squeue::Flags::ASYNC);
        assert_eq!(answer(uring, unused), -libc::EACCES, "a flag that is not used");
    }

    #[test]
    fn operations_that_a_thread_does_not_need_are_refused() {
        let ring = IoUringRing::new(Operations::new(), 8).expect("this kernel has io_uring");
        assert_refuses_what_has_no_use(&mut ring.inner.borrow_mut().uring);
    }
}
