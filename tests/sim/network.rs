//! One daemon's connections: carries out what its hot thread asks of the kernel.
//!
//! Bytes arrive in pieces and late. Connections are refused, break, and bring bytes that are no
//! answer.

use crate::answers::Answer;
use crate::broker::Broker;
use crate::chance::{Chance, Fault, Sight};
use crate::node::Common;
use huntd::runtime::operations::{Completed, Handle, Operations, Request, Task, UserData};
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::sync::Arc;

/// A daemon's network.
pub(crate) struct Network {
    sockets: Vec<Socket>,
    /// Operations that end at a certain time.
    ending: Vec<(u64, UserData, Completed)>,
    /// The last whole answer that any connection brought.
    last_answer: Vec<u8>,
    /// Whole requests of connections that are gone, with the broker that may still take them.
    left: Vec<(i32, Vec<u8>)>,
    /// What descriptors are copies of: nothing is ever read from it.
    nothing: Rc<File>,
    is_traced: bool,
}

struct Socket {
    is_traced: bool,
    handle: Handle,
    node_id: i32,
    /// How often the broker had moved by then.
    moves: u32,
    /// Bytes of requests that the broker has not taken yet.
    requests: Vec<u8>,
    /// Pieces of answers, each with the time from which on it is there.
    pieces: VecDeque<(u64, Vec<u8>)>,
    /// A Fetch that waits for records or a Produce that waits for replicas, and until when.
    held: Option<(u64, Vec<u8>, u64)>,
    /// From this time on the connection is broken, once what came before is read.
    broken_at: Option<u64>,
    /// When its authentication expires: then the broker closes it (KIP-368).
    expires_at: Option<u64>,
    receive: Option<Receive>,
}

struct Receive {
    user_data: UserData,
    buffer: Vec<u8>,
    /// Where the first byte goes, and where the next one does.
    start: usize,
    from: usize,
    /// How far the buffer must be filled; `None`: any byte will do.
    until: Option<usize>,
}

impl Network {
    pub(crate) fn new(common: &Common) -> Network {
        Network {
            sockets: Vec::new(),
            ending: Vec::new(),
            last_answer: Vec::new(),
            left: Vec::new(),
            nothing: common.nothing.clone(),
            is_traced: common.is_traced,
        }
    }

    /// Begins what the hot thread has asked for.
    pub(crate) fn take_orders(&mut self, operations: &Operations, chance: &mut Chance, now: u64) {
        while let Some(order) = operations.take_order() {
            match order {
                Request::Start(user_data, task) => self.start(chance, now, user_data, task),
                Request::Cancel(user_data) => self.cancel(now, user_data),
                Request::RingBell(_) => unreachable!("the bell is rung by the loop"),
            }
        }
    }

    fn start(&mut self, chance: &mut Chance, now: u64, user_data: UserData, task: Task) {
        let at = now + chance.delay_us();
        match task {
            Task::Send { socket, buffer, from } => {
                self.send(chance, at, user_data, &socket, buffer, from)
            }
            Task::Receive { socket, buffer, from } => {
                let receive = Receive { user_data, buffer, start: from, from, until: None };
                self.socket(&socket).receive = Some(receive);
            }
            Task::ReceiveAll { socket, buffer, range } => {
                let (start, until) = (range.start, Some(range.end));
                let receive = Receive { user_data, buffer, start, from: start, until };
                self.socket(&socket).receive = Some(receive);
            }
            Task::ReadBell { .. } => unreachable!("the bell is read by the loop"),
        }
    }

    fn socket(&mut self, handle: &Handle) -> &mut Socket {
        let fd = handle.as_raw_fd();
        let found = self.sockets.iter_mut().find(|socket| socket.handle.as_raw_fd() == fd);
        found.expect("sockets are connected before they are used")
    }

    /// Opens a connection to a broker, which closes it when its authentication expires.
    pub(crate) fn open(
        &mut self,
        broker: &Broker,
        node_id: i32,
        expires_at: Option<u64>,
    ) -> Handle {
        let descriptor = self.nothing.try_clone().expect("a descriptor is left");
        let handle: Handle = Arc::new(descriptor.into());
        self.sockets.push(Socket {
            is_traced: self.is_traced,
            handle: handle.clone(),
            node_id,
            moves: broker.moves[node_id as usize - 1],
            requests: Vec::new(),
            pieces: VecDeque::new(),
            held: None,
            broken_at: None,
            expires_at,
            receive: None,
        });
        handle
    }

    fn send(
        &mut self,
        chance: &mut Chance,
        at: u64,
        user_data: UserData,
        handle: &Handle,
        buffer: Vec<u8>,
        from: usize,
    ) {
        let left = buffer.len() - from;
        let count = if chance.one_in(10) { 1 + chance.below(left as u64) as usize } else { left };
        let breaks = chance.strikes(Fault::ConnectionReset);
        let socket = self.socket(handle);
        socket.requests.extend_from_slice(&buffer[from..from + count]);
        if breaks {
            socket.broken_at = Some(at);
        }
        self.ending.push((at, user_data, Completed::new(Ok(count), buffer)));
    }

    /// What was sent or received until now counts.
    fn cancel(&mut self, now: u64, user_data: UserData) {
        if let Some((at, ..)) = self.ending.iter_mut().find(|(_, of, _)| *of == user_data) {
            *at = now;
        }
        for socket in &mut self.sockets {
            if let Some(receive) = socket.receive.take_if(|it| it.user_data == user_data) {
                let result = match receive.from - receive.start {
                    0 => Err(io::ErrorKind::Interrupted.into()),
                    count => Ok(count),
                };
                self.ending.push((now, user_data, Completed::new(result, receive.buffer)));
            }
        }
    }

    /// Lets brokers answer and bytes arrive. Whether an operation has ended.
    pub(crate) fn deliver(
        &mut self,
        operations: &Operations,
        broker: &mut Broker,
        chance: &mut Chance,
        now: u64,
    ) -> bool {
        let mut moved = false;
        while let Some(at) = self.ending.iter().position(|(at, ..)| *at <= now) {
            let (_, user_data, completed) = self.ending.swap_remove(at);
            operations.finish(user_data, completed);
            moved = true;
        }
        for socket in &mut self.sockets {
            socket.serve(broker, chance, now, &mut self.last_answer);
            moved |= socket.fill(operations, chance, now);
        }
        let is_gone = |socket: &&mut Socket| {
            Arc::strong_count(&socket.handle) == 1 || socket.broken_at.is_some()
        };
        for socket in self.sockets.iter_mut().filter(is_gone) {
            let node_id = socket.node_id;
            if socket.broken_at.is_none() && socket.holds_produce() {
                chance.see(Sight::ProduceAbandoned);
            }
            let requests = std::iter::from_fn(|| socket.take_request());
            self.left.extend(requests.map(|request| (node_id, request)));
        }
        // A handle that nobody else has is a connection that was dropped.
        self.sockets
            .retain(|socket| Arc::strong_count(&socket.handle) > 1 || socket.receive.is_some());
        moved
    }

    /// Whether this connection is in use and nothing is wrong with it.
    pub(crate) fn is_whole(&self, handle: &Handle) -> bool {
        let fd = handle.as_raw_fd();
        let found = self.sockets.iter().find(|socket| socket.handle.as_raw_fd() == fd);
        found.is_some_and(|socket| socket.broken_at.is_none())
    }

    /// Breaks the connections on which something was sent that no broker has read.
    pub(crate) fn break_unread(&mut self, now: u64) {
        for socket in self.sockets.iter_mut().filter(|socket| !socket.requests.is_empty()) {
            socket.broken_at.get_or_insert(now);
        }
    }

    /// Requests that were sent before connections were lost, and that nobody had read.
    pub(crate) fn take_left(&mut self) -> Vec<(i32, Vec<u8>)> {
        std::mem::take(&mut self.left)
    }

    /// The process is gone: all that it had sent.
    pub(crate) fn die(mut self) -> Vec<(i32, Vec<u8>)> {
        for socket in &mut self.sockets {
            let node_id = socket.node_id;
            let requests = std::iter::from_fn(|| socket.take_request());
            self.left.extend(requests.map(|request| (node_id, request)));
        }
        self.left
    }

    /// When something will happen here by itself.
    pub(crate) fn next_at(&self) -> Option<u64> {
        let ending = self.ending.iter().map(|(at, ..)| *at);
        ending.chain(self.sockets.iter().filter_map(Socket::next_at)).min()
    }

    /// Whether a broker holds a request back that it may be able to answer now.
    pub(crate) fn is_held_back(&self) -> bool {
        self.sockets.iter().any(|socket| socket.held.is_some())
    }
}

impl Socket {
    fn next_at(&self) -> Option<u64> {
        let piece = self.pieces.front().map(|(at, _)| *at);
        let held = self.held.as_ref().map(|(until, ..)| *until);
        let broken = self.broken_at.filter(|_| self.pieces.is_empty());
        let waiting = self.receive.is_some();
        let expires = self.expires_at.filter(|_| self.broken_at.is_none());
        [piece.or(broken).filter(|_| waiting), held, expires].into_iter().flatten().min()
    }

    /// Takes whole requests and answers them, one after the other.
    fn serve(&mut self, broker: &mut Broker, chance: &mut Chance, now: u64, last: &mut Vec<u8>) {
        if self.moves != broker.moves[self.node_id as usize - 1] {
            self.broken_at.get_or_insert(now);
        }
        if self.expires_at.is_some_and(|at| at <= now) {
            self.broken_at.get_or_insert(now);
        }
        if self.broken_at.is_some() {
            return;
        }
        if let Some((until, request, seen)) = self.held.take() {
            if now < until && seen == broker.changes {
                self.held = Some((until, request, seen));
                return;
            }
            self.respond(broker, chance, now, request, now >= until, last);
            if let Some((held_until, ..)) = &mut self.held {
                *held_until = until;
            }
        }
        while self.held.is_none()
            && self.broken_at.is_none()
            && let Some(request) = self.take_request()
        {
            self.respond(broker, chance, now, request, false, last);
        }
    }

    fn holds_produce(&self) -> bool {
        self.held.as_ref().is_some_and(|(_, request, _)| request.starts_with(&[0, 0]))
    }

    /// The next whole request, its length left out.
    fn take_request(&mut self) -> Option<Vec<u8>> {
        let end = 4 + u32::from_be_bytes(*self.requests.first_chunk()?) as usize;
        (self.requests.len() >= end).then(|| self.requests.drain(..end).skip(4).collect())
    }

    fn respond(
        &mut self,
        broker: &mut Broker,
        chance: &mut Chance,
        now: u64,
        request: Vec<u8>,
        is_late: bool,
        last: &mut Vec<u8>,
    ) {
        let mut bytes = match broker.answer(chance, self.node_id, &request, is_late) {
            Answer::Bytes(bytes) => bytes,
            Answer::Hold(wait_ms) => {
                self.held = Some((now + wait_ms * 1000 + 1, request, broker.changes));
                return;
            }
        };
        if self.is_traced {
            println!("{now:>12} broker {} answers API {}", self.node_id, request[1]);
        }
        let mut at = now + chance.delay_us();
        if chance.strikes(Fault::ResponseDelayed) {
            at += chance.pick(&[100_000, 2_000_000, 40_000_000]);
        }
        if chance.strikes(Fault::ResponseRepeated) && !last.is_empty() {
            bytes.clone_from(last);
        } else {
            last.clone_from(&bytes);
        }
        if chance.strikes(Fault::LengthLies) {
            let lie: [u32; 4] = [0, u32::MAX, 1 << 24, bytes.len() as u32 + 3];
            bytes[..4].copy_from_slice(&lie[chance.below(4) as usize].to_be_bytes());
        }
        if chance.strikes(Fault::ResponseTruncated) {
            bytes.truncate(chance.below(bytes.len() as u64) as usize);
            self.broken_at = Some(at + 1);
        }
        self.cut(chance, at, &bytes);
    }

    /// The bytes arrive in pieces, one after the other.
    fn cut(&mut self, chance: &mut Chance, at: u64, bytes: &[u8]) {
        let (mut at, mut rest) = (at, bytes);
        while !rest.is_empty() {
            let whole = rest.len() as u64;
            let count = match chance.below(4) {
                0 => chance.between(1, whole.min(9)),
                1 => chance.between(1, whole),
                _ => whole,
            };
            let (piece, left) = rest.split_at(count as usize);
            self.pieces.push_back((at, piece.to_vec()));
            at += chance.between(1, 300);
            rest = left;
        }
    }

    /// Gives what has arrived to the task that waits for it.
    fn fill(&mut self, operations: &Operations, chance: &mut Chance, now: u64) -> bool {
        let Some(receive) = &mut self.receive else { return false };
        let end = receive.until.unwrap_or(receive.buffer.len());
        while receive.from < end
            && let Some((_, piece)) = self.pieces.front_mut().filter(|(at, _)| *at <= now)
        {
            let count = piece.len().min(end - receive.from);
            receive.buffer[receive.from..receive.from + count].copy_from_slice(&piece[..count]);
            receive.from += count;
            piece.drain(..count);
            if piece.is_empty() {
                self.pieces.pop_front();
            }
            if receive.until.is_none() && chance.one_in(2) {
                break;
            }
        }
        let count = receive.from - receive.start;
        let is_filled = match receive.until {
            Some(until) => receive.from == until,
            None => count > 0,
        };
        let is_broken = self.pieces.is_empty() && self.broken_at.is_some_and(|at| at <= now);
        if !is_filled && !is_broken {
            return false;
        }
        let Receive { user_data, buffer, .. } = self.receive.take().expect("just looked at");
        let reset = is_broken && count == 0 && chance.one_in(2);
        let result = if reset { Err(io::ErrorKind::ConnectionReset.into()) } else { Ok(count) };
        operations.finish(user_data, Completed::new(result, buffer));
        true
    }
}
