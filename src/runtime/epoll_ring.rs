//! The operations of a thread as plain system calls, for hosts that forbid io_uring.
//!
//! An operation is tried when it is started, and again each time that epoll reports its socket. As
//! sockets are watched for edges, one registration lasts as long as a socket is in use.

use crate::runtime::operations::{Completed, Handle, Operations, Request, Task, UserData};
use crate::runtime::ring_error::RingError;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustix::time::Timespec;
use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Events that one call fetches. What is left over is fetched by the next one.
const EVENTS: usize = 64;

/// A ring on epoll.
pub struct EpollRing {
    operations: Rc<Operations>,
    inner: RefCell<EpollState>,
    enters: Cell<u64>,
}

struct EpollState {
    epoll: OwnedFd,
    events: Vec<Event>,
    /// The operations that wait for their socket, by slot.
    waiting: Vec<Option<PendingOperation>>,
    /// The sockets and bells that epoll watches. Closed ones may still be listed.
    watched: Vec<Weak<OwnedFd>>,
}

/// An operation that waits for its socket.
struct PendingOperation {
    user_data: UserData,
    task: Task,
    /// Bytes received so far.
    received: usize,
}

impl EpollRing {
    /// Creates a ring for the calling thread.
    pub(super) fn new(operations: Rc<Operations>) -> Result<EpollRing, RingError> {
        let inner = EpollState {
            epoll: epoll::create(CreateFlags::CLOEXEC).map_err(RingError::of_epoll)?,
            events: Vec::with_capacity(EVENTS),
            waiting: Vec::new(),
            watched: Vec::new(),
        };
        Ok(EpollRing { operations, inner: RefCell::new(inner), enters: Cell::new(0) })
    }

    /// Number of `epoll_pwait` calls.
    pub(super) fn enters(&self) -> u64 {
        self.enters.get()
    }

    /// Starts the requested operations, waits at most `wait` for a socket (`None`: does not wait),
    /// and finishes all operations that have ended.
    pub(super) fn enter(&self, wait: Option<Duration>) -> Result<(), RingError> {
        let mut inner = self.inner.borrow_mut();
        let mut has_ended = false;
        while let Some(order) = self.operations.take_order() {
            has_ended |= self.carry_out(&mut inner, order)?;
        }
        let end = wait.filter(|_| !has_ended).map(|wait| Instant::now() + wait);
        loop {
            let rest = end.map(|end| end.saturating_duration_since(Instant::now()));
            self.enters.set(self.enters.get() + 1);
            let EpollState { epoll, events, .. } = &mut *inner;
            wait_for(epoll, events, rest)?;
            let has_ended = self.try_reported(&mut inner);
            // A part of what an operation waits for is nothing that a stage could go on with.
            if has_ended || inner.events.is_empty() || end.is_none() {
                return Ok(());
            }
        }
    }

    /// Tries the operations on the sockets that epoll has reported. Returns whether one has ended.
    fn try_reported(&self, inner: &mut EpollState) -> bool {
        let mut has_ended = false;
        for at in 0..inner.events.len() {
            let socket = inner.events[at].data.u64() as RawFd;
            for slot in 0..inner.waiting.len() {
                if inner.waiting[slot].as_ref().is_some_and(|one| one.is_of(socket)) {
                    has_ended |= self.try_again(inner, slot);
                }
            }
        }
        has_ended
    }

    /// Returns whether an operation has ended.
    fn carry_out(&self, inner: &mut EpollState, order: Request) -> Result<bool, RingError> {
        match order {
            Request::Start(user_data, task) => {
                inner.watch(&task)?;
                let slot = user_data.slot as usize;
                if slot >= inner.waiting.len() {
                    inner.waiting.resize_with(slot + 1, || None);
                }
                let waiting = PendingOperation { user_data, task, received: 0 };
                assert!(inner.waiting[slot].replace(waiting).is_none());
                Ok(self.try_again(inner, slot))
            }
            Request::Cancel(user_data) => {
                let waiting = inner.waiting.get_mut(user_data.slot as usize);
                let waiting = waiting.and_then(|one| one.take_if(|one| one.user_data == user_data));
                let Some(PendingOperation { task, received, .. }) = waiting else {
                    return Ok(false);
                };
                let result = match received {
                    0 => Err(io::Error::from_raw_os_error(libc::ECANCELED)),
                    _ => Ok(received),
                };
                self.operations.finish(user_data, Completed::new(result, task.into_buffer()));
                Ok(true)
            }
            Request::RingBell(bell) => {
                // A write fails only if the bell has been rung 2^64 - 1 times, so it is rung.
                let _rung = rustix::io::write(&*bell, &1_u64.to_ne_bytes());
                Ok(false)
            }
        }
    }

    /// Tries an operation, and finishes it unless it has to wait. Returns whether it has ended.
    fn try_again(&self, inner: &mut EpollState, slot: usize) -> bool {
        let waiting = inner.waiting[slot].as_mut().expect("it waits");
        let Some(result) = waiting.attempt() else { return false };
        let PendingOperation { user_data, task, .. } =
            inner.waiting[slot].take().expect("it waits");
        self.operations.finish(user_data, Completed::new(result, task.into_buffer()));
        true
    }
}

impl EpollState {
    /// Watches the socket or bell of a task, unless that is done.
    fn watch(&mut self, task: &Task) -> Result<(), RingError> {
        let handle = task.handle();
        if self.watched.iter().any(|watched| watched.as_ptr() == Arc::as_ptr(handle)) {
            return Ok(());
        }
        // Closing the others has taken them out of epoll.
        self.watched.retain(|watched| watched.strong_count() > 0);
        let flags = match task {
            // To read a bell makes it writable.
            Task::ReadBell { .. } => EventFlags::IN | EventFlags::ET,
            _ => EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET,
        };
        let number = EventData::new_u64(handle.as_raw_fd() as u64);
        match epoll::add(&self.epoll, &**handle, number, flags) {
            // It is watched already: this number names the same open file as before.
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(RingError::of_epoll(error)),
        }
        self.watched.push(Arc::downgrade(handle));
        Ok(())
    }
}

impl PendingOperation {
    fn is_of(&self, socket: RawFd) -> bool {
        self.task.handle().as_raw_fd() == socket
    }

    /// Executes as much as is possible now. Returns the result once the operation has ended.
    fn attempt(&mut self) -> Option<io::Result<usize>> {
        loop {
            let done = match &mut self.task {
                Task::Receive { socket, buffer, from } => receive(socket, &mut buffer[*from..]),
                Task::ReceiveAll { socket, buffer, range } => {
                    let begin = range.start + self.received;
                    match receive(socket, &mut buffer[begin..range.end]) {
                        Ok(bytes @ 1..) if begin + bytes < range.end => {
                            self.received += bytes;
                            continue;
                        }
                        Ok(bytes) => Ok(self.received + bytes),
                        Err(error @ (Errno::AGAIN | Errno::INTR)) => Err(error),
                        Err(_) if self.received > 0 => Ok(self.received),
                        Err(error) => Err(error),
                    }
                }
                Task::Send { socket, buffer, from } => {
                    send(&**socket, &buffer[*from..], SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
                }
                Task::ReadBell { bell, buffer } => rustix::io::read(&**bell, &mut buffer[..]),
            };
            match done {
                Err(Errno::AGAIN) => return None,
                Err(Errno::INTR) => {}
                done => return Some(done.map_err(io::Error::from)),
            }
        }
    }
}

fn receive(socket: &Handle, room: &mut [u8]) -> Result<usize, Errno> {
    recv(&**socket, room, RecvFlags::DONTWAIT).map(|(bytes, _)| bytes)
}

/// Waits at most this long for events, and fetches them.
pub(super) fn wait_for(
    epoll: &OwnedFd,
    events: &mut Vec<Event>,
    wait: Option<Duration>,
) -> Result<(), RingError> {
    events.clear();
    // rustix rounds it up to milliseconds.
    let wait = Timespec::try_from(wait.unwrap_or_default()).expect("a wait of less than centuries");
    match epoll::wait(epoll, spare_capacity(events), Some(&wait)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(RingError::of_epoll(error)),
    }
}
