//! Kafka records in: connections to brokers, what is asked of them, and blocks of events.

mod asked_partitions;
pub mod block;
pub mod broker_rotation;
pub(crate) mod connection;
pub(crate) mod cursor;
pub(crate) mod decoding;
pub mod dialling;
mod leadership_claims;
mod leader_questions;
mod log_ends;
mod reading;
pub mod rejected;
pub(crate) mod stage;
pub(crate) mod task;
#[cfg(test)]
mod tests;
pub(crate) mod witnesses;

use decoding::TURN_BLOCKS_MAX;
use stage::CONNECTIONS_MAX;

/// Blocks that may wait in the queue between decoder and engine: in one turn each connection adds
/// at most its share, and then the engine empties the queue.
pub(crate) const QUEUE_BLOCKS: usize = CONNECTIONS_MAX * TURN_BLOCKS_MAX;

/// Smallest page-aligned step of a receive buffer, on any page size in use.
pub(crate) const RECEIVE_BUFFER_STEP_BYTES: usize = 64 * 1024;

/// Lower limit of a receive buffer: room for the largest default batch and its framing.
pub(crate) const RECEIVE_BUFFER_BYTES_MIN: usize = 18 * RECEIVE_BUFFER_STEP_BYTES;

/// Upper limit of a receive buffer: a larger one fits no cache.
pub(crate) const RECEIVE_BUFFER_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Lower limit of the bytes that a Fetch asks for, so that a configuration with tiny limits still
/// makes progress.
pub(crate) const FETCH_BYTES_MIN: usize = 1024;

/// Upper limit of a batch, compressed or decompressed.
pub(crate) const FETCHED_BATCH_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Upper limit of connections per broker: more only add system calls.
pub(crate) const CONNECTIONS_PER_BROKER_MAX: usize = 8;

/// Upper limit of the milliseconds that a broker may hold a Fetch.
pub(crate) const FETCH_WAIT_MS_MAX: u32 = 10_000;

/// Reports that may wait for the control thread. One that does not fit is dropped and repeated
/// later: an unreachable broker is reported with every attempt.
pub(crate) const REPORTS_MAX: usize = 256;

/// Validated options of the fetch path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchOptions {
    /// The client id in requests to brokers.
    pub client_id: String,
    /// The topic with the events.
    pub input_topic: String,
    /// Connections to each broker that leads partitions of this instance.
    pub connections_per_broker: usize,
    /// Milliseconds that a broker may hold a Fetch while there are no new records.
    pub fetch_wait_ms_max: u32,
    /// Milliseconds between two ticks of a partition, which its owner appends; 0 for no ticks.
    pub tick_every_ms: u32,
    /// Upper limit of a Fetch response.
    pub fetch_bytes_max: usize,
    /// Upper limit of one partition's data in a Fetch response.
    pub partition_bytes_max: usize,
    /// Bytes of a connection's receive buffer.
    pub receive_buffer_bytes: usize,
    /// Upper limit of a record batch, compressed or decompressed.
    pub batch_bytes_max: usize,
    /// True if records of open or aborted transactions are left out.
    pub read_committed: bool,
}
