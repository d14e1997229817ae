//! Counters of a serving process. One thread writes and reads them.

use crate::telemetry::metrics::Histogram;
use std::time::Duration;

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

/// Counts since the start.
pub struct ServeCounts {
    /// Clients that are connected.
    pub(crate) sessions: usize,
    /// Clients that read a stream.
    pub(crate) streams: usize,
    /// Allocations of the serving thread, and growths of allocations.
    pub(crate) allocations: u64,
    /// The times that answers took, by kind.
    pub(crate) answers: [Histogram; 3],
}

impl ServeCounts {
    /// All zero.
    pub(crate) fn new() -> ServeCounts {
        let answers = [const { Histogram::new() }; 3];
        ServeCounts { sessions: 0, streams: 0, allocations: 0, answers }
    }

    /// An answer took so long.
    pub(crate) fn answered(&mut self, kind: AnswerKind, time: Duration) {
        self.answers[kind as usize].record(time.as_micros() as u64, 1);
    }
}
