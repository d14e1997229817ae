//! The clients' sessions: a client's bytes go into its exchange, and the exchange's answers are
//! sent. Between two requests a session has no buffer.

use crate::runtime::ring_error::RingError;
use crate::runtime::sockets::{SocketEvent, SocketNumber, Sockets};
use crate::runtime::wall_clock::unix_ms;
use crate::serve::answers::Served;
use crate::serve::counts::AnswerKind;
use crate::serve::exchange::{Exchange, ExchangeNeed};
use crate::serve::gate::Gate;
use crate::serve::postings::Postings;
use crate::serve::session::{ClientSession, SessionStage};
use crate::serve::stream::StreamTurn;
use crate::serve::timers::Timers;
use crate::serve::waiting::{AwaitedOffset, OffsetWaiters};
use rustix::process::{Resource, getrlimit};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Clients that are connected at once. For further ones, sessions are closed that are asked nothing
/// now; while there are none, they wait in the listen backlog.
const SESSIONS_MAX: u64 = 50_000;

/// Sessions that are closed in one turn for clients that wait, at most. Of few sessions it is one
/// of 16: those that were opened last have not had time for a request.
const CLOSED_FOR_OTHERS_MAX: usize = 64;

/// Sessions among which a turn looks for those to close: some microseconds.
const SOUGHT_MAX: usize = 1_024;

/// Descriptors that are not for sessions: brokers, files, what librdkafka needs.
pub(crate) const DESCRIPTORS_KEPT: u64 = 256;

/// Milliseconds that a new session has for its first bytes before it gives way to others.
const FIRST_BYTES_MS: u64 = 100;

/// Milliseconds in which a request must have come whole, from its first byte on.
const REQUEST_MS_MAX: u64 = 5_000;

/// Milliseconds without a request after which a session is closed.
const IDLE_MS_MAX: u64 = 75_000;

/// Milliseconds in which a client must take some bytes of its answer.
const SEND_MS_MAX: u64 = 30_000;

/// Milliseconds without a byte taken of its answer after which a client gives way to others.
const STUCK_MS: u64 = 2_000;

/// Milliseconds for which a client's bytes are still read after its last answer.
const CLOSING_MS: u64 = 1_000;

/// Milliseconds before clients are accepted again after an accept has failed.
const ACCEPT_AGAIN_MS: u64 = 100;

/// Bytes of a client that wait while something else keeps it from being answered: a request with
/// the longest body. Beyond that they wait at the client's side.
const RECEIVED_BYTES_MAX: usize = 20 * 1024;

/// Exchanges that are kept for the next requests: some more than are under way in one turn.
const SPARE_EXCHANGES: usize = 256;

/// Events of sockets in one turn, and sessions that go on; after that, updates have theirs.
const STEPS_PER_TURN: usize = 256;

/// Sessions whose time has come, in one turn: to close one takes some microseconds.
const TIMES_PER_TURN: usize = 256;

/// Commands in one turn of which it is taken what the brokers say.
const REPORTS_PER_TURN: usize = 1_024;

/// Answers that the kernel gets at once: those that are ready wait for the others.
const ANSWERS_PER_ENTER: usize = 4;

/// Milliseconds that the thread sleeps at most.
const SLEEP_MS_MAX: u64 = 100;

/// All sessions.
pub(crate) struct Sessions {
    sockets: Sockets,
    /// By the numbers of their sockets.
    sessions: Vec<ClientSession>,
    timers: Timers,
    gate: Rc<Gate>,
    postings: Postings,
    #[expect(clippy::vec_box, reason = "sessions have boxes, which are small while they are idle")]
    spare: Vec<Box<Exchange>>,
    /// Sessions that wait for the next frame.
    for_frame: Vec<SocketNumber>,
    /// Counts how often frames were folded.
    foldings: u64,
    /// Sessions that wait for an offset.
    for_offset: OffsetWaiters,
    /// Sessions that read a stream.
    streams: usize,
    /// Sessions that need not wait any more, in the order in which they go on. One may go on twice,
    /// or be gone. With each the time since when it could.
    woken: VecDeque<(SocketNumber, Instant)>,
    /// Sessions that are not closed.
    open: usize,
    sessions_max: usize,
    /// When the kernel was last asked and all that it had told was dealt with. So the bytes that
    /// had come of sessions before that were read.
    drained_ms: u64,
    /// The session that was last looked at for whether it is to be closed.
    close_cursor: usize,
    accept_again_ms: u64,
    last_opened_ms: u64,
    /// Answers that the kernel does not have yet.
    unsubmitted: usize,
    started: Instant,
    /// Since the start, when the kernel was asked last.
    now: Duration,
}

impl Sessions {
    /// Nobody is connected.
    pub(crate) fn new(sockets: Sockets, gate: Rc<Gate>, postings: Postings) -> Sessions {
        let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let sessions_max = descriptors.saturating_sub(DESCRIPTORS_KEPT).min(SESSIONS_MAX);
        Sessions {
            sockets,
            sessions: Vec::new(),
            timers: Timers::default(),
            gate,
            postings,
            spare: Vec::with_capacity(SPARE_EXCHANGES),
            for_frame: Vec::new(),
            foldings: 0,
            for_offset: OffsetWaiters::default(),
            streams: 0,
            woken: VecDeque::new(),
            open: 0,
            sessions_max: sessions_max as usize,
            close_cursor: 0,
            accept_again_ms: 0,
            drained_ms: 0,
            last_opened_ms: 0,
            unsubmitted: 0,
            started: Instant::now(),
            now: Duration::ZERO,
        }
    }

    /// Clients that are connected.
    pub(crate) fn count(&self) -> usize {
        self.sockets.count()
    }

    /// Clients that read a stream.
    pub(crate) fn streams(&self) -> usize {
        self.streams
    }

    fn now_ms(&self) -> u64 {
        self.now.as_millis() as u64
    }

    /// Returns for how long the thread may sleep, as far as sessions are concerned.
    pub(crate) fn sleep_max(&self) -> Duration {
        let now_ms = self.started.elapsed().as_millis() as u64;
        let next_ms = self.timers.next_ms().unwrap_or(u64::MAX);
        Duration::from_millis(next_ms.saturating_sub(now_ms).min(SLEEP_MS_MAX))
    }

    /// Sends what is ready, waits at most so long for something to happen (`None`: not at all), and
    /// deals with what has, for about as long as `share` says: the rest waits for the next turn.
    pub(crate) fn turn(
        &mut self,
        served: &mut Served,
        wait: Option<Duration>,
        share: Duration,
    ) -> Result<(), RingError> {
        if self.open >= self.sessions_max {
            self.make_room();
        }
        if self.sockets.count() < self.sessions_max && self.now_ms() >= self.accept_again_ms {
            self.sockets.accept();
        }
        let has_work = !self.woken.is_empty() || self.postings.has_work();
        self.enter(wait.filter(|_| !has_work))?;
        let end = self.started.elapsed() + share;
        for _ in 0..STEPS_PER_TURN {
            let has_done = self.step(served);
            if !has_done && self.unsubmitted == 0 {
                self.drained_ms = self.now_ms();
                break;
            }
            if !has_done || self.unsubmitted >= ANSWERS_PER_ENTER {
                self.enter(None)?;
            }
            if self.started.elapsed() >= end {
                break;
            }
        }
        // No answer waits until updates are folded.
        if self.unsubmitted > 0 {
            self.enter(None)?;
        }
        self.postings.send();
        Ok(())
    }

    /// Deals with one event, and with one session that goes on. False: there is neither.
    fn step(&mut self, served: &mut Served) -> bool {
        let event = self.sockets.next();
        let has_event = event.is_some();
        if let Some(event) = event {
            self.deal_with(served, event);
        }
        let Some((number, since)) = self.woken.pop_front() else { return has_event };
        let session = &mut self.sessions[number as usize];
        if let SessionStage::Waiting = session.stage {
            if session.kind != AnswerKind::Request {
                session.taken_at.get_or_insert(since);
            }
            self.wait_no_more(number);
            self.advance(served, number);
        }
        true
    }

    /// Returns whether clients wait for work that is not done yet.
    pub(crate) fn has_work(&mut self) -> bool {
        !self.woken.is_empty() || self.sockets.has_work()
    }

    fn enter(&mut self, wait: Option<Duration>) -> Result<(), RingError> {
        self.unsubmitted = 0;
        self.sockets.turn(wait)?;
        self.now = self.started.elapsed();
        Ok(())
    }

    fn deal_with(&mut self, served: &mut Served, event: SocketEvent) {
        match event {
            SocketEvent::Opened(number) => self.open(number),
            // Out of file descriptors, most likely: others must close some first.
            SocketEvent::NotAccepted => self.accept_again_ms = self.now_ms() + ACCEPT_AGAIN_MS,
            SocketEvent::Received(number, filled) => {
                let session = &mut self.sessions[number as usize];
                if session.is_heard() {
                    let taken_at = filled.taken_at;
                    let exchange = exchange_of(session, &mut self.spare);
                    self.sockets.read(filled, |bytes| exchange.receive(bytes));
                    self.received(served, number, taken_at);
                } else {
                    self.sockets.read(filled, |_unheard| ());
                }
            }
            SocketEvent::Ended(number) => {
                let session = &mut self.sessions[number as usize];
                session.has_ended = true;
                if session.ends_with_its_client() {
                    self.close(number);
                }
            }
            SocketEvent::Broken(number) => self.close(number),
            SocketEvent::Sent(number, buffer, bytes) if bytes < buffer.len() => {
                self.send(number, buffer, bytes);
            }
            SocketEvent::Sent(number, buffer, _) => self.sent(served, number, buffer),
        }
    }

    fn open(&mut self, number: SocketNumber) {
        if number as usize >= self.sessions.len() {
            self.sessions.resize_with(number as usize + 1, ClientSession::default);
        }
        self.last_opened_ms = self.now_ms();
        let session = &mut self.sessions[number as usize];
        (session.stage, session.opened_ms) = (SessionStage::Receiving, self.last_opened_ms);
        self.open += 1;
        self.sockets.receive(number);
        self.timers.set(number, self.now_ms() + IDLE_MS_MAX);
        if self.sockets.count() >= self.sessions_max {
            self.sockets.stop_accepting();
        }
    }

    /// Closes some sessions so that others can be accepted: idle ones, or while there are none,
    /// those whose client has not sent its request whole, or does not take its answer.
    fn make_room(&mut self) {
        // Bytes that came while the server was busy are still unread.
        let read_ms = self.drained_ms.saturating_sub(1);
        let young_ms = self.now_ms().saturating_sub(FIRST_BYTES_MS).min(read_ms);
        let open = self.open;
        self.close_some(|session| session.is_idle() && session.opened_ms <= young_ms);
        // While any session is young, its first bytes may be on their way; it may be the only idle
        // one, so no request that has begun gives way yet.
        if self.open == open && self.last_opened_ms <= young_ms {
            let stuck_ms = self.now_ms().saturating_sub(STUCK_MS);
            self.close_some(|session| session.is_asked_nothing() || session.is_stuck(stuck_ms));
        }
    }

    /// A new session takes the number of one that was closed, so going round by numbers finds those
    /// first that were opened long ago.
    fn close_some(&mut self, gives_way: impl Fn(&ClientSession) -> bool) {
        let closed_max = (self.sessions_max / 16).clamp(1, CLOSED_FOR_OTHERS_MAX);
        let open_then = self.open.saturating_sub(closed_max);
        for _ in 0..SOUGHT_MAX.min(self.sessions.len()) {
            if self.open <= open_then {
                break;
            }
            self.close_cursor = (self.close_cursor + 1) % self.sessions.len();
            if gives_way(&self.sessions[self.close_cursor]) {
                self.close(self.close_cursor as SocketNumber);
            }
        }
    }

    fn close(&mut self, number: SocketNumber) {
        self.open -= 1;
        let ClientSession { is_listed, kind, .. } = self.sessions[number as usize];
        self.streams -= usize::from(kind == AnswerKind::Stream);
        self.wait_no_more(number);
        self.sessions[number as usize] = ClientSession { is_listed, ..ClientSession::default() };
        self.timers.clear(number);
        self.sockets.close(number);
    }

    /// Bytes of a request have come.
    fn received(&mut self, served: &mut Served, number: SocketNumber, taken_at: Instant) {
        let session = &mut self.sessions[number as usize];
        if session.is_listening() {
            session.taken_at.get_or_insert(taken_at);
            self.wait_no_more(number);
            self.advance(served, number);
            return;
        }
        session.more_at.get_or_insert(taken_at);
        if self.has_too_much(number) {
            self.sockets.stop_receiving(number);
        }
    }

    /// Returns whether so many of the client's bytes wait here that others wait at its side.
    fn has_too_much(&self, number: SocketNumber) -> bool {
        let exchange = self.sessions[number as usize].exchange.as_ref();
        exchange.is_some_and(|exchange| exchange.received_bytes() > RECEIVED_BYTES_MAX)
    }

    fn send(&mut self, number: SocketNumber, buffer: Vec<u8>, from: usize) {
        self.sockets.send(number, buffer, from);
        self.unsubmitted += 1;
        let now_ms = self.now_ms();
        self.sessions[number as usize].sent_ms = now_ms;
        self.timers.set(number, now_ms + SEND_MS_MAX);
    }

    fn sent(&mut self, served: &mut Served, number: SocketNumber, buffer: Vec<u8>) {
        let session = &mut self.sessions[number as usize];
        let SessionStage::Sending(need) = session.stage else { unreachable!("it was sending") };
        let taken_at = session.taken_at.take();
        if let Some(taken_at) = taken_at {
            let time = (self.started + self.now).saturating_duration_since(taken_at);
            served.counts.answered(session.kind, session.taken + time);
        }
        session.taken = Duration::ZERO;
        if session.kind != AnswerKind::Stream {
            session.kind = AnswerKind::Request;
            // The next request has come with those that are answered.
            session.taken_at = taken_at.filter(|_| need.has_request());
        }
        exchange_of(session, &mut self.spare).sent(buffer);
        let has_news = session.foldings != self.foldings && waits_for_frame(need);
        if has_news || was_reached(served, need) || self.supply(served, number, need) {
            self.advance(served, number);
        }
    }

    /// Answers what can be answered.
    fn advance(&mut self, served: &mut Served, number: SocketNumber) {
        served.pass_time(self.started + self.now);
        loop {
            let now_ms = self.now_ms();
            let session = &mut self.sessions[number as usize];
            if let Some(more_at) = session.more_at.take() {
                session.taken_at.get_or_insert(more_at);
            }
            session.foldings = self.foldings;
            let exchange = exchange_of(session, &mut self.spare);
            let need = exchange.advance(served, &self.gate, now_ms);
            if !exchange.unsent().is_empty() {
                let buffer = exchange.take_unsent();
                session.stage = SessionStage::Sending(need);
                return self.send(number, buffer, 0);
            }
            if !self.supply(served, number, need) {
                return;
            }
        }
    }

    /// Sees to what an exchange needs. True: it can go on now.
    fn supply(&mut self, served: &Served, number: SocketNumber, need: ExchangeNeed) -> bool {
        let now_ms = self.now_ms();
        let session = &mut self.sessions[number as usize];
        let is_ending = session.exchange.as_ref().is_some_and(|exchange| exchange.is_ending());
        match need {
            ExchangeNeed::Sending => return true,
            ExchangeNeed::Close if session.has_ended => self.close(number),
            ExchangeNeed::Close => {
                session.stage = SessionStage::Closing;
                (session.exchange, session.posting) = (None, None);
                // Closing with unread bytes would reset the connection and take the answer with it.
                self.sockets.end_sending(number);
                self.sockets.receive(number);
                self.timers.set(number, now_ms + CLOSING_MS);
            }
            ExchangeNeed::Post => return self.post(served, number),
            ExchangeNeed::Frame { until_ms } => self.wait(number, until_ms, true),
            ExchangeNeed::Offset { awaited, until_ms } => {
                if session.kind == AnswerKind::Post {
                    session.pause();
                }
                self.wait_for_offset(number, awaited);
                self.wait(number, until_ms, false);
            }
            // More of the client's commands, or what became of one.
            ExchangeNeed::Turn(_) if session.more_at.is_some() => return true,
            ExchangeNeed::Turn(_) if session.has_ended && !is_ending => self.close(number),
            ExchangeNeed::Turn(StreamTurn { until_ms, or_frame, or_offset }) => {
                let kind = std::mem::replace(&mut session.kind, AnswerKind::Stream);
                self.streams += usize::from(kind != AnswerKind::Stream);
                // What has not changed is not written.
                session.taken_at = None;
                if let Some(awaited) = or_offset {
                    self.wait_for_offset(number, awaited);
                }
                self.wait(number, until_ms, or_frame);
                self.hear_commands(number);
            }
            ExchangeNeed::Bytes if session.more_at.is_some() => return true,
            ExchangeNeed::Bytes if session.has_ended => self.close(number),
            ExchangeNeed::Bytes => self.wait_for_bytes(number),
        }
        false
    }

    fn wait_for_bytes(&mut self, number: SocketNumber) {
        let session = &mut self.sessions[number as usize];
        session.stage = SessionStage::Receiving;
        let exchange = session.exchange.as_ref().expect("it was just asked");
        let until_ms = match exchange.begun_ms() {
            None => self.now.as_millis() as u64 + IDLE_MS_MAX,
            Some(begun_ms) => begun_ms + REQUEST_MS_MAX,
        };
        if exchange.is_idle()
            && let Some(mut exchange) = session.exchange.take()
            && self.spare.len() < SPARE_EXCHANGES
        {
            exchange.shrink();
            self.spare.push(exchange);
        }
        self.sockets.receive(number);
        self.timers.set(number, until_ms);
    }

    fn wait(&mut self, number: SocketNumber, until_ms: u64, or_frame: bool) {
        let session = &mut self.sessions[number as usize];
        session.stage = SessionStage::Waiting;
        if or_frame && !std::mem::replace(&mut session.is_listed, true) {
            self.for_frame.push(number);
        }
        self.timers.set(number, until_ms);
    }

    fn wait_for_offset(&mut self, number: SocketNumber, awaited: AwaitedOffset) {
        self.sessions[number as usize].awaited = Some(awaited);
        self.for_offset.add(awaited, number);
    }

    fn wait_no_more(&mut self, number: SocketNumber) {
        if let Some(awaited) = self.sessions[number as usize].awaited.take() {
            self.for_offset.remove(awaited, number);
        }
    }

    /// Receives from a client with a WebSocket while it reads its stream.
    fn hear_commands(&mut self, number: SocketNumber) {
        let session = &self.sessions[number as usize];
        if session.has_ended || !session.is_listening() {
            return;
        }
        match self.has_too_much(number) {
            true => self.sockets.stop_receiving(number),
            false => self.sockets.receive(number),
        }
    }

    /// Appends what a client has posted. True: nothing has to be waited for.
    fn post(&mut self, served: &Served, number: SocketNumber) -> bool {
        let now_ms = self.now_ms();
        let session = &mut self.sessions[number as usize];
        let is_request = session.exchange.as_ref().is_some_and(|exchange| !exchange.is_socket());
        if is_request {
            session.kind = AnswerKind::Post;
        }
        let exchange = session.exchange.as_mut().expect("it has posted");
        let (body, zone, pass) = exchange.posted().expect("it asks for this");
        let clock = (&*self.gate, now_ms);
        match self.postings.append(number, (body, zone, &pass), served, clock) {
            Ok(posting) => {
                exchange.begin_append();
                session.posting = Some(posting);
                if is_request {
                    session.pause();
                    session.stage = SessionStage::Appending;
                    self.timers.clear(number);
                }
                // A stream goes on meanwhile.
                self.finish_posting(number) || !is_request
            }
            Err(problem) => {
                exchange.append(Err(problem));
                true
            }
        }
    }

    /// True: it is known of every posted event whether it was appended, and the client can be
    /// answered.
    fn finish_posting(&mut self, number: SocketNumber) -> bool {
        let session = &mut self.sessions[number as usize];
        let Some(posting) = &mut session.posting else { return false };
        let Some(commands) = posting.take_whole() else { return false };
        session.posting = None;
        session.exchange.as_mut().expect("it has posted").append(Ok(commands));
        true
    }

    /// Takes the brokers' reports about events.
    pub(crate) fn take_reports(&mut self) {
        for _ in 0..REPORTS_PER_TURN {
            let Some(report) = self.postings.next_report() else { break };
            let number = report.ticket.session;
            let Some(posting) = &mut self.sessions[number as usize].posting else { continue };
            posting.take(report);
            if !self.finish_posting(number) {
                continue;
            }
            let session = &mut self.sessions[number as usize];
            match session.stage {
                SessionStage::Sending(_) => {
                    session.more_at.get_or_insert(self.started + self.now);
                }
                _ => {
                    session.stage = SessionStage::Waiting;
                    self.woken.push_back((number, self.started + self.now));
                }
            }
        }
        self.postings.send();
    }

    /// Frames were folded: those who wait for one go on, and those whose offset is reached.
    pub(crate) fn frames_folded(&mut self, served: &Served) {
        let now = Instant::now();
        self.foldings += 1;
        for number in self.for_frame.drain(..) {
            self.sessions[number as usize].is_listed = false;
            self.woken.push_back((number, now));
        }
        let woken = &mut self.woken;
        let mut wake = |number| woken.push_back((number, now));
        self.for_offset.wake(|zone| served.reached(zone), &mut wake);
    }

    /// Deals with the sessions whose time has come.
    pub(crate) fn times_passed(&mut self) {
        self.now = self.started.elapsed();
        self.gate.set_time(unix_ms().cast_unsigned(), self.now_ms());
        for _ in 0..TIMES_PER_TURN {
            let Some(number) = self.timers.take_due(self.now_ms()) else { break };
            match self.sessions[number as usize].stage {
                SessionStage::Waiting => {
                    self.wait_no_more(number);
                    self.woken.push_back((number, self.started + self.now));
                }
                SessionStage::Receiving | SessionStage::Sending(_) | SessionStage::Closing => {
                    self.close(number)
                }
                SessionStage::Closed | SessionStage::Appending => {}
            }
        }
    }
}

/// Returns whether an exchange goes on with the next frame.
fn waits_for_frame(need: ExchangeNeed) -> bool {
    match need {
        ExchangeNeed::Frame { .. } => true,
        ExchangeNeed::Turn(turn) => turn.or_frame,
        _ => false,
    }
}

/// Returns whether the offset that an exchange needs was reached while its answer was sent.
fn was_reached(served: &Served, need: ExchangeNeed) -> bool {
    let awaited = match need {
        ExchangeNeed::Offset { awaited, .. } => Some(awaited),
        ExchangeNeed::Turn(turn) => turn.or_offset,
        _ => None,
    };
    awaited.is_some_and(|awaited| {
        served.reached(awaited.zone).is_some_and(|next| awaited.next_offset <= next)
    })
}

/// The session's exchange, or a spare one.
#[expect(clippy::vec_box, reason = "as in `Sessions`")]
fn exchange_of<'a>(
    session: &'a mut ClientSession,
    spare: &mut Vec<Box<Exchange>>,
) -> &'a mut Exchange {
    session.exchange.get_or_insert_with(|| spare.pop().unwrap_or_default())
}
