//! The hot thread's end of a TLS connection without a kernel: a wire brings what a broker's end has
//! sent, in pieces, and takes what is sent to it.

use crate::fetch::connection::{Connection, ConnectionError, Response};
use crate::fetch::dialling::{Dialled, TlsChannel};
use crate::kafka::message::Versions;
use crate::kafka::tls::records::TlsSession;
use crate::queue::bell::Bell;
use crate::runtime::operations::{Completed, Operations, Request, Task};
use crate::runtime::turns::Turns;
use std::collections::VecDeque;
use std::fs::File;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// Bytes of a response, its length included, that the connection takes: more than its first buffer.
pub(crate) const RESPONSE_BYTES_MAX: usize = 100_000;

/// What has been sent and not received yet, in both directions.
pub(crate) struct Wire {
    records: Vec<u8>,
    /// How many of them the client has.
    taken: usize,
    /// Until the client has received a response, no more is there than up to the first of these.
    stops: Vec<usize>,
    /// Whether a length may be wrong, so that the client waits for what does not come.
    is_damaged: bool,
    /// In which pieces bytes come, over and over: the next one is the first.
    pieces: VecDeque<usize>,
    /// What the client has sent.
    requests: Vec<u8>,
}

impl Wire {
    /// `stops` must rise.
    pub(crate) fn new(
        records: Vec<u8>,
        mut stops: Vec<usize>,
        is_damaged: bool,
        pieces: Vec<usize>,
    ) -> Wire {
        stops.reverse();
        let (pieces, requests) = (pieces.into(), Vec::new());
        Wire { records, taken: 0, stops, is_damaged, pieces, requests }
    }

    /// How many of the records are there, the client's included.
    fn there(&self) -> usize {
        self.stops.last().copied().unwrap_or(self.records.len()).min(self.records.len())
    }

    /// So many bytes, or what is there.
    pub(crate) fn take(&mut self, bytes: usize) -> Vec<u8> {
        let start = self.taken;
        self.taken = (start + bytes).min(self.there()).max(start);
        self.records[start..self.taken].to_vec()
    }

    /// What the client has sent since this was asked before.
    pub(crate) fn take_requests(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.requests)
    }

    /// Bytes of the next piece, at least one.
    fn piece(&mut self) -> usize {
        self.pieces.rotate_left(usize::from(!self.pieces.is_empty()));
        self.pieces.back().copied().unwrap_or(usize::MAX)
    }

    /// Does what the client has asked for.
    fn carry_out(&mut self, operations: &Operations) {
        while let Some(request) = operations.take_order() {
            let Request::Start(user_data, task) = request else {
                unreachable!("nothing takes long enough to be cancelled");
            };
            let (count, buffer) = match task {
                Task::Send { buffer, from, .. } => {
                    let count = self.piece().min(buffer.len() - from);
                    self.requests.extend_from_slice(&buffer[from..from + count]);
                    (count, buffer)
                }
                Task::Receive { mut buffer, from, .. } => {
                    assert!(from < buffer.len(), "there is no room for anything");
                    let count = self.piece().min(buffer.len() - from);
                    (self.fill(&mut buffer[from..], count, 1), buffer)
                }
                Task::ReceiveAll { mut buffer, range, .. } => {
                    let count = range.len();
                    (self.fill(&mut buffer[range], count, count), buffer)
                }
                Task::ReadBell { .. } => unreachable!("a connection has no bell"),
            };
            operations.finish(user_data, Completed::new(Ok(count), buffer));
        }
    }

    /// Fills the room with so many bytes, if they are there; fewer than `bytes_min` are not enough.
    fn fill(&mut self, room: &mut [u8], bytes: usize, bytes_min: usize) -> usize {
        if self.there() < self.taken + bytes_min && !self.stops.is_empty() {
            assert!(self.is_damaged, "the client waits for what the broker has not sent");
            self.stops.clear();
        }
        let count = bytes.min(self.there() - self.taken);
        room[..count].copy_from_slice(&self.records[self.taken..self.taken + count]);
        self.taken += count;
        count
    }
}

/// The connection, and the turns of its thread.
pub(crate) struct TlsClient {
    turns: Rc<Turns>,
    connection: Connection,
    deadline: Instant,
}

impl TlsClient {
    /// A connection with what has come with the handshake.
    pub(crate) fn new(session: TlsSession, received: Vec<u8>) -> TlsClient {
        let bell = Arc::new(Bell::new().expect("a descriptor is left"));
        let (now, address) = (Instant::now(), ([127, 0, 0, 1], 9092).into());
        let turns = Turns::new(now, bell);
        // Nothing is ever read from it.
        let socket = Arc::new(File::open("/dev/null").expect("a descriptor is left").into());
        let tls = Some(Box::new(TlsChannel { session, received }));
        let (fetch, produce, init_producer_id, tells_settings) = (0, 0, 0, false);
        let versions = Versions { fetch, produce, init_producer_id, tells_settings };
        let dialled = Dialled { socket, address, versions, tls, replace_at: None };
        let connection = Connection::new(&turns, dialled, RESPONSE_BYTES_MAX);
        TlsClient { turns, connection, deadline: now + Duration::from_secs(10) }
    }

    /// The next response, for which the wire must not have to bring more than up to its stop.
    pub(crate) fn receive(&self, wire: &mut Wire) -> Result<Response, ConnectionError> {
        let received = self.wait(wire, self.connection.receive_next(|| Some(self.deadline)));
        wire.stops.pop();
        received
    }

    /// Sends a request.
    pub(crate) fn send(&self, wire: &mut Wire, request: Vec<u8>) {
        let sent = self.wait(wire, self.connection.send(request, self.deadline));
        assert!(sent.is_ok(), "{:?}", sent.err());
    }

    /// Takes a response's buffer for the next one.
    pub(crate) fn give_back(&self, response: Response) {
        self.connection.give_back(response);
    }

    /// Time stands still, so nothing is too late.
    fn wait<T>(&self, wire: &mut Wire, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        loop {
            self.turns.begin_turn(self.turns.now());
            let polled = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            match polled {
                Poll::Ready(value) => return value,
                Poll::Pending => wire.carry_out(self.turns.operations()),
            }
        }
    }
}
