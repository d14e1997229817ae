//! Kafka records in: connections to brokers, what is asked of them, and blocks of events.

mod asked_partitions;
pub mod block;
pub mod candidates;
pub(crate) mod connection;
pub(crate) mod cursor;
pub(crate) mod decoding;
pub mod dialling;
mod doubted_brokers;
mod leader_questions;
mod log_ends;
mod reading;
pub mod rejected;
pub(crate) mod stage;
pub(crate) mod task;
#[cfg(test)]
mod tests;
mod topic_check;
pub(crate) mod witnesses;

use decoding::TURN_BLOCKS_MAX;
use stage::CONNECTIONS_MAX;

/// Blocks that may wait in the queue between decoder and engine: in one turn every connection adds
/// no more than its share, and then the engine empties the queue.
pub(crate) const QUEUE_BLOCKS: usize = CONNECTIONS_MAX * TURN_BLOCKS_MAX;

/// Smallest page-aligned step of a receive buffer, on any page size in use.
pub(crate) const RECEIVE_BUFFER_STEP_BYTES: usize = 64 * 1024;

/// Bytes of a receive buffer: room for the largest default batch and what is around it.
pub(crate) const RECEIVE_BUFFER_BYTES_MIN: usize = 18 * RECEIVE_BUFFER_STEP_BYTES;

/// Bytes of a receive buffer: a larger one fits no cache.
pub(crate) const RECEIVE_BUFFER_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Bytes that a Fetch may ask for at least, so that a configuration with tiny limits still moves.
pub(crate) const FETCH_BYTES_MIN: usize = 1024;

/// Bytes of a batch, or of what it decompresses to.
pub(crate) const FETCHED_BATCH_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Connections to one broker: more only add system calls.
pub(crate) const CONNECTIONS_PER_BROKER_MAX: usize = 8;

/// Milliseconds that a broker may hold back a Fetch.
pub(crate) const FETCH_WAIT_MS_MAX: u32 = 10_000;

/// Reports that may wait for the control thread. One that does not fit is dropped and repeated
/// later: a broker that stays away is reported with every try.
pub(crate) const REPORTS_MAX: usize = 256;

/// The options of the fetch path, checked already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchOptions {
    /// How the daemon names itself to brokers.
    pub client_id: String,
    /// The topic with the events.
    pub input_topic: String,
    /// Connections to each broker that leads partitions of ours.
    pub connections_per_broker: usize,
    /// Milliseconds that a broker may hold a Fetch back while there is nothing new.
    pub fetch_wait_ms_max: u32,
    /// Milliseconds between two ticks of a partition, which its owner appends; 0: none.
    pub tick_every_ms: u32,
    /// Bytes that one Fetch response may have.
    pub fetch_bytes_max: usize,
    /// Bytes of one partition in a Fetch response.
    pub partition_bytes_max: usize,
    /// Bytes of a connection's receive buffer.
    pub receive_buffer_bytes: usize,
    /// Bytes of a record batch, or of what it decompresses to.
    pub batch_bytes_max: usize,
    /// Whether records of transactions that are open or aborted are left out.
    pub read_committed: bool,
}
