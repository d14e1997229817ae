//! One connection to a broker: requests out, responses in, as operations of its thread.
//!
//! The dialler has opened it. Nothing is received behind a response before the next one is asked
//! for. So a response is contiguous from the buffer's start, and every response uses the same
//! memory, which stays in the cache. One task may send while another receives. On an encrypted
//! connection, each record is opened where it has arrived, and moved down behind what was opened
//! before it.

use crate::fetch::dialling::{Dialled, TlsChannel};
use crate::kafka::message::{self, MessageError};
use crate::kafka::tls::TlsError;
use crate::kafka::tls::records::{Opened, TLS_RECORD_BYTES_MAX, TlsSession};
use crate::kafka::wire::FRAME_PREFIX_BYTES;
use crate::runtime::operations::{Completed, Handle, Operation};
use crate::runtime::turns::Turns;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};

/// Milliseconds within which [`ARRIVING_BYTES_MIN`] of a response have to arrive once it has begun
/// to arrive. A slow link may take longer for all of it than a silent broker is waited for.
const ARRIVING_MS_MAX: u64 = 10_000;

/// Bytes of a response within [`ARRIVING_MS_MAX`], if it is not whole by then. With fewer the
/// broker counts as silent: no link is that slow, so this bounds what a byte now and then can do.
const ARRIVING_BYTES_MIN: usize = 16 * 1024;

/// Bytes of a connection's buffer before a response needs more.
const BUFFER_BYTES_MIN: usize = 64 * 1024;

/// The error of a connection that has ended. A broker does not say that a request is too large.
const CLOSED: &str = "it has closed the connection; if it goes on doing so, look at its log: a \
     request may be larger than its socket.request.max.bytes, 104857600 by default";

/// Why a connection is of no more use. The next one may do better.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectionError {
    /// The broker is not there, or went away.
    #[error("broker {address}: {error}")]
    Io {
        /// Where the broker was thought to be.
        address: SocketAddr,
        /// What the kernel said.
        error: io::Error,
    },
    /// The encryption.
    #[error("broker {address}: {error}")]
    Tls {
        /// The broker.
        address: SocketAddr,
        /// What is wrong.
        error: TlsError,
    },
    /// The broker's answer would stop a shard, so another connection is asked.
    #[error("what the broker says is doubted")]
    Doubted,
    /// No partition needs the broker any more.
    #[error("the broker is not needed any more")]
    Unneeded,
    /// It does not answer, and another broker leads what it was asked about.
    #[error("broker {address} does not answer, and another one leads what was sent to it")]
    Superseded {
        /// The broker.
        address: SocketAddr,
    },
    /// The response states a length that cannot be.
    #[error(
        "broker {address} announces a response of {bytes} bytes, fetch.receive_buffer_bytes holds \
         {bytes_max}: raise it above the topic's max.message.bytes"
    )]
    TooLarge {
        /// The broker.
        address: SocketAddr,
        /// What it announced.
        bytes: i64,
        /// What there is room for.
        bytes_max: usize,
    },
    /// The broker answered what was not asked, or cannot be understood.
    #[error("broker {address} sent what is no answer to the request: {detail}")]
    Protocol {
        /// The broker.
        address: SocketAddr,
        /// What does not fit.
        detail: String,
    },
}

/// An open connection.
pub(crate) struct Connection {
    turns: Rc<Turns>,
    socket: Handle,
    address: SocketAddr,
    /// `None`: plaintext.
    tls: Option<Box<RefCell<TlsStream>>>,
    /// Empty while a response is received or used. It grows with the first long response.
    buffer: Cell<Vec<u8>>,
    /// What it may grow to.
    bytes_max: usize,
    /// What has come behind the last response.
    early: Cell<Vec<u8>>,
}

/// A response that has arrived in part.
struct Incoming {
    /// Lent to the kernel while an operation is under way.
    buffer: Vec<u8>,
    /// Bytes of the response that have arrived, length included.
    filled: usize,
    /// Where behind them ciphertext stands that is not opened yet.
    sealed: Range<usize>,
}

impl Incoming {
    /// Bytes that have arrived, opened or not.
    fn arrived(&self) -> usize {
        self.filled + self.sealed.len()
    }

    /// Opens the next record and moves what it holds behind what was opened before. Whether it has
    /// arrived.
    fn open_record(&mut self, session: &mut TlsSession) -> Result<bool, TlsError> {
        match session.open(&mut self.buffer[self.sealed.clone()])? {
            Opened::Incomplete => Ok(false),
            Opened::Record { bytes, plaintext } => {
                let start = self.sealed.start + plaintext.start;
                self.buffer.copy_within(start..start + plaintext.len(), self.filled);
                self.filled += plaintext.len();
                self.sealed.start += bytes;
                Ok(true)
            }
        }
    }

    /// Moves what is not opened yet behind what is, so that there is room for a whole record.
    fn make_room(&mut self) {
        self.buffer.copy_within(self.sealed.clone(), self.filled);
        self.sealed = self.filled..self.filled + self.sealed.len();
    }
}

/// The encryption of a connection.
struct TlsStream {
    session: TlsSession,
    /// Ciphertext that has come behind the last response.
    early: Vec<u8>,
    /// Reused for every request.
    sealed: Vec<u8>,
}

impl TlsStream {
    fn new(channel: TlsChannel) -> TlsStream {
        let TlsChannel { session, received } = channel;
        TlsStream { session, early: received, sealed: Vec::new() }
    }

    /// Seals a request. The memory comes back after it was sent.
    fn seal(&mut self, request: &[u8]) -> Result<Vec<u8>, TlsError> {
        let mut sealed = std::mem::take(&mut self.sealed);
        sealed.clear();
        self.session.seal(request, &mut sealed)?;
        Ok(sealed)
    }
}

/// One response of a broker.
pub(crate) struct Response {
    buffer: Vec<u8>,
    end: usize,
    received_at: Instant,
}

impl Response {
    /// The response without its length.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        &mut self.buffer[FRAME_PREFIX_BYTES..self.end]
    }

    /// When its first bytes were there.
    pub(crate) fn received_at(&self) -> Instant {
        self.received_at
    }
}

impl Connection {
    /// Takes over what the dialler has opened, for responses of up to `response_bytes_max`, their
    /// length included.
    pub(crate) fn new(
        turns: &Rc<Turns>,
        dialled: Dialled,
        response_bytes_max: usize,
    ) -> Connection {
        assert!(response_bytes_max > FRAME_PREFIX_BYTES);
        Connection {
            turns: turns.clone(),
            socket: dialled.socket,
            address: dialled.address,
            tls: dialled.tls.map(|channel| Box::new(RefCell::new(TlsStream::new(*channel)))),
            buffer: Cell::new(vec![0; response_bytes_max.min(BUFFER_BYTES_MIN)]),
            bytes_max: response_bytes_max,
            early: Cell::default(),
        }
    }

    /// The broker's address.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether its keys have nearly reached their limit of use.
    pub(crate) fn is_worn(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.borrow().session.is_worn())
    }

    /// Sends a request; its buffer comes back. One at a time.
    pub(crate) async fn send(
        &self,
        request: Vec<u8>,
        deadline: Instant,
    ) -> Result<Vec<u8>, ConnectionError> {
        let Some(tls) = &self.tls else {
            return self.send_bytes(request, deadline).await;
        };
        let sealed = tls.borrow_mut().seal(&request).map_err(|error| self.tls_error(error))?;
        let sealed = self.send_bytes(sealed, deadline).await?;
        tls.borrow_mut().sealed = sealed;
        Ok(request)
    }

    async fn send_bytes(
        &self,
        mut bytes: Vec<u8>,
        deadline: Instant,
    ) -> Result<Vec<u8>, ConnectionError> {
        let mut sent = 0;
        while sent < bytes.len() {
            let send = self.turns.operations().send(&self.socket, bytes, sent);
            let (buffer, done) = finish(&self.turns, send, || Some(deadline)).await;
            bytes = buffer;
            let count = done.and_then(|done| done.ok_or(io::ErrorKind::TimedOut.into()));
            sent += count.map_err(|error| self.broken(error))?;
        }
        Ok(bytes)
    }

    /// Receives the whole response to the one request that is under way. It takes the buffer along,
    /// so that the next request can be sent while it is read; [`Connection::give_back`] returns it
    /// for the next response.
    pub(crate) async fn receive(&self, deadline: Instant) -> Result<Response, ConnectionError> {
        self.receive_if_wanted(|| true, deadline).await
    }

    /// The same. A response that is still arriving at its deadline is overdue if nobody wants it
    /// any more.
    pub(crate) async fn receive_if_wanted(
        &self,
        is_wanted: impl Fn() -> bool,
        deadline: Instant,
    ) -> Result<Response, ConnectionError> {
        let response = self.receive_response(is_wanted, || Some(deadline)).await?;
        match self.early.take().len() {
            0 => Ok(response),
            bytes => Err(self.protocol(format!("{bytes} bytes follow it"))),
        }
    }

    /// Receives the next whole response, of several requests that may be under way. One at a time.
    /// At the deadline it has to be there, or to be arriving. There is none while nothing is asked:
    /// then it waits for the next request, or for the end of the connection.
    pub(crate) async fn receive_next(
        &self,
        deadline: impl Fn() -> Option<Instant>,
    ) -> Result<Response, ConnectionError> {
        self.receive_response(|| true, deadline).await
    }

    async fn receive_response(
        &self,
        is_wanted: impl Fn() -> bool,
        deadline: impl Fn() -> Option<Instant>,
    ) -> Result<Response, ConnectionError> {
        let arriving_until: Cell<Option<Instant>> = Cell::new(None);
        let deadline =
            || deadline().map(|at| arriving_until.get().map_or(at, |until| until.max(at)));
        let mut incoming = self.begin_response();
        let mut arrived_before = 0;
        let mut received_at = (incoming.arrived() > 0).then(|| self.turns.now());
        let needed = loop {
            let needed = self.bytes_needed(&incoming)?;
            if incoming.filled >= needed {
                break needed;
            }
            if self.open_record(&mut incoming)? {
                continue;
            }
            if deadline().is_some_and(|at| self.turns.now() >= at) {
                let is_arriving = incoming.arrived() >= arrived_before + ARRIVING_BYTES_MIN;
                if !is_arriving || !is_wanted() {
                    return Err(self.broken(io::ErrorKind::TimedOut.into()));
                }
                arrived_before = incoming.arrived();
                let wait = Duration::from_millis(ARRIVING_MS_MAX);
                arriving_until.set(Some(self.turns.now() + wait));
            }
            if self.buffer_bytes(needed) > incoming.buffer.len() {
                incoming.buffer.resize(self.buffer_bytes(self.bytes_max), 0);
            }
            incoming = self.receive_more(incoming, needed, &deadline).await?;
            received_at.get_or_insert(self.turns.now());
        };
        let Incoming { buffer, filled, sealed } = incoming;
        if filled > needed {
            self.early.set(buffer[needed..filled].to_vec());
        }
        if let Some(tls) = &self.tls {
            let mut tls = tls.borrow_mut();
            tls.early.clear();
            tls.early.extend_from_slice(&buffer[sealed]);
        }
        let received_at = received_at.expect("a response has a length");
        Ok(Response { buffer, end: needed, received_at })
    }

    /// The bytes that came early, and room behind them.
    fn begin_response(&self) -> Incoming {
        let (mut buffer, early) = (self.buffer.take(), self.early.take());
        let tls = self.tls.as_ref().map(|tls| tls.borrow());
        let sealed = tls.as_ref().map_or(&[][..], |tls| &tls.early);
        let (filled, end) = (early.len(), early.len() + sealed.len());
        // Empty: the last response is still being used.
        let bytes_min = self.buffer_bytes(self.bytes_max.min(BUFFER_BYTES_MIN).max(end));
        if buffer.len() < bytes_min {
            buffer.resize(bytes_min, 0);
        }
        buffer[..filled].copy_from_slice(&early);
        buffer[filled..end].copy_from_slice(sealed);
        Incoming { buffer, filled, sealed: filled..end }
    }

    /// Bytes of a buffer in which a response of this many can arrive: of an encrypted one all
    /// records, if they are full, and in any case one more.
    fn buffer_bytes(&self, response_bytes: usize) -> usize {
        self.tls.as_ref().map_or(response_bytes, |tls| {
            tls.borrow().session.record_bytes_min(response_bytes) + TLS_RECORD_BYTES_MAX
        })
    }

    /// Takes a response's buffer for the next one.
    pub(crate) fn give_back(&self, response: Response) {
        self.buffer.set(response.buffer);
    }

    /// The broker's answer makes no sense.
    pub(crate) fn protocol(&self, detail: impl ToString) -> ConnectionError {
        ConnectionError::Protocol { address: self.address, detail: detail.to_string() }
    }

    /// Opens the next record of an encrypted connection. Whether it has arrived.
    fn open_record(&self, incoming: &mut Incoming) -> Result<bool, ConnectionError> {
        let Some(tls) = &self.tls else { return Ok(false) };
        let opened = incoming.open_record(&mut tls.borrow_mut().session);
        opened.map_err(|error| self.tls_error(error))
    }

    /// Receives what is there; once the length is known, all that is surely missing in one
    /// operation.
    async fn receive_more(
        &self,
        mut incoming: Incoming,
        needed: usize,
        deadline: impl Fn() -> Option<Instant>,
    ) -> Result<Incoming, ConnectionError> {
        incoming.make_room();
        let Incoming { buffer, filled, sealed } = incoming;
        let missing = needed - filled;
        let missing_on_wire = match &self.tls {
            None => missing,
            Some(tls) => tls.borrow().session.record_bytes_min(missing),
        };
        let all_end = if needed > FRAME_PREFIX_BYTES { filled + missing_on_wire } else { filled };
        let (buffer, count) = self.receive_into(buffer, sealed.end, all_end, deadline).await?;
        let end = sealed.end + count;
        let filled = if self.tls.is_some() { filled } else { end };
        Ok(Incoming { buffer, filled, sealed: filled..end })
    }

    /// Receives from `start` on: all up to `all_end` if that lies behind, else what is there. At
    /// the deadline it ends with what has arrived, even if that is nothing.
    async fn receive_into(
        &self,
        buffer: Vec<u8>,
        start: usize,
        all_end: usize,
        deadline: impl Fn() -> Option<Instant>,
    ) -> Result<(Vec<u8>, usize), ConnectionError> {
        let operations = self.turns.operations();
        let receive = if all_end > start {
            operations.receive_all(&self.socket, buffer, start..all_end)
        } else {
            operations.receive(&self.socket, buffer, start)
        };
        match finish(&self.turns, receive, deadline).await {
            (_, Ok(Some(0))) => {
                Err(self.broken(io::Error::new(io::ErrorKind::UnexpectedEof, CLOSED)))
            }
            (_, Err(error)) => Err(self.broken(error)),
            (buffer, Ok(count)) => Ok((buffer, count.unwrap_or(0))),
        }
    }

    /// Bytes of the whole response, its length included; of that alone while it is not known.
    fn bytes_needed(&self, incoming: &Incoming) -> Result<usize, ConnectionError> {
        let Incoming { buffer, filled, .. } = incoming;
        let length_max = self.bytes_max - FRAME_PREFIX_BYTES;
        match message::frame_length(&buffer[..*filled], length_max) {
            Ok(length) => Ok(FRAME_PREFIX_BYTES + length.unwrap_or(0)),
            Err(MessageError::Length { bytes, .. }) if i64::from(bytes) > length_max as i64 => {
                let bytes = i64::from(bytes) + FRAME_PREFIX_BYTES as i64;
                let (address, bytes_max) = (self.address, self.bytes_max);
                Err(ConnectionError::TooLarge { address, bytes, bytes_max })
            }
            Err(error) => Err(self.protocol(error)),
        }
    }

    fn tls_error(&self, error: TlsError) -> ConnectionError {
        ConnectionError::Tls { address: self.address, error }
    }

    fn broken(&self, error: io::Error) -> ConnectionError {
        ConnectionError::Io { address: self.address, error }
    }
}

/// Waits for an operation, but not beyond the deadline of the present turn: then it is cancelled.
/// Gives its buffer, and what it has done until then; `None`: nothing.
async fn finish(
    turns: &Turns,
    mut operation: Operation,
    deadline: impl Fn() -> Option<Instant>,
) -> (Vec<u8>, io::Result<Option<usize>>) {
    let mut is_cancelled = false;
    let Completed { result, buffer } = poll_fn(|context| {
        if let Poll::Ready(completed) = Pin::new(&mut operation).poll(context) {
            return Poll::Ready(completed);
        }
        if let Some(deadline) = deadline().filter(|_| !is_cancelled) {
            is_cancelled = turns.now() >= deadline;
            match is_cancelled {
                true => operation.cancel(),
                false => turns.turn_at(deadline),
            }
        }
        Poll::Pending
    })
    .await;
    match result {
        Err(_) if is_cancelled => (buffer, Ok(None)),
        result => (buffer, result.map(Some)),
    }
}
