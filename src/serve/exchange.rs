//! One client's requests and answers, without its socket: bytes in, bytes out.
//!
//! Requests are answered one after another, in their order. A request that waits for a zone delays
//! those after it, and no more is read from the client: its own window is the bound.

use crate::http::monitoring::{CONTENT_TYPE, Page};
use crate::http::request::{ClientRequest, Parsed, Persistence, RequestMethod, parse};
use crate::serve::answers::{Answer, Moment, Served};
use crate::serve::command::{Appended, Command, awaited, write_outcome};
use crate::serve::event_form::EventForm;
use crate::serve::gate::{Gate, Pass};
use crate::serve::head::AnswerHead;
use crate::serve::health;
use crate::serve::problem::Problem;
use crate::serve::routes::{
    ALLOWED_READ, At, EVENTS, STREAM, TICKET, WAIT_MS_MAX, allowed, at, post_query, route,
    ticket_query, wait_of,
};
use crate::serve::socket::{CommandSocket, SocketCommand, SocketEnd};
use crate::serve::stream::{Stream, StreamTurn};
use crate::serve::stream_tickets::TICKET_S;
use crate::serve::waiting::AwaitedOffset;
use crate::view::game::Asset;
use crate::view::json::Json;
use std::sync::Arc;

/// Bytes of answers that wait to be sent before another request is answered.
const UNSENT_BYTES_MAX: usize = 16 * 1024;

/// Requests that are answered before what they were answered is sent: some hundred microseconds of
/// a client that asks for much at once, after which others have their turn.
const ANSWERS_AT_ONCE: usize = 64;

/// Bytes of a buffer that is kept for the next request; a larger one is freed.
const BUFFER_BYTES_KEPT: usize = 2 * UNSENT_BYTES_MAX;

/// Headers of every file of the page: it may load only from this server, and in no other page.
const PAGE_HEADERS: &str = "Content-Security-Policy: default-src 'self'; frame-ancestors 'none'; \
                            base-uri 'none'; form-action 'none'\r\n\
                            X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n";

/// The condition for the next step of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExchangeNeed {
    /// More bytes of the client.
    Bytes,
    /// The answers so far have to be sent first.
    Sending,
    /// The events that the client has posted have to be appended: [`Exchange::posted`].
    Post,
    /// The next frame of some zone, or this time.
    Frame {
        /// Milliseconds of the caller's clock.
        until_ms: u64,
    },
    /// A frame of the zone that comes to this offset, or this time.
    Offset {
        /// The zone and the offset.
        awaited: AwaitedOffset,
        /// Milliseconds of the caller's clock.
        until_ms: u64,
    },
    /// The next turn of the stream, unless the client ends it before.
    Turn(StreamTurn),
    /// Nothing: what was answered is the last.
    Close,
}

impl ExchangeNeed {
    /// Returns whether the next request has come and is not answered yet.
    pub(super) fn has_request(self) -> bool {
        match self {
            ExchangeNeed::Sending
            | ExchangeNeed::Post
            | ExchangeNeed::Frame { .. }
            | ExchangeNeed::Offset { .. } => true,
            ExchangeNeed::Bytes | ExchangeNeed::Turn(_) | ExchangeNeed::Close => false,
        }
    }
}

/// Events that a client has posted.
#[derive(Debug)]
enum Post {
    /// They are to be appended.
    Posted { body: Vec<u8>, zone: Option<u16>, until_ms: u64 },
    /// They are on their way to the brokers.
    UnderWay { is_list: bool, until_ms: u64 },
    /// They are in the log, or not.
    Appended { commands: Vec<(Command, Appended)>, is_list: bool, until_ms: u64 },
    /// They are no events.
    Refused(Problem),
}

/// The next step of a post.
enum PostStep {
    /// Its events have to be appended.
    Append,
    /// The brokers have to take them.
    UnderWay,
    /// A zone has to come to an offset, or this time.
    Waiting { awaited: AwaitedOffset, until_ms: u64 },
    /// It is answered.
    Answer(Result<PostAnswer, Problem>),
}

/// The answer to a post.
struct PostAnswer {
    status: &'static str,
    /// The moment of the zone that all events are for; `None`: there are several.
    at: Option<Moment>,
    body: Vec<u8>,
}

/// A stream to the client.
#[derive(Debug)]
struct OpenStream {
    stream: Stream,
    /// The result of the admission.
    pass: Pass,
    /// Its place among the client's streams.
    _place: Arc<()>,
    /// `None`: the client only listens.
    socket: Option<Box<CommandSocket>>,
}

/// A client's requests that are not answered, and answers that are not sent.
#[derive(Debug, Default)]
pub struct Exchange {
    received: Vec<u8>,
    unsent: Vec<u8>,
    body: Vec<u8>,
    /// When the request that waits for a zone is refused.
    until_ms: Option<u64>,
    /// When the first bytes of a request came that is not whole yet.
    begun_ms: Option<u64>,
    was_asked_on: bool,
    is_closing: bool,
    /// The pass of the request that waits.
    pass: Option<Pass>,
    post: Option<Post>,
    stream: Option<OpenStream>,
}

impl Exchange {
    /// Bytes of the client.
    pub fn receive(&mut self, bytes: &[u8]) {
        self.received.extend_from_slice(bytes);
    }

    /// When the client began to send the request that is not whole yet, by the caller's clock.
    pub(crate) fn begun_ms(&self) -> Option<u64> {
        self.begun_ms
    }

    /// Returns the bytes to send.
    pub fn unsent(&self) -> &[u8] {
        &self.unsent
    }

    /// Takes what is to be sent. Its buffer comes back with [`Exchange::sent`].
    pub fn take_unsent(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.unsent)
    }

    /// Takes back the buffer, which is sent.
    pub fn sent(&mut self, mut buffer: Vec<u8>) {
        buffer.clear();
        if self.unsent.capacity() == 0 {
            self.unsent = buffer;
        }
    }

    /// Bytes of the client that are not answered yet.
    pub(crate) fn received_bytes(&self) -> usize {
        self.received.len()
    }

    /// Returns whether the client reads a stream: its bytes are no request.
    pub(crate) fn is_stream(&self) -> bool {
        self.stream.is_some()
    }

    /// Returns whether the client has a WebSocket: it may send while it reads its stream.
    pub(crate) fn is_socket(&self) -> bool {
        self.stream.as_ref().is_some_and(|open| open.socket.is_some())
    }

    /// Returns whether the client has closed its WebSocket, and commands before that are not
    /// appended yet.
    pub(crate) fn is_ending(&self) -> bool {
        let socket = self.stream.as_ref().and_then(|open| open.socket.as_ref());
        !self.is_closing && socket.is_some_and(|socket| socket.is_closed())
    }

    /// Returns whether everything is answered and sent, so that any client can use the exchange.
    pub(crate) fn is_idle(&self) -> bool {
        let has_bytes = !self.received.is_empty() || !self.unsent.is_empty();
        !has_bytes && !self.is_closing && self.post.is_none() && self.stream.is_none()
    }

    /// Frees what one request took and others need not.
    pub(crate) fn shrink(&mut self) {
        for buffer in [&mut self.received, &mut self.unsent, &mut self.body] {
            if buffer.capacity() > BUFFER_BYTES_KEPT {
                *buffer = Vec::new();
            }
        }
    }

    /// The body that was posted, the zone that the request names, and what it showed at the gate.
    /// `None`: nothing was posted.
    pub(crate) fn posted(&self) -> Option<(&[u8], Option<u16>, Pass)> {
        let pass = self.stream.as_ref().map(|open| open.pass).or(self.pass);
        match (&self.post, pass) {
            (Some(Post::Posted { body, zone, .. }), Some(pass)) => Some((body, *zone, pass)),
            _ => None,
        }
    }

    /// Notes that the posted events are on their way to the brokers.
    pub(crate) fn begin_append(&mut self) {
        let Some(Post::Posted { body, until_ms, .. }) = self.post.take() else {
            unreachable!("only what was posted is appended")
        };
        self.post = Some(Post::UnderWay { is_list: is_list(&body), until_ms });
    }

    /// Takes the result of a post: each event with its append, or why there is none.
    pub(crate) fn append(&mut self, appended: Result<Vec<(Command, Appended)>, Problem>) {
        let (is_list, until_ms) = match self.post.take() {
            Some(Post::Posted { body, until_ms, .. }) => (is_list(&body), until_ms),
            Some(Post::UnderWay { is_list, until_ms }) => (is_list, until_ms),
            _ => return,
        };
        self.post = Some(match appended {
            Ok(commands) => Post::Appended { commands, is_list, until_ms },
            Err(problem) => Post::Refused(problem),
        });
    }

    /// Answers what can be answered. `now_ms` is the caller's clock.
    pub fn advance(&mut self, served: &Served, gate: &Gate, now_ms: u64) -> ExchangeNeed {
        if self.stream.is_some() {
            return self.advance_stream(served, gate, now_ms);
        }
        let received = std::mem::take(&mut self.received);
        // Bodies that HEAD leaves out were made, too.
        let (mut taken, mut answered, mut left_out) = (0, 0, 0);
        let need = loop {
            if self.is_closing {
                break ExchangeNeed::Close;
            }
            if self.unsent.len() + left_out >= UNSENT_BYTES_MAX || answered == ANSWERS_AT_ONCE {
                break ExchangeNeed::Sending;
            }
            match parse(&received[taken..]) {
                Parsed::More => break ExchangeNeed::Bytes,
                Parsed::Expects(_) if self.was_asked_on => break ExchangeNeed::Bytes,
                Parsed::Expects(request) => match self.admit_body(served, gate, &request, now_ms) {
                    Ok(()) => {
                        self.was_asked_on = true;
                        self.unsent.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
                        break ExchangeNeed::Bytes;
                    }
                    Err(problem) => self.refuse_and_close(&received[taken..], &problem),
                },
                Parsed::Refused(error) => {
                    self.refuse_and_close(&received[taken..], &Problem::Refused(error))
                }
                Parsed::Request(request, bytes) => {
                    match self.answer(served, gate, &request, now_ms) {
                        Some(need) => break need,
                        None => {
                            (taken, answered) = (taken + bytes, answered + 1);
                            if request.method == RequestMethod::Head {
                                left_out += self.body.len();
                            }
                            (self.begun_ms, self.pass) = (None, None);
                            self.was_asked_on = false;
                            if self.stream.is_some() {
                                break ExchangeNeed::Sending;
                            }
                            self.is_closing |= request.persistence == Persistence::Closes;
                        }
                    }
                }
            }
        };
        self.received = received;
        self.received.drain(..taken);
        if !self.received.is_empty() {
            self.begun_ms.get_or_insert(now_ms);
        }
        need
    }

    fn advance_stream(&mut self, served: &Served, gate: &Gate, now_ms: u64) -> ExchangeNeed {
        let open = self.stream.as_mut().expect("there is a stream");
        if self.is_closing {
            return ExchangeNeed::Close;
        }
        if !gate.still_admits(&open.pass, now_ms) {
            self.end_stream(SocketEnd::Unauthorized);
            return ExchangeNeed::Close;
        }
        if self.unsent.len() >= UNSENT_BYTES_MAX {
            return ExchangeNeed::Sending;
        }
        let waiting = match self.advance_socket(served, gate, now_ms) {
            Ok(waiting) => waiting,
            Err(need) => return need,
        };
        let open = self.stream.as_mut().expect("there is a stream");
        if let Some((zone, halted)) = open.stream.halted(served) {
            open.stream.write_halted(zone, &halted, &mut self.unsent);
            self.end_stream(SocketEnd::Halted);
            return ExchangeNeed::Close;
        }
        let mut turn = open.stream.write(served, now_ms, &mut self.unsent);
        if let Some((awaited, until_ms)) = waiting {
            turn.until_ms = turn.until_ms.min(until_ms);
            turn.or_offset = Some(awaited);
        }
        ExchangeNeed::Turn(turn)
    }

    fn end_stream(&mut self, end: SocketEnd) {
        self.is_closing = true;
        if let Some(socket) = self.stream.as_mut().and_then(|open| open.socket.as_mut()) {
            socket.end(end, &mut self.unsent);
        }
    }

    /// Answers what the client sends up its stream: one command after the other, while the stream
    /// goes on. Returns the offset that the first one waits for, and until when; or what is needed
    /// before the stream goes on. Commands of a client that has closed its socket are appended, and
    /// nothing more is sent.
    fn advance_socket(
        &mut self,
        served: &Served,
        gate: &Gate,
        now_ms: u64,
    ) -> Result<Option<(AwaitedOffset, u64)>, ExchangeNeed> {
        loop {
            let socket = self.stream.as_mut().and_then(|open| open.socket.as_mut());
            let Some(socket) = socket else { return Ok(None) };
            if !socket.read(&mut self.received, &mut self.unsent) {
                self.is_closing = true;
                return Err(ExchangeNeed::Close);
            }
            let is_closed = socket.is_closed();
            if self.post.is_none() {
                let Some(message) = socket.next() else {
                    if !is_closed {
                        return Ok(None);
                    }
                    socket.answer_close(&mut self.unsent);
                    self.is_closing = true;
                    return Err(ExchangeNeed::Close);
                };
                self.post = Some(self.command(gate, &message, now_ms));
            }
            match self.advance_post(served, now_ms) {
                PostStep::Append => return Err(ExchangeNeed::Post),
                PostStep::UnderWay if is_closed => {
                    let until_ms = now_ms.saturating_add(WAIT_MS_MAX);
                    let turn = StreamTurn { until_ms, or_frame: false, or_offset: None };
                    return Err(ExchangeNeed::Turn(turn));
                }
                PostStep::UnderWay => return Ok(None),
                PostStep::Waiting { .. } if is_closed => self.post = None,
                PostStep::Waiting { awaited, until_ms } => return Ok(Some((awaited, until_ms))),
                PostStep::Answer(_) if is_closed => {}
                PostStep::Answer(answer) => self.answer_command(answer),
            }
            if self.unsent.len() >= UNSENT_BYTES_MAX {
                return Err(ExchangeNeed::Sending);
            }
        }
    }

    /// The post that a message of the client's socket asks for.
    fn command(&mut self, gate: &Gate, message: &str, now_ms: u64) -> Post {
        let open = self.stream.as_mut().expect("there is a stream");
        let socket = open.socket.as_mut().expect("it has a socket");
        let counted = gate.count_message(&open.pass, now_ms);
        let command = SocketCommand::of(message);
        socket.request = command.as_ref().ok().map(|command| command.request);
        let posted = counted.and(command).and_then(|command| {
            let until_ms = now_ms.saturating_add(wait_of(command.wait_ms)?);
            let body = command.post.get().as_bytes().to_vec();
            Ok(Post::Posted { body, zone: command.zone, until_ms })
        });
        posted.unwrap_or_else(Post::Refused)
    }

    fn answer_command(&mut self, answer: Result<PostAnswer, Problem>) {
        let (status, body) = match answer {
            Ok(PostAnswer { status, body, .. }) => (status, body),
            Err(problem) => {
                let mut body = Vec::new();
                problem.write(&mut body);
                (problem.status(), body)
            }
        };
        let socket = self.stream.as_mut().and_then(|open| open.socket.as_mut());
        socket.expect("it has sent the command").write_answer(status, &body, &mut self.unsent);
    }

    /// Refuses bytes that are no request, or a request whose body is not read. Nothing after it can
    /// be read.
    fn refuse_and_close(&mut self, bytes: &[u8], problem: &Problem) {
        let is_head_only = bytes.starts_with(b"HEAD ");
        let persistence = Persistence::Closes;
        let head = AnswerHead { is_head_only, persistence, ..AnswerHead::default() };
        head.refuse(&mut self.unsent, problem);
        self.is_closing = true;
    }

    /// Returns the pass of the request. The gate counts each request once.
    fn admit(
        &mut self,
        gate: &Gate,
        request: &ClientRequest,
        now_ms: u64,
    ) -> Result<Pass, Problem> {
        let pass = match self.pass {
            Some(pass) => pass,
            None => gate.admit(request, now_ms)?,
        };
        Ok(*self.pass.insert(pass))
    }

    /// Whether a request without its body is one that is answered with it: if its head alone says
    /// that it is not, its client keeps the body (RFC 9110, 10.1.1).
    fn admit_body(
        &mut self,
        served: &Served,
        gate: &Gate,
        request: &ClientRequest,
        now_ms: u64,
    ) -> Result<(), Problem> {
        if request.method != RequestMethod::Post {
            return Ok(());
        }
        let pass = self.admit(gate, request, now_ms)?;
        match &*request.path {
            EVENTS => {}
            TICKET => return ticket_query(request.query),
            _ => return route(request, served.schema()).map(|_| ()),
        }
        post_query(request.query)?;
        if pass.may_post() { Ok(()) } else { Err(Problem::OutOfScope) }
    }

    /// Answers a request, or returns the condition for an answer.
    fn answer(
        &mut self,
        served: &Served,
        gate: &Gate,
        request: &ClientRequest,
        now_ms: u64,
    ) -> Option<ExchangeNeed> {
        let is_head_only = request.method == RequestMethod::Head;
        let cross_origin = gate.cross_origin(request);
        let persistence = request.persistence;
        let head = AnswerHead { is_head_only, persistence, at: None, cross_origin };
        self.body.clear();
        if let RequestMethod::Options | RequestMethod::Other = request.method {
            self.answer_method(served, request, head);
            return None;
        }
        let is_get = request.method != RequestMethod::Post;
        if let Some(asset) = served.schema().asset(&request.path).filter(|_| is_get) {
            self.write_asset(head, asset);
            return None;
        }
        if let Some((status, text)) = health::probe(&request.path, served).filter(|_| is_get) {
            head.write(&mut self.unsent, status, CONTENT_TYPE, text.as_bytes(), "");
            return None;
        }
        let pass = match self.admit(gate, request, now_ms) {
            Ok(pass) => pass,
            Err(problem) => {
                self.is_closing |= problem.is_costly();
                let persistence = match self.is_closing {
                    true => Persistence::Closes,
                    false => head.persistence,
                };
                AnswerHead { persistence, ..head }.refuse(&mut self.unsent, &problem);
                return None;
            }
        };
        match (request.method, &*request.path) {
            (RequestMethod::Post, EVENTS) => self.answer_post(served, request, head, now_ms),
            (RequestMethod::Post, TICKET) => {
                match ticket_query(request.query) {
                    Ok(()) => self.write_ticket(head, &gate.ticket(&pass, now_ms)),
                    Err(problem) => head.refuse(&mut self.unsent, &problem),
                }
                None
            }
            (RequestMethod::Get, STREAM) => {
                if let Err(problem) = self.open_stream(served, gate, request, head, now_ms) {
                    head.refuse(&mut self.unsent, &problem);
                }
                None
            }
            (RequestMethod::Post, _) => {
                self.answer_method(served, request, head);
                None
            }
            (_, path) if Page::of(path) == Some(Page::Metrics) => {
                match pass.may_read_all().then(|| health::metrics(served)) {
                    Some(text) => {
                        self.body = text.into_bytes();
                        head.write(&mut self.unsent, "200 OK", CONTENT_TYPE, &self.body, "");
                    }
                    None => head.refuse(&mut self.unsent, &Problem::OutOfScope),
                }
                None
            }
            _ => self.answer_get(served, request, head, now_ms),
        }
    }

    /// Answers which methods a path takes, or refuses one that it does not.
    fn answer_method(&mut self, served: &Served, request: &ClientRequest, head: AnswerHead) {
        let path = &*request.path;
        let is_page = served.schema().asset(path).is_some() || Page::of(path).is_some();
        let allowed = match path {
            "*" => Some("GET, HEAD, POST, OPTIONS"),
            _ if is_page => Some(ALLOWED_READ),
            _ => allowed(request, served.schema()),
        };
        let out = &mut self.unsent;
        match (allowed, request.method) {
            (None, _) => head.refuse(out, &Problem::NoRoute),
            (Some(allowed), RequestMethod::Options) => {
                head.write_methods(out, allowed);
            }
            (Some(allowed), _) => head.refuse(out, &Problem::MethodNotAllowed(allowed)),
        }
    }

    /// Answers from the view.
    fn answer_get(
        &mut self,
        served: &Served,
        request: &ClientRequest,
        mut head: AnswerHead,
        now_ms: u64,
    ) -> Option<ExchangeNeed> {
        match self.answer_of(served, request, now_ms) {
            Ok(Ok(Answer::Json(at))) => {
                head.at = at;
                head.write(&mut self.unsent, "200 OK", "application/json", &self.body, "");
            }
            Ok(Ok(Answer::Unchanged(at))) => {
                head.at = Some(at);
                head.write_empty(&mut self.unsent);
            }
            Ok(Ok(Answer::NotYet(_))) => unreachable!("it waits"),
            Ok(Err(need)) => return Some(need),
            Err(problem) => head.refuse(&mut self.unsent, &problem),
        }
        self.until_ms = None;
        None
    }

    fn answer_post(
        &mut self,
        served: &Served,
        request: &ClientRequest,
        head: AnswerHead,
        now_ms: u64,
    ) -> Option<ExchangeNeed> {
        if self.post.is_none() {
            self.post = Some(match post_query(request.query) {
                Ok((zone, wait_ms)) => {
                    let until_ms = now_ms.saturating_add(wait_ms);
                    Post::Posted { body: request.body.to_vec(), zone, until_ms }
                }
                Err(problem) => Post::Refused(problem),
            });
        }
        match self.advance_post(served, now_ms) {
            PostStep::Append | PostStep::UnderWay => return Some(ExchangeNeed::Post),
            PostStep::Waiting { awaited, until_ms } => {
                return Some(ExchangeNeed::Offset { awaited, until_ms });
            }
            PostStep::Answer(Ok(PostAnswer { status, at, body })) => {
                let head = AnswerHead { at, ..head };
                head.write(&mut self.unsent, status, "application/json", &body, "");
            }
            PostStep::Answer(Err(problem)) => head.refuse(&mut self.unsent, &problem),
        }
        None
    }

    /// Moves a post on. One that is answered is over.
    fn advance_post(&mut self, served: &Served, now_ms: u64) -> PostStep {
        match self.post.take().expect("something was posted") {
            posted @ Post::Posted { .. } => {
                self.post = Some(posted);
                PostStep::Append
            }
            under_way @ Post::UnderWay { .. } => {
                self.post = Some(under_way);
                PostStep::UnderWay
            }
            Post::Refused(problem) => PostStep::Answer(Err(problem)),
            Post::Appended { commands, is_list, until_ms } => {
                let open = commands.iter().find_map(|of| awaited(served, of));
                if let Some(awaited) = open.filter(|_| now_ms < until_ms) {
                    self.post = Some(Post::Appended { commands, is_list, until_ms });
                    return PostStep::Waiting { awaited, until_ms };
                }
                let status = if open.is_some() { "202 Accepted" } else { "200 OK" };
                PostStep::Answer(match failed(served, &commands) {
                    Some(problem) => Err(problem),
                    None => Ok(outcomes(served, &commands, is_list, status)),
                })
            }
        }
    }

    /// Begins a stream.
    fn open_stream(
        &mut self,
        served: &Served,
        gate: &Gate,
        request: &ClientRequest,
        head: AnswerHead,
        now_ms: u64,
    ) -> Result<(), Problem> {
        let form = match request.web_socket {
            Some(_) => EventForm::WebSocket,
            None => EventForm::ServerSent,
        };
        let wanted = (request.query, request.last_event_id);
        let stream = Stream::open(form, wanted, served.zones.len(), now_ms)?;
        let pass = self.pass.filter(|pass| stream.is_for(pass)).ok_or(Problem::OutOfScope)?;
        if let Some((_, halted)) = stream.halted(served) {
            return Err(halted);
        }
        let _place = gate.count_stream(&pass)?;
        let socket = match &request.web_socket {
            Some(ask) => {
                let socket = CommandSocket::accept(ask, head.cross_origin, &mut self.unsent)?;
                Some(Box::new(socket))
            }
            None => {
                self.unsent.extend_from_slice(
                    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\
                      Cache-Control: no-store\r\nX-Accel-Buffering: no\r\n",
                );
                head.cross_origin.write(&mut self.unsent);
                self.unsent.extend_from_slice(b"Connection: close\r\n\r\n");
                None
            }
        };
        self.stream = Some(OpenStream { stream, pass, _place, socket });
        Ok(())
    }

    fn write_ticket(&mut self, head: AnswerHead, ticket: &str) {
        Json::object(&mut self.body, |json| {
            json.text("ticket", ticket).number("expires_in_s", TICKET_S);
        });
        head.write(&mut self.unsent, "200 OK", "application/json", &self.body, "");
    }

    fn write_asset(&mut self, head: AnswerHead, asset: &Asset) {
        head.write(&mut self.unsent, "200 OK", asset.content_type, asset.bytes, PAGE_HEADERS);
    }

    /// Returns the answer, or the condition for it.
    fn answer_of(
        &mut self,
        served: &Served,
        request: &ClientRequest,
        now_ms: u64,
    ) -> Result<Result<Answer, ExchangeNeed>, Problem> {
        let route = route(request, served.schema())?;
        if !self.pass.is_some_and(|pass| pass.may_read(&route)) {
            return Err(Problem::OutOfScope);
        }
        let at = at(request)?;
        let waits_ms = at.map_or(WAIT_MS_MAX, |at| at.wait_ms);
        let until_ms = *self.until_ms.get_or_insert(now_ms.saturating_add(waits_ms));
        if let Some(at) = at
            && !served.has_reached(&at)?
        {
            return not_there(served, &at, now_ms, until_ms);
        }
        match served.answer(&route, &mut self.body)? {
            Answer::NotYet(zone) if now_ms >= until_ms => Err(Problem::ZoneLoading(zone)),
            Answer::NotYet(_) => Ok(Err(ExchangeNeed::Frame { until_ms })),
            answer => Ok(Ok(answer)),
        }
    }
}

/// Returns whether a body is an array of events.
fn is_list(body: &[u8]) -> bool {
    body.trim_ascii_start().first() == Some(&b'[')
}

/// The answer that says what became of posted events.
fn outcomes(
    served: &Served,
    commands: &[(Command, Appended)],
    is_list: bool,
    status: &'static str,
) -> PostAnswer {
    let mut body = Vec::new();
    let write = |json: &mut Json, (command, appended): &(Command, Appended)| {
        if let Appended::At(offset) = appended {
            write_outcome(json, served, command, *offset);
        }
    };
    Json::object(&mut body, |json| match (is_list, commands) {
        (false, [only]) => write(json, only),
        _ => {
            json.objects("results", commands.iter(), write);
        }
    });
    PostAnswer { status, at: only_zone(served, commands), body }
}

/// The moment of the zone that all events of a request are for; `None`: there are several.
fn only_zone(served: &Served, commands: &[(Command, Appended)]) -> Option<Moment> {
    let (Command { zone, .. }, _) = commands.first()?;
    let is_only = commands.iter().all(|(command, _)| command.zone == *zone);
    let known = served.view.zone(*zone).filter(|_| is_only)?;
    Some(served.moment(known))
}

/// Why not all events of a request are in the log, if so: sent again with their `seq`, those that
/// are change nothing.
fn failed(served: &Served, commands: &[(Command, Appended)]) -> Option<Problem> {
    let any = |wanted| commands.iter().any(|(_, appended)| *appended == wanted);
    if any(Appended::Unknown) {
        return Some(Problem::Unknown);
    }
    let is_elsewhere = |of: &&(Command, Appended)| {
        let is_open = awaited(served, of).is_some();
        of.1 == Appended::Elsewhere || (is_open && served.is_input_another(of.0.zone))
    };
    if let Some((command, _)) = commands.iter().find(is_elsewhere) {
        return Some(Problem::AppendedElsewhere(command.zone));
    }
    if any(Appended::Refused) {
        return Some(Problem::NotTaken);
    }
    let is_full = |(_, appended): &(Command, Appended)| *appended == Appended::Full;
    if commands.iter().all(is_full) {
        return Some(Problem::Busy);
    }
    // Some are there, so sending all again as they are would double those without a `seq`.
    any(Appended::Full).then_some(Problem::Unknown)
}

fn not_there(
    served: &Served,
    at: &At,
    now_ms: u64,
    until_ms: u64,
) -> Result<Result<Answer, ExchangeNeed>, Problem> {
    if now_ms < until_ms {
        let awaited = AwaitedOffset { zone: at.zone, next_offset: at.next_offset };
        return Ok(Err(ExchangeNeed::Offset { awaited, until_ms }));
    }
    Err(Problem::NotThereYet(served.moment(served.zone(at.zone)?)))
}
