//! Where the logs of the output end: a thread beside the feed asks their leaders every second.

use crate::kafka::client::{KafkaReader, log_ends};
use crate::telemetry::long_wait::LongWait;
use std::fmt::Display;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// From an answer to the next question.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// Limit of the time in which all leaders answer, and then each one by itself.
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
    /// Begins to ask. An error if there is no thread for it.
    pub(super) fn start(
        consumer: Arc<KafkaReader>,
        topic: String,
        zones: u16,
    ) -> io::Result<LogEnds> {
        let (answered, answers) = sync_channel(1);
        let (alive, ended) = sync_channel::<()>(0);
        let ask = move || {
            let mut silence = LongWait::since(Instant::now());
            let mut pause = Duration::ZERO;
            // Nothing is ever sent.
            while ended.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                pause = ASK_EVERY;
                let asked = Instant::now();
                let ends = log_ends(&consumer, &topic, zones.into(), ANSWER_WAIT);
                let now = Instant::now();
                match missing(ends.as_ref()) {
                    None => silence = LongWait::since(now),
                    Some(why) if silence.word(now).is_some() => tracing::warn!(
                        "waiting for the brokers to say where `{topic}` ends: {why}; such zones \
                         are not loaded, or their answers are out of date, meanwhile; see whether \
                         their leaders hang"
                    ),
                    Some(_) => {}
                }
                let Ok(ends) = ends else { continue };
                let end =
                    |end: Option<i64>| Some(NamedEnd { next_record: end?, asked, answered: now });
                // While the feed waits for room it takes none; a later answer will do.
                let _full = answered.try_send(ends.into_iter().map(end).collect());
            }
        };
        let thread = thread::Builder::new().name("log-ends".to_owned()).spawn(ask)?;
        Ok(LogEnds { answers, alive: Some(alive), thread: Some(thread) })
    }

    /// The ends of all zones, if there is a new answer.
    pub(super) fn take(&self) -> Option<Vec<Option<NamedEnd>>> {
        self.answers.try_recv().ok()
    }
}

/// The reason why there is no answer, or the zones that it names no end of.
fn missing(ends: Result<&Vec<Option<i64>>, &impl Display>) -> Option<String> {
    let unnamed = |ends: &Vec<Option<i64>>| {
        let unnamed = (0..).zip(ends).filter(|(_, end)| end.is_none());
        let zones: Vec<String> = unnamed.map(|(zone, _): (u16, _)| zone.to_string()).collect();
        (!zones.is_empty()).then(|| format!("none is named of zones {}", zones.join(", ")))
    };
    ends.map_or_else(|error| Some(error.to_string()), unnamed)
}

impl Drop for LogEnds {
    fn drop(&mut self) {
        drop(self.alive.take());
        if let Some(thread) = self.thread.take() {
            thread.join().expect("a panic in any thread ends the process");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_brokers_owe_is_named_by_their_error_or_by_the_zones() {
        let missing = |ends: Result<&Vec<Option<i64>>, &&str>| missing(ends);
        assert_eq!(missing(Ok(&vec![Some(0), Some(7)])), None);
        let unnamed = missing(Ok(&vec![None, Some(7), None]));
        assert_eq!(unnamed.as_deref(), Some("none is named of zones 0, 2"));
        assert_eq!(missing(Err(&"timed out")).as_deref(), Some("timed out"));
    }
}
