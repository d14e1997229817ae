//! Requests that brokers have not answered yet.

use crate::publisher::native::lane::UNDER_WAY_MAX;
use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

/// Requests of a connection that may be unanswered. A broker reads the next one when it has
/// answered the one before; the others are there already.
const REQUESTS_MAX: usize = UNDER_WAY_MAX;

/// A request that is not answered yet.
pub(super) struct Asked {
    pub correlation_id: i32,
    pub version: i16,
    pub at: Instant,
    pub what: Question,
}

/// What a broker is asked for.
pub(super) enum Question {
    /// A name.
    ProducerId,
    /// To append these: partitions with the numbers of their batches.
    Batches(Vec<(i32, u64)>),
}

/// By broker, the oldest request first.
#[derive(Default)]
pub(super) struct Unanswered(BTreeMap<i32, VecDeque<Asked>>);

impl Unanswered {
    /// Whether a broker may be asked for more.
    pub(super) fn has_room(&self, node_id: i32) -> bool {
        self.0.get(&node_id).is_none_or(|asked| asked.len() < REQUESTS_MAX)
    }

    /// A request has left.
    pub(super) fn push(&mut self, node_id: i32, asked: Asked) {
        self.0.entry(node_id).or_default().push_back(asked);
    }

    /// When the oldest request to a broker left.
    pub(super) fn oldest_at(&self, node_id: i32) -> Option<Instant> {
        Some(self.0.get(&node_id)?.front()?.at)
    }

    /// A broker's one request for batches, if that is all that it has not answered.
    pub(super) fn only_batches(&self, node_id: i32) -> Option<&[(i32, u64)]> {
        let asked = self.0.get(&node_id).filter(|asked| asked.len() == 1)?;
        match &asked.front()?.what {
            Question::Batches(numbers) => Some(numbers),
            Question::ProducerId => None,
        }
    }

    /// The request that a broker answers.
    pub(super) fn take_oldest(&mut self, node_id: i32) -> Asked {
        let asked = self.0.get_mut(&node_id).and_then(VecDeque::pop_front);
        asked.expect("an answer is waited for after a request")
    }

    /// All that a broker will not answer any more.
    pub(super) fn take_all(&mut self, node_id: i32) -> impl Iterator<Item = Asked> + use<> {
        self.0.remove(&node_id).unwrap_or_default().into_iter()
    }
}
