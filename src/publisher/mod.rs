//! Updates to Kafka, on a thread of its own.
//!
//! Frames and dead letters come from the hot thread in order and leave in that order, shard by
//! shard. What the broker has acknowledged becomes progress; what it never will becomes a
//! [`DeliveryFailure`], after which the shard is acquired again: nothing is sent twice from memory.

pub mod ledger;
pub mod producer;
pub mod publishing;
pub mod ticker;

use crate::kafka::client::ClientOptions;
use crate::output::dead_letter::DeadLetter;
use crate::output::frame::{
    Compression, Format, Frame, RECORD_HEAD_BYTES_MAX, UPDATE_JSON_BYTES_MAX,
};
use crate::output::handoff::HandoffRecord;
use crate::output::mark::Mark;
use crate::ownership::gap_check::Gap;
use crate::queue;
use crate::queue::bell::Bell;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::progress::Progress;
use producer::{Producer, ProducerError};
use publishing::{Inbox, Publisher, Sent, Time};
use std::sync::Arc;
use std::{io, thread};

/// Microseconds that a frame may wait for its batch; longer than this is no real time.
pub const LINGER_US_MAX: u32 = 900_000;

/// Frames of one shard that may be unacknowledged, the upper bound of `publish.frames_per_shard`.
pub const SHARD_FRAMES_MAX: usize = 1024;

/// What may wait for the publisher: every frame, and dead letters.
pub const OUTBOX_ITEMS_MAX: usize = 2048;

/// What the publisher is told at start-up, checked already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublisherOptions {
    /// How the brokers are reached.
    pub client: ClientOptions,
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
    /// Microseconds that a frame may wait for others to share its batch.
    pub linger_us_max: u32,
    /// Frames of one shard that may wait for their acknowledgement.
    pub frames_per_shard: usize,
    /// KiB of encoded frames that may wait for the broker, over all shards.
    pub queue_kbytes_max: usize,
    /// Milliseconds between two ticks of a partition that is ours; 0: none.
    pub tick_every_ms: u32,
    /// Whether players that leave for another zone are appended to its input.
    pub carry_players: bool,
}

/// What the hot thread hands over.
pub enum Outgoing {
    /// Updates, a fence or a skip.
    Frame(Box<Frame>),
    /// A record that is no event. It comes before the frame that covers its offset.
    DeadLetter(Box<DeadLetter>),
    /// A player that goes to another zone: a record for that zone's input. It comes before any
    /// capture of a state that the player has left.
    Departure(HandoffRecord),
    /// A capture of the shard's state was begun after everything that came before this. It is sent
    /// nowhere, and gated when all of that is acknowledged.
    Capture(CheckpointId),
}

impl Outgoing {
    /// Bytes that it takes on its way at most.
    pub fn bytes_max(&self) -> u64 {
        let bytes = match self {
            Outgoing::Frame(frame) => frame.updates.len() * UPDATE_JSON_BYTES_MAX,
            Outgoing::DeadLetter(letter) => {
                let part = |part: &Option<Vec<u8>>| part.as_ref().map_or(0, Vec::len);
                part(&letter.key) + part(&letter.value)
            }
            Outgoing::Departure(_) => 0,
            Outgoing::Capture(_) => return 0,
        };
        (bytes + RECORD_HEAD_BYTES_MAX) as u64
    }
}

/// Which capture of a shard's state, and where it was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointId {
    /// The shard's partition.
    pub partition: i32,
    /// The ownership that captured.
    pub ownership_id: u32,
    /// Number of the capture within this process.
    pub checkpoint: u64,
}

/// Every frame and dead letter before a capture is acknowledged: its state may be relied on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gate {
    /// The shard's partition.
    pub partition: i32,
    /// The ownership that captured.
    pub ownership_id: u32,
    /// Number of the capture within this process.
    pub capture: u64,
    /// What a reader of the output makes of all that is acknowledged.
    pub mark: Mark,
}

/// What the control thread tells the publisher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToPublisher {
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
    /// What lies before the frame that a [`Jump`] told of was read, and is nobody's fence.
    GapChecked {
        /// The shard's partition.
        partition: i32,
        /// The ownership.
        ownership_id: u32,
        /// Where the frame stands.
        mark: Mark,
    },
}

/// A frame or dead letter that the broker does not have and will not get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryFailure {
    /// The shard's partition.
    pub partition: i32,
    /// The ownership that has failed; it sends nothing more.
    pub ownership_id: u32,
    /// What happened.
    pub sentence: String,
    /// Sending it again would fail again: only the operator can help.
    pub is_final: bool,
}

/// Why the publisher has ended.
#[derive(Debug, thiserror::Error)]
pub enum PublisherError {
    /// There is no producer.
    #[error(transparent)]
    Producer(#[from] ProducerError),
    /// The publisher cannot sleep.
    #[error("cannot wait for frames: {0}; the file descriptor limit may be reached")]
    Bell(#[source] io::Error),
    /// The end has come, and the broker has not acknowledged everything.
    #[error(
        "{0} frames or dead letters were not acknowledged in time; the next start publishes them"
    )]
    NotFlushed(usize),
}

/// The publisher's ends of all that it shares with other threads.
pub struct PublisherEnds {
    /// Frames and dead letters to send. Its end is the publisher's end.
    pub inbox: queue::Receiver<Outgoing>,
    /// Takes sent frames back, empty or not.
    pub free_frames: queue::Sender<Box<Frame>>,
    /// From the control thread.
    pub orders: queue::Receiver<ToPublisher>,
    /// Takes failures, one a shard and ownership.
    pub failures: queue::Sender<DeliveryFailure>,
    /// Takes jumps, one at a time of a shard.
    pub jumps: queue::Sender<Gap>,
    /// Takes the gates of captures. Whoever has none has no receiver either.
    pub gates: queue::Sender<Gate>,
    /// Rung after a gate.
    pub keeper_bell: Arc<Bell>,
    /// Rung after the inbox was filled.
    pub bell: Arc<Bell>,
}

/// Publishes until the inbox has ended and everything is acknowledged, or that takes too long.
pub fn run(
    options: PublisherOptions,
    ends: PublisherEnds,
    progress: Arc<Progress>,
    metrics: Arc<Metrics>,
) -> Result<(), PublisherError> {
    let producer = Producer::new(&options)?;
    let mut publisher = Publisher::new(options, ends, progress, metrics, producer);
    let published = publish(&mut publisher);
    // librdkafka ends its threads one after the other, and while brokers are away that takes
    // seconds, for which nobody has to wait.
    let _unwaited = thread::Builder::new().name("ending".to_owned()).spawn(|| drop(publisher));
    published
}

fn publish(publisher: &mut Publisher<Producer<Sent>>) -> Result<(), PublisherError> {
    loop {
        match publisher.turn(Time::read())? {
            Inbox::Full => {}
            Inbox::Empty => publisher.sleep()?,
            Inbox::Stuck => publisher.wait_for_room()?,
            Inbox::Ended => return publisher.finish(),
        }
    }
}
