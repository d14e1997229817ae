//! WebSockets (RFC 6455): what a client sends up its stream, without I/O. `tungstenite` reads the
//! frames; the bytes come from the exchange and go back to it.

use crate::http::request::WebSocketAsk;
use crate::serve::cross_origin::CrossOrigin;
use crate::serve::event_form::{EventBatch, EventForm};
use crate::serve::problem::Problem;
use crate::serve::signatures::sha1;
use crate::view::json::Json;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use tungstenite::protocol::frame::coding::CloseCode;
use tungstenite::protocol::frame::{CloseFrame, Utf8Bytes};
use tungstenite::protocol::{Message, Role, WebSocketConfig, WebSocketContext};

/// Bytes of a client's message, in one frame or in many: the longest body that may be posted.
const MESSAGE_BYTES_MAX: usize = 16 * 1024;

/// Messages that are read while an earlier one is not answered, so that pings and the client's end
/// are seen meanwhile. Beyond that, they wait at the client's side.
const MESSAGES_WAITING_MAX: usize = 4;

/// Bytes of a socket's buffer between two messages: a command that is not an array.
const BUFFER_BYTES: usize = 512;

/// The version of the protocol.
const VERSION: &str = "13";

/// Bytes of the key that a client makes up.
const KEY_BYTES: usize = 16;

/// The text that a server appends to the key (RFC 6455, 1.3).
const KEY_SUFFIX: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// The client's half of a WebSocket.
#[derive(Debug)]
pub(crate) struct CommandSocket {
    context: WebSocketContext,
    /// Commands that wait for the one before them.
    waiting: VecDeque<Utf8Bytes>,
    /// The client has closed the socket. That is answered after the commands before it.
    is_closed: bool,
    /// The number that the client gave to the command under way.
    pub request: Option<u64>,
}

/// The reason why a server ends a socket whose client has done nothing wrong.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SocketEnd {
    /// The client's token is no longer valid.
    Unauthorized,
    /// A zone of its stream is halted.
    Halted,
}

/// A command as a client sends it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SocketCommand<'a> {
    /// The client's number for it, which the answer repeats.
    pub request: u64,
    /// The zone; `None`: the one that the player is in.
    pub zone: Option<u16>,
    /// Milliseconds to wait for the outcome.
    pub wait_ms: Option<u64>,
    /// An event, or an array of some.
    #[serde(borrow)]
    pub post: &'a RawValue,
}

impl CommandSocket {
    /// Answers the handshake.
    pub(crate) fn accept(
        ask: &WebSocketAsk,
        cross_origin: CrossOrigin,
        out: &mut Vec<u8>,
    ) -> Result<CommandSocket, Problem> {
        if ask.version != Some(VERSION) {
            return Err(Problem::SocketVersion);
        }
        let key = ask
            .key
            .filter(|key| BASE64_STANDARD.decode(key).is_ok_and(|bytes| bytes.len() == KEY_BYTES));
        let key = key.ok_or(Problem::SocketKey)?;
        let accepted = BASE64_STANDARD.encode(sha1(format!("{key}{KEY_SUFFIX}").as_bytes()));
        out.extend_from_slice(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n",
        );
        cross_origin.write(out);
        out.extend_from_slice(format!("Sec-WebSocket-Accept: {accepted}\r\n\r\n").as_bytes());
        let limits = WebSocketConfig::default()
            .read_buffer_size(BUFFER_BYTES)
            .write_buffer_size(0)
            .max_message_size(Some(MESSAGE_BYTES_MAX))
            .max_frame_size(Some(MESSAGE_BYTES_MAX));
        let context = WebSocketContext::new(Role::Server, Some(limits));
        Ok(CommandSocket { context, waiting: VecDeque::new(), is_closed: false, request: None })
    }

    /// Reads what has come, as far as there is room, and answers pings. Returns false if the socket
    /// has ended because of what the client sent.
    pub(crate) fn read(&mut self, received: &mut Vec<u8>, out: &mut Vec<u8>) -> bool {
        let mut wire = SocketBytes { received, taken: 0, out };
        let refused = loop {
            if self.is_closed || self.waiting.len() == MESSAGES_WAITING_MAX {
                break None;
            }
            match self.context.read(&mut wire) {
                Ok(Message::Text(text)) => self.waiting.push_back(text),
                Ok(Message::Binary(_)) => {
                    break Some((CloseCode::Unsupported, "send commands as texts"));
                }
                Ok(Message::Close(_)) => self.is_closed = true,
                // The context answers pings when it reads on.
                Ok(Message::Ping(_) | Message::Pong(_)) => {}
                Ok(Message::Frame(_)) => unreachable!("only those who write frames have them"),
                Err(tungstenite::Error::Io(error)) if error.kind() == ErrorKind::WouldBlock => {
                    break None;
                }
                Err(error) => break Some(refusal(&error)),
            }
        };
        let taken = wire.taken;
        received.drain(..taken);
        if let Some((code, reason)) = refused {
            self.close((code, reason), out);
        }
        refused.is_none()
    }

    /// Returns whether the client has closed the socket. It takes no answers any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Answers that the client has closed the socket.
    pub(crate) fn answer_close(&mut self, out: &mut Vec<u8>) {
        let mut wire = SocketBytes { received: &[], taken: 0, out };
        // The context says so with an error.
        let _closed = self.context.flush(&mut wire);
    }

    /// Takes the next command.
    pub(crate) fn next(&mut self) -> Option<Utf8Bytes> {
        self.waiting.pop_front()
    }

    /// Ends the socket.
    pub(crate) fn end(&mut self, end: SocketEnd, out: &mut Vec<u8>) {
        let refusal = match end {
            SocketEnd::Unauthorized => (CloseCode::Policy, "connect again with a valid token"),
            SocketEnd::Halted => (CloseCode::Error, "a zone is halted"),
        };
        self.close(refusal, out);
    }

    /// Says why the socket ends, unless the client has ended it.
    fn close(&mut self, (code, reason): (CloseCode, &'static str), out: &mut Vec<u8>) {
        let mut wire = SocketBytes { received: &[], taken: 0, out };
        let frame = CloseFrame { code, reason: Utf8Bytes::from_static(reason) };
        // A socket that the client has closed is told nothing more.
        let _closed = self.context.close(&mut wire, Some(frame));
    }

    /// Writes the answer to the command under way.
    pub(crate) fn write_answer(&mut self, status: &str, body: &[u8], out: &mut Vec<u8>) {
        let request = self.request.take();
        let mut events = EventBatch::begin(EventForm::WebSocket, out);
        events.write_element(|out| {
            Json::object(out, |json| {
                json.text("event", "answer");
                if let Some(request) = request {
                    json.number("request", request);
                }
                json.number("status", status[..3].parse().expect("a status begins with digits"));
                json.json("data", body);
            });
        });
        events.end();
    }
}

impl<'a> SocketCommand<'a> {
    /// Reads a command.
    pub(crate) fn of(message: &'a str) -> Result<SocketCommand<'a>, Problem> {
        serde_json::from_str(message).map_err(|_| Problem::NoCommand)
    }
}

/// The code and the reason with which a socket ends after an error.
fn refusal(error: &tungstenite::Error) -> (CloseCode, &'static str) {
    match error {
        tungstenite::Error::Capacity(_) => (CloseCode::Size, "send messages of at most 16 KiB"),
        tungstenite::Error::Utf8(_) => (CloseCode::Invalid, "send texts as UTF-8"),
        _ => (CloseCode::Protocol, "send frames of RFC 6455"),
    }
}

/// The bytes that a context reads and writes.
struct SocketBytes<'a> {
    received: &'a [u8],
    taken: usize,
    out: &'a mut Vec<u8>,
}

impl Read for SocketBytes<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let rest = &self.received[self.taken..];
        if rest.is_empty() {
            return Err(ErrorKind::WouldBlock.into());
        }
        let taken = rest.len().min(buffer.len());
        buffer[..taken].copy_from_slice(&rest[..taken]);
        self.taken += taken;
        Ok(taken)
    }
}

impl Write for SocketBytes<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
