//! A client's session: what it is at.

use crate::serve::counts::AnswerKind;
use crate::serve::exchange::{Exchange, ExchangeNeed};
use crate::serve::postings::Posting;
use crate::serve::waiting::AwaitedOffset;
use std::time::{Duration, Instant};

/// One client's session.
#[derive(Default)]
pub(super) struct ClientSession {
    pub(super) stage: SessionStage,
    /// When it was opened, in milliseconds of the sessions' clock.
    pub(super) opened_ms: u64,
    /// When the rest of its answer was sent last.
    pub(super) sent_ms: u64,
    /// `None`: nothing is under way.
    pub(super) exchange: Option<Box<Exchange>>,
    /// Since when it is answered: since its request was taken from the kernel, or since it goes on
    /// after brokers, daemon or clock.
    pub(super) taken_at: Option<Instant>,
    /// The time that the answer had taken before it waited for them.
    pub(super) taken: Duration,
    /// Events of the client that the brokers have to take.
    pub(super) posting: Option<Posting>,
    /// The offset for which it waits.
    pub(super) awaited: Option<AwaitedOffset>,
    /// The kind of answer.
    pub(super) kind: AnswerKind,
    /// The client sends no more.
    pub(super) has_ended: bool,
    /// Since when the exchange has something to look at: bytes of its client, or the outcome of its
    /// events.
    pub(super) more_at: Option<Instant>,
    /// How often frames had been folded when its exchange went on.
    pub(super) foldings: u64,
    /// It is among those that wait for a frame, or was.
    pub(super) is_listed: bool,
}

/// The stage of a session.
#[derive(Default)]
pub(super) enum SessionStage {
    /// There is no client.
    #[default]
    Closed,
    /// The client has to send something.
    Receiving,
    /// An answer is being sent; then the exchange needs this.
    Sending(ExchangeNeed),
    /// The brokers have to take events.
    Appending,
    /// A frame has to come, an offset be reached, or a time; a client with a WebSocket may also
    /// send something, or the brokers have to take its events.
    Waiting,
    /// The client has to take notice of the end.
    Closing,
}

impl ClientSession {
    /// It waits for others: until it goes on, the time is not the server's.
    pub(super) fn pause(&mut self) {
        self.taken += self.taken_at.take().map_or(Duration::ZERO, |at| at.elapsed());
    }

    /// Returns whether its client has no whole request under way.
    pub(super) fn is_asked_nothing(&self) -> bool {
        matches!(self.stage, SessionStage::Receiving)
    }

    /// Returns whether its client has begun no request.
    pub(super) fn is_idle(&self) -> bool {
        self.is_asked_nothing() && self.exchange.is_none()
    }

    /// Returns whether its client has taken nothing of an answer since then.
    pub(super) fn is_stuck(&self, since_ms: u64) -> bool {
        matches!(self.stage, SessionStage::Sending(_)) && self.sent_ms <= since_ms
    }

    /// Returns whether the next bytes of the client may be a request, or a command.
    pub(super) fn is_heard(&self) -> bool {
        let is_heard = self.exchange.as_ref().is_none_or(|of| !of.is_stream() || of.is_socket());
        is_heard && !matches!(self.stage, SessionStage::Closing)
    }

    /// Returns whether it ends with what its client sends: nothing of it is left to be answered.
    pub(super) fn ends_with_its_client(&self) -> bool {
        let is_read_alone = |exchange: &Exchange| exchange.is_stream() && !exchange.is_ending();
        let is_stream = self.exchange.as_deref().is_some_and(is_read_alone);
        (is_stream && self.more_at.is_none())
            || matches!(self.stage, SessionStage::Receiving | SessionStage::Closing)
    }

    /// Returns whether its client's bytes are looked at while it waits.
    pub(super) fn is_listening(&self) -> bool {
        let is_socket = self.exchange.as_ref().is_some_and(|exchange| exchange.is_socket());
        matches!(self.stage, SessionStage::Receiving)
            || (is_socket && matches!(self.stage, SessionStage::Waiting))
    }
}
