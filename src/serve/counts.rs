//! What a serving process counts of itself. One thread writes and reads.

use std::time::Duration;

/// Upper bounds of the buckets of times, in microseconds; what is longer is in one more bucket.
pub(crate) const BOUNDS_US: [u64; 24] = [
    5, 10, 15, 20, 25, 30, 35, 40, 50, 65, 80, 100, 150, 200, 300, 500, 1_000, 2_000, 5_000,
    10_000, 25_000, 50_000, 100_000, 1_000_000,
];

/// Counts since the start.
#[derive(Debug, Default)]
pub struct ServeCounts {
    /// Clients that are connected.
    pub(crate) sessions: usize,
    /// Clients that read a stream.
    pub(crate) streams: usize,
    /// Allocations of the serving thread, and growths of allocations.
    pub(crate) allocations: u64,
    /// By bucket, how often that was the time from when a request was taken from the kernel until
    /// its answer was sent. Posted events and later parts of streams are not among them.
    pub(crate) answers: [u64; BOUNDS_US.len() + 1],
    /// The sum of these times, in microseconds.
    pub(crate) answers_us: u64,
}

impl ServeCounts {
    /// An answer took so long.
    pub(crate) fn answered(&mut self, time: Duration) {
        let us = time.as_micros() as u64;
        self.answers[BOUNDS_US.partition_point(|bound| *bound < us)] += 1;
        self.answers_us = self.answers_us.saturating_add(us);
    }
}
