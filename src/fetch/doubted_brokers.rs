//! Brokers whose word about the partitions that they lead is doubted.
//!
//! A broker that no controller reaches leads for ever by its own word, and its log may have ended
//! where it was cut off. What it says of an offset counts once another broker has said who leads.

use std::cell::RefCell;
use std::time::{Duration, Instant};

/// Milliseconds for which only other brokers are asked about a doubted one. Then any broker may
/// say which ones there still are.
const BESIDE_MS_MAX: u64 = 30_000;

/// The brokers in doubt, in the order in which they made a claim.
#[derive(Default)]
pub(crate) struct DoubtedBrokers(RefCell<Vec<DoubtedBroker>>);

struct DoubtedBroker {
    node_id: i32,
    since: Instant,
}

impl DoubtedBrokers {
    /// A broker has made a claim, and has to be doubted until another one has been asked.
    pub(crate) fn doubt(&self, node_id: i32, now: Instant) {
        self.settle(node_id);
        self.0.borrow_mut().push(DoubtedBroker { node_id, since: now });
    }

    /// Another broker has said who leads.
    pub(crate) fn settle(&self, node_id: i32) {
        self.0.borrow_mut().retain(|doubted| doubted.node_id != node_id);
    }

    /// Whether no other broker has been asked since this one made a claim.
    pub(crate) fn contain(&self, node_id: i32) -> bool {
        self.0.borrow().iter().any(|doubted| doubted.node_id == node_id)
    }

    /// The broker that another one has to be asked about next.
    pub(crate) fn next(&self, now: Instant) -> Option<i32> {
        let is_open = |doubted: &&DoubtedBroker| {
            now.saturating_duration_since(doubted.since) < Duration::from_millis(BESIDE_MS_MAX)
        };
        self.0.borrow().iter().find(is_open).map(|doubted| doubted.node_id)
    }
}
