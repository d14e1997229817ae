//! Thousands of clients by plain system calls, for hosts that forbid io_uring.
//!
//! A client's socket is watched for edges from its first operation until its slot is released. An
//! operation is tried when it is started, and again each time that epoll reports its socket.

#![allow(unsafe_code)]

use crate::runtime::epoll_ring::wait_for;
use crate::runtime::ring_error::RingError;
use crate::runtime::socket_ring::{
    FilledBuffer, SHARED_BUFFER_BYTES, SHARED_BUFFERS, SocketOperation,
};
use crate::runtime::sockets::{Continues, SocketCompletion};
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::{Errno, ioctl_fionbio};
use rustix::net::{RecvFlags, SendFlags, SocketFlags, accept_with, recv, send};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

/// Events that one call fetches. What is left over is fetched by the next one.
const EVENTS: usize = 512;

/// Clients that are accepted at one event, so that others are served in between.
const ACCEPTED_MAX: usize = 64;

/// Marks the events of the listener and of the bell. An event of a client carries its slot.
const LISTENER: u64 = u64::MAX;
const BELL: u64 = u64::MAX - 1;

/// A ring for clients, on epoll.
pub(crate) struct EpollSockets {
    epoll: OwnedFd,
    events: Vec<Event>,
    /// By slot.
    clients: Vec<WatchedClient>,
    /// Slots from which there may be something to receive.
    unread: VecDeque<u32>,
    /// Slots whose buffers are not tried yet.
    unsent: VecDeque<u32>,
    listener: Option<RawFd>,
    is_accepting: bool,
    bell: Option<RawFd>,
    buffers: Box<[u8]>,
    /// Numbers of the buffers without bytes.
    free: Vec<u16>,
    /// Ended sends, which are processed first, because their buffers serve the next answers.
    sent: VecDeque<SocketCompletion>,
    ended: VecDeque<SocketCompletion>,
}

/// A client's socket and its operations.
#[derive(Default)]
struct WatchedClient {
    /// Its number, as long as it is watched.
    socket: Option<RawFd>,
    is_receiving: bool,
    /// True if its slot is in `unread`.
    is_unread: bool,
    /// The buffer, and the start of the bytes that wait to be sent.
    sending: Option<(Vec<u8>, usize)>,
}

impl EpollSockets {
    /// Creates a ring for the calling thread.
    pub(super) fn new(listener: BorrowedFd) -> Result<EpollSockets, RingError> {
        // A client that was reported may have gone before it is accepted.
        ioctl_fionbio(listener, true).map_err(RingError::of_epoll)?;
        Ok(EpollSockets {
            epoll: epoll::create(CreateFlags::CLOEXEC).map_err(RingError::of_epoll)?,
            events: Vec::with_capacity(EVENTS),
            clients: Vec::new(),
            unread: VecDeque::new(),
            unsent: VecDeque::new(),
            listener: None,
            is_accepting: false,
            bell: None,
            buffers: vec![0; usize::from(SHARED_BUFFERS) * SHARED_BUFFER_BYTES].into(),
            free: (0..SHARED_BUFFERS).collect(),
            sent: VecDeque::new(),
            ended: VecDeque::new(),
        })
    }

    pub(super) fn accept(&mut self, listener: BorrowedFd) {
        let watched = match self.listener {
            Some(_) => epoll::modify(&self.epoll, listener, listens(), EventFlags::IN),
            None => epoll::add(&self.epoll, listener, listens(), EventFlags::IN),
        };
        match watched {
            Ok(()) => (self.listener, self.is_accepting) = (Some(listener.as_raw_fd()), true),
            Err(error) => self.stop_accepting(error),
        }
    }

    /// No client is accepted until it is asked for again.
    fn stop_accepting(&mut self, error: Errno) {
        if let Some(listener) = self.listener {
            // Should epoll still report it, `try_to_accept` accepts nobody.
            let _ = epoll::modify(&self.epoll, open(listener), listens(), EventFlags::empty());
        }
        self.is_accepting = false;
        self.ended.push_back(SocketCompletion::Accepted(Err(error.into()), Continues::No));
    }

    pub(super) fn receive(&mut self, slot: u32, socket: BorrowedFd) {
        match self.watch(slot, socket) {
            Ok(client) => client.is_receiving = true,
            Err(error) => return self.end_receiving(slot, Err(error.into())),
        }
        self.unread(slot);
    }

    pub(super) fn send(&mut self, slot: u32, socket: BorrowedFd, buffer: Vec<u8>, from: usize) {
        match self.watch(slot, socket) {
            Ok(client) => {
                assert!(from < buffer.len() && client.sending.is_none());
                client.sending = Some((buffer, from));
                // The others have their turn before this client can ask for more.
                self.unsent.push_back(slot);
            }
            Err(error) => {
                self.sent.push_back(SocketCompletion::Sent(slot, Err(error.into()), buffer));
            }
        }
    }

    /// Watches the bell. Each event reads its eventfd, which resets it.
    pub(super) fn read_bell(&mut self, bell: BorrowedFd) {
        if self.bell.is_none() {
            let flags = EventFlags::IN | EventFlags::ET;
            epoll::add(&self.epoll, bell, EventData::new_u64(BELL), flags)
                .expect("a new epoll watches an eventfd");
            self.bell = Some(bell.as_raw_fd());
        }
    }

    pub(super) fn cancel(&mut self, operation: SocketOperation, slot: u32) {
        match operation {
            SocketOperation::Accept if self.is_accepting => self.stop_accepting(Errno::CANCELED),
            SocketOperation::Receive if self.clients[slot as usize].is_receiving => {
                self.end_receiving(slot, Err(Errno::CANCELED.into()));
            }
            SocketOperation::Send => {
                if let Some((buffer, _)) = self.clients[slot as usize].sending.take() {
                    let cancelled = Err(Errno::CANCELED.into());
                    self.sent.push_back(SocketCompletion::Sent(slot, cancelled, buffer));
                }
            }
            // It has ended already.
            SocketOperation::Accept | SocketOperation::Receive => {}
        }
    }

    /// Forgets a socket. Closing it takes it out of epoll.
    pub(super) fn release(&mut self, slot: u32) {
        if let Some(client) = self.clients.get_mut(slot as usize) {
            assert!(!client.is_receiving && client.sending.is_none());
            client.socket = None;
        }
    }

    /// Waits at most `wait` for sockets (`None`: does not wait), and tries their operations.
    pub(super) fn enter(&mut self, wait: Option<Duration>) -> Result<(), RingError> {
        while let Some(slot) = self.unsent.pop_front() {
            self.try_to_send(slot);
        }
        // A client that has sent much is read on after the others.
        for _ in 0..self.unread.len() {
            let slot = self.unread.pop_front().expect("this many");
            self.clients[slot as usize].is_unread = false;
            self.try_to_receive(slot);
        }
        let has_work = self.has_work();
        wait_for(&self.epoll, &mut self.events, wait.filter(|_| !has_work))?;
        for at in 0..self.events.len() {
            match self.events[at].data.u64() {
                LISTENER => self.try_to_accept(),
                BELL => self.take_ring(),
                slot => {
                    self.try_to_send(slot as u32);
                    self.try_to_receive(slot as u32);
                }
            }
        }
        Ok(())
    }

    /// Returns whether there is something to process. Only a call shows if more sockets are ready.
    pub(super) fn has_work(&self) -> bool {
        let has_ended = !self.sent.is_empty() || !self.ended.is_empty();
        has_ended || !self.unread.is_empty() || !self.unsent.is_empty()
    }

    pub(super) fn next(&mut self) -> Option<SocketCompletion> {
        self.sent.pop_front().or_else(|| self.ended.pop_front())
    }

    pub(super) fn read<T>(&mut self, filled: FilledBuffer, read: impl FnOnce(&[u8]) -> T) -> T {
        let begin = usize::from(filled.number) * SHARED_BUFFER_BYTES;
        let done = read(&self.buffers[begin..begin + filled.bytes]);
        self.free.push(filled.number);
        done
    }

    /// Watches a client's socket, unless that is done.
    fn watch(&mut self, slot: u32, socket: BorrowedFd) -> Result<&mut WatchedClient, Errno> {
        let at = slot as usize;
        if at >= self.clients.len() {
            self.clients.resize_with(at + 1, WatchedClient::default);
        }
        let client = &mut self.clients[at];
        if client.socket.is_none() {
            let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
            epoll::add(&self.epoll, socket, EventData::new_u64(slot.into()), flags)?;
            client.socket = Some(socket.as_raw_fd());
        }
        Ok(client)
    }

    fn unread(&mut self, slot: u32) {
        if !std::mem::replace(&mut self.clients[slot as usize].is_unread, true) {
            self.unread.push_back(slot);
        }
    }

    fn try_to_accept(&mut self) {
        for _ in 0..ACCEPTED_MAX {
            let Some(listener) = self.listener.filter(|_| self.is_accepting) else { return };
            match accept_with(open(listener), SocketFlags::CLOEXEC) {
                Ok(socket) => {
                    let accepted = SocketCompletion::Accepted(Ok(socket), Continues::Yes);
                    self.ended.push_back(accepted);
                }
                Err(Errno::AGAIN) => return,
                // A client that has gone meanwhile is no reason to stop.
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(error) => self.stop_accepting(error),
            }
        }
    }

    fn take_ring(&mut self) {
        let bell = open(self.bell.expect("it is watched"));
        // If there is nothing to read, the thread is awake anyway.
        let _rung = rustix::io::read(bell, &mut [0; size_of::<u64>()]);
        self.ended.push_back(SocketCompletion::Rung);
    }

    /// Receives until nothing is left, or a whole buffer is filled.
    fn try_to_receive(&mut self, slot: u32) {
        loop {
            let client = &self.clients[slot as usize];
            let Some(socket) = client.socket.filter(|_| client.is_receiving) else { return };
            let Some(&number) = self.free.last() else {
                return self.end_receiving(slot, Err(Errno::NOBUFS.into()));
            };
            let begin = usize::from(number) * SHARED_BUFFER_BYTES;
            let room = &mut self.buffers[begin..begin + SHARED_BUFFER_BYTES];
            match recv(open(socket), room, RecvFlags::DONTWAIT) {
                Ok((0, _)) => return self.end_receiving(slot, Ok(None)),
                Ok((bytes, _)) => {
                    self.free.pop();
                    let filled = FilledBuffer { number, bytes, taken_at: Instant::now() };
                    let received =
                        SocketCompletion::Received(slot, Ok(Some(filled)), Continues::Yes);
                    self.ended.push_back(received);
                    if bytes == SHARED_BUFFER_BYTES {
                        return self.unread(slot);
                    }
                }
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR) => {}
                Err(error) => return self.end_receiving(slot, Err(error.into())),
            }
        }
    }

    fn end_receiving(&mut self, slot: u32, end: io::Result<Option<FilledBuffer>>) {
        if let Some(client) = self.clients.get_mut(slot as usize) {
            client.is_receiving = false;
        }
        self.ended.push_back(SocketCompletion::Received(slot, end, Continues::No));
    }

    fn try_to_send(&mut self, slot: u32) {
        loop {
            let client = &mut self.clients[slot as usize];
            let WatchedClient { socket: Some(socket), sending: Some((buffer, from)), .. } = client
            else {
                return;
            };
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            let result = match send(open(*socket), &buffer[*from..], flags) {
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR) => continue,
                result => result.map_err(io::Error::from),
            };
            let (buffer, _) = client.sending.take().expect("it was sent from");
            self.sent.push_back(SocketCompletion::Sent(slot, result, buffer));
            return;
        }
    }
}

fn listens() -> EventData {
    EventData::new_u64(LISTENER)
}

/// Borrows a descriptor that this ring watches.
fn open<'a>(number: RawFd) -> BorrowedFd<'a> {
    // SAFETY: the caller of the ring keeps a listener and a bell open as long as the ring exists,
    // and a client's socket until it has released its slot.
    unsafe { BorrowedFd::borrow_raw(number) }
}
