//! Numbers about the running daemon: counters, and how far each shard is.

pub mod metrics;

pub mod progress;

pub mod tally;

pub(crate) mod repeated;
