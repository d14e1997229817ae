//! Numbers about the running daemon: counters, and how far each shard is. Also how text of others
//! is shown.

pub mod metrics;

pub mod progress;

pub mod tally;

pub(crate) mod repeated;

pub(crate) mod printable;

pub(crate) mod turning;
