//! Kafka: its formats as pure functions over bytes, and the one door to librdkafka.
//!
//! Protocol code does no I/O, and nothing that a broker sends makes it panic.

pub mod wire;

pub mod message;

pub mod error_code;

pub mod metadata;

pub mod fetch;

pub mod list_offsets;

pub(crate) mod coordinator;

pub mod record_batch;

pub mod batch_writer;

pub(crate) mod produce;

pub(crate) mod producer_id;

pub mod codec;

pub(crate) mod lz4_text;

pub(crate) mod checksum;

pub(crate) mod record;

pub mod record_stream;

pub mod aborted;

pub mod client;

pub mod right;

pub mod topic_error;

pub(crate) mod topic_requests;

pub(crate) mod throttle;

pub mod security;

pub mod sasl;

pub mod tls;

pub mod membership;

pub mod group;

pub mod group_lag;

#[cfg(test)]
mod tests;

/// Milliseconds before a broker is tried again after the first failure; doubled with each further.
pub(crate) const RECONNECT_MS_MIN: u64 = 50;

/// Milliseconds before a broker is tried again, at most.
pub(crate) const RECONNECT_MS_MAX: u64 = 1_000;

/// The longest pause, in milliseconds, before brokers that answer are asked again who leads. A
/// partition may stand still for that much longer than its election takes.
pub(crate) const LEADERLESS_MS_MAX: u64 = 250;

/// Characters of a topic name, by Kafka's own rule.
pub(crate) const TOPIC_NAME_CHARS_MAX: usize = 249;

/// Characters of a group, instance or client name: more than any host name needs.
pub(crate) const NAME_CHARS_MAX: usize = 255;

/// Milliseconds that reading an output partition may go on without a single record.
pub(crate) const READ_STALL_MS_MAX: u64 = 30_000;

/// Milliseconds for which the daemon may wait for its environment without a word about it. A new
/// group waits three seconds for further members.
pub(crate) const WORDLESS_MS_MAX: u64 = 4_000;

/// Milliseconds that a broker may take for one answer. One that is frozen keeps its connections
/// open, and is given up by this alone.
pub(crate) const BROKER_ANSWER_MS_MAX: u64 = 10_000;

/// Milliseconds after which another broker is asked, where any will do: one has not answered what
/// takes it little work.
pub(crate) const NEXT_BROKER_MS: u64 = 3_000;

/// Milliseconds that a question about topics and partitions may take.
pub(crate) const METADATA_MS_MAX: u64 = 2_000;

/// Milliseconds after which librdkafka asks for a topic again. It sends nothing more to a topic
/// that it was refused once, until it has asked.
pub(crate) const METADATA_REFRESH_MS: u64 = 5_000;
