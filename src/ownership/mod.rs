//! Which shards are ours, and where each of them starts: decisions, without I/O.

pub mod shard_state;

pub mod acquisition;

pub mod start_error;

pub mod gap_check;

/// Milliseconds that the group may take to say whether we are in it.
pub const ANSWER_MS_MAX: u64 = 10_000;

/// Milliseconds before a shard that another instance has fenced is taken back, if the group still
/// gives it to us: it may not know yet.
pub const YIELD_MS: u64 = 2_000;

/// Milliseconds over which a shard has to be refused, where a change of leaders may be the cause,
/// before it halts.
pub const START_ERROR_MS_MAX: u64 = 5_000;

/// Times that one record may take the engine down before it is passed over.
pub const PANICS_MAX: u32 = 3;

/// Milliseconds before a shard is acquired again whose delivery failed or whose brokers were away.
pub const REACQUIRE_MS: u64 = 500;
