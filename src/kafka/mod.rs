//! Kafka: its formats as pure functions over bytes, and the only users of librdkafka.
//!
//! Protocol code does no I/O, and nothing that a broker sends makes it panic.

pub mod wire;

pub mod message;

pub mod error_code;

pub mod metadata;

pub mod fetch;

pub mod leader_hint;

pub mod list_offsets;

pub(crate) mod coordinator;

pub mod group_description;

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

pub(crate) mod topic_writer;

pub mod right;

pub mod topic_error;

pub(crate) mod topic_requests;

pub(crate) mod throttle;

pub mod security;

pub mod sasl;

pub mod tls;

pub mod membership;

pub mod assignment;

pub mod group;

pub mod group_lag;

mod member_id;

pub mod quiet_outputs;

#[cfg(test)]
mod tests;

/// Delay before the first reconnection to a broker, in milliseconds; doubled after each further
/// failure.
pub(crate) const RECONNECT_MS_MIN: u64 = 50;

/// Upper limit of that delay.
pub(crate) const RECONNECT_MS_MAX: u64 = 1_000;

/// Upper limit of the pause, in milliseconds, before responsive brokers are asked again who leads.
/// A partition may be idle for that much longer than its election takes.
pub(crate) const LEADERLESS_MS_MAX: u64 = 250;

/// Limit of a topic name's length, from Kafka.
pub(crate) const TOPIC_NAME_CHARS_MAX: usize = 249;

/// Limit of a group, instance or client name: more than any host name needs.
pub(crate) const NAME_CHARS_MAX: usize = 255;

/// Milliseconds for which reading an output partition may continue without a record.
pub(crate) const READ_STALL_MS_MAX: u64 = 30_000;

/// Milliseconds that a broker may take for one answer. One that is frozen keeps its connections
/// open, and is given up by this alone.
pub(crate) const BROKER_ANSWER_MS_MAX: u64 = 10_000;

/// Milliseconds after which another broker is asked, if any broker will do: this one has not
/// answered a cheap request.
pub(crate) const NEXT_BROKER_MS: u64 = 3_000;

/// Milliseconds that a query about topics and partitions may take.
pub(crate) const METADATA_MS_MAX: u64 = 2_000;

/// Milliseconds after which librdkafka refreshes a topic's metadata. Once refused, it sends nothing
/// more to the topic until then.
pub(crate) const METADATA_REFRESH_MS: u64 = 5_000;
