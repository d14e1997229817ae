//! The producer id for lanes that have none yet: whether a broker is asked for it now.

use crate::kafka::batch_writer::ProducerId;
use std::time::{Duration, Instant};

/// Milliseconds before another broker is asked: at first, and after many that had none.
const RETRY_MS_MIN: u64 = 100;
const RETRY_MS_MAX: u64 = 5_000;

/// A producer id, or the question for one.
pub(super) struct ProducerIdRequest {
    producer: Option<ProducerId>,
    /// A broker was asked and has not answered.
    is_asked: bool,
    /// Another one is asked no sooner.
    retry_at: Option<Instant>,
    wait_ms: u64,
}

impl ProducerIdRequest {
    /// Nobody was asked.
    pub(super) fn new() -> ProducerIdRequest {
        ProducerIdRequest { producer: None, is_asked: false, retry_at: None, wait_ms: RETRY_MS_MIN }
    }

    /// The id, if there is one.
    pub(super) fn producer(&self) -> Option<ProducerId> {
        self.producer
    }

    /// Whether a broker may be asked now.
    pub(super) fn may_ask(&self, now: Instant) -> bool {
        !self.is_asked && self.retry_at.is_none_or(|at| at <= now)
    }

    /// When one may be asked, if that is known.
    pub(super) fn retry_at(&self) -> Option<Instant> {
        self.retry_at
    }

    /// A broker was asked.
    pub(super) fn ask(&mut self) {
        self.is_asked = true;
    }

    /// There will be no answer, or none that can be read.
    pub(super) fn unask(&mut self) {
        self.is_asked = false;
    }

    /// A broker has given an id.
    pub(super) fn given(&mut self, producer: ProducerId) {
        *self = ProducerIdRequest { producer: Some(producer), ..ProducerIdRequest::new() };
    }

    /// A broker has none for us now.
    pub(super) fn refused(&mut self, now: Instant) {
        self.is_asked = false;
        self.retry_at = Some(now + Duration::from_millis(self.wait_ms));
        self.wait_ms = (2 * self.wait_ms).min(RETRY_MS_MAX);
    }

    /// Lanes that have no id yet get another one than this.
    pub(super) fn forget(&mut self, id: i64) {
        self.producer.take_if(|producer| producer.id == id);
    }
}
