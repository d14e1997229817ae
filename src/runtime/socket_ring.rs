//! The ring of a thread that serves thousands of clients: one request accepts all of them, one
//! receives everything a client sends, and no client holds a buffer until bytes have arrived.

use crate::runtime::epoll_sockets::EpollSockets;
use crate::runtime::io_uring_sockets::IoUringSockets;
use crate::runtime::ring::RingKind;
use crate::runtime::ring_error::RingError;
use crate::runtime::sockets::SocketCompletion;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// Number of shared receive buffers. A power of two.
pub(super) const SHARED_BUFFERS: u16 = 512;

/// Size of each: most requests are shorter.
pub(super) const SHARED_BUFFER_BYTES: usize = 2048;

/// An operation that can be cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SocketOperation {
    Accept,
    Receive,
    Send,
}

/// A shared buffer with bytes, which is ours until it is returned to the ring.
pub(crate) struct FilledBuffer {
    pub(super) number: u16,
    pub(super) bytes: usize,
    /// When it was taken from the kernel.
    pub(crate) taken_at: Instant,
}

/// The ring of a thread that serves clients. Each client has a slot, a small number.
///
/// The caller keeps a socket open until its last completion, and releases its slot before it closes
/// the socket. Listener and bell stay open as long as the ring exists.
pub(crate) enum SocketRing {
    IoUring(IoUringSockets),
    Epoll(EpollSockets),
}

impl SocketRing {
    /// Creates a ring for the calling thread, which alone may use it, and for this listener.
    pub(crate) fn new(kind: RingKind, listener: BorrowedFd) -> Result<SocketRing, RingError> {
        Ok(match kind {
            RingKind::IoUring => SocketRing::IoUring(IoUringSockets::new()?),
            RingKind::Epoll => SocketRing::Epoll(EpollSockets::new(listener)?),
        })
    }

    /// Accepts clients until it fails or is cancelled.
    pub(crate) fn accept(&mut self, listener: BorrowedFd) {
        match self {
            SocketRing::IoUring(ring) => ring.accept(listener),
            SocketRing::Epoll(ring) => ring.accept(listener),
        }
    }

    /// Receives everything a client sends, until its end of stream or until cancelled.
    pub(crate) fn receive(&mut self, slot: u32, socket: BorrowedFd) {
        match self {
            SocketRing::IoUring(ring) => ring.receive(slot, socket),
            SocketRing::Epoll(ring) => ring.receive(slot, socket),
        }
    }

    /// Sends `buffer[from..]`, one buffer per client at a time.
    pub(crate) fn send(&mut self, slot: u32, socket: BorrowedFd, buffer: Vec<u8>, from: usize) {
        match self {
            SocketRing::IoUring(ring) => ring.send(slot, socket, buffer, from),
            SocketRing::Epoll(ring) => ring.send(slot, socket, buffer, from),
        }
    }

    /// Reads the bell's eventfd once it is rung, which resets it.
    pub(crate) fn read_bell(&mut self, bell: BorrowedFd) {
        match self {
            SocketRing::IoUring(ring) => ring.read_bell(bell),
            SocketRing::Epoll(ring) => ring.read_bell(bell),
        }
    }

    /// Cancels an operation.
    pub(super) fn cancel(&mut self, operation: SocketOperation, slot: u32) {
        match self {
            SocketRing::IoUring(ring) => ring.cancel(operation, slot),
            SocketRing::Epoll(ring) => ring.cancel(operation, slot),
        }
    }

    /// Frees a slot whose socket is about to be closed.
    pub(super) fn release(&mut self, slot: u32) {
        match self {
            // It knows sockets by their operations alone.
            SocketRing::IoUring(_) => {}
            SocketRing::Epoll(ring) => ring.release(slot),
        }
    }

    /// Submits the requests, and waits at most `wait` for a completion (`None`: does not wait).
    pub(crate) fn enter(&mut self, wait: Option<Duration>) -> Result<(), RingError> {
        match self {
            SocketRing::IoUring(ring) => ring.enter(wait),
            SocketRing::Epoll(ring) => ring.enter(wait),
        }
    }

    /// Returns whether there is something to process, as far as is known without a system call.
    pub(crate) fn has_work(&mut self) -> bool {
        match self {
            SocketRing::IoUring(ring) => ring.has_work(),
            SocketRing::Epoll(ring) => ring.has_work(),
        }
    }

    /// Returns the next completion that [`SocketRing::enter`] has collected.
    pub(crate) fn next(&mut self) -> Option<SocketCompletion> {
        match self {
            SocketRing::IoUring(ring) => ring.next(),
            SocketRing::Epoll(ring) => ring.next(),
        }
    }

    /// Passes the bytes to `read`, and takes their buffer back.
    pub(crate) fn read<T>(&mut self, filled: FilledBuffer, read: impl FnOnce(&[u8]) -> T) -> T {
        match self {
            SocketRing::IoUring(ring) => ring.read(filled, read),
            SocketRing::Epoll(ring) => ring.read(filled, read),
        }
    }
}
