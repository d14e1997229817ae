//! Requests that brokers have not answered yet.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

/// What each connected broker has not answered yet, oldest first.
pub(super) struct PendingRequests {
    brokers: BTreeMap<i32, VecDeque<PendingRequest>>,
}

/// A request that is not answered yet.
pub(super) struct PendingRequest {
    pub(super) correlation_id: i32,
    /// When it was sent or, if it was not the oldest one then, when it became that: a broker reads
    /// the requests of a connection one after the other.
    pub(super) at: Instant,
    pub(super) what: RequestKind,
}

pub(super) enum RequestKind {
    ProducerId,
    /// Partitions with the numbers of their batches.
    Batches(Vec<(i32, u64)>),
}

impl PendingRequests {
    /// Every broker has answered.
    pub(super) fn new() -> PendingRequests {
        PendingRequests { brokers: BTreeMap::new() }
    }

    /// How many requests a broker has.
    pub(super) fn count(&self, node_id: i32) -> usize {
        self.brokers.get(&node_id).map_or(0, VecDeque::len)
    }

    /// The request that a broker has to answer next.
    pub(super) fn oldest(&self, node_id: i32) -> Option<&PendingRequest> {
        self.brokers.get(&node_id)?.front()
    }

    /// A request was sent.
    pub(super) fn push(&mut self, node_id: i32, request: PendingRequest) {
        self.brokers.entry(node_id).or_default().push_back(request);
    }

    /// A broker has answered its oldest request.
    pub(super) fn answered(&mut self, node_id: i32, now: Instant) -> PendingRequest {
        let requests = self.brokers.entry(node_id).or_default();
        let answered = requests.pop_front().expect("an answer is waited for after a request");
        if let Some(oldest) = requests.front_mut() {
            oldest.at = now;
        }
        answered
    }

    /// A broker answers none of them any more.
    pub(super) fn take(&mut self, node_id: i32) -> VecDeque<PendingRequest> {
        self.brokers.remove(&node_id).unwrap_or_default()
    }
}
