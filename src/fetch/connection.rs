//! One connection to a broker: a request out, its response in, as operations of the hot thread.
//!
//! A connection has one request under way, so its buffer holds one response from the buffer's
//! start, contiguous, and the same memory is used for every response: it stays in the cache.

use crate::kafka::message::{MessageError, frame_length};
use crate::runtime::operations::{Completed, Handle, Operation};
use crate::runtime::turns::Turns;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};

/// Milliseconds that connecting to a broker may take.
const CONNECT_MS_MAX: u64 = 5_000;

/// Bytes of the length that comes before every response.
const LENGTH_BYTES: usize = 4;

/// Bytes of a connection's buffer before a response needs more.
const BUFFER_BYTES_MIN: usize = 64 * 1024;

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
    driver: Rc<Turns>,
    socket: Handle,
    address: SocketAddr,
    /// Lent to the kernel while an operation is under way. It grows with the first long response.
    buffer: Vec<u8>,
    /// What it may grow to.
    bytes_max: usize,
    /// Bytes of the response that have arrived, length included.
    filled: usize,
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
        &mut self.buffer[LENGTH_BYTES..self.end]
    }

    /// When its first bytes were there.
    pub(crate) fn received_at(&self) -> Instant {
        self.received_at
    }
}

impl Connection {
    /// Connects, for responses of up to `response_bytes_max`, their length included.
    ///
    pub(crate) async fn open(
        driver: &Rc<Turns>,
        address: SocketAddr,
        response_bytes_max: usize,
    ) -> Result<Connection, ConnectionError> {
        assert!(response_bytes_max > LENGTH_BYTES);
        let wrong = |error| ConnectionError::Io { address, error };
        let deadline = driver.now() + Duration::from_millis(CONNECT_MS_MAX);
        let connect = driver.operations().connect(address);
        let connected = finish(driver, connect, deadline).await.map_err(wrong)?;
        connected.result.map_err(wrong)?;
        let socket = connected.socket.expect("what connects is a socket");
        let buffer = vec![0; response_bytes_max.min(BUFFER_BYTES_MIN)];
        let (driver, bytes_max) = (driver.clone(), response_bytes_max);
        Ok(Connection { driver, socket, address, buffer, bytes_max, filled: 0 })
    }

    /// Sends a request; its buffer comes back.
    pub(crate) async fn send(
        &mut self,
        mut request: Vec<u8>,
        deadline: Instant,
    ) -> Result<Vec<u8>, ConnectionError> {
        let mut sent = 0;
        while sent < request.len() {
            let send = self.driver.operations().send(&self.socket, request, sent);
            let done = finish(&self.driver, send, deadline).await.map_err(|e| self.broken(e))?;
            request = done.buffer;
            sent += done.result.map_err(|error| self.broken(error))?;
        }
        Ok(request)
    }

    /// Receives one whole response. It takes the buffer along, so that the next request can be sent
    /// while it is read; [`Connection::give_back`] must follow before the next response.
    pub(crate) async fn receive(&mut self, deadline: Instant) -> Result<Response, ConnectionError> {
        assert!(!self.buffer.is_empty(), "the last response was given back");
        self.filled = 0;
        let mut needed = LENGTH_BYTES;
        let mut received_at = None;
        while self.filled < needed {
            self.receive_some(needed, deadline).await?;
            received_at.get_or_insert(self.driver.now());
            if self.filled >= LENGTH_BYTES {
                needed = self.response_bytes()?;
                if needed > self.buffer.len() {
                    self.buffer.resize(self.bytes_max, 0);
                }
            }
        }
        if self.filled > needed {
            let detail = format!("{} bytes follow the response", self.filled - needed);
            return Err(ConnectionError::Protocol { address: self.address, detail });
        }
        let received_at = received_at.expect("a response has a length");
        Ok(Response { buffer: std::mem::take(&mut self.buffer), end: needed, received_at })
    }

    /// Takes a response's buffer for the next one.
    pub(crate) fn give_back(&mut self, response: Response) {
        self.buffer = response.buffer;
    }

    /// The broker's answer makes no sense.
    pub(crate) fn protocol(&self, detail: impl ToString) -> ConnectionError {
        ConnectionError::Protocol { address: self.address, detail: detail.to_string() }
    }

    /// Receives what is there; once the length is known, all that is missing in one operation.
    async fn receive_some(
        &mut self,
        needed: usize,
        deadline: Instant,
    ) -> Result<(), ConnectionError> {
        let buffer = std::mem::take(&mut self.buffer);
        let operations = self.driver.operations();
        let receive = if needed > LENGTH_BYTES {
            operations.receive_all(&self.socket, buffer, self.filled..needed)
        } else {
            operations.receive(&self.socket, buffer, self.filled)
        };
        let done = finish(&self.driver, receive, deadline).await.map_err(|e| self.broken(e))?;
        self.buffer = done.buffer;
        match done.result {
            Ok(0) => Err(self.broken(io::ErrorKind::UnexpectedEof.into())),
            Ok(count) => {
                self.filled += count;
                Ok(())
            }
            Err(error) => Err(self.broken(error)),
        }
    }

    fn response_bytes(&self) -> Result<usize, ConnectionError> {
        let (address, bytes_max) = (self.address, self.bytes_max);
        match frame_length(&self.buffer, bytes_max - LENGTH_BYTES) {
            Ok(length) => Ok(LENGTH_BYTES + length.expect("the prefix was received")),
            Err(MessageError::Length { bytes, bytes_max: length_max })
                if i64::from(bytes) > length_max as i64 =>
            {
                let bytes = i64::from(bytes) + LENGTH_BYTES as i64;
                Err(ConnectionError::TooLarge { address, bytes, bytes_max })
            }
            Err(error) => Err(self.protocol(error)),
        }
    }

    fn broken(&self, error: io::Error) -> ConnectionError {
        ConnectionError::Io { address: self.address, error }
    }
}

/// Waits for an operation, but not beyond the deadline: then it is cancelled.
async fn finish(
    driver: &Turns,
    mut operation: Operation,
    deadline: Instant,
) -> io::Result<Completed> {
    poll_fn(|context| {
        if let Poll::Ready(completed) = Pin::new(&mut operation).poll(context) {
            return Poll::Ready(Ok(completed));
        }
        if driver.now() >= deadline {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        driver.turn_at(deadline);
        Poll::Pending
    })
    .await
}
