//! How a shard is acquired and released, and how its output is read back.
