//! Updates to Kafka, on a thread of its own.
//!
//! Frames and dead letters come from the hot thread in order and leave in that order, shard by
//! shard. An acknowledgement becomes progress. A record that the broker will never acknowledge
//! becomes a [`DeliveryFailure`](crate::ownership::event::DeliveryFailure), after which the shard
//! is acquired again: nothing is sent twice from memory.

pub(crate) mod ledger;
pub mod native;
pub mod producer;
pub mod publishing;
pub mod sent;
pub(crate) mod ticker;

use crate::fetch::dialling::DialEnds;
use crate::kafka::client::ClientOptions;
use crate::kit::engine::GameSchema;
use crate::kit::update_json::UPDATE_JSON_BYTES_MAX;
use crate::output::dead_letter::DeadLetter;
use crate::output::frame::{Compression, Format, Frame, RECORD_HEAD_BYTES_MAX};
use crate::output::handoff::HandoffRecord;
use crate::output::mark::Mark;
use crate::ownership::event::ToControl;
use crate::queue;
use crate::queue::bell::Bell;
use crate::runtime::ring::RingKind;
use crate::runtime::ring_error::RingError;
use crate::runtime::ring_loop::RingLoop;
use crate::snapshot::checkpoint::{CheckpointId, ToSnapshots};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::progress::Progress;
use native::NativeProducer;
use producer::Producer;
use publishing::{PUBLISHER_IDLE_MS_MAX, Pause, Publisher};
use sent::Sent;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// Messages that may wait for the publisher: every frame, and dead letters.
pub(crate) const OUTBOX_ITEMS_MAX: usize = 2048;

/// Entries of the publisher's submission queue: a send and a receive for each leader.
const PUBLISHER_RING_ENTRIES: u32 = 128;

/// The publisher's options, checked already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublisherOptions {
    /// How the brokers are reached.
    pub client: ClientOptions,
    /// How its thread asks the kernel for its operations.
    pub ring: RingKind,
    /// The topic that the records came from; dead letters name it.
    pub input_topic: String,
    /// The topic for frames; it has as many partitions as the input topic.
    pub output_topic: String,
    /// The topic for records that are no events.
    pub dead_letter_topic: String,
    /// How frames are encoded.
    pub format: Format,
    /// How they are compressed.
    pub compression: Compression,
    /// Milliseconds between two ticks of a partition that is ours; 0: none.
    pub tick_every_ms: u32,
    /// Whether players that leave for another zone are appended to its input.
    pub carry_players: bool,
    /// Records that the operator wants to have passed over, by partition and offset: if the topic
    /// refuses their dead letters, their shards go on.
    pub skips: Vec<(i32, i64)>,
}

/// What the other threads tell the publisher.
#[derive(Debug)]
pub enum ToPublisher {
    /// An engine follows the output of a partition, whose frames may have to be sent soon.
    Follow {
        /// The shard's partition.
        partition: i32,
    },
    /// An ownership begins. Nothing of it is sent before.
    Begin {
        /// The shard's partition.
        partition: i32,
        /// The ownership.
        ownership_id: u32,
        /// Behind its fence: where its frames will stand.
        mark: Mark,
        /// Zones there are: partitions of the input.
        zones: i32,
    },
    /// No frame of the partition follows those that were sent.
    Disown {
        /// The shard's partition.
        partition: i32,
    },
    /// The records of a [`ForeignSpan`](crate::ownership::foreign_span::ForeignSpan) were read, and
    /// are nobody's fence.
    SpanChecked {
        /// The shard's partition.
        partition: i32,
        /// The ownership.
        ownership_id: u32,
        /// Where the frame stands.
        mark: Mark,
    },
    /// Send something to Kafka.
    Send(Outgoing),
    /// A checkpoint of the shard's state was begun after everything that came before this. Its gate
    /// opens when all of that is acknowledged.
    Checkpoint(CheckpointId),
}

/// Something to be sent.
#[derive(Debug)]
pub enum Outgoing {
    /// Updates, perhaps none, or a repeated fence.
    Frame(Box<Frame>),
    /// A record that is no event. It comes before the frame that covers its offset.
    DeadLetter(Box<DeadLetter>),
    /// A player that goes to another zone: a record for that zone's input. It comes before any
    /// checkpoint of a state that the player has left.
    Handoff(HandoffRecord),
}

impl Outgoing {
    /// Bytes that it takes on its way at most.
    pub(crate) fn bytes_max(&self) -> u64 {
        let bytes = match self {
            Outgoing::Frame(frame) => frame.updates.len() * UPDATE_JSON_BYTES_MAX,
            Outgoing::DeadLetter(letter) => {
                let part = |part: &Option<Vec<u8>>| part.as_ref().map_or(0, Vec::len);
                part(&letter.key) + part(&letter.value)
            }
            Outgoing::Handoff(_) => 0,
        };
        (bytes + RECORD_HEAD_BYTES_MAX) as u64
    }

    /// The partition and the ownership whose quota it counts against.
    pub(crate) fn ownership(&self) -> (i32, u32) {
        match self {
            Outgoing::Frame(frame) => (frame.partition, frame.ownership_id),
            Outgoing::DeadLetter(letter) => (letter.partition, letter.ownership_id),
            Outgoing::Handoff(record) => (record.partition, record.ownership_id),
        }
    }
}

/// Why the publisher has ended.
#[derive(Debug, thiserror::Error)]
pub enum PublisherError {
    /// The publisher has no ring.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// The end has come, and the broker has not acknowledged everything.
    #[error(
        "{0} frames or dead letters were not acknowledged in time; the next start publishes them"
    )]
    NotFlushed(usize),
}

/// The publisher's ends of all that it shares with other threads.
pub struct PublisherEnds {
    /// From the hot thread and the control thread. Its end is the publisher's end.
    pub inbox: queue::Receiver<ToPublisher>,
    /// Takes sent frames back, empty or not.
    pub free_frames: queue::Sender<Box<Frame>>,
    /// To the control thread.
    pub control: queue::Sender<ToControl>,
    /// To the snapshot writer. Without snapshots nobody receives.
    pub snapshots: queue::Sender<ToSnapshots>,
    /// Rung after something was sent there.
    pub snapshots_bell: Arc<Bell>,
    /// Rung after the inbox was filled.
    pub bell: Arc<Bell>,
    /// How far each shard is.
    pub progress: Arc<Progress>,
    /// The counters.
    pub metrics: Arc<Metrics>,
    /// The tables of the game.
    pub game: &'static GameSchema,
}

/// Publishes until the inbox has ended and everything is acknowledged, or until that takes too
/// long.
pub fn run(
    options: PublisherOptions,
    ends: PublisherEnds,
    dial_ends: DialEnds,
) -> Result<(), PublisherError> {
    let park_max = Duration::from_millis(PUBLISHER_IDLE_MS_MAX);
    let ring_loop =
        RingLoop::new(options.ring, PUBLISHER_RING_ENTRIES, park_max, ends.bell.clone())?;
    let (turns, progress) = (ring_loop.turns(), ends.progress.clone());
    let others = Producer::new(&options);
    let producer = NativeProducer::new(&options, turns, dial_ends, progress, others);
    let mut publisher = Publisher::new(options, ends, producer);
    let published = publish(&ring_loop, &mut publisher);
    publisher.into_producer().into_others().end();
    published
}

fn publish(
    ring_loop: &RingLoop,
    publisher: &mut Publisher<NativeProducer<Sent, Producer<Sent>>>,
) -> Result<(), PublisherError> {
    let turns = ring_loop.turns();
    let published = poll_fn(|_| match publisher.step() {
        Ok(Pause::None) => {
            turns.turn_again();
            Poll::Pending
        }
        // The end of an operation wakes the ring, as a call does.
        Ok(Pause::UntilCalled(wait_max)) => {
            turns.turn_at(turns.now() + wait_max);
            Poll::Pending
        }
        ended => {
            publisher.producer_mut().close();
            Poll::Ready(ended.map(drop))
        }
    });
    ring_loop.run(published, |_| {})?
}
