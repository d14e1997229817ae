//! One connection to a broker: requests out, responses in, as operations of its thread.
//!
//! The dialler has opened it. Bytes after a response are not received before the next response is
//! asked for. So a response is contiguous from the start of the buffer, and every response uses the
//! same memory, which stays in the cache. One task may send while another receives. On an encrypted
//! connection, each record is decrypted in place and moved up to the plaintext before it.

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

/// Milliseconds within which [`ARRIVING_BYTES_MIN`] of a response must arrive once it has begun to
/// arrive. On a slow link a whole response may take longer than the wait for a silent broker.
const ARRIVING_MS_MAX: u64 = 10_000;

/// Bytes of an incomplete response that must arrive per [`ARRIVING_MS_MAX`]. With fewer, the broker
/// counts as silent. No usable link is that slow, so this bounds a response that trickles in.
const ARRIVING_BYTES_MIN: usize = 16 * 1024;

/// Initial size of a connection's buffer.
const BUFFER_BYTES_MIN: usize = 64 * 1024;

/// The error of a connection that the broker has closed. A broker does not report that a request is
/// too large.
const CLOSED: &str = "it has closed the connection; if this repeats, look at its log: a \
     request may be larger than its socket.request.max.bytes, 104857600 by default";

/// Why a connection can no longer be used. The next one may work.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectionError {
    /// The broker is unreachable or the connection broke.
    #[error("broker {address}: {error}")]
    Io {
        /// The address of the broker.
        address: SocketAddr,
        /// The kernel's error.
        error: io::Error,
    },
    /// A TLS error.
    #[error("broker {address}: {error}")]
    Tls {
        /// The broker.
        address: SocketAddr,
        /// The cause.
        error: TlsError,
    },
    /// The broker's answer would stop a shard, so another connection must confirm it.
    #[error("the answer needs confirmation from a second connection")]
    Doubted,
    /// No partition needs the broker any more.
    #[error("the broker is no longer needed")]
    Unneeded,
    /// The broker does not answer, and another broker now leads the partitions that it was asked
    /// for.
    #[error(
        "broker {address} does not answer, and another broker now leads the partitions of the \
         request"
    )]
    Superseded {
        /// The broker.
        address: SocketAddr,
    },
    /// The response has an invalid or excessive length.
    #[error(
        "broker {address} announces a response of {bytes} bytes, fetch.receive_buffer_bytes holds \
         {bytes_max}: raise it above the topic's max.message.bytes"
    )]
    TooLarge {
        /// The broker.
        address: SocketAddr,
        /// The announced length.
        bytes: i64,
        /// The largest length that fits the buffer.
        bytes_max: usize,
    },
    /// The answer does not match the request or cannot be parsed.
    #[error("broker {address} sent an invalid response: {detail}")]
    Protocol {
        /// The broker.
        address: SocketAddr,
        /// The part that does not fit.
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
    /// Size limit of the buffer.
    bytes_max: usize,
    /// Bytes that arrived after the end of the last response.
    early: Cell<Vec<u8>>,
}

/// A response that has partly arrived.
struct Incoming {
    /// The buffer; owned by the kernel while an operation is in flight.
    buffer: Vec<u8>,
    /// Bytes of the response that have arrived, length included.
    filled: usize,
    /// The range of ciphertext after the filled part that is not decrypted yet.
    sealed: Range<usize>,
}

impl Incoming {
    /// Bytes that have arrived, decrypted or not.
    fn arrived(&self) -> usize {
        self.filled + self.sealed.len()
    }

    /// Decrypts the next record and appends its plaintext to the filled part. Returns whether the
    /// whole record had arrived.
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

    /// Moves the ciphertext up to the end of the plaintext, to make room for a whole record.
    fn make_room(&mut self) {
        self.buffer.copy_within(self.sealed.clone(), self.filled);
        self.sealed = self.filled..self.filled + self.sealed.len();
    }
}

/// The encryption of a connection.
struct TlsStream {
    session: TlsSession,
    /// Ciphertext that arrived after the end of the last response.
    early: Vec<u8>,
    /// A buffer that is reused for every request.
    sealed: Vec<u8>,
}

impl TlsStream {
    fn new(channel: TlsChannel) -> TlsStream {
        let TlsChannel { session, received } = channel;
        TlsStream { session, early: received, sealed: Vec::new() }
    }

    /// Encrypts a request. The caller returns the buffer after sending.
    fn seal(&mut self, request: &[u8]) -> Result<Vec<u8>, TlsError> {
        let mut sealed = std::mem::take(&mut self.sealed);
        sealed.clear();
        self.session.seal(request, &mut sealed)?;
        Ok(sealed)
    }
}

/// A broker's response.
pub(crate) struct Response {
    buffer: Vec<u8>,
    end: usize,
    received_at: Instant,
}

impl Response {
    /// The response without its length prefix.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        &mut self.buffer[FRAME_PREFIX_BYTES..self.end]
    }

    /// When the first bytes arrived.
    pub(crate) fn received_at(&self) -> Instant {
        self.received_at
    }
}

impl Connection {
    /// Takes over a connection that the dialler has opened, for responses of up to
    /// `response_bytes_max` bytes, length prefix included.
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

    /// Returns whether the TLS keys have nearly reached their usage limit.
    pub(crate) fn is_worn(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.borrow().session.is_worn())
    }

    /// Sends a request and returns its buffer. Only one send may be in flight.
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

    /// Receives the whole response to the single outstanding request. The response owns the buffer,
    /// so the next request can be sent while the response is read; [`Connection::give_back`]
    /// returns the buffer for the next response.
    pub(crate) async fn receive(&self, deadline: Instant) -> Result<Response, ConnectionError> {
        self.receive_if_wanted(|| true, deadline).await
    }

    /// Like [`Connection::receive`], but a response that is still arriving at its deadline times
    /// out if `is_wanted` is false by then.
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

    /// Receives the next whole response; several requests may be outstanding. Only one receive may
    /// be in flight. At the deadline the response must be complete or arriving. Without an
    /// outstanding request there is no deadline: the call waits for the next request, or for the
    /// end of the connection.
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

    /// Starts a response with the bytes that arrived early, in a buffer with room for more.
    fn begin_response(&self) -> Incoming {
        let (mut buffer, early) = (self.buffer.take(), self.early.take());
        let tls = self.tls.as_ref().map(|tls| tls.borrow());
        let sealed = tls.as_ref().map_or(&[][..], |tls| &tls.early);
        let (filled, end) = (early.len(), early.len() + sealed.len());
        // The buffer is empty while the last response is still in use.
        let bytes_min = self.buffer_bytes(self.bytes_max.min(BUFFER_BYTES_MIN).max(end));
        if buffer.len() < bytes_min {
            buffer.resize(bytes_min, 0);
        }
        buffer[..filled].copy_from_slice(&early);
        buffer[filled..end].copy_from_slice(sealed);
        Incoming { buffer, filled, sealed: filled..end }
    }

    /// Returns the size of a buffer for a response of this many bytes. An encrypted response needs
    /// room for all its records, if they are full, and for one more.
    fn buffer_bytes(&self, response_bytes: usize) -> usize {
        self.tls.as_ref().map_or(response_bytes, |tls| {
            tls.borrow().session.record_bytes_min(response_bytes) + TLS_RECORD_BYTES_MAX
        })
    }

    /// Returns a response's buffer for the next response.
    pub(crate) fn give_back(&self, response: Response) {
        self.buffer.set(response.buffer);
    }

    /// Returns the error for an invalid answer.
    pub(crate) fn protocol(&self, detail: impl ToString) -> ConnectionError {
        ConnectionError::Protocol { address: self.address, detail: detail.to_string() }
    }

    /// Decrypts the next record of an encrypted connection. Returns whether the whole record had
    /// arrived.
    fn open_record(&self, incoming: &mut Incoming) -> Result<bool, ConnectionError> {
        let Some(tls) = &self.tls else { return Ok(false) };
        let opened = incoming.open_record(&mut tls.borrow_mut().session);
        opened.map_err(|error| self.tls_error(error))
    }

    /// Receives what is available. Once the length is known, receives all missing bytes in one
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

    /// Receives into the buffer from `start`: everything up to `all_end` if that is after `start`,
    /// otherwise what is available. At the deadline it returns what has arrived, even if that is
    /// nothing.
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

    /// Returns the size of the whole response, length prefix included; only the prefix while the
    /// length is unknown.
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

/// Waits for an operation, at most until the deadline of the current turn, and then cancels it.
/// Returns the buffer and how many bytes were transferred; `None` if none were.
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
