//! Numbers about the running daemon: counters, and the progress of each shard. Also the escaping of
//! foreign text for output.

pub(crate) mod long_wait;

pub mod metrics;

pub(crate) mod metrics_page;

pub mod progress;

pub mod tally;

pub(crate) mod repeated;

pub(crate) mod printable;

pub(crate) mod turning;
