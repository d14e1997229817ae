//! io_uring: submits operations, collects completions, and owns whatever the kernel may touch.
//!
//! Least kernel: Linux 6.1 (SINGLE_ISSUER and DEFER_TASKRUN, so that completions are taken only
//! when the hot thread asks for them). The ring takes each operation's buffer and handle along and
//! keeps them until the kernel lets go: nobody else can reach a buffer while the kernel writes to
//! it, and dropping a future cannot free it. It does no registered buffers, no multishot, no
//! polling thread: bulk TCP is bound by the copy.
//!
//! The thread that serves thousands of clients has a [`SocketRing`]: one order accepts all of them,
//! one receives all that a client sends, and a buffer is no client's until bytes have come.

#![allow(unsafe_code)]

use crate::runtime::operations::{Completed, Handle, Operations, Request, Task, Token};
use crate::runtime::ring_error::RingError;
use crate::runtime::sockets::{Continues, SocketCompletion};
use io_uring::register::Restriction;
use io_uring::types::{BufRingEntry, Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::rc::Rc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

/// Entries of the hot thread's submission queue: a few per connection, flushed once a turn.
pub(crate) const RING_ENTRIES: u32 = 256;

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
        let uring = build(entries, 2 * entries)?;
        let flags = Restriction::sqe_flags_allowed(FLAGS.bits());
        enable(&uring, &OPCODES, vec![flags, Restriction::register_op(REGISTER_IOWQ_AFF)])?;
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
        // What ended while the orders were carried out has to be seen before anybody waits.
        submit(&inner.uring, wait.filter(|_| inner.ended == 0))?;
        self.collect(&mut inner);
        inner.ended = 0;
        Ok(())
    }

    fn carry_out(&self, inner: &mut Inner, order: Request) {
        match order {
            Request::Start(token, task) => {
                let before = entry_before(&task);
                let (entry, buffer, handle) = entry_of(task);
                let slot = token.slot as usize;
                if slot >= inner.carried.len() {
                    inner.carried.resize_with(slot + 1, || None);
                }
                let carried = Carried { token, buffer, _handle: handle };
                assert!(inner.carried[slot].replace(carried).is_none());
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
            submit(&inner.uring, None).expect("a full submission queue can be submitted");
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

/// A ring that is not enabled yet.
fn build(entries: u32, completions: u32) -> Result<IoUring, RingError> {
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

/// Enables a ring, for these operations and what else is given alone.
fn enable(uring: &IoUring, opcodes: &[u8], others: Vec<Restriction>) -> Result<(), RingError> {
    let opcodes = opcodes.iter().copied().map(Restriction::sqe_op);
    let mut restrictions: Vec<_> = opcodes.chain(others).collect();
    uring.submitter().register_restrictions(&mut restrictions)?;
    Ok(uring.submitter().register_enable_rings()?)
}

/// Submits, and waits at most so long for a completion; `None`: not at all.
fn submit(uring: &IoUring, wait: Option<Duration>) -> Result<(), RingError> {
    let timeout = Timespec::from(wait.unwrap_or_default());
    let arguments = SubmitArgs::new().timespec(&timeout);
    let submitted = uring.submitter().submit_with_args(usize::from(wait.is_some()), &arguments);
    let Err(error) = submitted else { return Ok(()) };
    match error.raw_os_error() {
        // The wait is over; a signal; completions have to be taken first.
        Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN) => Ok(()),
        _ => Err(RingError::Unexpected(error)),
    }
}

/// What has to end before a task.
fn entry_before(task: &Task) -> Option<squeue::Entry> {
    let Task::ReadBell { bell, .. } = task else { return None };
    Some(bell_rings(bell.as_fd()))
}

/// Ends when a bell is rung: a bell is non-blocking, so that a ring can write to it at once, and
/// would be read at once too.
fn bell_rings(bell: BorrowedFd) -> squeue::Entry {
    let entry = opcode::PollAdd::new(Fd(bell.as_raw_fd()), libc::POLLIN as u32).build();
    entry.flags(FLAGS).user_data(UNATTENDED)
}

/// What tells the kernel to do a task, with what it points to.
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

/// Entries of the serving thread's submission queue: answers of one turn, mostly.
const SOCKET_ENTRIES: u32 = 512;

/// All operations that a [`SocketRing`] takes.
const SOCKET_OPCODES: [u8; 6] = [
    opcode::AcceptMulti::CODE,
    opcode::RecvMulti::CODE,
    opcode::Send::CODE,
    opcode::PollAdd::CODE,
    opcode::Read::CODE,
    opcode::AsyncCancel::CODE,
];

/// Buffers that bytes of any client are received into. A power of two.
const SHARED_BUFFERS: u16 = 512;

/// Bytes of each: most requests are shorter.
const SHARED_BUFFER_BYTES: usize = 2048;

/// The number of the shared buffers' group.
const SHARED_GROUP: u16 = 0;

/// The ring of a thread that serves clients. A client has a slot, a small number.
///
/// The caller keeps a socket open until its last completion.
pub(crate) struct SocketRing {
    uring: IoUring,
    shared: SharedBuffers,
    /// What is being sent, by slot. Without the ring, the kernel may still read it.
    sending: ManuallyDrop<Vec<Vec<u8>>>,
    /// What the bell's eventfd is read into.
    rung: *mut u64,
    ended: VecDeque<cqueue::Entry>,
}

/// Operations of a [`SocketRing`].
pub(super) const ACCEPT: u64 = 0;
pub(super) const RECEIVE: u64 = 1;
pub(super) const SEND: u64 = 2;
const READ_BELL: u64 = 3;

/// A shared buffer with bytes, which is not the kernel's until it is given back.
pub(crate) struct FilledBuffer {
    number: u16,
    bytes: usize,
}

impl SocketRing {
    /// A ring for the calling thread, which alone may use it.
    pub(crate) fn new() -> Result<SocketRing, RingError> {
        let uring = build(SOCKET_ENTRIES, 8 * SOCKET_ENTRIES)?;
        let shared = SharedBuffers::register(&uring)?;
        let flags = FLAGS | squeue::Flags::BUFFER_SELECT;
        enable(&uring, &SOCKET_OPCODES, vec![Restriction::sqe_flags_allowed(flags.bits())])?;
        let rung = Box::leak(Box::new(0));
        let sending = ManuallyDrop::new(Vec::new());
        Ok(SocketRing { uring, shared, sending, rung, ended: VecDeque::new() })
    }

    /// Accepts clients, until it fails or is cancelled.
    pub(crate) fn accept(&mut self, listener: BorrowedFd) {
        let entry = opcode::AcceptMulti::new(Fd(listener.as_raw_fd())).flags(libc::SOCK_CLOEXEC);
        // SAFETY: the kernel writes no address, so the entry points to nothing.
        unsafe { self.push(&[entry.build().user_data(user_data(ACCEPT, 0))]) };
    }

    /// Receives all that a client sends, until its end, or until it is cancelled.
    pub(crate) fn receive(&mut self, slot: u32, socket: BorrowedFd) {
        let entry = opcode::RecvMulti::new(Fd(socket.as_raw_fd()), SHARED_GROUP);
        // SAFETY: the kernel takes a shared buffer, so the entry points to nothing.
        unsafe { self.push(&[entry.build().user_data(user_data(RECEIVE, slot))]) };
    }

    /// Sends `buffer[from..]`, one buffer of a client at a time.
    pub(crate) fn send(&mut self, slot: u32, socket: BorrowedFd, buffer: Vec<u8>, from: usize) {
        let at = slot as usize;
        if at >= self.sending.len() {
            self.sending.resize_with(at + 1, Vec::new);
        }
        assert!(self.sending[at].is_empty() && from < buffer.len());
        let rest = &buffer[from..];
        let length = u32::try_from(rest.len()).unwrap_or(u32::MAX);
        let entry = opcode::Send::new(Fd(socket.as_raw_fd()), rest.as_ptr(), length)
            .flags(libc::MSG_NOSIGNAL);
        self.sending[at] = buffer;
        // SAFETY: the bytes are on the heap, and stay there until the completion has arrived.
        unsafe { self.push(&[entry.build().user_data(user_data(SEND, slot))]) };
    }

    /// Reads the bell's eventfd, which resets it.
    pub(crate) fn read_bell(&mut self, bell: BorrowedFd) {
        let length = size_of::<u64>() as u32;
        let entry = opcode::Read::new(Fd(bell.as_raw_fd()), self.rung.cast(), length);
        let entry = entry.build().user_data(user_data(READ_BELL, 0));
        // SAFETY: the word is never freed, and nobody else looks at it. The entry before the read
        // points to nothing.
        unsafe { self.push(&[bell_rings(bell), entry]) };
    }

    /// Ends an operation soon.
    pub(super) fn cancel(&mut self, operation: u64, slot: u32) {
        let entry = opcode::AsyncCancel::new(user_data(operation, slot)).build();
        let entry = entry.flags(squeue::Flags::SKIP_SUCCESS).user_data(UNATTENDED);
        // SAFETY: a cancel entry points to nothing.
        unsafe { self.push(&[entry]) };
    }

    /// Puts entries that belong together into the submission queue, making room if it is full.
    ///
    /// # Safety
    /// What the entries point to must stay valid, and untouched by others, until their completion.
    unsafe fn push(&mut self, entries: &[squeue::Entry]) {
        // SAFETY: the caller's promise is the one that is asked for here.
        while unsafe { self.uring.submission().push_multiple(entries) }.is_err() {
            submit(&self.uring, None).expect("a full submission queue can be submitted");
            self.ended.extend(self.uring.completion());
        }
    }

    /// Submits what was ordered, and waits at most `wait` for a completion (`None`: not at all).
    pub(crate) fn enter(&mut self, wait: Option<Duration>) -> Result<(), RingError> {
        submit(&self.uring, wait.filter(|_| self.ended.is_empty()))?;
        self.ended.extend(self.uring.completion());
        Ok(())
    }

    /// The next completion that [`SocketRing::enter`] has brought.
    pub(crate) fn next(&mut self) -> Option<SocketCompletion> {
        let mut entry = self.ended.pop_front()?;
        while entry.user_data() == UNATTENDED {
            entry = self.ended.pop_front()?;
        }
        let (operation, slot) = (entry.user_data() >> 32, entry.user_data() as u32);
        let result = usize::try_from(entry.result())
            .map_err(|_| io::Error::from_raw_os_error(-entry.result()));
        let continues = if cqueue::more(entry.flags()) { Continues::Yes } else { Continues::No };
        Some(match operation {
            ACCEPT => {
                // SAFETY: the number is that of a socket that the kernel has just made for us.
                let socket = result.map(|number| unsafe { OwnedFd::from_raw_fd(number as i32) });
                SocketCompletion::Accepted(socket, continues)
            }
            RECEIVE => {
                let number = cqueue::buffer_select(entry.flags());
                let filled = |bytes| number.map(|number| FilledBuffer { number, bytes });
                SocketCompletion::Received(slot, result.map(filled), continues)
            }
            SEND => {
                let buffer = std::mem::take(&mut self.sending[slot as usize]);
                SocketCompletion::Sent(slot, result, buffer)
            }
            _ => SocketCompletion::Rung,
        })
    }

    /// Lets these bytes be read, and gives their buffer back to the kernel.
    pub(crate) fn read<T>(&mut self, filled: FilledBuffer, read: impl FnOnce(&[u8]) -> T) -> T {
        let done = read(self.shared.bytes(&filled));
        self.shared.give(filled.number);
        done
    }
}

/// What names an operation, never all ones.
fn user_data(operation: u64, slot: u32) -> u64 {
    operation << 32 | u64::from(slot)
}

/// Buffers of which the kernel takes one when bytes have come (`io_uring_register_buf_ring(3)`).
/// They are never freed: the kernel may fill them as long as it has the ring.
struct SharedBuffers {
    /// Those that the kernel may fill, as a ring of entries. Its tail lies in the first one.
    queue: *mut BufRingEntry,
    bytes: *mut u8,
    tail: u16,
}

#[derive(Clone)]
#[repr(align(4096))]
struct Page(#[expect(dead_code, reason = "the kernel reads it")] [u8; 4096]);

impl SharedBuffers {
    fn register(uring: &IoUring) -> Result<SharedBuffers, RingError> {
        let pages = usize::from(SHARED_BUFFERS) * size_of::<BufRingEntry>() / size_of::<Page>();
        let queue = vec![Page([0; 4096]); pages].leak().as_mut_ptr().cast::<BufRingEntry>();
        let bytes = vec![0; usize::from(SHARED_BUFFERS) * SHARED_BUFFER_BYTES].leak().as_mut_ptr();
        let submitter = uring.submitter();
        // SAFETY: the queue has so many entries, begins at a page and is never freed.
        let registered = unsafe {
            submitter.register_buf_ring_with_flags(queue as u64, SHARED_BUFFERS, SHARED_GROUP, 0)
        };
        registered?;
        let mut shared = SharedBuffers { queue, bytes, tail: 0 };
        (0..SHARED_BUFFERS).for_each(|number| shared.give(number));
        Ok(shared)
    }

    /// Lets the kernel fill a buffer that it does not have.
    fn give(&mut self, number: u16) {
        let at = usize::from(self.tail % SHARED_BUFFERS);
        // SAFETY: there are so many entries, and the kernel reads none at the tail or behind it.
        let entry = unsafe { &mut *self.queue.add(at) };
        // SAFETY: there are so many buffers.
        let bytes = unsafe { self.bytes.add(usize::from(number) * SHARED_BUFFER_BYTES) };
        entry.set_addr(bytes as u64);
        entry.set_len(SHARED_BUFFER_BYTES as u32);
        entry.set_bid(number);
        self.tail = self.tail.wrapping_add(1);
        // SAFETY: the tail is an aligned word of the queue, which only this thread writes.
        let tail = unsafe { AtomicU16::from_ptr(BufRingEntry::tail(self.queue).cast_mut()) };
        tail.store(self.tail, Ordering::Release);
    }

    fn bytes(&self, filled: &FilledBuffer) -> &[u8] {
        assert!(filled.number < SHARED_BUFFERS && filled.bytes <= SHARED_BUFFER_BYTES);
        let begin = usize::from(filled.number) * SHARED_BUFFER_BYTES;
        // SAFETY: the bytes lie within the buffer, and the kernel does not have it now.
        unsafe { std::slice::from_raw_parts(self.bytes.add(begin), filled.bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel answers to an entry, which points to nothing.
    fn answer(uring: &mut IoUring, entry: squeue::Entry) -> i32 {
        // SAFETY: the entry points to nothing.
        unsafe { uring.submission().push(&entry).expect("there is room") };
        uring.submit_and_wait(1).expect("the ring takes entries");
        uring.completion().next().expect("it waited for one").result()
    }

    #[test]
    fn operations_that_a_thread_has_no_use_for_are_refused() {
        let hot = Ring::new(Operations::new(), 8).expect("this kernel has io_uring");
        let hot = &mut hot.inner.borrow_mut().uring;
        let serving = &mut SocketRing::new().expect("this kernel has io_uring").uring;
        let cancel = opcode::AsyncCancel::new(1).build();
        for uring in [hot, serving] {
            let answers = answer(uring, cancel.clone());
            assert_eq!(answers, -libc::ENOENT, "it is done: there is no such operation");
            assert_eq!(answer(uring, opcode::Nop::new().build()), -libc::EACCES);
            let socket = opcode::Socket::new(libc::AF_INET, libc::SOCK_STREAM, 0).build();
            assert_eq!(answer(uring, socket), -libc::EACCES);
            let unused = cancel.clone().flags(squeue::Flags::ASYNC);
            assert_eq!(answer(uring, unused), -libc::EACCES, "a flag that is not used");
        }
    }
}
