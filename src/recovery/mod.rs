//! How a shard is acquired and released, and how its output is read back.
pub mod reader;
pub mod tail;

pub mod tail_error;
