//! Client sockets, identified by small numbers: accepted, received from, sent to and closed through
//! one ring.
//!
//! A socket is closed once the kernel is done with it, and only then is its number reused, so that
//! a late completion cannot be attributed to another client.

use crate::queue::bell::Bell;
use crate::runtime::ring::RingKind;
use crate::runtime::ring_error::RingError;
use crate::runtime::socket_ring::{FilledBuffer, SocketOperation, SocketRing};
use rustix::net::{Shutdown, shutdown};
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// Identifies a client's socket while it is open.
pub(crate) type SocketNumber = u32;

/// The sockets of a thread's clients.
pub(crate) struct Sockets {
    ring: SocketRing,
    listener: TcpListener,
    accepting: Multishot,
    bell: Arc<Bell>,
    /// By number.
    sockets: Vec<Option<Socket>>,
    free: Vec<SocketNumber>,
}

/// The state of a multishot operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Multishot {
    None,
    UnderWay,
    /// It is being cancelled.
    Ending,
    /// It is being cancelled, and is wanted again.
    EndingForAnother,
}

struct Socket {
    handle: OwnedFd,
    receiving: Multishot,
    /// Start of the bytes being sent.
    sending_from: Option<usize>,
    /// True if its events are no longer wanted.
    is_closing: bool,
}

/// A completion: an operation has ended, or has produced something and continues.
pub(crate) enum SocketCompletion {
    /// A client, or an error.
    Accepted(io::Result<OwnedFd>, Continues),
    /// Bytes of a client; `None` at the end of its stream.
    Received(u32, io::Result<Option<FilledBuffer>>, Continues),
    /// The number of bytes accepted, and their buffer.
    Sent(u32, io::Result<usize>, Vec<u8>),
    /// The bell was rung.
    Rung,
}

/// Tells if the same operation will complete again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Continues {
    Yes,
    No,
}

/// An event of a client.
pub(crate) enum SocketEvent {
    /// A client has connected.
    Opened(SocketNumber),
    /// Accepting has failed. No client is accepted until [`Sockets::accept`] is called again.
    NotAccepted,
    /// The client has sent bytes.
    Received(SocketNumber, FilledBuffer),
    /// The client has ended its stream.
    Ended(SocketNumber),
    /// Its connection is broken.
    Broken(SocketNumber),
    /// This many bytes from the start of this buffer were accepted.
    Sent(SocketNumber, Vec<u8>, usize),
}

impl Sockets {
    /// Creates an empty set; no client is accepted before [`Sockets::accept`]. The bell ends a
    /// wait. Only the calling thread may use it.
    pub(crate) fn new(
        kind: RingKind,
        listener: TcpListener,
        bell: Arc<Bell>,
    ) -> Result<Sockets, RingError> {
        let mut ring = SocketRing::new(kind, listener.as_fd())?;
        ring.read_bell(bell.as_fd());
        let (sockets, free) = (Vec::new(), Vec::new());
        Ok(Sockets { ring, listener, accepting: Multishot::None, bell, sockets, free })
    }

    /// Number of connected clients.
    pub(crate) fn count(&self) -> usize {
        self.sockets.len() - self.free.len()
    }

    /// Starts accepting clients.
    pub(crate) fn accept(&mut self) {
        if self.accepting.begin() {
            self.ring.accept(self.listener.as_fd());
        }
    }

    /// Stops accepting, so that further clients wait. Clients that the kernel has already accepted
    /// may still follow.
    pub(crate) fn stop_accepting(&mut self) {
        if self.accepting.end() {
            self.ring.cancel(SocketOperation::Accept, 0);
        }
    }

    /// Starts receiving from a client.
    pub(crate) fn receive(&mut self, number: SocketNumber) {
        let socket = self.sockets[number as usize].as_mut().expect("an open socket");
        if socket.receiving.begin() {
            self.ring.receive(number, socket.handle.as_fd());
        }
    }

    /// Stops receiving from a client. Bytes that are already received may still follow.
    pub(crate) fn stop_receiving(&mut self, number: SocketNumber) {
        let socket = self.sockets[number as usize].as_mut().expect("an open socket");
        if socket.receiving.end() {
            self.ring.cancel(SocketOperation::Receive, number);
        }
    }

    /// Sends `buffer[from..]`; the previous buffer must have been sent.
    pub(crate) fn send(&mut self, number: SocketNumber, buffer: Vec<u8>, from: usize) {
        let socket = self.sockets[number as usize].as_mut().expect("an open socket");
        assert!(socket.sending_from.replace(from).is_none());
        self.ring.send(number, socket.handle.as_fd(), buffer, from);
    }

    /// Ends the stream to the client.
    pub(crate) fn end_sending(&mut self, number: SocketNumber) {
        let socket = self.sockets[number as usize].as_ref().expect("an open socket");
        // A client that is already gone does not need it.
        let _gone = shutdown(&socket.handle, Shutdown::Write);
    }

    /// Closes a socket: no further event names it until its number is reused.
    pub(crate) fn close(&mut self, number: SocketNumber) {
        let socket = self.sockets[number as usize].as_mut().expect("an open socket");
        assert!(!std::mem::replace(&mut socket.is_closing, true));
        if socket.receiving.end() {
            self.ring.cancel(SocketOperation::Receive, number);
        }
        if socket.sending_from.is_some() {
            self.ring.cancel(SocketOperation::Send, number);
        }
        self.release(number);
    }

    /// Releases a closing socket once the kernel is done with it.
    fn release(&mut self, number: SocketNumber) {
        let socket = &mut self.sockets[number as usize];
        if socket.as_ref().is_some_and(Socket::is_over) {
            self.ring.release(number);
            *socket = None;
            self.free.push(number);
        }
    }

    /// Submits the requests, and waits at most `wait` for an event; `None`: does not wait.
    pub(crate) fn turn(&mut self, wait: Option<Duration>) -> Result<(), RingError> {
        self.ring.enter(wait)
    }

    /// Returns whether [`Sockets::turn`] would produce an event, as far as is known without asking
    /// the kernel.
    pub(crate) fn has_work(&mut self) -> bool {
        self.ring.has_work()
    }

    /// Passes a client's bytes to `read`.
    pub(crate) fn read<T>(&mut self, filled: FilledBuffer, read: impl FnOnce(&[u8]) -> T) -> T {
        self.ring.read(filled, read)
    }

    /// Returns the next event that [`Sockets::turn`] has produced.
    pub(crate) fn next(&mut self) -> Option<SocketEvent> {
        loop {
            let event = match self.ring.next()? {
                SocketCompletion::Accepted(accepted, continues) => {
                    self.accepted(accepted, continues)
                }
                SocketCompletion::Received(number, received, continues) => {
                    self.received(number, received, continues)
                }
                SocketCompletion::Sent(number, sent, buffer) => self.sent(number, sent, buffer),
                SocketCompletion::Rung => {
                    self.ring.read_bell(self.bell.as_fd());
                    None
                }
            };
            if event.is_some() {
                return event;
            }
        }
    }

    fn accepted(
        &mut self,
        accepted: io::Result<OwnedFd>,
        continues: Continues,
    ) -> Option<SocketEvent> {
        let is_wanted = continues == Continues::No && self.accepting.ended();
        if is_wanted && accepted.as_ref().err().is_none_or(is_cancelled) {
            self.accept();
        }
        match accepted {
            Ok(handle) => {
                let socket = Socket {
                    handle,
                    receiving: Multishot::None,
                    sending_from: None,
                    is_closing: false,
                };
                let number = self.free.pop().unwrap_or_else(|| {
                    self.sockets.push(None);
                    u32::try_from(self.sockets.len() - 1).expect("descriptors are 32-bit numbers")
                });
                self.sockets[number as usize] = Some(socket);
                Some(SocketEvent::Opened(number))
            }
            Err(error) if is_cancelled(&error) => None,
            Err(_) => Some(SocketEvent::NotAccepted),
        }
    }

    fn received(
        &mut self,
        number: SocketNumber,
        received: io::Result<Option<FilledBuffer>>,
        continues: Continues,
    ) -> Option<SocketEvent> {
        let socket = self.sockets[number as usize].as_mut().expect("the kernel has it");
        let is_wanted = continues == Continues::No && socket.receiving.ended();
        if socket.is_closing {
            if let Ok(Some(filled)) = received {
                self.ring.read(filled, |_late| ());
            }
            self.release(number);
            return None;
        }
        match received {
            Ok(Some(filled)) => {
                if is_wanted {
                    self.receive(number);
                }
                Some(SocketEvent::Received(number, filled))
            }
            Ok(None) => Some(SocketEvent::Ended(number)),
            // No buffer was left, or it was cancelled: restart it if it is still wanted.
            Err(error) if is_cancelled(&error) || is_without_buffer(&error) => {
                if is_wanted {
                    self.receive(number);
                }
                None
            }
            Err(_) => Some(SocketEvent::Broken(number)),
        }
    }

    fn sent(
        &mut self,
        number: SocketNumber,
        sent: io::Result<usize>,
        buffer: Vec<u8>,
    ) -> Option<SocketEvent> {
        let socket = self.sockets[number as usize].as_mut().expect("the kernel has it");
        let from = socket.sending_from.take().expect("it was ordered");
        if socket.is_closing {
            self.release(number);
            return None;
        }
        Some(match sent {
            Ok(bytes) => SocketEvent::Sent(number, buffer, from + bytes),
            Err(_) => SocketEvent::Broken(number),
        })
    }
}

impl Socket {
    /// Returns whether it is closing and the kernel is done with it.
    fn is_over(&self) -> bool {
        self.is_closing && self.sending_from.is_none() && self.receiving == Multishot::None
    }
}

impl Multishot {
    /// Starts the operation. Returns true if a request must be submitted.
    fn begin(&mut self) -> bool {
        let before = *self;
        *self = match before {
            Multishot::None | Multishot::UnderWay => Multishot::UnderWay,
            Multishot::Ending | Multishot::EndingForAnother => Multishot::EndingForAnother,
        };
        before == Multishot::None
    }

    /// Stops the operation. Returns true if a cancel must be submitted.
    fn end(&mut self) -> bool {
        let before = *self;
        *self = match before {
            Multishot::None => Multishot::None,
            Multishot::UnderWay | Multishot::Ending | Multishot::EndingForAnother => {
                Multishot::Ending
            }
        };
        before == Multishot::UnderWay
    }

    /// Records its end, by itself or by a cancel. Returns whether it is still wanted.
    fn ended(&mut self) -> bool {
        match std::mem::replace(self, Multishot::None) {
            Multishot::UnderWay | Multishot::EndingForAnother => true,
            Multishot::Ending | Multishot::None => false,
        }
    }
}

fn is_cancelled(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ECANCELED)
}

fn is_without_buffer(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENOBUFS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{self, TcpStream};

    /// Waits for the next completion.
    fn next(ring: &mut SocketRing) -> SocketCompletion {
        loop {
            if let Some(completion) = ring.next() {
                return completion;
            }
            ring.enter(Some(Duration::from_secs(10))).expect("the ring works");
        }
    }

    /// Runs a test on each kind of ring.
    fn on_each_ring(test: impl Fn(SocketRing, TcpListener)) {
        for kind in [RingKind::IoUring, RingKind::Epoll] {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
            let ring = SocketRing::new(kind, listener.as_fd()).expect("this kernel has both");
            test(ring, listener);
        }
    }

    fn connect(ring: &mut SocketRing, listener: &TcpListener) -> (TcpStream, OwnedFd) {
        let address = listener.local_addr().expect("it listens");
        let client = TcpStream::connect(address).expect("it listens");
        match next(ring) {
            SocketCompletion::Accepted(Ok(socket), Continues::Yes) => (client, socket),
            _ => panic!("a client is accepted, and the next one will be"),
        }
    }

    #[test]
    fn one_order_receives_all_that_a_client_sends_and_answers_are_sent() {
        on_each_ring(|mut ring, listener| {
            ring.accept(listener.as_fd());
            ring.enter(None).expect("the ring works");
            for slot in [0, 7] {
                let (mut client, socket) = connect(&mut ring, &listener);
                ring.receive(slot, socket.as_fd());
                // Many times the capacity of all buffers.
                for round in 0..1_000_u32 {
                    let sent = [round as u8; 3_000];
                    client.write_all(&sent).expect("it is received");
                    let mut bytes = 0;
                    while bytes < sent.len() {
                        let completion = next(&mut ring);
                        let SocketCompletion::Received(of, Ok(Some(filled)), Continues::Yes) =
                            completion
                        else {
                            panic!("bytes, and more to come");
                        };
                        assert_eq!(of, slot);
                        bytes += ring.read(filled, |read| {
                            assert!(read.iter().all(|byte| *byte == round as u8));
                            read.len()
                        });
                    }
                }
                ring.send(slot, socket.as_fd(), b"xanswer".to_vec(), 1);
                assert!(
                    matches!(next(&mut ring), SocketCompletion::Sent(of, Ok(6), _) if of == slot)
                );
                client.shutdown(net::Shutdown::Write).expect("it is open");
                let end = next(&mut ring);
                assert!(matches!(end, SocketCompletion::Received(_, Ok(None), Continues::No)));
                ring.release(slot);
                drop(socket);
                let mut answer = String::new();
                client.read_to_string(&mut answer).expect("it is sent");
                assert_eq!(answer, "answer");
            }
        });
    }

    #[test]
    fn a_client_waits_while_no_buffer_is_left_and_a_cancelled_receive_ends() {
        on_each_ring(|mut ring, listener| {
            ring.accept(listener.as_fd());
            ring.enter(None).expect("the ring works");
            let (mut client, socket) = connect(&mut ring, &listener);
            ring.receive(3, socket.as_fd());
            let mut kept = Vec::new();
            let error = loop {
                client.write_all(b"x").expect("the socket takes it");
                match next(&mut ring) {
                    SocketCompletion::Received(3, Ok(Some(filled)), _) => kept.push(filled),
                    SocketCompletion::Received(3, Err(error), Continues::No) => break error,
                    _ => panic!("a byte, or no buffer for it"),
                }
            };
            assert_eq!(error.raw_os_error(), Some(libc::ENOBUFS));
            kept.into_iter().for_each(|filled| ring.read(filled, |bytes| assert_eq!(bytes, b"x")));
            ring.receive(3, socket.as_fd());
            let SocketCompletion::Received(3, Ok(Some(filled)), Continues::Yes) = next(&mut ring)
            else {
                panic!("the byte that waited");
            };
            ring.read(filled, |bytes| assert_eq!(bytes, b"x"));
            ring.cancel(SocketOperation::Receive, 3);
            let SocketCompletion::Received(3, Err(error), Continues::No) = next(&mut ring) else {
                panic!("it is cancelled");
            };
            assert_eq!(error.raw_os_error(), Some(libc::ECANCELED));
        });
    }
}
