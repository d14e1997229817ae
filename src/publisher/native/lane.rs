//! The batches of one output partition, from their first frame to the broker's answer.
//!
//! Pure: requests and answers are values. A batch that was sent does not change any more. It is
//! sent again, as the same bytes and after those before it, until a broker has it.

use crate::kafka::RECONNECT_MS_MAX;
use crate::kafka::batch_writer::{
    ProducerId, RECORD_OVERHEAD_BYTES_MAX, UnsealedBatch, sequence_after,
};
use crate::kafka::lz4_text::TextCompressor;
use crate::kafka::metadata::NODE_UNKNOWN;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Batches of a partition that may be under way: a broker remembers this many of each producer, and
/// takes none of them twice (KIP-98).
pub(super) const UNDER_WAY_MAX: usize = 5;

/// Bytes of a batch before compression, after which it takes no further frame: half of what a
/// broker with default settings stores.
const SHARED_BYTES_MAX: usize = 512 * 1024;

/// Milliseconds before the same bytes are sent again to a broker that has refused them once;
/// doubled with each further time.
const RETRY_MS_MIN: u64 = 10;

/// One partition's batches, oldest first.
pub(super) struct Lane<T> {
    batches: VecDeque<ProducerBatch<T>>,
    /// The producer id and epoch of the batches; `None` until the first one leaves.
    producer: Option<ProducerId>,
    next_sequence: i32,
    /// Whether a broker has acknowledged something under this producer id and epoch, and since a
    /// batch came back. Until then only one batch is under way: a broker that does not know a
    /// producer takes any sequence number for its first, and of a batch that came back it knows
    /// nothing any more once it has taken as many as it remembers.
    is_known: bool,
    /// A batch has come back. Nothing is sent until everything under way has come back too, so the
    /// oldest batch is sent first.
    is_recovering: bool,
    /// Where the batches under way were sent.
    leader: i32,
    /// Nothing is sent before this time.
    retry_at: Option<Instant>,
    retry_ms: u64,
    /// Whether frames may share a batch.
    shares: bool,
}

struct ProducerBatch<T> {
    number: u64,
    content: Content,
    receipts: Vec<T>,
    /// Bytes before compression, at most.
    bytes: usize,
    is_under_way: bool,
}

enum Content {
    Open(UnsealedBatch),
    /// As it is sent.
    Sealed(Vec<u8>),
}

/// A batch that is acknowledged or given up.
pub(super) struct Done<T> {
    /// The receipt of each of its records.
    pub receipts: Vec<T>,
    /// For the next batch.
    pub memory: Option<Vec<u8>>,
}

/// What sealing a batch takes.
pub(super) struct Sealing<'a> {
    /// The producer id of lanes that have none; `None`: such lanes do not leave.
    pub producer: Option<ProducerId>,
    /// Milliseconds since the Unix epoch.
    pub time_ms: i64,
    /// `None`: the batch is sent as it is.
    pub compressor: Option<&'a mut TextCompressor>,
    /// Memory of earlier batches.
    pub memory: &'a mut Vec<Vec<u8>>,
}

impl<T> Lane<T> {
    /// A lane without batches.
    pub(super) fn new() -> Lane<T> {
        Lane {
            batches: VecDeque::new(),
            producer: None,
            next_sequence: 0,
            is_known: false,
            is_recovering: false,
            leader: NODE_UNKNOWN,
            retry_at: None,
            retry_ms: RETRY_MS_MIN,
            shares: true,
        }
    }

    /// Puts a frame behind the others. `number` is that of a new batch, should it begin one.
    pub(super) fn push(
        &mut self,
        value: &[u8],
        receipt: T,
        number: u64,
        memory: &mut Vec<Vec<u8>>,
    ) {
        let record_bytes = value.len() + RECORD_OVERHEAD_BYTES_MAX;
        let shares = self.shares;
        let last = self.batches.back_mut().filter(|_| shares);
        if let Some(ProducerBatch { content: Content::Open(open), receipts, bytes, .. }) = last
            && open.len() + record_bytes <= SHARED_BYTES_MAX
        {
            open.push(value);
            receipts.push(receipt);
            *bytes += record_bytes;
            return;
        }
        let mut open = UnsealedBatch::new(memory.pop().unwrap_or_default());
        open.push(value);
        self.batches.push_back(ProducerBatch {
            number,
            content: Content::Open(open),
            receipts: vec![receipt],
            bytes: record_bytes,
            is_under_way: false,
        });
    }

    /// Whether a batch is not under way.
    pub(super) fn has_waiting(&self) -> bool {
        // Batches under way come first, and a batch that has come back makes the lane recover.
        self.batches.iter().any(|batch| !batch.is_under_way)
    }

    /// Whether the next batch may be sent to this broker now.
    pub(super) fn may_leave(&mut self, leader: i32, now: Instant) -> bool {
        let under_way = self.batches.iter().filter(|batch| batch.is_under_way).count();
        if under_way == 0 {
            self.is_recovering = false;
        }
        let under_way_max = if self.is_known { UNDER_WAY_MAX } else { 1 };
        !self.is_recovering
            && under_way < self.batches.len().min(under_way_max)
            && (under_way == 0 || self.leader == leader)
            // Another broker has not refused it.
            && (self.leader != leader || self.retry_at.is_none_or(|at| at <= now))
    }

    /// When a batch may be sent again, if it waits only for time.
    pub(super) fn retry_at(&self) -> Option<Instant> {
        self.retry_at
    }

    /// Bytes of the next batch, before compression.
    pub(super) fn next_bytes(&self) -> usize {
        let next = self.batches.iter().find(|batch| !batch.is_under_way);
        next.map_or(0, |batch| batch.bytes)
    }

    /// Takes the next batch for this broker: its number and its bytes.
    pub(super) fn leave(&mut self, leader: i32, sealing: &mut Sealing<'_>) -> (u64, &[u8]) {
        self.leader = leader;
        self.retry_at = None;
        self.producer = self.producer.or(sealing.producer);
        let producer = self.producer.expect("a lane without a producer id does not leave");
        let next = self.batches.iter_mut().find(|batch| !batch.is_under_way);
        let batch = next.expect("a batch may leave");
        batch.is_under_way = true;
        let content = std::mem::replace(&mut batch.content, Content::Sealed(Vec::new()));
        batch.content = Content::Sealed(match content {
            Content::Sealed(bytes) => bytes,
            Content::Open(open) => {
                let sequence = self.next_sequence;
                self.next_sequence = sequence_after(sequence, open.records());
                let memory = sealing.memory.pop().unwrap_or_default();
                let compressor = sealing.compressor.as_deref_mut();
                let (bytes, spare) =
                    open.seal(producer, sequence, sealing.time_ms, compressor, memory);
                sealing.memory.push(spare);
                bytes
            }
        });
        let Content::Sealed(bytes) = &batch.content else { unreachable!("it was sealed") };
        (batch.number, bytes)
    }

    /// The broker has this batch. `None`: it was given up before.
    pub(super) fn acked(&mut self, number: u64) -> Option<Done<T>> {
        let place = self.batches.iter().position(|batch| batch.number == number)?;
        let batch = self.batches.remove(place).expect("just found");
        self.is_known = !self.is_recovering;
        self.retry_ms = RETRY_MS_MIN;
        Some(batch.done())
    }

    /// Whether all before this batch is acknowledged.
    pub(super) fn is_oldest(&self, number: u64) -> bool {
        self.batches.front().is_some_and(|batch| batch.number == number)
    }

    /// Records of this batch; 0 if it was given up.
    pub(super) fn records(&self, number: u64) -> usize {
        let found = self.batches.iter().find(|batch| batch.number == number);
        found.map_or(0, |batch| batch.receipts.len())
    }

    /// From now on each batch has one record: together they were too large.
    pub(super) fn share_no_more(&mut self) {
        self.shares = false;
    }

    /// The broker may not have this batch, or is known not to have it: it will be sent again.
    pub(super) fn came_back(&mut self, number: u64) {
        if let Some(batch) = self.batches.iter_mut().find(|batch| batch.number == number) {
            batch.is_under_way = false;
            (self.is_recovering, self.is_known) = (true, false);
        }
    }

    /// As [`Lane::came_back`], and the next attempt at the same broker waits: longer each time in a
    /// row, and so many milliseconds at most.
    pub(super) fn refused(&mut self, number: u64, now: Instant, wait_ms_max: u64) {
        self.came_back(number);
        if self.retry_at.is_none_or(|at| at <= now) {
            let wait_ms = self.retry_ms.min(wait_ms_max);
            self.retry_at = Some(now + Duration::from_millis(wait_ms));
            self.retry_ms = (self.retry_ms * 2).min(RECONNECT_MS_MAX);
        }
    }

    /// Returns whether brokers have refused the lane so often in a row that its waits grow no more.
    pub(super) fn waits_longest(&self) -> bool {
        self.retry_ms == RECONNECT_MS_MAX
    }

    /// Gives up all batches. Those that follow have a higher epoch: once the first of them has
    /// arrived, brokers refuse what is still on its way. `None`: there is no higher epoch, or the
    /// broker does not know the producer id, and another id is needed.
    pub(super) fn give_up(&mut self, keeps_name: bool) -> Vec<Done<T>> {
        let kept = self.producer.filter(|_| keeps_name);
        *self = Lane {
            producer: kept.and_then(|ProducerId { id, epoch }| {
                Some(ProducerId { id, epoch: epoch.checked_add(1)? })
            }),
            batches: std::mem::take(&mut self.batches),
            shares: self.shares,
            ..Lane::new()
        };
        self.batches.drain(..).map(ProducerBatch::done).collect()
    }

    /// The producer id and epoch under which the broker knows the batches.
    pub(super) fn producer(&self) -> Option<ProducerId> {
        self.producer
    }
}

impl<T> ProducerBatch<T> {
    fn done(self) -> Done<T> {
        let memory = match self.content {
            Content::Open(_) => None,
            Content::Sealed(bytes) => Some(bytes),
        };
        Done { receipts: self.receipts, memory }
    }
}
