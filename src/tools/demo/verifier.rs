//! Reads the daemon's output by the reader rule, and measures latencies.

use super::daemon::DemoDaemon;
use super::in_flight::InFlightEvents;
use super::story::Story;
use crate::edition::Edition;
use crate::kit::update::Update;
use crate::output::encode::decode;
use crate::output::frame::FrameKind;
use crate::output::reader::{Position, Reader, Verdict};
use crate::tools::failure::ToolError;
use crate::tools::kafka::{Isolation, Read, TopicReader, plaintext};
use crate::tools::pace::Pace;
use crate::tools::progress_bar::ProgressBar;
use hdrhistogram::Histogram;
use rdkafka::message::Message;
use std::time::{Duration, Instant};

/// How long the mock may hold an answer; new records do not cut this short there.
const FETCH_WAIT_MS: u32 = 1;

/// The longest wait for the daemon to join the group and own every partition: a busy machine may
/// take a minute.
const OWNER_WAIT: Duration = Duration::from_secs(180);

/// The longest silence before the rest counts as lost, on a busy machine too.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// Upper limit of the latency histogram.
const LATENCY_US_MAX: u64 = 120_000_000;

/// A reader of all output partitions.
pub(super) struct Verifier {
    edition: Edition,
    topic: TopicReader,
    readers: Vec<Reader>,
    fenced: Vec<bool>,
    /// Time from when an event was due until an accepted frame covered it.
    pub(super) latency_us: Histogram<u64>,
    /// Updates that were in the topic twice.
    pub(super) duplicated: u64,
    /// Time from the first event to the last frame.
    pub(super) elapsed: Duration,
}

impl Verifier {
    /// Starts at the beginning of every output partition.
    pub(super) fn connect(
        brokers: &[String],
        output_topic: &str,
        partitions: u16,
        edition: &Edition,
    ) -> Result<Verifier, ToolError> {
        let topic = TopicReader::connect(
            &plaintext(brokers, "demo"),
            output_topic,
            Isolation::Uncommitted,
            FETCH_WAIT_MS,
        )?;
        let places: Vec<(u16, i64)> = (0..partitions).map(|partition| (partition, 0)).collect();
        topic.start(&places)?;
        let latency_us = Histogram::new_with_bounds(1, LATENCY_US_MAX, 3);
        Ok(Verifier {
            edition: *edition,
            topic,
            readers: (0..partitions).map(|_| Reader::new()).collect(),
            fenced: vec![false; usize::from(partitions)],
            latency_us: latency_us.expect("the bounds and the digits are fine"),
            duplicated: 0,
            elapsed: Duration::ZERO,
        })
    }

    /// Waits until the daemon has fenced every partition.
    pub(super) fn wait_for_owner(&mut self, daemon: &DemoDaemon) -> Result<(), ToolError> {
        let nothing = InFlightEvents::new(self.readers.len() as u16);
        let pace = Pace::start(None);
        let partitions = self.readers.len() as i32;
        // A fence is written before the shard is opened, and a short demo may end in between.
        while self.fenced.contains(&false) || !daemon.has_opened(partitions) {
            if daemon.has_ended() {
                return Err(ToolError::VerificationFailed("the daemon has ended".to_owned()));
            }
            if pace.elapsed() > OWNER_WAIT {
                let missing = self.fenced.iter().filter(|fenced| !**fenced).count();
                return Err(ToolError::VerificationFailed(format!(
                    "the daemon has not taken {missing} partitions within {} s",
                    OWNER_WAIT.as_secs()
                )));
            }
            self.read(&nothing, &pace, |_, _| ())?;
        }
        Ok(())
    }

    /// Reads until every event is covered, or nothing arrives any more.
    pub(super) fn run(
        &mut self,
        in_flight: &InFlightEvents,
        pace: &Pace,
        daemon: &DemoDaemon,
        bar: &ProgressBar,
    ) -> Result<(), ToolError> {
        let (mut heard, mut story) = (Instant::now(), Story::new(self.edition.describe));
        let mut tell = |zone, updates: &[Update]| {
            if let Some(line) = story.line(zone, updates, Instant::now()) {
                bar.say(&line);
            }
        };
        while !in_flight.is_complete() && !in_flight.is_stopped() {
            if self.read(in_flight, pace, &mut tell)? {
                heard = Instant::now();
                self.elapsed = pace.elapsed();
                bar.set(self.latency_us.len());
            } else {
                if in_flight.uncovered() == 0 {
                    // Nothing is due: a match that plays in its own time has pauses.
                    heard = Instant::now();
                }
                // Events still missing are lost; the report says so.
                if daemon.has_ended() || heard.elapsed() > SILENCE_MAX {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Processes one frame, if one arrives, and passes on its new updates. Returns whether it
    /// covered new input.
    fn read(
        &mut self,
        in_flight: &InFlightEvents,
        pace: &Pace,
        mut tell: impl FnMut(u16, &[Update]),
    ) -> Result<bool, ToolError> {
        let Read::Message(message) = self.topic.next(Duration::from_millis(10))? else {
            return Ok(false);
        };
        let partition = message.partition() as u16;
        let wrong = |what: &str| {
            ToolError::VerificationFailed(format!(
                "output partition {partition}, offset {}: {what}",
                message.offset()
            ))
        };
        let payload = message.payload().unwrap_or_default();
        let (header, updates) = decode(payload, self.edition.schema.game.updates)
            .map_err(|error| wrong(&error.to_string()))?;
        let reader = &mut self.readers[usize::from(partition)];
        match reader.fold(&header, &updates) {
            Verdict::Accepted { from } => {
                self.duplicated += from as u64;
                tell(partition, &updates[from..]);
            }
            Verdict::Duplicate => self.duplicated += updates.len() as u64,
            Verdict::Gap { missing } => {
                return Err(wrong(&format!("{missing} updates are missing")));
            }
            Verdict::Halt => return Err(wrong("the chain does not match the updates")),
            Verdict::Fence | Verdict::Progress { .. } | Verdict::Skip { .. } | Verdict::Stale => {}
            Verdict::Genesis | Verdict::Joined | Verdict::Waiting => {}
        }
        if header.kind == FrameKind::Fence && header.owner_epoch > 0 {
            self.fenced[usize::from(partition)] = true;
        }
        let next_offset = reader.position().next_offset;
        let now_us = pace.elapsed().as_micros() as u64;
        let before = self.latency_us.len();
        in_flight.cover(partition, next_offset, |due_us| {
            self.latency_us.saturating_record(now_us.saturating_sub(due_us).max(1));
        });
        Ok(self.latency_us.len() > before)
    }

    /// The reader's position in each partition.
    pub(super) fn positions(&self) -> impl Iterator<Item = (u16, Position)> {
        (0..).zip(self.readers.iter().map(Reader::position))
    }
}
