//! Thousands of clients on io_uring, with multishot requests and shared buffers.

#![allow(unsafe_code)]

use crate::runtime::io_uring_ring::{FLAGS, UNATTENDED, bell_rings, build, enable, submit};
use crate::runtime::ring_error::RingError;
use crate::runtime::socket_ring::{
    FilledBuffer, SHARED_BUFFER_BYTES, SHARED_BUFFERS, SocketOperation,
};
use crate::runtime::sockets::{Continues, SocketCompletion};
use io_uring::register::Restriction;
use io_uring::types::{BufRingEntry, Fd};
use io_uring::{IoUring, cqueue, opcode, squeue};
use std::collections::VecDeque;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

/// Entries of the serving thread's submission queue: mostly the answers of one turn.
const SOCKET_ENTRIES: u32 = 512;

/// All operations that the ring accepts.
const SOCKET_OPCODES: [u8; 6] = [
    opcode::AcceptMulti::CODE,
    opcode::RecvMulti::CODE,
    opcode::Send::CODE,
    opcode::PollAdd::CODE,
    opcode::Read::CODE,
    opcode::AsyncCancel::CODE,
];

/// The id of the shared buffer group.
const SHARED_GROUP: u16 = 0;

/// A ring for clients, on io_uring.
pub(crate) struct IoUringSockets {
    uring: IoUring,
    shared: SharedBuffers,
    /// Buffers being sent, by slot. The kernel may still read them after the ring is dropped.
    sending: ManuallyDrop<Vec<Vec<u8>>>,
    /// The buffer for reading the bell's eventfd.
    rung: *mut u64,
    /// Completed sends, which are processed first, because their buffers serve the next answers.
    sent: VecDeque<cqueue::Entry>,
    /// Other completions, with the time when they were seen.
    ended: VecDeque<(cqueue::Entry, Instant)>,
}

/// Operations, as a part of their `user_data`.
const ACCEPT: u64 = SocketOperation::Accept as u64;
const RECEIVE: u64 = SocketOperation::Receive as u64;
const SEND: u64 = SocketOperation::Send as u64;
const READ_BELL: u64 = 3;

impl IoUringSockets {
    /// Creates a ring for the calling thread, which alone may use it.
    pub(super) fn new() -> Result<IoUringSockets, RingError> {
        let uring = build(SOCKET_ENTRIES, 8 * SOCKET_ENTRIES)?;
        let shared = SharedBuffers::register(&uring)?;
        let flags = FLAGS | squeue::Flags::BUFFER_SELECT;
        enable(&uring, &SOCKET_OPCODES, vec![Restriction::sqe_flags_allowed(flags.bits())])?;
        let rung = Box::leak(Box::new(0));
        let sending = ManuallyDrop::new(Vec::new());
        let (sent, ended) = (VecDeque::new(), VecDeque::new());
        Ok(IoUringSockets { uring, shared, sending, rung, sent, ended })
    }

    /// Accepts clients until it fails or is cancelled.
    pub(super) fn accept(&mut self, listener: BorrowedFd) {
        let entry = opcode::AcceptMulti::new(Fd(listener.as_raw_fd())).flags(libc::SOCK_CLOEXEC);
        // SAFETY: the kernel writes no address, so the entry points to nothing.
        unsafe { self.push(&[entry.build().user_data(user_data(ACCEPT, 0))]) };
    }

    /// Receives everything a client sends, until its end of stream or until cancelled.
    pub(super) fn receive(&mut self, slot: u32, socket: BorrowedFd) {
        let entry = opcode::RecvMulti::new(Fd(socket.as_raw_fd()), SHARED_GROUP);
        // SAFETY: the kernel takes a shared buffer, so the entry points to nothing.
        unsafe { self.push(&[entry.build().user_data(user_data(RECEIVE, slot))]) };
    }

    /// Sends `buffer[from..]`, one buffer per client at a time.
    pub(super) fn send(&mut self, slot: u32, socket: BorrowedFd, buffer: Vec<u8>, from: usize) {
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
    pub(super) fn read_bell(&mut self, bell: BorrowedFd) {
        let length = size_of::<u64>() as u32;
        let entry = opcode::Read::new(Fd(bell.as_raw_fd()), self.rung.cast(), length);
        let entry = entry.build().user_data(user_data(READ_BELL, 0));
        // SAFETY: the word is never freed, and nothing else accesses it. The entry before the read
        // points to nothing.
        unsafe { self.push(&[bell_rings(bell), entry]) };
    }

    /// Cancels an operation.
    pub(super) fn cancel(&mut self, operation: SocketOperation, slot: u32) {
        let entry = opcode::AsyncCancel::new(user_data(operation as u64, slot)).build();
        let entry = entry.flags(squeue::Flags::SKIP_SUCCESS).user_data(UNATTENDED);
        // SAFETY: a cancel entry points to nothing.
        unsafe { self.push(&[entry]) };
    }

    /// Pushes linked entries to the submission queue, making room if it is full.
    ///
    /// # Safety
    /// The memory that the entries point to must stay valid, and nothing may access it, until their
    /// completion.
    unsafe fn push(&mut self, entries: &[squeue::Entry]) {
        // SAFETY: the caller's promise is the one that this call requires.
        while unsafe { self.uring.submission().push_multiple(entries) }.is_err() {
            submit(&self.uring, None).expect("a full submission queue can be submitted");
            self.collect();
        }
    }

    /// Takes completions from the kernel.
    fn collect(&mut self) {
        let IoUringSockets { uring, sent, ended, .. } = self;
        let now = Instant::now();
        for entry in uring.completion() {
            match entry.user_data() {
                UNATTENDED => {}
                data if data >> 32 == SEND => sent.push_back(entry),
                _ => ended.push_back((entry, now)),
            }
        }
    }

    /// Submits the requests, and waits at most `wait` for a completion (`None`: does not wait).
    pub(super) fn enter(&mut self, wait: Option<Duration>) -> Result<(), RingError> {
        let is_idle = self.sent.is_empty() && self.ended.is_empty();
        submit(&self.uring, wait.filter(|_| is_idle))?;
        self.collect();
        Ok(())
    }

    /// Returns whether there is something to process, as far as is known without a system call.
    pub(super) fn has_work(&mut self) -> bool {
        let is_idle = self.sent.is_empty() && self.ended.is_empty();
        !is_idle || self.uring.submission().taskrun() || !self.uring.completion().is_empty()
    }

    /// Returns the next completion that [`IoUringSockets::enter`] has collected.
    pub(super) fn next(&mut self) -> Option<SocketCompletion> {
        let result_of = |entry: &cqueue::Entry| {
            let failed = |_| io::Error::from_raw_os_error(-entry.result());
            usize::try_from(entry.result()).map_err(failed)
        };
        if let Some(entry) = self.sent.pop_front() {
            let slot = entry.user_data() as u32;
            let buffer = std::mem::take(&mut self.sending[slot as usize]);
            return Some(SocketCompletion::Sent(slot, result_of(&entry), buffer));
        }
        let (entry, taken_at) = self.ended.pop_front()?;
        let (operation, slot) = (entry.user_data() >> 32, entry.user_data() as u32);
        let result = result_of(&entry);
        let continues = if cqueue::more(entry.flags()) { Continues::Yes } else { Continues::No };
        Some(match operation {
            ACCEPT => {
                // SAFETY: the number is that of a socket that the kernel has just created for this
                // process.
                let socket = result.map(|number| unsafe { OwnedFd::from_raw_fd(number as i32) });
                SocketCompletion::Accepted(socket, continues)
            }
            RECEIVE => {
                let number = cqueue::buffer_select(entry.flags());
                let filled = |bytes| Some(FilledBuffer { number: number?, bytes, taken_at });
                SocketCompletion::Received(slot, result.map(filled), continues)
            }
            _ => SocketCompletion::Rung,
        })
    }

    /// Passes the bytes to `read`, and returns their buffer to the kernel.
    pub(super) fn read<T>(&mut self, filled: FilledBuffer, read: impl FnOnce(&[u8]) -> T) -> T {
        let done = read(self.shared.bytes(&filled));
        self.shared.give(filled.number);
        done
    }
}

/// Identifies an operation; never all ones.
fn user_data(operation: u64, slot: u32) -> u64 {
    operation << 32 | u64::from(slot)
}

/// Buffers from which the kernel takes one when bytes arrive (`io_uring_register_buf_ring(3)`).
/// They are never freed: the kernel may fill them as long as the ring exists.
struct SharedBuffers {
    /// The buffers that the kernel may fill, as a ring of entries. Its tail is in the first entry.
    queue: *mut BufRingEntry,
    bytes: *mut u8,
    tail: u16,
}

#[derive(Clone)]
#[repr(align(4096))]
struct MemoryPage(#[expect(dead_code, reason = "the kernel reads it")] [u8; 4096]);

impl SharedBuffers {
    fn register(uring: &IoUring) -> Result<SharedBuffers, RingError> {
        let pages =
            usize::from(SHARED_BUFFERS) * size_of::<BufRingEntry>() / size_of::<MemoryPage>();
        let queue = vec![MemoryPage([0; 4096]); pages].leak().as_mut_ptr().cast::<BufRingEntry>();
        let bytes = vec![0; usize::from(SHARED_BUFFERS) * SHARED_BUFFER_BYTES].leak().as_mut_ptr();
        let submitter = uring.submitter();
        // SAFETY: the queue has this many entries, starts at a page boundary and is never freed.
        let registered = unsafe {
            submitter.register_buf_ring_with_flags(queue as u64, SHARED_BUFFERS, SHARED_GROUP, 0)
        };
        registered?;
        let mut shared = SharedBuffers { queue, bytes, tail: 0 };
        (0..SHARED_BUFFERS).for_each(|number| shared.give(number));
        Ok(shared)
    }

    /// Returns a buffer to the kernel.
    fn give(&mut self, number: u16) {
        let at = usize::from(self.tail % SHARED_BUFFERS);
        // SAFETY: the queue has this many entries, and the kernel reads none at or after the tail.
        let entry = unsafe { &mut *self.queue.add(at) };
        // SAFETY: there are this many buffers.
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
        // SAFETY: the bytes lie within the buffer, which the kernel does not hold now.
        unsafe { std::slice::from_raw_parts(self.bytes.add(begin), filled.bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::io_uring_ring::tests::assert_refuses_what_has_no_use;

    #[test]
    fn operations_that_serving_does_not_need_are_refused() {
        let mut ring = IoUringSockets::new().expect("this kernel has io_uring");
        assert_refuses_what_has_no_use(&mut ring.uring);
    }
}
