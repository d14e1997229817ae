//! Operations of a thread with a ring, as values: they are started here, executed elsewhere, and
//! finished here.
//!
//! Nothing here does I/O. The ring executes operations with the kernel, the simulator with its own
//! network. Buffers are passed by value and return with the completion, so no other code can reach
//! a buffer while it is written to. A completion waits in its slot until its future is polled;
//! there are no callbacks.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

/// A socket or eventfd for operations. It stays open while an operation on it is in flight.
pub type Handle = Arc<OwnedFd>;

/// All operations of one thread.
pub struct Operations {
    inner: RefCell<OperationTable>,
}

struct OperationTable {
    slots: Vec<OperationSlot>,
    free: Vec<u32>,
    requests: VecDeque<Request>,
}

/// An operation in flight, or its result until it is taken.
struct OperationSlot {
    /// Distinguishes this operation from earlier ones in the same slot.
    serial: u32,
    state: SlotState,
}

enum SlotState {
    Free,
    Busy,
    /// The future was dropped; the operation has not ended yet.
    Abandoned,
    Done(Completed),
}

/// Identifies an operation from start to completion: the `user_data` of its ring entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserData {
    /// A small number, unique among the operations in flight.
    pub slot: u32,
    serial: u32,
}

/// A request to the ring. Requests are executed in order.
pub enum Request {
    /// Start this task, and [`Operations::finish`] it eventually.
    Start(UserData, Task),
    /// Finish the operation soon, with its result so far. It may have ended already.
    Cancel(UserData),
    /// Ring another thread's eventfd, which is non-blocking. The result is ignored.
    RingBell(Handle),
}

/// One operation.
pub enum Task {
    /// Receive into `buffer[from..]`; the result is the number of bytes, 0 at the end of stream.
    Receive { socket: Handle, buffer: Vec<u8>, from: usize },
    /// Receive until `range` of the buffer is filled; less only at the end of stream or an error.
    ReceiveAll { socket: Handle, buffer: Vec<u8>, range: Range<usize> },
    /// Send `buffer[from..]`; the result is the number of bytes accepted.
    Send { socket: Handle, buffer: Vec<u8>, from: usize },
    /// Read an eventfd into `buffer`, 8 bytes, which resets it; the result is 8.
    ReadBell { bell: Handle, buffer: Vec<u8> },
}

impl Task {
    /// The socket or eventfd.
    pub(super) fn handle(&self) -> &Handle {
        match self {
            Task::Receive { socket, .. }
            | Task::ReceiveAll { socket, .. }
            | Task::Send { socket, .. } => socket,
            Task::ReadBell { bell, .. } => bell,
        }
    }

    /// Takes the buffer out.
    pub(super) fn into_buffer(self) -> Vec<u8> {
        match self {
            Task::Receive { buffer, .. }
            | Task::ReceiveAll { buffer, .. }
            | Task::Send { buffer, .. }
            | Task::ReadBell { buffer, .. } => buffer,
        }
    }
}

/// The result of an operation.
pub struct Completed {
    /// A count, or an error.
    pub result: io::Result<usize>,
    /// The operation's buffer; empty if it had none.
    pub buffer: Vec<u8>,
}

impl Operations {
    /// Creates an empty table.
    pub fn new() -> Rc<Operations> {
        let inner =
            OperationTable { slots: Vec::new(), free: Vec::new(), requests: VecDeque::new() };
        Rc::new(Operations { inner: RefCell::new(inner) })
    }

    /// Receives into `buffer[from..]`; the result is the number of bytes, 0 at the end of stream.
    pub fn receive(
        self: &Rc<Operations>,
        socket: &Handle,
        buffer: Vec<u8>,
        from: usize,
    ) -> Operation {
        self.start(Task::Receive { socket: socket.clone(), buffer, from })
    }

    /// Receives until `range` of the buffer is filled; less only at the end of stream or an error.
    pub fn receive_all(
        self: &Rc<Operations>,
        socket: &Handle,
        buffer: Vec<u8>,
        range: Range<usize>,
    ) -> Operation {
        self.start(Task::ReceiveAll { socket: socket.clone(), buffer, range })
    }

    /// Sends `buffer[from..]`; the result is the number of bytes accepted.
    pub fn send(self: &Rc<Operations>, socket: &Handle, buffer: Vec<u8>, from: usize) -> Operation {
        self.start(Task::Send { socket: socket.clone(), buffer, from })
    }

    /// Reads an eventfd into `buffer`, 8 bytes, which resets it; the result is 8.
    pub(crate) fn read_bell(self: &Rc<Operations>, bell: &Handle, buffer: Vec<u8>) -> Operation {
        assert!(buffer.len() == size_of::<u64>());
        self.start(Task::ReadBell { bell: bell.clone(), buffer })
    }

    /// Rings another thread's eventfd. The result is ignored: an eventfd write fails only at a
    /// count of 2^64 - 1. The eventfd must be non-blocking; otherwise the kernel would use a worker
    /// thread.
    pub fn ring_bell(&self, bell: &Handle) {
        self.inner.borrow_mut().requests.push_back(Request::RingBell(bell.clone()));
    }

    fn start(self: &Rc<Operations>, task: Task) -> Operation {
        let mut inner = self.inner.borrow_mut();
        let user_data = inner.take_slot();
        inner.requests.push_back(Request::Start(user_data, task));
        drop(inner);
        Operation { operations: self.clone(), user_data, finished: false }
    }

    /// For the ring: takes the next request.
    pub fn take_order(&self) -> Option<Request> {
        self.inner.borrow_mut().requests.pop_front()
    }

    /// For the ring: whether there is a request.
    pub(crate) fn has_orders(&self) -> bool {
        !self.inner.borrow().requests.is_empty()
    }

    /// For the ring: finishes an operation. Each is finished once, even a cancelled one.
    pub fn finish(&self, user_data: UserData, completed: Completed) {
        let mut inner = self.inner.borrow_mut();
        let slot = &mut inner.slots[user_data.slot as usize];
        assert!(slot.serial == user_data.serial);
        match slot.state {
            SlotState::Busy => slot.state = SlotState::Done(completed),
            SlotState::Abandoned => {
                slot.state = SlotState::Free;
                inner.free.push(user_data.slot);
            }
            SlotState::Free | SlotState::Done(_) => unreachable!("one completion each"),
        }
    }
}

impl OperationTable {
    fn take_slot(&mut self) -> UserData {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(OperationSlot { serial: 0, state: SlotState::Free });
            u32::try_from(self.slots.len() - 1).expect("operations are few")
        });
        let slot = &mut self.slots[index as usize];
        assert!(matches!(slot.state, SlotState::Free));
        slot.serial = slot.serial.wrapping_add(1) & 0x7fff_ffff;
        slot.state = SlotState::Busy;
        UserData { slot: index, serial: slot.serial }
    }
}

impl UserData {
    /// Encodes the value as one number, never all ones.
    pub(crate) fn to_bits(self) -> u64 {
        u64::from(self.serial) << 32 | u64::from(self.slot)
    }

    /// Decodes the result of [`UserData::to_bits`].
    pub(crate) fn from_bits(bits: u64) -> UserData {
        UserData { slot: bits as u32, serial: (bits >> 32) as u32 }
    }
}

impl Completed {
    /// Creates the result of an operation.
    pub fn new(result: io::Result<usize>, buffer: Vec<u8>) -> Completed {
        Completed { result, buffer }
    }
}

/// An operation in flight. Dropping it early cancels it and discards its result.
///
/// It stores no waker: the ring's loop polls the root future after each completion, and that polls
/// its stages.
pub struct Operation {
    operations: Rc<Operations>,
    user_data: UserData,
    finished: bool,
}

impl Operation {
    /// Ends the operation soon. Its result says how much was received or sent until then.
    pub(crate) fn cancel(&self) {
        assert!(!self.finished);
        self.operations.inner.borrow_mut().requests.push_back(Request::Cancel(self.user_data));
    }
}

impl Future for Operation {
    type Output = Completed;

    fn poll(mut self: Pin<&mut Operation>, _context: &mut Context<'_>) -> Poll<Completed> {
        assert!(!self.finished);
        let operations = self.operations.clone();
        let mut inner = operations.inner.borrow_mut();
        let slot = &mut inner.slots[self.user_data.slot as usize];
        if !matches!(slot.state, SlotState::Done(_)) {
            return Poll::Pending;
        }
        let SlotState::Done(completed) = std::mem::replace(&mut slot.state, SlotState::Free) else {
            unreachable!("just looked at");
        };
        inner.free.push(self.user_data.slot);
        self.finished = true;
        Poll::Ready(completed)
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        let mut inner = self.operations.inner.borrow_mut();
        let slot = &mut inner.slots[self.user_data.slot as usize];
        if matches!(slot.state, SlotState::Done(_)) {
            slot.state = SlotState::Free;
            inner.free.push(self.user_data.slot);
            return;
        }
        slot.state = SlotState::Abandoned;
        inner.requests.push_back(Request::Cancel(self.user_data));
    }
}
