//! Closed list of counters. Each has one writing thread, so counting is a load and a store.

use std::sync::atomic::{AtomicU64, Ordering};

/// Everything that is counted over the daemon's life, whatever the shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Counter {
    /// Bytes of Fetch responses received. Hot thread.
    BytesReceived,
    /// Records read from record batches. Hot thread.
    RecordsReceived,
    /// Events that the engine applied. Hot thread.
    EventsApplied,
    /// Events that the rules refused. Hot thread.
    EventsRefused,
    /// Events that changed nothing: a repeated or older `seq`. Hot thread.
    EventsNoOp,
    /// Records that are no valid event. Hot thread.
    RecordsRejected,
    /// Updates that the engine made, suppressed ones included. Hot thread.
    UpdatesMade,
    /// Updates not published again, because an earlier run has. Hot thread.
    UpdatesSuppressed,
    /// Frames handed to the publisher. Hot thread.
    FramesSent,
    /// Frames that the broker has acknowledged. Publisher.
    FramesAcked,
    /// Dead letters that the broker has acknowledged. Publisher.
    DeadLettersAcked,
    /// Deliveries that failed. Publisher.
    DeliveriesFailed,
    /// Turns of the hot thread's loop. Hot thread.
    Turns,
    /// `io_uring_enter` calls of the hot thread. Hot thread.
    RingEnters,
    /// Connections to brokers opened, the first ones included. Hot thread.
    ConnectionsOpened,
}

/// Counters in all, for the table of values.
pub const COUNTERS: usize = Counter::ConnectionsOpened as usize + 1;

/// The values of all counters.
pub struct Metrics {
    counters: [AtomicU64; COUNTERS],
}

impl Metrics {
    /// All zero.
    pub fn new() -> Metrics {
        Metrics { counters: [const { AtomicU64::new(0) }; COUNTERS] }
    }

    /// Counts `n` more. Only the counter's one writing thread may call this.
    pub fn add(&self, counter: Counter, n: u64) {
        let value = &self.counters[counter as usize];
        value.store(value.load(Ordering::Relaxed) + n, Ordering::Relaxed);
    }

    /// The value now.
    pub fn get(&self, counter: Counter) -> u64 {
        self.counters[counter as usize].load(Ordering::Relaxed)
    }
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics::new()
    }
}
