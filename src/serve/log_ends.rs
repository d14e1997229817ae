//! Where the logs of the output end: a thread beside the feed asks the brokers every second.

use crate::kafka::client::{KafkaReader, log_ends};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// From an answer to the next question.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// How long the brokers may take to answer.
const ANSWER_WAIT: Duration = Duration::from_secs(1);

/// A log's end, as the brokers have named it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NamedEnd {
    /// Offset of the record that comes next.
    pub next_record: i64,
    /// When they were asked.
    pub asked: Instant,
    /// When they had answered.
    pub answered: Instant,
}

/// A thread that asks for the ends. Dropped, it ends.
pub(super) struct LogEnds {
    answers: Receiver<Vec<Option<NamedEnd>>>,
    /// Dropping it ends the thread.
    alive: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl LogEnds {
    /// Begins to ask. Without a thread for it, the lag of every zone without new frames grows.
    pub(super) fn start(consumer: Arc<KafkaReader>, topic: String, zones: u16) -> LogEnds {
        let (answered, answers) = sync_channel(1);
        let (alive, ended) = sync_channel::<()>(0);
        let ask = move || {
            // Nothing is ever sent.
            while ended.recv_timeout(ASK_EVERY) == Err(RecvTimeoutError::Timeout) {
                let asked = Instant::now();
                let ends = log_ends(&consumer, &topic, zones.into(), ANSWER_WAIT);
                let Ok(ends) = ends else { continue };
                let now = Instant::now();
                let end =
                    |end: Option<i64>| Some(NamedEnd { next_record: end?, asked, answered: now });
                // While the feed waits for room it takes none; a later answer will do.
                let _full = answered.try_send(ends.into_iter().map(end).collect());
            }
        };
        let thread = thread::Builder::new().name("log-ends".to_owned()).spawn(ask).ok();
        LogEnds { answers, alive: Some(alive), thread }
    }

    /// The ends of all zones, if there is a new answer.
    pub(super) fn take(&self) -> Option<Vec<Option<NamedEnd>>> {
        self.answers.try_recv().ok()
    }
}

impl Drop for LogEnds {
    fn drop(&mut self) {
        drop(self.alive.take());
        if let Some(thread) = self.thread.take() {
            thread.join().expect("a panic in any thread ends the process");
        }
    }
}
