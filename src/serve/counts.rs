//! Counters of a serving process. One thread writes and reads them.

use std::time::Duration;

/// Upper bounds of the buckets of times, in microseconds; what is longer is in one more bucket.
pub(crate) const BOUNDS_US: [u64; 24] = [
    5, 10, 15, 20, 25, 30, 35, 40, 50, 65, 80, 100, 150, 200, 300, 500, 1_000, 2_000, 5_000,
    10_000, 25_000, 50_000, 100_000, 1_000_000,
];

/// The kinds of answers whose times are counted separately.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum AnswerKind {
    /// A request without events: from when it was taken from the kernel until its answer was sent.
    #[default]
    Request,
    /// Posted events: the same, without the time that brokers and the daemon took.
    Post,
    /// Some events of a stream: from when they could be written until they were sent.
    Stream,
}

impl AnswerKind {
    /// The metric, and what it says.
    pub(crate) const METRICS: [(AnswerKind, &str, &str); 3] = [
        (
            AnswerKind::Request,
            "huntd_serve_answer_seconds",
            "Seconds from when a request was read until its answer was written.",
        ),
        (
            AnswerKind::Post,
            "huntd_serve_post_seconds",
            "The same of posted events, without what brokers and the daemon took.",
        ),
        (
            AnswerKind::Stream,
            "huntd_serve_stream_seconds",
            "Seconds from when events of a stream could be written until they were.",
        ),
    ];
}

/// The times that some answers took.
#[derive(Debug, Default)]
pub(crate) struct AnswerTimes {
    /// By bucket.
    pub(crate) counts: [u64; BOUNDS_US.len() + 1],
    /// The sum of the times, in microseconds.
    pub(crate) sum_us: u64,
}

/// Counts since the start.
#[derive(Debug, Default)]
pub struct ServeCounts {
    /// Clients that are connected.
    pub(crate) sessions: usize,
    /// Clients that read a stream.
    pub(crate) streams: usize,
    /// Allocations of the serving thread, and growths of allocations.
    pub(crate) allocations: u64,
    /// By kind.
    pub(crate) answers: [AnswerTimes; 3],
}

impl ServeCounts {
    /// An answer took so long.
    pub(crate) fn answered(&mut self, kind: AnswerKind, time: Duration) {
        let (us, times) = (time.as_micros() as u64, &mut self.answers[kind as usize]);
        times.counts[BOUNDS_US.partition_point(|bound| *bound < us)] += 1;
        times.sum_us = times.sum_us.saturating_add(us);
    }
}
