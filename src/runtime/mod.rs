//! What the hot thread stands on: the ring, the driver, its core, its allocator.
