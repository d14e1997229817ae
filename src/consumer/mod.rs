//! Kafka records in: broker connections, the wire protocol, group membership.

pub mod addresses;
pub mod block;
pub mod connection;
pub mod cursor;
pub mod decoding;
pub mod fetch_task;
pub mod fetching;
pub mod fetch;

pub mod record_batch;

pub mod record;

pub mod codec;

pub mod aborted;

pub mod message;

pub mod metadata;

pub mod error_code;

pub mod wire;

pub mod membership;

use std::net::SocketAddr;

/// What the fetch path tells the control thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// Something that an operator may want to know; the fetch path goes on trying.
    Trouble(String),
    /// A broker's name has to be resolved: that can take long, and must not happen on this thread.
    Resolve {
        /// Name of the broker.
        host: String,
        /// TCP port.
        port: u16,
    },
}

/// The answer to [`Report::Resolve`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// Name of the broker.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Its address; `None` if the name could not be resolved now.
    pub address: Option<SocketAddr>,
}

/// What the consumer is told at start-up, checked already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Brokers to ask first, `host:port`.
    pub brokers: Vec<String>,
    /// How the daemon names itself to brokers.
    pub client_id: String,
    /// The topic with the events.
    pub input_topic: String,
    /// The consumer group that spreads the partitions.
    pub group: String,
    /// Static membership (KIP-345): a quick restart under the same name moves nothing.
    pub group_instance_id: Option<String>,
    /// How the group is coordinated.
    pub group_protocol: GroupProtocol,
    /// Milliseconds without a heartbeat after which the group gives the partitions to others.
    pub session_timeout_ms: u32,
    /// Connections to each broker that lead partitions of ours.
    pub connections_per_broker: usize,
    /// Milliseconds that a broker may hold a Fetch back while there is nothing new.
    pub fetch_wait_ms_max: u32,
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

/// How the group is coordinated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupProtocol {
    /// JoinGroup and SyncGroup, any broker; only partitions that move are given up (KIP-429).
    Classic,
    /// The same as it was before: at every change each member gives up all of its partitions.
    Eager,
    /// The broker assigns (KIP-848), brokers 4.0 and later.
    Consumer,
}
